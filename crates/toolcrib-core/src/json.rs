//! JSON text in one canonical spelling, so that equal schemas have equal bytes.

use serde_json::value::RawValue;

/// Rewrites JSON text without white space and with each string in its shortest spelling.
///
/// Numbers keep their digits and objects their order: the result says exactly what `raw` said,
/// where a detour over [`serde_json::Value`] would round integers beyond 64 bits.
pub(crate) fn compact(raw: &RawValue) -> Box<RawValue> {
    let text = raw.get();
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find('"') {
        out.extend(rest[..start].chars().filter(|c| !c.is_ascii_whitespace()));
        let end = start + string_length(&rest[start..]);
        push_string(&mut out, &rest[start..end]);
        rest = &rest[end..];
    }
    out.extend(rest.chars().filter(|c| !c.is_ascii_whitespace()));
    // The input was valid JSON, so the output is; if not, the input still serves.
    RawValue::from_string(out).unwrap_or_else(|_| raw.to_owned())
}

/// The length in bytes of the string literal `text` begins with, both quotes included.
fn string_length(text: &str) -> usize {
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn push_string(out: &mut String, literal: &str) {
    // A lone surrogate has no other spelling than its escape: keep what can't be decoded.
    if literal.contains('\\')
        && let Ok(text) = serde_json::from_str::<String>(literal)
        && let Ok(spelled) = serde_json::to_string(&text)
    {
        out.push_str(&spelled);
    } else {
        out.push_str(literal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compacted(text: &str) -> String {
        compact(&RawValue::from_string(text.to_owned()).unwrap()).get().to_owned()
    }

    #[test]
    fn white_space_goes_and_strings_stay() {
        assert_eq!(compacted("{ \"a b\" : [ 1 ,\n 2 ] }"), r#"{"a b":[1,2]}"#);
    }

    #[test]
    fn escapes_take_their_shortest_form() {
        assert_eq!(compacted(r#""caf\u00e9 \/ \"x\\\"""#), r#""café / \"x\\\"""#);
        assert_eq!(compacted(r#""\ud83d\ude00""#), "\"😀\"");
    }

    #[test]
    fn what_value_would_lose_is_kept() {
        for text in ["12345678901234567890123", "1.0", "1e400", r#""\ud800""#] {
            assert_eq!(compacted(text), text);
        }
        assert_eq!(compacted(r#"{"b":1,"a":2,"b":3}"#), r#"{"b":1,"a":2,"b":3}"#);
    }

    #[test]
    fn serde_json_keeps_key_order_in_this_build() {
        let value: serde_json::Value = serde_json::from_str(r#"{"z":1,"a":2}"#).unwrap();
        assert_eq!(value.to_string(), r#"{"z":1,"a":2}"#);
    }
}
