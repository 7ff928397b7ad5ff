//! A folder to run the binary in, and what to say about how it ended.

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::Value;
use tempfile::TempDir;

/// A folder to run in, and what to put there.
pub(crate) struct Folder(TempDir);

pub(crate) struct Output {
    pub(crate) code: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Folder {
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = folder.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Self(folder)
    }

    pub(crate) fn command(&self, args: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_toolcrib"));
        command.current_dir(self.0.path()).env_remove("NO_COLOR").env_remove("CLICOLOR_FORCE");
        // Whoever runs the tests has a home of their own, which is none of the tests' business.
        command.env("HOME", self.path("home"));
        for name in ["XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_DATA_HOME"].into_iter().chain([
            "XDG_STATE_HOME",
            "CLAUDE_CONFIG_DIR",
            "CODEX_HOME",
            "APPDATA",
        ]) {
            command.env_remove(name);
        }
        // Servers inherit it, so whatever is started from here can be told by it.
        command.env("XDG_MARK", self.0.path());
        // A `~` stands for a space within an argument.
        command.args(args.split_whitespace().map(|arg| arg.replace('~', " ")));
        command
    }

    pub(crate) fn run(&self, args: &str) -> Output {
        Self::output(self.command(args))
    }

    pub(crate) fn output(mut command: Command) -> Output {
        let output = command.output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Output {
            code: output.status.code(),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }

    /// What a run that must succeed prints.
    pub(crate) fn text(&self, args: &str) -> String {
        let output = self.run(args);
        assert_eq!(output.code, Some(0), "{args}: {}", output.stderr);
        output.stdout
    }

    pub(crate) fn json(&self, args: &str) -> Value {
        serde_json::from_str(&self.text(args)).unwrap()
    }

    /// What a run that must fail says.
    pub(crate) fn fails(&self, code: i32, args: &str) -> String {
        let output = self.run(args);
        assert_eq!(output.code, Some(code), "{args}: {}", output.stderr);
        assert_eq!(output.stdout, "", "{args}");
        output.stderr
    }

    /// Processes that were started from here and are still there.
    pub(crate) fn left_behind(&self) -> Vec<String> {
        let mark = format!("XDG_MARK={}", self.0.path().display());
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let marked = processes.flatten().filter(|process| {
            let environment = fs::read(process.path().join("environ")).unwrap_or_default();
            environment.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes())
        });
        let name = |process: fs::DirEntry| {
            let words = fs::read(process.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&words).replace('\0', " ")
        };
        marked.map(name).collect()
    }

    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap()
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// Listens on this machine, and answers every connection on a thread of its own. What was asked
/// is noted.
pub(crate) fn listen<T: Send + 'static>(
    answer: fn(TcpStream, &Mutex<Vec<T>>),
) -> (SocketAddr, Arc<Mutex<Vec<T>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = Arc::<Mutex<Vec<T>>>::default();
    let noted = asked.clone();
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let noted = noted.clone();
            thread::spawn(move || answer(stream, &noted));
        }
    });
    (address, asked)
}

/// Whether what is started from here can tell that a hangup is not to be ignored.
pub(crate) fn hears_hangups() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    ignored.is_some_and(|mask| mask.trim().ends_with(['0', '2', '4', '6', '8', 'a', 'c', 'e']))
}

pub(crate) fn sample() -> Folder {
    Folder::new(&[])
}

/// A server of the configuration that is one of the built-in ones, under this name.
pub(crate) fn builtin(name: &str, server: &str) -> String {
    let program = env!("CARGO_BIN_EXE_toolcrib");
    format!("[servers.{name}]\ncommand = '{program}'\nargs = ['builtin', '{server}']\n")
}

/// A server of the configuration that is a script for `sh`.
pub(crate) fn script(name: &str, text: &str) -> String {
    format!("[servers.{name}]\ncommand = 'sh'\nargs = ['-c', '''\n{text}''']\n")
}

/// A script that answers as an MCP server, with these tools and this result of every call.
pub(crate) fn odd_server(tools: &str, result: &str) -> String {
    format!(
        r#"answer() {{ printf '{{"jsonrpc":"2.0","id":%s,"result":%s}}\n' "$id" "$1"; }}
while read -r line; do
  id=$(printf %s "$line" | sed 's/.*"id":\([0-9]*\).*/\1/')
  case $line in
    *'"initialize"'*) answer '{{"protocolVersion":"2024-11-05","capabilities":{{"tools":{{}}}},"serverInfo":{{"name":"odd","version":"1"}}}}' ;;
    *'"tools/list"'*) answer '{{"tools":{tools}}}' ;;
    *'"tools/call"'*) answer '{result}' ;;
  esac
done
"#
    )
}

pub(crate) fn keys(value: &Value) -> Vec<&str> {
    value.as_object().unwrap().keys().map(String::as_str).collect()
}

pub(crate) const WEATHER: &str = r#"{"server": "weather", "tools": [
    {"name": "get_forecast", "description": "Weather forecast for a place.",
     "inputSchema": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]}},
    {"name": "get_alerts", "description": "Severe weather alerts.", "inputSchema": {"type": "object"}}]}"#;

/// A session as it is exported: a question, a call, its result, and the answer.
pub(crate) const SESSION: &str = r#"{"toolcrib_session":1,"id":"1m3250v3v10z","created_at":1790000000123,"title":"Is it raining in Oslo?","name":null,"labels":{"folder":"/somewhere","model":"scripted","version":"0.1.0"},"forked_from":null,"messages":[{"role":"user","content":[{"type":"text","text":"Is it raining in Oslo?"}]},{"role":"assistant","content":[{"type":"call","id":"call_1","name":"call_tool","arguments":"{\"tool_name\":\"weather__get_forecast\",\"arguments\":{\"place\":\"Oslo\"}}"}]},{"role":"tool","results":[{"call_id":"call_1","name":"call_tool","content":[{"type":"text","text":"rain"}]}]},{"role":"assistant","content":[{"type":"text","text":"It is **raining**; take an umbrella."}]}],"ledger":null,"calls":[]}"#;

/// The id of that.
pub(crate) const SESSION_ID: &str = "1m3250v3v10z";
