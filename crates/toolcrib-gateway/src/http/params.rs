//! Arguments that a tool's schema wants repeated in headers.

use axum::http::header::HeaderMap;
use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_wire::headers::Repeated;
pub(super) use toolcrib_wire::headers::decoded;
use toolcrib_wire::{RpcError, code};

/// Fails if a header is not what the arguments say. One that is missing is missed only where the
/// client was shown the schema.
pub(super) fn check(
    headers: &HeaderMap,
    schema: &str,
    arguments: Option<&RawValue>,
    is_shown: bool,
) -> Result<(), RpcError> {
    // A schema that is wrong in this has nothing to ask of a client.
    let repeated = Repeated::all(schema).unwrap_or_default();
    if repeated.is_empty() {
        return Ok(());
    }
    // What can't be read is refused where it is needed.
    let arguments = arguments.and_then(|raw| serde_json::from_str(raw.get()).ok());
    let arguments: Value = arguments.unwrap_or_default();
    for repeated in repeated {
        let argument = repeated.argument(&arguments);
        let given: Vec<_> = headers.get_all(repeated.header()).iter().collect();
        let fits = match &given[..] {
            [] => argument.is_null() || !is_shown,
            [one] => one.to_str().ok().and_then(decoded).is_some_and(|it| says(&it, argument)),
            // Of two, somebody on the way may have read the other.
            _ => false,
        };
        if !fits {
            let (header, path) = (repeated.header(), repeated.path());
            let text = format!("Header mismatch: {header} is not what `{path}` says");
            return Err(RpcError::new(code::HEADER_MISMATCH, text));
        }
    }
    Ok(())
}

fn says(header: &str, argument: &Value) -> bool {
    match argument {
        Value::String(text) => header == text,
        Value::Bool(flag) => header == flag.to_string(),
        // The same number may be spelled in more than one way.
        Value::Number(number) => header.parse::<f64>().ok() == number.as_f64(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use serde_json::value::to_raw_value;

    #[test]
    fn headers_say_what_the_arguments_say() {
        let schema = json!({"type": "object", "properties": {
            "region": {"type": "string", "x-mcp-header": "Region"},
            "deep": {"properties": {"n": {"type": "integer", "x-mcp-header": "N"}}},
            "flag": {"type": "boolean", "x-mcp-header": "Flag"},
            "other": {"type": "string"},
        }})
        .to_string();
        let fits = |pairs: &[(&'static str, &str)], arguments: Value, is_shown| {
            let headers =
                pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
            let arguments = to_raw_value(&arguments).unwrap();
            check(&headers.collect(), &schema, Some(&arguments), is_shown).is_ok()
        };
        let all = [("mcp-param-region", "eu"), ("mcp-param-n", "42"), ("mcp-param-flag", "true")];
        let arguments = json!({"region": "eu", "deep": {"n": 42.0}, "flag": true, "other": "x"});
        assert!(fits(&all, arguments.clone(), true));
        assert!(fits(&[], json!({"region": null, "deep": 7, "other": "x"}), true));
        assert!(fits(&[("mcp-param-region", "=?base64?w6Q=?=")], json!({"region": "ä"}), true));
        assert!(fits(&[("mcp-param-unknown", "x")], json!({}), true));
        for at in 0..all.len() {
            let (mut fewer, mut wrong) = (all.to_vec(), all);
            fewer.remove(at);
            wrong[at].1 = "other";
            assert!(!fits(&fewer, arguments.clone(), true), "{fewer:?}");
            assert!(fits(&fewer, arguments.clone(), false), "{fewer:?}");
            assert!(!fits(&wrong, arguments.clone(), false), "{wrong:?}");
        }
        assert!(!fits(&all, json!({"region": "eu", "deep": {"n": 42}}), true), "a flag too many");
        assert!(!fits(&[all[0], all[0]], json!({"region": "eu"}), true), "twice");
    }
}
