//! What a model needs to call a tool, and what the engine needs to know about it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use crate::text::{first_sentence, one_line};
use crate::{Schema, ToolName};

/// Whether a tool's schema waits until it is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Deferral {
    /// The preset decides.
    #[default]
    Auto,
    /// Always sent in full.
    Eager,
    /// Always held back.
    Deferred,
}

/// What a tool says about its own effects. Hints, as trustworthy as the server they come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Annotations {
    /// Changes nothing.
    #[serde(rename = "readOnlyHint", skip_serializing_if = "Option::is_none")]
    pub read_only: Option<bool>,
    /// May destroy something; assumed unless the tool is read-only or says otherwise.
    #[serde(rename = "destructiveHint", skip_serializing_if = "Option::is_none")]
    pub destructive: Option<bool>,
    /// Calling it twice does no more than calling it once.
    #[serde(rename = "idempotentHint", skip_serializing_if = "Option::is_none")]
    pub idempotent: Option<bool>,
    /// Reaches beyond the machine.
    #[serde(rename = "openWorldHint", skip_serializing_if = "Option::is_none")]
    pub open_world: Option<bool>,
}

impl Annotations {
    /// Says of itself that it changes nothing.
    pub fn is_read_only(&self) -> bool {
        self.read_only == Some(true)
    }

    /// May destroy something, as far as one can tell.
    pub fn is_destructive(&self) -> bool {
        !self.is_read_only() && self.destructive != Some(false)
    }
}

/// What a call of a tool may do, as far as the tool says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    Reads,
    Writes,
    Destroys,
}

impl Effect {
    pub(crate) fn of(annotations: &Annotations) -> Self {
        match (annotations.is_read_only(), annotations.is_destructive()) {
            (true, _) => Self::Reads,
            (false, false) => Self::Writes,
            (false, true) => Self::Destroys,
        }
    }

    /// What a tool that does this does: the middle of a sentence.
    pub(crate) fn says(self) -> &'static str {
        match self {
            Self::Reads => "changes nothing",
            Self::Writes => "changes something",
            Self::Destroys => "may destroy something",
        }
    }
}

/// A tool as it is registered.
///
/// ```
/// use serde_json::json;
/// use toolcrib_core::{Deferral, ToolName, ToolSpec};
///
/// let spec = ToolSpec::new(ToolName::host("send_alert"), json!({
///     "type": "object",
///     "properties": {"message": {"type": "string"}},
///     "required": ["message"],
/// }))
/// .with_description("Send an alert to the operations team.")
/// .with_deferral(Deferral::Eager);
/// assert_eq!(spec.name().tool(), "send_alert");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolSpec {
    name: ToolName,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<Arc<str>>,
    input_schema: Schema,
    #[serde(default)]
    annotations: Annotations,
    #[serde(default)]
    deferral: Deferral,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    search_hint: Option<Arc<str>>,
    #[serde(default)]
    sequential: bool,
    #[serde(default)]
    immediate: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    extra: Option<Arc<str>>,
}

impl ToolSpec {
    /// A tool with the given name and input schema.
    pub fn new(name: ToolName, input_schema: impl Into<Schema>) -> Self {
        Self {
            name,
            description: None,
            input_schema: input_schema.into(),
            annotations: Annotations::default(),
            deferral: Deferral::Auto,
            search_hint: None,
            sequential: false,
            immediate: false,
            extra: None,
        }
    }

    /// What the tool does, for the model.
    pub fn with_description(mut self, text: impl Into<Arc<str>>) -> Self {
        self.description = Some(text.into());
        self
    }

    /// Whether its schema is held back.
    pub fn with_deferral(mut self, deferral: Deferral) -> Self {
        self.deferral = deferral;
        self
    }

    /// Words people use for this tool that its name and description lack. Searched, and shown
    /// beside the name where a catalog shows hints.
    pub fn with_search_hint(mut self, hint: impl Into<Arc<str>>) -> Self {
        self.search_hint = Some(hint.into());
        self
    }

    /// What the tool says about its effects.
    pub fn with_annotations(mut self, annotations: Annotations) -> Self {
        self.annotations = annotations;
        self
    }

    /// What else its server says of it (a title, an output schema, its annotations whole): the
    /// text of a JSON object. A model is not shown it; a client that lists the tool is.
    pub fn with_extra(mut self, json: impl Into<Arc<str>>) -> Self {
        self.extra = Some(json.into());
        self
    }

    /// The same tool under another name.
    pub fn renamed(mut self, name: ToolName) -> Self {
        self.name = name;
        self
    }

    /// Never runs beside another call of the same batch.
    pub fn into_sequential(mut self) -> Self {
        self.sequential = true;
        self
    }

    /// Loaded at once in conversations that are already deferring when it is registered: for
    /// tools a host adds while it runs, because they are needed now.
    pub fn into_immediate(mut self) -> Self {
        self.immediate = true;
        self
    }

    /// The tool's identity.
    pub fn name(&self) -> &ToolName {
        &self.name
    }

    /// The description, empty if there is none.
    pub fn description(&self) -> &str {
        self.description.as_deref().unwrap_or_default()
    }

    /// The schema of its arguments.
    pub fn input_schema(&self) -> &Schema {
        &self.input_schema
    }

    /// What else its server says of it: the text of a JSON object.
    pub fn extra(&self) -> Option<&str> {
        self.extra.as_deref()
    }

    /// What the tool says about its effects.
    pub fn annotations(&self) -> &Annotations {
        &self.annotations
    }

    /// Whether its schema is held back.
    pub fn deferral(&self) -> Deferral {
        self.deferral
    }

    /// The author's search hint or, for an MCP tool, one made of the server's name and the first
    /// sentence of the description.
    pub fn search_hint(&self) -> Option<String> {
        if let Some(hint) = &self.search_hint {
            return Some(one_line(hint, 160));
        }
        let server = one_line(self.name.server()?, 40);
        let about = first_sentence(self.description(), 120);
        Some(if about.is_empty() { server } else { format!("{server}: {about}") })
    }

    pub(crate) fn shared_description(&self) -> Arc<str> {
        self.description.clone().unwrap_or_default()
    }

    /// The author's search hint alone.
    pub(crate) fn own_search_hint(&self) -> Option<&str> {
        self.search_hint.as_deref()
    }

    /// Whether it runs alone.
    pub fn is_sequential(&self) -> bool {
        self.sequential
    }

    pub(crate) fn is_immediate(&self) -> bool {
        self.immediate
    }

    /// Reads a tool in any of the forms in use: MCP (`inputSchema`), Anthropic (`input_schema`),
    /// OpenAI Chat (`{"type": "function", "function": {…}}`), OpenAI Responses and plain
    /// (`parameters`). `name` turns the name found into an identity.
    ///
    /// ```
    /// use toolcrib_core::{ToolName, ToolSpec};
    ///
    /// let spec = ToolSpec::parse(
    ///     r#"{"type": "function", "function": {"name": "query", "parameters": {}}}"#,
    ///     ToolName::host,
    /// )?;
    /// assert_eq!(spec.name(), &ToolName::host("query"));
    /// # Ok::<_, toolcrib_core::SpecError>(())
    /// ```
    pub fn parse(json: &str, name: impl FnOnce(String) -> ToolName) -> Result<Self, SpecError> {
        let read = |json: &str| {
            serde_json::from_str::<Wire>(json).map_err(|error| SpecError(error.to_string()))
        };
        let mut wire = read(json)?;
        if let Some(function) = wire.function {
            wire = read(function.get())?;
        }
        let own_name = match wire.name {
            Some(Value::String(text)) if !text.trim().is_empty() => text,
            Some(Value::String(_)) | None => return Err(SpecError("it has no name".to_owned())),
            Some(_) => return Err(SpecError("its name is not a string".to_owned())),
        };
        let schema = wire.input_schema.map_or_else(Schema::empty, |raw| Schema::from_raw(&raw));
        if !matches!(schema.get().as_bytes().first(), Some(b'{' | b't')) {
            return Err(SpecError("its input schema is not an object".to_owned()));
        }
        let mut spec = Self::new(name(own_name), schema);
        match wire.description {
            Some(Value::String(text)) => spec.description = Some(text.into()),
            Some(Value::Null) | None => {}
            Some(_) => return Err(SpecError("its description is not a string".to_owned())),
        }
        // A hint of the wrong type is no reason to lose the tool.
        spec.annotations = wire
            .annotations
            .and_then(|raw| serde_json::from_str(raw.get()).ok())
            .unwrap_or_default();
        Ok(spec)
    }
}

/// Why something is not a tool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not a tool: {0}")]
pub struct SpecError(String);

#[derive(Deserialize)]
struct Wire {
    name: Option<Value>,
    description: Option<Value>,
    #[serde(alias = "inputSchema", alias = "parameters")]
    input_schema: Option<Box<RawValue>>,
    annotations: Option<Box<RawValue>>,
    function: Option<Box<RawValue>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Result<ToolSpec, SpecError> {
        ToolSpec::parse(json, ToolName::host)
    }

    #[test]
    fn every_provider_form_gives_the_same_spec() {
        let schema = r#"{"type":"object","properties":{"q":{"type":"string"}}}"#;
        let forms = [
            format!(r#"{{"name":"find","description":"Finds","inputSchema":{schema}}}"#),
            format!(r#"{{"name":"find","description":"Finds","input_schema":{schema}}}"#),
            format!(r#"{{"name":"find","description":"Finds","parameters":{schema}}}"#),
            format!(
                r#"{{"type":"function","name":"find","description":"Finds","parameters":{schema}}}"#
            ),
            format!(
                r#"{{"type":"function","function":{{"name":"find","description":"Finds","parameters":{schema}}}}}"#
            ),
        ];
        let expected = parse(&forms[0]).unwrap();
        assert_eq!(expected.input_schema().get(), schema);
        for form in &forms {
            assert_eq!(parse(form).unwrap(), expected, "{form}");
        }
    }

    #[test]
    fn a_missing_or_null_part_has_a_default() {
        let spec = parse(r#"{"name":"x","description":null,"inputSchema":null}"#).unwrap();
        assert_eq!(spec.description(), "");
        assert_eq!(spec.input_schema(), &Schema::empty());
        let spec = parse(r#"{"name":"x","inputSchema":true,"annotations":{"readOnlyHint":"?"}}"#);
        assert_eq!(spec.unwrap().annotations(), &Annotations::default());
    }

    #[test]
    fn what_is_not_a_tool_says_why() {
        for (json, why) in [
            ("{}", "it has no name"),
            (r#"{"name":" "}"#, "it has no name"),
            (r#"{"name":7}"#, "its name is not a string"),
            (r#"{"name":"x","description":[]}"#, "its description is not a string"),
            (r#"{"name":"x","inputSchema":"string"}"#, "its input schema is not an object"),
        ] {
            assert_eq!(parse(json).unwrap_err(), SpecError(why.to_owned()), "{json}");
        }
        assert!(parse("[]").is_err());
        assert!(parse("not json").is_err());
        let deep = format!("{}{{}}{}", "{\"function\":".repeat(50_000), "}".repeat(50_000));
        assert!(parse(&deep).is_err());
    }

    #[test]
    fn an_mcp_tool_has_a_hint_without_configuration() {
        let spec = ToolSpec::new(ToolName::mcp("github", "list_issues"), Schema::empty())
            .with_description("List issues.\nSee also: x");
        assert_eq!(spec.search_hint().as_deref(), Some("github: List issues."));
        assert_eq!(
            spec.with_search_hint("bugs, tickets").search_hint().as_deref(),
            Some("bugs, tickets")
        );
        assert_eq!(ToolSpec::new(ToolName::host("x"), Schema::empty()).search_hint(), None);
    }

    #[test]
    fn an_unannotated_tool_counts_as_destructive() {
        assert!(Annotations::default().is_destructive());
        assert!(!Annotations { read_only: Some(true), ..Default::default() }.is_destructive());
        assert!(!Annotations { destructive: Some(false), ..Default::default() }.is_destructive());
    }
}
