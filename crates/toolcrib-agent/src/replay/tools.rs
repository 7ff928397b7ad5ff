//! What each approach sends besides a conversation.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::Value;
use toolcrib_core::{
    Approach, Call, Definition, Engine, EngineError, Mode, Session, Strategy, StrategyChoice, View,
};

/// The tools of a catalog, and what each approach tells a model of them at the start.
#[derive(Clone, Debug, Default)]
pub struct ReplayTools {
    /// By exposed name.
    all: BTreeMap<Arc<str>, Definition>,
    /// Exposed names by the tools' own, where only one has it: models call by either.
    own: BTreeMap<String, Option<Arc<str>>>,
    full: Prefix,
    inject: Prefix,
    dispatch: Prefix,
    native: Prefix,
}

/// What stands ahead of every conversation.
#[derive(Clone, Debug, Default)]
pub(super) struct Prefix {
    /// What is put into the system prompt.
    pub(super) section: Arc<str>,
    /// The tools array at the first request.
    pub(super) tools: Vec<Definition>,
}

impl Prefix {
    /// Whether a model can call this tool from the start.
    pub(super) fn has(&self, name: &str) -> bool {
        self.tools.iter().any(|tool| **tool.name() == *name)
    }

    fn verb(&self, is_it: impl Fn(&str) -> bool) -> Option<&str> {
        let names = self.tools.iter().map(|tool| &**tool.name());
        let mut verbs = names.filter(|name| Call::new(*name, Value::Null).names_verb());
        verbs.find(|name| is_it(name))
    }
}

impl ReplayTools {
    /// Takes them off an engine, under its settings except mode and strategy. A crib has one, and
    /// a conversation its view.
    pub fn of(engine: &Engine, view: &View) -> Result<Self, EngineError> {
        let prefix = |mode, strategy, chosen: Option<Strategy>| {
            let mut settings = engine.settings().clone();
            (settings.mode, settings.strategy) = (mode, strategy);
            let mut session = Session::new();
            chosen.into_iter().for_each(|strategy| session.choose(strategy));
            let shown = Engine::new(settings)?.prepare(&mut session, view)?;
            let prefix = Prefix { section: shown.system_section, tools: shown.tools };
            Ok::<_, EngineError>((prefix, session.strategy()))
        };
        let (full, _) = prefix(Mode::Full, StrategyChoice::Auto, None)?;
        let (inject, _) = prefix(Mode::Deferred, StrategyChoice::Inject, None)?;
        let (dispatch, _) = prefix(Mode::Deferred, StrategyChoice::Dispatch, None)?;
        let native = prefix(Mode::Deferred, StrategyChoice::Auto, Some(Strategy::Native))?;
        // Both have the finders and no verb that calls.
        let native = match native {
            (native, Some(Strategy::Native)) => native,
            _ => inject.clone(),
        };
        let all = full.tools.iter().map(|tool| (tool.name().clone(), tool.clone())).collect();
        let mut own = BTreeMap::new();
        for tool in view.tools() {
            let exposed = Some(tool.exposed().clone());
            own.entry(tool.name().tool().to_owned()).and_modify(|it| *it = None).or_insert(exposed);
        }
        Ok(Self { all, own, full, inject, dispatch, native })
    }

    /// A tool by the name that a model calls it by.
    pub(super) fn definition(&self, name: &str) -> Option<&Definition> {
        self.all.get(name).or_else(|| self.all.get(self.own.get(name)?.as_ref()?))
    }

    pub(super) fn prefix(&self, approach: Approach) -> &Prefix {
        match approach {
            Approach::Full => &self.full,
            Approach::Deferred(Strategy::Inject) => &self.inject,
            Approach::Deferred(Strategy::Dispatch) => &self.dispatch,
            Approach::Deferred(Strategy::Native) => &self.native,
        }
    }

    /// The verb that finds tools.
    pub(super) fn finder(&self) -> &str {
        self.inject.verb(|_| true).unwrap_or("tool_search")
    }

    /// The verb that calls them.
    pub(super) fn caller(&self) -> &str {
        self.dispatch.verb(|name| !self.inject.has(name)).unwrap_or("call_tool")
    }
}
