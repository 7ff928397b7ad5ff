//! Asking the model: what it is sent, in which form, and how often.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt;
use tokio::task::JoinHandle;
use toolcrib_core::{
    Definition, Fingerprint, Presentation, Preset, Scenario, Strategy, StrategyChoice, TurnReport,
};
use toolcrib_tokens::{Feature, Usage};

use super::{Cancelled, Run};
use crate::agent::Parts;
use crate::compaction::tokens;
use crate::event::{Answer, End, Event};
use crate::history::mend;
use crate::hooks::Flow;
use crate::message::{Assistant, Message, Part, Said};
use crate::provider::{
    Delta, HostedSearch, Native, ProviderError, Reply, Request, Retry, StopReason,
};
use crate::spending::{Deferred, definition};

/// The first pause before a request is sent again; each further one is twice as long.
const FIRST_WAIT: Duration = Duration::from_millis(500);

/// The verbs that providers have a form of their own for.
pub(super) const SEARCHES: [&str; 2] = ["tool_search", "tool_search_regex"];

impl Run<'_> {
    /// Asks the model, once as far as the conversation is concerned.
    pub(super) async fn ask(
        &mut self,
        answer: &mut Answer,
    ) -> Result<Result<(Reply, Flow), End>, Cancelled> {
        let report = self.conversation.begin_turn();
        self.tell_changes(report).await;
        let shown = match self.show().await? {
            Ok(shown) => shown,
            Err(end) => return Ok(Err(end)),
        };
        if answer.turns >= self.conversation.iteration_limit(self.agent.limits.turns) {
            return Ok(Err(End::Limit { turns: answer.turns }));
        }
        let messages = self.history.clone();
        let mut request = match self.request(&shown, messages).await? {
            Ok(request) => request,
            Err(end) => return Ok(Err(end)),
        };
        let counting = self.count_all();
        answer.turns += 1;
        let turn = answer.turns;
        self.emit.tell(Event::TurnStarted { turn }).await;
        let (mut usage, before) = (Usage::default(), self.history.len());
        let mut section = shown.system_section;
        let mut reply = self.settled(&request, &mut usage, Aloud::Yes).await;
        if let Ok(Err(Stop::NoNative(reason))) = &reply {
            let text = format!(
                "the model's own form for tools that wait was refused ({reason}), so strategy \
                 `dispatch` is used in place of `native`"
            );
            let session = self.conversation.session();
            let second = match self.without_native().await {
                Ok(Ok((again, other))) => {
                    let second = self.settled(&again, &mut usage, Aloud::Yes).await;
                    (request, section) = (again, other);
                    second
                }
                Ok(Err(end)) => Ok(Err(Stop::At(end))),
                Err(Cancelled) => Err(Cancelled),
            };
            if matches!(second, Ok(Ok(_))) {
                tracing::warn!(text);
                self.emit.tell(Event::Note { text }).await;
            } else {
                self.conversation.put_back(session);
            }
            // What is refused in either form is refused for the reason that was given first.
            if !matches!(second, Ok(Err(Stop::At(End::Failed { .. })))) {
                reply = second;
            }
        }
        answer.usage = answer.usage + usage;
        let cost = match &reply {
            Ok(Ok((reply, _))) => {
                let full_tools = self.full_tools(counting).await;
                let deferred = full_tools.map(|full_tools| Deferred { section, full_tools });
                self.meter.turn(&request, deferred.as_ref(), usage, reply)
            }
            _ => self.meter.failed(usage),
        };
        let kept = matches!(reply, Ok(Ok(_))) || self.history.len() > before;
        self.emit.tell(Event::TurnFinished { turn, usage, cost, kept }).await;
        Ok(reply?.map_err(Stop::end))
    }

    /// What the model is to see now. What it is to be told besides joins the history.
    pub(super) async fn show(&mut self) -> Result<Result<Presentation, End>, Cancelled> {
        let begins = self.conversation.strategy().is_none();
        let why = if begins { self.choose_strategy().await } else { None };
        let shown = self.prepared().await;
        if let (Some(why), Some(strategy)) = (why, self.conversation.strategy())
            && self.conversation.is_deferred()
        {
            self.emit.tell(Event::Chosen { strategy, why }).await;
        }
        if shown.is_ok() && begins && self.predict().await? {
            return Ok(self.prepared().await);
        }
        Ok(shown)
    }

    async fn prepared(&mut self) -> Result<Presentation, End> {
        let shown = self.conversation.prepare();
        let mut shown = shown.map_err(|error| End::Failed { reason: error.to_string() })?;
        let change = std::mem::take(&mut shown.change);
        let change = (!change.is_empty()).then_some(Message::Tools(change));
        let notices = std::mem::take(&mut shown.announcements).into_iter().map(Message::notice);
        self.append_all(notices.chain(change)).await;
        self.not_kept().map_or(Ok(shown), Err)
    }

    /// Settles, before the first request, how tools reach the model where the settings leave that
    /// open; says why.
    async fn choose_strategy(&mut self) -> Option<String> {
        let engine = self.agent.crib.engine();
        match (engine.settings().strategy, &self.agent.known) {
            (StrategyChoice::Native, _) if self.agent.is_native() => {
                self.conversation.choose(Strategy::Native);
                None
            }
            (StrategyChoice::Native, _) => {
                self.conversation.choose(Strategy::Dispatch);
                self.emit.tell(Event::Note { text: self.agent.without_native() }).await;
                None
            }
            (StrategyChoice::Auto, Some(model)) => {
                let tokenizer = &model.tokenizer;
                let scenario = Scenario {
                    system: tokenizer.count(&self.agent.system).tokens,
                    history: self.history.iter().map(|it| tokens(it, tokenizer)).sum(),
                    ..Scenario::default()
                };
                let view = self.conversation.view();
                let chosen = engine.choose(&view, model, &scenario, self.agent.is_native());
                self.conversation.choose(chosen.strategy);
                Some(chosen.why)
            }
            _ => None,
        }
    }

    /// Offers what the first message seems to need; says whether anything was.
    async fn predict(&mut self) -> Result<bool, Cancelled> {
        let most = self.agent.predict;
        if most == 0 || !self.conversation.is_deferred() {
            return Ok(false);
        }
        let first: Option<String> = self.history.iter().find_map(|message| match &**message {
            Message::User { content } => Some(content.iter().map(Part::described).collect()),
            _ => None,
        });
        let Some(first) = first else { return Ok(false) };
        let offered = self.unless_cancelled(self.conversation.predict(&first, most)).await?;
        if !offered.is_empty() {
            let tools = offered.iter().map(ToString::to_string).collect();
            self.emit.tell(Event::Loaded { tools }).await;
        }
        Ok(!offered.is_empty())
    }

    /// The request once more, in a form that every provider takes, with the section in it.
    async fn without_native(&mut self) -> Result<Result<(Request, Arc<str>), End>, Cancelled> {
        self.conversation.without_native();
        let shown = match self.show().await? {
            Ok(shown) => shown,
            Err(end) => return Ok(Err(end)),
        };
        let messages = self.history.clone();
        let request = self.request(&shown, messages).await?;
        Ok(request.map(|request| (request, shown.system_section)))
    }

    /// All that the model is sent.
    pub(super) async fn request(
        &mut self,
        shown: &Presentation,
        messages: Vec<Arc<Message>>,
    ) -> Result<Result<Request, End>, Cancelled> {
        let Parts { system, model, options, sees_images, hooks, .. } = self.agent;
        let section = &shown.system_section;
        let gap = if system.is_empty() || section.is_empty() { "" } else { "\n\n" };
        let system = hooks.system_prompt(format!("{system}{gap}{section}"));
        let system = self.unless_cancelled(system).await?;
        let mut messages = self.unless_cancelled(hooks.context(messages)).await?;
        // A hook that keeps the newest messages may have parted calls from their results.
        mend(&mut messages);
        let mut request = Request {
            model: model.clone(),
            system: system.into(),
            tools: shown.tools.clone(),
            native: self.native(shown),
            messages,
            options: options.clone(),
            sees_images: *sees_images,
            cache_key: self.cache_key(),
        };
        let flow = self.unless_cancelled(hooks.before_model(&mut request)).await?;
        Ok(match flow {
            Flow::Stop(reason) => Err(End::Stopped { reason }),
            Flow::Continue => Ok(request),
        })
    }

    /// Begins to count what every definition would take, if schemas are held back and that is not
    /// known. With very many of them it takes as long as a model does to answer, so it is done
    /// meanwhile.
    fn count_all(&self) -> Option<Counting> {
        let model = self.agent.known.clone().filter(|_| self.conversation.is_deferred())?;
        let view = self.conversation.view();
        let of = view.fingerprint();
        if let Some(known) = self.meter.full_tools(of) {
            return Some(Counting::Done(known));
        }
        let count =
            move || view.tools().map(|tool| definition(tool.definition(), &model.tokenizer)).sum();
        Some(Counting::UnderWay { of, count: tokio::task::spawn_blocking(count) })
    }

    async fn full_tools(&mut self, counting: Option<Counting>) -> Option<u64> {
        match counting? {
            Counting::Done(known) => Some(known),
            Counting::UnderWay { of, count } => {
                let tokens = count.await.ok()?;
                self.meter.note_full_tools(of, tokens);
                Some(tokens)
            }
        }
    }

    /// What goes to the model in its provider's own form.
    fn native(&self, shown: &Presentation) -> Option<Native> {
        let is_native = self.conversation.strategy() == Some(Strategy::Native);
        if !is_native || !self.conversation.is_deferred() {
            return None;
        }
        let mut names = shown.tools.iter().map(Definition::name);
        let search = names.find(|name| SEARCHES.contains(&&***name)).cloned();
        let hosted = self.conversation.is_hosted().then_some(match self.conversation.preset() {
            Some(Preset::Regex) => HostedSearch::Regex,
            _ => HostedSearch::Bm25,
        });
        let changes = self.agent.can(Feature::ToolChanges);
        Some(Native { deferred: shown.deferred.clone(), search, hosted, changes })
    }

    /// What the model answers, once hooks have seen it.
    pub(super) async fn settled(
        &mut self,
        request: &Request,
        usage: &mut Usage,
        aloud: Aloud,
    ) -> Result<Result<(Reply, Flow), Stop>, Cancelled> {
        let mut reply = match self.attempts(request, usage, aloud).await? {
            Ok(reply) => reply,
            Err(stop) => return Ok(Err(stop)),
        };
        let hooks = &self.agent.hooks;
        let flow = self.unless_cancelled(hooks.after_model_response(&mut reply)).await?;
        Ok(match reply.stop {
            StopReason::Refusal(reason) => Err(Stop::At(End::Refused { reason })),
            _ => Ok((reply, flow)),
        })
    }

    /// Tells what the beginning of a turn has loaded and put out.
    async fn tell_changes(&self, report: TurnReport) {
        let names = |tools: &[Arc<str>]| tools.iter().map(ToString::to_string).collect();
        if report.evicted.is_empty() && report.preloaded.is_empty() || !self.keep_loads().await {
            return;
        }
        if !report.evicted.is_empty() {
            self.emit.tell(Event::Unloaded { tools: names(&report.evicted) }).await;
        }
        if !report.preloaded.is_empty() {
            self.emit.tell(Event::Loaded { tools: names(&report.preloaded) }).await;
        }
    }

    /// Equal for all requests of a conversation, also when it is resumed elsewhere.
    fn cache_key(&mut self) -> Option<Arc<str>> {
        if self.key.is_none() {
            let first = serde_json::to_vec(&**self.history.first()?).ok()?;
            let key = Fingerprint::of([self.agent.system.as_bytes(), &first]).to_string();
            *self.key = Some(key.into());
        }
        self.key.clone()
    }

    /// Asks until there is an answer, or no more to be hoped for.
    async fn attempts(
        &mut self,
        request: &Request,
        usage: &mut Usage,
        aloud: Aloud,
    ) -> Result<Result<Reply, Stop>, Cancelled> {
        let (mut failures, mut was_empty) = (0, false);
        loop {
            let error = match self.attempt(request, aloud).await {
                Ok(reply) => {
                    *usage = *usage + reply.usage;
                    if !is_empty(&reply) {
                        return Ok(Ok(reply));
                    }
                    if was_empty {
                        return Ok(Err(Stop::At(End::Empty)));
                    }
                    was_empty = true;
                    let reason = "the answer was empty".to_owned();
                    self.emit.tell(Event::Retrying { reason, wait: Duration::ZERO }).await;
                    continue;
                }
                Err(Cut::Cancelled { written }) => {
                    // What a person has read, the model should know it said.
                    if aloud == Aloud::Yes && !written.trim().is_empty() {
                        let content = vec![Said::Text { text: written }];
                        self.append(Message::Assistant(Assistant { content })).await;
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
                    ProviderError::ContextTooLong(reason) => Stop::At(End::ContextFull { reason }),
                    ProviderError::Rejected(_) if request.native.is_some() => {
                        Stop::NoNative(reason)
                    }
                    _ => Stop::At(End::Failed { reason }),
                }));
            };
            failures += 1;
            let wait = wait.min(limits.wait);
            tracing::info!(reason, ?wait, "the model will be asked again");
            self.emit.tell(Event::Retrying { reason, wait }).await;
            self.unless_cancelled(tokio::time::sleep(wait)).await?;
        }
    }

    async fn attempt(&self, request: &Request, aloud: Aloud) -> Result<Reply, Cut> {
        let mut deltas = self.agent.provider.stream(request.clone());
        let mut written = String::new();
        loop {
            let Ok(delta) = self.unless_cancelled(deltas.next()).await else {
                return Err(Cut::Cancelled { written });
            };
            match delta {
                Some(Ok(Delta::Finished(reply))) => return Ok(reply),
                Some(Ok(_)) if aloud == Aloud::No => {}
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

/// Whether what the model writes is told, and stays if it is cut off.
#[derive(Clone, Copy, PartialEq)]
pub(super) enum Aloud {
    Yes,
    No,
}

/// What every definition would take.
enum Counting {
    Done(u64),
    UnderWay {
        /// The view they are of.
        of: Fingerprint,
        count: JoinHandle<u64>,
    },
}

/// Why there is no answer to be hoped for.
pub(super) enum Stop {
    At(End),
    /// The provider won't take the request, which has tools in its own form.
    NoNative(String),
}

impl Stop {
    pub(super) fn end(self) -> End {
        match self {
            Self::At(end) => end,
            Self::NoNative(reason) => End::Failed { reason },
        }
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
