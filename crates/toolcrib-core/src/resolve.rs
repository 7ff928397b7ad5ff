//! What to do about a call: answer it, fetch something first, or run the real tool.

use std::collections::HashSet;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use crate::arguments::{self, Problem};
use crate::meta::{self, MetaTool, Row, Verb};
use crate::scope::Lookup;
use crate::segment::{Segment, item_names};
use crate::session::Latched;
use crate::spec::Effect;
use crate::{
    Answer, Availability, Call, Effects, Engine, Group, GroupId, Members, Need, Run, Session, Step,
    Strategy, Tool, ToolName, ToolSpec, View, name, text,
};

/// What a loader brought, compared with what its group had announced.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LoadReport {
    /// Tools the group names that the loader did not bring.
    pub missing: Vec<ToolName>,
    /// Tools the loader brought that the group does not name. They can be used.
    pub unannounced: Vec<ToolName>,
    /// Tools that can't be used, and why.
    pub rejected: Vec<(ToolName, String)>,
}

impl Engine {
    /// Says what to do about a model's call.
    ///
    /// No mistake in the call is an error here: each becomes an answer that helps the model's
    /// next step. Calls of one batch are resolved in order, so that a load and the use of what it
    /// loads work in one batch.
    pub fn resolve(&self, session: &mut Session, view: &View, call: &Call) -> Step {
        self.resolve_by(None, session, view, call)
    }

    /// The same for what a verb calls.
    pub(crate) fn resolve_by(
        &self,
        by: Option<MetaTool>,
        session: &mut Session,
        view: &View,
        call: &Call,
    ) -> Step {
        // A call before the first request settles what the first request would have settled.
        if let Err(error) = self.settle(session, view) {
            let effects = Effects { notes: vec![error.to_string()], ..Effects::default() };
            return mistake("No tool can be called: the configuration is wrong.", effects);
        }
        if let Some(latched) = session.latched
            && let Some(verb) = MetaTool::meant(&call.name)
            && latched.deferred
            && meta::verbs(latched, view.policy()).contains(&verb)
        {
            let effects = Effects::default();
            return Verb { engine: self, session, view, call, latched, effects }.run(verb);
        }
        self.direct(by, session, view, call)
    }

    /// Checks arguments again, for a driver whose hooks have rewritten them.
    pub fn check(&self, tool: &Tool, arguments: &Value) -> Result<Value, Box<Answer>> {
        let problems = match arguments::read(Some(arguments)) {
            Ok(arguments) => match arguments::check(tool.spec().input_schema(), arguments) {
                Ok(checked) => return Ok(checked.arguments),
                Err(problems) => problems,
            },
            Err(problem) => vec![problem],
        };
        Err(Box::new(misfit(tool, &problems, Effects::default())))
    }

    /// Takes in what a group's loader brought. The group is known from then on in this session;
    /// resolve the call that needed it again.
    pub fn supply(
        &self,
        session: &mut Session,
        view: &View,
        id: &GroupId,
        specs: Vec<ToolSpec>,
    ) -> LoadReport {
        let Some(declared) = view.catalog().segment(id) else { return LoadReport::default() };
        let (segment, report) = learn(session, view, declared, specs);
        session.learned.insert(id.clone(), Arc::new(segment));
        report
    }

    fn direct(
        &self,
        by: Option<MetaTool>,
        session: &mut Session,
        view: &View,
        call: &Call,
    ) -> Step {
        let scope = session.scope(view);
        let known = session.tools.get(call.name.trim());
        let known = known.and_then(|loaded| scope.in_group(&loaded.group, call.name.trim()));
        let tool = match known.map_or_else(|| scope.find(&call.name), Lookup::Tool) {
            Lookup::Tool(tool) => tool.clone(),
            Lookup::Named(named) => {
                let (group, exposed) = (named.group.clone(), named.exposed.clone());
                return from_loader(session, call, group, &exposed);
            }
            Lookup::Ambiguous(items) => {
                let error = format!(
                    "`{}` is ambiguous: {} tools have that name. Use one of the full names.",
                    text::one_line(&call.name, 200),
                    items.len()
                );
                return unknown(&error, item_names(&items), Effects::default());
            }
            Lookup::Missing { denied } => return missing(session, view, call, denied),
        };
        if !session.may_load && !session.has(&tool) {
            let error = format!(
                "`{}` was not loaded before this conversation was forked, and nothing can be \
                 loaded here.",
                tool.exposed()
            );
            return mistake(&error, Effects::default());
        }
        if let Some(wrong) = not_by_its_verb(by, session, view, &tool) {
            return wrong;
        }
        self.run(session, &tool, call)
    }

    /// Loads the tool if it is not, and checks the arguments.
    fn run(&self, session: &mut Session, tool: &Arc<Tool>, call: &Call) -> Step {
        let mut effects = Effects::default();
        if session.load(tool) {
            effects.loaded.push(tool.name().clone());
        }
        // The model calls it, so it need not hear that it was taken away.
        session.take_back_removal(tool.exposed());
        let arguments = match arguments::read(Some(&call.arguments)) {
            Ok(arguments) => arguments,
            Err(problem) => return misfit(tool, &[problem], effects).into(),
        };
        match arguments::check(tool.spec().input_schema(), arguments) {
            Ok(checked) => {
                effects.notes.extend(checked.unchecked.map(|defect| {
                    format!("arguments of `{}` were not checked: {defect}", tool.exposed())
                }));
                Step::Run(Run { tool: tool.clone(), arguments: checked.arguments, effects })
            }
            Err(problems) => misfit(tool, &problems, effects).into(),
        }
    }
}

/// The answer to a call by another verb than the tool's own, where each effect has one. A tool in
/// the model's list can be called by its name as well.
fn not_by_its_verb(
    by: Option<MetaTool>,
    session: &Session,
    view: &View,
    tool: &Tool,
) -> Option<Step> {
    #[derive(Serialize)]
    struct Wrong {
        error: String,
        #[serde(skip_serializing_if = "Option::is_none")]
        call_with: Option<&'static str>,
    }
    let splits = |it: &Latched| it.split && it.deferred && it.strategy == Strategy::Dispatch;
    let latched = session.latched.filter(splits)?;
    let effect = Effect::of(tool.spec().annotations());
    let own = MetaTool::for_effect(effect);
    if by == Some(own) || (by.is_none() && session.is_base(tool.exposed())) {
        return None;
    }
    let (name, says) = (tool.exposed(), effect.says());
    let may = meta::verbs(latched, view.policy()).contains(&own);
    let verb = own.exposed(latched.preset);
    let error = match may {
        true => format!("`{name}` {says}: call it with `{verb}`. Nothing was run."),
        false => format!("`{name}` {says}, and nothing that does may be called here."),
    };
    let wrong = Wrong { error, call_with: may.then_some(verb) };
    Some(Answer::json(&wrong, true, Effects::default()).into())
}

/// A tool whose group must be loaded first, has been without bringing it, or can't be.
fn from_loader(session: &Session, call: &Call, group: GroupId, exposed: &str) -> Step {
    if !session.may_load {
        let error = format!(
            "`{exposed}` was not loaded before this conversation was forked, and nothing can be \
             loaded here."
        );
        return mistake(&error, Effects::default());
    }
    match call.failure(&group) {
        Some(reason) => {
            let reason = text::one_line(reason, 300);
            let error = format!("`{exposed}` could not be loaded. Loader failed: {reason}");
            mistake(&error, Effects::default())
        }
        None if session.learned.contains_key(&group) => {
            let error = format!(
                "`{exposed}` is listed in group `{group}`, but the group no longer has it."
            );
            mistake(&error, Effects::default())
        }
        None => Step::Need(Need::Group(group)),
    }
}

/// A name that stands for nothing a caller may know of.
fn missing(session: &Session, view: &View, call: &Call, denied: Vec<ToolName>) -> Step {
    let name = text::one_line(&call.name, 200);
    let effects = Effects { denied, missed: true, ..Effects::default() };
    let exposed = name::unquoted(&call.name);
    // A hidden tool gets the answer that one which never existed would get.
    let gone = if effects.denied.is_empty() { why_gone(session, view, exposed) } else { None };
    if let Some(reason) = gone.or_else(|| why_silent(session, view, exposed)) {
        return mistake(&format!("`{name}` {reason}."), effects);
    }
    let near = session.scope(view).nearest(&call.name, 5);
    let latched = session.latched.filter(|latched| latched.deferred);
    let error = match latched.and_then(|latched| meta::finder_in(latched, view.policy())) {
        Some(finder) if session.may_load => {
            format!("Unknown tool `{name}`. Look for it with `{finder}`.")
        }
        _ => format!("Unknown tool `{name}`."),
    };
    unknown(&error, near, effects)
}

/// Why a tool that the model was shown can't be called.
fn why_gone(session: &Session, view: &View, exposed: &str) -> Option<String> {
    let Some(loaded) = session.tools.get(exposed) else {
        return session.is_base(exposed).then(|| "is gone: it is no longer offered".to_owned());
    };
    trouble(session, view, &loaded.group).or_else(|| {
        let server = loaded.group.server_name();
        Some(server.map_or_else(
            || "is gone: it is no longer offered".to_owned(),
            |server| format!("is gone: server `{server}` no longer offers it"),
        ))
    })
}

/// Why nothing of the server can be called that the name begins with.
fn why_silent(session: &Session, view: &View, exposed: &str) -> Option<String> {
    let names = |group: &GroupId| ToolName::strip_namespace(group.server_name()?, exposed);
    let mut silent = view.catalog().availability.keys().filter(|group| names(group).is_some());
    silent.find_map(|group| trouble(session, view, group))
}

/// Why a group that the conversation may know of does not answer, if it does not.
fn trouble(session: &Session, view: &View, group: &GroupId) -> Option<String> {
    let place = match group.server_name() {
        Some(server) if !session.scope(view).may_reach(server) => return None,
        Some(server) => format!("server `{server}`"),
        None => "its group".to_owned(),
    };
    match view.catalog().availability(group) {
        Availability::Down(reason) => {
            let reason = text::one_line(&reason, 200);
            Some(format!("can't be called: {place} does not answer ({reason})"))
        }
        Availability::Starting => Some(format!("can't be called yet: {place} is starting")),
        Availability::Ready => None,
    }
}

fn mistake(error: &str, effects: Effects) -> Step {
    Answer::mistake(error, effects).into()
}

fn unknown(error: &str, did_you_mean: Vec<Arc<str>>, effects: Effects) -> Step {
    #[derive(Serialize)]
    struct Unknown<'a> {
        error: &'a str,
        did_you_mean: Vec<Arc<str>>,
    }
    Answer::json(&Unknown { error, did_you_mean }, true, effects).into()
}

/// Arguments that don't fit: what is wrong, and the schema to mend them by.
fn misfit(tool: &Tool, problems: &[Problem], effects: Effects) -> Answer {
    #[derive(Serialize)]
    struct Misfit<'a> {
        error: String,
        problems: &'a [Problem],
        tool: Row<'a>,
    }
    let error = format!(
        "The arguments do not fit `{}`, so nothing was run. Mend them and call again.",
        tool.exposed()
    );
    let effects = Effects { misfit: Some(tool.name().clone()), ..effects };
    let tool = Row::of(tool.definition(), None);
    Answer::json(&Misfit { error, problems, tool }, true, effects)
}

/// Builds the segment of a group from what its loader brought.
fn learn(
    session: &Session,
    view: &View,
    declared: &Segment,
    specs: Vec<ToolSpec>,
) -> (Segment, LoadReport) {
    let naming = view.catalog().naming;
    let mut report = LoadReport::default();
    let scope = session.scope(view);
    let mut tools: Vec<Arc<Tool>> = Vec::new();
    let mut exposed: HashSet<Arc<str>> = HashSet::new();
    for spec in specs {
        let name = spec.name().clone();
        let tool = Tool::new(spec, declared.id().clone(), naming);
        let taken = exposed.contains(tool.exposed()) || scope.taken(tool.exposed(), declared.id());
        if MetaTool::named(tool.exposed()).is_some() || tool.name().tool().trim().is_empty() {
            report.rejected.push((name, "its name can't be used".to_owned()));
        } else if taken {
            report.rejected.push((name, format!("another tool is called `{}`", tool.exposed())));
        } else {
            exposed.insert(tool.exposed().clone());
            tools.push(Arc::new(tool));
        }
    }
    let named: &[ToolName] = match declared.group.members() {
        Members::Named(names) => names,
        _ => &[],
    };
    // A loader may know its tools under fuller identities than the group could name.
    let brought: HashSet<&str> = tools.iter().map(|tool| tool.name().tool()).collect();
    let absent = named.iter().filter(|name| !brought.contains(name.tool()));
    let absent: Vec<ToolName> = absent.cloned().collect();
    report.missing = absent.iter().filter(|name| !scope.registers(name)).cloned().collect();
    if *declared.group.members() != Members::Unknown {
        let announced: HashSet<&str> = named.iter().map(ToolName::tool).collect();
        let extra = tools.iter().filter(|tool| !announced.contains(tool.name().tool()));
        report.unannounced = extra.map(|tool| tool.name().clone()).collect();
    }
    let members = match declared.group.members() {
        Members::Named(_) => Members::Named(absent),
        // A group that turns out to be empty can still be told from one that does not exist.
        Members::Unknown if tools.is_empty() => Members::Unknown,
        _ => Members::Known(Vec::new()),
    };
    let group = Group::clone(&declared.group).with_members(members);
    let analyzer = &mut toolcrib_search::Analyzer::new();
    (Segment::build(group, tools, naming, analyzer), report)
}
