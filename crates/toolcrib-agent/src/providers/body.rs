//! What the bodies of all providers' requests and answers have in common.

use std::borrow::Cow;

use serde::Serialize;
use serde_json::{Map, Value};
use toolcrib_core::Fingerprint;
use toolcrib_wire::Fields;

use crate::message::{Part, picture_type};
use crate::provider::ProviderError;

/// The longest name of a tool that every API takes.
const LONGEST_NAME: usize = 64;

/// The most bytes that are kept of one answer.
pub(super) const LARGEST: usize = 32_000_000;

/// The most characters that are repeated of what a server says.
const EXCERPT: usize = 500;

/// Writes a body with `extra` laid over it: a member of the same name is replaced where it
/// stands, a new one comes last, and a null takes the member away.
pub(super) fn write(body: &impl Serialize, extra: &Map<String, Value>) -> Vec<u8> {
    let text = serde_json::to_string(body).unwrap_or_default();
    if extra.is_empty() {
        return text.into_bytes();
    }
    let mut fields = Fields::parse(&text).unwrap_or_default();
    for (name, value) in extra {
        if value.is_null() {
            fields.remove(name);
        } else {
            fields.set(name, value);
        }
    }
    String::from(Box::<str>::from(fields.to_raw())).into_bytes()
}

/// What the program tells the model, marked as that.
pub(super) fn notice(text: &str) -> String {
    format!("<notice>\n{text}\n</notice>")
}

/// The name of a tool, as every API takes it.
pub(super) fn name(text: &str) -> Cow<'_, str> {
    word(text, LONGEST_NAME)
}

/// A name or an id of at most so many of the characters that all APIs take. Their own always are;
/// another provider's or a mistaken model's may not be, and would spoil every request after.
pub(super) fn word(text: &str, most: usize) -> Cow<'_, str> {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if text.bytes().all(fits) && (1..=most).contains(&text.len()) {
        return text.into();
    }
    let mut word = String::new();
    for byte in text.bytes() {
        if fits(byte) {
            word.push(char::from(byte));
        } else {
            word.push_str(&format!("_{byte:02x}"));
        }
    }
    if word.is_empty() {
        word.push('_');
    }
    if word.len() > most {
        // What is cut off may be all that tells two of them apart.
        let digits = Fingerprint::of([text.as_bytes()]).to_string();
        let ending = format!("_{}", &digits[..8]);
        word.truncate(most.saturating_sub(ending.len()));
        word.push_str(&ending);
    }
    word.into()
}

/// A part of a message as a model gets it.
pub(super) enum Shown<'a> {
    Text(Cow<'a, str>),
    Picture {
        /// By the name all APIs know it by.
        media_type: &'static str,
        data: &'a str,
    },
}

/// A picture is one for a model that sees them, if it is of a type that every API takes. One
/// that isn't would make each request after it fail.
pub(super) fn shown(part: &Part, sees_images: bool) -> Shown<'_> {
    Shown::Text(match part {
        Part::Text { text } => text.into(),
        Part::Image { .. } if !sees_images => part.described().into(),
        Part::Image { media_type, data } => match picture_type(media_type) {
            Some(_) if data.trim().is_empty() => {
                format!("[{media_type}, not shown: it is empty]").into()
            }
            Some(media_type) => return Shown::Picture { media_type, data },
            None => {
                format!("[{media_type}, not shown: only JPEG, PNG, GIF and WebP pictures can be]")
                    .into()
            }
        },
    })
}

/// The bytes of an answer so far.
#[derive(Default)]
pub(super) struct Size(usize);

impl Size {
    /// Counts more of them, up to the most that are kept.
    pub(super) fn grow(&mut self, by: usize) -> Result<(), ProviderError> {
        self.0 = self.0.saturating_add(by);
        if self.0 > LARGEST { Err(too_long()) } else { Ok(()) }
    }
}

pub(super) fn too_long() -> ProviderError {
    ProviderError::Broken(format!("the answer is longer than {} MB", LARGEST / 1_000_000))
}

/// A server's words for a person: on one line, of bearable length, without keys.
pub(super) fn excerpt(text: &str) -> String {
    let mut words = Vec::new();
    let mut secret = false;
    for word in text.split(|c: char| c.is_whitespace() || c.is_control()) {
        if word.is_empty() {
            continue;
        }
        let is_key = secret || word.trim_start_matches(['"', '\'', '`', '(']).starts_with("sk-");
        words.push(if is_key { "***" } else { word });
        // OpenAI repeats a wrong key, and most who imitate it do too.
        secret = ["provided:", "Bearer"].contains(&word);
    }
    let mut line = words.join(" ");
    if let Some((end, _)) = line.char_indices().nth(EXCERPT) {
        line.truncate(end);
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn written(extra: Value) -> String {
        let Value::Object(extra) = extra else { panic!("{extra}") };
        let body = json!({"a": 1, "b": {"c": 2}, "d": 3});
        String::from_utf8(write(&body, &extra)).unwrap()
    }

    #[test]
    fn extra_members_replace_append_and_take_away() {
        assert_eq!(written(json!({})), r#"{"a":1,"b":{"c":2},"d":3}"#);
        assert_eq!(
            written(json!({"z": [null], "b": {"e": null}, "a": null, "y": null, "x": 0})),
            r#"{"b":{"e":null},"d":3,"z":[null],"x":0}"#
        );
    }

    #[test]
    fn names_and_ids_are_in_the_characters_all_apis_take() {
        for (given, sent) in [
            ("toolu_01-A", "toolu_01-A"),
            ("functions.f:0", "functions_2ef_3a0"),
            ("ä", "_c3_a4"),
            ("", "_"),
        ] {
            assert_eq!(word(given, 40), sent);
        }
        assert_eq!(name(&"x".repeat(64)), "x".repeat(64));
        assert_eq!(name(&"x".repeat(65)).len(), 64);
        assert_eq!(name(""), "_");
    }

    #[test]
    fn what_is_shortened_stays_apart() {
        let long = |end: &str| format!("{}{end}", "x".repeat(60));
        let mut short: Vec<String> =
            ["", "a", "b", ".a"].iter().map(|end| word(&long(end), 40).into_owned()).collect();
        for word in &short {
            assert!(word.starts_with(&"x".repeat(31)) && word.len() == 40, "{word}");
        }
        // Ids are in histories that are kept: the same one in every version.
        assert_eq!(short[0], format!("{}_{}", "x".repeat(31), "3e94dbc1"));
        short.sort();
        short.dedup();
        assert_eq!(short.len(), 4);
        // It only gets too long by being written differently.
        assert_eq!(word(&"é".repeat(20), 40).len(), 40);
    }

    #[test]
    fn only_pictures_that_every_api_takes_are_shown() {
        let picture = |media_type: &str, data: &str, sees_images| {
            let part = Part::Image { media_type: media_type.into(), data: data.into() };
            match shown(&part, sees_images) {
                Shown::Text(text) => text.into_owned(),
                Shown::Picture { media_type, data } => format!("{media_type} {data}"),
            }
        };
        assert_eq!(picture("image/png", "AAAA", true), "image/png AAAA");
        assert_eq!(picture("image/jpg", "AAAA", true), "image/jpeg AAAA");
        assert_eq!(picture("image/webp", "", true), "[image/webp, not shown: it is empty]");
        assert_eq!(
            picture("image/tiff", "AAAA", true),
            "[image/tiff, not shown: only JPEG, PNG, GIF and WebP pictures can be]"
        );
        assert_eq!(
            picture("image/png", "AAAA", false),
            "[image/png, 1 kB, not shown: this model reads text only]"
        );
    }

    #[test]
    fn an_answer_may_have_so_many_bytes_and_no_more() {
        let mut size = Size::default();
        assert_eq!(size.grow(LARGEST), Ok(()));
        let error = ProviderError::Broken("the answer is longer than 32 MB".into());
        assert_eq!(size.grow(1), Err(error.clone()));
        assert_eq!(size.grow(usize::MAX), Err(error));
    }

    #[test]
    fn no_excerpt_shows_a_key_or_goes_on_for_ever() {
        assert_eq!(
            excerpt("Received\n key 'sk-1234567890',\u{1b} sent as Bearer abcdef ghi"),
            "Received key *** sent as Bearer *** ghi"
        );
        assert_eq!(excerpt(" \n"), "");
        assert_eq!(excerpt(&"é".repeat(10_000)).chars().count(), 501);
    }
}
