//! What is read of a message besides keeping it: whether it is JSON, and what was said in it.

use std::borrow::Cow;

use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::Value;
use serde_json::value::RawValue;

/// The longest title, in characters.
const LONGEST_TITLE: usize = 60;

/// The most of one message that a search looks at, in bytes.
const MOST_BYTES: usize = 32 << 10;

/// What was said in a message.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Said {
    /// What a person or a model said, in lower case.
    pub(crate) text: Option<String>,
    /// How it begins, if a person said it.
    pub(crate) title: Option<String>,
}

#[derive(Deserialize)]
struct Head<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

/// Fails if a message is no JSON. One in another form than ours says nothing.
pub(crate) fn said(message: &str) -> Result<Said, serde_json::Error> {
    let Ok(Head { role, content: Some(content) }) = serde_json::from_str(message) else {
        return check(message).map(|()| Said::default());
    };
    let is_person = role == "user";
    if !is_person && role != "assistant" {
        return Ok(Said::default());
    }
    let text = match serde_json::from_str(content.get()) {
        Ok(Value::String(text)) => text,
        Ok(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<&str>>().join("\n")
        }
        _ => String::new(),
    };
    let end = text.floor_char_boundary(MOST_BYTES);
    let title = if is_person { one_line(&text[..end]) } else { None };
    let text = text[..end].to_lowercase();
    Ok(Said { text: (!text.is_empty()).then_some(text), title })
}

/// Fails if a text is no JSON.
pub(crate) fn check(text: &str) -> Result<(), serde_json::Error> {
    serde_json::from_str::<IgnoredAny>(text).map(drop)
}

/// The beginning of a text, on one line and without what could move a terminal's cursor. `None`
/// if nothing is left.
pub(crate) fn one_line(text: &str) -> Option<String> {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control());
    let mut line = String::new();
    for word in words.filter(|word| !word.is_empty()) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
        if line.chars().nth(LONGEST_TITLE).is_some() {
            line = line.chars().take(LONGEST_TITLE - 1).collect();
            line.truncate(line.trim_end().len());
            line.push('…');
            break;
        }
    }
    (!line.is_empty()).then_some(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_and_models_say_is_found_and_people_give_the_title() {
        let asked = r#"{"role":"user","content":[{"type":"text","text":"Wie wird\n das WETTER,"},
            {"type":"image","media_type":"image/png","data":"AAAA"},{"type":"text","text":"Ärger?"}]}"#;
        assert_eq!(
            said(asked).unwrap(),
            Said {
                text: Some("wie wird\n das wetter,\närger?".into()),
                title: Some("Wie wird das WETTER, Ärger?".into()),
            }
        );
        let answered = r#"{"role":"assistant","content":[{"type":"text","text":"Gut."},
            {"type":"call","id":"1","name":"t","arguments":"{}"}]}"#;
        assert_eq!(said(answered).unwrap(), Said { text: Some("gut.".into()), title: None });
        let plain = said(r#"{"role":"user","content":"hi"}"#).unwrap();
        assert_eq!(plain.title.as_deref(), Some("hi"));
    }

    #[test]
    fn other_messages_say_nothing_and_are_kept() {
        for message in [
            r#"{"role":"tool","results":[]}"#,
            r#"{"role":"host","content":"x","kind":"k"}"#,
            r#"{"role":7,"content":[]}"#,
            r#"{"role":"user","content":7}"#,
            r#"{"role":"user","content":[{"text":7}]}"#,
            "[]",
            "null",
        ] {
            assert_eq!(said(message).unwrap(), Said::default(), "{message}");
        }
    }

    #[test]
    fn what_is_no_json_is_refused() {
        for message in ["", "{", "Dear diary", r#"{"role":"user","content":"x"} x"#, "\u{0}"] {
            assert!(said(message).is_err(), "{message}");
        }
    }

    #[test]
    fn titles_are_one_line_of_at_most_sixty_characters() {
        let exactly = "é".repeat(60);
        assert_eq!(one_line(&exactly).unwrap(), exactly);
        let longer = one_line(&"wörd ".repeat(50)).unwrap();
        assert_eq!((longer.chars().count(), longer.ends_with("wörd…")), (60, true), "{longer}");
        assert_eq!(one_line(" a\u{1b}[2J\r\n\tb\u{0} ").unwrap(), "a [2J b");
        assert_eq!(one_line(" \n\u{7}"), None);
    }

    #[test]
    fn a_long_text_is_searched_as_far_as_that_is_quick() {
        let long = format!(r#"{{"role":"user","content":"{}"}}"#, "é".repeat(MOST_BYTES));
        assert_eq!(said(&long).unwrap().text.unwrap().len(), MOST_BYTES);
    }
}
