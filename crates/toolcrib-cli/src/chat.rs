//! `toolcrib chat`: a conversation with a model that has the servers' tools.

mod command;
mod talk;

use std::time::Duration;

use toolcrib::agent::Input as Message;

use crate::agent::{AgentArgs, Workshop};
use crate::args::Context;
use crate::config::{Then, mask_url};
use crate::follow::{Desk, Doorkeeper, Signal, Signals};
use crate::input::{Input, Line};
use crate::model::Chosen;
use crate::output::{self, Interrupted, Misuse, Told, counted};
use crate::sessions::{self, Resume, Shelf};
use command::Command;
use talk::{Next, Talk};

/// What stands before what one types.
const PROMPT: &str = "› ";

/// How long servers may take to list their tools before the first prompt. The others follow.
const UNTIL_SETTLED: Duration = Duration::from_secs(5);

/// The file in the state folder with what was typed.
const HISTORY_FILE: &str = "toolcrib/chat_history";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib chat
  toolcrib chat --model scripted                       without a model, a key or a network
  toolcrib chat --provider ollama --model qwen3:8b
  toolcrib chat --resume                               go on with the last one of this folder
  toolcrib chat --resume 1m3250                        or with another: `toolcrib sessions` lists them
  printf 'hello\\n/stats\\n' | toolcrib chat             every line is a message

At the prompt: /help lists the commands, a backslash at the end of a line continues the message,
Ctrl-C cancels what is under way, Ctrl-D leaves. Tools that change something are asked about,
unless --yes or a rule under [agent] in toolcrib.toml says otherwise.")]
pub(crate) struct ChatArgs {
    /// Go on with a session: this one, or the newest of this folder
    #[arg(long, value_name = "ID")]
    resume: Option<Option<String>>,
    /// Go on with a copy, and leave the session as it is
    #[arg(long, requires = "resume")]
    fork: bool,
    /// Keep nothing of this chat
    #[arg(long, conflicts_with = "resume")]
    no_keep: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

pub(crate) fn run(args: &ChatArgs, context: &Context) -> anyhow::Result<()> {
    if context.json {
        let text = "a chat is for people; `toolcrib run PROMPT --json` is for scripts";
        return Err(Misuse::new(text).into());
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(chat(args, context));
    // A thread that still reads standard input must not keep the program.
    runtime.shutdown_background();
    done
}

async fn chat(args: &ChatArgs, context: &Context) -> anyhow::Result<()> {
    // From the first moment on, so that servers are never left behind.
    let mut signals = Signals::listen()?;
    let resume = match &args.resume {
        Some(id) => Some(Resume::find(id.as_deref(), args.fork, context).await?),
        None => None,
    };
    let chosen = tokio::select! {
        chosen = args.agent.choose(None, context) => chosen?,
        _ = signals.next() => return Err(Interrupted.into()),
    };
    let workshop = Workshop::open(&args.agent, &chosen, context).await?;
    let done = attend(args, &workshop, chosen, resume, context, &mut signals).await;
    workshop.close(&mut signals).await;
    done
}

async fn attend(
    args: &ChatArgs,
    workshop: &Workshop<'_>,
    chosen: Chosen,
    resume: Option<Resume>,
    context: &Context,
    signals: &mut Signals,
) -> anyhow::Result<()> {
    let shelf = match &resume {
        Some(resume) => resume.shelf(),
        None if args.no_keep || context.config.agent.keep == Some(false) => Shelf::none(),
        None => Shelf::open_if_possible(context),
    };
    let mut talk = Talk::new(&args.agent, workshop, chosen, context, Desk::open(), shelf)?;
    tokio::select! {
        () = workshop.settle(UNTIL_SETTLED) => {}
        _ = signals.next() => return Err(Interrupted.into()),
    }
    let reopened = match &resume {
        Some(resume) => Some(talk.resume(resume).await?),
        None => None,
    };
    let history = context.env.state_home().map(|folder| folder.join(HISTORY_FILE));
    let input = Input::edited(&command::NAMES, history, context.env.get("TERM"));
    let mut doorkeeper = Doorkeeper::new(input, context.quiet);
    if doorkeeper.input.is_typed() {
        let tools = counted(talk.tools(), "tool");
        note_of_configuration(context);
        context.note(&format!("{}, {tools}. /help lists commands, Ctrl-D leaves.", talk.chosen()));
    }
    if let Some(reopened) = &reopened {
        sessions::tell(reopened, talk.chat(), context);
        if doorkeeper.input.is_typed() && !context.quiet {
            sessions::show_last(talk.chat(), &reopened.meta.id);
        }
    }
    if talk.chat().is_unanswered() {
        context.note("That is not answered yet, so the model goes on.");
        talk.say(Message::none(), &mut doorkeeper, signals).await?;
    }
    while !signals.is_terminated() {
        let prompt = match talk.depth() {
            0 => PROMPT.to_owned(),
            depth => format!("fork {depth} {PROMPT}"),
        };
        let text = match read(&mut doorkeeper.input, &prompt, signals).await? {
            Line::Text(text) => text,
            Line::Interrupted => {
                context.note("Ctrl-D leaves.");
                continue;
            }
            Line::End => break,
        };
        let next = match Command::parse(&text) {
            None if text.trim().is_empty() => Next::Goes,
            None => talk.say(text, &mut doorkeeper, signals).await?,
            Some(Ok(command)) => talk.obey(command, signals).await?,
            Some(Err(reason)) => {
                output::complain(&reason);
                talk.has_failed = true;
                Next::Goes
            }
        };
        match next {
            Next::Goes => {}
            Next::Ends => break,
        }
    }
    if let Some(id) = talk.chat().session_id().filter(|_| doorkeeper.input.is_typed()) {
        context.note(&format!("Kept as {id}; `toolcrib chat --resume` goes on with it."));
    }
    // Whoever typed has read what went wrong, and ended it; a script has not.
    match doorkeeper.input.is_typed() {
        true => Ok(()),
        false if signals.is_terminated() => Err(Interrupted.into()),
        false if talk.has_failed => Err(Told.into()),
        false => Ok(()),
    }
}

/// Says which file decides, and what in it one would want to know of: it may have come with the
/// folder.
fn note_of_configuration(context: &Context) {
    let (config, agent) = (&context.config, &context.config.agent);
    let Some(file) = &config.file else { return };
    let allows = agent.permissions.iter().filter(|rule| rule.then == Then::Allow).count();
    let notable = [
        agent.base_url.as_deref().map(|url| format!("asks at {}", mask_url(url))),
        agent.key_env.as_ref().map(|name| format!("takes the key from {name}")),
        (allows > 0).then(|| format!("lets tools run unasked by {}", counted(allows, "rule"))),
    ];
    let notable: Vec<String> = notable.into_iter().flatten().collect();
    let what = match notable.is_empty() {
        true => String::new(),
        false => format!(": it {}", notable.join(", ")),
    };
    context.note(&format!("Configured by {}{what}.", file.display()));
}

/// The next line, or the end if the program is told to end.
async fn read(input: &mut Input, prompt: &str, signals: &mut Signals) -> anyhow::Result<Line> {
    let is_edited = input.is_edited();
    let line = input.message(prompt);
    tokio::pin!(line);
    loop {
        tokio::select! {
            line = &mut line => return Ok(line?),
            signal = signals.next() => match signal {
                Signal::Terminate => return Ok(Line::End),
                // An editor hears of Ctrl-C itself.
                Signal::Interrupt if is_edited => {}
                Signal::Interrupt => return Err(Interrupted.into()),
            }
        }
    }
}
