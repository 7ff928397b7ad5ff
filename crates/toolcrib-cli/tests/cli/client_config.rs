//! `toolcrib client-config`.

use std::fs;
use std::path::Path;

use serde_json::json;

use crate::support::{Folder, sample};

const CLIENTS: [&str; 7] =
    ["claude-code", "claude-desktop", "cursor", "vscode", "codex", "gemini", "windsurf"];

#[test]
fn what_a_client_is_given_comes_back_as_toolcrib() {
    for client in CLIENTS {
        let folder = sample();
        let output = folder.run(&format!("client-config {client}"));
        assert_eq!(output.code, Some(0), "{}", output.stderr);
        assert!(output.stderr.starts_with("For "), "{}", output.stderr);
        let value = folder.json(&format!("client-config {client} --json"));
        assert_eq!(value["text"], output.stdout.as_str());
        // What was pasted there is found again, and known for what it is.
        let file = Path::new(value["files"][0].as_str().unwrap()).to_owned();
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, &output.stdout).unwrap();
        let plan = folder.json(&format!("import --from {client} --json"));
        assert_eq!(plan["skip"][0]["reason"], "it is toolcrib itself", "{client}: {plan}");
    }
}

#[test]
fn a_client_may_connect_in_place_of_starting() {
    let folder = Folder::new(&[("toolcrib.toml", "[gateway]\nhttp = \"127.0.0.1:9000\"\n")]);
    let url = "http://127.0.0.1:9000/mcp";
    for (client, expected) in [
        ("claude-code", json!({"mcpServers": {"toolcrib": {"type": "http", "url": url}}})),
        ("cursor", json!({"mcpServers": {"toolcrib": {"url": url}}})),
        ("vscode", json!({"servers": {"toolcrib": {"type": "http", "url": url}}})),
        ("codex", json!({"mcp_servers": {"toolcrib": {"url": url}}})),
        ("gemini", json!({"mcpServers": {"toolcrib": {"httpUrl": url}}})),
        ("windsurf", json!({"mcpServers": {"toolcrib": {"serverUrl": url}}})),
    ] {
        let value = folder.json(&format!("client-config {client} --http --json"));
        assert_eq!(value["snippet"], expected);
    }
    let text = folder.text("client-config codex --url https://h/mcp");
    assert_eq!(text, "[mcp_servers.toolcrib]\nurl = \"https://h/mcp\"\n");
    let message = folder.fails(2, "client-config claude-desktop --http");
    assert!(message.contains("commands only"), "{message}");
}

#[test]
fn the_command_is_spelt_out_where_the_client_would_not_find_it() {
    let folder = Folder::new(&[("toolcrib.toml", ""), ("bin/x", "")]);
    let binary = env!("CARGO_BIN_EXE_toolcrib");
    let value = folder.json("client-config cursor --json");
    let entry = &value["snippet"]["mcpServers"]["toolcrib"];
    assert_eq!(entry["command"], binary);
    let args: Vec<&str> =
        entry["args"].as_array().unwrap().iter().map(|arg| arg.as_str().unwrap()).collect();
    assert_eq!(args[..3], ["serve", "--stdio", "--config"]);
    assert!(Path::new(args[3]).is_absolute() && args[3].ends_with("toolcrib.toml"), "{args:?}");

    std::os::unix::fs::symlink(binary, folder.path("bin/toolcrib")).unwrap();
    fs::remove_file(folder.path("toolcrib.toml")).unwrap();
    let mut command = folder.command("client-config vscode --json");
    command.env("PATH", folder.path("bin"));
    let output = Folder::output(command).stdout;
    let value: serde_json::Value = serde_json::from_str(&output).unwrap();
    let entry = json!({"type": "stdio", "command": "toolcrib", "args": ["serve", "--stdio"]});
    assert_eq!(value["snippet"]["servers"]["toolcrib"], entry);
}
