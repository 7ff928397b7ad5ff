//! What a server that turned a request away says of the credentials it wants.

use reqwest::header::{HeaderMap, WWW_AUTHENTICATE};

/// The most scopes that are asked for, and the longest: a server may name any.
const MOST_SCOPES: usize = 100;
const LONGEST_SCOPE: usize = 250;

/// A `Bearer` challenge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Challenge {
    /// Whether there was one.
    pub(super) is_bearer: bool,
    /// Where the server's metadata is.
    pub(super) resource_metadata: Option<String>,
    /// What it wants to be allowed.
    pub(super) scopes: Vec<String>,
    pub(super) error: Option<String>,
}

impl Challenge {
    /// The first `Bearer` challenge among the headers.
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let values = headers.get_all(WWW_AUTHENTICATE).iter();
        let mut texts = values.filter_map(|value| value.to_str().ok());
        texts.find_map(read).unwrap_or_default()
    }

    pub(super) fn wants_more_scopes(&self) -> bool {
        self.error.as_deref() == Some("insufficient_scope")
    }

    /// The scopes for a person to type in a command; `None` if one of them could be a command of
    /// its own.
    pub(super) fn scopes_to_type(&self) -> Option<String> {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "-._:/@+*~,=%#".contains(c);
        let are_plain = self.scopes.iter().all(|scope| scope.chars().all(is_plain));
        (are_plain && !self.scopes.is_empty()).then(|| self.scopes.join(" "))
    }
}

/// Scopes in the order in which they were named, each once.
pub(super) fn scopes(text: &str) -> Vec<String> {
    let mut scopes = Vec::new();
    add(&mut scopes, text.split_ascii_whitespace());
    scopes
}

/// Adds the scopes that are not there yet, as long as there are not too many.
pub(super) fn add<'a>(scopes: &mut Vec<String>, more: impl IntoIterator<Item = &'a str>) {
    for scope in more {
        let fits = scopes.len() < MOST_SCOPES && is_scope(scope);
        if fits && !scopes.iter().any(|known| known == scope) {
            scopes.push(scope.to_owned());
        }
    }
}

/// A scope as RFC 6749 has it: visible, and neither a quotation mark nor a backslash.
fn is_scope(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_graphic() && !b"\"\\".contains(&byte);
    (1..=LONGEST_SCOPE).contains(&text.len()) && text.bytes().all(is_letter)
}

/// The first `Bearer` challenge of a header, which may hold several.
fn read(text: &str) -> Option<Challenge> {
    let mut challenge = Challenge::default();
    let mut rest = text.trim_start_matches([' ', ',', '\t']);
    while !rest.is_empty() {
        let end = rest.find([' ', '=', ',', '\t']).unwrap_or(rest.len());
        let word = &rest[..end];
        let after = rest[end..].trim_start();
        // A parameter has a value; what has none is the name of the next scheme.
        if let Some(value) = after.strip_prefix('=').filter(|_| !word.is_empty()) {
            let (value, more) = parameter(value.trim_start());
            if challenge.is_bearer {
                challenge.set(word, value);
            }
            rest = more;
        } else if challenge.is_bearer {
            break;
        } else {
            challenge.is_bearer = word.eq_ignore_ascii_case("bearer");
            rest = if word.is_empty() { after.get(1..).unwrap_or_default() } else { after };
        }
        rest = rest.trim_start_matches([' ', ',', '\t']);
    }
    challenge.is_bearer.then_some(challenge)
}

impl Challenge {
    fn set(&mut self, name: &str, value: String) {
        match name.to_ascii_lowercase().as_str() {
            "resource_metadata" => self.resource_metadata = Some(value),
            "scope" => self.scopes = scopes(&value),
            "error" => self.error = Some(value),
            _ => {}
        }
    }
}

/// A value, quoted or not, and what follows it.
fn parameter(text: &str) -> (String, &str) {
    let Some(quoted) = text.strip_prefix('"') else {
        let end = text.find([',', ' ', '\t']).unwrap_or(text.len());
        return (text[..end].to_owned(), &text[end..]);
    };
    let mut value = String::new();
    let mut letters = quoted.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return (value, &quoted[at + 1..]),
            '\\' => value.extend(letters.next().map(|(_, letter)| letter)),
            letter => value.push(letter),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&'static str]) -> Challenge {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(WWW_AUTHENTICATE, line.parse().unwrap());
        }
        Challenge::of(&headers)
    }

    #[test]
    fn a_challenge_is_found_among_others() {
        let expected = Challenge {
            is_bearer: true,
            resource_metadata: Some("https://a/b, \"c\"".to_owned()),
            scopes: vec!["read".to_owned(), "write".to_owned()],
            error: Some("insufficient_scope".to_owned()),
        };
        let line = r#"Bearer resource_metadata="https://a/b, \"c\"",scope="read write read" , error = insufficient_scope"#;
        assert_eq!(of(&[line]), expected);
        assert_eq!(of(&["Basic realm=\"x\"", line]), expected);
        let all = r#"Basic realm="x", bearer error="insufficient_scope", scope="read write", resource_metadata="https://a/b, \"c\"", Digest scope="no""#;
        assert_eq!(of(&[all]), expected);
        assert!(expected.wants_more_scopes());
    }

    #[test]
    fn anything_else_is_none() {
        assert_eq!(of(&[]), Challenge::default());
        assert_eq!(of(&["Basic realm=\"Bearer\""]), Challenge::default());
        assert!(of(&["Bearer"]).is_bearer);
        for odd in
            ["=", "Bearer =", "Bearer scope=\"", ",,,", "Bearer a=\\", "Bearer ,=,\"", "\" ="]
        {
            assert_eq!(of(&[odd]).scopes, [""; 0], "{odd}");
        }
    }
    #[test]
    fn scopes_are_bounded_and_no_commands() {
        let many: Vec<String> = (0..1_000).map(|n| format!("s{n}")).collect();
        let long = "x".repeat(300);
        let named = format!("{long} a:b/c \u{e9} {}", many.join(" "));
        let found = scopes(&named);
        assert_eq!((found.len(), found[0].as_str()), (MOST_SCOPES, "a:b/c"));
        let typed = |text: &str| {
            let challenge = Challenge { scopes: scopes(text), ..Challenge::default() };
            challenge.scopes_to_type()
        };
        assert_eq!(typed("a:b c.d").as_deref(), Some("a:b c.d"));
        for odd in ["", "a' b", "a`b", "$(a)", "a;b", "a|b", "a&b"] {
            assert_eq!(typed(odd), None, "{odd}");
        }
    }
}
