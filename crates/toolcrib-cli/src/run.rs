//! `toolcrib run`: one prompt, answered with the servers' tools.

use std::io::{IsTerminal, Read};
use std::time::Duration;

use anyhow::Context as _;
use serde::Serialize;
use toolcrib::agent::{Answer, CallRecord, End};
use toolcrib::tokens::Usage;

use crate::agent::{AgentArgs, Workshop};
use crate::args::Context;
use crate::follow::{Desk, Doorkeeper, Followed, Screen, Signals, follow};
use crate::input::Input;
use crate::model::Chosen;
use crate::output::{self, Interrupted, Misuse};

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

The answer goes to standard output, calls of tools to standard error; --json prints one object in
the end. Tools that change something are asked about, or left alone where
nobody can be asked: --yes lets them run, or rules under [agent] in toolcrib.toml.
The exit code is 0 only if the model came to an end by itself.")]
pub(crate) struct RunArgs {
    /// What to do; `-`, or nothing where something is piped in, reads it from standard input
    prompt: Option<String>,
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
    fn prompt(&self) -> anyhow::Result<String> {
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
        if text.trim().is_empty() {
            return Err(Misuse::new("say what to do: toolcrib run PROMPT").into());
        }
        Ok(text)
    }
}

async fn answer(args: &RunArgs, prompt: String, context: &Context) -> anyhow::Result<()> {
    // From the first moment on, so that servers are never left behind.
    let mut signals = Signals::listen()?;
    let chosen = tokio::select! {
        chosen = args.agent.choose(None, context) => chosen?,
        _ = signals.next() => return Err(Interrupted.into()),
    };
    let workshop = Workshop::open(&args.agent, &chosen, context).await?;
    let followed = attend(&workshop, &chosen, prompt, context, &mut signals).await;
    workshop.close(&mut signals).await;
    match followed? {
        Followed::Finished(answer) => report(answer, &chosen, context),
        Followed::Abandoned => Err(Interrupted.into()),
    }
}

async fn attend(
    workshop: &Workshop<'_>,
    chosen: &Chosen,
    prompt: String,
    context: &Context,
    signals: &mut Signals,
) -> anyhow::Result<Followed> {
    let (desk, mut counter) = Desk::open();
    let agent = workshop.agent(chosen, None, desk)?;
    tokio::select! {
        () = workshop.settle(UNTIL_SETTLED) => {}
        _ = signals.next() => return Err(Interrupted.into()),
    }
    let mut screen = Screen::new(context);
    let mut doorkeeper = Doorkeeper::new(Input::plain(), context.quiet);
    let mut chat = agent.chat();
    follow(&mut chat, prompt, &mut screen, &mut counter, &mut doorkeeper, signals).await
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
}

fn report(answer: Answer, chosen: &Chosen, context: &Context) -> anyhow::Result<()> {
    if context.json {
        output::json(&Report {
            text: &answer.text,
            end: &answer.end,
            turns: answer.turns,
            tool_calls: &answer.calls,
            usage: answer.usage,
            model: &chosen.model,
            provider: &chosen.label,
        })?;
    }
    match answer.end {
        End::Done => Ok(()),
        End::Cancelled => Err(Interrupted.into()),
        end => Err(anyhow::anyhow!("{end}")),
    }
}
