//! What a server may ask of a client.

use serde_json::{Value, json};

/// One question, in the words of the protocol.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// What its answer goes by, where several are on the way.
    pub(crate) key: &'static str,
    pub(crate) method: &'static str,
    pub(crate) params: Value,
}

impl Ask {
    /// Asks the person for the properties of an object.
    pub(crate) fn person(key: &'static str, message: &str, schema: Value) -> Self {
        let params = json!({"message": message, "requestedSchema": schema});
        Self { key, method: "elicitation/create", params }
    }

    /// Asks the person for one required text.
    pub(crate) fn text(key: &'static str, message: &str, property: &str) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {property: {"type": "string"}},
            "required": [property],
        });
        Self::person(key, message, schema)
    }

    /// Asks the person for one required yes or no.
    pub(crate) fn yes(key: &'static str, message: &str, property: &str) -> Self {
        let schema = json!({
            "type": "object",
            "properties": {property: {"type": "boolean"}},
            "required": [property],
        });
        Self::person(key, message, schema)
    }

    /// Asks the client's model.
    pub(crate) fn model(key: &'static str, prompt: &str, most_tokens: u32) -> Self {
        let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
        let params = json!({"messages": [message], "maxTokens": most_tokens});
        Self { key, method: "sampling/createMessage", params }
    }

    /// Asks which folders the client works in.
    pub(crate) fn roots(key: &'static str) -> Self {
        Self { key, method: "roots/list", params: json!({}) }
    }

    /// The capability a client needs to be asked this.
    pub(crate) fn capability(&self) -> &'static str {
        match self.method {
            "elicitation/create" => "elicitation",
            "sampling/createMessage" => "sampling",
            _ => "roots",
        }
    }

    /// The question as it stands in a result that asks for input.
    pub(crate) fn to_value(&self) -> Value {
        json!({"method": self.method, "params": self.params})
    }

    /// Whether this is an answer to the question at all.
    pub(crate) fn is_answered_by(&self, answer: &Value) -> bool {
        match self.capability() {
            "elicitation" => match answer["action"].as_str() {
                Some("accept") => answer["content"].is_object(),
                Some("decline" | "cancel") => true,
                _ => false,
            },
            "sampling" => answer["role"].is_string() && !answer["content"].is_null(),
            _ => answer["roots"].is_array(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_another_kind_is_none() {
        let accepted = json!({"action": "accept", "content": {"name": "Ada"}});
        let said = json!({"role": "assistant", "content": {"type": "text", "text": "x"}});
        let folders = json!({"roots": []});
        let asks = [Ask::text("a", "?", "name"), Ask::model("a", "?", 9), Ask::roots("a")];
        for (at, ask) in asks.iter().enumerate() {
            for (of, answer) in [&accepted, &said, &folders].into_iter().enumerate() {
                assert_eq!(ask.is_answered_by(answer), at == of, "{} {answer}", ask.method);
            }
            assert!(!ask.is_answered_by(&json!(12345)));
        }
        assert!(!asks[0].is_answered_by(&json!({"action": "accept"})));
        assert!(asks[0].is_answered_by(&json!({"action": "decline"})));
    }
}
