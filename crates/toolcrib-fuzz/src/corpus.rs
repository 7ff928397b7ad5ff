//! Inputs, and what becomes of them.

use fastrand::Rng;
use serde_json::{Value, json};

/// Inputs that are right, to be made wrong.
#[derive(Clone, Debug)]
pub struct Corpus {
    whole: Vec<Vec<u8>>,
    /// Pieces that mean something to the reader.
    words: Vec<Vec<u8>>,
}

/// No input grows beyond this.
const MOST_BYTES: usize = 64 << 10;

impl Corpus {
    /// Inputs to begin with, and words to put into them.
    pub fn new<'a>(
        whole: impl IntoIterator<Item = &'a str>,
        words: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let bytes = |text: &str| text.as_bytes().to_vec();
        Self {
            whole: whole.into_iter().map(bytes).collect(),
            words: words.into_iter().map(bytes).collect(),
        }
    }

    /// One of the inputs as it is.
    pub fn pick(&self, rng: &mut Rng) -> Vec<u8> {
        rng.choice(&self.whole).cloned().unwrap_or_default()
    }

    /// One of the inputs, changed in a few places: as JSON if it is that, or as bytes.
    pub fn mutated(&self, rng: &mut Rng) -> Vec<u8> {
        let mut input = self.pick(rng);
        let mut is_whole = true;
        if rng.bool()
            && let Ok(mut value) = serde_json::from_slice(&input)
        {
            is_whole = false;
            for _ in 0..rng.usize(1..4) {
                change(&mut value, rng);
            }
            input = value.to_string().into_bytes();
        }
        if is_whole || rng.u8(..) < 60 {
            for _ in 0..rng.usize(1..6) {
                self.mutate(&mut input, rng);
            }
        }
        input.truncate(MOST_BYTES);
        input
    }

    fn mutate(&self, input: &mut Vec<u8>, rng: &mut Rng) {
        let at = rng.usize(..=input.len());
        let end = at + rng.usize(..=(input.len() - at).min(64));
        match rng.u8(..9) {
            0 if at < input.len() => input[at] ^= 1 << rng.u8(..8),
            1 if at < input.len() => input[at] = rng.u8(..),
            2 => drop(input.drain(at..end)),
            3 => {
                let piece = input[at..end].to_vec();
                let times = if rng.u8(..) < 8 { rng.usize(1..500) } else { rng.usize(1..4) };
                drop(input.splice(at..at, piece.repeat(times)));
            }
            4 => {
                let word = rng.choice(&self.words).cloned().unwrap_or_default();
                drop(input.splice(at..end, word));
            }
            5 => {
                let word = rng.choice(ODD).copied().unwrap_or_default();
                drop(input.splice(at..at, word.iter().copied()));
            }
            6 => {
                let other = self.pick(rng);
                let from = rng.usize(..=other.len());
                drop(input.splice(at.., other[from..].iter().copied()));
            }
            7 => input.truncate(at),
            _ => {
                let bytes: Vec<u8> = (0..rng.usize(1..9)).map(|_| rng.u8(..)).collect();
                drop(input.splice(at..at, bytes));
            }
        }
    }
}

/// Pieces that trip readers of anything.
const ODD: &[&[u8]] = &[
    b"\0",
    b"\n",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\"",
    b"\\",
    b"\\ud800",
    b"\\u0000",
    b"{",
    b"}",
    b"[[[[[[[[[[[[[[[[",
    b"]",
    b",",
    b":",
    b"null",
    b"true",
    b"-0",
    b"1e999",
    b"-1e-999",
    b"18446744073709551616",
    b"9007199254740993",
    b"0.1",
    b"{}",
    b"[]",
    b"\"\"",
    b"\xff",
    b"\xef\xbb\xbf",
    b"\xed\xa0\x80",
    b"\xe2\x80\xae",
    b"\xf0\x9f\x92\xa9",
    b"${HOME}",
    b"../../..",
    b"%00",
];

/// Changes one place of a value.
fn change(value: &mut Value, rng: &mut Rng) {
    match value {
        Value::Object(members) if !members.is_empty() && rng.u8(..) < 220 => {
            let at = rng.usize(..members.len());
            let key = members.keys().nth(at).cloned().unwrap_or_default();
            match rng.u8(..8) {
                0 => drop(members.remove(&key)),
                1 => {
                    let member = members.remove(&key).unwrap_or_default();
                    members.insert(odd_text(rng), member);
                }
                2 => drop(members.insert(odd_text(rng), odd(rng))),
                _ => {
                    if let Some(member) = members.get_mut(&key) {
                        change(member, rng);
                    }
                }
            }
        }
        Value::Array(items) if !items.is_empty() && rng.u8(..) < 220 => {
            let at = rng.usize(..items.len());
            match rng.u8(..6) {
                0 => drop(items.remove(at)),
                1 => {
                    let copies = vec![items[at].clone(); rng.usize(1..40)];
                    items.extend(copies);
                }
                _ => change(&mut items[at], rng),
            }
        }
        other => *other = odd(rng),
    }
}

fn odd_text(rng: &mut Rng) -> String {
    let texts = [
        "",
        "_meta",
        "id",
        "method",
        "__proto__",
        "\u{0}",
        "a\nb",
        "\u{202e}",
        "💩",
        "name",
        "uri",
        "$ref",
        "//",
        "..",
        "a__b__c",
        "select:",
        "/(/",
        "*",
        "%s",
    ];
    match rng.u8(..12) {
        0 => "x".repeat(rng.usize(..5_000)),
        1 => (0..rng.usize(..20)).map(|_| rng.char(..)).collect(),
        _ => rng.choice(texts).unwrap_or_default().to_owned(),
    }
}

fn odd(rng: &mut Rng) -> Value {
    match rng.u8(..14) {
        0 => Value::Null,
        1 => json!(rng.bool()),
        2 => json!(rng.i64(..)),
        3 => json!(rng.f64() * 1e300),
        4 => json!(u64::MAX),
        5 => json!(-1),
        6 => json!([]),
        7 => json!({}),
        8 => (0..rng.usize(1..110)).fold(json!({}), |inner, _| json!([inner])),
        9 => (0..rng.usize(1..110)).fold(json!(1), |inner, _| json!({"a": inner})),
        10 => json!({"$ref": "#"}),
        _ => Value::from(odd_text(rng)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_input() {
        let corpus = Corpus::new([r#"{"a":[1,2,{"b":"c"}]}"#, "a = 1\n"], ["word"]);
        let all = |seed: u64| -> Vec<_> {
            (0..200).map(|n| corpus.mutated(&mut Rng::with_seed(seed + n))).collect()
        };
        assert_eq!(all(7), all(7));
        assert_ne!(all(7), all(1_000));
        assert!(all(7).iter().all(|input| input.len() <= MOST_BYTES));
        let mut distinct = all(7);
        distinct.sort();
        distinct.dedup();
        assert!(distinct.len() > 150, "{}", distinct.len());
    }
}
