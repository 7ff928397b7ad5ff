//! `toolcrib.toml` and `toolcrib config`.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Folder, WEATHER, keys, sample};

#[test]
fn a_configuration_error_names_file_line_column_key_and_the_key_that_was_meant() {
    let folder = Folder::new(&[(
        "toolcrib.toml",
        "preset = \"groups\"\ntreshold_tools = 3\n\n[policy]\ndeny_server = []\n",
    )]);
    let expected = "error: toolcrib.toml, line 2, column 1, `treshold_tools`: there is no such key; did you mean `threshold_tools`?\n\
        toolcrib.toml, line 5, column 1, `policy.deny_server`: there is no such key; did you mean `deny_servers`?\n";
    for args in ["tools", "search x", "prompt", "plan", "config check", "config show"] {
        assert_eq!(folder.fails(2, args), expected, "{args}");
    }
    let message = folder.fails(2, "tools --config nowhere.toml");
    assert!(message.contains("can't read configuration nowhere.toml"), "{message}");
}

#[test]
fn a_configuration_is_obeyed_and_options_come_before_it() {
    let config = "tools = [\"lists\"]\nmode = \"deferred\"\nstrategy = \"inject\"\nprofile = \"desk\"\n\
        models = \"models.toml\"\n[eager.sets]\nsky = [\"get_alerts\"]\n[eager.profiles]\ndesk = [\"sky\"]\n\
        other = []\n[policy]\ndeny_tools = [\"seven\"]\n";
    let folder = Folder::new(&[
        ("conf/toolcrib.toml", config),
        ("conf/lists/weather.json", WEATHER),
        ("conf/lists/seven.json", r#"[{"name": "seven"}]"#),
        ("conf/models.toml", "[[model]]\nname = \"house\"\nvocabulary = \"cl100k_base\"\n"),
    ]);
    let value = folder.json("tools --config conf/toolcrib.toml --json");
    assert_eq!((&value["totals"]["tools"], &value["totals"]["hidden"]), (&json!(2), &json!(1)));
    let reason = &value["tools"][0]["eager_reason"];
    assert_eq!(reason, "set `sky` of profile `desk` has `get_alerts`");
    let text = folder.text("tools --config conf/toolcrib.toml");
    assert!(text.contains("preset crib, inject, deferring"), "{text}");

    let value = folder.json("tools --config conf/toolcrib.toml --json --profile other");
    assert_eq!(value["tools"][0]["eager_reason"], Value::Null);
    let value = folder.json("tools --config conf/toolcrib.toml --json --mode full");
    assert_eq!(value["totals"]["deferred"], 0);
    let message = folder.fails(2, "tools --config conf/toolcrib.toml --profile dusk");
    assert!(message.contains("`dusk` is not defined; did you mean `desk`?"), "{message}");
    let exact = folder.text("prompt --config conf/toolcrib.toml --model house");
    assert!(exact.contains("as house counts") && !exact.contains('~'), "{exact}");
    assert!(folder.text("config check conf/toolcrib.toml").contains("is fine"));
}

#[test]
fn a_check_says_the_same_to_scripts() {
    let folder = Folder::new(&[
        ("toolcrib.toml", "[servers.a]\ncommand = '${NO_SUCH_THING}'\n"),
        ("wrong.toml", "[gateway.tokens]\nci = 'x'\n"),
        ("folder/toolcrib.toml/x", ""),
    ]);
    let output = folder.run("config check");
    assert_eq!(output.stdout, "toolcrib.toml can be used, with 1 warning: preset crib, 1 server\n");
    assert!(output.stderr.contains("`NO_SUCH_THING` is not set"), "{}", output.stderr);
    let value = folder.json("config check --json");
    assert_eq!((&value["ok"], value["warnings"].as_array().unwrap().len()), (&json!(true), 1));

    let output = folder.run("config check wrong.toml --json");
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    let message = value["message"].as_str().unwrap();
    assert_eq!((output.code, &value["ok"]), (Some(2), &json!(false)));
    assert!(
        message.starts_with("wrong.toml, line 2, column 1, `gateway.tokens.ci`: "),
        "{message}"
    );

    let mut command = folder.command("config check");
    command.current_dir(folder.path("folder"));
    let output = Folder::output(command);
    assert_eq!(output.code, Some(2), "{}", output.stdout);
    assert!(output.stderr.contains("can't read configuration toolcrib.toml"), "{}", output.stderr);
}

#[test]
fn config_show_is_a_configuration() {
    let folder = Folder::new(&[("toolcrib.toml", "preset = \"regex\"\n")]);
    let shown = folder.text("config show");
    assert!(shown.contains("preset = \"regex\"\n") && shown.contains("search_limit = 10\n"));
    fs::write(folder.path("again.toml"), &shown).unwrap();
    assert_eq!(folder.text("config show --config again.toml"), shown);
    assert_eq!(folder.json("config show --json")["search_limit_max"], 50);
    assert!(sample().text("config check").contains("there is no toolcrib.toml here"));
}

#[test]
fn addresses_are_shown_without_what_may_be_secret() {
    let config = "[agent]\nbase_url = 'https://me:hunter2@host/v1'\n\
                  [search.embedder]\nurl = 'https://hunter2@host/v1'\nmodel = 'm'\n\
                  [servers.a]\nurl = 'https://host/mcp?key=hunter2'\n";
    let folder = Folder::new(&[("toolcrib.toml", config)]);
    for args in ["config show", "config show --json"] {
        let shown = folder.text(args);
        assert!(!shown.contains("hunter2") && shown.contains("https://…@host/v1"), "{shown}");
        assert!(shown.contains("https://host/mcp?…"), "{shown}");
    }
}

#[test]
fn the_schema_knows_every_key_that_is_shown() {
    let schema = sample().json("config schema");
    let shown = sample().json("config show --json");
    let known = keys(&schema["properties"]);
    assert!(keys(&shown).iter().all(|key| known.contains(key)));
    assert_eq!(schema["additionalProperties"], false);
    for key in known {
        assert!(schema["properties"][key]["description"].is_string(), "{key}");
    }
}

#[test]
fn a_table_of_models_with_a_mistake_is_named() {
    let folder = Folder::new(&[
        ("toolcrib.toml", "models = \"m.toml\""),
        ("m.toml", "[[model]]\nname = \"x\"\nprise = 1\n"),
    ]);
    for args in ["prompt --model x", "config check"] {
        let message = folder.fails(2, args);
        assert!(message.contains("m.toml, line 3, `prise`"), "{message}");
    }
}

#[test]
fn what_a_configuration_names_must_be_there() {
    let folder = Folder::new(&[
        ("models.toml", "models = \"m.toml\""),
        ("tools.toml", "tools = [\"lists\"]"),
    ]);
    for args in ["plan --config models.toml", "config check models.toml"] {
        let message = folder.fails(2, args);
        assert!(message.starts_with("error: can't read the table of models m.toml: "), "{message}");
    }
    let message = folder.fails(2, "config check tools.toml");
    assert!(message.contains("tools.toml: `tools` names lists, which does not exist"), "{message}");
}

#[test]
fn a_policy_that_leaves_no_way_to_tools_is_refused_if_they_are_many() {
    let config = "[policy]\ndeny_tools = [\"tool_search\", \"load_tools\", \"call_tool\"]\n";
    let folder = Folder::new(&[("toolcrib.toml", config)]);
    assert!(folder.text("tools").contains("every schema sent"));
    for args in ["tools --context-window 2000", "prompt --context-window 2000"] {
        let message = folder.fails(2, args);
        assert!(message.contains("the policy denies every verb of preset `crib`"), "{message}");
    }
}

#[test]
fn tools_are_offered_with_the_first_message_where_that_is_asked_for() {
    let offered = |config: &str| {
        let folder = Folder::new(&[("toolcrib.toml", config)]);
        let args = "run the~git~log --model scripted --yes --keep --mode deferred --json";
        let id = folder.json(&format!("{args} --strategy dispatch"))["session"].clone();
        let shown = folder.json(&format!("sessions show {} --json", id.as_str().unwrap()));
        let notices = shown["messages"].as_array().unwrap().iter();
        let notices = notices.filter(|message| message["role"] == "notice");
        notices.map(|it| it["text"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(offered(""), [""; 0]);
    assert_eq!(offered("[agent]\npredict = 0\n"), [""; 0]);
    let told = offered("[agent]\npredict = 2\n");
    let [told] = &told[..] else { panic!("{told:?}") };
    assert!(told.starts_with("Now loaded:\n{\"name\":\"mcp__git__log\""), "{told}");
    assert_eq!(told.lines().count(), 3, "{told}");
    let folder = Folder::new(&[("toolcrib.toml", "[agent]\npredict = -1\n")]);
    let message = folder.fails(2, "config check");
    assert!(message.contains("line 2") && message.contains("`agent.predict`"), "{message}");
}
