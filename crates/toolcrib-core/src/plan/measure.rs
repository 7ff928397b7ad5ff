//! The sizes a plan starts from, taken off real prompts, calls and results.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib_tokens::{Model, Tokenizer};

use super::{Footprint, Footprints, LoadRound, Plan, Scenario, plan};
use crate::meta::MetaTool;
use crate::{
    Call, Definition, Engine, EngineError, Mode, Preset, Session, Settings, Step, Strategy,
    StrategyChoice, Tool, View,
};

/// A call of a verb: what is measured, and what a model would say to the same end. A model
/// searches by words; to get exactly the tools of a sample, they are asked for by name.
struct Asked {
    call: Call,
    said: Value,
}

impl Engine {
    /// Plans a conversation over these tools, under this engine's settings except mode and
    /// strategy, which are what the plan compares.
    pub fn plan(
        &self,
        view: &View,
        scenario: &Scenario,
        model: &Model,
    ) -> Result<Plan, EngineError> {
        let footprints = self.footprints(view, scenario.tools_per_load, &model.tokenizer)?;
        Ok(plan(&footprints, scenario, model))
    }

    /// Measures what each approach puts into prompts. A load is measured by loading
    /// `tools_per_load` tools of average size.
    pub fn footprints(
        &self,
        view: &View,
        tools_per_load: u32,
        tokenizer: &Tokenizer,
    ) -> Result<Footprints, EngineError> {
        let full = self.with(Mode::Full, StrategyChoice::Auto)?;
        let shown = full.prepare(&mut Session::new(), view)?;
        let full = Footprint { base: tokens(&shown.tools, tokenizer), ..Footprint::default() };
        Ok(Footprints { full, ..self.deferred_footprints(view, tools_per_load, tokenizer)? })
    }

    /// The same for strategies alone, which does without the tokens of every tool.
    pub(super) fn deferred_footprints(
        &self,
        view: &View,
        tools_per_load: u32,
        tokenizer: &Tokenizer,
    ) -> Result<Footprints, EngineError> {
        let deferred = |strategy| {
            let engine = self.with(Mode::Deferred, strategy)?;
            engine.footprint(view, tools_per_load as usize, tokenizer)
        };
        let (inject, _) = deferred(StrategyChoice::Inject)?;
        let (dispatch, waiting) = deferred(StrategyChoice::Dispatch)?;
        let (native, _) = deferred(StrategyChoice::Native)?;
        let (full, native) = (Footprint::default(), Some(native));
        Ok(Footprints { full, inject, dispatch, native, waiting })
    }

    /// An engine to measure with. What a provider's search sends only the provider knows; ours
    /// stands for it. The conversation that begins next finds its prefix made.
    fn with(&self, mode: Mode, strategy: StrategyChoice) -> Result<Engine, EngineError> {
        let settings = Settings { mode, strategy, hosted_search: false, ..self.settings.clone() };
        Ok(Engine { prefixes: self.prefixes.clone(), ..Engine::new(settings)? })
    }

    /// How many tools a load brings under this preset, unless the model says otherwise: what a
    /// search returns, one where each is asked for by its name, a group of average size where
    /// groups are loaded.
    pub fn tools_per_load(&self, view: &View) -> u32 {
        let number = match self.settings.preset {
            Preset::Crib | Preset::Regex | Preset::Stubs => self.settings.search_limit,
            Preset::Lazy | Preset::Exact => 1,
            Preset::Groups => view.len().div_ceil(view.by_origin().len().max(1)),
        };
        u32::try_from(number).unwrap_or(u32::MAX).max(1)
    }

    /// The footprint of this engine's own strategy, and how many tools wait under it.
    fn footprint(
        &self,
        view: &View,
        tools_per_load: usize,
        tokenizer: &Tokenizer,
    ) -> Result<(Footprint, u32), EngineError> {
        let mut session = Session::new();
        session.choose(Strategy::Native);
        let shown = self.prepare(&mut session, view)?;
        let mut footprint = Footprint {
            base: tokens(&shown.tools, tokenizer),
            section: tokenizer.count(&shown.system_section).tokens,
            ..Footprint::default()
        };
        let waiting: Vec<Arc<Tool>> = {
            let tools = session.scope(view).tools().filter(|tool| !session.has(tool));
            tools.cloned().collect()
        };
        let number = u32::try_from(waiting.len()).unwrap_or(u32::MAX);
        let sample = average(waiting, tools_per_load.max(1));
        // Without verbs the engine sends everything, and nothing waits.
        let (Some(first), Some(true)) = (sample.first(), session.is_deferred()) else {
            return Ok((footprint, 0));
        };
        if session.strategy() == Some(Strategy::Dispatch) {
            footprint.envelope = envelope(first, self.settings.preset, tokenizer);
        }
        for asked in rounds(self.settings.preset, &sample) {
            let round = asked.iter().map(|asked| {
                let said = format!("{}{}", asked.call.name, asked.said);
                let result = match self.resolve(&mut session, view, &asked.call) {
                    Step::Answer(answer) => {
                        let revealed = answer.effects.revealed.iter();
                        let revealed: u64 = revealed.map(|it| count(&it.tool, tokenizer)).sum();
                        tokenizer.count(&answer.content).tokens + revealed
                    }
                    // Part of the group has still to be fetched: what is known stands for it.
                    Step::Need(_) | Step::Run(_) => self.supposed(&mut session, &sample, tokenizer),
                };
                (tokenizer.count(&said).tokens, result)
            });
            let (call, result) = round.fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1));
            footprint.rounds.push(LoadRound { call, result });
        }
        let grown = self.prepare(&mut session, view)?;
        footprint.loaded = tokens(&grown.tools[shown.tools.len()..], tokenizer);
        Ok((footprint, number))
    }

    /// Loads tools without a verb, and says how long its result would be at least.
    fn supposed(&self, session: &mut Session, tools: &[Arc<Tool>], tokenizer: &Tokenizer) -> u64 {
        for tool in tools {
            session.load(tool);
        }
        let shown = if self.grows(session) { &[] } else { tools };
        shown.iter().map(|tool| count(tool.definition(), tokenizer)).sum()
    }
}

/// The tools whose definitions are nearest to the average length. Bytes will do to find them:
/// counting the tokens of every tool takes its time, and so does writing each out.
fn average(mut tools: Vec<Arc<Tool>>, number: usize) -> Vec<Arc<Tool>> {
    let length = |tool: &Arc<Tool>| {
        let definition = tool.definition();
        let text = definition.name().len() + definition.description().len();
        text + definition.schema().get().len()
    };
    let mean = tools.iter().map(length).sum::<usize>() / tools.len().max(1);
    tools.sort_by_cached_key(|tool| (length(tool).abs_diff(mean), tool.exposed().clone()));
    tools.truncate(number);
    tools
}

/// The rounds in which a model loads these tools, each with the calls it makes at once.
fn rounds(preset: Preset, tools: &[Arc<Tool>]) -> Vec<Vec<Asked>> {
    let names: Vec<&str> = tools.iter().map(|tool| &**tool.exposed()).collect();
    let words = tools.first().map(|tool| tool.name().tool().replace(['_', '-', '.'], " "));
    let words = words.unwrap_or_default();
    let ask = |verb: MetaTool, arguments: Value, said: Value| Asked {
        call: Call::new(verb.exposed(preset), arguments),
        said,
    };
    let say = |verb, arguments: Value| ask(verb, arguments.clone(), arguments);
    let limit = tools.len();
    match preset {
        Preset::Crib | Preset::Stubs => {
            let select = json!({"query": format!("select:{}", names.join(",")), "limit": limit});
            vec![vec![ask(MetaTool::ToolSearch, select, json!({"query": words}))]]
        }
        Preset::Regex => {
            let names: Vec<String> = names.iter().map(|name| regex::escape(name)).collect();
            let select = json!({"pattern": names.join("|"), "limit": limit});
            vec![vec![ask(MetaTool::ToolSearchRegex, select, json!({"pattern": words}))]]
        }
        Preset::Exact => vec![vec![say(MetaTool::ToolSearch, json!({"query": names.join(",")}))]],
        Preset::Lazy => {
            let activate = |name: &&str| say(MetaTool::ToolSearch, json!({"name": name}));
            vec![
                vec![say(MetaTool::ToolSearch, json!({"query": words}))],
                names.iter().map(activate).collect(),
            ]
        }
        Preset::Groups => {
            let mut groups: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
            for tool in tools {
                groups.entry(tool.group().as_str()).or_default().push(tool.exposed());
            }
            let load = |(group, names)| {
                say(MetaTool::LoadTools, json!({"group_id": group, "tool_names": names}))
            };
            vec![groups.into_iter().map(load).collect()]
        }
    }
}

/// What `call_tool` adds to a call.
fn envelope(tool: &Tool, preset: Preset, tokenizer: &Tokenizer) -> u64 {
    let name = tool.exposed();
    let verb = MetaTool::CallTool.exposed(preset);
    let through = format!("{verb}{}", json!({"tool_name": name, "arguments": {}}));
    let direct = format!("{name}{{}}");
    tokenizer.count(&through).tokens.saturating_sub(tokenizer.count(&direct).tokens)
}

fn tokens(definitions: &[Definition], tokenizer: &Tokenizer) -> u64 {
    definitions.iter().map(|definition| count(definition, tokenizer)).sum()
}

fn count(definition: &Definition, tokenizer: &Tokenizer) -> u64 {
    if *tokenizer == Tokenizer::O200K {
        return definition.tokens();
    }
    tokenizer.count(definition.neutral().get()).tokens
}
