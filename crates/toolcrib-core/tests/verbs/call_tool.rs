//! What `call_tool` makes of its arguments.

use serde_json::json;
use toolcrib_core::{Preset, Registry, ToolName, ToolSpec};

use crate::chat;
use crate::support::{Chat, deferring, names};

#[test]
fn the_envelope_is_understood_however_it_is_folded() {
    let text = json!({"text": "x"});
    for envelope in [
        json!({"tool_name": "get_me", "arguments": text}),
        json!({"arguments": text, "tool_name": " `get_me` "}),
        json!({"name": "get_me", "arguments": text}),
        json!({"tool": "get_me", "arguments": text}),
        json!({"tool_name": "get_me", "arguments": "{\"text\": \"x\"}"}),
        json!({"tool_name": "get_me", "text": "x"}),
        json!({"tool_name": "get_me", "arguments": null, "text": "x"}),
        json!({"tool_name": "get_me", "arguments": {"tool_name": "get_me", "arguments": text}}),
        json!({"arguments": {"tool_name": "get_me", "arguments": text}}),
        json!({"arguments": {"tool_name": "get_me", "text": "x"}}),
        json!({"tool_name": "functions.get_me", "arguments": text}),
        json!({"tool_name": "github.get_me", "arguments": text}),
    ] {
        let run = chat(Preset::Crib).runs("call_tool", envelope.clone());
        assert_eq!(run, ("github/get_me".to_owned(), text.clone()), "{envelope}");
    }
    for nothing in [json!(null), json!({}), json!(""), json!("{}")] {
        let call = json!({"tool_name": "get_me", "arguments": nothing});
        assert_eq!(chat(Preset::Crib).runs("call_tool", call).1, json!({}));
    }
}

#[test]
fn an_argument_called_name_beside_the_tools_name_is_kept() {
    let registry = Registry::default();
    let schema = json!({"type": "object", "properties": {"name": {"type": "string"}},
        "required": ["name"], "additionalProperties": false});
    registry.register(ToolSpec::new(ToolName::host("create_repo"), schema)).unwrap();
    let mut chat = Chat::new(deferring(Preset::Crib), registry);
    let flat = json!({"tool_name": "create_repo", "name": "toolcrib"});
    assert_eq!(chat.runs("call_tool", flat).1, json!({"name": "toolcrib"}));
}

#[test]
fn a_call_without_a_tool_says_what_is_missing() {
    for envelope in [
        json!({}),
        json!({"tool_name": ""}),
        json!({"tool_name": null, "arguments": {}}),
        json!({"arguments": {"text": "x"}}),
        json!({"arguments": 7}),
    ] {
        assert_eq!(
            chat(Preset::Crib).mistake("call_tool", envelope.clone()),
            json!({"error":
                "`tool_name` is required: the name of the tool to call, as found or listed."}),
            "{envelope}"
        );
    }
}

#[test]
fn a_call_through_the_dispatcher_reaches_verbs_but_not_itself() {
    let mut chat = chat(Preset::Crib);
    let search = json!({"tool_name": "tool_search", "arguments": {"query": "select:get_me"}});
    assert_eq!(names(&chat.json("call_tool", search)["tools"]), ["mcp__github__get_me"]);
    for own in ["call_tool", "deferred_tool_call", " functions.call_tool"] {
        let call = json!({"tool_name": own, "arguments": {"tool_name": "get_me", "arguments": {}}});
        assert_eq!(
            chat.mistake("call_tool", call)["error"],
            "Name the tool itself: call_tool can't call itself."
        );
    }
    // Both of its names are understood, under any preset that dispatches.
    let call = json!({"tool_name": "get_me", "arguments": {}});
    assert_eq!(chat.runs("deferred_tool_call", call).0, "github/get_me");
}

#[test]
fn a_verb_or_tool_with_an_imagined_namespace_is_recognised() {
    let mut chat = chat(Preset::Crib);
    for name in
        ["functions.tool_search", "default_api.tool_search", "`tool_search`", " tool_search "]
    {
        let found = chat.json(name, json!({"query": "select:get_me"}));
        assert_eq!(names(&found["tools"]), ["mcp__github__get_me"], "{name}");
    }
    assert_eq!(chat.runs("functions.mcp__github__get_me", json!({})).0, "github/get_me");
}

#[test]
fn a_misfit_runs_nothing_and_shows_the_schema() {
    let mut chat = chat(Preset::Crib);
    for arguments in [json!([1]), json!("nonsense"), json!({"text": {"deep": 1}})] {
        let call = json!({"tool_name": "get_me", "arguments": arguments});
        let answer = chat.mistake("call_tool", call);
        assert_eq!(
            answer["error"],
            "The arguments do not fit `mcp__github__get_me`, so nothing was run. Mend them and \
             call again."
        );
        assert_eq!(answer["tool"]["parameters"]["properties"], json!({"text": {"type": "string"}}));
    }
    // The blind call has loaded the tool all the same, so that the mended one is a plain call.
    assert_eq!(chat.loaded(), ["mcp__github__get_me"]);
}
