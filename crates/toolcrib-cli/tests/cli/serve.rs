//! `toolcrib serve`, as far as the command line has a say in it.

use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::process::{Child, ChildStderr, Command, Stdio};

use serde_json::json;

use crate::support::{Folder, builtin, hears_hangups, odd_server, sample, script};

/// A gateway that is told to end, and what it says until then.
struct Served {
    child: Child,
    stderr: BufReader<ChildStderr>,
}

impl Served {
    fn new(folder: &Folder, args: &str) -> Self {
        let mut command = folder.command(args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        Self { child, stderr }
    }

    /// What it says next that begins like this.
    fn line(&mut self, start: &str) -> String {
        let mut line = String::new();
        while !line.starts_with(start) {
            line.clear();
            assert_ne!(self.stderr.read_line(&mut line).unwrap(), 0, "it never said `{start}`");
        }
        line
    }

    /// The exit code after this signal, and what was said last.
    fn end(mut self, signal: &str) -> (Option<i32>, String) {
        let id = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let mut rest = String::new();
        self.stderr.read_to_string(&mut rest).unwrap();
        (self.child.wait().unwrap().code(), rest)
    }
}

#[test]
fn it_says_where_it_is_and_ends_well_when_told_to() {
    let hangup = hears_hangups().then_some("-HUP");
    for signal in ["-INT", "-TERM"].into_iter().chain(hangup) {
        let folder = Folder::new(&[("toolcrib.toml", &builtin("time", "time"))]);
        let mut served = Served::new(&folder, "serve --http localhost:0");
        let line = served.line("Serving ");
        let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
        let url = url.trim_end_matches(';');
        assert_eq!(line, format!("Serving 1 server at {url}; Ctrl-C ends it.\n"));
        assert!(url.starts_with("http://127.0.0.1:") && !url.contains(":0/"), "{url}");
        let next = served.line("`toolcrib client-config ");
        assert!(next.contains(&format!("CLIENT --url {url}`")), "{next}");
        assert_eq!(served.end(signal).0, Some(0), "{signal}");
        assert_eq!(folder.left_behind(), [""; 0], "{signal}");
    }
}

#[test]
fn what_cant_be_listened_on_starts_no_server() {
    let config = script("notes", "echo up > started; exit 1");
    let folder = Folder::new(&[("toolcrib.toml", &config)]);
    for (address, reason) in [
        ("0.0.0.0:0", "can be reached from other machines, so callers must bring a token"),
        ("[::]:0", "can be reached from other machines, so callers must bring a token"),
        ("127.0.0.1", "expected an IP address and a port, such as 127.0.0.1:7171"),
    ] {
        let message = folder.fails(2, &format!("serve --http {address}"));
        assert!(message.contains(reason) && !message.contains("Serving"), "{message}");
    }
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let message = folder.fails(2, &format!("serve --http {}", taken.local_addr().unwrap()));
    assert!(message.contains("another program uses it"), "{message}");
    assert!(!folder.path("started").exists());
}

#[test]
fn servers_that_cant_be_used_are_not_called_built_in() {
    let config = "[servers.a]\ncommand = '${NO_SUCH_THING}'\n";
    let folder = Folder::new(&[("toolcrib.toml", config)]);
    let mut served = Served::new(&folder, "serve --http 127.0.0.1:0");
    assert!(served.line("warning: ").contains("`NO_SUCH_THING` is not set"));
    assert!(served.line("Serving ").starts_with("Serving 0 servers at "));
    assert_eq!(served.end("-INT").0, Some(0));

    let bare = sample();
    let mut served = Served::new(&bare, "serve --http 127.0.0.1:0");
    let line = served.line("Serving ");
    assert!(line.starts_with("Serving 7 built-in servers (no servers are configured)"), "{line}");
    assert_eq!(served.end("-INT").0, Some(0));
}

#[test]
fn an_endpoint_that_is_not_there_is_a_mistake() {
    let message = sample().fails(2, "serve --stdio --endpoint s/tine");
    assert!(message.contains("there is no server `tine`; there are: "), "{message}");
    let message = sample().fails(2, "serve --stdio --endpoint mete");
    assert!(message.contains("`meta`"), "{message}");
}

/// A gateway over one server that has changed while it is held to what was approved.
fn holding(more: &str) -> Folder {
    let server = |tools| odd_server(tools, r#"{"content":[]}"#);
    let config = format!(
        "definitions = 'hold'\n[servers.ops]\ncommand = 'sh'\nargs = ['server.sh']\n{more}"
    );
    let one = r#"[{"name":"look","inputSchema":{"type":"object"}}]"#;
    let two = r#"[{"name":"look","inputSchema":{"type":"object"}},{"name":"wipe","inputSchema":{"type":"object"}}]"#;
    let folder = Folder::new(&[("toolcrib.toml", &config), ("server.sh", &server(one))]);
    folder.text("review");
    std::fs::write(folder.path("server.sh"), server(two)).unwrap();
    folder.text("review");
    folder
}

fn url_of(served: &mut Served) -> String {
    let line = served.line("Serving ");
    let url = line.split_whitespace().find(|word| word.starts_with("http://")).unwrap();
    url.trim_end_matches(';').to_owned()
}

#[test]
fn a_gateway_that_runs_tells_how_its_servers_are_doing() {
    let folder = holding("[servers.gone]\ncommand = 'no-such-program'\n");
    let mut served = Served::new(&folder, "serve --http localhost:0");
    let url = url_of(&mut served);
    let asked = || folder.json(&format!("servers --url {url} --json"));
    let is_settled = || {
        let states: Vec<_> =
            asked()["servers"].as_array().unwrap().iter().map(|row| row["state"].clone()).collect();
        states == ["down", "ready"]
    };
    while !is_settled() {
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    let value = asked();
    let [gone, ops] = [&value["servers"][0], &value["servers"][1]];
    assert!(gone["error"].as_str().unwrap().contains("no-such-program"), "{value}");
    assert_eq!((&ops["name"], &ops["breaker"]), (&json!("ops"), &json!("closed")));
    assert_eq!((&ops["tools"], &ops["held"]), (&json!(1), &json!(["wipe"])));
    let text = folder.text(&format!("servers --url {url}"));
    for part in ["SERVER", "BREAKER", "ops", "closed", "2 servers, 1 tool\n"] {
        assert!(text.contains(part), "{part} in {text}");
    }
    let told = "Held back until approved of ops: wipe\n`toolcrib review` shows what has changed";
    assert!(text.contains(told), "{text}");
    assert_eq!(served.end("-INT").0, Some(0));
    let message = folder.fails(1, &format!("servers --url {url}"));
    assert!(message.contains("can't be reached: is `toolcrib serve` running there?"), "{message}");
    assert!(folder.fails(2, "servers --url nowhere").contains("the address of a gateway"));
    assert!(folder.fails(2, "servers --offline --url http://h").contains("cannot be used with"));
}

#[test]
fn a_gateway_with_tokens_tells_only_who_brings_one() {
    // Of the token `open sesame`.
    let hash = "41ef4bb0b23661e66301aac36066912dac037827b4ae63a7b1165a5aa93ed4eb";
    let folder = holding(&format!("[gateway]\ntokens.me = 'sha256:{hash}'\n"));
    let mut served = Served::new(&folder, "serve --http localhost:0");
    let url = url_of(&mut served);
    let message = folder.fails(1, &format!("servers --url {url}"));
    assert!(
        message.contains("wants a token: put it into the variable TOOLCRIB_TOKEN"),
        "{message}"
    );
    let with = |variable: &str, token: &str, args: &str| {
        let mut command = folder.command(&format!("servers --url {url} {args}"));
        command.env(variable, token);
        Folder::output(command)
    };
    let wrong = with("TOOLCRIB_TOKEN", "sesame", "");
    assert!(wrong.stderr.contains("does not take the token in TOOLCRIB_TOKEN"), "{}", wrong.stderr);
    for (variable, args) in [("TOOLCRIB_TOKEN", ""), ("MINE", "--token-env MINE")] {
        let right = with(variable, "open sesame", args);
        assert_eq!(right.code, Some(0), "{}", right.stderr);
        assert!(right.stdout.contains("ops"), "{}", right.stdout);
    }
    assert_eq!(served.end("-INT").0, Some(0));
}
