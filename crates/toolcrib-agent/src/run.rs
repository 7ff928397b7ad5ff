//! The loop: ask the model, run what it calls, ask again. The only one there is; it streams, and
//! keeps nothing but the history it is given.

mod ask;
mod compact;

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;

use futures::channel::mpsc::UnboundedSender;
use tokio_util::sync::CancellationToken;
use toolcrib_runtime::Conversation;
use toolcrib_tokens::Usage;

use crate::agent::Parts;
use crate::batch::{Batch, cut_off};
use crate::chat::{Steering, in_common};
use crate::event::{Answer, End, Event};
use crate::history::{Ids, failure, mend};
use crate::hooks::Flow;
use crate::keeping::{Keeper, Unfinished};
use crate::message::{Assistant, CallResult, Message, Said, ToolCall};
use crate::permission::Remembered;
use crate::provider::StopReason;
use crate::reopen::known_result;
use crate::repeats::Repeats;
use crate::spending::Meter;

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
    pub(crate) key: &'a mut Option<Arc<str>>,
    /// Keeps the conversation, if it is kept.
    pub(crate) keeper: Option<&'a mut Keeper>,
    /// What is known of the calls of the last message.
    pub(crate) unfinished: &'a mut Unfinished,
    /// What was added to the history and could not be kept, so that nobody was told.
    pub(crate) untold: &'a mut Vec<Arc<Message>>,
    /// Whether it is worth trying to compact the conversation by itself.
    pub(crate) may_compact: bool,
    /// Why it can't be kept.
    pub(crate) unkept: Option<String>,
    pub(crate) meter: &'a mut Meter,
    /// What the last answer took, and how many messages there were before it.
    pub(crate) last: &'a mut Option<(Usage, usize)>,
}

impl Run<'_> {
    pub(crate) async fn drive(mut self, input: Vec<Message>) {
        self.emit.tell(Event::RunStarted).await;
        let mut answer = Answer::default();
        answer.end = match self.begin(input, &mut answer).await {
            Some(end) => end,
            None => match self.turns(&mut answer).await {
                Ok(end) => end,
                Err(Cancelled) => End::Cancelled,
            },
        };
        // What was loaded or counted since the last message is not kept with it.
        self.save(&[]).await;
        if let Some(reason) = self.unkept.take() {
            answer.end = End::NotKept { reason };
        }
        self.agent.hooks.on_run_end(&answer).await;
        self.emit.send(Event::RunFinished(answer));
    }

    /// Adds what is new to the history. Says how the run ends, if it does.
    async fn begin(&mut self, input: Vec<Message>, answer: &mut Answer) -> Option<End> {
        let stopped = self.make_valid(answer).await;
        let mut news = self.steering.take();
        if input.is_empty() && news.is_empty() && ends_in_text(self.history) {
            // Providers take an answer's beginning for its whole, or not at all.
            news.push(Message::notice("Go on where you stopped."));
        }
        news.extend(input);
        self.append_all(news).await;
        stopped.map(|reason| End::Stopped { reason })
    }

    /// Makes the history valid, if it is not. Says why the run can't go on, if it can't.
    async fn make_valid(&mut self, answer: &mut Answer) -> Option<String> {
        let stopped = self.finish_calls(answer).await;
        // Nothing is known of any calls that are yet to come.
        *self.unfinished = Unfinished::default();
        let before = self.history.clone();
        mend(self.history);
        if let Some(keeper) = self.keeper.as_deref_mut() {
            keeper.differs_from(in_common(&before, self.history));
        }
        stopped
    }

    /// Answers calls that were left open, with what is known of them. When the program ended which
    /// the conversation was kept by, those are made that certainly have not taken effect, or do no
    /// harm when they are made again. Says why the run can't go on, if so.
    async fn finish_calls(&mut self, answer: &mut Answer) -> Option<String> {
        let (known, to_be_made) = (self.unfinished.calls(), self.unfinished.to_be_made);
        let Some(Message::Assistant(said)) = self.history.last().map(|message| &**message) else {
            return None;
        };
        let calls: Vec<ToolCall> = said.calls().cloned().collect();
        if calls.is_empty() || (known.is_empty() && !to_be_made) {
            return None;
        }
        let result = |call: &ToolCall| known_result(call, &known, to_be_made);
        let mut results: Vec<Option<CallResult>> = calls.iter().map(result).collect();
        let open = calls.iter().zip(&results).filter(|(_, result)| result.is_none());
        let open: Vec<ToolCall> = open.map(|(call, _)| call.clone()).collect();
        let batch = self.batch(&open, false, &mut Repeats::default()).await;
        answer.calls.extend(batch.records);
        let mut made = batch.results.into_iter();
        results.iter_mut().filter(|result| result.is_none()).for_each(|it| *it = made.next());
        self.append(Message::Tool { results: results.into_iter().flatten().collect() }).await;
        batch.stop
    }

    async fn append(&mut self, message: Message) {
        self.append_all([message]).await;
    }

    /// Adds to the history. Who is told of it can rely on it being kept.
    async fn append_all(&mut self, messages: impl IntoIterator<Item = Message>) {
        self.append_settled(messages, &[]).await;
    }

    /// The same, with what came of calls in the last of the messages, as far as that is settled.
    async fn append_settled(
        &mut self,
        messages: impl IntoIterator<Item = Message>,
        settled: &[CallResult],
    ) {
        let news: Vec<Arc<Message>> = messages.into_iter().map(Arc::new).collect();
        if news.is_empty() {
            return;
        }
        self.history.extend(news.iter().cloned());
        self.untold.extend(news);
        if self.save(settled).await {
            // What is known of calls was known of those before.
            *self.unfinished = Unfinished::default();
        }
    }

    /// Keeps what is not kept yet, if the conversation is kept, and tells of it; says whether all
    /// is well.
    async fn save(&mut self, settled: &[CallResult]) -> bool {
        if let Some(keeper) = self.keeper.as_deref_mut()
            && self.unkept.is_none()
        {
            let spent = self.meter.spent();
            let saved = keeper.save(self.history, spent, self.conversation, settled).await;
            self.unkept = saved.err();
        }
        let is_kept = self.unkept.is_none();
        if is_kept {
            for message in self.untold.drain(..) {
                self.emit.send(Event::Appended { message });
            }
        }
        is_kept
    }

    /// Keeps what is not kept yet, and no more.
    pub(crate) async fn save_only(mut self) -> Result<(), End> {
        self.save(&[]).await;
        self.not_kept().map_or(Ok(()), Err)
    }

    /// What ends a run whose conversation can't be kept: nothing more happens that would be lost.
    fn not_kept(&self) -> Option<End> {
        self.unkept.clone().map(|reason| End::NotKept { reason })
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
        let (mut paused, mut just_compacted) = (false, false);
        self.may_compact = self.agent.compaction.enabled;
        loop {
            self.append_all(self.steering.take()).await;
            // What its provider still works on can't be told apart from what it has said.
            if !paused && self.may_compact {
                self.compact_if_due(answer).await?;
            }
            let reply = match self.ask(answer).await? {
                Ok(reply) => reply,
                Err(full @ End::ContextFull { .. }) if self.may_compact && !just_compacted => {
                    just_compacted = true;
                    match self.compact_now(answer).await? {
                        Some(Ok(())) => continue,
                        Some(Err(end)) => return Ok(end),
                        None => return Ok(full),
                    }
                }
                Err(end) => return Ok(end),
            };
            let (mut reply, flow) = reply;
            just_compacted = false;
            paused = reply.stop == StopReason::Paused;
            *self.last = Some((reply.usage, self.history.len()));
            ids.settle(&mut reply.content);
            let said = Assistant { content: reply.content };
            let (calls, text): (Vec<ToolCall>, String) =
                (said.calls().cloned().collect(), said.text());
            if !text.trim().is_empty() {
                answer.text = text;
            }
            // What is settled about calls before any is made is kept with them.
            if let Flow::Stop(reason) = flow {
                let unmade = unmade(&calls, &reason);
                self.append_all([Message::Assistant(said)].into_iter().chain(unmade)).await;
                return Ok(End::Stopped { reason });
            }
            let cut = !matches!(reply.stop, StopReason::End | StopReason::Paused);
            let settled = if cut { cut_off(&calls) } else { Vec::new() };
            self.append_settled([Message::Assistant(said)], &settled).await;
            if let Some(end) = self.not_kept() {
                return Ok(end);
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
            let batch = self.batch(&calls, cut, &mut repeats).await;
            let Batch { results, records, stop, repeating } = batch;
            answer.calls.extend(records);
            self.append(Message::Tool { results }).await;
            if let Some(end) = self.not_kept() {
                return Ok(end);
            }
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
}

/// Somebody has stopped the run.
pub(crate) struct Cancelled;

/// What answers calls that will not be made.
fn unmade(calls: &[ToolCall], reason: &str) -> Option<Message> {
    let text = format!("Nothing was run: {reason}");
    let results = calls.iter().map(|call| failure(call, text.clone())).collect();
    (!calls.is_empty()).then_some(Message::Tool { results })
}

/// Whether the last thing in a history is the model's own text.
fn ends_in_text(history: &[Arc<Message>]) -> bool {
    match history.last().map(|message| &**message) {
        Some(Message::Assistant(said)) => matches!(said.content.last(), Some(Said::Text { .. })),
        _ => false,
    }
}
