//! What the bodies of all providers' requests have in common.

use serde::Serialize;
use serde_json::{Map, Value};
use toolcrib_wire::Fields;

/// Writes a body with `extra` laid over it: a member of the same name is replaced where it
/// stands, a new one comes last.
pub(super) fn write(body: &impl Serialize, extra: &Map<String, Value>) -> Vec<u8> {
    let text = serde_json::to_string(body).unwrap_or_default();
    if extra.is_empty() {
        return text.into_bytes();
    }
    let mut fields = Fields::parse(&text).unwrap_or_default();
    for (name, value) in extra {
        fields.set(name, value);
    }
    String::from(Box::<str>::from(fields.to_raw())).into_bytes()
}

/// What the program tells the model, marked as that.
pub(super) fn notice(text: &str) -> String {
    format!("<notice>\n{text}\n</notice>")
}
