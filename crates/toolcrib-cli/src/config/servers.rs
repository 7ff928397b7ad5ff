//! The servers of a configuration, ready to be started: variables replaced, the environment of
//! each complete, the reason said where one can't be used.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use toolcrib::Definitions;
use toolcrib::mcp::OAuth;

use super::entry::{self, Era, ServerEntry, Sessions};
use super::expand::Expansion;
use super::file::read_text;
use super::{Config, Environment};
use crate::output::one_line;

/// Folders in which editors keep their settings for the folder around.
const SETTINGS_FOLDERS: [&str; 4] = [".vscode", ".cursor", ".gemini", ".codex"];

/// An MCP server to use, with everything it needs.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Server {
    pub(crate) name: String,
    pub(crate) launch: Launch,
    pub(crate) enabled: bool,
    /// Whether all its tools are sent in full.
    pub(crate) eager: bool,
    /// The name its group is listed under, in place of the server's own title.
    pub(crate) title: Option<String>,
    pub(crate) description: Option<String>,
    /// Globs on the names of its tools. All of them if there are none.
    pub(crate) include: Vec<String>,
    pub(crate) exclude: Vec<String>,
    pub(crate) start_limit: Duration,
    pub(crate) call_limit: Option<Duration>,
    pub(crate) idle_stop: Option<Duration>,
    pub(crate) era: Era,
    /// How it is reached as the file says it, without credentials.
    pub(crate) reached: String,
    /// What becomes of definitions that are not those that were approved.
    pub(crate) definitions: Definitions,
    /// Whether what its tools say about their effects counts.
    pub(crate) trust_annotations: bool,
    pub(crate) sessions: Sessions,
    pub(crate) connections: Option<usize>,
    pub(crate) in_flight: usize,
    pub(crate) queue: usize,
}

/// How a server is reached.
#[derive(Clone, PartialEq)]
pub(crate) enum Launch {
    /// A child process.
    Command {
        command: String,
        args: Vec<String>,
        /// The child's whole environment.
        env: BTreeMap<String, String>,
        /// The part of it that the configuration gives, for the fingerprint.
        own_env: BTreeMap<String, String>,
        cwd: Option<PathBuf>,
    },
    /// Streamable HTTP.
    Http { url: String, headers: Vec<(String, String)>, oauth: OAuth },
    /// Not at all.
    Unusable { reason: String },
}

/// Names only: what is in the environment, in headers, in an address or behind an option may be
/// secret once variables have been replaced.
impl fmt::Debug for Launch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Command { command, args, own_env, cwd, .. } => f
                .debug_struct("Command")
                .field("command", command)
                .field("args", &args.len())
                .field("own_env", &own_env.keys())
                .field("cwd", cwd)
                .finish_non_exhaustive(),
            Self::Http { url, headers, .. } => {
                let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
                let url = super::secret::mask_url(url);
                f.debug_struct("Http").field("url", &url).field("headers", &names).finish()
            }
            Self::Unusable { reason } => {
                f.debug_struct("Unusable").field("reason", reason).finish()
            }
        }
    }
}

impl Config {
    /// The servers, in the order of the file. One that can't be used says why and costs no other.
    pub(crate) fn servers(&self, env: &Environment) -> Vec<Server> {
        let folder = self.file.as_deref().and_then(Path::parent).unwrap_or(Path::new(""));
        let expansion = Expansion { env, workspace: workspace(folder) };
        let server = |(name, entry): (&String, &ServerEntry)| Server {
            name: name.clone(),
            launch: launch(entry, folder, &expansion)
                .unwrap_or_else(|reason| Launch::Unusable { reason }),
            enabled: entry.enabled,
            eager: entry.eager,
            title: entry.group.as_deref().map(one_line),
            description: entry.description.as_deref().map(one_line),
            include: entry.include.clone(),
            exclude: entry.exclude.clone(),
            start_limit: seconds(entry.start_limit).unwrap_or_default(),
            call_limit: seconds(entry.call_limit),
            idle_stop: seconds(entry.idle_stop),
            era: entry.era,
            reached: format!("{} {}", entry.cwd.as_deref().unwrap_or_default(), entry.shown()),
            definitions: entry.definitions.or(self.definitions).unwrap_or_default(),
            trust_annotations: entry.trust_annotations,
            sessions: entry.sessions,
            connections: entry.connections,
            in_flight: entry.in_flight,
            queue: entry.queue,
        };
        self.servers.iter().map(server).collect()
    }

    /// What a person should know about these servers: each that can't be used and why, with the
    /// file it stands in.
    pub(crate) fn server_warnings(&self, servers: &[Server]) -> Vec<String> {
        let file = self.file.as_deref().unwrap_or(Path::new("toolcrib.toml")).display();
        let unusable = servers.iter().filter(|server| server.enabled).filter_map(|server| {
            let Launch::Unusable { reason } = &server.launch else { return None };
            Some(format!("{file}: server `{}` can't be used: {reason}", server.name))
        });
        self.warnings.iter().cloned().chain(unusable).collect()
    }
}

/// The folder an editor would call the workspace, for a configuration in this one.
pub(crate) fn workspace(folder: &Path) -> &Path {
    let is_settings =
        |name: &std::ffi::OsStr| SETTINGS_FOLDERS.iter().any(|folder| name == *folder);
    match folder.parent() {
        Some(parent) if folder.file_name().is_some_and(is_settings) => parent,
        _ => folder,
    }
}

fn seconds(limit: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(limit).ok().filter(|limit| !limit.is_zero())
}

fn launch(entry: &ServerEntry, folder: &Path, with: &Expansion<'_>) -> Result<Launch, String> {
    if let Some(reason) = &entry.unusable {
        return Err(reason.clone());
    }
    let launch = match (&entry.command, &entry.url) {
        (Some(command), _) => start(entry, command, folder, with)?,
        (None, Some(url)) => connect(entry, url, with)?,
        (None, None) => return Err("it has neither a `command` nor a `url`".to_owned()),
    };
    Ok(launch)
}

fn start(
    entry: &ServerEntry,
    command: &str,
    folder: &Path,
    with: &Expansion<'_>,
) -> Result<Launch, String> {
    let command = with.expand(command)?;
    if command.trim().is_empty() {
        return Err("its `command` is empty".to_owned());
    }
    let args: Vec<String> =
        entry.args.iter().map(|arg| with.expand(arg)).collect::<Result<_, _>>()?;
    let mut own_env = match &entry.env_file {
        Some(file) => read_env_file(&folder.join(with.expand(file)?))?,
        None => BTreeMap::new(),
    };
    for (name, value) in &entry.env {
        own_env.insert(name.clone(), with.expand(value.expose())?);
    }
    let words = args.iter().chain([&command]).chain(own_env.iter().flat_map(|(k, v)| [k, v]));
    if words.into_iter().any(|word| word.contains('\0')) {
        return Err("a NUL character can't be passed to a program".to_owned());
    }
    let cwd = entry.cwd.as_ref().map(|cwd| with.expand(cwd)).transpose()?;
    let mut env = with.env.passed_on(&entry.inherit_env);
    env.extend(own_env.clone());
    Ok(Launch::Command { command, args, env, own_env, cwd: cwd.map(|cwd| folder.join(cwd)) })
}

fn connect(entry: &ServerEntry, url: &str, with: &Expansion<'_>) -> Result<Launch, String> {
    let url = with.expand(url)?;
    if !entry::is_url(&url) {
        return Err("its `url` does not start with http:// or https://".to_owned());
    }
    let mut headers = Vec::new();
    for (name, value) in &entry.headers {
        headers.push((name.clone(), with.expand(value.expose())?));
    }
    if let Some(token) = &entry.bearer_token {
        let token = with.expand(token.expose())?;
        headers.push(("Authorization".to_owned(), format!("Bearer {}", token.trim())));
    }
    let is_broken = |value: &str| value.contains(|c: char| c.is_control() && c != '\t');
    if let Some((name, _)) = headers.iter().find(|(_, value)| is_broken(value)) {
        return Err(format!("the value of header `{name}` has a control character"));
    }
    let oauth = entry.oauth.as_ref().map(|oauth| oauth.expand(with)).transpose()?;
    Ok(Launch::Http { url, headers, oauth: oauth.unwrap_or_default() })
}

/// `NAME=value` lines, as shells and editors write them.
fn read_env_file(path: &Path) -> Result<BTreeMap<String, String>, String> {
    let shown = path.display();
    let text = read_text(path)
        .map_err(|error| format!("can't read its environment from {shown}: {error}"))?;
    let mut variables = BTreeMap::new();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let line = line.strip_prefix("export ").unwrap_or(line);
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let Some((name, value)) = line.split_once('=') else {
            return Err(format!("{shown}, line {}: expected `NAME=value`", at + 1));
        };
        let value = value.trim();
        let quoted = |mark| value.strip_prefix(mark).and_then(|rest| rest.strip_suffix(mark));
        let value = quoted('"').or(quoted('\'')).unwrap_or(value);
        variables.insert(name.trim().to_owned(), value.to_owned());
    }
    Ok(variables)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(text: &str, file: &str) -> Vec<Server> {
        let mut config = Config::parse(text).unwrap();
        config.file = Some(file.into());
        let env = [("HOME", "/h"), ("PATH", "/bin"), ("TOKEN", "hunter2"), ("REGION", "x")];
        config.servers(&Environment::from(env))
    }

    #[test]
    fn a_command_gets_its_arguments_environment_and_folder() {
        let text = "[servers.b]\ncommand = '${HOME}/run'\nargs = ['--root', '${workspaceFolder}']\n\
            cwd = 'data'\ninherit_env = ['REG*']\nenv = { KEY = '${TOKEN}' }\nidle_stop = 0\n\
            [servers.a]\ncommand = 'x'\n";
        let servers = servers(text, "/w/toolcrib.toml");
        assert_eq!(servers.iter().map(|server| &*server.name).collect::<Vec<_>>(), ["b", "a"]);
        let map = |pairs: &[(&str, &str)]| {
            pairs
                .iter()
                .map(|(k, v)| ((*k).to_owned(), (*v).to_owned()))
                .collect::<BTreeMap<_, _>>()
        };
        let expected = Launch::Command {
            command: "/h/run".to_owned(),
            args: vec!["--root".to_owned(), "/w".to_owned()],
            env: map(&[("HOME", "/h"), ("KEY", "hunter2"), ("PATH", "/bin"), ("REGION", "x")]),
            own_env: map(&[("KEY", "hunter2")]),
            cwd: Some("/w/data".into()),
        };
        assert_eq!(servers[0].launch, expected);
        assert_eq!(servers[0].idle_stop, None);
        assert_eq!(servers[1].idle_stop, Some(Duration::from_secs(600)));
        assert_eq!(servers[1].start_limit, Duration::from_secs(30));
        assert!(servers[1].enabled && !servers[1].eager);
    }

    #[test]
    fn a_server_says_whose_its_connections_are_and_how_many() {
        let text = "[servers.b]\ncommand = 'x'\nsessions = 'own'\nconnections = 3\n\
            in_flight = 2\nqueue = 0\n[servers.a]\ncommand = 'x'\n";
        let servers = servers(text, "/w/toolcrib.toml");
        let said =
            |server: &Server| (server.sessions, server.connections, server.in_flight, server.queue);
        assert_eq!(said(&servers[0]), (Sessions::Own, Some(3), 2, 0));
        assert_eq!(said(&servers[1]), (Sessions::Auto, None, 256, 1_000));
        for (key, fault) in [("connections = 0", "1 to 200"), ("in_flight = 0", "at least 1")] {
            let wrong = Config::parse(&format!("[servers.a]\ncommand = 'x'\n{key}\n"));
            assert!(format!("{:?}", wrong.unwrap_err()).contains(fault), "{key}");
        }
    }

    #[test]
    fn an_address_gets_its_headers_and_token() {
        let text = "servers.a = { url = 'https://${REGION}.example/mcp', headers = { X-Key = 'k' }, \
            bearer_token = '${TOKEN}' }";
        let servers = servers(text, "/w/toolcrib.toml");
        let headers = [("X-Key", "k"), ("Authorization", "Bearer hunter2")];
        let headers = headers.map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
        let url = "https://x.example/mcp".to_owned();
        let oauth = OAuth::default();
        assert_eq!(servers[0].launch, Launch::Http { url, headers, oauth });
    }

    #[test]
    fn one_that_lacks_a_variable_costs_no_other() {
        let text = "servers.a = { command = 'x', env = { A = '${MISSING}' } }\n\
            servers.b = { url = '${TOKEN}' }\nservers.c = { command = '${NO:-}' }\n\
            servers.d = { command = 'x', env_file = 'none.env' }\nservers.e = { command = 'x' }\n\
            servers.f = { url = 'http://x', headers = { A = \"${HOME}\\n\" } }\n\
            servers.g = { command = 'x', args = [\"\\u0000\"] }";
        let reasons =
            servers(text, "/nowhere/toolcrib.toml").into_iter().map(|server| match server.launch {
                Launch::Unusable { reason } => reason,
                _ => "fine".to_owned(),
            });
        let reasons: Vec<String> = reasons.collect();
        assert_eq!(reasons[0], "environment variable `MISSING` is not set");
        assert_eq!(reasons[1], "its `url` does not start with http:// or https://");
        assert_eq!(reasons[2], "its `command` is empty");
        assert!(
            reasons[3].starts_with("can't read its environment from /nowhere/none.env: No such")
        );
        assert_eq!(reasons[4], "fine");
        assert_eq!(reasons[5], "the value of header `A` has a control character");
        assert_eq!(reasons[6], "a NUL character can't be passed to a program");
    }

    #[test]
    fn nothing_that_may_be_secret_is_in_the_debug_form() {
        let text = "servers.a = { command = 'x', args = ['${TOKEN}'], env = { K = '${TOKEN}' } }\n\
            servers.b = { url = 'https://h/?${TOKEN}', bearer_token = '${TOKEN}' }\n\
            servers.c = { url = 'https://h/', headers = { K = 'hunter2' } }";
        let servers = servers(text, "/w/toolcrib.toml");
        let shown = format!("{servers:?}");
        assert!(!shown.contains("hunter2") && shown.contains("\"K\""), "{shown}");
    }

    #[test]
    fn a_file_of_variables_is_read_as_shells_do() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(".env");
        let text = "\u{feff}# mine\r\nexport A=1\r\n\r\nB = \"two words\"\nC='x=y'\nD=\n";
        std::fs::write(&path, text).unwrap();
        let variables = read_env_file(&path).unwrap();
        let pairs: Vec<String> = variables.iter().map(|(k, v)| format!("{k}={v}")).collect();
        assert_eq!(pairs, ["A=1", "B=two words", "C=x=y", "D="]);
        std::fs::write(&path, "A=1\nhunter2\n").unwrap();
        let error = read_env_file(&path).unwrap_err();
        assert!(error.ends_with(".env, line 2: expected `NAME=value`"), "{error}");
    }

    #[test]
    fn the_workspace_is_around_an_editors_settings() {
        for (folder, expected) in [("/w/.vscode", "/w"), ("/w", "/w"), ("/w/.git", "/w/.git")] {
            assert_eq!(workspace(Path::new(folder)), Path::new(expected));
        }
    }
}
