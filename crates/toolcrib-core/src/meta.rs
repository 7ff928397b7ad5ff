//! The verbs a model gets in place of the tools: find, load, call.

mod args;
mod call_tool;
mod lazy_search;
mod load_tools;
mod row;
mod tool_search;
mod tool_search_regex;

use std::sync::Arc;

use serde::Serialize;

pub(crate) use call_tool::opened as envelope;
pub(crate) use row::{Row, bytes, how_many_fit};

use crate::find::Found;
use crate::segment::Item;
use crate::session::Latched;
use crate::spec::Effect;
use crate::{
    Availability, Call, Definition, Effects, Engine, GroupId, Policy, Preset, Revealed, Schema,
    Searched, Session, Settings, Step, Strategy, Tool, ToolName, View, announce,
};

/// A verb.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MetaTool {
    ToolSearch,
    ToolSearchRegex,
    LoadTools,
    CallTool,
    CallReadTool,
    CallWriteTool,
    CallDestructiveTool,
}

/// The verbs that call tools: one, or one for each thing a tool may do.
pub(crate) fn callers(split: bool) -> &'static [MetaTool] {
    match split {
        false => &[MetaTool::CallTool],
        true => &[MetaTool::CallReadTool, MetaTool::CallWriteTool, MetaTool::CallDestructiveTool],
    }
}

impl MetaTool {
    const ALL: [Self; 7] = [
        Self::ToolSearch,
        Self::ToolSearchRegex,
        Self::LoadTools,
        Self::CallTool,
        Self::CallReadTool,
        Self::CallWriteTool,
        Self::CallDestructiveTool,
    ];

    /// Whether it calls another tool.
    pub(crate) fn calls(self) -> bool {
        callers(false).contains(&self) || callers(true).contains(&self)
    }

    /// The verb that calls tools with this effect, where there is one for each.
    pub(crate) fn for_effect(effect: Effect) -> Self {
        match effect {
            Effect::Reads => Self::CallReadTool,
            Effect::Writes => Self::CallWriteTool,
            Effect::Destroys => Self::CallDestructiveTool,
        }
    }

    /// What tools it may call may do, if not anything.
    pub(crate) fn effect(self) -> Option<Effect> {
        let all = [Effect::Reads, Effect::Writes, Effect::Destroys];
        all.into_iter().find(|effect| Self::for_effect(*effect) == self)
    }

    pub(crate) fn is_admitted(self, policy: &Policy) -> bool {
        self.names().iter().all(|name| policy.admits_verb(name))
    }

    /// The names the verb answers to.
    pub(crate) fn names(self) -> &'static [&'static str] {
        match self {
            Self::ToolSearch => &["tool_search"],
            Self::ToolSearchRegex => &["tool_search_regex"],
            Self::LoadTools => &["load_tools"],
            Self::CallTool => &["call_tool", "deferred_tool_call"],
            Self::CallReadTool => &["call_read_tool"],
            Self::CallWriteTool => &["call_write_tool"],
            Self::CallDestructiveTool => &["call_destructive_tool"],
        }
    }

    /// The verb of this name, if it is one's.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verb| verb.names().contains(&name))
    }

    /// The verb a model means by this name, which it may have quoted or put into an imagined
    /// namespace.
    pub(crate) fn meant(name: &str) -> Option<Self> {
        let name = crate::name::unquoted(name);
        Self::named(name).or_else(|| Self::named(crate::name::without_imagined_namespace(name)?))
    }

    /// The name the verb goes by under a preset.
    pub(crate) fn exposed(self, preset: Preset) -> &'static str {
        match (self, preset) {
            (Self::CallTool, Preset::Groups) => "deferred_tool_call",
            _ => self.names()[0],
        }
    }

    /// The verb as the model is shown it, beside the other `verbs` it has.
    pub(crate) fn definition(
        self,
        latched: Latched,
        verbs: &[Self],
        settings: &Settings,
    ) -> Definition {
        let then = how_to_call(latched);
        let (description, schema) = match self {
            Self::ToolSearch if latched.preset == Preset::Lazy => lazy_search::define(),
            Self::ToolSearch => tool_search::define(latched.preset, &then, settings),
            Self::ToolSearchRegex => tool_search_regex::define(&then, settings),
            Self::LoadTools => load_tools::define(&then),
            Self::CallTool
            | Self::CallReadTool
            | Self::CallWriteTool
            | Self::CallDestructiveTool => {
                call_tool::define(self.effect(), finder_among(latched, verbs))
            }
        };
        let name: Arc<str> = self.exposed(latched.preset).into();
        Definition::new(name, description.into(), Schema::from_value(&schema))
    }
}

/// The verbs of a preset that the policy lets through, in the order of the tools array.
pub(crate) fn verbs(latched: Latched, policy: &Policy) -> Vec<MetaTool> {
    if latched.hosted {
        return Vec::new();
    }
    let find: &[MetaTool] = match latched.preset {
        Preset::Crib => &[MetaTool::ToolSearch, MetaTool::LoadTools],
        Preset::Regex => &[MetaTool::ToolSearchRegex],
        Preset::Stubs | Preset::Lazy | Preset::Exact => &[MetaTool::ToolSearch],
        Preset::Groups => &[MetaTool::LoadTools],
    };
    let call = match latched.strategy {
        Strategy::Dispatch => callers(latched.split),
        Strategy::Inject | Strategy::Native => &[],
    };
    find.iter().chain(call).copied().filter(|verb| verb.is_admitted(policy)).collect()
}

/// The verb a conversation can find tools with, if it has one.
pub(crate) fn finder_in(latched: Latched, policy: &Policy) -> Option<&'static str> {
    finder_among(latched, &verbs(latched, policy))
}

fn finder_among(latched: Latched, verbs: &[MetaTool]) -> Option<&'static str> {
    let mut finders = verbs.iter().filter(|verb| !verb.calls());
    finders.next().map(|verb| verb.exposed(latched.preset))
}

/// What the model does with tools whose schemas it has: the end of a sentence.
pub(crate) fn how_to_call(latched: Latched) -> String {
    match latched.strategy {
        Strategy::Dispatch if latched.split => {
            "; the verb that `call_with` names then calls them, with `tool_name` and `arguments`."
                .to_owned()
        }
        Strategy::Dispatch => {
            let verb = MetaTool::CallTool.exposed(latched.preset);
            format!("; `{verb}(tool_name=..., arguments=...)` then calls them.")
        }
        Strategy::Inject => ", after which they are in your tool list.".to_owned(),
        Strategy::Native => {
            ", after which they are in your tool list: call them by name.".to_owned()
        }
    }
}

/// The verb a preset finds tools with.
pub(crate) fn finder(preset: Preset) -> &'static str {
    match preset {
        Preset::Regex => "tool_search_regex",
        Preset::Groups => "load_tools",
        _ => "tool_search",
    }
}

/// Says that tools were in the first request.
fn already_there<T: AsRef<str>>(names: &[T]) -> String {
    let names = crate::text::list(names, 8);
    format!("Already in your tool list, to be called directly: {names}.")
}

/// One call of a verb: everything it needs, and what comes of it.
pub(crate) struct Verb<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) session: &'a mut Session,
    pub(crate) view: &'a View,
    pub(crate) call: &'a Call,
    pub(crate) latched: Latched,
    pub(crate) effects: Effects,
}

impl Verb<'_> {
    pub(crate) fn run(self, verb: MetaTool) -> Step {
        match verb {
            _ if verb.calls() => call_tool::resolve(self, verb),
            _ if !self.session.may_load => self.not_in_a_fork(verb),
            MetaTool::ToolSearch if self.latched.preset == Preset::Lazy => {
                lazy_search::resolve(self)
            }
            MetaTool::ToolSearch => tool_search::resolve(self),
            MetaTool::ToolSearchRegex => tool_search_regex::resolve(self),
            // Those that call are done with.
            _ => load_tools::resolve(self),
        }
    }

    fn not_in_a_fork(self, verb: MetaTool) -> Step {
        let name = verb.exposed(self.latched.preset);
        let error = format!(
            "{name} is not available in a forked conversation. Tools that were loaded before the \
             fork can be called."
        );
        self.mistake(&error)
    }

    /// Answers with `{"error": …}`.
    pub(crate) fn mistake(self, error: &str) -> Step {
        crate::Answer::mistake(error, self.effects).into()
    }

    pub(crate) fn answer(self, value: &impl Serialize, is_error: bool) -> Step {
        crate::Answer::json(value, is_error, self.effects).into()
    }

    pub(crate) fn answer_text(self, content: String, is_error: bool) -> Step {
        crate::Answer { content, is_error, effects: self.effects }.into()
    }

    /// Loads tools and notes those that are news.
    pub(crate) fn load(&mut self, tools: &[Arc<Tool>]) -> usize {
        let mut news = 0;
        for tool in tools {
            if self.session.load(tool) {
                news += 1;
                self.effects.loaded.push(tool.name().clone());
            }
            if let Some(server) = tool.name().server()
                && !self.effects.prewarm.iter().any(|known| **known == *server)
            {
                self.effects.prewarm.push(server.into());
            }
        }
        news
    }

    /// Gives loaded tools to the model in the provider's own form; says what that leaves unsaid.
    ///
    /// A tool that has changed since it was first given keeps the definition it was given with,
    /// which the history refers to; the present one is told in words.
    pub(crate) fn reveal(&mut self, tools: &[Arc<Tool>]) -> Vec<String> {
        let (mut base, mut changed) = (Vec::new(), Vec::new());
        for tool in tools {
            if self.session.is_base(tool.exposed()) {
                base.push(tool.exposed());
                continue;
            }
            let given = self.session.reveal(tool);
            if given != *tool.definition() {
                changed.push(tool);
            }
            self.effects.revealed.push(Revealed { group: tool.group().clone(), tool: given });
        }
        let mut remarks = Vec::new();
        if !base.is_empty() {
            remarks.push(already_there(&base));
        }
        if !changed.is_empty() {
            let opening = "These have changed since you were first given them. Go by these \
                           definitions, whatever else is shown:";
            remarks.push(announce::schemas(opening, changed));
        }
        remarks
    }

    /// Notes which tools were listed for a query.
    pub(crate) fn note_search(&mut self, query: &str, tools: impl Iterator<Item = ToolName>) {
        self.effects.searched = Some(Searched { query: query.to_owned(), tools: tools.collect() });
    }

    /// The group that must be loaded before what was found can be shown, if one must.
    pub(crate) fn to_load(&self, query: &str, found: &Found<'_>) -> Option<GroupId> {
        let is_untried = |id: &GroupId| {
            self.call.failure(id).is_none() && !self.session.learned.contains_key(id)
        };
        let mut named = found.hits.iter().filter_map(|hit| match hit.item {
            Item::Named(named) => Some(&named.group),
            Item::Tool(_) => None,
        });
        let unloaded = named.find(|id| is_untried(id)).cloned();
        unloaded.or_else(|| self.to_open(query).filter(|_| found.hits.is_empty()))
    }

    /// A group nobody has opened yet that may have what the query asks for, where the model has
    /// no verb to open it itself.
    pub(crate) fn to_open(&self, query: &str) -> Option<GroupId> {
        if verbs(self.latched, self.view.policy()).contains(&MetaTool::LoadTools) {
            return None;
        }
        let groups = self.session.scope(self.view).unopened(query);
        let mut untried = groups.into_iter().filter(|id| self.call.failure(id).is_none());
        untried.next().cloned()
    }

    /// Whether what is found goes to the model in the provider's own form.
    pub(crate) fn is_native(&self) -> bool {
        self.latched.is_native()
    }

    pub(crate) fn dispatches(&self) -> bool {
        self.latched.strategy == Strategy::Dispatch
    }

    /// A tool in this verb's result.
    pub(crate) fn row<'t>(&self, tool: &'t Tool, loaded: Option<bool>) -> Row<'t> {
        Row::of(tool.definition(), loaded).called_with(self.caller_of(tool))
    }

    /// The verb that calls this tool, where that is not the same for all.
    pub(crate) fn caller_of(&self, tool: &Tool) -> Option<&'static str> {
        let is_split = self.dispatches() && self.latched.split;
        let verb = MetaTool::for_effect(Effect::of(tool.spec().annotations()));
        is_split.then(|| verb.exposed(self.latched.preset))
    }

    /// How the model calls what it has just been given.
    pub(crate) fn how_to_call(&self) -> String {
        if self.dispatches() && self.latched.split {
            "Call each with the verb that its `call_with` names: (tool_name=…, arguments=…)."
                .to_owned()
        } else if self.dispatches() {
            let verb = MetaTool::CallTool.exposed(self.latched.preset);
            format!("Call them with {verb}(tool_name=…, arguments=…).")
        } else {
            "They are in your tool list now: call them by name.".to_owned()
        }
    }

    /// Servers of these tools that don't answer at the moment, with the reason.
    pub(crate) fn troubles_of(&self, tools: &[Arc<Tool>]) -> Vec<String> {
        let mut groups: Vec<&GroupId> = tools.iter().map(|tool| tool.group()).collect();
        groups.sort();
        groups.dedup();
        let tell = |group: &GroupId| match self.view.catalog().availability(group) {
            Availability::Down(reason) => {
                let name = group.server_name().unwrap_or(group.as_str());
                let reason = crate::text::one_line(&reason, 160);
                Some(format!("`{name}` did not answer when last asked ({reason})."))
            }
            Availability::Ready | Availability::Starting => None,
        };
        groups.into_iter().filter_map(tell).collect()
    }

    /// Servers that may have what was not found, with the reason why they can't be asked.
    pub(crate) fn troubles(&self) -> Vec<String> {
        let tell = |(group, availability): (&GroupId, &Availability)| {
            let name = group.server_name().unwrap_or(group.as_str());
            match availability {
                Availability::Ready => None,
                Availability::Starting => Some(format!("`{name}` is still starting")),
                Availability::Down(reason) => {
                    let reason = crate::text::one_line(reason, 160);
                    Some(format!("`{name}` does not answer ({reason})"))
                }
            }
        };
        let scope = self.session.scope(self.view);
        // Of a group that has been listed, nothing but hidden tools may be known.
        let hides_all = |group: &GroupId| {
            scope.segment(group).is_some_and(|it| it.len() > 0 && scope.members(it).is_empty())
        };
        let visible = |group: &GroupId| {
            group.server_name().is_none_or(|server| scope.may_reach(server)) && !hides_all(group)
        };
        let all = self.view.catalog().availability.iter();
        all.filter(|(group, _)| visible(group)).filter_map(tell).collect()
    }
}
