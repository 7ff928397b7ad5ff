//! One run of an agent, followed to its end: what happens is shown, who must be asked is asked,
//! and whoever has had enough ends it.

mod called;
mod desk;
mod doorkeeper;
mod markdown;
mod screen;
mod signals;

use std::time::Duration;

use futures::StreamExt;
use tokio::time::{Instant, interval_at};
use toolcrib::agent::{Answer, Chat, Event, Input as Message};

use crate::output;
pub(crate) use called::{brief, called, uncertain};
pub(crate) use desk::{Counter, Desk};
pub(crate) use doorkeeper::Doorkeeper;
pub(crate) use markdown::Markdown;
pub(crate) use screen::Screen;
pub(crate) use signals::{Signal, Signals, hangup, hung_up};

/// How often a call that takes long is told of.
const TICK: Duration = Duration::from_secs(1);

/// How following a run ended.
pub(crate) enum Followed {
    /// With the run.
    Finished(Answer),
    /// Somebody wanted out, at once.
    Abandoned,
}

/// Says something and follows what happens. Ctrl-C cancels the run; once more, it is left.
pub(crate) async fn follow(
    chat: &mut Chat,
    message: impl Into<Message>,
    screen: &mut Screen,
    counter: &mut Counter,
    doorkeeper: &mut Doorkeeper,
    signals: &mut Signals,
) -> anyhow::Result<Followed> {
    let cancel = chat.cancellation();
    let mut events = chat.stream(message);
    let mut tick = interval_at(Instant::now() + TICK, TICK);
    loop {
        tokio::select! {
            // What has happened is shown before anything is asked about it.
            biased;
            event = events.next() => match event {
                Some(Event::RunFinished(answer)) => {
                    screen.finish()?;
                    return Ok(Followed::Finished(answer));
                }
                Some(event) => screen.show(&event)?,
                None => return Ok(Followed::Abandoned),
            },
            question = counter.next() => {
                screen.pause()?;
                let approval = tokio::select! {
                    approval = doorkeeper.ask(&question.call) => approval,
                    _ = signals.next() => {
                        // The question stands there without an answer.
                        output::aside("");
                        None
                    }
                };
                match approval {
                    Some(approval) => question.answer(approval),
                    None => cancel.cancel(),
                }
            }
            _ = signals.next() => {
                if cancel.is_cancelled() {
                    signals.is_hurried = true;
                    return Ok(Followed::Abandoned);
                }
                cancel.cancel();
            }
            _ = tick.tick() => screen.tick(),
        }
    }
}
