//! Text to words.
//!
//! - Text is folded: compatibility forms are replaced (`ﬁ` → `fi`, full-width → ASCII), accents
//!   dropped, case lowered.
//! - Everything that is not a letter or a digit separates words.
//! - A camelCase word of two or three parts is kept whole as well as in parts, because a brand
//!   (`GitHub`, `PostgreSQL`) is searched for as `github` and a name (`createIssue`) as `issue`.
//!   Longer ones are kept in parts only. A part is never a single letter in front of another part:
//!   `OAuth`, `gRPC` and `iPhone` stay in one piece.
//! - Letters and digits stay together (`base64`, `s3`, `v2`, `oauth2`). The longest run of three or
//!   more letters in such a word is added, so `oauth` finds `oauth2` and `base` finds `base64`.
//! - Han, kana and Hangul have no spaces to go by and become overlapping pairs of characters; the
//!   whole run is told as well, for those that can take it apart better.

use std::borrow::Cow;

use unicode_normalization::UnicodeNormalization;
use unicode_normalization::char::{canonical_combining_class, is_combining_mark};

use crate::analyze::stem;

/// A longer token is cut here, at a character boundary.
pub const MAX_TOKEN_BYTES: usize = 64;
/// Tokens taken from one text (a field of a document, or a query); the rest is not looked at.
pub const MAX_TEXT_TOKENS: usize = 4_096;
/// Bytes read from one text, so that one endless word costs no more than many short ones.
pub const MAX_TEXT_BYTES: usize = 64 * 1024;

/// A camelCase word of more parts than this is an identifier nobody types in lower case.
const MAX_PARTS_KEPT_WHOLE: usize = 3;
/// Fewer letters beside digits (`s3`, `ec2`, `mp3` has just `mp`) say nothing by themselves.
const MIN_LETTERS_BESIDE_DIGITS: usize = 3;
/// Combining classes from here on are accents and vowel points. Those below are part of the letter
/// in their script: the voicing mark of kana, the virama and nukta of Indic scripts.
const FIRST_ACCENT_CLASS: u8 = 10;

/// The terms of a text, as they are matched: folded, split and stemmed.
///
/// ```
/// use toolcrib_search::tokenize;
/// assert_eq!(tokenize("getURLById"), ["get", "url", "by", "id"]);
/// assert_eq!(tokenize("GitHub issues"), ["github", "git", "hub", "issu"]);
/// ```
pub fn tokenize(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    words(text, |form, word| {
        if form.is_term() {
            tokens.push(stem(word).into_owned());
        }
    });
    tokens
}

/// How a word relates to those emitted around it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// A word of its own.
    Word,
    /// A camelCase word in one piece; its parts follow.
    Whole,
    /// A part of the last [`Form::Whole`].
    Part,
    /// The letters of the preceding word, which has digits too.
    Letters,
    /// All that follows each other in a script without spaces; its pairs of characters follow.
    Run,
    /// Two neighbours of the last [`Form::Run`].
    Pair,
}

impl Form {
    /// Whether it is looked for as it is. A run is not, only its pairs.
    pub(crate) fn is_term(self) -> bool {
        self != Form::Run
    }
}

/// Calls `emit` for every word of `text`, folded but not stemmed, within the limits above.
pub(crate) fn words(text: &str, emit: impl FnMut(Form, &str)) {
    let folded = fold(&text[..text.floor_char_boundary(MAX_TEXT_BYTES)]);
    let mut splitter = Splitter { emit, left: MAX_TEXT_TOKENS, lowered: String::new() };
    let mut rest = &*folded;
    while splitter.left > 0
        && let Some((start, script)) =
            rest.char_indices().find_map(|(at, c)| Some((at, Script::of(c)?)))
    {
        let run = &rest[start..];
        let (run, after) = run.split_at(run.find(|c| !script.continues(c)).unwrap_or(run.len()));
        match script {
            Script::Cased => splitter.split_cased(run),
            Script::Unspaced => splitter.split_unspaced(run),
        }
        rest = after;
    }
}

/// Compatibility decomposition without the accents, composed again so that a Hangul syllable or a
/// voiced kana is one character. Case survives, as it marks where words of an identifier begin.
fn fold(text: &str) -> Cow<'_, str> {
    if text.is_ascii() {
        return Cow::Borrowed(text);
    }
    let bare = text.nfkd().filter(|&c| canonical_combining_class(c) < FIRST_ACCENT_CLASS);
    Cow::Owned(bare.nfc().collect())
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Script {
    /// Words are set apart by spaces, punctuation or case.
    Cased,
    /// Words follow each other without a mark.
    Unspaced,
}

impl Script {
    /// `None` for a character that separates words.
    pub(crate) fn of(c: char) -> Option<Self> {
        if c.is_ascii() {
            return c.is_ascii_alphanumeric().then_some(Script::Cased);
        }
        let unspaced = matches!(c,
            '\u{1100}'..='\u{11FF}' | '\u{3130}'..='\u{318F}' | '\u{AC00}'..='\u{D7AF}' // Hangul
            | '\u{3040}'..='\u{30FF}' | '\u{31F0}'..='\u{31FF}' // Hiragana, Katakana
            | '\u{3005}' | '\u{3007}' | '\u{3400}'..='\u{4DBF}' | '\u{4E00}'..='\u{9FFF}'
            | '\u{F900}'..='\u{FAFF}' | '\u{20000}'..='\u{3FFFF}'); // Han
        match c.is_alphanumeric() {
            true if unspaced => Some(Script::Unspaced),
            true => Some(Script::Cased),
            false => None,
        }
    }

    fn continues(self, c: char) -> bool {
        Script::of(c) == Some(self) || (!c.is_ascii() && is_combining_mark(c))
    }
}

struct Splitter<F> {
    emit: F,
    /// Tokens that may still be emitted.
    left: usize,
    /// Reused for the lower-case form of each word.
    lowered: String,
}

impl<F: FnMut(Form, &str)> Splitter<F> {
    fn split_unspaced(&mut self, run: &str) {
        let ends = || run.char_indices().map(|(at, c)| at + c.len_utf8());
        if ends().nth(1).is_none() {
            return self.emit(Form::Word, run);
        }
        (self.emit)(Form::Run, run);
        for ((start, _), end) in run.char_indices().zip(ends().skip(1)) {
            self.emit(Form::Pair, &run[start..end]);
        }
    }

    fn split_cased(&mut self, run: &str) {
        if run.bytes().skip(1).all(|byte| byte.is_ascii_lowercase()) {
            return self.emit(Form::Word, run);
        }
        match parts(run).take(MAX_PARTS_KEPT_WHOLE + 1).count() {
            0 | 1 => self.emit(Form::Word, run),
            2..=MAX_PARTS_KEPT_WHOLE => {
                self.emit(Form::Whole, run);
                parts(run).for_each(|part| self.emit(Form::Part, part));
            }
            _ => parts(run).for_each(|part| self.emit(Form::Word, part)),
        }
    }

    fn emit(&mut self, form: Form, word: &str) {
        self.lower(word);
        if self.left > 0 {
            self.left -= 1;
            (self.emit)(form, &self.lowered);
        }
        if self.left > 0
            && form != Form::Whole
            && let Some(letters) = letters_beside_digits(&self.lowered)
        {
            self.left -= 1;
            (self.emit)(Form::Letters, letters);
        }
    }

    fn lower(&mut self, word: &str) {
        self.lowered.clear();
        if word.is_ascii() {
            self.lowered.push_str(&word[..word.len().min(MAX_TOKEN_BYTES)]);
            return self.lowered.make_ascii_lowercase();
        }
        for c in word.chars().flat_map(char::to_lowercase) {
            if self.lowered.len() + c.len_utf8() > MAX_TOKEN_BYTES {
                break;
            }
            self.lowered.push(c);
        }
    }
}

/// The longest run of letters in a word that also has digits; the first of equally long ones.
fn letters_beside_digits(word: &str) -> Option<&str> {
    if !word.contains(char::is_numeric) {
        return None;
    }
    word.split(char::is_numeric)
        .map(|letters| (letters.chars().count(), letters))
        .filter(|&(count, _)| count >= MIN_LETTERS_BESIDE_DIGITS)
        .reduce(|longest, next| if next.0 > longest.0 { next } else { longest })
        .map(|(_, letters)| letters)
}

/// The parts of a camelCase word.
fn parts(mut word: &str) -> impl Iterator<Item = &str> {
    std::iter::from_fn(move || {
        let (part, rest) = word.split_at(part_end(word));
        word = rest;
        (!part.is_empty()).then_some(part)
    })
}

fn part_end(word: &str) -> usize {
    let mut chars = word.char_indices();
    let Some((_, first)) = chars.next() else { return 0 };
    let (mut before, mut has_letter, mut length) = (first, first.is_alphabetic(), 1);
    while let Some((at, c)) = chars.next() {
        if c.is_uppercase() && length > 1 {
            let begins_part = if before.is_uppercase() {
                // The last capital of a run begins a word (`HTTPServer`), unless what follows is
                // only the `s` of a plural (`URLs`).
                let mut after = chars.clone().map(|(_, c)| c);
                let (next, second) = (after.next(), after.next());
                let is_plural = next == Some('s') && !second.is_some_and(char::is_lowercase);
                next.is_some_and(char::is_lowercase) && !is_plural
            } else {
                // Digits in front belong to what follows them (`2FA`), other digits do not.
                has_letter
            };
            if begins_part {
                return at;
            }
        }
        has_letter |= c.is_alphabetic();
        before = c;
        length += 1;
    }
    word.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(tokenize(text).join(" "), expected, "tokens of {text:?}");
    }

    #[test]
    fn identifiers_are_taken_apart() {
        check("create_issue", "creat issu");
        check("create-issue.comment/body", "creat issu comment bodi");
        check("createIssue", "createissu creat issu");
        check("HTTPServer", "httpserver http server");
        check("getURLById", "get url by id");
        check("list all the URLs", "list all the url");
        check("APIsList", "apislist api list");
        check("parseJSON", "parsejson pars json");
        check("SCREAMING_SNAKE", "scream snake");
        check("mcp__github__create_issue", "mcp github creat issu");
    }

    #[test]
    fn brands_stay_findable_in_one_piece() {
        check("GitHub", "github git hub");
        check("PostgreSQL", "postgresql postgr sql");
        check("macOS iOS gRPC eBay", "maco mac os ios grpc ebay");
        check("OAuth", "oauth");
    }

    #[test]
    fn digits_stay_with_their_letters() {
        check("base64", "base64 base");
        check("base64Encode", "base64encode base64 base encod");
        check("OAuth2", "oauth2 oauth");
        check("s3 v2 ec2 k8s 2FA 42", "s3 v2 ec2 k8s 2fa 42");
        check("S3Bucket", "s3bucket s3 bucket");
        check("1password", "1password password");
    }

    #[test]
    fn accents_width_and_ligatures_are_folded() {
        check("Café ÜBER naïve", "cafe uber naiv");
        check("ﬁle", "file");
        check("ＦＩＬＥ　ｎａｍｅ", "file name");
        check("e\u{301}tude", "etud");
        check("İstanbul", "istanbul");
        check("Привет МИР", "привет мир");
        check("हिन्दी", "हिन्दी");
    }

    #[test]
    fn english_words_are_stemmed_when_longer_than_three_letters() {
        check("searching searches searched", "search search search");
        check("repositories repository", "repositori repositori");
        check("ids aws dns", "ids aws dns");
    }

    #[test]
    fn unspaced_scripts_become_overlapping_pairs() {
        check("東京都", "東京 京都");
        check("雨", "雨");
        check("天気API予報", "天気 api 予報");
        check("ガイド", "ガイ イド");
        check("ｶﾞｲﾄﾞ", "ガイ イド");
        check("날씨 검색", "날씨 검색");
        check("データ・ベース", "デー ータ ベー ース");
    }

    #[test]
    fn text_without_words_has_no_tokens() {
        for text in ["", " \t\n", "--- !!! ___", "\u{301}\u{fe0f}", "🎉"] {
            check(text, "");
        }
    }

    #[test]
    fn a_long_token_is_cut_at_a_character_boundary() {
        check(&"x1".repeat(50), &"x1".repeat(32));
        check(&"я".repeat(50), &"я".repeat(32));
        check(&format!("a{}", "я".repeat(50)), &format!("a{}", "я".repeat(31)));
    }

    #[test]
    fn a_huge_text_gives_a_bounded_number_of_tokens() {
        assert_eq!(tokenize(&"a1 ".repeat(1_000_000)).len(), MAX_TEXT_TOKENS);
        assert_eq!(tokenize(&"x".repeat(10_000_000)).len(), 1);
        assert_eq!(tokenize(&"本".repeat(1_000_000)).len(), MAX_TEXT_TOKENS);
        assert!(tokenize(&"aB".repeat(1_000_000)).len() <= MAX_TEXT_TOKENS);
        assert_eq!(tokenize(&format!("e{}", "\u{301}".repeat(1_000_000))), ["e"]);
    }
}
