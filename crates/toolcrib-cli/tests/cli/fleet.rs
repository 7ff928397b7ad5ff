//! The configured servers: `toolcrib servers`, and `tools`, `search`, `prompt` and `plan` over them.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use serde_json::{Value, json};

use crate::support::{Folder, builtin, keys, odd_server, sample, script};

/// Two that work, and one of each kind that doesn't.
fn mixed() -> Folder {
    let config = [
        &*builtin("time", "time"),
        &*builtin("data", "data"),
        &*script("exits", "echo no licence >&2; exit 3"),
        "[servers.missing]\ncommand = 'no-such-command'\n",
        "[servers.hangs]\ncommand = 'sleep'\nargs = ['1000']\nstart_limit = 1\n",
        "[servers.unset]\ncommand = '${NO_SUCH_THING}'\n",
        "[servers.off]\ncommand = 'x'\nenabled = false\n",
    ];
    Folder::new(&[("toolcrib.toml", &config.concat())])
}

fn row<'a>(value: &'a Value, name: &str) -> &'a Value {
    let rows = value["servers"].as_array().unwrap();
    rows.iter().find(|row| row["name"] == name).unwrap()
}

#[test]
fn every_server_has_its_row_whatever_is_wrong_with_the_others() {
    let folder = mixed();
    let value = folder.json("servers --json");
    assert_eq!(folder.left_behind(), [""; 0]);
    let time = row(&value, "time");
    assert_eq!((&time["state"], &time["tools"]), (&json!("known"), &json!(5)));
    assert!(time["tokens"].as_u64().unwrap() > 100 && time["start_ms"].is_u64(), "{time}");
    for (name, state, error) in [
        ("exits", "failed", "no licence"),
        ("missing", "failed", "`no-such-command` was not found"),
        ("hangs", "failed", "did not start within 1s"),
        ("unset", "unusable", "`NO_SUCH_THING` is not set"),
    ] {
        let row = row(&value, name);
        assert_eq!(row["state"], state, "{row}");
        assert!(row["error"].as_str().unwrap().contains(error), "{row}");
        assert!(row["tools"].is_null(), "{row}");
    }
    assert_eq!(row(&value, "off")["state"], "disabled");

    let text = folder.text("servers --offline");
    let known = text.lines().find(|line| line.starts_with("time ")).unwrap();
    assert!(known.contains(" known ") && known.contains("just now"), "{text}");
    let hangs = text.lines().find(|line| line.starts_with("hangs ")).unwrap();
    assert!(hangs.contains(" configured "), "{text}");
    assert!(text.contains("7 servers, 15 tools;"), "{text}");
    assert!(text.contains("`toolcrib doctor`"), "{text}");
}

#[test]
fn what_is_known_is_not_asked_again_unless_told() {
    // It notes each start.
    let server = odd_server(r#"[{"name":"a","inputSchema":{"type":"object"}}]"#, "{}");
    let config = script("odd", &format!("echo x >> starts\n{server}"));
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    let starts = || folder.read("starts").lines().count();
    folder.text("servers --offline");
    assert!(!folder.path("starts").exists());
    assert_eq!(row(&folder.json("servers --json"), "odd")["tools"], 1);
    assert_eq!(starts(), 1);
    for args in ["servers", "tools", "search a", "prompt", "plan"] {
        folder.text(args);
    }
    assert_eq!(starts(), 1);
    folder.text("servers --refresh");
    assert_eq!(starts(), 2);
    assert_eq!(folder.left_behind(), [""; 0]);
}

#[test]
fn without_servers_the_built_in_ones_are_shown() {
    let output = sample().run("servers");
    assert!(output.stderr.contains("No servers are configured"), "{}", output.stderr);
    assert!(output.stdout.contains("7 servers, 49 tools;"), "{}", output.stdout);
    let value = sample().json("servers --json");
    assert_eq!(keys(&value), ["servers"]);
    assert_eq!(row(&value, "files")["state"], "built-in");
}

#[test]
fn tools_are_those_of_the_servers() {
    let folder = mixed();
    let output = folder.run("tools --json");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(value["totals"]["tools"], 15);
    for warning in [
        "server `unset` can't be used: environment variable `NO_SUCH_THING` is not set",
        "server `exits` can't be listed: ",
        "server `hangs` can't be listed: it did not start within 1s",
        "server `missing` can't be listed: ",
    ] {
        assert!(output.stderr.contains(warning), "{warning}: {}", output.stderr);
    }
    let found = folder.json("search convert~a~time~zone --json -q");
    assert_eq!(found["results"][0]["name"], "mcp__time__convert_time");
    let prompt = folder.json("prompt --mode deferred --json -q");
    assert!(prompt["system_section"].as_str().unwrap().contains("mcp:data"), "{prompt}");
    assert!(folder.text("plan -q").starts_with("15 tools, "));
    assert!(folder.fails(2, "search").contains("say what to search for"));
    assert_eq!(folder.left_behind(), [""; 0]);
}

#[test]
fn whoever_has_waited_long_enough_leaves_nothing_running() {
    let config = script("hangs", "echo up > here; exec sleep 1000");
    for (args, signal) in [("servers", "-INT"), ("tools", "-TERM"), ("doctor", "-INT")] {
        let folder = Folder::new(&[("toolcrib.toml", &config)]);
        let made = Command::new("mkfifo").arg(folder.path("here")).status().unwrap();
        assert!(made.success());
        let mut command = folder.command(args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        // Read once the server runs.
        assert_eq!(folder.read("here"), "up\n");
        // Toolcrib and the server, and for a moment what is about to become the guard. A process
        // that is just becoming another program can't be told by its environment.
        let found = (0..100).any(|_| {
            thread::sleep(Duration::from_millis(20));
            folder.left_behind().len() >= 2
        });
        assert!(found, "{args}");
        let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap();
        assert!(sent.success());
        assert_eq!(child.wait().unwrap().code(), Some(130), "{args}");
        assert_eq!(folder.left_behind(), [""; 0], "{args}");
    }
}

#[test]
fn lists_come_before_servers() {
    let folder = Folder::new(&[
        ("toolcrib.toml", &builtin("time", "time")),
        ("weather.json", crate::support::WEATHER),
    ]);
    assert_eq!(folder.json("tools --tools weather.json --json")["totals"]["tools"], 2);
    assert!(!folder.path("home/.cache").exists(), "a server was started");
}

#[test]
fn a_malformed_tool_is_told_of_and_the_rest_is_there() {
    let tools = r#"[{"name":"good"},{"description":"no name"},{"name":"bad","inputSchema":7}]"#;
    let folder = Folder::new(&[("toolcrib.toml", &script("odd", &odd_server(tools, "{}")))]);
    let output = folder.run("tools --json");
    assert!(output.stderr.contains("warning: odd/bad was left out: "), "{}", output.stderr);
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(value["totals"]["tools"], 1);
}
