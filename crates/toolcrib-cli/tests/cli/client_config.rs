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
    let command_for = |client: &str| {
        let mut command = folder.command(&format!("client-config {client} --json"));
        command.env("PATH", folder.path("bin"));
        let output = Folder::output(command).stdout;
        let value: serde_json::Value = serde_json::from_str(&output).unwrap();
        let entry = &value["snippet"]["mcpServers"]["toolcrib"];
        assert_eq!(entry["args"], json!(["serve", "--stdio"]));
        entry["command"].clone()
    };
    assert_eq!(command_for("claude-code"), "toolcrib");
    // What is started from a desktop does not have the shell's path.
    assert_eq!(command_for("claude-desktop"), binary);
}

#[test]
fn a_gateway_for_other_machines_is_reached_here_with_a_token() {
    let config =
        format!("[gateway]\nhttp = \"0.0.0.0:9000\"\ntokens = [\"sha256:{}\"]\n", "0a".repeat(32));
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    let entry = |client: &str, table: &str| {
        let value = folder.json(&format!("client-config {client} --http --json"));
        value["snippet"][table]["toolcrib"].clone()
    };
    let url = "http://127.0.0.1:9000/mcp";
    let headers = json!({"Authorization": "Bearer YOUR_TOKEN"});
    assert_eq!(entry("cursor", "mcpServers"), json!({"url": url, "headers": headers}));
    let codex = json!({"url": url, "bearer_token_env_var": "TOOLCRIB_TOKEN"});
    assert_eq!(entry("codex", "mcp_servers"), codex);
    let output = folder.run("client-config claude-code --http");
    let command = format!("claude mcp add --transport http toolcrib {url} --header 'Authorization");
    assert!(output.stderr.contains(&command), "{}", output.stderr);
    assert!(output.stderr.contains("Your token goes in the place of"), "{}", output.stderr);
}

#[test]
fn a_command_to_run_is_quoted_and_no_place_is_invented() {
    let folder = Folder::new(&[("my~files/toolcrib.toml".replace('~', " ").as_str(), "")]);
    let output = folder.run("client-config claude-code --config my~files/toolcrib.toml");
    let file = folder.path("my files/toolcrib.toml");
    let quoted = format!("--config '{}')", file.canonicalize().unwrap().display());
    let plain = format!("--config '{}')", file.display());
    let told = &output.stderr;
    assert!(told.contains(&quoted) || told.contains(&plain), "{told}");
    assert!(told.contains("the client gets the built-in ones"), "{told}");

    let mut command = folder.command("client-config claude-desktop");
    command.env_remove("HOME");
    let told = Folder::output(command).stderr;
    assert!(told.starts_with("For Claude Desktop:\n"), "{told}");
}
