//! One conversation: the only place where an engine's step becomes something that happens.

use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::join_all;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_core::{
    Answer, Call, Effects, Embedder, EngineError, GroupId, Meaning, Need, Policy, Presentation,
    Preset, Revealed, Run, Session, Snapshot, Stats, Step, Strategy, Tool, ToolName, TurnReport,
    View, text_to_embed,
};

use crate::audit::{AuditEvent, Verdict};
use crate::caller::Caller;
use crate::crib::Crib;
use crate::loader::Loads;
use crate::result::{Kind, ToolResult};
use crate::toolset::{CallError, Invocation, Toolset};
use crate::trail::{Followed, Trail};

/// Called with the tools that a call has loaded.
type OnToolsExpanded = Arc<dyn Fn(&[ToolName]) + Send + Sync>;

/// A conversation over a [`Crib`]. A handle: clones are the same conversation.
#[derive(Clone)]
pub struct Conversation(Arc<Inner>);

struct Inner {
    crib: Crib,
    policy: Policy,
    session: Mutex<Session>,
    /// Of the newest catalog asked about.
    view: Mutex<Option<View>>,
    loads: Loads,
    /// What its calls are put down to.
    trail: Trail,
    on_tools_expanded: Mutex<Option<OnToolsExpanded>>,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// The real tool, if the call came to one.
    pub tool: Option<ToolName>,
    /// What to give the model.
    pub result: ToolResult,
    /// What else came of it.
    pub effects: Effects,
}

/// A call that has been understood.
#[derive(Clone, Debug)]
pub enum Resolved {
    /// It is answered already.
    Done(Outcome),
    /// It may run.
    Ready(Ready),
}

/// A call that may run: the real tool with its real arguments. This is what hooks, permissions
/// and traces should see.
#[derive(Clone, Debug)]
pub struct Ready {
    run: Run,
    verbatim: Option<Arc<RawValue>>,
    caller: Caller,
    /// The search that it follows.
    after: Option<Followed>,
}

impl Ready {
    /// A call to be passed on as it stands: nothing is checked or mended here, and the tool's own
    /// server answers for itself.
    pub fn new(tool: Arc<Tool>, arguments: Value) -> Self {
        let run = Run { tool, arguments, effects: Effects::default() };
        Self { run, verbatim: None, caller: Caller::default(), after: None }
    }

    /// The same call with its arguments as they were written. They must be those it was made with.
    pub fn verbatim(mut self, arguments: Arc<RawValue>) -> Self {
        self.verbatim = Some(arguments);
        self
    }

    /// The same call on somebody's behalf.
    pub fn on_behalf_of(mut self, caller: Caller) -> Self {
        self.caller = caller;
        self
    }

    /// The tool.
    pub fn tool(&self) -> &Tool {
        &self.run.tool
    }

    /// Its arguments.
    pub fn arguments(&self) -> &Value {
        &self.run.arguments
    }

    /// What was loaded for it.
    pub fn loaded(&self) -> &[ToolName] {
        &self.run.effects.loaded
    }
}

impl Conversation {
    pub(crate) fn new(
        crib: Crib,
        session: Session,
        policy: Policy,
        loads: Loads,
        trail: Trail,
    ) -> Self {
        let session = Mutex::new(session);
        let (view, on_tools_expanded) = (Mutex::default(), Mutex::default());
        Self(Arc::new(Inner { crib, policy, session, view, loads, trail, on_tools_expanded }))
    }

    /// Sets what is called when tools have been loaded.
    pub fn on_tools_expanded(&self, callback: impl Fn(&[ToolName]) + Send + Sync + 'static) {
        let mut slot = self.0.on_tools_expanded.lock().unwrap_or_else(PoisonError::into_inner);
        *slot = Some(Arc::new(callback));
    }

    /// Begins a turn: adopts what changed in the catalog and applies the token budget.
    pub fn begin_turn(&self) -> TurnReport {
        self.0.crib.engine().begin_turn(&mut self.lock(), &self.view())
    }

    /// What the model sees at the next request.
    pub fn prepare(&self) -> Result<Presentation, EngineError> {
        self.0.crib.engine().prepare(&mut self.lock(), &self.view())
    }

    /// Settles on a strategy before the first request, where the settings leave it open: see
    /// [`Session::choose`].
    pub fn choose(&self, strategy: Strategy) {
        self.lock().choose(strategy);
    }

    /// Goes on without the provider's own form of deferral: see [`Session::without_native`].
    pub fn without_native(&self) {
        self.lock().without_native();
    }

    /// Loads up to `most` tools that the words of `text` suggest, to be offered at the end of the
    /// context of the next request; says which. Before the first request, and where loads join the
    /// tools array, it does nothing. Nothing is learned from it, and nobody is told.
    pub async fn predict(&self, text: &str, most: usize) -> Vec<Arc<str>> {
        let engine = self.0.crib.engine();
        if self.lock().strategy().is_none() {
            return Vec::new();
        }
        let vector = match (engine.settings().embedder, self.0.crib.embeddings()) {
            (Embedder::Supplied, Some(embeddings)) => match text_to_embed(text) {
                Some(text) => embeddings.query(&text).await.ok(),
                None => None,
            },
            _ => None,
        };
        let view = self.view();
        let meaning = match (engine.settings().embedder, &vector) {
            (Embedder::None, _) => Meaning::None,
            (_, Some(vector)) => Meaning::Vector(vector),
            (_, None) => Meaning::Static,
        };
        engine.predict(&mut self.lock(), &view, meaning, text, most)
    }

    /// How many model calls a loop may make, given what it may make when nothing is deferred.
    pub fn iteration_limit(&self, base: usize) -> usize {
        self.0.crib.engine().iteration_limit(&self.lock(), base)
    }

    /// Resolves and runs one call.
    ///
    /// A mistake of the model's is an outcome it can read; an error here means the run can't go
    /// on.
    pub async fn call(&self, call: Call) -> Result<Outcome, CallError> {
        match self.resolve(call).await {
            Resolved::Done(outcome) => Ok(outcome),
            Resolved::Ready(ready) => self.run(ready).await,
        }
    }

    /// Resolves the calls of one batch in order, so that a later one may use what an earlier one
    /// loads; then runs them together, or one by one if any of their tools is sequential.
    /// Outcomes come in the order of the calls.
    pub async fn call_all(&self, calls: Vec<Call>) -> Vec<Result<Outcome, CallError>> {
        let mut resolved = Vec::with_capacity(calls.len());
        for call in calls {
            resolved.push(self.resolve(call).await);
        }
        let alone = resolved.iter().any(|resolved| match resolved {
            Resolved::Ready(ready) => ready.tool().spec().is_sequential(),
            Resolved::Done(_) => false,
        });
        let finish = |resolved| async move {
            match resolved {
                Resolved::Done(outcome) => Ok(outcome),
                Resolved::Ready(ready) => self.run(ready).await,
            }
        };
        if !alone {
            return join_all(resolved.into_iter().map(finish)).await;
        }
        let mut outcomes = Vec::with_capacity(resolved.len());
        for resolved in resolved {
            outcomes.push(finish(resolved).await);
        }
        outcomes
    }

    /// Understands a call without running it, loading what that takes.
    pub async fn resolve(&self, mut call: Call) -> Resolved {
        loop {
            // The session is locked only while the engine thinks, never while we wait.
            let step = {
                let view = self.view();
                self.0.crib.engine().resolve(&mut self.lock(), &view, &call)
            };
            match step {
                Step::Answer(mut answer) => {
                    if answer.effects.missed {
                        answer.effects.held = self.0.crib.held(&call.target().name);
                    }
                    return Resolved::Done(self.answered(answer));
                }
                Step::Run(run) => {
                    self.tell(&run.effects);
                    let after = self.0.crib.learning().and(self.0.trail.follow(run.tool.name()));
                    let (verbatim, caller) = (None, Caller::default());
                    return Resolved::Ready(Ready { run, verbatim, caller, after });
                }
                Step::Need(Need::Group(id)) => {
                    if let Err(reason) = self.supply(&id).await {
                        call = call.without_group(id, reason);
                    }
                }
                Step::Need(Need::Vector(text)) => {
                    call = match self.0.crib.embeddings() {
                        None => call.without_vector("nobody here can make one"),
                        Some(embeddings) => match embeddings.query(&text).await {
                            Ok(vector) => call.with_vector(vector.to_vec()),
                            Err(error) => call.without_vector(error.to_string()),
                        },
                    };
                }
                Step::Need(other) => {
                    let text = format!("This needs something nobody here can fetch: {other:?}");
                    return Resolved::Done(Outcome {
                        tool: None,
                        result: ToolResult::error(text),
                        effects: Effects::default(),
                    });
                }
            }
        }
    }

    /// Checks arguments that a hook has rewritten. If they don't fit, the outcome says so and
    /// nothing should run.
    pub fn rewrite(&self, ready: Ready, arguments: &Value) -> Resolved {
        match self.0.crib.engine().check(&ready.run.tool, arguments) {
            Ok(arguments) => {
                let run = Run { arguments, ..ready.run };
                Resolved::Ready(Ready { run, verbatim: None, ..ready })
            }
            Err(answer) => Resolved::Done(self.answered(*answer)),
        }
    }

    /// Runs a call.
    pub async fn run(&self, ready: Ready) -> Result<Outcome, CallError> {
        let Ready { run: Run { tool, arguments, effects }, verbatim, caller, after } = ready;
        let name = tool.name().clone();
        tracing::debug!(tool = %name, "call");
        let result = match self.toolset_of(tool.group()).await {
            Ok(toolset) => {
                let invocation = Invocation { tool: name.clone(), arguments, verbatim, caller };
                // The toolset may panic before it has a future to give.
                let call = AssertUnwindSafe(async { toolset.call(invocation).await });
                match call.catch_unwind().await {
                    Ok(result) => result,
                    Err(_) => Err(CallError::Tell(format!("`{name}` broke while it ran."))),
                }
            }
            Err(reason) => Err(CallError::Tell(format!("`{name}` can't be called: {reason}"))),
        };
        let result = match result {
            Ok(result) => result,
            Err(CallError::Tell(text)) => ToolResult::error(text),
            Err(stop @ CallError::Stop(_)) => return Err(stop),
        };
        let is_done = result.kind() == Kind::Complete && result.refusal().is_none();
        if is_done && !result.is_error() {
            self.learn(after.as_ref(), &name);
        }
        Ok(Outcome { tool: Some(name), result, effects })
    }

    /// Loads tools on the host's behalf; says which names led nowhere.
    pub fn preload<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Vec<String> {
        // The caller's iterator may do anything, so it is done before the lock is taken.
        let names: Vec<S> = names.into_iter().collect();
        self.0.crib.engine().preload(&mut self.lock(), &self.view(), names)
    }

    /// Forgets loaded tools, by exposed name; says which there were.
    pub fn unload<S: AsRef<str>>(&self, names: impl IntoIterator<Item = S>) -> Vec<Arc<str>> {
        let names: Vec<S> = names.into_iter().collect();
        self.lock().unload(names)
    }

    /// Forgets a whole group; says which of its tools there were.
    pub fn unload_group(&self, id: &GroupId) -> Vec<Arc<str>> {
        self.lock().unload_group(id)
    }

    /// A side conversation that starts from here. Nothing it does reaches this one.
    pub fn fork(&self) -> Self {
        self.forked(self.lock().fork())
    }

    /// A side conversation that can call what is loaded but load nothing more.
    pub fn fork_without_loading(&self) -> Self {
        self.forked(self.lock().fork_without_loading())
    }

    fn forked(&self, session: Session) -> Self {
        let (crib, policy) = (self.0.crib.clone(), self.0.policy.clone());
        Self::new(crib, session, policy, self.0.loads.fork(), self.0.trail.fork())
    }

    /// The strategy in use, once the first request has settled it.
    pub fn strategy(&self) -> Option<Strategy> {
        self.lock().strategy()
    }

    /// Whether schemas are held back, once the first request has settled it.
    pub fn is_deferred(&self) -> bool {
        self.lock().is_deferred() == Some(true)
    }

    /// The preset in use, once the first request has settled it.
    pub fn preset(&self) -> Option<Preset> {
        self.lock().preset()
    }

    /// Whether the provider's own search finds the tools that wait.
    pub fn is_hosted(&self) -> bool {
        self.lock().is_hosted()
    }

    /// Settles what the model sees anew at the next request: see [`Engine::settle_anew`].
    ///
    /// [`Engine::settle_anew`]: toolcrib_core::Engine::settle_anew
    pub fn settle_anew(&self) {
        let view = self.view();
        self.0.crib.engine().settle_anew(&mut self.lock(), &view);
    }

    /// The loaded tools that are there now, the one used longest ago first.
    pub fn loaded(&self) -> Vec<Revealed> {
        self.0.crib.engine().loaded(&self.lock(), &self.view())
    }

    /// Changes when the session does: see [`Session::mark`].
    pub fn mark(&self) -> u64 {
        self.lock().mark()
    }

    /// Puts a session back that was taken from here with [`session`](Self::session).
    pub fn put_back(&self, session: Session) {
        *self.lock() = session;
    }

    /// A copy of the session as it is now: its strategy, what it has loaded.
    pub fn session(&self) -> Session {
        self.lock().clone()
    }

    /// The session as it is now, to be kept.
    pub fn snapshot(&self) -> Snapshot {
        self.lock().snapshot()
    }

    /// The conversation in numbers.
    pub fn stats(&self) -> Result<Stats, EngineError> {
        self.0.crib.engine().stats(&mut self.lock(), &self.view())
    }

    /// What the conversation may see now.
    pub fn view(&self) -> View {
        let catalog = self.0.crib.catalog();
        let mut kept = self.0.view.lock().unwrap_or_else(PoisonError::into_inner);
        let view = match &*kept {
            Some(view) if Arc::ptr_eq(view.catalog(), &catalog) => view.clone(),
            _ => kept.insert(catalog.view(&self.0.policy)).clone(),
        };
        match self.0.crib.learning() {
            Some(learning) => view.with_usage(learning.table()),
            None => view,
        }
    }

    fn lock(&self) -> MutexGuard<'_, Session> {
        self.0.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn supply(&self, id: &GroupId) -> Result<(), String> {
        let loaded = self.0.crib.load(&self.0.loads, id).await?;
        let view = self.view();
        let report = self.0.crib.engine().supply(&mut self.lock(), &view, id, loaded.specs);
        self.embed_loaded();
        for name in report.missing.iter().chain(&report.unannounced) {
            tracing::warn!(group = %id, tool = %name, "group and loader disagree");
        }
        for (tool, reason) in &report.rejected {
            tracing::warn!(group = %id, %tool, reason, "left out");
        }
        Ok(())
    }

    /// Has what only this conversation knows embedded, while it goes on without.
    fn embed_loaded(&self) {
        let Some(embeddings) = self.0.crib.embeddings().cloned() else { return };
        let waiting = self.lock().unembedded();
        tokio::spawn(async move {
            if let Err(error) = embeddings.supply(&waiting, |_, _| ()).await {
                tracing::debug!(%error, "what a loader brought is without vectors");
            }
        });
    }

    /// The toolset that answers for a group: a registered one, or the one its loader brought. A
    /// conversation that was resumed has specs without a toolset, so the loader may run here.
    async fn toolset_of(&self, id: &GroupId) -> Result<Arc<dyn Toolset>, String> {
        match self.0.crib.toolset(id) {
            Some(toolset) => Ok(toolset),
            None => Ok(self.0.crib.load(&self.0.loads, id).await?.toolset),
        }
    }

    fn answered(&self, answer: Answer) -> Outcome {
        let Answer { content, is_error, effects } = answer;
        self.tell(&effects);
        if let (Some(searched), Some(_)) = (&effects.searched, self.0.crib.learning()) {
            self.0.trail.searched(searched);
        }
        let result = if is_error { ToolResult::error(content) } else { ToolResult::text(content) };
        Outcome { tool: None, result, effects }
    }

    /// Keeps that a call went well which a search led to.
    fn learn(&self, after: Option<&Followed>, tool: &ToolName) {
        if let (Some(learning), Some(followed)) = (self.0.crib.learning(), after)
            && self.0.trail.chosen(followed, tool)
        {
            learning.record(&followed.query, tool);
        }
    }

    fn tell(&self, effects: &Effects) {
        for tool in &effects.denied {
            self.0.crib.audit(AuditEvent::new(tool.clone(), Verdict::Denied));
        }
        for tool in &effects.held {
            self.0.crib.audit(AuditEvent::new(tool.clone(), Verdict::Held));
        }
        for note in &effects.notes {
            tracing::info!(note);
        }
        if effects.loaded.is_empty() {
            return;
        }
        for tool in &effects.loaded {
            tracing::debug!(%tool, "loaded");
        }
        let slot = self.0.on_tools_expanded.lock().unwrap_or_else(PoisonError::into_inner);
        let callback = slot.clone();
        drop(slot);
        if let Some(callback) = callback {
            callback(&effects.loaded);
        }
    }
}
