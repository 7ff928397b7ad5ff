//! Configuration files in which anything may be wrong.

use std::path::Path;

use toolcrib_fuzz::{Corpus, Hunt};

use super::Config;
use super::environment::Environment;
use super::foreign::ForeignFile;

const TOML: &str = r#"
tools = ["a.json"]
preset = "crib"
mode = "auto"
threshold_context = 0.1
preload = ["a", "b*"]
catalog_tokens = 2000
[policy]
deny_tools = ["delete_*", "git/{push,pull}"]
allow_servers = ["git", "db-?"]
read_only = true
[eager]
servers = ["git"]
[servers.git]
command = "uvx"
args = ["mcp-server-git", "${workspaceFolder}", "${HOME:-/root}"]
env = { TOKEN = "${env:TOKEN}", "A.B" = "c" }
cwd = "."
include = ["git_*"]
start_limit = 10
call_limit = 0.5
[servers.docs]
url = "https://user:secret@example.com/mcp?key=1"
headers = { Authorization = "Bearer ${TOKEN}" }
era = "2026"
connections = 4
[gateway]
http = "127.0.0.1:7171"
allowed_hosts = ["a"]
[agent]
model = "none/none"
"#;

const JSON: &str = r#"{"mcpServers":{"git":{"command":"uvx","args":["a","${input:x}"],"env":{"A":"${B}"},
"disabled":false},"web":{"type":"http","url":"https://a/b","headers":{"X":"y"}}},
"servers":{"x":{"type":"stdio","command":"c"}},"inputs":[{"id":"x","type":"promptString"}],
"projects":{"/p":{"mcpServers":{"y":{"command":"d"}}}}}"#;

#[test]
fn no_file_brings_the_program_down() {
    let words = [
        "[servers.x]\n",
        "command = \"a\"\n",
        "url = \"",
        "${",
        "}",
        "${env:A}",
        "${A:-b}",
        "=",
        "\"\"\"",
        "'''",
        "[[",
        "]]",
        "1e400",
        "1979-05-27T07:32:00Z",
        "0x",
        "inf",
        "nan",
        "\\u",
        "mcpServers",
        "policy.rules",
        "//",
        "/*",
    ];
    let toml = Corpus::new([TOML], words);
    let json = Corpus::new([JSON], words);
    let env = Environment::of_process();
    let found = Hunt::in_test("config").run(
        |rng| match rng.bool() {
            true => toml.mutated(rng),
            false => json.mutated(rng),
        },
        |input| {
            let text = String::from_utf8_lossy(input);
            for file in ["toolcrib.toml", "mcp.json"] {
                match Config::from_text(Path::new(file), &text) {
                    Ok(config) => {
                        let servers = config.servers(&env);
                        let _ = (config.server_warnings(&servers), config.settings(None));
                        let _ = (config.policy(), format!("{servers:?}"));
                    }
                    Err(error) if format!("{error:#}").trim().is_empty() => {
                        return Err("refused without a reason".to_owned());
                    }
                    Err(_) => {}
                }
            }
            let _ = (ForeignFile::from_json(&text), ForeignFile::from_codex(&text));
            Ok(())
        },
    );
    match found {
        Ok(cases) => assert!(cases > 0),
        Err(found) => panic!("{found}"),
    }
}
