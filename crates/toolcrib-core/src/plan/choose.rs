//! Which strategy a conversation should begin with, where the settings leave that open.

use serde::Serialize;
use toolcrib_tokens::Model;

use super::{Approach, Footprints, Scenario, compare, why};
use crate::engine::may_dispatch;
use crate::{Engine, EngineError, Fingerprint, Preset, Strategy, StrategyChoice, View};

/// A strategy, and why it is the one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// For [`Session::choose`](crate::Session::choose).
    pub strategy: Strategy,
    /// In words.
    pub why: String,
}

impl Engine {
    /// The strategy a conversation over these tools should begin with. `native` says whether the
    /// driver can render native for this model.
    ///
    /// Where the settings say `auto` and the preset is crib, it is the cheapest for a
    /// conversation like `scenario`, by the sizes of these tools and the cache rules of the model.
    /// The sizes are measured once for a catalog and a model.
    pub fn choose(&self, view: &View, model: &Model, scenario: &Scenario, native: bool) -> Chosen {
        let preset = self.settings.preset;
        let (strategy, why) = match self.settings.strategy {
            StrategyChoice::Native if native => {
                (Strategy::Native, "as the settings say".to_owned())
            }
            StrategyChoice::Native => {
                let why = "the settings ask for native, which this model or its API has not got";
                (Strategy::Dispatch, why.to_owned())
            }
            StrategyChoice::Dispatch => (Strategy::Dispatch, "as the settings say".to_owned()),
            StrategyChoice::Inject => (Strategy::Inject, "as the settings say".to_owned()),
            StrategyChoice::Auto if preset != Preset::Crib => {
                (preset.strategy(), format!("what preset `{preset}` uses"))
            }
            StrategyChoice::Auto => match self.cheapest(view, model, scenario, native) {
                Ok(chosen) => return chosen,
                Err(error) => (preset.strategy(), format!("nothing can be compared: {error}")),
            },
        };
        let allowed = self.strategy(Some(strategy), view.policy());
        let why =
            if allowed == strategy { why } else { "the policy denies `call_tool`".to_owned() };
        Chosen { strategy: allowed, why: format!("{allowed}: {why}.") }
    }

    fn cheapest(
        &self,
        view: &View,
        model: &Model,
        scenario: &Scenario,
        native: bool,
    ) -> Result<Chosen, EngineError> {
        let footprints = self.measured(view, model, scenario.tools_per_load)?;
        let may = |approach: Approach| match approach {
            Approach::Full => false,
            Approach::Deferred(Strategy::Native) => native,
            Approach::Deferred(Strategy::Dispatch) => may_dispatch(&self.settings, view.policy()),
            Approach::Deferred(Strategy::Inject) => true,
        };
        let plan = compare(&footprints, scenario, model, may);
        let strategy = match plan.cheapest {
            Approach::Deferred(strategy) => strategy,
            Approach::Full => Strategy::Inject,
        };
        Ok(Chosen { strategy, why: why::explain(&plan, model) })
    }

    /// What the strategies put into prompts, measured once.
    fn measured(
        &self,
        view: &View,
        model: &Model,
        tools_per_load: u32,
    ) -> Result<Footprints, EngineError> {
        let (catalog, name) = (view.fingerprint(), &model.name);
        let counted = format!("{:?} {tools_per_load}", model.tokenizer);
        let key = Fingerprint::of([catalog.as_bytes(), name.as_bytes(), counted.as_bytes()]);
        if let Some(footprints) = self.footprints.get(key) {
            return Ok(footprints);
        }
        let footprints = self.deferred_footprints(view, tools_per_load, &model.tokenizer)?;
        self.footprints.keep(key, footprints.clone());
        Ok(footprints)
    }
}
