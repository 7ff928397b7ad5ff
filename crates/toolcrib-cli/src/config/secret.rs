//! Values that may be secrets, and how they are shown.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

/// What is shown in place of a value.
const HIDDEN: &str = "(hidden)";

/// What the last part of a name says of its value.
const TELLING: [&str; 10] = [
    "token",
    "secret",
    "password",
    "passwd",
    "pwd",
    "key",
    "authorization",
    "cookie",
    "credential",
    "credentials",
];

/// How the keys of well-known services begin.
const KEYS: [&str; 8] = ["sk-", "ghp_", "gho_", "github_pat_", "glpat-", "xoxb-", "xoxp-", "AKIA"];

/// A value of an environment variable, a header or a token. It is read as it stands, and never
/// shown unless it only says where the secret is.
#[derive(Clone, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(transparent)]
pub(crate) struct Secret(String);

impl Secret {
    pub(crate) fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The value itself, for what must have it.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    /// Whether the value is a variable such as `${TOKEN}`, perhaps behind a scheme, and nothing
    /// else.
    pub(crate) fn is_reference(&self) -> bool {
        let scheme = ["Bearer ", "Basic ", "Token ", "token "].iter();
        let bare = scheme.fold(self.0.as_str(), |text, scheme| text.trim_start_matches(scheme));
        let name = bare.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        name.is_some_and(|name| !name.contains(":-") && !name.contains(['{', '}', '$']))
    }

    fn shown(&self) -> &str {
        if self.0.is_empty() || self.is_reference() { &self.0 } else { HIDDEN }
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.shown(), f)
    }
}

impl Serialize for Secret {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.shown())
    }
}

/// Whether this is probably a secret, written out.
pub(crate) fn is_literal(name: &str, value: &Secret) -> bool {
    let looks_like_one = is_telling(name) || is_key(value.expose()) || has_password(value.expose());
    looks_like_one && !value.expose().is_empty() && !value.is_reference()
}

/// Whether a variable, header or option of this name probably holds a secret.
fn is_telling(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(|c: char| !c.is_ascii_alphanumeric());
    words.any(|word| TELLING.iter().any(|telling| word.ends_with(telling)))
}

fn is_key(value: &str) -> bool {
    let bare = value.strip_prefix("Bearer ").unwrap_or(value);
    value.len() >= 16 && KEYS.iter().any(|start| bare.starts_with(start))
}

fn has_password(url: &str) -> bool {
    let host = url.split_once("://").map(|(_, rest)| rest.split('/').next().unwrap_or_default());
    let user = host.and_then(|host| host.rsplit_once('@')).map(|(user, _)| user);
    user.and_then(|user| user.split_once(':')).is_some_and(|(_, word)| !word.starts_with("${"))
}

/// A URL without what may be secret in it: a password, a query.
pub(crate) fn mask_url(url: &str) -> String {
    let (url, query) = url.split_once('?').map_or((url, ""), |(url, _)| (url, "?…"));
    let Some((scheme, rest)) = url.split_once("://") else { return format!("{url}{query}") };
    let end = rest.find('/').unwrap_or(rest.len());
    let host = rest[..end].rfind('@').map_or(0, |at| at + 1);
    let user = if host > 0 { "…@" } else { "" };
    format!("{scheme}://{user}{}{query}", &rest[host..])
}

/// A command's arguments without what may be secret in them.
pub(crate) fn mask_args(args: &[String]) -> Vec<String> {
    let mut is_value = false;
    let mask = |arg: &String| {
        let names_one = arg.starts_with('-') && is_telling(arg) && !arg.contains('=');
        let is_hidden = std::mem::replace(&mut is_value, names_one) && !arg.starts_with('-');
        let named = arg.split_once('=').map(|(name, value)| (name, "=", value));
        let named = named.or(arg.split_once(": ").map(|(name, value)| (name, ": ", value)));
        match named {
            _ if Secret::new(arg.as_str()).is_reference() => arg.clone(),
            _ if is_hidden || is_key(arg) => "…".to_owned(),
            Some((name, mark, value)) if is_literal(name, &Secret::new(value)) => {
                format!("{name}{mark}…")
            }
            _ if arg.contains("://") => mask_url(arg),
            _ => arg.clone(),
        }
    };
    args.iter().map(mask).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_shown_only_if_it_says_where_the_secret_is() {
        for (value, shown) in [
            ("${TOKEN}", "${TOKEN}"),
            ("Bearer ${env:TOKEN}", "Bearer ${env:TOKEN}"),
            ("", ""),
            ("hunter2", HIDDEN),
            ("Bearer hunter2", HIDDEN),
            ("${TOKEN:-hunter2}", HIDDEN),
            ("hunter2${TOKEN}", HIDDEN),
            ("${A}hunter2${B}", HIDDEN),
        ] {
            let secret = Secret::new(value);
            assert_eq!(format!("{secret:?}"), format!("{shown:?}"));
            assert_eq!(serde_json::to_value(&secret).unwrap(), shown);
        }
    }

    #[test]
    fn urls_and_arguments_lose_what_may_be_secret() {
        for (url, shown) in [
            ("https://host/mcp?key=hunter2", "https://host/mcp?…"),
            ("https://me:hunter2@host:8/mcp", "https://…@host:8/mcp"),
            ("postgres://me:hunter2@host/db", "postgres://…@host/db"),
            ("https://host/@scope", "https://host/@scope"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(mask_url(url), shown);
        }
        let args = "-y server --api-key hunter2 --token=hunter2 --token=${T} --key ${K} postgres://a:b@c/d";
        let args: Vec<String> = args.split(' ').map(str::to_owned).collect();
        assert_eq!(
            mask_args(&args).join(" "),
            "-y server --api-key … --token=… --token=${T} --key ${K} postgres://…@c/d"
        );
        for (arg, shown) in [
            ("Authorization: Bearer hunter2", "Authorization: …"),
            ("Authorization: ${AUTH}", "Authorization: ${AUTH}"),
            ("sk-0123456789abcdef", "…"),
            ("sk-1", "sk-1"),
        ] {
            assert_eq!(mask_args(&[arg.to_owned()]), [shown]);
        }
    }

    #[test]
    fn a_secret_is_known_by_its_name_or_its_form() {
        for (name, value, expected) in [
            ("GITHUB_TOKEN", "abc", true),
            ("X-Api-Key", "abc", true),
            ("OPENAI_APIKEY", "abc", true),
            ("GH", "ghp_0123456789abcdef", true),
            ("DATABASE_URL", "postgres://me:abc@h/db", true),
            ("DATABASE_URL", "postgres://me:${PW}@h/db", false),
            ("GITHUB_TOKEN", "${GITHUB_TOKEN}", false),
            ("GITHUB_TOKEN", "", false),
            ("TOKENIZERS_PARALLELISM", "true", false),
            ("KEYCLOAK_URL", "http://h", false),
        ] {
            assert_eq!(is_literal(name, &Secret::new(value)), expected, "{name}");
        }
    }
}
