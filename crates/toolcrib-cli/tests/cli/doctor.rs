//! `toolcrib doctor`: what is wrong, and how to mend it.

use std::fs;

use serde_json::{Value, json};

use crate::support::{Folder, builtin, odd_server, sample, script};

fn diagnose(folder: &Folder, args: &str) -> (Option<i32>, Value) {
    let output = folder.run(&format!("doctor --json {args}"));
    assert_eq!(folder.left_behind(), [""; 0]);
    (output.code, serde_json::from_str(&output.stdout).unwrap())
}

fn check<'a>(value: &'a Value, name: &str) -> &'a Value {
    let checks = value["checks"].as_array().unwrap();
    checks.iter().find(|check| check["name"] == name).unwrap_or_else(|| panic!("{name}: {value}"))
}

/// Whether a check found this, and advises that.
fn assert_found(check: &Value, level: &str, what: &str, fix: &str) {
    let findings = check["findings"].as_array().unwrap();
    let has =
        |finding: &Value, key: &str, text: &str| finding[key].as_str().unwrap().contains(text);
    let is_it = |finding: &&Value| {
        finding["level"] == level && has(finding, "what", what) && has(finding, "fix", fix)
    };
    assert!(findings.iter().any(|finding| is_it(&finding)), "{what} / {fix}: {check}");
}

#[test]
fn a_bare_machine_is_fine() {
    let output = sample().run("doctor");
    assert_eq!(output.code, Some(0), "{}", output.stdout);
    assert!(output.stdout.contains("ok    files  built in: 12 tools, "), "{}", output.stdout);
    assert!(output.stdout.contains("\nNothing is wrong"), "{}", output.stdout);
    assert!(!output.stdout.contains('\x1b'));
}

#[test]
fn each_server_that_fails_has_its_reason_and_a_fix() {
    let config = [
        &*builtin("time", "time"),
        &*script("exits", "echo no licence >&2; exit 3"),
        "[servers.uv]\ncommand = 'uvx'\nenv = { PATH = '/nowhere' }\n",
        "[servers.hangs]\ncommand = 'sleep'\nargs = ['1000']\nstart_limit = 1\n",
        "[servers.unset]\ncommand = '${NO_SUCH_THING}'\n",
        "[servers.gone]\nurl = 'http://127.0.0.1:1/mcp'\n",
    ];
    let folder = Folder::new(&[("toolcrib.toml", &config.concat())]);
    let (code, value) = diagnose(&folder, "");
    assert_eq!((code, &value["ok"]), (Some(1), &json!(false)));
    assert_eq!(check(&value, "time")["ok"], true);
    assert!(check(&value, "time")["summary"].as_str().unwrap().starts_with("5 tools, "));
    assert_found(check(&value, "exits"), "problem", "no licence", "run `sh` by hand");
    assert_found(check(&value, "uv"), "problem", "command `uvx` was not found", "install uv");
    assert_found(check(&value, "hangs"), "problem", "did not start within 1s", "`start_limit`");
    assert_found(check(&value, "unset"), "problem", "`NO_SUCH_THING` is not set", "set it where");
    assert_found(check(&value, "gone"), "problem", "", "check that it runs, and its `url`");

    let (code, value) = diagnose(&folder, "time");
    assert_eq!((code, &value["ok"]), (Some(0), &json!(true)));
    assert!(value["checks"].as_array().unwrap().iter().all(|check| check["name"] != "exits"));
    let message = folder.fails(2, "doctor tine");
    assert!(message.contains("there is no server `tine`; did you mean `time`?"), "{message}");
}

#[test]
fn what_is_odd_about_a_servers_tools_is_said() {
    let (long, name) = ("word ".repeat(500), "n".repeat(60));
    let tools = format!(
        r#"[{{"name":"a","description":"{long}"}},{{"name":"{name}"}},{{"name":7}},
        {{"name":"c","inputSchema":{{"type":"object","properties":{{"p":{{"$ref":"http://h/s.json"}}}}}}}}]"#
    )
    .replace('\n', "");
    let config = [
        script("odd", &odd_server(&tools, "{}")),
        script("twin", &odd_server(&tools, "{}")),
        script("empty", &odd_server("[]", "{}")),
    ];
    let folder = Folder::new(&[("toolcrib.toml", &config.concat())]);
    let (code, value) = diagnose(&folder, "");
    assert_eq!(code, Some(1));
    let odd = check(&value, "odd");
    assert_found(odd, "problem", "is left out: ", "`exclude`");
    assert_found(odd, "advice", "it speaks MCP 2024-11-05", "update");
    assert_found(odd, "advice", "arguments of `c` can't be checked", "passed on unchecked");
    assert_found(odd, "advice", &format!("{name} as odd__nnn"), "nothing has to be done");
    assert_found(odd, "advice", "more than 2 kB: a", "`exclude`");
    assert_found(check(&value, "twin"), "advice", "just like `odd`", "toolcrib remove twin");
    assert_found(check(&value, "empty"), "advice", "it has no tools", "enabled = false");
    assert_eq!(check(&value, "empty")["ok"], true);
}

#[test]
fn a_configuration_that_cant_be_read_is_a_finding() {
    let folder = Folder::new(&[("toolcrib.toml", "[servers.a]\ncomand = 'x'\n")]);
    let (code, value) = diagnose(&folder, "");
    assert_eq!(code, Some(1));
    let what = "line 2, column 1, `servers.a.comand`";
    assert_found(check(&value, "configuration"), "problem", what, "correct the file");
    let (_, value) = diagnose(&folder, "--config nowhere.toml");
    assert_found(check(&value, "configuration"), "problem", "nowhere.toml", "name a file");
}

#[test]
fn a_cache_that_cant_be_written_is_a_finding() {
    let config = format!("[gateway]\ncache_dir = 'cache'\n{}", builtin("time", "time"));
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    // A file where the folder should be.
    fs::write(folder.path("cache"), "").unwrap();
    let (code, value) = diagnose(&folder, "");
    assert_eq!(code, Some(1));
    assert_found(check(&value, "cache"), "problem", "not remembered", "cache_dir");
    assert_eq!(check(&value, "time")["ok"], true);
    let told = folder.run("servers").stderr;
    assert!(told.contains("warning: what servers list is not remembered: "), "{told}");

    let bare = sample();
    let mut command = bare.command("doctor --json");
    command.env_remove("HOME");
    let value: Value = serde_json::from_str(&Folder::output(command).stdout).unwrap();
    assert_found(check(&value, "notes"), "problem", "data folder", "set HOME");
    assert_found(check(&value, "cache"), "advice", "there is no home folder", "set HOME");
}
