//! Text compared, hashed, encoded, searched.

use std::time::Duration;

use data_encoding::{BASE64, BASE64_NOPAD, BASE64URL_NOPAD, HEXLOWER, HEXLOWER_PERMISSIVE};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256, Sha512};
use similar::{ChangeTag, TextDiff};

use super::LONGEST_INPUT;
use crate::error::{Failure, check_size};
use crate::tool::Stop;

const MOST_MATCHES: usize = 1_000;

pub(super) const DIFF_TEXT: (&str, &str) = (
    "diff_text",
    "Compare two texts line by line and get the difference as a unified diff. Use it to see what \
     changed between two versions of a text that you have at hand.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DiffText {
    /// The text before.
    old: String,
    /// The text after.
    new: String,
    /// How many unchanged lines to show around each change.
    #[serde(default = "three")]
    #[schemars(range(max = 100))]
    context: usize,
}

fn three() -> usize {
    3
}

pub(super) fn diff_text(_: &(), arguments: DiffText, _: &Stop) -> Result<String, Failure> {
    check_size("`old`", &arguments.old, LONGEST_INPUT)?;
    check_size("`new`", &arguments.new, LONGEST_INPUT)?;
    // Past the limit the difference is still right, only longer than it need be.
    let limit = Duration::from_secs(5);
    let diff = TextDiff::configure().timeout(limit).diff_lines(&arguments.old, &arguments.new);
    let count = |tag| diff.iter_all_changes().filter(|change| change.tag() == tag).count();
    let (added, removed) = (count(ChangeTag::Insert), count(ChangeTag::Delete));
    let unified = diff.unified_diff().context_radius(arguments.context.min(100)).to_string();
    if added + removed == 0 {
        return Ok("The texts are the same.".to_owned());
    }
    Ok(format!("Lines added: {added}, removed: {removed}.\n\n{unified}"))
}

pub(super) const HASH_TEXT: (&str, &str) = (
    "hash_text",
    "Compute the SHA-256, SHA-512 or BLAKE3 hash (checksum) of a text or of bytes given as base64 or \
     hex. Use it to make or verify a fingerprint.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct HashText {
    /// What to hash.
    text: String,
    /// The hash function.
    #[serde(default)]
    algorithm: Algorithm,
    /// How the text stands for bytes.
    #[serde(default)]
    input: Input,
}

#[derive(Clone, Copy, Default, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Algorithm {
    #[default]
    Sha256,
    Sha512,
    Blake3,
}

#[derive(Clone, Copy, Default, Deserialize, serde::Serialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Input {
    #[default]
    Text,
    Base64,
    Hex,
}

pub(super) fn hash_text(_: &(), arguments: HashText, _: &Stop) -> Result<Value, Failure> {
    check_size("The text", &arguments.text, LONGEST_INPUT)?;
    let bytes = match arguments.input {
        Input::Text => arguments.text.into_bytes(),
        Input::Base64 => decode(&arguments.text, Encoding::Base64)?,
        Input::Hex => decode(&arguments.text, Encoding::Hex)?,
    };
    let hash = match arguments.algorithm {
        Algorithm::Sha256 => HEXLOWER.encode(&Sha256::digest(&bytes)),
        Algorithm::Sha512 => HEXLOWER.encode(&Sha512::digest(&bytes)),
        Algorithm::Blake3 => blake3::hash(&bytes).to_hex().to_string(),
    };
    Ok(json!({"algorithm": arguments.algorithm, "hash": hash, "bytes": bytes.len()}))
}

pub(super) const ENCODE_TEXT: (&str, &str) = (
    "encode_text",
    "Encode a text as base64, URL-safe base64, hex or percent-encoding for a URL. Use it to put \
     text where only certain characters may stand.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Encode {
    /// The text.
    text: String,
    /// The encoding.
    encoding: Encoding,
}

#[derive(Clone, Copy, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum Encoding {
    Base64,
    Base64url,
    Hex,
    Url,
}

/// What may stand anywhere in a URL as it is.
const UNRESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(super) fn encode_text(_: &(), arguments: Encode, _: &Stop) -> Result<String, Failure> {
    check_size("The text", &arguments.text, LONGEST_INPUT)?;
    let bytes = arguments.text.as_bytes();
    Ok(match arguments.encoding {
        Encoding::Base64 => BASE64.encode(bytes),
        Encoding::Base64url => BASE64URL_NOPAD.encode(bytes),
        Encoding::Hex => HEXLOWER.encode(bytes),
        Encoding::Url => utf8_percent_encode(&arguments.text, UNRESERVED).to_string(),
    })
}

pub(super) const DECODE_TEXT: (&str, &str) = (
    "decode_text",
    "Decode base64, URL-safe base64, hex or percent-encoded text. Use it to read an encoded value; \
     bytes that are no text are given as hex.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Decode {
    /// The encoded text.
    text: String,
    /// The encoding it is in.
    encoding: Encoding,
}

pub(super) fn decode_text(_: &(), arguments: Decode, _: &Stop) -> Result<Value, Failure> {
    check_size("The text", &arguments.text, LONGEST_INPUT)?;
    let bytes = decode(&arguments.text, arguments.encoding)?;
    Ok(match String::from_utf8(bytes) {
        Ok(text) => json!({"text": text}),
        Err(error) => json!({"hex": HEXLOWER.encode(error.as_bytes())}),
    })
}

fn decode(text: &str, encoding: Encoding) -> Result<Vec<u8>, Failure> {
    let squeezed: String = text.chars().filter(|letter| !letter.is_whitespace()).collect();
    let unpadded = squeezed.trim_end_matches('=').as_bytes();
    let (decoded, name) = match encoding {
        Encoding::Base64 => (BASE64_NOPAD.decode(unpadded), "base64"),
        Encoding::Base64url => (BASE64URL_NOPAD.decode(unpadded), "URL-safe base64"),
        Encoding::Hex => (HEXLOWER_PERMISSIVE.decode(squeezed.as_bytes()), "hex"),
        Encoding::Url => return Ok(percent_decode_str(text).collect()),
    };
    decoded.map_err(|error| Failure::invalid(format!("Not {name}: {error}.")))
}

pub(super) const REGEX_EXTRACT: (&str, &str) = (
    "regex_extract",
    "Find every match of a regular expression in a text, with its capture groups, or replace them. \
     Use it to pull dates, numbers, names or other patterns out of text.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RegexExtract {
    /// The text to search.
    text: String,
    /// A regular expression in Rust's syntax; `(?P<name>…)` names a group, `(?i)` ignores case.
    pattern: String,
    /// Give the text with each match replaced by this; `$1` or `$name` stands for a group.
    replace_with: Option<String>,
    /// How many matches to give at most.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1000))]
    limit: usize,
}

fn hundred() -> usize {
    100
}

pub(super) fn regex_extract(
    _: &(),
    arguments: RegexExtract,
    stop: &Stop,
) -> Result<Value, Failure> {
    check_size("The text", &arguments.text, LONGEST_INPUT)?;
    check_size("The pattern", &arguments.pattern, 2_000)?;
    let pattern = regex::RegexBuilder::new(&arguments.pattern)
        .size_limit(2 * 1024 * 1024)
        .build()
        .map_err(|error| Failure::invalid(format!("The pattern is not usable: {error}")))?;
    if let Some(replacement) = &arguments.replace_with {
        return replace(&pattern, &arguments.text, replacement, stop);
    }
    let limit = arguments.limit.clamp(1, MOST_MATCHES);
    let mut matches = Vec::new();
    for found in pattern.captures_iter(&arguments.text) {
        stop.check()?;
        if matches.len() == limit {
            return Ok(json!({"matches": matches, "truncated": true}));
        }
        let whole = found.get(0).map_or("", |part| part.as_str());
        let groups: Map<String, Value> = pattern
            .capture_names()
            .enumerate()
            .skip(1)
            .map(|(at, name)| {
                let name = name.map_or_else(|| at.to_string(), str::to_owned);
                (name, json!(found.get(at).map(|part| part.as_str())))
            })
            .collect();
        matches.push(match groups.is_empty() {
            true => json!({"match": whole}),
            false => json!({"match": whole, "groups": groups}),
        });
    }
    Ok(json!({"matches": matches, "truncated": false}))
}

fn replace(
    pattern: &regex::Regex,
    text: &str,
    replacement: &str,
    stop: &Stop,
) -> Result<Value, Failure> {
    let mut replaced = String::new();
    let mut count = 0_usize;
    let mut copied = 0;
    for found in pattern.captures_iter(text) {
        stop.check()?;
        let Some(whole) = found.get(0) else { continue };
        replaced.push_str(&text[copied..whole.start()]);
        found.expand(replacement, &mut replaced);
        copied = whole.end();
        count += 1;
        check_size("The result", &replaced, LONGEST_INPUT)?;
    }
    replaced.push_str(&text[copied..]);
    Ok(json!({"replacements": count, "text": replaced}))
}
