//! `toolcrib run`, with the model that is none.

use std::io::Write as _;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::support::{Folder, Output, builtin, hears_hangups, keys, odd_server, sample, script};

/// Runs with something piped in.
pub(crate) fn piped(mut command: Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Whoever reads nothing is not at fault.
    let _ = child.stdin.take().unwrap().write_all(input);
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Output { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
}

/// The command without what would be a model of whoever runs the tests.
pub(crate) fn without_models(folder: &Folder, args: &str) -> Command {
    let mut command = folder.command(args);
    let names = ["ANTHROPIC_API_KEY", "ANTHROPIC_BASE_URL", "OPENAI_API_KEY", "OPENAI_BASE_URL"];
    let proxies = ["HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"];
    let others = ["all_proxy", "NO_PROXY", "no_proxy", "OLLAMA_HOST", "OLLAMA_API_KEY"];
    for name in names.into_iter().chain(proxies).chain(others) {
        command.env_remove(name);
    }
    command
}

const WRITE: &str = r#"call~mcp__files__write_file~{"path":"new.txt","content":"made"}"#;

#[test]
fn an_answer_goes_to_stdout_and_calls_to_stderr() {
    let folder = Folder::new(&[("a.txt", "hello from a file")]);
    let output =
        folder.run(r#"run call~mcp__files__read_text_file~{"path":"a.txt"} --model scripted"#);
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("hello from a file"), "{}", output.stdout);
    assert!(output.stdout.ends_with('\n') && !output.stdout.contains('\x1b'));
    let line = output.stderr.lines().next().unwrap();
    assert!(line.starts_with(r#"✓ mcp__files__read_text_file {"path":"a.txt"} ("#), "{line}");
    assert!(line.ends_with(" ms)"), "{line}");
    assert_eq!(output.stderr.lines().count(), 1, "{}", output.stderr);

    let output = folder.run("run search~read~a~file --model scripted --quiet");
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    assert!(output.stdout.contains("mcp__files__read_text_file"), "{}", output.stdout);
}

#[test]
fn json_is_one_object_with_everything_that_happened() {
    let folder = Folder::new(&[("a.txt", "hello")]);
    let args = r#"run call~mcp__files__read_text_file~{"path":"a.txt"} --model scripted --json"#;
    let output = folder.run(args);
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    let expected = ["text", "end", "turns", "tool_calls", "usage", "model", "provider"];
    assert_eq!(keys(&value), expected);
    assert_eq!(
        value["tool_calls"],
        json!([{
            "name": "mcp__files__read_text_file",
            "arguments": {"path": "a.txt"},
            "is_error": false
        }])
    );
    assert_eq!((&value["turns"], &value["end"]), (&json!(2), &json!({"kind": "done"})));
    assert_eq!((&value["model"], &value["provider"]), (&json!("scripted"), &json!("scripted")));
    assert!(value["text"].as_str().unwrap().contains("hello"));
    assert!(value["usage"]["output"].as_u64().unwrap() > 0);
}

#[test]
fn what_changes_something_needs_permission() {
    let folder = sample();
    let output = folder.run(&format!("run {WRITE} --model scripted"));
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let warning = "warning: `mcp__files__write_file` was not run: it needs permission, and nobody \
                   can be asked here; --yes gives it";
    assert!(output.stderr.contains(warning), "{}", output.stderr);
    let output = folder.run(&format!("run {WRITE} --model scripted --quiet"));
    assert_eq!((output.code, output.stderr.as_str()), (Some(0), ""));
    assert!(!folder.path("new.txt").exists());

    let value = folder.json(&format!("run {WRITE} --model scripted --json --yes"));
    assert_eq!(value["tool_calls"][0]["is_error"], false);
    assert_eq!(folder.read("new.txt"), "made");
}

#[test]
fn it_is_said_only_once_that_nobody_can_be_asked() {
    let folder = sample();
    let twice = format!("{WRITE}\n{}", WRITE.replace("new", "newer")).replace('~', " ");
    let output = piped(folder.command("run - --model scripted"), twice.as_bytes());
    assert_eq!(output.stderr.matches("nobody can be asked here").count(), 1, "{}", output.stderr);
    assert_eq!(output.stderr.matches('✗').count(), 2, "{}", output.stderr);
}

#[test]
fn rules_come_before_yes_and_before_asking() {
    let deny = "[[agent.permissions]]\ntools = ['files/write_*']\nthen = 'deny'\n";
    let folder = Folder::new(&[("toolcrib.toml", &format!("{deny}{}", builtin("files", "files")))]);
    let value = folder.json(&format!("run {WRITE} --model scripted --json --yes"));
    assert_eq!(value["tool_calls"][0]["is_error"], true);
    assert!(value["text"].as_str().unwrap().contains("rules do not permit"), "{value}");

    let allow = deny.replace("deny", "allow");
    let folder =
        Folder::new(&[("toolcrib.toml", &format!("{allow}{}", builtin("files", "files")))]);
    let value = folder.json(&format!("run {WRITE} --model scripted --json"));
    assert_eq!(value["tool_calls"][0]["is_error"], false, "{value}");
    assert_eq!(folder.read("new.txt"), "made");
    assert_eq!(folder.left_behind(), Vec::<String>::new());

    let ask = "[[agent.permissions]]\ntools = ['read_text_file']\nthen = 'ask'\n";
    let folder = Folder::new(&[("toolcrib.toml", ask), ("a.txt", "hello")]);
    let args = r#"run call~mcp__files__read_text_file~{"path":"a.txt"} --model scripted --json"#;
    assert_eq!(folder.json(args)["tool_calls"][0]["is_error"], true);
    assert_eq!(folder.json(&format!("{args} --yes"))["tool_calls"][0]["is_error"], false);
}

#[test]
fn commands_are_run_only_with_permission() {
    let folder = sample();
    let args =
        r#"run call~mcp__exec__run_command~{"command":"echo~hi~>~out"} --model scripted --json"#;
    assert_eq!(folder.json(args)["tool_calls"][0]["is_error"], true);
    assert!(!folder.path("out").exists());
    assert_eq!(folder.json(&format!("{args} --yes"))["tool_calls"][0]["is_error"], false);
    assert_eq!(folder.read("out"), "hi\n");
}

#[test]
fn the_prompt_may_be_piped_in() {
    for args in ["run --model scripted", "run - --model scripted"] {
        let output = piped(sample().command(args), b"search convert time zones\n");
        assert_eq!(output.code, Some(0), "{args}: {}", output.stderr);
        assert!(output.stdout.contains("mcp__time__convert_time"), "{}", output.stdout);
    }
    // Bytes that are no text are replaced.
    let output = piped(sample().command("run - --model scripted"), b"search \xff time\n");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    let output = piped(sample().command("run - --model scripted"), &vec![b'x'; (64 << 20) + 1]);
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("longer than 64 MiB"), "{}", output.stderr);
    for nothing in [b"".as_slice(), b" \n"] {
        let output = piped(sample().command("run --model scripted"), nothing);
        assert_eq!(output.code, Some(2));
        assert!(output.stderr.contains("toolcrib run PROMPT"), "{}", output.stderr);
    }
}

#[test]
fn only_a_model_that_came_to_an_end_is_a_success() {
    let folder = sample();
    let args = "run search~time --model scripted --max-turns 1 --mode full";
    let output = folder.run(args);
    // With every schema sent there is nothing to search with, so the answer comes at once.
    assert_eq!(output.code, Some(0), "{}", output.stderr);

    let call = r#"run call~mcp__time__current_time~{} --model scripted --max-turns 1 --mode full"#;
    let output = folder.run(call);
    assert_eq!(output.code, Some(1), "{}", output.stdout);
    assert!(output.stderr.contains("stopped after 1 request"), "{}", output.stderr);
    let output = folder.run(&format!("{call} --json"));
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((output.code, &value["end"]["kind"]), (Some(1), &json!("limit")));
    assert!(folder.fails(2, "run x --model scripted --max-turns 0").contains("max-turns"));
}

#[test]
fn servers_of_the_configuration_are_waited_for_and_failures_told_of() {
    let tools =
        r#"[{"name":"greet","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]"#;
    let slow = format!(
        "sleep 0.7\n{}",
        odd_server(tools, r#"{"content":[{"type":"text","text":"good day"}]}"#)
    );
    let config = format!("{}[servers.gone]\ncommand = 'no-such-program'\n", script("odd", &slow));
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    let output = folder.run("run call~mcp__odd__greet --model scripted");
    assert_eq!(output.code, Some(0), "{}", output.stderr);
    assert!(output.stdout.contains("good day"), "{}\n{}", output.stdout, output.stderr);
    assert!(output.stderr.contains("warning: server `gone` can't be used: "), "{}", output.stderr);
    assert_eq!(folder.left_behind(), Vec::<String>::new());
}

#[test]
fn a_missing_model_is_explained() {
    let folder = sample();
    let fails = |args: &str| {
        let output = Folder::output(without_models(&folder, args));
        assert_eq!((output.code, output.stdout.as_str()), (Some(2), ""), "{args}");
        output.stderr
    };
    let message = fails("run x --provider anthropic");
    assert!(message.contains("anthropic needs a key: set ANTHROPIC_API_KEY"), "{message}");
    let message = fails("run x --model gpt-6.1-sol");
    assert!(message.contains("openai needs a key: set OPENAI_API_KEY"), "{message}");
    let message = fails("run x --base-url http://127.0.0.1:1/v1");
    assert!(message.contains("http://127.0.0.1:1/v1/models lists none"), "{message}");
    let message = fails("run x --provider nobody");
    assert!(message.contains("openai-chat"), "{message}");
    let message = fails("run x --base-url nowhere --model m");
    assert!(message.contains("`nowhere` is not the address of an API"), "{message}");
}

#[test]
fn a_model_that_can_not_be_reached_is_a_failure() {
    let folder = Folder::new(&[(
        "toolcrib.toml",
        "[agent]\nprovider = 'openai-chat'\nmodel = 'm'\nbase_url = 'http://127.0.0.1:1/v1'\n",
    )]);
    // Every wait is there in the end: the first is half a second, each further one twice as long.
    let output = Folder::output(without_models(&folder, "run x --json"));
    assert_eq!(output.code, Some(1), "{}", output.stderr);
    assert!(output.stderr.contains("the model could not be asked"), "{}", output.stderr);
    let value: Value = serde_json::from_str(&output.stdout).unwrap();
    assert_eq!((&value["end"]["kind"], &value["model"]), (&json!("failed"), &json!("m")));
}

#[test]
fn mistakes_in_the_agents_configuration_are_placed() {
    for (config, expected) in [
        ("[agent]\nkey = 'sk-1'", "line 2, column 1, `agent.key`: there is no such key"),
        ("[agent]\nprovider = 'acme'", "line 2, column 12, `agent.provider`: "),
        (
            "[agent]\nkey_env = 'sk-secret'",
            "line 2, column 1, `agent.key_env`: expected the name of an environment variable",
        ),
        ("[agent]\nbase_url = 'host'", "line 2, column 1, `agent.base_url`: expected an address"),
        ("[agent]\nmax_turns = 0", "line 2, column 1, `agent.max_turns`: expected at least 1"),
        ("[agent]\ntemperature = 3.0", "`agent.temperature`: expected a number from 0 to 2"),
        (
            "[[agent.permissions]]\ntool = ['x']\nthen = 'ask'",
            "line 2, column 1, `agent.permissions.tool`: there is no such key; did you mean `tools`?",
        ),
        ("[[agent.permissions]]\nthen = 'maybe'", "unknown variant"),
        (
            "[[agent.permissions]]\ntools = ['a{b']\nthen = 'deny'",
            "`agent.permissions`: `a{b` is not a valid pattern",
        ),
    ] {
        let folder = Folder::new(&[("toolcrib.toml", config)]);
        for args in ["run x --model scripted", "chat --model scripted", "config check"] {
            let message = folder.fails(2, args);
            assert!(message.contains(expected), "{args}: {message}");
            assert!(!message.contains("sk-secret"), "{message}");
        }
    }
    let folder =
        Folder::new(&[("toolcrib.toml", "[agent]\nprovider = 'openai'\nkey_env = 'NO_SUCH'\n")]);
    let output = Folder::output(without_models(&folder, "run x"));
    assert_eq!(output.code, Some(2));
    assert!(output.stderr.contains("`NO_SUCH`, which `agent.key_env` names"), "{}", output.stderr);
}

#[test]
#[cfg(unix)]
fn an_interrupted_run_ends_its_servers_and_says_how_it_ended() {
    let tools =
        r#"[{"name":"wait","inputSchema":{"type":"object"},"annotations":{"readOnlyHint":true}}]"#;
    let server = odd_server(tools, "unused").replace("answer 'unused'", "touch called; sleep 30");
    let folder = Folder::new(&[("toolcrib.toml", &script("slow", &server))]);
    let mut command = folder.command("run call~mcp__slow__wait --model scripted --json");
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    while !folder.path("called").exists() {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(130));
    let value: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(value["end"]["kind"], "cancelled");
    assert_eq!(value["tool_calls"][0]["is_error"], true);
    assert_eq!(folder.left_behind(), Vec::<String>::new());
}

#[test]
fn a_run_whose_terminal_is_gone_ends_the_command_that_runs() {
    if !hears_hangups() {
        return;
    }
    let call = r#"run call~mcp__exec__run_command~{"command":"touch~begun;~sleep~30"} --yes"#;
    let started = |prefix: &str| {
        let folder = sample();
        let run = folder.command(&format!("{call} --model scripted"));
        let mut command = Command::new("sh");
        command.args(["-c", &format!("{prefix} exec \"$0\" \"$@\"")]).arg(run.get_program());
        command.args(run.get_args()).current_dir(folder.path("."));
        command.envs(run.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !folder.path("begun").exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        (folder, child)
    };
    let told = |signal: &str, id: u32| {
        assert!(Command::new("kill").args([signal, &id.to_string()]).status().unwrap().success());
    };
    let (folder, mut child) = started("");
    told("-HUP", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(folder.left_behind(), Vec::<String>::new());

    // As `nohup` starts it, it goes on.
    let (folder, mut child) = started("trap '' HUP;");
    told("-HUP", child.id());
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    told("-TERM", child.id());
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert_eq!(folder.left_behind(), Vec::<String>::new());
}
