//! What comes back: vectors, or why not.

use reqwest::StatusCode;
use serde::Deserialize;

use crate::config::Format;

/// The most characters of a reason that are passed on.
const MOST_REASON: usize = 200;

#[derive(Deserialize)]
struct OpenAi {
    data: Vec<Row>,
}

#[derive(Deserialize)]
struct Row {
    #[serde(default)]
    index: Option<usize>,
    embedding: Vec<f32>,
}

#[derive(Deserialize)]
struct Ollama {
    embeddings: Vec<Vec<f32>>,
}

/// A vector for each of so many texts.
pub(crate) fn vectors(format: Format, body: &[u8], texts: usize) -> Result<Vec<Vec<f32>>, String> {
    let unreadable = |error: serde_json::Error| format!("{error}");
    let rows = match format {
        Format::Ollama => serde_json::from_slice::<Ollama>(body).map_err(unreadable)?.embeddings,
        Format::OpenAi => {
            let mut rows = serde_json::from_slice::<OpenAi>(body).map_err(unreadable)?.data;
            // Some servers leave the numbers out; then the order is that of the texts.
            if rows.iter().all(|row| row.index.is_some()) {
                rows.sort_by_key(|row| row.index);
                if rows.iter().enumerate().any(|(at, row)| row.index != Some(at)) {
                    return Err("its vectors are not numbered from 0 on".to_owned());
                }
            }
            rows.into_iter().map(|row| row.embedding).collect()
        }
    };
    match rows.len() {
        found if found == texts => Ok(rows),
        found => Err(format!("{found} vectors for {texts} texts")),
    }
}

/// Why it says no, and what could be done about that.
pub(crate) fn refusal(status: StatusCode, body: &[u8], has_key: bool) -> String {
    let said = reason(body).map_or(String::new(), |said| format!(": {said}"));
    let advice = match status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN if has_key => {
            "; see whether `key` is right"
        }
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => "; it wants a `key`",
        StatusCode::NOT_FOUND if said.is_empty() => {
            "; there are no embeddings at this address, correct `url` or `format`"
        }
        StatusCode::METHOD_NOT_ALLOWED => {
            "; there are no embeddings at this address, correct `url` or `format`"
        }
        status if status.is_redirection() => "; it has moved, correct `url`",
        _ => "",
    };
    format!("HTTP {status}{said}{advice}")
}

/// What the server says about it, in any of the usual forms, on one line.
fn reason(body: &[u8]) -> Option<String> {
    let value: serde_json::Value = serde_json::from_slice(body).ok()?;
    let error = value.get("error").unwrap_or(&value);
    let text = [error.get("message"), error.get("detail"), Some(error)]
        .into_iter()
        .flatten()
        .find_map(|said| said.as_str())?;
    let is_plain = |c: &char| !c.is_control();
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let text: String = text.chars().filter(is_plain).take(MOST_REASON).collect();
    (!text.is_empty()).then_some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vectors_are_put_in_the_order_of_their_texts() {
        let body = br#"{"object": "list", "model": "m", "usage": {"total_tokens": 3}, "data": [
            {"object": "embedding", "index": 1, "embedding": [0.5, -1]},
            {"object": "embedding", "index": 0, "embedding": [1, 2e-3]}]}"#;
        let rows = vectors(Format::OpenAi, body, 2).unwrap();
        assert_eq!(rows, [[1.0, 0.002], [0.5, -1.0]]);
        let body = br#"{"data": [{"embedding": [1]}, {"embedding": [2]}]}"#;
        assert_eq!(vectors(Format::OpenAi, body, 2).unwrap(), [[1.0], [2.0]]);
        let body = br#"{"model": "m", "embeddings": [[1, 2], [3, 4]], "total_duration": 1}"#;
        assert_eq!(vectors(Format::Ollama, body, 2).unwrap(), [[1.0, 2.0], [3.0, 4.0]]);
    }

    #[test]
    fn what_is_not_what_was_asked_for_is_refused() {
        for (format, body) in [
            (Format::OpenAi, r#"{"data": [{"index": 0, "embedding": [1]}]}"#),
            (
                Format::OpenAi,
                r#"{"data": [{"index": 0, "embedding": [1]}, {"index": 0, "embedding": [1]}]}"#,
            ),
            (
                Format::OpenAi,
                r#"{"data": [{"index": 0, "embedding": "AACAPw=="}, {"index": 1, "embedding": ""}]}"#,
            ),
            (Format::OpenAi, r#"{"embeddings": [[1], [2]]}"#),
            (Format::Ollama, r#"{"embeddings": [[1]]}"#),
            (Format::Ollama, r#"{"embeddings": [[1], [null]]}"#),
            (Format::Ollama, r#"{"embeddings": [[1], [2]"#),
            (Format::Ollama, "<html>"),
            (Format::Ollama, ""),
        ] {
            assert!(vectors(format, body.as_bytes(), 2).is_err(), "{body}");
        }
    }

    #[test]
    fn a_refusal_says_what_the_server_said_and_what_to_do() {
        let told = |status, body: &str, key| {
            refusal(StatusCode::from_u16(status).unwrap(), body.as_bytes(), key)
        };
        assert_eq!(
            told(404, r#"{"error": "model \"x\" not found,\n try pulling it first"}"#, false),
            "HTTP 404 Not Found: model \"x\" not found, try pulling it first"
        );
        assert_eq!(
            told(401, r#"{"error": {"message": "No key.", "type": "x"}}"#, false),
            "HTTP 401 Unauthorized: No key.; it wants a `key`"
        );
        assert!(told(403, "<html>", true).ends_with("; see whether `key` is right"));
        assert!(told(404, "", true).ends_with("correct `url` or `format`"));
        assert_eq!(told(500, "[]", true), "HTTP 500 Internal Server Error");
        assert!(told(302, "", true).ends_with("; it has moved, correct `url`"));
    }
}
