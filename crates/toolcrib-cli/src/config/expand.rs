//! `${VAR}` and its kin in the values of servers.
//!
//! A bare `$VAR` stays as it is: it would corrupt arguments that mean a dollar sign.

use std::path::Path;

use super::Environment;

/// What values are expanded with.
pub(super) struct Expansion<'a> {
    pub(super) env: &'a Environment,
    /// What `${workspaceFolder}` stands for.
    pub(super) workspace: &'a Path,
}

impl Expansion<'_> {
    /// Every `${…}` replaced, or the first that can't be, as a reason. `$${` stands for `${`;
    /// what is replaced is not looked at again.
    pub(super) fn expand(&self, text: &str) -> Result<String, String> {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find("${") {
            let (before, behind) = (&rest[..at], &rest[at + 2..]);
            if let Some(escaped) = before.strip_suffix('$') {
                expanded.push_str(escaped);
                expanded.push_str("${");
                rest = behind;
                continue;
            }
            expanded.push_str(before);
            let Some((name, after)) = behind.split_once('}') else {
                rest = &rest[at..];
                break;
            };
            match self.value(name)? {
                Some(value) => expanded.push_str(&value),
                None => expanded.push_str(&rest[at..at + name.len() + 3]),
            }
            rest = after;
        }
        Ok(expanded + rest)
    }

    /// The value of what stands between the braces; `None` if it is no name of ours.
    fn value(&self, name: &str) -> Result<Option<String>, String> {
        let folder = || self.workspace.to_string_lossy().into_owned();
        match name {
            "workspaceFolder" => return Ok(Some(folder())),
            "workspaceFolderBasename" => {
                let name = self.workspace.file_name().unwrap_or_default();
                return Ok(Some(name.to_string_lossy().into_owned()));
            }
            "userHome" => {
                let home = self.env.home().ok_or("`${userHome}` is not known: HOME is not set")?;
                return Ok(Some(home.to_string_lossy().into_owned()));
            }
            "pathSeparator" | "/" => return Ok(Some(std::path::MAIN_SEPARATOR.to_string())),
            _ => {}
        }
        if let Some(id) = name.strip_prefix("input:") {
            return self.input(id).map(Some);
        }
        let variable = name.strip_prefix("env:").unwrap_or(name);
        if let Some((variable, default)) = variable.split_once(":-")
            && is_variable(variable)
        {
            let set = self.env.get(variable).filter(|value| !value.is_empty());
            return Ok(Some(set.unwrap_or(default).to_owned()));
        }
        if is_variable(variable) {
            let unset = || format!("environment variable `{variable}` is not set");
            return self.env.get(variable).map(str::to_owned).ok_or_else(unset).map(Some);
        }
        let asks = ["command:", "config:", "workspaceFolder:"];
        if asks.iter().any(|prefix| name.starts_with(prefix)) {
            return Err(format!("`${{{name}}}` has a value in an editor only"));
        }
        Ok(None)
    }

    /// An editor would ask; here the environment answers.
    fn input(&self, id: &str) -> Result<String, String> {
        let word = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
        let variable: String = id.chars().map(word).collect();
        let missing = || {
            format!("`${{input:{id}}}` needs a value: set the environment variable `{variable}`")
        };
        self.env.get(&variable).map(str::to_owned).ok_or_else(missing)
    }
}

/// Whether this can be the name of an environment variable.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn expand(text: &str) -> Result<String, String> {
        let env = Environment::from([
            ("HOME", "/home/me"),
            ("USER", "me"),
            ("EMPTY", ""),
            ("ODD", "${USER}"),
            ("GITHUB_TOKEN", "t"),
        ]);
        let expansion = Expansion { env: &env, workspace: Path::new("/projects/app") };
        expansion.expand(text)
    }

    #[test]
    fn every_form_is_replaced_and_nothing_else() {
        for (text, expected) in [
            ("", ""),
            ("${USER}", "me"),
            ("a-${USER}-${env:USER}-z", "a-me-me-z"),
            ("${USER}${USER}", "meme"),
            ("${NONE:-else}", "else"),
            ("${NONE:-}", ""),
            ("${EMPTY}", ""),
            ("${EMPTY:-else}", "else"),
            ("${USER:-else}", "me"),
            ("${env:NONE:-else}", "else"),
            ("${NONE:-http://x:80/}", "http://x:80/"),
            ("${ODD}", "${USER}"),
            ("$USER $HOME ~ %USER%", "$USER $HOME ~ %USER%"),
            ("$${USER} $$ $", "${USER} $$ $"),
            ("${USER", "${USER"),
            ("${} ${1} ${a.b} ${a b}", "${} ${1} ${a.b} ${a b}"),
            ("${workspaceFolder}/x", "/projects/app/x"),
            ("${workspaceFolderBasename}", "app"),
            ("${userHome}${/}x", "/home/me/x"),
            ("${input:github-token}", "t"),
            ("é${USER}é", "émeé"),
        ] {
            assert_eq!(expand(text).as_deref(), Ok(expected), "{text}");
        }
    }

    #[test]
    fn what_has_no_value_is_named() {
        for (text, reason) in [
            ("${NONE}", "environment variable `NONE` is not set"),
            ("${USER}${env:NONE}", "environment variable `NONE` is not set"),
            (
                "${input:api-key}",
                "`${input:api-key}` needs a value: set the environment variable `API_KEY`",
            ),
            ("${command:pick}", "`${command:pick}` has a value in an editor only"),
        ] {
            assert_eq!(expand(text), Err(reason.to_owned()));
        }
    }
}
