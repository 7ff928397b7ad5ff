//! Compaction in the course of a run: asking for the summary, and going on with it.

use std::sync::Arc;

use toolcrib_core::{Presentation, Strategy};
use toolcrib_tokens::{Tokenizer, Usage};

use super::ask::{Aloud, SEARCHES, Stop};
use super::{Cancelled, Run};
use crate::chat::in_common;
use crate::compaction::{Loaded, compacted, request_messages, shortened, split, summary, tokens};
use crate::event::{Answer, Compaction, End, Event};
use crate::hooks::Flow;
use crate::message::{Assistant, Message};
use crate::provider::StopReason;

/// How often a conversation that doesn't fit is asked about with half of it left out.
const HALVINGS: u32 = 4;

impl Run<'_> {
    /// Compacts the conversation if it nears the end of the model's window, by what the last
    /// request took and what has come since.
    pub(super) async fn compact_if_due(&mut self, answer: &mut Answer) -> Result<(), Cancelled> {
        let (last, length) = self.last.unwrap_or_default();
        if self.window().is_none() {
            return Ok(());
        }
        let tokenizer = self.tokenizer();
        let since = self.history.iter().skip(length).map(|it| tokens(it, &tokenizer));
        let uncached = last.uncached.saturating_add(since.sum());
        let window = self.window();
        if !self.agent.compaction.is_due(window, Usage { uncached, ..last }) {
            return Ok(());
        }
        let keep = self.agent.compaction.tail(window);
        let Some(at) = split(self.history, keep, &tokenizer) else { return Ok(()) };
        // There is room yet, so the run goes on without; should it not suffice, that will show.
        self.may_compact = self.compact(at, answer).await?.is_ok();
        Ok(())
    }

    /// Compacts a conversation without asking anything else.
    pub(crate) async fn compact_only(mut self) -> Result<(), End> {
        let mut answer = Answer::default();
        if let Some(reason) = self.make_valid(&mut answer).await {
            return Err(End::Stopped { reason });
        }
        let done = self.compact_now(&mut answer).await;
        match done {
            Ok(done) => done.unwrap_or_else(|| self.not_kept().map_or(Ok(()), Err)),
            Err(Cancelled) => Err(End::Cancelled),
        }
    }

    /// Compacts a conversation at any rate, keeping less of it than it would have to if nothing
    /// else helps. `None` if there is nothing to compact.
    pub(super) async fn compact_now(
        &mut self,
        answer: &mut Answer,
    ) -> Result<Option<Result<(), End>>, Cancelled> {
        let (keep, tokenizer) = (self.agent.compaction.tail(self.window()), self.tokenizer());
        let keeps = [keep, keep / 2, keep / 4, 0];
        let at = keeps.into_iter().find_map(|keep| split(self.history, keep, &tokenizer));
        match at {
            Some(at) => Ok(Some(self.compact(at, answer).await?)),
            None => Ok(None),
        }
    }

    /// Puts a summary in place of the messages before `at`; tells why, if it can't.
    async fn compact(
        &mut self,
        at: usize,
        answer: &mut Answer,
    ) -> Result<Result<(), End>, Cancelled> {
        let before = self.history.len();
        let done = self.try_to_compact(at, answer).await;
        let reason = match &done {
            Ok(Ok(())) => None,
            Ok(Err(end)) => Some(end.to_string()),
            Err(Cancelled) => Some(End::Cancelled.to_string()),
        };
        if let Some(reason) = reason
            && self.history.len() >= before
        {
            let text = format!("the conversation could not be compacted: {reason}");
            self.emit.tell(Event::Note { text }).await;
        }
        done
    }

    async fn try_to_compact(
        &mut self,
        at: usize,
        answer: &mut Answer,
    ) -> Result<Result<(), End>, Cancelled> {
        let shown = match self.show().await? {
            Ok(shown) => shown,
            Err(end) => return Ok(Err(end)),
        };
        let names = shown.tools.iter().map(|tool| tool.name().to_string());
        let finder = names.clone().find(|name| SEARCHES.contains(&name.as_str()));
        let finder = finder.or_else(|| names.clone().find(|name| name == "load_tools"));
        self.emit.tell(Event::Compacting).await;
        let mut usage = Usage::default();
        let summary = self.summary(&shown, &mut usage).await;
        answer.usage = answer.usage + usage;
        let cost = self.meter.failed(usage);
        let summary = match summary? {
            Ok(summary) => summary,
            Err(end) => return Ok(Err(end)),
        };
        // The cache is lost from here on, so the model may see the catalog as it is now.
        self.conversation.settle_anew();
        let given = self.conversation.loaded();
        let strategy = self.conversation.strategy().filter(|_| self.conversation.is_deferred());
        let loaded = Loaded {
            tools: &given,
            // In full mode, too, what came later is in the tools array.
            strategy: strategy.unwrap_or(Strategy::Inject),
            budget: self.agent.compaction.definitions(self.window()),
            finder: finder.as_deref(),
        };
        let history = compacted(self.history, at, &summary, &loaded);
        let before = std::mem::replace(self.history, history);
        if let Some(keeper) = self.keeper.as_deref_mut() {
            keeper.differs_from(in_common(&before, self.history));
        }
        (*self.last, *self.key) = (None, None);
        self.save(&[]).await;
        let (before, after) = (before.len(), self.history.len());
        let compaction = Compaction { before, after, summary, cost };
        self.emit.tell(Event::Compacted(compaction)).await;
        Ok(self.not_kept().map_or(Ok(()), Err))
    }

    /// Asks the model for a summary, with less and less of the conversation if it doesn't fit.
    async fn summary(
        &mut self,
        shown: &Presentation,
        usage: &mut Usage,
    ) -> Result<Result<String, End>, Cancelled> {
        let tokenizer = self.tokenizer();
        let words = self.agent.compaction.words(self.window());
        let size: u64 = self.history.iter().map(|it| tokens(it, &tokenizer)).sum();
        let mut room = self.window().map_or(size / 2, |window| size.min(window / 4 * 3));
        let mut history: Option<Vec<Arc<Message>>> = Some(self.history.clone());
        for _ in 0..=HALVINGS {
            let Some(asked) = history else { break };
            let messages = request_messages(&asked, words);
            let request = match self.request(shown, messages).await? {
                Ok(request) => request,
                Err(end) => return Ok(Err(end)),
            };
            match self.settled(&request, usage, Aloud::No).await? {
                Ok((_, Flow::Stop(reason))) => return Ok(Err(End::Stopped { reason })),
                Ok((reply, Flow::Continue)) => match reply.stop {
                    StopReason::ContextFull => {}
                    StopReason::End | StopReason::Other(_) => {
                        let said = Assistant { content: reply.content };
                        let reason = "the model wrote no summary".to_owned();
                        return Ok(summary(&said).ok_or(End::Failed { reason }));
                    }
                    // Half a summary is none.
                    StopReason::Length | StopReason::Paused | StopReason::Refusal(_) => {
                        let reason = "the model did not finish its summary".to_owned();
                        return Ok(Err(End::Failed { reason }));
                    }
                },
                Err(Stop::At(End::ContextFull { .. })) => {}
                Err(stop) => return Ok(Err(stop.end())),
            }
            history = shortened(self.history, room, &tokenizer);
            room /= 2;
        }
        let reason = "not even a part of it fits the window".to_owned();
        Ok(Err(End::ContextFull { reason }))
    }

    fn window(&self) -> Option<u64> {
        self.agent.known.as_ref().and_then(|model| model.context)
    }

    fn tokenizer(&self) -> Tokenizer {
        self.agent.known.as_ref().map_or(Tokenizer::O200K, |model| model.tokenizer)
    }
}
