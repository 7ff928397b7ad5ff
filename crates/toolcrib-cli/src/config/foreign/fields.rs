//! A server's fields as clients write them, turned into ours.

use indexmap::IndexMap;
use serde_json::{Map, Value};

use crate::config::entry::ServerEntry;
use crate::config::secret::Secret;

/// Milliseconds from here on, where a client gives a time limit without its unit.
const LEAST_MILLISECONDS: f64 = 1000.0;

/// What a server amounts to here, or why it can't be used.
pub(super) fn entry(name: &str, value: Value) -> Result<ServerEntry, String> {
    let Value::Object(fields) = value else { return Err("it is not an object".to_owned()) };
    let fields = Fields(fields);
    let mut entry = ServerEntry { enabled: fields.is_enabled(), ..ServerEntry::default() };
    match fields.transport()? {
        Transport::Command => fields.add_command(&mut entry)?,
        Transport::Http => fields.add_address(&mut entry)?,
    }
    entry.description = fields.text(&["description"])?;
    // Clients list names; a character that means something in a pattern is meant as it stands.
    let escaped = |names: Vec<String>| names.iter().map(|name| globset::escape(name)).collect();
    entry.include = escaped(fields.list(&["includeTools", "enabled_tools"])?);
    entry.exclude = escaped(fields.list(&["excludeTools", "disabled_tools", "disabledTools"])?);
    if let Some(limit) = fields.number("startup_timeout_sec") {
        entry.start_limit = limit;
    } else if let Some(limit) = fields.number("startup_timeout_ms") {
        entry.start_limit = limit / 1000.0;
    }
    if let Some(limit) = fields.number("tool_timeout_sec") {
        entry.call_limit = limit;
    } else if let Some(limit) = fields.number("timeout") {
        entry.call_limit = if limit < LEAST_MILLISECONDS { limit } else { limit / 1000.0 };
    }
    match entry.fault(name) {
        None => Ok(entry),
        Some((None, message)) => Err(message),
        Some((Some(key), message)) => Err(format!("`{key}`: {message}")),
    }
}

enum Transport {
    Command,
    Http,
}

struct Fields(Map<String, Value>);

impl Fields {
    /// The first of these fields that is there and not null.
    fn get(&self, names: &[&'static str]) -> Option<(&'static str, &Value)> {
        let given = |name: &&'static str| Some((*name, self.0.get(*name)?));
        names.iter().filter_map(given).find(|(_, value)| !value.is_null())
    }

    fn text(&self, names: &[&'static str]) -> Result<Option<String>, String> {
        match self.get(names) {
            None => Ok(None),
            Some((_, Value::String(text))) => Ok(Some(text.clone())),
            Some((name, _)) => Err(format!("`{name}` is not a string")),
        }
    }

    fn list(&self, names: &[&'static str]) -> Result<Vec<String>, String> {
        match self.get(names) {
            None => Ok(Vec::new()),
            Some((name, value)) => {
                scalars(value).ok_or_else(|| format!("`{name}` is not a list of strings"))
            }
        }
    }

    fn map(&self, names: &[&'static str]) -> Result<IndexMap<String, Secret>, String> {
        let Some((name, value)) = self.get(names) else { return Ok(IndexMap::new()) };
        let wrong = || format!("`{name}` is not an object of strings");
        let values = value.as_object().ok_or_else(wrong)?.iter();
        let values = values.filter(|(_, value)| !value.is_null());
        values
            .map(|(key, value)| Ok((key.clone(), Secret::new(scalar(value).ok_or_else(wrong)?))))
            .collect()
    }

    fn number(&self, name: &str) -> Option<f64> {
        self.0.get(name)?.as_f64()
    }

    fn is_enabled(&self) -> bool {
        let says = |name: &str| self.0.get(name).and_then(Value::as_bool);
        says("enabled").unwrap_or(true) && !says("disabled").unwrap_or(false)
    }

    fn transport(&self) -> Result<Transport, String> {
        let has_command = self.get(&["command"]).is_some();
        let has_address = self.get(&["url", "httpUrl", "serverUrl"]).is_some();
        let named = self.text(&["type", "transport"])?.unwrap_or_default().to_lowercase();
        match named.replace(['-', '_', ' '], "").as_str() {
            _ if !has_command && !has_address => {
                Err("it has neither a `command` nor a `url`".to_owned())
            }
            "sse" if !has_command => Err("it speaks the old SSE transport only; look for its \
                streamable HTTP address"
                .to_owned()),
            "http" | "streamablehttp" | "remote" if has_address => Ok(Transport::Http),
            _ if has_command => Ok(Transport::Command),
            "" | "http" | "streamablehttp" | "remote" => Ok(Transport::Http),
            "stdio" => Err("its transport is stdio, but it has no `command`".to_owned()),
            _ => Err(format!("transport `{named}` is not known")),
        }
    }

    fn add_command(&self, entry: &mut ServerEntry) -> Result<(), String> {
        let wrong = || "`command` is not a string".to_owned();
        entry.args = self.list(&["args"])?;
        entry.env = self.map(&["env"])?;
        match self.0.get("command") {
            Some(Value::Object(parts)) => {
                let parts = Self(parts.clone());
                entry.command = parts.text(&["path"])?;
                entry.args = parts.list(&["args"])?;
                entry.env = parts.map(&["env"])?;
            }
            Some(list @ Value::Array(_)) => {
                let mut words = scalars(list).ok_or_else(wrong)?.into_iter();
                entry.command = words.next();
                entry.args.splice(0..0, words);
            }
            Some(Value::String(command)) => entry.command = Some(command.clone()),
            _ => return Err(wrong()),
        }
        entry.cwd = self.text(&["cwd"])?;
        entry.env_file = self.text(&["envFile"])?;
        entry.inherit_env = self.list(&["env_vars"]).unwrap_or_default();
        Ok(())
    }

    fn add_address(&self, entry: &mut ServerEntry) -> Result<(), String> {
        entry.url = self.text(&["httpUrl", "serverUrl", "url"])?;
        entry.headers = self.map(&["headers", "http_headers"])?;
        for (header, variable) in self.map(&["env_http_headers"])? {
            let reference = format!("${{{}}}", variable.expose());
            entry.headers.insert(header, Secret::new(reference));
        }
        if let Some(variable) = self.text(&["bearer_token_env_var"])? {
            entry.bearer_token = Some(Secret::new(format!("${{{variable}}}")));
        }
        Ok(())
    }
}

/// Text, or what is plainly meant as text.
fn scalar(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Bool(flag) => Some(flag.to_string()),
        _ => None,
    }
}

fn scalars(value: &Value) -> Option<Vec<String>> {
    value.as_array()?.iter().map(scalar).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_clients_say_in_words_of_their_own_is_understood() {
        let read = |value: Value| entry("a", value).unwrap();
        for url in ["url", "httpUrl", "serverUrl"] {
            assert_eq!(read(json!({url: "https://h"})).url.unwrap(), "https://h");
        }
        assert!(!read(json!({"command": "x", "disabled": true})).enabled);
        assert!(!read(json!({"command": "x", "enabled": false})).enabled);
        assert_eq!(read(json!({"command": ["x", "y"], "args": ["z"]})).args, ["y", "z"]);
        let typed = read(json!({"command": "x", "args": [1, true], "env": {"A": 1, "B": null}}));
        assert_eq!((typed.args, typed.env.len()), (vec!["1".to_owned(), "true".to_owned()], 1));
        assert_eq!(read(json!({"command": "x", "timeout": 60000})).call_limit, 60.0);
        assert_eq!(read(json!({"command": "x", "timeout": 60})).call_limit, 60.0);
        assert_eq!(read(json!({"command": "x", "excludeTools": ["a[b"]})).exclude, ["a[[]b"]);
        assert_eq!(
            read(json!({"command": "x", "alwaysAllow": [], "trust": 1, "headers": {}})).args.len(),
            0
        );
        let both = json!({"command": "x", "url": "https://h", "type": "streamable-http"});
        assert_eq!(read(both).command, None);
    }
}
