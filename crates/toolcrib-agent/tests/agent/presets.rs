//! Every preset, in the loop, by the verbs it gives a model.

use serde_json::{Value, json};
use toolcrib_agent::{End, Turn};
use toolcrib_core::{Group, GroupId, Mode, Preset, Settings, Strategy, StrategyChoice};
use toolcrib_runtime::{Crib, function};

use crate::support::*;

/// How a model gets at `drill` under a preset.
fn finding(preset: Preset) -> (&'static str, Value) {
    match preset {
        Preset::Crib => ("tool_search", json!({"query": "drill a hole"})),
        Preset::Regex => ("tool_search_regex", json!({"pattern": "^drill$"})),
        Preset::Stubs => ("tool_search", json!({"query": "select:drill"})),
        Preset::Lazy => ("tool_search", json!({"name": "drill"})),
        Preset::Groups => ("load_tools", json!({"group_id": "shop"})),
        Preset::Exact => ("tool_search", json!({"query": "drill"})),
    }
}

#[tokio::test]
async fn every_preset_finds_and_calls_under_dispatch_and_inject() {
    let presets =
        [Preset::Crib, Preset::Regex, Preset::Stubs, Preset::Lazy, Preset::Groups, Preset::Exact];
    for preset in presets {
        for strategy in [Strategy::Dispatch, Strategy::Inject] {
            let mut settings = Settings::preset(preset);
            settings.mode = Mode::Deferred;
            settings.strategy = match strategy {
                Strategy::Dispatch => StrategyChoice::Dispatch,
                _ => StrategyChoice::Inject,
            };
            let log = Log::default();
            let seen = log.clone();
            let drill = function("drill", "Drill a hole.", move |it: Size| {
                let seen = seen.clone();
                async move {
                    seen.note(it.size.to_string());
                    "drilled"
                }
            })
            .map_spec(|spec| spec.with_deferral(toolcrib_core::Deferral::Deferred));
            let crib = Crib::builder(settings).function(drill).build().await.unwrap();
            crib.declare(Group::new(GroupId::from("shop")).with_tool_names(["drill"]), None)
                .unwrap();
            let dispatcher =
                if preset == Preset::Groups { "deferred_tool_call" } else { "call_tool" };
            let call = match strategy {
                Strategy::Dispatch => {
                    (dispatcher, json!({"tool_name": "drill", "arguments": {"size": 5}}))
                }
                _ => ("drill", json!({"size": 5})),
            };
            let model = toolcrib_agent::Scripted::new([
                Turn::calls([finding(preset)]),
                Turn::calls([call]),
                Turn::text("Done."),
            ]);
            let agent = toolcrib_agent::Agent::builder(model.clone(), "scripted", crib).build();
            let mut chat = agent.chat();
            let (_, answer) = follow(&mut chat, "Drill.").await;
            assert_eq!(answer.end, End::Done, "{preset} {strategy:?}");
            assert_eq!(
                log.lines(),
                ["5"],
                "{preset} {strategy:?}: {:?}",
                last_results(chat.history())
            );
            let sent: Vec<usize> =
                model.requests().iter().map(|request| request.tools.len()).collect();
            match strategy {
                Strategy::Dispatch => assert_eq!(sent, [sent[0]; 3], "{preset}"),
                _ => assert_eq!(sent, [sent[0], sent[0] + 1, sent[0] + 1], "{preset}"),
            }
            let systems: Vec<_> =
                model.requests().iter().map(|request| request.system.clone()).collect();
            assert!(systems.windows(2).all(|pair| pair[0] == pair[1]));
        }
    }
}
