//! Answers to the wrong question, more than one, or none of an answer's make.

use serde_json::{Value, json};
use toolcrib_wire::{Era, Fields, Id, RpcError, failure};

use super::Strike;
use crate::catalog::Kind;
use crate::script::{Act, PIECE, Script};
use crate::server::respond;

/// A version that there never was.
const ODD_VERSION: &str = "1999-12-31";

pub(super) fn bend(strike: &Strike<'_>, script: &mut Script) {
    let request = strike.request;
    let number = strike.chosen.number;
    match strike.chosen.fault.kind {
        Kind::WrongIds => set(script, "id", &other(&request.id)),
        Kind::DuplicateAnswers => {
            for at in 1..number {
                let text = format!("answer {} of {number}", at + 1);
                script.after(Act::Say(respond(&request.id, &result(request.era, &text))));
            }
        }
        Kind::WrongTypes => {
            let odd = odd_results();
            let at = usize::try_from(strike.before).unwrap_or_default() % odd.len();
            set(script, "result", &odd[at]);
        }
        Kind::ResultAndError => {
            set(script, "error", &json!({"code": -32603, "message": "It failed as well"}));
        }
        Kind::ErrorAnswers => {
            let code = -i64::try_from(number).unwrap_or_default();
            let error = RpcError::new(code, "It failed, as it was told to");
            script.change(|_| Act::Say(failure(Some(&request.id), &error)));
        }
        Kind::OddVersion => {
            let result = if request.era == Era::Stateless {
                json!({"resultType": "complete", "supportedVersions": [ODD_VERSION], "capabilities": {}})
            } else {
                let info = json!({"name": "toolcrib-hostile", "version": "0"});
                json!({"protocolVersion": ODD_VERSION, "capabilities": {}, "serverInfo": info})
            };
            set(script, "result", &result);
        }
        Kind::HugeResult => {
            let text = result(request.era, PIECE);
            script.change(|_| Act::Stretch(respond(&request.id, &text), number));
        }
        _ => {}
    }
}

/// Sets one member of the answer; the others stay as they are.
fn set(script: &mut Script, key: &str, value: &impl serde::Serialize) {
    script.change(|text| {
        let Some(mut fields) = Fields::parse(&text) else { return Act::Say(text) };
        fields.set(key, value);
        Act::Say(fields.to_text())
    });
}

/// An id that was never given.
fn other(id: &Id) -> Id {
    match id {
        Id::Number(number) => Id::from(number.as_u64().unwrap_or_default().saturating_add(1 << 20)),
        Id::Text(text) => Id::Text(format!("{text}, or not")),
    }
}

fn result(era: Era, text: &str) -> String {
    let mut result = json!({"content": [{"type": "text", "text": text}]});
    if era == Era::Stateless {
        result["resultType"] = json!("complete");
    }
    result.to_string()
}

/// What is no result, in various ways.
fn odd_results() -> [Value; 12] {
    [
        json!(7),
        json!("a text"),
        json!([]),
        json!(null),
        json!(true),
        json!({}),
        json!({"content": "a text"}),
        json!({"content": [7, "a text", null]}),
        json!({"content": [{"type": "text"}]}),
        json!({"content": [{"type": "image", "data": 7, "mimeType": []}]}),
        json!({"content": {}, "isError": "no", "structuredContent": []}),
        json!({"resultType": 7, "content": [{"type": "hologram"}]}),
    ]
}
