//! What the headers of an HTTP request repeat of its body.

use std::borrow::Cow;

use memchr::memmem;
use serde_json::Value;

/// The keyword of a schema that names a header, and what that header's name begins with.
const KEYWORD: &str = "x-mcp-header";
const PREFIX: &str = "mcp-param-";

/// Keywords whose value is a schema or a list of them, and those whose value names schemas.
/// `properties` is not among them: what stands below is found at one place of the arguments.
const SUBSCHEMAS: [&str; 15] = [
    "items",
    "prefixItems",
    "contains",
    "additionalItems",
    "additionalProperties",
    "unevaluatedItems",
    "unevaluatedProperties",
    "propertyNames",
    "allOf",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "then",
    "else",
];
const NAMED_SUBSCHEMAS: [&str; 4] =
    ["$defs", "definitions", "patternProperties", "dependentSchemas"];

/// An argument of a tool that is repeated in a header.
///
/// ```
/// use serde_json::json;
/// use toolcrib_wire::headers::Repeated;
///
/// let schema = r#"{"properties":{"where":{"type":"string","x-mcp-header":"Region"}}}"#;
/// let repeated = Repeated::all(schema)?;
/// assert_eq!(repeated[0].header(), "mcp-param-region");
/// assert_eq!(repeated[0].value(&json!({"where": " eu"})).as_deref(), Some("=?base64?IGV1?="));
/// # Ok::<_, String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repeated {
    header: String,
    path: Vec<String>,
}

impl Repeated {
    /// The arguments that a tool's schema wants repeated; or why such a tool can't be used.
    pub fn all(schema: &str) -> Result<Vec<Self>, String> {
        if memmem::find(schema.as_bytes(), KEYWORD.as_bytes()).is_none() {
            return Ok(Vec::new());
        }
        let Ok(schema) = serde_json::from_str(schema) else { return Ok(Vec::new()) };
        let mut found = Vec::new();
        walk(&schema, Some(&mut Vec::new()), &mut found)?;
        Ok(found)
    }

    /// The header's name, in lower case.
    pub fn header(&self) -> &str {
        &self.header
    }

    /// Where the argument stands, for people to read.
    pub fn path(&self) -> String {
        self.path.join(".")
    }

    /// The argument; `null` if it is missing.
    pub fn argument<'a>(&self, arguments: &'a Value) -> &'a Value {
        self.path.iter().fold(arguments, |value, name| &value[name])
    }

    /// What the header has to say; `None` if there is no such argument.
    pub fn value(&self, arguments: &Value) -> Option<String> {
        let text = match self.argument(arguments) {
            Value::String(text) => return Some(encoded(text).into_owned()),
            Value::Bool(flag) => flag.to_string(),
            Value::Number(number) => match number.as_f64() {
                // A whole number may be spelled with a fraction of nothing.
                Some(float) if number.is_f64() && float.fract() == 0.0 => format!("{float:.0}"),
                _ => number.to_string(),
            },
            Value::Null | Value::Array(_) | Value::Object(_) => return None,
        };
        Some(text)
    }
}

/// Looks for the keyword. Without a `path`, what is found stands where no one argument is meant.
fn walk(
    schema: &Value,
    mut path: Option<&mut Vec<String>>,
    found: &mut Vec<Repeated>,
) -> Result<(), String> {
    if let Some(name) = schema.get(KEYWORD) {
        let place = path.as_deref().map(Vec::as_slice).unwrap_or_default();
        let header = header(name, place, &schema["type"])?;
        if found.iter().any(|other| other.header == header) {
            return Err(format!("its {KEYWORD} {name} is there twice"));
        }
        found.push(Repeated { header, path: place.to_vec() });
    }
    for (name, schema) in schema["properties"].as_object().into_iter().flatten() {
        match &mut path {
            Some(path) => {
                path.push(name.clone());
                walk(schema, Some(path), found)?;
                path.pop();
            }
            None => walk(schema, None, found)?,
        }
    }
    for below in SUBSCHEMAS.into_iter().filter_map(|keyword| schema.get(keyword)) {
        match below {
            Value::Array(schemas) => schemas.iter().try_for_each(|it| walk(it, None, found))?,
            schema => walk(schema, None, found)?,
        }
    }
    let named = NAMED_SUBSCHEMAS.into_iter().filter_map(|keyword| schema[keyword].as_object());
    named.flat_map(|schemas| schemas.values()).try_for_each(|schema| walk(schema, None, found))
}

/// The header's name, if the keyword may stand where it does.
fn header(name: &Value, path: &[String], kind: &Value) -> Result<String, String> {
    let wrong = |why| Err(format!("its {KEYWORD} {name} {why}"));
    if path.is_empty() {
        return wrong("does not stand at a property");
    }
    let is_plain = match kind {
        Value::String(kind) => ["string", "integer", "boolean"].contains(&kind.as_str()),
        _ => false,
    };
    if !is_plain {
        return wrong("stands at something else than a string, an integer or a boolean");
    }
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    match name.as_str() {
        Some(text) if !text.is_empty() && text.bytes().all(is_token) => {
            Ok(format!("{PREFIX}{}", text.to_ascii_lowercase()))
        }
        _ => wrong("can't be the name of a header"),
    }
}

/// Text as the value of a header: in Base64 if it could not stand there otherwise.
pub fn encoded(text: &str) -> Cow<'_, str> {
    let is_plain = text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && text.trim() == text
        && in_base64(text).is_none();
    if is_plain {
        return Cow::Borrowed(text);
    }
    Cow::Owned(format!("=?base64?{}?=", data_encoding::BASE64.encode(text.as_bytes())))
}

/// The text that a header's value stands for; `None` if it is none.
pub fn decoded(value: &str) -> Option<Cow<'_, str>> {
    let Some(base64) = in_base64(value) else { return Some(Cow::Borrowed(value)) };
    let bytes = data_encoding::BASE64.decode(base64.as_bytes()).ok()?;
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

fn in_base64(value: &str) -> Option<&str> {
    value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_header_may_be_in_base64() {
        for (text, value) in [
            ("us-west1", "us-west1"),
            ("us west", "us west"),
            ("", ""),
            ("Hello, 世界", "=?base64?SGVsbG8sIOS4lueVjA==?="),
            (" a", "=?base64?IGE=?="),
            ("a\tb", "=?base64?YQli?="),
            ("a\r\nX: 1", "=?base64?YQ0KWDogMQ==?="),
            ("=?base64?IGE=?=", "=?base64?PT9iYXNlNjQ/SUdFPT89?="),
        ] {
            assert_eq!(encoded(text), value);
            assert_eq!(decoded(value).as_deref(), Some(text));
        }
        assert_eq!(decoded("=?base64?!?="), None);
        assert_eq!(decoded("=?base64?/w==?="), None);
    }

    #[test]
    fn arguments_are_found_where_the_schema_says() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "flag": {"type": "boolean", "x-mcp-header": "Flag"},
            "x-mcp-header": {"type": "string", "default": {"x-mcp-header": 7}},
        }});
        let all = Repeated::all(&schema.to_string()).unwrap();
        let names: Vec<_> = all.iter().map(|it| format!("{} {}", it.header(), it.path())).collect();
        let expected = ["mcp-param-region region", "mcp-param-n deep.n", "mcp-param-flag flag"];
        assert_eq!(names, expected);
        let values =
            |arguments: Value| all.iter().map(|it| it.value(&arguments)).collect::<Vec<_>>();
        let text = |text: &str| Some(text.to_owned());
        assert_eq!(
            values(json!({"region": "ä", "deep": {"n": 42.0}, "flag": false})),
            [text("=?base64?w6Q=?="), text("42"), text("false")]
        );
        assert_eq!(
            values(json!({"region": null, "deep": {"n": -9007199254740993_i64}, "flag": [1]})),
            [None, text("-9007199254740993"), None]
        );
        assert_eq!(values(json!(7)), [None, None, None]);
    }

    #[test]
    fn what_may_not_stand_in_a_header_is_seen() {
        let at = |schema: Value| json!({"properties": {"a": schema}});
        let named = |name: Value| at(json!({"type": "string", "x-mcp-header": name}));
        let fine = json!({"type": "string", "x-mcp-header": "Ok"});
        let mut wrong: Vec<Value> = ["", "My Region", "a:b", "Région", "a\t1", "a\r\n"]
            .map(|name| named(json!(name)))
            .into();
        wrong.extend([named(json!(7)), named(json!(null))]);
        for kind in [json!("object"), json!("array"), json!("null"), json!("number"), json!(null)] {
            wrong.push(at(json!({"type": kind, "x-mcp-header": "Ok"})));
        }
        wrong.push(json!({"type": "string", "x-mcp-header": "Ok"}));
        wrong.push(
            json!({"properties": {"a": fine, "b": {"type": "string", "x-mcp-header": "oK"}}}),
        );
        wrong.push(json!({"$defs": {"a": fine}}));
        wrong.push(json!({"else": {"properties": {"a": fine}}}));
        for schema in [json!({"items": fine}), json!({"anyOf": [at(fine.clone())]})] {
            wrong.extend([schema.clone(), at(schema)]);
        }
        for schema in wrong {
            assert!(Repeated::all(&schema.to_string()).is_err(), "{schema}");
        }
        for schema in ["7", "{", r#"{"description":"x-mcp-header"}"#, r#"{"properties":7}"#] {
            assert_eq!(Repeated::all(schema), Ok(Vec::new()), "{schema}");
        }
    }
}
