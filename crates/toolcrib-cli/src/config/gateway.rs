//! `[gateway]`: how `toolcrib serve` is reached, and by whom.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::Environment;

/// How `toolcrib serve` is reached, and by whom.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Gateway {
    /// The address to listen on.
    #[serde(deserialize_with = "read_address")]
    pub(crate) http: SocketAddr,
    /// Names that requests may be addressed to, besides the loopback's.
    pub(crate) allowed_hosts: Vec<String>,
    /// Web pages that may send requests, as origins.
    pub(crate) allowed_origins: Vec<String>,
    /// Where what is known of servers is kept, relative to this file. `toolcrib` in the user's
    /// cache folder unless given.
    pub(crate) cache_dir: Option<PathBuf>,
    /// How many servers may start at once.
    #[schemars(range(min = 1))]
    pub(crate) start_at_once: usize,
    /// Hashes of the tokens that callers may bring, `sha256:` and 64 hex digits each: a list, or
    /// a table by the caller's name.
    pub(crate) tokens: Tokens,
}

/// Hashes of bearer tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a list of hashes, or a table of them by name")]
pub(crate) enum Tokens {
    /// Of callers without names.
    List(Vec<String>),
    /// By the caller's name.
    Named(IndexMap<String, String>),
}

/// A bearer token as it is known here: by its SHA-256.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TokenHash {
    pub(crate) name: Option<String>,
    pub(crate) sha256: [u8; 32],
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            http: SocketAddr::from((Ipv4Addr::LOCALHOST, 7171)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            cache_dir: None,
            start_at_once: 8,
            tokens: Tokens::List(Vec::new()),
        }
    }
}

impl Gateway {
    /// The hashes of the tokens that are accepted.
    pub(crate) fn token_hashes(&self) -> Vec<TokenHash> {
        let hash = |(name, hash): (Option<&String>, &String)| {
            Some(TokenHash { name: name.cloned(), sha256: sha256(hash)? })
        };
        self.tokens.iter().filter_map(hash).collect()
    }

    /// Where what is known of servers is kept; nowhere if there is no home folder either.
    pub(crate) fn cache_dir(&self, env: &Environment) -> Option<PathBuf> {
        self.cache_dir.clone().or_else(|| Some(env.cache_home()?.join("toolcrib")))
    }

    /// The first thing wrong with it: the key at fault, with the name under it if it has names,
    /// and the reason.
    pub(super) fn fault(&self) -> Option<((&'static str, Option<&str>), String)> {
        if self.start_at_once == 0 {
            return Some((("start_at_once", None), "expected at least 1".to_owned()));
        }
        // Whoever wrote a token here rather than its hash would not want to see it again.
        let (name, _) = self.tokens.iter().find(|(_, hash)| sha256(hash).is_none())?;
        let how = "`printf %s \"$TOKEN\" | sha256sum` prints the digits";
        let message = format!("expected `sha256:` and 64 hex digits; {how}");
        Some((("tokens", name.map(String::as_str)), message))
    }
}

/// An address to listen on, as people write it.
pub(crate) fn address(text: &str) -> Result<SocketAddr, String> {
    let numbers = match text.strip_prefix("localhost:") {
        Some(port) => format!("127.0.0.1:{port}"),
        None => text.to_owned(),
    };
    let expected = "expected an IP address and a port, such as 127.0.0.1:7171 or [::1]:7171";
    numbers.parse().map_err(|_| expected.to_owned())
}

fn read_address<'de, D: Deserializer<'de>>(from: D) -> Result<SocketAddr, D::Error> {
    address(&String::deserialize(from)?).map_err(D::Error::custom)
}

impl Tokens {
    fn iter(&self) -> impl Iterator<Item = (Option<&String>, &String)> {
        let (list, named) = match self {
            Self::List(list) => (Some(list), None),
            Self::Named(named) => (None, Some(named)),
        };
        let list = list.into_iter().flatten().map(|hash| (None, hash));
        list.chain(named.into_iter().flatten().map(|(name, hash)| (Some(name), hash)))
    }
}

fn sha256(text: &str) -> Option<[u8; 32]> {
    let digits = text.strip_prefix("sha256:")?.as_bytes();
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| match pair {
        [high, low] => Some(digit(*high)? << 4 | digit(*low)?),
        _ => None,
    };
    let bytes: Vec<u8> = digits.chunks(2).map(byte).collect::<Option<_>>()?;
    bytes.try_into().ok()
}

#[cfg(test)]
mod tests {
    use std::net::Ipv6Addr;

    use super::*;

    #[test]
    fn tokens_are_a_list_or_a_table() {
        let hash = format!("sha256:{}", "0aF1".repeat(16));
        let tokens = |text: &str| toml::from_str::<Gateway>(text).unwrap().token_hashes();
        let list = tokens(&format!("tokens = ['{hash}']"));
        assert_eq!(
            (list.len(), &list[0].name, &list[0].sha256[..2]),
            (1, &None, &[0x0a, 0xf1][..])
        );
        let named = tokens(&format!("tokens.ci = '{hash}'"));
        assert_eq!(named[0].name.as_deref(), Some("ci"));
        assert_eq!(tokens(""), []);
    }

    #[test]
    fn what_is_no_hash_is_refused_and_not_repeated() {
        for wrong in ["hunter2", "sha256:", "sha256:0a", "sha256:zz", "0a"] {
            let gateway: Gateway = toml::from_str(&format!("tokens = ['{wrong}']")).unwrap();
            let (key, message) = gateway.fault().unwrap();
            assert_eq!(key, ("tokens", None));
            assert!(!message.contains("hunter2"));
        }
    }

    #[test]
    fn an_address_has_a_port() {
        assert_eq!(address("[::1]:80"), Ok(SocketAddr::from((Ipv6Addr::LOCALHOST, 80))));
        assert_eq!(address("localhost:80"), Ok(SocketAddr::from((Ipv4Addr::LOCALHOST, 80))));
        for wrong in ["", "localhost", "127.0.0.1", ":80", "127.0.0.1:99999", "h:80", "[::1]"] {
            assert!(address(wrong).unwrap_err().contains("such as 127.0.0.1:7171"), "{wrong}");
        }
    }

    #[test]
    fn the_cache_is_in_the_users_cache_folder_unless_told() {
        let env = Environment::from([("HOME", "/h")]);
        assert_eq!(Gateway::default().cache_dir(&env), Some("/h/.cache/toolcrib".into()));
        assert_eq!(Gateway::default().cache_dir(&Environment::default()), None);
    }
}
