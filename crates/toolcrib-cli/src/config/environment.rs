//! The environment, as a value: only what asks for the process's own reads it.

use std::collections::BTreeMap;
use std::env;
use std::path::PathBuf;

use globset::Glob;

/// What every server gets: who the user is, where things are, how text looks. No secret is
/// usually kept in these.
const PASSED_ON: [&str; 11] =
    ["HOME", "LANG", "LC_*", "LOGNAME", "PATH", "SHELL", "TERM", "TMPDIR", "TZ", "USER", "XDG_*"];

/// Whether every server gets the variable. Asked for every variable of every server, so the
/// patterns are too plain to need compiling.
pub(crate) fn is_harmless(name: &str) -> bool {
    PASSED_ON.iter().any(|pattern| match pattern.strip_suffix('*') {
        Some(start) => name.starts_with(start),
        None => name == *pattern,
    })
}

/// Environment variables by name.
#[derive(Clone, Default)]
pub(crate) struct Environment(BTreeMap<String, String>);

impl Environment {
    /// This process's. What is not text can't be named in a configuration and is left out.
    pub(crate) fn of_process() -> Self {
        let text = |(name, value): (std::ffi::OsString, std::ffi::OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        Self(env::vars_os().filter_map(text).collect())
    }

    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// What a server or a command may see: the harmless ones and those that match one of the
    /// patterns.
    pub(crate) fn passed_on(&self, patterns: &[String]) -> BTreeMap<String, String> {
        let compiled = |pattern: &String| Some(Glob::new(pattern).ok()?.compile_matcher());
        let globs: Vec<_> = patterns.iter().filter_map(compiled).collect();
        let passes = |name: &str| is_harmless(name) || globs.iter().any(|it| it.is_match(name));
        self.0
            .iter()
            .filter(|(name, _)| passes(name))
            .map(|(k, v)| (k.clone(), v.clone()))
            .collect()
    }

    /// A folder that a variable names.
    pub(crate) fn folder(&self, name: &str) -> Option<PathBuf> {
        // The convention: a relative path here is to be ignored.
        self.get(name).map(PathBuf::from).filter(|path| path.is_absolute())
    }

    pub(crate) fn home(&self) -> Option<PathBuf> {
        self.folder("HOME").or_else(|| self.folder("USERPROFILE"))
    }

    /// Where programs keep what the user tells them.
    pub(crate) fn config_home(&self) -> Option<PathBuf> {
        self.folder("XDG_CONFIG_HOME").or_else(|| Some(self.home()?.join(".config")))
    }

    /// Where programs keep what the user gives them.
    pub(crate) fn data_home(&self) -> Option<PathBuf> {
        self.folder("XDG_DATA_HOME").or_else(|| Some(self.home()?.join(".local/share")))
    }

    /// Where programs keep what is worth keeping and nobody's work.
    pub(crate) fn state_home(&self) -> Option<PathBuf> {
        self.folder("XDG_STATE_HOME").or_else(|| Some(self.home()?.join(".local/state")))
    }

    /// Where programs keep what they can make anew.
    pub(crate) fn cache_home(&self) -> Option<PathBuf> {
        self.folder("XDG_CACHE_HOME").or_else(|| Some(self.home()?.join(".cache")))
    }
}

impl<const N: usize> From<[(&str, &str); N]> for Environment {
    fn from(variables: [(&str, &str); N]) -> Self {
        let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
        Self(variables.into_iter().map(owned).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(patterns: &[&str]) -> Vec<String> {
        let env = Environment::from([
            ("AWS_REGION", "x"),
            ("AWS_SECRET", "x"),
            ("HOME", "/h"),
            ("LC_ALL", "C"),
            ("OPENAI_API_KEY", "x"),
            ("PATH", "/bin"),
            ("PATHS", "x"),
        ]);
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.to_owned()).collect();
        env.passed_on(&patterns).into_keys().collect()
    }

    #[test]
    fn a_server_sees_the_harmless_variables_and_those_allowed() {
        assert_eq!(names(&[]), ["HOME", "LC_ALL", "PATH"]);
        assert_eq!(names(&["AWS_REGION"]), ["AWS_REGION", "HOME", "LC_ALL", "PATH"]);
        assert_eq!(names(&["AWS_*"]), ["AWS_REGION", "AWS_SECRET", "HOME", "LC_ALL", "PATH"]);
        assert_eq!(names(&["*"]).len(), 7);
    }

    #[test]
    fn folders_follow_the_convention() {
        let env =
            Environment::from([("HOME", "/h"), ("XDG_CACHE_HOME", "/c"), ("XDG_CONFIG_HOME", "x")]);
        assert_eq!(env.config_home(), Some("/h/.config".into()));
        assert_eq!(env.cache_home(), Some("/c".into()));
        assert_eq!(Environment::default().cache_home(), None);
    }
}
