//! Servers in a configuration: toolcrib.toml's own, and any mcp.json.

use std::fs;

use crate::support::Folder;

#[test]
fn mistakes_in_servers_are_placed() {
    for (text, expected) in [
        (
            "[servers.a]\ncomand = \"x\"\n",
            "line 2, column 1, `servers.a.comand`: there is no such key; did you mean `command`?",
        ),
        (
            "[servers.a]\ncommand = \"x\"\n[gateway]\nport = 1\n",
            "line 4, column 1, `gateway.port`: there is no such key; known here: http,",
        ),
        ("[servers.a]\n", "line 1, column 10, `servers.a`: a server needs a `command` or a `url`"),
        (
            "[servers.a]\ncommand = \"x\"\nurl = \"http://h\"\n",
            "line 3, column 1, `servers.a.url`: a server has a `command` or a `url`, not both",
        ),
        (
            "servers.a.url = \"http://h\"\nservers.a.args = [\"x\"]\n",
            "line 2, column 11, `servers.a.args`: this goes with `command`, which the server",
        ),
        (
            "[servers.a]\nurl = \"h.example\"\n",
            "line 2, column 1, `servers.a.url`: expected an address that starts with http://",
        ),
        (
            "[servers.a]\ncommand = \"x\"\nexclude = [\"a[\"]\n",
            "line 3, column 1, `servers.a.exclude`: `a[` is not a valid pattern",
        ),
        (
            "[servers.a]\ncommand = \"x\"\nstart_limit = 0\n",
            "line 3, column 1, `servers.a.start_limit`: expected seconds, from more than 0",
        ),
        (
            "[servers.a]\ncommand = \"x\"\ncall_limit = nan\n",
            "line 3, column 1, `servers.a.call_limit`: expected seconds, from 0",
        ),
        (
            "[servers.a]\ncommand = \"x\"\nera = \"2024\"\n",
            "line 3, column 7, `servers.a.era`: unknown variant `2024`",
        ),
        (
            "[servers.\"\"]\ncommand = \"x\"\n",
            "line 1, column 10, `servers.`: a server needs a name",
        ),
        ("[servers.a]\ncommand = \"x\"\n[servers.a]\n", "line 3, column 10: duplicate key"),
        ("[gateway]\nhttp = \"localhost\"\n", "line 2, column 8, `gateway.http`: expected an IP"),
        ("[gateway]\nstart_at_once = 0\n", "line 2, column 1, `gateway.start_at_once`: expected"),
    ] {
        let folder = Folder::new(&[("toolcrib.toml", text)]);
        let message = folder.fails(2, "config check");
        assert!(message.starts_with(&format!("error: toolcrib.toml, {expected}")), "{message}");
    }
}

#[test]
fn a_mistake_repeats_no_secret() {
    for text in [
        "[servers.a]\ncommand = \"x\"\nenv = \"hunter2\"\n",
        "[servers.a]\nurl = \"http://h\"\nheaders = [\"hunter2\"]\n",
        "[servers.a]\nurl = \"http://h\"\nbearer_token = [\"hunter2\"]\n",
        "[gateway]\ntokens = [\"hunter2\"]\n",
        "[gateway]\ntokens = \"hunter2\"\n",
    ] {
        let folder = Folder::new(&[("toolcrib.toml", text)]);
        let message = folder.fails(2, "config check");
        assert!(message.contains(", line ") && message.contains("expected"), "{message}");
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn what_is_shown_of_servers_holds_no_secret_and_is_a_configuration() {
    let text = "[servers.b]\ncommand = \"x\"\nenv = { KEY = \"hunter2\", TOKEN = \"${TOKEN}\" }\n\
        [servers.a]\nurl = \"http://h\"\nbearer_token = \"hunter2\"\nheaders = { X = \"hunter2\" }\n";
    let folder = Folder::new(&[("toolcrib.toml", text)]);
    let shown = folder.text("config show");
    assert!(!shown.contains("hunter2") && shown.contains("TOKEN = \"${TOKEN}\""), "{shown}");
    assert!(shown.contains("idle_stop = 600.0") && shown.contains("http = \"127.0.0.1:7171\""));
    assert!(shown.find("[servers.b]") < shown.find("[servers.a]"), "{shown}");
    fs::write(folder.path("again.toml"), &shown).unwrap();
    assert_eq!(folder.text("config show --config again.toml"), shown);
    assert!(!folder.text("config show --json").contains("hunter2"));
}

#[test]
fn a_server_that_cant_be_used_is_named_with_its_file_and_reason() {
    let text = "[servers.a]\ncommand = \"${NO_SUCH_THING}\"\n[servers.b]\ncommand = \"x\"\n\
        [servers.c]\ncommand = \"${NOR_THIS}\"\nenabled = false\n";
    let folder = Folder::new(&[("toolcrib.toml", text)]);
    let output = folder.run("config check");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(
        output.stdout,
        "toolcrib.toml can be used, with 1 warning: preset crib, 3 servers\n"
    );
    let lines: Vec<&str> = output.stderr.lines().collect();
    assert!(lines[0].starts_with("warning: ") && lines.len() == 1, "{lines:?}");
    assert!(
        lines[0].ends_with(
            "toolcrib.toml: server `a` can't be used: environment variable `NO_SUCH_THING` is not set"
        ),
        "{lines:?}"
    );
}

#[test]
fn any_mcp_json_is_a_configuration() {
    let text = "\u{feff}// of an editor\r\n{\r\n  \"mcpServers\": {\r\n    \"a\": {\"command\": \"x\", \"alwaysAllow\": [], },\r\n\
        \"old\": {\"type\": \"sse\", \"url\": \"https://h/sse\"},\r\n    \"odd\": 3,\r\n\
        \"a\": {\"command\": \"y\", \"env\": {\"KEY\": \"hunter2\"}}\r\n  },\r\n}\r\n";
    let folder = Folder::new(&[("mcp.json", text)]);
    let output = folder.run("config check mcp.json");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert_eq!(output.stdout, "mcp.json can be used, with 3 warnings: preset crib, 3 servers\n");
    for warning in [
        "mcp.json, line 4: server `a` is there again on line 7, which holds\n",
        "mcp.json: server `old` can't be used: it speaks the old SSE transport only",
        "mcp.json: server `odd` can't be used: it is not an object\n",
    ] {
        assert!(output.stderr.contains(warning), "{warning}: {}", output.stderr);
    }
    let shown = folder.json("config show --config mcp.json --json");
    assert_eq!(shown["servers"]["a"]["command"], "y");
    assert_eq!(shown["servers"]["a"]["env"]["KEY"], "(hidden)");
}

#[test]
fn what_is_no_configuration_says_so() {
    let folder = Folder::new(&[
        ("broken.json", "{\n  \"mcpServers\": {,}\n}"),
        ("other.json", "{\"name\": \"package\"}"),
        ("list.json", "[]"),
        ("deep.json", &"{\"a\":".repeat(100_000)),
        ("folder/x", ""),
    ]);
    fs::write(folder.path("latin.toml"), b"a = \"\xe9\"").unwrap();
    for (file, expected) in [
        ("broken.json", "error: broken.json, line 2, column 18: not JSON: "),
        (
            "other.json",
            "error: other.json has no `mcpServers` and no `servers`, so no MCP server\n",
        ),
        ("list.json", "error: list.json, line 1: expected an object such as"),
        ("deep.json", "error: deep.json, line 1, column 1282: not JSON: maximum nesting"),
        ("folder", "error: can't read configuration folder: Is a directory"),
        ("latin.toml", "error: can't read configuration latin.toml: it is not text in UTF-8\n"),
    ] {
        let message = folder.fails(2, &format!("tools --config {file}"));
        assert!(message.starts_with(expected), "{message}");
    }
}

#[test]
fn a_large_file_is_read() {
    let history = format!("\"{}\",\n", "word ".repeat(200)).repeat(5000);
    let text =
        format!("{{\"history\": [{history}],\n\"mcpServers\": {{\"a\": {{\"command\": \"x\"}}}}}}");
    assert!(text.len() > 5_000_000);
    let folder = Folder::new(&[("mcp.json", &text)]);
    assert!(folder.text("config check mcp.json").ends_with("1 server\n"));
}

#[test]
fn the_users_file_is_read_where_there_is_none_here() {
    let folder = Folder::new(&[
        ("home/.config/toolcrib/toolcrib.toml", "preset = \"groups\"\n"),
        ("elsewhere/toolcrib/toolcrib.toml", "preset = \"stubs\"\n"),
    ]);
    assert_eq!(folder.json("config show --json")["preset"], "groups");
    let mut command = folder.command("config show --json");
    command.env("XDG_CONFIG_HOME", folder.path("elsewhere"));
    assert!(Folder::output(command).stdout.contains("\"preset\": \"stubs\""));
    fs::write(folder.path("toolcrib.toml"), "preset = \"lazy\"\n").unwrap();
    assert_eq!(folder.json("config show --json")["preset"], "lazy");
}
