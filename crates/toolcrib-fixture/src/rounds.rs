//! Questions in the stateless era: a result asks, and the same request comes again with answers.

use data_encoding::BASE64URL_NOPAD;
use serde_json::{Map, Value, json};
use toolcrib_wire::RpcError;

use crate::ask::Ask;

/// Signs what a client is to bring back, so that it is seen if somebody has changed it.
pub(crate) struct Seal([u8; 32]);

impl Seal {
    pub(crate) fn new() -> Self {
        let mut key = [0; 32];
        // Without randomness the key is known, which a test server survives.
        let _ = getrandom::fill(&mut key);
        Self(key)
    }

    fn close(&self, subject: &str, answers: &Map<String, Value>) -> String {
        let text = json!({"for": subject, "answers": answers}).to_string();
        let mark = blake3::keyed_hash(&self.0, text.as_bytes());
        format!("{}.{}", BASE64URL_NOPAD.encode(text.as_bytes()), mark.to_hex())
    }

    fn open(&self, subject: &str, state: &str) -> Option<Map<String, Value>> {
        let (text, mark) = state.split_once('.')?;
        let text = BASE64URL_NOPAD.decode(text.as_bytes()).ok()?;
        // Compared in constant time.
        let mark = blake3::Hash::from_hex(mark).ok()?;
        if mark != blake3::keyed_hash(&self.0, &text) {
            return None;
        }
        let mut state: Value = serde_json::from_slice(&text).ok()?;
        match state["answers"].take() {
            Value::Object(answers) if state["for"] == subject => Some(answers),
            _ => None,
        }
    }
}

/// The answers that a request has brought.
#[derive(Debug)]
pub(crate) struct Rounds {
    subject: String,
    /// Those of earlier rounds, from the state.
    earlier: Map<String, Value>,
    new: Map<String, Value>,
}

impl Rounds {
    /// Reads what a request brought. `subject` is what the state has to have been made for.
    pub(crate) fn read(seal: &Seal, subject: String, params: &Value) -> Result<Self, RpcError> {
        let earlier = match params.get("requestState") {
            None => Map::new(),
            Some(state) => {
                state.as_str().and_then(|state| seal.open(&subject, state)).ok_or_else(|| {
                    RpcError::invalid_params("requestState is not what was given out")
                })?
            }
        };
        let new = match params.get("inputResponses") {
            None => Map::new(),
            Some(Value::Object(answers)) => answers.clone(),
            Some(_) => return Err(RpcError::invalid_params("inputResponses must be an object")),
        };
        Ok(Self { subject, earlier, new })
    }

    /// The answers to all the questions, if all have been brought.
    pub(crate) fn answers(&self, asks: &[Ask]) -> Option<Vec<Value>> {
        let answer = |ask: &Ask| {
            let given = self.new.get(ask.key).or_else(|| self.earlier.get(ask.key));
            given.filter(|given| ask.is_answered_by(given)).cloned()
        };
        asks.iter().map(answer).collect()
    }

    /// The result that asks.
    pub(crate) fn asking(&self, asks: &[Ask]) -> Value {
        let requests: Map<_, _> =
            asks.iter().map(|ask| (ask.key.to_owned(), ask.to_value())).collect();
        json!({"resultType": "input_required", "inputRequests": requests})
    }

    /// The result that asks, with all that has been answered so far to be brought again.
    pub(crate) fn asking_sealed(&self, seal: &Seal, asks: &[Ask]) -> Value {
        let mut answers = self.earlier.clone();
        answers.extend(self.new.clone());
        let mut result = self.asking(asks);
        result["requestState"] = seal.close(&self.subject, &answers).into();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(seal: &Seal, subject: &str, params: Value) -> Result<Rounds, RpcError> {
        Rounds::read(seal, subject.to_owned(), &params)
    }

    #[test]
    fn answers_add_up_over_rounds() {
        let seal = Seal::new();
        let (one, two) = (Ask::text("one", "?", "a"), Ask::text("two", "?", "b"));
        let first = json!({"action": "accept", "content": {"a": "x"}});
        let second = json!({"action": "accept", "content": {"b": "y"}});
        let params = json!({"inputResponses": {"one": first}});
        let state =
            read(&seal, "t", params).unwrap().asking_sealed(&seal, std::slice::from_ref(&two));
        let params = json!({
            "inputResponses": {"two": second},
            "requestState": state["requestState"],
        });
        assert_eq!(
            read(&seal, "t", params).unwrap().answers(&[one, two]),
            Some(vec![first, second])
        );
    }

    #[test]
    fn a_changed_state_is_refused() {
        let seal = Seal::new();
        let asked = read(&seal, "t", json!({})).unwrap().asking_sealed(&seal, &[Ask::roots("r")]);
        let state = asked["requestState"].as_str().unwrap();
        assert!(read(&seal, "t", json!({"requestState": state})).is_ok());
        assert!(read(&seal, "other", json!({"requestState": state})).is_err());
        assert!(read(&Seal::new(), "t", json!({"requestState": state})).is_err());
        for wrong in [format!("{state}-TAMPERED"), format!("x{state}"), String::new()] {
            assert!(read(&seal, "t", json!({"requestState": wrong})).is_err(), "{wrong}");
        }
    }
}
