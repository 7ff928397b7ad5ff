//! The MCP clients that toolcrib knows, and where each keeps its configuration.

use std::path::{Path, PathBuf};

use clap::ValueEnum;

use crate::config::Environment;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Client {
    ClaudeCode,
    ClaudeDesktop,
    Cursor,
    Vscode,
    Codex,
    Gemini,
    Windsurf,
}

/// A file that a client reads.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ClientFile {
    pub(crate) path: PathBuf,
    /// The folder it is for; every folder if there is none.
    pub(crate) project: Option<PathBuf>,
}

impl Client {
    pub(crate) const ALL: [Self; 7] = [
        Self::ClaudeCode,
        Self::ClaudeDesktop,
        Self::Cursor,
        Self::Vscode,
        Self::Codex,
        Self::Gemini,
        Self::Windsurf,
    ];

    /// What it is called on the command line.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::ClaudeDesktop => "claude-desktop",
            Self::Cursor => "cursor",
            Self::Vscode => "vscode",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
            Self::Windsurf => "windsurf",
        }
    }

    /// What people call it.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::ClaudeDesktop => "Claude Desktop",
            Self::Cursor => "Cursor",
            Self::Vscode => "VS Code",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
            Self::Windsurf => "Windsurf",
        }
    }

    /// Whether it is started from a desktop, where programs that a shell finds may not be found.
    pub(crate) fn is_app(self) -> bool {
        matches!(self, Self::ClaudeDesktop | Self::Cursor | Self::Vscode | Self::Windsurf)
    }

    /// Every place where it may keep servers: the user's, on any system, then this folder's.
    pub(crate) fn files(self, env: &Environment, here: &Path) -> Vec<ClientFile> {
        let home = env.home();
        let at_home = |path: &str| home.as_ref().map(|home| home.join(path));
        let in_config = |path: &str| Some(env.config_home()?.join(path));
        let mac = |path: &str| at_home(&format!("Library/Application Support/{path}"));
        let windows = |path: &str| Some(env.folder("APPDATA")?.join(path));
        let moved = |variable: &str, path: &str| Some(env.folder(variable)?.join(path));
        let (users, heres): (Vec<Option<PathBuf>>, &[&str]) = match self {
            Self::ClaudeCode => {
                let moved = moved("CLAUDE_CONFIG_DIR", ".claude.json");
                (vec![moved.or_else(|| at_home(".claude.json"))], &[".mcp.json"])
            }
            Self::ClaudeDesktop => {
                let file = "Claude/claude_desktop_config.json";
                (vec![in_config(file), mac(file), windows(file)], &[])
            }
            Self::Cursor => (vec![at_home(".cursor/mcp.json")], &[".cursor/mcp.json"]),
            Self::Vscode => {
                let file = "Code/User/mcp.json";
                (vec![in_config(file), mac(file), windows(file)], &[".vscode/mcp.json"])
            }
            Self::Codex => {
                let moved = moved("CODEX_HOME", "config.toml");
                (vec![moved.or_else(|| at_home(".codex/config.toml"))], &[".codex/config.toml"])
            }
            Self::Gemini => (vec![at_home(".gemini/settings.json")], &[".gemini/settings.json"]),
            Self::Windsurf => (vec![at_home(".codeium/windsurf/mcp_config.json")], &[]),
        };
        let users = users.into_iter().flatten().map(|path| ClientFile { path, project: None });
        let project = Some(here.to_owned());
        let heres =
            heres.iter().map(|path| ClientFile { path: here.join(path), project: project.clone() });
        // In the home folder both are one.
        let mut files: Vec<ClientFile> = users.collect();
        let new = heres.filter(|file| files.iter().all(|user| user.path != file.path));
        let new: Vec<ClientFile> = new.collect();
        files.extend(new);
        files
    }

    /// The same without the places of other systems.
    pub(crate) fn files_of_this_system(self, env: &Environment, here: &Path) -> Vec<ClientFile> {
        let library = env.home().map(|home| home.join("Library"));
        let is_macs =
            |file: &ClientFile| library.as_ref().is_some_and(|it| file.path.starts_with(it));
        let mut files = self.files(env, here);
        let is_on_mac = cfg!(target_os = "macos") && files.iter().any(is_macs);
        files.retain(|file| file.project.is_some() || is_macs(file) == is_on_mac);
        files
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_client_is_known_by_its_id() {
        for client in Client::ALL {
            assert_eq!(Client::from_str(client.id(), false), Ok(client));
        }
        assert_eq!(Client::value_variants(), Client::ALL);
    }

    #[test]
    fn in_the_home_folder_a_file_is_read_once() {
        let env = Environment::from([("HOME", "/h")]);
        let paths = |here: &str| {
            let files = Client::Cursor.files(&env, Path::new(here));
            files.into_iter().map(|file| file.path).collect::<Vec<_>>()
        };
        assert_eq!(paths("/h"), [PathBuf::from("/h/.cursor/mcp.json")]);
        assert_eq!(paths("/w").len(), 2);
    }

    #[test]
    fn a_client_keeps_its_file_in_one_place_on_one_system() {
        let env = Environment::from([("HOME", "/h")]);
        for client in Client::ALL {
            let files = client.files_of_this_system(&env, Path::new("/w"));
            let users = files.iter().filter(|file| file.project.is_none());
            assert_eq!(users.count(), 1, "{client:?}: {files:?}");
        }
    }
}
