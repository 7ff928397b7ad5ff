//! A tool as a model is shown it, in the words of each provider.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, OnceLock};

use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};
use toolcrib_tokens::Tokenizer;

use crate::Schema;
use crate::arguments::follow;

/// The form a tool definition takes in a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// `{name, description, input_schema}`, the schema as its author wrote it.
    #[default]
    Neutral,
    /// Anthropic Messages.
    Anthropic,
    /// OpenAI Chat Completions, and what is compatible with it.
    OpenaiChat,
    /// OpenAI Responses.
    OpenaiResponses,
    /// Gemini function declarations.
    Gemini,
}

impl Dialect {
    /// All but the neutral one.
    const MENDED: [Self; 4] =
        [Self::Anthropic, Self::OpenaiChat, Self::OpenaiResponses, Self::Gemini];
}

/// Name, description and schema: all a model gets to know about a tool.
#[derive(Clone, Debug)]
pub struct Definition(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    name: Arc<str>,
    description: Arc<str>,
    schema: Schema,
    /// Made when first asked for: of ten thousand tools, a conversation shows a dozen.
    neutral: OnceLock<Box<RawValue>>,
    /// The same for each provider's form, in the order of [`Dialect::MENDED`].
    mended: [OnceLock<Box<RawValue>>; Dialect::MENDED.len()],
    tokens: OnceLock<u64>,
    mark: OnceLock<u64>,
}

impl Definition {
    pub(crate) fn new(name: Arc<str>, description: Arc<str>, schema: Schema) -> Self {
        let (neutral, mended, tokens, mark) = Default::default();
        Self(Arc::new(Inner { name, description, schema, neutral, mended, tokens, mark }))
    }

    /// Takes a definition back from its neutral form, as a saved session holds it.
    pub(crate) fn from_neutral(raw: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct Neutral {
            name: Arc<str>,
            description: Arc<str>,
            input_schema: Schema,
        }
        let neutral: Neutral = serde_json::from_str(raw.get()).ok()?;
        Some(Self::new(neutral.name, neutral.description, neutral.input_schema))
    }

    /// The exposed name.
    pub fn name(&self) -> &Arc<str> {
        &self.0.name
    }

    /// The description, empty if there is none.
    pub fn description(&self) -> &str {
        &self.0.description
    }

    /// The schema of the arguments.
    pub fn schema(&self) -> &Schema {
        &self.0.schema
    }

    /// The neutral form, made once.
    pub fn neutral(&self) -> &RawValue {
        self.0.neutral.get_or_init(|| self.write_neutral())
    }

    fn write_neutral(&self) -> Box<RawValue> {
        #[derive(Serialize)]
        struct Neutral<'a> {
            name: &'a str,
            description: &'a str,
            input_schema: &'a RawValue,
        }
        to_raw_value(&Neutral {
            name: &self.0.name,
            description: &self.0.description,
            input_schema: self.0.schema.raw(),
        })
        .unwrap_or_default()
    }

    /// Tokens of the neutral form (`o200k_base`), counted once.
    pub fn tokens(&self) -> u64 {
        *self.0.tokens.get_or_init(|| match self.0.neutral.get() {
            Some(text) => Tokenizer::O200K.count(text.get()).tokens,
            None => Tokenizer::O200K.count(self.write_neutral().get()).tokens,
        })
    }

    /// Differs where definitions do, within one program; made once.
    pub(crate) fn mark(&self) -> u64 {
        let Inner { name, description, schema, mark, .. } = &*self.0;
        *mark.get_or_init(|| {
            let mut hasher = DefaultHasher::new();
            (name, description, schema.get()).hash(&mut hasher);
            hasher.finish()
        })
    }

    /// The definition as a provider wants it.
    ///
    /// Providers refuse schemas that JSON Schema allows, so all but the neutral form are mended:
    /// the root becomes an object, references and alternatives at the root are merged into one set
    /// of properties, and property keys outside `[A-Za-z0-9_.-]{1,64}` are left out. Each form is
    /// made once.
    pub fn render(&self, dialect: Dialect) -> &RawValue {
        let Some(place) = Dialect::MENDED.iter().position(|mended| *mended == dialect) else {
            return self.neutral();
        };
        self.0.mended[place].get_or_init(|| self.mend(dialect))
    }

    fn mend(&self, dialect: Dialect) -> Box<RawValue> {
        let (name, description) = (&self.0.name, &self.0.description);
        let schema = || repair(self.0.schema.to_value());
        let value = match dialect {
            Dialect::Neutral => return self.write_neutral(),
            Dialect::Anthropic => {
                json!({"name": name, "description": description, "input_schema": schema()})
            }
            Dialect::OpenaiChat => json!({"type": "function", "function":
                {"name": name, "description": description, "parameters": schema()}}),
            Dialect::OpenaiResponses => json!({"type": "function", "name": name,
                "description": description, "parameters": schema(), "strict": false}),
            Dialect::Gemini => json!({"name": name, "description": description,
                "parametersJsonSchema": schema()}),
        };
        to_raw_value(&value).unwrap_or_default()
    }
}

/// Two definitions are equal if a model sees the same bytes.
impl PartialEq for Definition {
    fn eq(&self, other: &Self) -> bool {
        let parts = |it: &Self| (it.0.name.clone(), it.0.description.clone());
        parts(self) == parts(other) && self.0.schema == other.0.schema
    }
}

impl Eq for Definition {}

/// In the neutral form.
impl Serialize for Definition {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.neutral().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Definition {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = Box::<RawValue>::deserialize(deserializer)?;
        Self::from_neutral(&raw).ok_or_else(|| D::Error::custom("not a tool definition"))
    }
}

fn repair(root: Value) -> Value {
    let Value::Object(mut schema) = root.clone() else {
        return json!({"type": "object", "properties": {}});
    };
    if let Value::Object(target) = follow(&root, &root) {
        for (key, value) in target {
            schema.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    schema.shift_remove("$ref");
    merge_alternatives(&mut schema, &root);
    if schema.get("type").and_then(Value::as_str) != Some("object") {
        schema.insert("type".to_owned(), json!("object"));
    }
    if !schema.get("properties").is_some_and(Value::is_object) {
        schema.insert("properties".to_owned(), json!({}));
    }
    let acceptable = |key: &str| {
        (1..=64).contains(&key.len())
            && key.bytes().all(|b| b.is_ascii_alphanumeric() || b"_.-".contains(&b))
    };
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.retain(|key, _| acceptable(key));
    }
    if let Some(Value::Array(required)) = schema.get_mut("required") {
        required.retain(|key| key.as_str().is_some_and(acceptable));
    }
    Value::Object(schema)
}

/// Folds `allOf`, `anyOf` and `oneOf` at the root into plain properties. Arguments are still
/// checked against the original, so what this loosens is caught there.
fn merge_alternatives(schema: &mut Map<String, Value>, root: &Value) {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for keyword in ["allOf", "anyOf", "oneOf"] {
        let Some(Value::Array(branches)) = schema.shift_remove(keyword) else { continue };
        for branch in branches {
            let Value::Object(mut branch) = follow(&branch, root).clone() else { continue };
            if let Some(Value::Object(inner)) = branch.shift_remove("properties") {
                for (key, value) in inner {
                    properties.entry(key).or_insert(value);
                }
            }
            if let (Some(Value::Array(names)), "allOf") = (branch.shift_remove("required"), keyword)
            {
                required.extend(names);
            }
        }
    }
    schema.shift_remove("not");
    if !properties.is_empty() {
        let own = schema.entry("properties").or_insert_with(|| json!({}));
        if let Value::Object(own) = own {
            for (key, value) in properties {
                own.entry(key).or_insert(value);
            }
        }
    }
    if !required.is_empty() {
        let own = schema.entry("required").or_insert_with(|| json!([]));
        if let Value::Array(own) = own {
            required.retain(|name| !own.contains(name));
            own.extend(required);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(schema: Value) -> Definition {
        Definition::new("t".into(), "d".into(), Schema::from_value(&schema))
    }

    fn anthropic_schema(schema: Value) -> Value {
        let definition = definition(schema);
        let text = definition.render(Dialect::Anthropic);
        serde_json::from_str::<Value>(text.get()).unwrap()["input_schema"].clone()
    }

    #[test]
    fn the_neutral_form_is_the_authors_schema() {
        let odd = json!({"oneOf": [{"type": "object"}], "$defs": {"x": {}}, "example": 1});
        let neutral: Value = serde_json::from_str(definition(odd.clone()).neutral().get()).unwrap();
        assert_eq!(neutral, json!({"name": "t", "description": "d", "input_schema": odd}));
    }

    #[test]
    fn each_provider_gets_its_own_form() {
        let schema = json!({"type": "object", "properties": {}});
        let render = |dialect| definition(schema.clone()).render(dialect).get().to_owned();
        let s = r#"{"type":"object","properties":{}}"#;
        assert_eq!(
            render(Dialect::OpenaiChat),
            format!(
                r#"{{"type":"function","function":{{"name":"t","description":"d","parameters":{s}}}}}"#
            )
        );
        assert_eq!(
            render(Dialect::OpenaiResponses),
            format!(
                r#"{{"type":"function","name":"t","description":"d","parameters":{s},"strict":false}}"#
            )
        );
        assert_eq!(
            render(Dialect::Gemini),
            format!(r#"{{"name":"t","description":"d","parametersJsonSchema":{s}}}"#)
        );
    }

    #[test]
    fn odd_roots_become_objects() {
        let empty = json!({"type": "object", "properties": {}});
        for odd in [json!(true), json!({}), json!({"type": "string"}), json!({"properties": 3})] {
            let mended = anthropic_schema(odd.clone());
            assert_eq!(mended["type"], empty["type"], "{odd}");
            assert_eq!(mended["properties"], empty["properties"], "{odd}");
        }
    }

    #[test]
    fn alternatives_at_the_root_are_merged() {
        let mended = anthropic_schema(json!({
            "properties": {"a": {"type": "string"}},
            "oneOf": [{"properties": {"b": {}}, "required": ["b"]}, {"properties": {"a": {}, "c": {}}}],
            "allOf": [{"properties": {"d": {}}, "required": ["d"]}]
        }));
        assert_eq!(
            mended,
            json!({"properties": {"a": {"type": "string"}, "d": {}, "b": {}, "c": {}},
                   "required": ["d"], "type": "object"})
        );
    }

    #[test]
    fn references_at_the_root_are_followed() {
        let defs = json!({"a": {"type": "object", "properties": {"x": {}}, "required": ["x"]},
            "b": {"properties": {"y": {"$ref": "#/$defs/c"}}}, "c": {"type": "string"}});
        assert_eq!(
            anthropic_schema(json!({"$ref": "#/$defs/a", "$defs": defs})),
            json!({"$defs": defs, "type": "object", "properties": {"x": {}}, "required": ["x"]})
        );
        let union = json!({"oneOf": [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}], "$defs": defs});
        assert_eq!(
            anthropic_schema(union)["properties"],
            json!({"x": {}, "y": {"$ref": "#/$defs/c"}})
        );
        for lost in ["#", "#/$defs/none", "https://example.com/x"] {
            assert_eq!(
                anthropic_schema(json!({"$ref": lost})),
                json!({"type": "object", "properties": {}})
            );
        }
    }

    #[test]
    fn keys_a_provider_refuses_are_left_out() {
        let mended = anthropic_schema(json!({"type": "object",
            "properties": {"DateCreated>": {}, "ok": {}}, "required": ["DateCreated>", "ok"]}));
        assert_eq!(mended, json!({"type": "object", "properties": {"ok": {}}, "required": ["ok"]}));
    }

    #[test]
    fn a_parameter_called_example_survives_every_form() {
        let schema = json!({"type": "object", "properties": {"example": {"type": "string"},
            "$defs": {"type": "string"}}, "$defs": {"x": {}}});
        for dialect in [Dialect::Anthropic, Dialect::OpenaiChat, Dialect::Gemini] {
            let definition = definition(schema.clone());
            let text = definition.render(dialect);
            assert!(text.get().contains("\"example\"") && text.get().contains("\"$defs\":{\"x\""));
        }
    }
}
