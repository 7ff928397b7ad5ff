//! Messages: their envelope read, their contents kept as they are.

use std::borrow::Cow;

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use crate::{Id, RpcError, code};

/// A message.
///
/// ```
/// use toolcrib_wire::{Id, Message};
///
/// let line = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"add"}}"#;
/// let Message::Request { id, method, params } = Message::parse(line)? else { panic!() };
/// assert_eq!((id, &*method), (Id::from(7), "tools/call"));
/// assert_eq!(params.map(|raw| raw.get()), Some(r#"{"name":"add"}"#));
/// # Ok::<_, toolcrib_wire::Malformed>(())
/// ```
#[derive(Clone, Debug)]
pub enum Message<'a> {
    /// Wants an answer.
    Request {
        /// To be given back with the answer.
        id: Id,
        /// What is asked for.
        method: Cow<'a, str>,
        /// With what.
        params: Option<&'a RawValue>,
    },
    /// Wants none.
    Notification {
        /// What is told.
        method: Cow<'a, str>,
        /// With what.
        params: Option<&'a RawValue>,
    },
    /// An answer.
    Response {
        /// Whose answer; none if the request could not be read.
        id: Option<Id>,
        /// The answer.
        outcome: Result<&'a RawValue, RpcError>,
    },
}

/// What is not a message, and what to answer.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{error}")]
pub struct Malformed {
    /// The id it has, if that much could be read.
    pub id: Option<Id>,
    /// What is wrong with it.
    pub error: RpcError,
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow, default, deserialize_with = "present")]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow, default, deserialize_with = "present")]
    result: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A member that is there, even if it is `null`.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

impl<'a> Message<'a> {
    /// Reads one message.
    pub fn parse(text: &'a str) -> Result<Self, Malformed> {
        let envelope: Envelope<'a> = serde_json::from_str(text).map_err(|error| {
            let kind = if error.is_data() { code::INVALID_REQUEST } else { code::PARSE_ERROR };
            Malformed { id: None, error: RpcError::new(kind, format!("Not a message: {error}")) }
        })?;
        let id: Option<Id> = envelope.id.and_then(|raw| serde_json::from_str(raw.get()).ok());
        match envelope {
            Envelope { method: Some(method), params, id: None, .. } => {
                Ok(Self::Notification { method, params })
            }
            Envelope { method: Some(method), params, .. } => match id {
                Some(id) => Ok(Self::Request { id, method, params }),
                None => Err(invalid(None, "The id must be a number or a string")),
            },
            Envelope { error: Some(raw), .. } => {
                let unreadable =
                    |_| RpcError::new(code::INTERNAL_ERROR, "The error could not be read");
                let error = serde_json::from_str(raw.get()).unwrap_or_else(unreadable);
                Ok(Self::Response { id, outcome: Err(error) })
            }
            Envelope { result: Some(result), .. } => Ok(Self::Response { id, outcome: Ok(result) }),
            _ => Err(invalid(id, "A message needs a method, a result or an error")),
        }
    }
}

fn invalid(id: Option<Id>, message: &str) -> Malformed {
    Malformed { id, error: RpcError::new(code::INVALID_REQUEST, message) }
}

/// For requests and notifications that have no parameters.
pub const NO_PARAMS: Option<&RawValue> = None;

/// A request as text.
pub fn request(id: &Id, method: &str, params: Option<&(impl Serialize + ?Sized)>) -> String {
    write(&Outgoing { id: Some(id), method: Some(method), params, result: NO_PARAMS, error: None })
}

/// A notification as text.
pub fn notification(method: &str, params: Option<&(impl Serialize + ?Sized)>) -> String {
    write(&Outgoing { id: None, method: Some(method), params, result: NO_PARAMS, error: None })
}

/// An answer as text.
pub fn response(id: &Id, result: &(impl Serialize + ?Sized)) -> String {
    let result = Some(result);
    write(&Outgoing { id: Some(id), method: None, params: NO_PARAMS, result, error: None })
}

/// An answer that tells of an error, as text. Without an id if the request could not be read.
pub fn failure(id: Option<&Id>, error: &RpcError) -> String {
    #[derive(Serialize)]
    struct Failure<'a> {
        jsonrpc: &'static str,
        id: Option<&'a Id>,
        error: &'a RpcError,
    }
    write(&Failure { jsonrpc: "2.0", id, error })
}

struct Outgoing<'a, P: ?Sized, R: ?Sized> {
    id: Option<&'a Id>,
    method: Option<&'a str>,
    params: Option<&'a P>,
    result: Option<&'a R>,
    error: Option<&'a RpcError>,
}

impl<P: Serialize + ?Sized, R: Serialize + ?Sized> Serialize for Outgoing<'_, P, R> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("jsonrpc", "2.0")?;
        if let Some(id) = self.id {
            map.serialize_entry("id", id)?;
        }
        if let Some(method) = self.method {
            map.serialize_entry("method", method)?;
        }
        if let Some(params) = self.params {
            map.serialize_entry("params", params)?;
        }
        if let Some(result) = self.result {
            map.serialize_entry("result", result)?;
        }
        if let Some(error) = self.error {
            map.serialize_entry("error", error)?;
        }
        map.end()
    }
}

fn write(message: &impl Serialize) -> String {
    // Raw JSON and types of our own with string keys: they serialise.
    serde_json::to_string(message).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_written_is_read_back() {
        let params = json!({"big": 1, "text": "ä"});
        let line = request(&Id::Text("a".into()), "m", Some(&params));
        assert_eq!(
            line,
            r#"{"jsonrpc":"2.0","id":"a","method":"m","params":{"big":1,"text":"ä"}}"#
        );
        assert!(matches!(Message::parse(&line), Ok(Message::Request { .. })));
        let line = notification("n", NO_PARAMS);
        assert_eq!(line, r#"{"jsonrpc":"2.0","method":"n"}"#);
        assert!(matches!(Message::parse(&line), Ok(Message::Notification { params: None, .. })));
        let line = response(&Id::from(3), &json!(null));
        let Ok(Message::Response { id: Some(id), outcome: Ok(raw) }) = Message::parse(&line) else {
            panic!("{line}")
        };
        assert_eq!((id, raw.get()), (Id::from(3), "null"));
        let error = RpcError::new(-1, "no").with_data(&json!([1]));
        let line = failure(None, &error);
        assert_eq!(
            line,
            r#"{"jsonrpc":"2.0","id":null,"error":{"code":-1,"message":"no","data":[1]}}"#
        );
        let Ok(Message::Response { id: None, outcome: Err(read) }) = Message::parse(&line) else {
            panic!("{line}")
        };
        assert_eq!(read, error);
    }

    #[test]
    fn what_is_inside_stays_as_it_came() {
        let line = r#"{"id":1,"result":{ "n": 12345678901234567890123, "z":1,"a":2 },"extra":[]}"#;
        let Ok(Message::Response { outcome: Ok(raw), .. }) = Message::parse(line) else { panic!() };
        assert_eq!(raw.get(), r#"{ "n": 12345678901234567890123, "z":1,"a":2 }"#);
    }

    #[test]
    fn what_is_no_message_says_why() {
        for (text, expected) in [
            ("", code::PARSE_ERROR),
            ("Listening on port 80", code::PARSE_ERROR),
            ("{\"jsonrpc\":", code::PARSE_ERROR),
            ("[]", code::INVALID_REQUEST),
            ("7", code::INVALID_REQUEST),
            ("{}", code::INVALID_REQUEST),
            (r#"{"id":1}"#, code::INVALID_REQUEST),
            (r#"{"id":{},"method":"m"}"#, code::INVALID_REQUEST),
            (r#"{"id":null,"method":"m"}"#, code::INVALID_REQUEST),
            (r#"{"id":1,"method":7}"#, code::INVALID_REQUEST),
        ] {
            assert_eq!(Message::parse(text).unwrap_err().error.code, expected, "{text}");
        }
        let deep = format!("{{\"id\":1,\"result\":{}", "[".repeat(100_000));
        assert!(Message::parse(&deep).is_err());
    }

    #[test]
    fn an_odd_error_is_still_an_answer() {
        for error in ["7", r#""no""#, "{}", r#"{"message":"no code"}"#] {
            let line = format!(r#"{{"id":1,"error":{error}}}"#);
            let read = Message::parse(&line);
            assert!(matches!(read, Ok(Message::Response { outcome: Err(_), .. })), "{line}");
        }
    }
}
