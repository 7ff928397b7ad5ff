//! `toolcrib import`, with homes of our own.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use serde_json::{Value, json};

use crate::support::{Folder, sample};

/// A home with every client in it.
fn home() -> Folder {
    Folder::new(&[
        (
            "home/.claude.json",
            r#"{"numStartups": 7, "mcpServers": {"tickets": {"type": "stdio", "command": "npx",
                "args": ["-y", "tickets"], "env": {"TICKETS_API_KEY": "hunter2"}}},
                "projects": {"/srv/shop": {"allowedTools": [], "mcpServers": {
                    "shop": {"command": "./shop-server"}}}}}"#,
        ),
        (
            ".mcp.json",
            r#"{"mcpServers": {"repo": {"command": "repo", "args": ["${workspaceFolder}"]}}}"#,
        ),
        (
            "home/.config/Claude/claude_desktop_config.json",
            r#"{"mcpServers": {"files": {"command": "files", "args": ["/srv"]},
                "toolcrib": {"command": "/usr/bin/toolcrib", "args": ["serve", "--stdio"]}}}"#,
        ),
        (
            "home/.cursor/mcp.json",
            r#"{"mcpServers": {"tickets": {"url": "https://tickets.example/mcp"},
                "files": {"command": "files", "args": ["/srv"]}}}"#,
        ),
        (
            ".cursor/mcp.json",
            r#"{"mcpServers": {"old": {"type": "sse", "url": "https://old.example/sse"}}}"#,
        ),
        (
            ".vscode/mcp.json",
            "{ // mine\n\"inputs\": [{\"id\": \"db-key\", \"type\": \"promptString\", \"password\": true}],\n\
             \"servers\": {\"db\": {\"type\": \"stdio\", \"command\": \"db\", \"envFile\": \"${workspaceFolder}/.env\", \
             \"env\": {\"DB_KEY\": \"${input:db-key}\"}},},}",
        ),
        (
            "home/.config/Code/User/mcp.json",
            r#"{"servers": {"page": {"type": "http", "url": "https://page.example/mcp"}}}"#,
        ),
        (
            "home/.codex/config.toml",
            "model = \"any\"\n[mcp_servers.maps]\ncommand = \"maps\"\nstartup_timeout_sec = 5\n",
        ),
        (
            "home/.gemini/settings.json",
            r#"{"theme": "x", "mcpServers": {"mail": {"httpUrl": "https://mail.example/mcp", "timeout": 9000,
                "headers": {"Authorization": "Bearer ${MAIL_TOKEN}"}}}}"#,
        ),
        (".gemini/settings.json", r#"{"theme": "x"}"#),
        (
            "home/.codeium/windsurf/mcp_config.json",
            r#"{"mcpServers": {"wind": {"serverUrl": "https://wind.example/mcp", "disabled": true}}}"#,
        ),
    ])
}

fn names(list: &Value) -> Vec<&str> {
    list.as_array().unwrap().iter().map(|entry| entry["name"].as_str().unwrap()).collect()
}

#[test]
fn the_servers_of_every_client_are_found() {
    let folder = home();
    let plan = folder.json("import --json");
    assert_eq!(
        names(&plan["add"]),
        [
            "tickets",
            "shop",
            "repo",
            "files",
            "tickets-cursor",
            "page",
            "db",
            "maps",
            "mail",
            "wind"
        ]
    );
    assert_eq!(plan["add"][3]["from"], json!(["Claude Desktop", "Cursor"]));
    assert_eq!(plan["add"][0]["literal_secrets"], json!(["TICKETS_API_KEY"]));
    assert_eq!(plan["add"][9]["enabled"], false);
    assert_eq!(names(&plan["skip"]), ["toolcrib", "old"]);
    assert!(plan["skip"][1]["place"].as_str().unwrap().ends_with(".cursor/mcp.json, line 1"));
    assert!(plan["skip"][1]["reason"].as_str().unwrap().contains("SSE transport only"));
    assert_eq!(plan["sources"].as_array().unwrap().len(), 10);
    assert_eq!(plan["written"], false);
    assert!(!folder.path("home/.config/toolcrib").exists());
    assert!(!plan.to_string().contains("hunter2"));
}

#[test]
fn what_was_found_is_shown_then_written_then_nothing_is_left() {
    let folder = home();
    let before = folder.read("home/.claude.json");
    let output = folder.run("import");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    for part in [
        "Claude Code: ",
        "tickets-cursor  Cursor",
        "it is toolcrib itself",
        "wind.example/mcp (disabled)",
    ] {
        assert!(output.stdout.contains(part), "{part}: {}", output.stdout);
    }
    assert!(output.stdout.ends_with("Nothing was written; --yes writes it.\n"));
    assert!(
        output
            .stderr
            .contains("server `tickets` has TICKETS_API_KEY written out; `${VAR}` in place")
    );
    assert!(!output.stdout.contains("hunter2") && !output.stderr.contains("hunter2"));

    let output = folder.run("import --yes");
    let said = output.stdout;
    assert!(said.ends_with("home/.config/toolcrib/toolcrib.toml.\n"), "{said}");
    let told = output.stderr;
    assert!(told.ends_with("`toolcrib doctor` starts and checks them.\n"), "{told}");
    let file = "home/.config/toolcrib/toolcrib.toml";
    let text = folder.read(file);
    let here = fs::canonicalize(folder.path(".")).unwrap();
    let here = here.display();
    for part in [
        "[servers.tickets]\ncommand = \"npx\"\nargs = [\"-y\", \"tickets\"]\nenv = { TICKETS_API_KEY = \"hunter2\" }\n",
        "[servers.shop]\ncommand = \"./shop-server\"\ncwd = \"/srv/shop\"\n",
        &format!("[servers.repo]\ncommand = \"repo\"\nargs = [\"{here}\"]\n"),
        &format!("env = {{ DB_KEY = \"${{input:db-key}}\" }}\nenv_file = \"{here}/.env\"\n"),
        "[servers.maps]\ncommand = \"maps\"\nstart_limit = 5\n",
        "headers = { Authorization = \"Bearer ${MAIL_TOKEN}\" }\ncall_limit = 9\n",
        "[servers.wind]\nurl = \"https://wind.example/mcp\"\nenabled = false\n",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let mode = fs::metadata(folder.path(file)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(folder.read("home/.claude.json"), before);

    let again = folder.json("import --json --yes");
    assert_eq!((names(&again["add"]).len(), &again["written"]), (0, &json!(false)));
    assert_eq!(again["skip"][0]["reason"], "it is there already, as `tickets`");
    assert_eq!(folder.read(file), text);
}

#[test]
fn one_client_or_file_may_be_asked_for() {
    let folder = home();
    assert_eq!(names(&folder.json("import --from codex --json")["add"]), ["maps"]);
    let plan =
        folder.json("import --from gemini --from .cursor/mcp.json --from .vscode/mcp.json --json");
    assert_eq!(names(&plan["add"]), ["mail", "db"]);
    let plan = folder.json("import --from home/.codex/config.toml --into x.toml --yes --json");
    assert_eq!((names(&plan["add"]), &plan["written"]), (vec!["maps"], &json!(true)));
    assert!(folder.read("x.toml").contains("[servers.maps]"));
    let dry = folder.text("import --from codex --into y.toml --dry-run");
    assert!(dry.contains("maps") && !folder.path("y.toml").exists());
}

#[test]
fn what_is_written_joins_what_is_there() {
    let folder = home();
    let text = "# Mine.\n[servers.maps]\ncommand = \"my-maps\" # better\n";
    fs::write(folder.path("toolcrib.toml"), text).unwrap();
    fs::set_permissions(folder.path("toolcrib.toml"), fs::Permissions::from_mode(0o644)).unwrap();
    folder.text("import --from codex --yes");
    let joined = "\n[servers.maps-codex]\ncommand = \"maps\"\nstart_limit = 5\n";
    assert_eq!(folder.read("toolcrib.toml"), format!("{text}{joined}"));
    let mode = || fs::metadata(folder.path("toolcrib.toml")).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(), 0o644);
    folder.text("import --from claude-code --yes -q");
    assert_eq!(mode(), 0o600);
}

#[test]
fn a_file_that_cant_be_read_costs_no_other() {
    let folder = Folder::new(&[
        ("home/.claude.json", "{\"mcpServers\": {\n  \"a\": {,}}"),
        ("home/.codex/config.toml", "mcp_servers = [\n"),
        ("home/.gemini/settings.json", ""),
        (
            ".vscode/mcp.json",
            "{\"servers\": {\"fine\": {\"command\": \"x\"}, \"odd\": {\"command\": 1}}}",
        ),
        (".cursor/mcp.json/folder", ""),
    ]);
    let output = folder.run("import --json");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let plan: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(names(&plan["add"]), ["fine"]);
    assert_eq!(plan["skip"][0]["reason"], "`command` is not a string");
    for warning in [
        "home/.claude.json, line 2, column 9: not JSON",
        "home/.codex/config.toml, line 1: ",
        ".cursor/mcp.json: Is a directory",
    ] {
        assert!(output.stderr.contains(warning), "{warning}: {}", output.stderr);
    }
}

#[test]
fn a_file_without_permission_is_told_of() {
    let folder = home();
    let file = folder.path("home/.codex/config.toml");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o000)).unwrap();
    // Nothing is closed to an administrator.
    if fs::read(&file).is_err() {
        let output = folder.run("import --json");
        assert!(
            output.stderr.contains(".codex/config.toml: Permission denied"),
            "{}",
            output.stderr
        );
        let plan: Value = serde_json::from_str(&output.stdout).unwrap();
        assert!(!names(&plan["add"]).contains(&"maps"));
    }
}

#[test]
fn what_was_asked_for_and_is_not_there_is_an_error() {
    let folder = Folder::new(&[("other.json", "{}"), ("broken.json", "{")]);
    for (code, from, expected) in [
        (1, "cursor", "there is no configuration of Cursor; looked for "),
        (2, "cursr", "`cursr` is neither a client nor a file; did you mean `cursor`?"),
        (2, "x.json", "can't read x.json: No such file"),
        (2, "other.json", "other.json has no `mcpServers`, so no MCP server"),
        (2, "broken.json", "broken.json, line 1, column "),
    ] {
        let message = folder.fails(code, &format!("import --from {from}"));
        assert!(message.contains(expected), "{message}");
    }
    let text = sample().text("import");
    assert!(text.starts_with("There is no client's configuration on this machine."), "{text}");
    assert!(text.contains("`toolcrib add`"), "{text}");
}
