//! Other programs' files: `mcp.json` in its many dialects, and Codex's `config.toml`.
//!
//! They have keys of their own that mean nothing here, so what is unknown is passed over. A
//! server that can't be used says why and costs no other.

mod fields;

use std::path::PathBuf;

use jsonc_parser::ast::{Object, Value};
use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, parse_to_ast};

use super::entry::ServerEntry;

/// Where the servers are, in files that have only one such table.
const TABLES: [&str; 3] = ["mcpServers", "servers", "context_servers"];

/// What a file says about servers.
#[derive(Debug, Default, PartialEq)]
pub(crate) struct ForeignFile {
    pub(crate) servers: Vec<Found>,
    /// What was passed over, each with its line.
    pub(crate) warnings: Vec<String>,
    /// Whether there is a place for servers in it at all.
    pub(crate) has_table: bool,
}

/// A server in another program's file.
#[derive(Debug, PartialEq)]
pub(crate) struct Found {
    pub(crate) name: String,
    pub(crate) line: usize,
    /// The folder it is meant for, where the file says so.
    pub(crate) project: Option<PathBuf>,
    /// What it amounts to here, or why it can't be used.
    pub(crate) entry: Result<ServerEntry, String>,
}

impl ForeignFile {
    /// Reads JSON, in which comments and trailing commas may stand. The error begins with the
    /// line.
    pub(crate) fn from_json(text: &str) -> Result<Self, String> {
        let value = parse(text)?;
        let Some(Value::Object(root)) = value else {
            return Err("line 1: expected an object such as {\"mcpServers\": {…}}".to_owned());
        };
        let mut file = Self::default();
        for name in TABLES {
            file.add_table(text, &root, name, None);
        }
        if let Some(editor) = root.get_object("mcp") {
            file.add_table(text, editor, "servers", None);
        }
        let projects = root.get_object("projects").into_iter().flat_map(|all| &all.properties);
        for project in projects {
            if let Value::Object(settings) = &project.value {
                file.add_table(text, settings, TABLES[0], Some(project.name.as_str().into()));
            }
        }
        Ok(file)
    }

    /// Reads Codex's configuration.
    pub(crate) fn from_codex(text: &str) -> Result<Self, String> {
        let line = |at: usize| 1 + text.get(..at).unwrap_or_default().matches('\n').count();
        let document = toml::de::DeTable::parse(text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            format!("line {}: {}", line(at), error.message())
        })?;
        let mut values: serde_json::Value =
            toml::from_str(text).map_err(|error| format!("line 1: {}", error.message()))?;
        let mut file = Self::default();
        let Some((_, table)) =
            document.get_ref().iter().find(|(key, _)| key.get_ref() == "mcp_servers")
        else {
            return Ok(file);
        };
        file.has_table = true;
        for (key, _) in table.get_ref().as_table().into_iter().flatten() {
            let name = key.get_ref().to_string();
            let value = values["mcp_servers"][&name].take();
            let entry = fields::entry(&name, value);
            file.servers.push(Found { name, line: line(key.span().start), project: None, entry });
        }
        Ok(file)
    }

    fn add_table(&mut self, text: &str, of: &Object<'_>, name: &str, project: Option<PathBuf>) {
        let Some(property) = of.get(name) else { return };
        let Value::Object(table) = &property.value else {
            let line = line_of(text, property);
            self.warnings.push(format!("line {line}: `{name}` is not an object"));
            return;
        };
        self.has_table = true;
        for (at, property) in table.properties.iter().enumerate() {
            let name = property.name.as_str();
            let line = line_of(text, property);
            if let Some(again) =
                table.properties[at + 1..].iter().find(|other| other.name.as_str() == name)
            {
                let again = line_of(text, again);
                let warning = format!(
                    "line {line}: server `{name}` is there again on line {again}, which holds"
                );
                self.warnings.push(warning);
                continue;
            }
            let entry = fields::entry(name, property.value.clone().into());
            let name = name.to_owned();
            self.servers.push(Found { name, line, project: project.clone(), entry });
        }
    }
}

fn parse(text: &str) -> Result<Option<Value<'_>>, String> {
    let options = ParseOptions {
        allow_comments: true,
        allow_trailing_commas: true,
        allow_loose_object_property_names: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    };
    let parsed = parse_to_ast(text, &CollectOptions::default(), &options).map_err(|error| {
        let reason = error.kind().to_string().to_lowercase();
        let (line, column) = (error.line_display(), error.column_display());
        format!("line {line}, column {column}: not JSON: {reason}")
    })?;
    Ok(parsed.value)
}

fn line_of(text: &str, node: &impl Ranged) -> usize {
    1 + text.get(..node.start()).unwrap_or_default().matches('\n').count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> ForeignFile {
        ForeignFile::from_json(text).unwrap()
    }

    /// Each server on a line: its name, and what it amounts to or why it can't be used.
    fn lines(file: &ForeignFile) -> Vec<String> {
        let line = |found: &Found| match &found.entry {
            Ok(entry) => format!("{} {}: {}", found.line, found.name, entry.shown()),
            Err(reason) => format!("{} {}! {reason}", found.line, found.name),
        };
        file.servers.iter().map(line).collect()
    }

    #[test]
    fn comments_commas_and_line_ends_do_no_harm() {
        let text = "// mine\r\n{\r\n  /* all */ \"mcpServers\": {\r\n    \"b\": {\"command\": \"x\", \"args\": [\"//y\", \"z,\",],},\r\n\
            \"a\": {\"url\": \"https://h/mcp\"}, // last\r\n  },\r\n}\r\n";
        assert_eq!(lines(&read(text)), ["4 b: x //y z,", "5 a: https://h/mcp"]);
    }

    #[test]
    fn every_table_is_found() {
        for text in [
            r#"{"mcpServers": {"a": {"command": "x"}}}"#,
            r#"{"servers": {"a": {"type": "stdio", "command": "x"}}, "inputs": []}"#,
            r#"{"context_servers": {"a": {"source": "custom", "command": {"path": "x", "args": []}}}}"#,
            r#"{"mcp": {"servers": {"a": {"command": "x"}}}}"#,
        ] {
            assert_eq!(lines(&read(text)), ["1 a: x"], "{text}");
        }
        assert!(!read(r#"{"theme": "dark"}"#).has_table);
        let projects =
            read(r#"{"projects": {"/w": {"mcpServers": {"a": {"command": "x"}}}, "/v": 1}}"#);
        assert_eq!(projects.servers[0].project, Some("/w".into()));
    }

    #[test]
    fn a_server_that_cant_be_used_costs_no_other() {
        let text = "{\"mcpServers\": {\n\"a\": 1,\n\"b\": {},\n\"c\": {\"type\": \"sse\", \"url\": \"https://h/sse\"},\n\
            \"d\": {\"command\": \"x\", \"args\": \"-y\"},\n\"e\": {\"command\": [1, {}]},\n\
            \"f\": {\"command\": \"x\", \"env\": [\"A=hunter2\"]},\n\"\": {\"command\": \"x\"},\n\
            \"g\": {\"url\": \"ftp://h\"},\n\"h\": {\"type\": \"ws\", \"url\": \"https://h\"},\n\
            \"z\": {\"command\": \"x\"}\n}}";
        assert_eq!(
            lines(&read(text)),
            [
                "2 a! it is not an object",
                "3 b! it has neither a `command` nor a `url`",
                "4 c! it speaks the old SSE transport only; look for its streamable HTTP address",
                "5 d! `args` is not a list of strings",
                "6 e! `command` is not a string",
                "7 f! `env` is not an object of strings",
                "8 ! a server needs a name",
                "9 g! `url`: expected an address that starts with http:// or https://",
                "10 h! transport `ws` is not known",
                "11 z: x",
            ]
        );
    }

    #[test]
    fn of_two_servers_with_one_name_the_last_holds() {
        let file =
            read("{\"mcpServers\": {\n\"a\": {\"command\": \"x\"},\n\"a\": {\"command\": \"y\"}}}");
        assert_eq!(lines(&file), ["3 a: y"]);
        assert_eq!(file.warnings, ["line 2: server `a` is there again on line 3, which holds"]);
        assert_eq!(read(r#"{"servers": []}"#).warnings, ["line 1: `servers` is not an object"]);
    }

    #[test]
    fn what_is_not_json_says_where() {
        for (text, start) in [
            ("", "line 1: expected an object"),
            ("[]", "line 1: expected an object"),
            ("{\n  \"a\": }", "line 2, column "),
            ("{'a': 1}", "line 1, column "),
            ("{a: 1}", "line 1, column "),
            ("{} {}", "line 1, column "),
            (&"[".repeat(100_000), "line 1, column 5"),
        ] {
            let error = ForeignFile::from_json(text).unwrap_err();
            assert!(error.starts_with(start), "{error}");
        }
    }

    #[test]
    fn codex_is_read_too() {
        let text = "model = \"o\"\n\n[mcp_servers.b]\ncommand = \"x\"\nargs = [\"y\"]\nstartup_timeout_sec = 5\n\
            env_vars = [\"REGION\"]\n[mcp_servers.a]\nurl = \"https://h\"\nbearer_token_env_var = \"T\"\n\
            env_http_headers = { X = \"XV\" }\n[mcp_servers.c]\nenabled = false\n";
        let file = ForeignFile::from_codex(text).unwrap();
        assert_eq!(
            lines(&file),
            ["3 b: x y", "8 a: https://h", "12 c! it has neither a `command` nor a `url`"]
        );
        let entries: Vec<&ServerEntry> =
            file.servers.iter().filter_map(|found| found.entry.as_ref().ok()).collect();
        assert_eq!(
            (entries[0].start_limit, &entries[0].inherit_env[..]),
            (5.0, &["REGION".to_owned()][..])
        );
        assert_eq!(entries[1].bearer_token.as_ref().unwrap().expose(), "${T}");
        assert_eq!(entries[1].headers["X"].expose(), "${XV}");
        assert!(ForeignFile::from_codex("a = ").unwrap_err().starts_with("line 1: "));
        assert!(!ForeignFile::from_codex("a = 1").unwrap().has_table);
    }
}
