//! The engine: `begin_turn`, `prepare` and `resolve` say all there is to say about deferral.
//! This file has `prepare`; `turn.rs` and `resolve.rs` have the others.

use std::sync::Arc;

use crate::announce;
use crate::eager::{Eager, EagerError};
use crate::lately::Lately;
use crate::meta::{self, MetaTool};
use crate::prompt;
use crate::segment::Item;
use crate::session::{Latched, LoadedTool, Prefix};
use crate::{
    Definition, EagerReason, Fingerprint, Footprints, Mode, Policy, Presentation, Preset, Revealed,
    Session, Settings, Strategy, StrategyChoice, Tool, View,
};

/// Acts on sessions under one set of settings. Shared by any number of conversations.
///
/// ```
/// use serde_json::json;
/// use toolcrib_core::{Call, Engine, Registry, ServerTools, Session, Settings, Step, ToolName, ToolSpec};
///
/// let registry = Registry::default();
/// let tools = (0..40).map(|n| {
///     let schema = json!({"type": "object", "properties": {"id": {"type": "integer"}}});
///     ToolSpec::new(ToolName::mcp("shop", format!("tool_{n}")), schema)
/// });
/// registry.replace_server(ServerTools::new("shop", tools));
///
/// let engine = Engine::new(Settings::default())?;
/// let view = registry.catalog().view_all();
/// let mut session = Session::new();
///
/// engine.begin_turn(&mut session, &view);
/// let shown = engine.prepare(&mut session, &view)?;
/// let names: Vec<&str> = shown.tools.iter().map(|tool| &**tool.name()).collect();
/// assert_eq!(names, ["tool_search", "load_tools", "call_tool"]);
///
/// let call = Call::new("call_tool", json!({"tool_name": "tool_7", "arguments": {"id": "12"}}));
/// let Step::Run(run) = engine.resolve(&mut session, &view, &call) else { panic!() };
/// assert_eq!(run.tool.name(), &ToolName::mcp("shop", "tool_7"));
/// assert_eq!(run.arguments, json!({"id": 12}));
/// # Ok::<_, toolcrib_core::EngineError>(())
/// ```
#[derive(Debug)]
pub struct Engine {
    pub(crate) settings: Settings,
    pub(crate) eager: Eager,
    /// Prefixes rendered lately: conversations that start on one catalog share one.
    pub(crate) prefixes: Arc<Lately<Arc<Prefix>>>,
    /// What the strategies put into prompts, by catalog and model.
    pub(crate) footprints: Lately<Footprints>,
}

/// Why an engine can't work.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EngineError {
    /// The eager rules can't be used.
    #[error(transparent)]
    Eager(#[from] EagerError),
    /// The settings contradict each other.
    #[error("{0}")]
    Settings(String),
    /// No verb may be offered, and the schemas are too large to send instead.
    #[error(
        "the policy denies every verb of preset `{preset}`, and sending all {tools} schemas in \
         full would take more than {percent} % of the context window; allow `{verb}`, or deny \
         tools until they fit"
    )]
    NothingToOffer {
        /// The preset in use.
        preset: Preset,
        /// The verb that would help.
        verb: &'static str,
        /// How many tools there are.
        tools: usize,
        /// The share of the window they may take.
        percent: u32,
    },
}

impl Engine {
    /// An engine with the given settings.
    pub fn new(settings: Settings) -> Result<Self, EngineError> {
        let share = settings.threshold_context.unwrap_or_default();
        if !(0.0..=1.0).contains(&share) {
            let reason = format!("the context share must lie between 0 and 1, not {share}");
            return Err(EngineError::Settings(reason));
        }
        let eager = Eager::new(&settings)?;
        let (prefixes, footprints) = Default::default();
        Ok(Self { settings, eager, prefixes, footprints })
    }

    /// The settings it was made with.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// What the model sees at this request.
    ///
    /// Section and base tools are settled by the first call and stay, byte for byte, whatever is
    /// loaded or registered later. Announcements and changes are handed out once.
    pub fn prepare(&self, session: &mut Session, view: &View) -> Result<Presentation, EngineError> {
        let prefix = self.settle(session, view)?;
        let mut tools = prefix.tools.clone();
        if self.grows(session) {
            let loaded = session.tools.values().map(|tool| &tool.definition);
            tools.extend(loaded.filter(|tool| !prefix.has(tool.name())).cloned());
        }
        let deferred = if session.is_native() { session.declared(view) } else { Vec::new() };
        let announcements = std::mem::take(&mut session.announcements);
        let change = session.take_change(view);
        let system_section = prefix.section.clone();
        Ok(Presentation { system_section, tools, deferred, change, announcements })
    }

    /// The verbs that a conversation under this policy gets while schemas are held back, whatever
    /// tools there are: for a driver that must list them before it knows any.
    pub fn verbs(&self, policy: &Policy) -> Vec<Definition> {
        let (strategy, preset) = (self.strategy(None, policy), self.settings.preset);
        let split = self.settings.split_calls;
        let latched =
            Latched { deferred: true, automatic: false, strategy, preset, hosted: false, split };
        if !can_be_found(latched, policy) {
            return Vec::new();
        }
        let verbs = meta::verbs(latched, policy);
        verbs.iter().map(|verb| verb.definition(latched, &verbs, &self.settings)).collect()
    }

    /// Loads tools on the host's behalf, by any name that finds them; says which names led to
    /// no tool, or to one whose group must be loaded first. Under dispatch the schemas are
    /// announced, since nothing else would show them; under native they are part of the next
    /// request's [`change`](Presentation::change).
    pub fn preload<S: AsRef<str>>(
        &self,
        session: &mut Session,
        view: &View,
        names: impl IntoIterator<Item = S>,
    ) -> Vec<String> {
        let names: Vec<S> = names.into_iter().collect();
        let names: Vec<&str> = names.iter().map(AsRef::as_ref).collect();
        if session.prefix.is_none() {
            session.preload(names.iter().copied());
        }
        let found = session.scope(view).select(&names);
        let named = found.hits.iter().filter(|hit| matches!(hit.item, Item::Named(_)));
        let named = named.map(|hit| hit.item.exposed().to_string());
        let missing = found.misses.iter().map(|miss| miss.asked.clone()).chain(named).collect();
        let tools: Vec<Arc<Tool>> = found.hits.iter().filter_map(|hit| tool_of(hit.item)).collect();
        if session.prefix.is_some() {
            self.preload_tools(session, &tools);
        }
        missing
    }

    pub(crate) fn preload_tools(
        &self,
        session: &mut Session,
        tools: &[Arc<Tool>],
    ) -> Vec<Arc<str>> {
        let news: Vec<&Arc<Tool>> = tools.iter().filter(|tool| session.load(tool)).collect();
        if session.is_native() {
            news.iter().for_each(|tool| session.offer(tool));
        } else if !news.is_empty() && !self.grows(session) {
            session.announcements.push(announce::schemas("Now loaded:", news.iter().copied()));
        }
        news.into_iter().map(|tool| tool.exposed().clone()).collect()
    }

    /// Settles what the model sees anew at the next request, from the catalog as it is then: for
    /// a conversation whose history is replaced, so that the prompt cache is lost at any rate.
    /// What is loaded stays loaded, in its present form; what was to be announced of the catalog
    /// need not be.
    pub fn settle_anew(&self, session: &mut Session, view: &View) {
        session.prefix = None;
        session.announcements.clear();
        session.adopted = Some(view.clone().without_usage());
        let scope = session.scope(view);
        let now = session.tools.values().map(|tool| scope.identity(&tool.name).cloned());
        let now: Vec<Option<Arc<Tool>>> = now.collect();
        for (loaded, tool) in session.tools.values_mut().zip(now) {
            let Some(tool) = tool else { continue };
            loaded.definition = tool.definition().clone();
            loaded.fingerprint = tool.fingerprint();
            if let Some(given) = session.given.get_mut(tool.exposed()) {
                *given = tool.definition().clone();
            }
            let mut added = session.change.added.iter_mut();
            if let Some(added) = added.find(|it| it.tool.name() == tool.exposed()) {
                added.tool = tool.definition().clone();
            }
        }
    }

    /// The loaded tools that are there now, as they are now, the one used longest ago first.
    pub fn loaded(&self, session: &Session, view: &View) -> Vec<Revealed> {
        let scope = session.scope(view);
        let mut tools: Vec<&LoadedTool> = session.tools.values().collect();
        tools.sort_by_key(|tool| tool.last_used);
        let now = tools.into_iter().filter_map(|loaded| scope.identity(&loaded.name));
        now.map(|tool| Revealed { group: tool.group().clone(), tool: tool.definition().clone() })
            .collect()
    }

    /// The strategy of a conversation that begins under this policy, unless its driver settles on
    /// another.
    pub fn strategy_under(&self, policy: &Policy) -> Strategy {
        self.strategy(None, policy)
    }

    /// Why a tool is sent in full at any rate; `None` if it waits to be asked for.
    pub fn why_eager(&self, tool: &Tool, view: &View) -> Option<EagerReason> {
        let preloaded = || {
            let found = Session::new();
            let found = found.scope(view).select(&self.preload_names(&[]));
            found.hits.iter().any(|hit| hit.item.name() == tool.name())
        };
        self.eager.reason(tool).or_else(|| preloaded().then_some(EagerReason::Preloaded))
    }

    /// How many model calls a loop may make, given what it may make when nothing is deferred:
    /// finding tools takes rounds of its own.
    pub fn iteration_limit(&self, session: &Session, base: usize) -> usize {
        if session.is_deferred() == Some(true) { base.saturating_mul(3) } else { base }
    }

    /// Whether loads join the tools array.
    pub(crate) fn grows(&self, session: &Session) -> bool {
        session
            .latched
            .is_some_and(|latched| !latched.deferred || latched.strategy == Strategy::Inject)
    }

    /// Settles, at the first request, what holds for the whole conversation.
    pub(crate) fn settle(
        &self,
        session: &mut Session,
        view: &View,
    ) -> Result<Arc<Prefix>, EngineError> {
        if let Some(prefix) = &session.prefix {
            return Ok(prefix.clone());
        }
        let begins = session.latched.is_none();
        let latched = match session.latched {
            // It goes on without what it began with; whether schemas wait is settled.
            Some(latched) => {
                let strategy = self.strategy(Some(latched.strategy), view.policy());
                Latched { strategy, ..latched }
            }
            None => {
                session.adopted = Some(view.clone().without_usage());
                self.latch(session, view)?
            }
        };
        let prefix = self.prefix(session, view, latched);
        session.latched = Some(latched);
        session.prefix = Some(prefix.clone());
        if latched.is_native() && begins {
            session.offer_loaded();
        }
        Ok(prefix)
    }

    /// The strategy of a conversation that begins under this policy, and whose driver has chosen
    /// so. Without a driver that can render it, there is no native.
    pub(crate) fn strategy(&self, chosen: Option<Strategy>, policy: &Policy) -> Strategy {
        let strategy = match (self.settings.strategy, chosen) {
            (StrategyChoice::Dispatch, _) => Strategy::Dispatch,
            (StrategyChoice::Inject, _) => Strategy::Inject,
            (StrategyChoice::Native, Some(Strategy::Native)) => Strategy::Native,
            (StrategyChoice::Native, _) => Strategy::Dispatch,
            (StrategyChoice::Auto, Some(chosen)) => chosen,
            (StrategyChoice::Auto, None) => self.settings.preset.strategy(),
        };
        // Without a way to call through, what is loaded must be callable by itself.
        match strategy {
            Strategy::Dispatch if !may_dispatch(&self.settings, policy) => Strategy::Inject,
            other => other,
        }
    }

    /// Whether a conversation that has this strategy can go on with it here: an engine that was
    /// left the choice takes what there is.
    pub(crate) fn can_keep(&self, strategy: Strategy, policy: &Policy) -> bool {
        let choice = self.settings.strategy;
        let is_open = matches!(choice, StrategyChoice::Auto | StrategyChoice::Native);
        match strategy {
            Strategy::Dispatch => is_open && may_dispatch(&self.settings, policy),
            Strategy::Inject => choice == StrategyChoice::Auto,
            Strategy::Native => is_open,
        }
    }

    fn latch(&self, session: &Session, view: &View) -> Result<Latched, EngineError> {
        let Settings { preset, mode, .. } = self.settings;
        let automatic = mode == Mode::Auto && self.is_much(session, view);
        let deferred = mode == Mode::Deferred || automatic;
        let strategy = self.strategy(session.chosen, view.policy());
        let hosted = deferred && strategy == Strategy::Native && self.settings.hosted_search;
        let split = self.settings.split_calls;
        let latched = Latched { deferred, automatic, strategy, preset, hosted, split };
        if !deferred || can_be_found(latched, view.policy()) {
            return Ok(latched);
        }
        let share = self.settings.threshold_context.unwrap_or(0.10);
        if self.takes(session, view, share) {
            return Err(EngineError::NothingToOffer {
                preset,
                verb: meta::finder(preset),
                tools: session.scope(view).count(),
                percent: (share * 100.0) as u32,
            });
        }
        Ok(Latched { deferred: false, automatic: false, hosted: false, ..latched })
    }

    /// Whether there are so many tools, or such large ones, that they should wait.
    fn is_much(&self, session: &Session, view: &View) -> bool {
        let scope = session.scope(view);
        scope.count() >= self.settings.threshold_tools
            // What only a loader knows can't be sent in full.
            || scope.has_unknown()
            || self.settings.threshold_context.is_some_and(|share| self.takes(session, view, share))
    }

    /// Whether all schemas together would take this share of the window.
    fn takes(&self, session: &Session, view: &View, share: f64) -> bool {
        let most = (self.settings.context_window as f64 * share) as u64;
        let scope = session.scope(view);
        // No text has more tokens than bytes: few bytes need no tokenizer.
        let bytes: usize = scope.tools().map(|tool| tool.definition().neutral().get().len()).sum();
        bytes as u64 >= most && scope.tools().map(|tool| tool.tokens()).sum::<u64>() >= most
    }

    fn prefix(&self, session: &Session, view: &View, latched: Latched) -> Arc<Prefix> {
        let preload = self.preload_names(&session.preload);
        let learned = session.learned.values().map(|segment| segment.fingerprint);
        let learned: Vec<Fingerprint> = learned.collect();
        let loaded: Vec<&Arc<str>> = session.loaded_tools().collect();
        // Who decided that tools wait makes no difference to what is shown.
        let settled = Latched { automatic: false, ..latched };
        let given: Vec<&Arc<str>> = session.given.keys().filter(|_| latched.is_native()).collect();
        let choices = format!("{settled:?} {} {loaded:?} {given:?}", session.with_mcp);
        let key = Fingerprint::of(
            [view.fingerprint().as_bytes(), choices.as_bytes()]
                .into_iter()
                .chain(preload.iter().map(|name| name.as_bytes()))
                .chain(learned.iter().map(Fingerprint::as_bytes)),
        );
        if let Some(prefix) = self.prefixes.get(key) {
            return prefix;
        }
        let prefix = Arc::new(self.render(session, view, latched, &preload));
        self.prefixes.keep(key, prefix.clone());
        prefix
    }

    fn render(&self, session: &Session, view: &View, latched: Latched, preload: &[&str]) -> Prefix {
        let scope = session.scope(view);
        let by_name = |a: &Definition, b: &Definition| a.name().cmp(b.name());
        if !latched.deferred {
            let mut tools: Vec<Definition> =
                scope.tools().map(|tool| tool.definition().clone()).collect();
            tools.sort_by(by_name);
            return Prefix::new("".into(), tools);
        }
        let preloaded: Vec<Arc<Tool>> =
            scope.select(preload).hits.iter().filter_map(|hit| tool_of(hit.item)).collect();
        // Where a prefix is settled anew, the history may have given a tool in the provider's form.
        let is_given =
            |tool: &Arc<Tool>| latched.is_native() && session.given.contains_key(tool.exposed());
        let is_eager = |tool: &Arc<Tool>| {
            (self.eager.reason(tool).is_some()
                || preloaded.iter().any(|known| known.name() == tool.name()))
                && !is_given(tool)
        };
        let mut eager: Vec<Definition> = scope
            .tools()
            .filter(|tool| is_eager(tool))
            .map(|tool| tool.definition().clone())
            .collect();
        eager.sort_by(by_name);
        let waits = scope.groups().any(|(_, items)| {
            items.is_empty()
                || items.iter().any(|item| match item {
                    Item::Tool(tool) => !is_eager(tool),
                    Item::Named(_) => true,
                })
        });
        // With nothing to find there is nothing to find it with.
        if !waits {
            return Prefix::new("".into(), eager);
        }
        let verbs = meta::verbs(latched, view.policy());
        // A session resumed under inject has tools in its array that need not be listed again.
        let has = |tool: &Arc<Tool>| latched.strategy == Strategy::Inject && session.has(tool);
        let listed = |tool: &Arc<Tool>| is_eager(tool) || has(tool);
        let section = prompt::section(&self.settings, latched, &verbs, scope, listed);
        let define = |verb: &MetaTool| verb.definition(latched, &verbs, &self.settings);
        let verbs = verbs.iter().map(define);
        Prefix::new(section.into(), verbs.chain(eager).collect())
    }

    pub(crate) fn preload_names<'a>(&'a self, own: &'a [String]) -> Vec<&'a str> {
        self.settings.preload.iter().chain(own).map(String::as_str).collect()
    }
}

pub(crate) fn may_dispatch(settings: &Settings, policy: &Policy) -> bool {
    meta::callers(settings.split_calls).iter().any(|verb| verb.is_admitted(policy))
}

/// Whether a model that sees no schemas has a way to get at the tools.
fn can_be_found(latched: Latched, policy: &Policy) -> bool {
    let verbs = meta::verbs(latched, policy);
    let lists_names = latched.preset == Preset::Crib;
    latched.hosted || verbs.iter().any(|verb| !verb.calls() || lists_names)
}

pub(crate) fn tool_of(item: Item<'_>) -> Option<Arc<Tool>> {
    match item {
        Item::Tool(tool) => Some(tool.clone()),
        Item::Named(_) => None,
    }
}
