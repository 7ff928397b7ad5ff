//! The loop: ask the model, run what it calls, ask again. The only one there is; it streams, and
//! keeps nothing but the history it is given.

use std::collections::hash_map::RandomState;
use std::future::poll_fn;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::StreamExt;
use futures::channel::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use toolcrib_core::{Fingerprint, TurnReport};
use toolcrib_runtime::Conversation;
use toolcrib_tokens::Usage;

use crate::agent::Parts;
use crate::batch::Batch;
use crate::chat::Steering;
use crate::event::{Answer, End, Event};
use crate::history::{Ids, failure, mend};
use crate::hooks::Flow;
use crate::message::{Assistant, Message, Said, ToolCall};
use crate::permission::Remembered;
use crate::provider::{Delta, ProviderError, Reply, Request, Retry, StopReason};
use crate::repeats::Repeats;

/// The first pause before a request is sent again; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// Hands out events.
#[derive(Clone)]
pub(crate) struct Emitter(pub(crate) UnboundedSender<Event>);

impl Emitter {
    pub(crate) fn send(&self, event: Event) {
        // Nobody listens once the run has been dropped, and then nothing matters.
        let _ = self.0.unbounded_send(event);
    }

    /// Sends an event, and goes on when it has been read: whoever reads it may cancel, or put in
    /// a word.
    pub(crate) async fn tell(&self, event: Event) {
        self.send(event);
        let mut read = false;
        poll_fn(|context| {
            if read {
                return Poll::Ready(());
            }
            read = true;
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

/// One run of an agent on one conversation.
pub(crate) struct Run<'a> {
    pub(crate) agent: &'a Parts,
    pub(crate) conversation: &'a Conversation,
    pub(crate) history: &'a mut Vec<Arc<Message>>,
    pub(crate) remembered: &'a Remembered,
    pub(crate) steering: &'a Steering,
    pub(crate) cancel: CancellationToken,
    pub(crate) emit: Emitter,
    /// See [`Run::cache_key`].
    pub(crate) key: Option<Arc<str>>,
}

impl Run<'_> {
    pub(crate) async fn drive(mut self, input: Vec<Message>) {
        self.emit.tell(Event::RunStarted).await;
        mend(self.history);
        self.steering.take().into_iter().for_each(|message| self.append(message));
        if input.is_empty() && ends_in_text(self.history) {
            // Providers take an answer's beginning for its whole, or not at all.
            self.append(Message::notice("Go on where you stopped."));
        }
        input.into_iter().for_each(|message| self.append(message));
        let mut answer = Answer::default();
        answer.end = match self.turns(&mut answer).await {
            Ok(end) => end,
            Err(Cancelled) => End::Cancelled,
        };
        self.agent.hooks.on_run_end(&answer).await;
        self.emit.send(Event::RunFinished(answer));
    }

    fn append(&mut self, message: Message) {
        let message = Arc::new(message);
        self.history.push(message.clone());
        self.emit.send(Event::Appended { message });
    }

    /// What somebody else does, unless the run is cancelled meanwhile.
    pub(crate) async fn unless_cancelled<T>(
        &self,
        work: impl Future<Output = T>,
    ) -> Result<T, Cancelled> {
        tokio::select! {
            biased;
            () = self.cancel.cancelled() => Err(Cancelled),
            done = work => Ok(done),
        }
    }

    async fn turns(&mut self, answer: &mut Answer) -> Result<End, Cancelled> {
        let mut ids = Ids::of(self.history);
        let mut repeats = Repeats::default();
        loop {
            self.steering.take().into_iter().for_each(|message| self.append(message));
            let reply = match self.ask(answer).await? {
                Ok(reply) => reply,
                Err(end) => return Ok(end),
            };
            let (mut reply, flow) = reply;
            ids.settle(&mut reply.content);
            let said = Assistant { content: reply.content };
            let (calls, text): (Vec<ToolCall>, String) =
                (said.calls().cloned().collect(), said.text());
            if !text.trim().is_empty() {
                answer.text = text;
            }
            self.append(Message::Assistant(said));
            if let Flow::Stop(reason) = flow {
                self.leave_unanswered(&calls, &reason);
                return Ok(End::Stopped { reason });
            }
            if calls.is_empty() {
                match reply.stop {
                    StopReason::Paused => continue,
                    StopReason::Length => return Ok(End::Length),
                    StopReason::ContextFull => {
                        let reason = "the window is full".to_owned();
                        return Ok(End::ContextFull { reason });
                    }
                    StopReason::End | StopReason::Other(_) | StopReason::Refusal(_) => {}
                }
                if self.steering.is_empty() {
                    return Ok(End::Done);
                }
                continue;
            }
            let cut = !matches!(reply.stop, StopReason::End | StopReason::Paused);
            let batch = self.batch(&calls, cut, &mut repeats).await;
            let Batch { results, records, stop, repeating } = batch;
            answer.calls.extend(records);
            self.append(Message::Tool { results });
            if self.cancel.is_cancelled() {
                return Err(Cancelled);
            }
            if let Some(reason) = stop {
                return Ok(End::Stopped { reason });
            }
            if let Some(name) = repeating {
                return Ok(End::Repeating { name });
            }
            let stop = self.agent.hooks.should_stop(self.history);
            if let Flow::Stop(reason) = self.unless_cancelled(stop).await? {
                return Ok(End::Stopped { reason });
            }
        }
    }

    /// Gives calls that will not run a result that says so.
    fn leave_unanswered(&mut self, calls: &[ToolCall], reason: &str) {
        if calls.is_empty() {
            return;
        }
        let text = format!("Nothing was run: {reason}");
        let results = calls.iter().map(|call| failure(call, text.clone())).collect();
        self.append(Message::Tool { results });
    }

    /// Asks the model, once as far as the conversation is concerned.
    async fn ask(&mut self, answer: &mut Answer) -> Result<Result<(Reply, Flow), End>, Cancelled> {
        let report = self.conversation.begin_turn();
        self.tell_changes(report).await;
        let shown = match self.conversation.prepare() {
            Ok(shown) => shown,
            Err(error) => return Ok(Err(End::Failed { reason: error.to_string() })),
        };
        for text in shown.announcements {
            self.append(Message::Notice { text });
        }
        if answer.turns >= self.conversation.iteration_limit(self.agent.limits.turns) {
            return Ok(Err(End::Limit { turns: answer.turns }));
        }
        let Parts { system, model, options, sees_images, hooks, .. } = self.agent;
        let section = &shown.system_section;
        let gap = if system.is_empty() || section.is_empty() { "" } else { "\n\n" };
        let system = hooks.system_prompt(format!("{system}{gap}{section}"));
        let system = self.unless_cancelled(system).await?;
        let mut messages = self.unless_cancelled(hooks.context(self.history.clone())).await?;
        // A hook that keeps the newest messages may have parted calls from their results.
        mend(&mut messages);
        let mut request = Request {
            model: model.clone(),
            system: system.into(),
            tools: shown.tools,
            messages,
            options: options.clone(),
            sees_images: *sees_images,
            cache_key: self.cache_key(),
        };
        let flow = self.unless_cancelled(hooks.before_model(&mut request)).await?;
        if let Flow::Stop(reason) = flow {
            return Ok(Err(End::Stopped { reason }));
        }
        answer.turns += 1;
        let turn = answer.turns;
        self.emit.tell(Event::TurnStarted { turn }).await;
        let (mut usage, before) = (Usage::default(), self.history.len());
        let reply = self.settled(&request, &mut usage).await;
        add(&mut answer.usage, usage);
        let kept = matches!(reply, Ok(Ok(_))) || self.history.len() > before;
        self.emit.tell(Event::TurnFinished { turn, usage, kept }).await;
        reply
    }

    /// What the model answers, once hooks have seen it.
    async fn settled(
        &mut self,
        request: &Request,
        usage: &mut Usage,
    ) -> Result<Result<(Reply, Flow), End>, Cancelled> {
        let mut reply = match self.attempts(request, usage).await? {
            Ok(reply) => reply,
            Err(end) => return Ok(Err(end)),
        };
        let hooks = &self.agent.hooks;
        let flow = self.unless_cancelled(hooks.after_model_response(&mut reply)).await?;
        Ok(match reply.stop {
            StopReason::Refusal(reason) => Err(End::Refused { reason }),
            _ => Ok((reply, flow)),
        })
    }

    /// Tells what the beginning of a turn has loaded and put out.
    async fn tell_changes(&self, report: TurnReport) {
        let names = |tools: &[Arc<str>]| tools.iter().map(ToString::to_string).collect();
        if !report.evicted.is_empty() {
            self.emit.tell(Event::Unloaded { tools: names(&report.evicted) }).await;
        }
        if !report.preloaded.is_empty() {
            self.emit.tell(Event::Loaded { tools: names(&report.preloaded) }).await;
        }
    }

    /// Equal for all requests of a conversation, also when it is resumed elsewhere.
    fn cache_key(&mut self) -> Option<Arc<str>> {
        if self.key.is_some() {
            return self.key.clone();
        }
        let first = serde_json::to_vec(&**self.history.first()?).ok()?;
        let key = Fingerprint::of([self.agent.system.as_bytes(), &first]).to_string();
        self.key = Some(key.into());
        self.key.clone()
    }

    /// Asks until there is an answer, or no more to be hoped for.
    async fn attempts(
        &mut self,
        request: &Request,
        usage: &mut Usage,
    ) -> Result<Result<Reply, End>, Cancelled> {
        let (mut failures, mut was_empty) = (0, false);
        loop {
            let error = match self.attempt(request).await {
                Ok(reply) => {
                    add(usage, reply.usage);
                    if !is_empty(&reply) {
                        return Ok(Ok(reply));
                    }
                    if was_empty {
                        return Ok(Err(End::Empty));
                    }
                    was_empty = true;
                    let reason = "the answer was empty".to_owned();
                    self.emit.tell(Event::Retrying { reason, wait: Duration::ZERO }).await;
                    continue;
                }
                Err(Cut::Cancelled { written }) => {
                    // What a person has read, the model should know it said.
                    if !written.trim().is_empty() {
                        let content = vec![Said::Text { text: written }];
                        self.append(Message::Assistant(Assistant { content }));
                    }
                    return Err(Cancelled);
                }
                Err(Cut::Failed(error)) => error,
            };
            let reason = error.to_string();
            let limits = &self.agent.limits;
            let wait = match error.retry() {
                Retry::Never => None,
                Retry::Soon => Some(backoff(failures)),
                Retry::After(wait) => Some(wait),
            };
            let Some(wait) = wait.filter(|_| failures < limits.retries) else {
                return Ok(Err(match error {
                    ProviderError::ContextTooLong(reason) => End::ContextFull { reason },
                    _ => End::Failed { reason },
                }));
            };
            failures += 1;
            let wait = wait.min(limits.wait);
            tracing::info!(reason, ?wait, "the model will be asked again");
            self.emit.tell(Event::Retrying { reason, wait }).await;
            self.unless_cancelled(tokio::time::sleep(wait)).await?;
        }
    }

    async fn attempt(&self, request: &Request) -> Result<Reply, Cut> {
        let mut deltas = self.agent.provider.stream(request.clone());
        let mut written = String::new();
        loop {
            let Ok(delta) = self.unless_cancelled(deltas.next()).await else {
                return Err(Cut::Cancelled { written });
            };
            match delta {
                Some(Ok(Delta::Finished(reply))) => return Ok(reply),
                Some(Ok(Delta::Text(text))) => {
                    written.push_str(&text);
                    self.emit.tell(Event::Text { text }).await;
                }
                Some(Ok(Delta::Thinking(text))) => self.emit.tell(Event::Thinking { text }).await,
                Some(Ok(Delta::Call { name, .. })) => self.emit.tell(Event::Writing { name }).await,
                Some(Ok(Delta::Arguments { .. })) => {}
                Some(Err(error)) => return Err(Cut::Failed(error)),
                None => {
                    let reason = "the answer ended before it was complete".to_owned();
                    return Err(Cut::Failed(ProviderError::Broken(reason)));
                }
            }
        }
    }
}

/// Somebody has stopped the run.
pub(crate) struct Cancelled;

/// Whether the last thing in a history is the model's own text.
fn ends_in_text(history: &[Arc<Message>]) -> bool {
    match history.last().map(|message| &**message) {
        Some(Message::Assistant(said)) => matches!(said.content.last(), Some(Said::Text { .. })),
        _ => false,
    }
}

/// Why an attempt brought no answer.
enum Cut {
    Cancelled { written: String },
    Failed(ProviderError),
}

/// Whether there is nothing in an answer that a person or a tool could use, and no reason for it.
fn is_empty(reply: &Reply) -> bool {
    let is_nothing = |said: &Said| match said {
        Said::Text { text } => text.trim().is_empty(),
        Said::Call(_) => false,
        Said::Native { .. } => true,
    };
    matches!(reply.stop, StopReason::End | StopReason::Other(_))
        && reply.content.iter().all(is_nothing)
}

/// Twice as long each time, and not for everybody at the same moment.
fn backoff(failures: u32) -> Duration {
    let spread = RandomState::new().hash_one(failures) % 512;
    FIRST_WAIT.saturating_mul(1 << failures.min(16)).mul_f64(0.75 + spread as f64 / 1024.0)
}

fn add(sum: &mut Usage, usage: Usage) {
    sum.read += usage.read;
    sum.written += usage.written;
    sum.uncached += usage.uncached;
    sum.output += usage.output;
}
