//! What is wrong with a configuration, and where.
//!
//! Unknown keys are found by walking the file beside its own JSON Schema, so that every one of
//! them is reported, with the key that was probably meant.

use std::ops::Range;

use serde_json::Value;
use toml::Spanned;
use toml::de::{DeTable, DeValue};
use toolcrib::{EagerError, Engine, EngineError, Policy, PolicyRules};

use super::{Config, EmbedderChoice};
use crate::output::suggest;

/// Something wrong at a place in the file.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Fault {
    span: Range<usize>,
    /// From the root: `eager.profiles.seat`. Empty if the text is not TOML at all.
    key: String,
    message: String,
}

impl Config {
    /// Reads a configuration, or says everything that is wrong with it.
    pub(super) fn parse(text: &str) -> Result<Self, Vec<Fault>> {
        let document = DeTable::parse(text).map_err(|error| vec![from_toml(&error, None)])?;
        let mut leaves = Vec::new();
        collect(document.get_ref(), "", &mut leaves);
        let unknown = unknown_keys(document.get_ref());
        if !unknown.is_empty() {
            return Err(unknown);
        }
        let config: Self =
            toml::from_str(text).map_err(|error| vec![from_toml(&error, Some(&leaves))])?;
        let mut faults = config.server_faults(document.get_ref());
        faults.extend(config.contradiction(&leaves));
        if faults.is_empty() { Ok(config) } else { Err(faults) }
    }

    /// What is wrong with servers, the embedder, the agent and the gateway, each where it stands.
    fn server_faults(&self, document: &DeTable<'_>) -> Vec<Fault> {
        let mut faults = Vec::new();
        let tables = |name: &str| document.get(name).and_then(|value| value.get_ref().as_table());
        let place = |table: &DeTable<'_>, key: &str| {
            table.iter().find(|(name, _)| name.get_ref() == key).map(|(name, _)| name.span())
        };
        for (name, value) in tables("servers").into_iter().flatten() {
            let entry = self.servers.get(name.get_ref().as_ref());
            let fault = entry.and_then(|entry| entry.fault(name.get_ref()));
            let Some((key, message)) = fault else { continue };
            let whole = join("servers", name.get_ref());
            let at = key.and_then(|key| place(value.get_ref().as_table()?, key));
            let span = at.unwrap_or(name.span());
            let key = key.map_or(whole.clone(), |key| join(&whole, key));
            faults.push(Fault { span, key, message });
        }
        let embedder = tables("search").and_then(|table| table.get("embedder"));
        let embedder = embedder.and_then(|value| value.get_ref().as_table());
        if let (Some(table), EmbedderChoice::Endpoint(entry)) = (embedder, &self.search.embedder)
            && let Some((key, message)) = entry.fault()
        {
            let span = place(table, key).unwrap_or(0..0);
            faults.push(Fault { span, key: join("search.embedder", key), message });
        }
        if let (Some(table), Some((key, message))) = (tables("agent"), self.agent.fault()) {
            let span = place(table, key).unwrap_or(0..0);
            faults.push(Fault { span, key: join("agent", key), message });
        }
        if let (Some(table), Some((key, message))) = (tables("gateway"), self.gateway.fault()) {
            let (key, name) = key;
            let of_name = name.and_then(|name| place(table.get(key)?.get_ref().as_table()?, name));
            let span = of_name.or_else(|| place(table, key)).unwrap_or(0..0);
            let key = join("gateway", key);
            let key = name.map_or(key.clone(), |name| join(&key, name));
            faults.push(Fault { span, key, message });
        }
        faults
    }

    /// What every single value allows but the engine doesn't.
    fn contradiction(&self, leaves: &[Leaf]) -> Option<Fault> {
        let compiles = |pattern: &str| {
            let deny_tools = vec![pattern.to_owned()];
            Policy::new(PolicyRules { deny_tools, ..Default::default() }).is_ok()
        };
        let of = |found: &dyn Fn(&Leaf) -> bool, message: String| {
            let leaf = leaves.iter().find(|leaf| found(leaf));
            let (span, key) = leaf.map_or((0..0, ""), |leaf| (leaf.span.clone(), &leaf.key));
            Some(Fault { span, key: key.to_owned(), message })
        };
        let bad_pattern = |leaf: &Leaf| {
            let holds = ["policy.", "eager.always", "eager.sets."];
            holds.iter().any(|key| leaf.key.starts_with(key))
                && leaf.text.as_deref().is_some_and(|text| !compiles(text))
        };
        if let Err(error) = Policy::new(self.policy.clone()) {
            return of(&bad_pattern, error.to_string());
        }
        let error = Engine::new(self.settings(None)).err()?;
        let message = error.to_string();
        match error {
            EngineError::Eager(EagerError::UnknownSet(name)) => {
                let hint = suggest(&name, self.eager.sets.keys().map(String::as_str));
                let uses = |leaf: &Leaf| {
                    ["eager.local", "eager.cloud", "eager.profiles."]
                        .iter()
                        .any(|key| leaf.key.starts_with(key))
                        && leaf.text.as_ref() == Some(&name)
                };
                of(&uses, message + &hint.unwrap_or_default())
            }
            EngineError::Eager(EagerError::UnknownProfile(name)) => {
                let hint = suggest(&name, self.eager.profiles.keys().map(String::as_str));
                of(&|leaf| leaf.key == "profile", message + &hint.unwrap_or_default())
            }
            EngineError::Eager(EagerError::Pattern(_)) => of(&bad_pattern, message),
            _ => of(&|leaf| leaf.key == "threshold_context", message),
        }
    }
}

/// All faults in one message, each with file, line and column.
pub(super) fn describe(faults: &[Fault], text: &str, file: &str) -> String {
    let line = |fault: &Fault| {
        let before = text.get(..fault.span.start).unwrap_or_default();
        let line = 1 + before.matches('\n').count();
        let column = 1 + before.rsplit('\n').next().unwrap_or_default().chars().count();
        let key = if fault.key.is_empty() { String::new() } else { format!(", `{}`", fault.key) };
        format!("{file}, line {line}, column {column}{key}: {}", fault.message)
    };
    faults.iter().map(line).collect::<Vec<_>>().join("\n")
}

/// A value that holds no others, with the key it belongs to.
struct Leaf {
    key: String,
    span: Range<usize>,
    text: Option<String>,
}

fn collect(table: &DeTable<'_>, path: &str, leaves: &mut Vec<Leaf>) {
    for (key, value) in table {
        collect_value(value, &join(path, key.get_ref()), leaves);
    }
}

fn collect_value(value: &Spanned<DeValue<'_>>, key: &str, leaves: &mut Vec<Leaf>) {
    match value.get_ref() {
        DeValue::Table(table) => collect(table, key, leaves),
        DeValue::Array(items) => items.iter().for_each(|item| collect_value(item, key, leaves)),
        other => {
            let text = other.as_str().map(str::to_owned);
            leaves.push(Leaf { key: key.to_owned(), span: value.span(), text });
        }
    }
}

fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

fn from_toml(error: &toml::de::Error, leaves: Option<&[Leaf]>) -> Fault {
    let span = error.span().unwrap_or(0..0);
    let at = leaves.and_then(|leaves| leaves.iter().find(|leaf| leaf.span.start >= span.start));
    let key = at.map(|leaf| leaf.key.clone()).unwrap_or_default();
    let mut message = error.message().to_owned();
    // The reason repeats the value, which may be a secret here.
    if ["servers.", "gateway.", "search.", "agent."].iter().any(|of| key.starts_with(of)) {
        let kind = message.find(": ").filter(|_| message.starts_with("invalid "));
        if let (Some(from), Some(to)) = (kind, message.rfind(", expected ")) {
            message.replace_range(from..to, "");
        }
    }
    Fault { span, key, message }
}

fn unknown_keys(document: &DeTable<'_>) -> Vec<Fault> {
    let root = schemars::schema_for!(Config).to_value();
    let mut faults = Vec::new();
    compare(document, &root, &root, "", &mut faults);
    faults.sort_by_key(|fault| fault.span.start);
    faults
}

fn compare(table: &DeTable<'_>, schema: &Value, root: &Value, path: &str, faults: &mut Vec<Fault>) {
    let schema = resolve(schema, root);
    let Some(known) = schema.get("properties").and_then(Value::as_object) else {
        // A table of tables by free names.
        let each = schema.get("additionalProperties").unwrap_or(&Value::Null);
        for (key, value) in table {
            if let DeValue::Table(table) = value.get_ref() {
                compare(table, each, root, &join(path, key.get_ref()), faults);
            }
        }
        return;
    };
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        match (known.get(name), value.get_ref()) {
            (Some(schema), DeValue::Table(table)) => {
                compare(table, schema, root, &join(path, name), faults);
            }
            (Some(schema), DeValue::Array(items)) => {
                let each = resolve(schema, root).get("items").unwrap_or(&Value::Null);
                for table in items.iter().filter_map(|item| item.get_ref().as_table()) {
                    compare(table, each, root, &join(path, name), faults);
                }
            }
            (Some(_), _) => {}
            (None, _) => {
                let hint = suggest(name, known.keys().map(String::as_str)).unwrap_or_else(|| {
                    let known: Vec<&str> = known.keys().map(String::as_str).collect();
                    format!("; known here: {}", known.join(", "))
                });
                let message = format!("there is no such key{hint}");
                faults.push(Fault { span: key.span(), key: join(path, name), message });
            }
        }
    }
}

/// Follows a reference within the schema. Of several forms, the one that is a table of keys, or
/// else of free names.
fn resolve<'a>(schema: &'a Value, root: &'a Value) -> &'a Value {
    let reference = schema.get("$ref").and_then(Value::as_str);
    let schema =
        reference.and_then(|path| root.pointer(path.trim_start_matches('#'))).unwrap_or(schema);
    let forms = || {
        let forms = schema.get("anyOf").and_then(Value::as_array).into_iter().flatten();
        forms.map(|form| resolve(form, root))
    };
    let keys = forms().find(|form| form.get("properties").is_some());
    let names = || forms().find(|form| form.get("additionalProperties").is_some());
    keys.or_else(names).unwrap_or(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> String {
        describe(&Config::parse(text).expect_err(text), text, "t.toml")
    }

    #[test]
    fn every_unknown_key_is_named_with_the_one_that_was_meant() {
        assert_eq!(
            faults("presett = \"crib\"\n[eager]\nallways = []\n[policy]\n  deny_tool = []\n"),
            "t.toml, line 1, column 1, `presett`: there is no such key; did you mean `preset`?\n\
             t.toml, line 3, column 1, `eager.allways`: there is no such key; did you mean `always`?\n\
             t.toml, line 5, column 3, `policy.deny_tool`: there is no such key; did you mean \
             `deny_tools`?"
        );
    }

    #[test]
    fn a_key_like_no_other_gets_the_list() {
        let message = faults("[eager]\nxyzzy = 1");
        assert!(message.ends_with("known here: always, local, cloud, profiles, sets"), "{message}");
    }

    #[test]
    fn keys_of_a_token_are_known() {
        let message = faults("[gateway.tokens.ci]\nhash = ''\npolicy.deny_tool = []");
        assert!(message.contains("`gateway.tokens.ci.policy.deny_tool`: there is no"), "{message}");
        let message = faults("[gateway.oauth]\nissuer = ''\n[gateway.oauth.scopes.a]\nread = true");
        assert!(message.contains("`gateway.oauth.scopes.a.read`: there is no"), "{message}");
        let message = faults("[gateway.oauth]\nissuer = 'http://a.example'");
        assert!(
            message.starts_with("t.toml, line 2, column 1, `gateway.oauth.issuer`: expected"),
            "{message}"
        );
    }

    #[test]
    fn names_of_sets_and_profiles_are_free() {
        let text = "[eager.sets]\nmine = ['a*']\n[eager.profiles]\nseat = ['mine', 'core']";
        assert!(Config::parse(text).is_ok());
    }

    #[test]
    fn wrong_values_are_placed() {
        for (text, start) in [
            (
                "mode = 'full'\npreset = 'crab'",
                "t.toml, line 2, column 10, `preset`: unknown variant `crab`",
            ),
            (
                "threshold_tools = 'many'",
                "t.toml, line 1, column 19, `threshold_tools`: invalid type",
            ),
            ("threshold_tools = -1", "t.toml, line 1, column 19, `threshold_tools`: invalid value"),
            ("[eager]\nalways = [1]", "t.toml, line 2, column 11, `eager.always`: invalid type"),
            ("mode = ", "t.toml, line 1, column 8: "),
        ] {
            let message = faults(text);
            assert!(message.starts_with(start), "{message}");
        }
    }

    #[test]
    fn native_may_be_asked_for_by_who_has_no_provider_for_it() {
        assert!(Config::parse("strategy = 'native'").is_ok());
    }

    #[test]
    fn contradictions_are_placed() {
        for (text, expected) in [
            (
                "mode = 'auto'\nprofile = 'seet'\neager.profiles.seat = []",
                "t.toml, line 2, column 11, `profile`: eager profile `seet` is not defined; did you mean `seat`?",
            ),
            (
                "[eager]\ncloud = ['coer']\nsets.core = []",
                "t.toml, line 2, column 10, `eager.cloud`: eager set `coer` is not defined; did you mean `core`?",
            ),
            (
                "threshold_context = 10.0",
                "t.toml, line 1, column 21, `threshold_context`: the context share",
            ),
            (
                "[policy]\ndeny_tools = ['ok', 'a{b']",
                "t.toml, line 2, column 21, `policy.deny_tools`: `a{b` is not a valid pattern",
            ),
            (
                "[eager]\nalways = ['a[']",
                "t.toml, line 2, column 11, `eager.always`: `a[` is not a valid pattern",
            ),
        ] {
            let message = faults(text);
            assert!(message.starts_with(expected), "{message}");
        }
    }
}
