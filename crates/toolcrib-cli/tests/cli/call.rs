//! `toolcrib call`: one tool, called once.

use std::io::Write;
use std::net::TcpListener;
use std::process::Stdio;

use crate::support::{Folder, builtin, odd_server, sample, script};

const HANGS: &str = "[servers.hangs]\ncommand = 'sleep'\nargs = ['1000']\n";

#[test]
fn a_tool_is_called_by_any_of_its_names() {
    let folder = Folder::new(&[("toolcrib.toml", &builtin("data", "data"))]);
    let arguments = "--arg text=abc --arg encoding=hex";
    for name in ["data/encode_text", "data__encode_text", "mcp__data__encode_text", "encode_text"] {
        let text = folder.text(&format!("call {name} {arguments}"));
        assert!(text.contains("616263"), "{name}: {text}");
    }
    assert_eq!(folder.left_behind(), [""; 0]);
}

#[test]
fn on_a_bare_machine_the_built_in_tools_are_there() {
    let folder = Folder::new(&[("a.txt", "first\nsecond\n")]);
    assert!(folder.text("call files/read_text_file {\"path\":\"a.txt\"}").contains("first\n"));
    let mut command = folder.command("call current_time");
    command.env_remove("HOME");
    let output = Folder::output(command);
    assert!(output.stdout.contains("unix"), "{}", output.stderr);
    assert!(output.stderr.contains("`notes` can't be used"), "{}", output.stderr);
}

#[test]
fn arguments_may_come_from_standard_input() {
    let folder = sample();
    let mut command = folder.command("call data/encode_text - --arg encoding=hex --json");
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"{\"text\": \"abc\"}").unwrap();
    let output = child.wait_with_output().unwrap();
    let value: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(value["content"][0]["text"].as_str().unwrap().contains("616263"), "{value}");
}

#[test]
fn a_tools_own_error_is_the_commands() {
    let folder = sample();
    let message = folder.fails(1, "call files/read_text_file --arg path=none.txt");
    assert!(message.starts_with("error: ") && message.contains("none.txt"), "{message}");
    let output = folder.run("call files/read_text_file --arg path=none.txt --json");
    assert_eq!((output.code, &*output.stderr), (Some(1), ""));
    let value: serde_json::Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!(value["isError"], true);
}

#[test]
fn arguments_that_do_not_fit_are_explained() {
    let message = sample().fails(1, "call files/read_text_file {\"file\":\"x\"}");
    for line in [
        "error: The arguments do not fit `files__read_text_file`, so nothing was run.",
        "\n  - \"path\" is a required property\n",
        "\nIt takes:\n  path        string, required  ",
    ] {
        assert!(message.contains(line), "{line}: {message}");
    }
}

#[test]
fn arguments_that_cant_be_read_are_a_misuse_and_start_nothing() {
    let folder = Folder::new(&[("toolcrib.toml", HANGS)]);
    for args in ["[1]", "{", "--arg novalue", "--timeout 0", "--timeout nan", "--timeout -1"] {
        folder.fails(2, &format!("call hangs/x {args}"));
    }
}

#[test]
fn an_unknown_tool_is_answered_with_those_that_are_near() {
    let message = sample().fails(1, "call files/read_txt_file");
    assert!(message.starts_with("error: Unknown tool `files/read_txt_file`."), "{message}");
    let near = message.split_once("Did you mean: ").unwrap().1;
    assert!(near.contains("files__read_text_file"), "{message}");
}

#[test]
fn a_name_that_says_which_server_starts_no_other() {
    let config = [&*builtin("time", "time"), &*script("other", "echo x > started; sleep 1000")];
    let folder = Folder::new(&[("toolcrib.toml", &config.concat())]);
    folder.text("call time/current_time");
    assert!(!folder.path("started").exists());
    let output = folder.run("call current_time --timeout 1");
    assert!(folder.path("started").exists(), "{}", output.stderr);
    assert!(output.stderr.contains("no server was ready within 1.0 s"), "{}", output.stderr);
    assert_eq!(output.code, Some(1));
    assert_eq!(folder.left_behind(), [""; 0]);
}

#[test]
fn a_server_that_cant_be_called_says_why() {
    let config = "[servers.unset]\ncommand = '${NO_SUCH_THING}'\n\
        [servers.off]\ncommand = 'x'\nenabled = false\n\
        [servers.exits]\ncommand = 'sh'\nargs = ['-c', 'echo no licence >&2; exit 3']\n";
    let folder = Folder::new(&[("toolcrib.toml", config)]);
    assert!(folder.fails(2, "call unset/x").contains("`NO_SUCH_THING` is not set"));
    assert!(folder.fails(2, "call off/x").contains("server `off` is disabled"));
    let message = folder.fails(1, "call exits/x");
    assert!(message.contains("server `exits` does not answer (it ended"), "{message}");
    assert!(message.contains("no licence"), "{message}");
}

#[test]
fn a_call_that_takes_too_long_is_given_up() {
    // Nobody ever accepts, so whoever connects waits.
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let config = builtin("web", "web").replace("'web']", "'web', '--allow-private-addresses']");
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    folder.text("servers");
    let message = folder.fails(1, &format!("call web/fetch --arg url={url} --timeout 2"));
    assert!(message.contains("may have taken effect"), "{message}");
    assert!(message.contains("did not answer within 2.0 s"), "{message}");
    assert_eq!(folder.left_behind(), [""; 0]);
}

#[test]
fn what_is_no_text_is_described() {
    let result = r#"{"content":[{"type":"text","text":"two\nlines"},{"type":"image","data":"AAAA","mimeType":"image/png"}],"structuredContent":{"n":1}}"#;
    // The shell's printf takes `%s` arguments as they are.
    let server = odd_server(r#"[{"name":"draw"}]"#, result);
    let folder = Folder::new(&[("toolcrib.toml", &script("odd", &server))]);
    let text = folder.text("call odd/draw");
    assert_eq!(text, "two\nlines\n[image: image/png, 3 bytes; --json has it whole]\n");
    assert_eq!(folder.text("call odd/draw --json").trim(), result);
}
