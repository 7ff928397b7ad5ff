//! `toolcrib run`: one prompt, answered with the servers' tools.

use std::io::{IsTerminal, Read};
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use toolcrib::agent::{Agent, Answer, CallRecord, End, Input as Message};
use toolcrib::tokens::Usage;

use crate::agent::{AgentArgs, Workshop};
use crate::args::Context;
use crate::follow::{Counter, Desk, Doorkeeper, Followed, Screen, Signals, follow};
use crate::input::Input;
use crate::model::Chosen;
use crate::output::{self, Interrupted, Misuse};
use crate::sessions::{self, Resume, Shelf};

/// The most that is read from standard input.
const MOST_INPUT: u64 = 64 << 20;

/// Every server has a limit of its own to start in, and that is shorter.
const UNTIL_SETTLED: Duration = Duration::from_secs(3600);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib run 'what changed here since yesterday?'
  toolcrib run 'search the notes' --model scripted     without a model, a key or a network
  toolcrib run 'tidy up the imports' --provider openai --yes
  toolcrib run 'count the files' --base-url http://localhost:8080/v1 --json
  echo 'what time is it in Tokyo?' | toolcrib run
  toolcrib run 'now the other one' --resume 1m3250     go on with a session

The answer goes to standard output, calls of tools to standard error; --json prints one object in
the end. Tools that change something are asked about, or left alone where
nobody can be asked: --yes lets them run, or rules under [agent] in toolcrib.toml.
The exit code is 0 only if the model came to an end by itself.")]
pub(crate) struct RunArgs {
    /// What to do; `-`, or nothing where something is piped in, reads it from standard input
    prompt: Option<String>,
    /// Keep this as a session, to be gone on with later
    #[arg(long)]
    keep: bool,
    /// Go on with a session; without a prompt, if its last message is not answered yet
    #[arg(long, value_name = "ID", conflicts_with = "keep")]
    resume: Option<String>,
    /// Go on with a copy, and leave the session as it is
    #[arg(long, requires = "resume")]
    fork: bool,
    #[command(flatten)]
    agent: AgentArgs,
}

pub(crate) fn run(args: &RunArgs, context: &Context) -> anyhow::Result<()> {
    let prompt = args.prompt()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let done = runtime.block_on(answer(args, prompt, context));
    // A thread that still reads standard input must not keep the program.
    runtime.shutdown_background();
    done
}

impl RunArgs {
    /// What is said; nothing where a session may have something to go on with.
    fn prompt(&self) -> anyhow::Result<Option<String>> {
        let text = match self.prompt.as_deref() {
            Some(text) if text != "-" => text.to_owned(),
            None if std::io::stdin().is_terminal() => String::new(),
            _ => {
                let mut bytes = Vec::new();
                std::io::stdin()
                    .take(MOST_INPUT + 1)
                    .read_to_end(&mut bytes)
                    .context("can't read the prompt from standard input")?;
                if bytes.len() as u64 > MOST_INPUT {
                    let most = MOST_INPUT >> 20;
                    let text = format!("the prompt on standard input is longer than {most} MiB");
                    return Err(Misuse::new(text).into());
                }
                String::from_utf8_lossy(&bytes).into_owned()
            }
        };
        match (text.trim().is_empty(), &self.resume) {
            (false, _) => Ok(Some(text)),
            (true, Some(_)) => Ok(None),
            (true, None) => Err(Misuse::new("say what to do: toolcrib run PROMPT").into()),
        }
    }
}

/// Which conversation the prompt is part of.
enum Place {
    New(Shelf),
    Kept(Resume),
}

async fn answer(args: &RunArgs, prompt: Option<String>, context: &Context) -> anyhow::Result<()> {
    // From the first moment on, so that servers are never left behind.
    let mut signals = Signals::listen()?;
    let place = match &args.resume {
        Some(id) => Place::Kept(Resume::find(Some(id), args.fork, context).await?),
        None if args.keep => Place::New(Shelf::open(context)?),
        None => Place::New(Shelf::none()),
    };
    let chosen = tokio::select! {
        chosen = args.agent.choose(None, context) => chosen?,
        _ = signals.next() => return Err(Interrupted.into()),
    };
    let workshop = Workshop::open(&args.agent, &chosen, context).await?;
    let (desk, counter) = Desk::open();
    let done = match workshop.agent(&chosen, None, desk) {
        Ok(agent) => {
            attend(&workshop, &agent, &place, prompt, counter, context, &mut signals).await
        }
        Err(error) => Err(error),
    };
    workshop.close(&mut signals).await;
    match done? {
        (Followed::Finished(answer), session) => {
            report(answer, &chosen, session.as_deref(), context)
        }
        (Followed::Abandoned, _) => Err(Interrupted.into()),
    }
}

/// What comes of it, and the session it is kept in.
async fn attend(
    workshop: &Workshop<'_>,
    agent: &Agent,
    place: &Place,
    prompt: Option<String>,
    mut counter: Counter,
    context: &Context,
    signals: &mut Signals,
) -> anyhow::Result<(Followed, Option<String>)> {
    tokio::select! {
        () = workshop.settle(UNTIL_SETTLED) => {}
        _ = signals.next() => return Err(Interrupted.into()),
    }
    let mut chat = match place {
        Place::New(shelf) => shelf.begin(agent),
        Place::Kept(resume) => {
            let (chat, reopened) = resume.reopen(agent).await?;
            sessions::tell(&reopened, &chat, context);
            chat
        }
    };
    let message = match prompt {
        Some(prompt) => Message::from(prompt),
        None if chat.is_unanswered() => Message::none(),
        None => {
            let text = "everything in this session is answered; say what to do: toolcrib run \
                        --resume ID PROMPT";
            return Err(Misuse::new(text).into());
        }
    };
    let mut screen = Screen::new(context);
    let mut doorkeeper = Doorkeeper::new(Input::plain(), context.quiet);
    let followed =
        follow(&mut chat, message, &mut screen, &mut counter, &mut doorkeeper, signals).await?;
    Ok((followed, chat.session_id().map(str::to_owned)))
}

#[derive(Serialize)]
struct Report<'a> {
    text: &'a str,
    end: &'a End,
    turns: usize,
    tool_calls: &'a [CallRecord],
    usage: Usage,
    model: &'a str,
    provider: &'a str,
    /// Where it is kept, if it is.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<&'a str>,
}

fn report(
    answer: Answer,
    chosen: &Chosen,
    session: Option<&str>,
    context: &Context,
) -> anyhow::Result<()> {
    if context.json {
        output::json(&Report {
            text: &answer.text,
            end: &answer.end,
            turns: answer.turns,
            tool_calls: &answer.calls,
            usage: answer.usage,
            model: &chosen.model,
            provider: &chosen.label,
            session,
        })?;
    }
    if let Some(id) = session {
        context
            .note(&format!("Kept as {id}; `toolcrib run --resume {id} PROMPT` goes on with it."));
    }
    match answer.end {
        End::Done => Ok(()),
        End::Cancelled => Err(Interrupted.into()),
        end => Err(anyhow::anyhow!("{end}")),
    }
}
