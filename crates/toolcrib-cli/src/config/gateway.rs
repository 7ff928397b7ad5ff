//! `[gateway]`: how `toolcrib serve` is reached, and by whom.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use toolcrib::gateway::{Limits, OAuth};
use toolcrib::{Budget, PatternError, Policy, PolicyRules};

use super::{Environment, Telemetry};

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
    /// MiB that results may take which servers send and clients have not read yet, all together.
    /// One result may have half of it, and never more than 64.
    #[schemars(range(min = 1))]
    pub(crate) result_megabytes: usize,
    /// Hashes of the tokens that callers may bring, `sha256:` and 64 hex digits each: a list, or
    /// a table by the caller's name.
    pub(crate) tokens: Tokens,
    /// Who else gives tokens to callers.
    pub(crate) oauth: Option<OAuthEntry>,
    /// How much each caller may ask for.
    pub(crate) limits: LimitsEntry,
    /// Where calls are reported to, as OpenTelemetry spans.
    pub(crate) telemetry: Telemetry,
    /// The verbs that call tools.
    pub(crate) verbs: Verbs,
    /// Where it is written down who called what, and what was refused.
    pub(crate) audit: Option<AuditEntry>,
}

/// The verbs that call tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Verbs {
    /// One for all.
    #[default]
    One,
    /// One for tools that change nothing, one for those that change something, one for those that
    /// may destroy something.
    Split,
}

/// Where it is written down who called what, and what was refused.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct AuditEntry {
    /// The file, relative to this one. Lines are added at its end.
    pub(crate) file: PathBuf,
    /// Whether a call that can't be written down is refused.
    #[serde(default)]
    pub(crate) required: bool,
}

/// Hashes of bearer tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a list of hashes, or a table of them by name")]
pub(crate) enum Tokens {
    /// Of callers without names.
    List(Vec<String>),
    /// By the caller's name.
    Named(IndexMap<String, Token>),
}

/// The hash of a token, or more about its bearer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged, expecting = "expected a hash, or a table with `hash`, `policy` and `limits`")]
pub(crate) enum Token {
    /// The hash alone.
    Hash(String),
    /// The hash, and what holds for this caller alone.
    Caller(CallerEntry),
}

/// A caller by the hash of its token.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CallerEntry {
    /// The token's hash: `sha256:` and 64 hex digits.
    pub(crate) hash: String,
    /// Which of the tools exist for this caller. It takes away from `[policy]`, and adds nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) policy: Option<PolicyRules>,
    /// How much this caller may ask for, instead of what others may.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) limits: Option<LimitsEntry>,
}

/// How much a caller may ask for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsEntry {
    /// Calls a second in the long run. Any number unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) calls_per_second: Option<f64>,
    /// Calls that may come at once before that counts. As many as in a second unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) burst: Option<u32>,
    /// Calls that may run at a time. Any number unless given.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub(crate) in_flight: Option<usize>,
}

/// Tokens of an authorization server.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct OAuthEntry {
    /// Who must have issued a token.
    pub(crate) issuer: String,
    /// The address that callers know the gateway by. The first of `audience` that is an address
    /// unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) url: Option<String>,
    /// Whom tokens may be for, besides the address of the endpoint they are brought to.
    #[serde(default)]
    pub(crate) audience: Vec<String>,
    /// Where the issuer's keys are. Found out from the issuer unless given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) jwks_url: Option<String>,
    /// Scopes that every token needs.
    #[serde(default)]
    pub(crate) required_scopes: Vec<String>,
    /// Which of the tools exist for the bearer of a scope. If there are any, a token needs one.
    #[serde(default)]
    pub(crate) scopes: IndexMap<String, PolicyRules>,
}

/// A bearer token as it is known here: by its SHA-256.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TokenHash {
    pub(crate) name: Option<String>,
    pub(crate) sha256: [u8; 32],
    pub(crate) policy: Option<PolicyRules>,
    pub(crate) limits: Option<LimitsEntry>,
}

impl Default for Gateway {
    fn default() -> Self {
        Self {
            http: SocketAddr::from((Ipv4Addr::LOCALHOST, 7171)),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            cache_dir: None,
            start_at_once: 8,
            result_megabytes: 256,
            tokens: Tokens::List(Vec::new()),
            oauth: None,
            limits: LimitsEntry::default(),
            telemetry: Telemetry::default(),
            verbs: Verbs::One,
            audit: None,
        }
    }
}

impl Gateway {
    /// The hashes of the tokens that are accepted.
    pub(crate) fn token_hashes(&self) -> Vec<TokenHash> {
        let hash = |(name, hash, caller): (Option<&String>, &String, Option<&CallerEntry>)| {
            Some(TokenHash {
                name: name.cloned(),
                sha256: sha256(hash)?,
                policy: caller.and_then(|caller| caller.policy.clone()),
                limits: caller.and_then(|caller| caller.limits),
            })
        };
        self.tokens.iter().filter_map(hash).collect()
    }

    /// Room for the results of servers.
    pub(crate) fn results(&self) -> Budget {
        Budget::new(self.result_megabytes.saturating_mul(1 << 20))
    }

    /// Whether callers must bring a token.
    pub(crate) fn is_guarded(&self) -> bool {
        self.oauth.is_some() || self.tokens.iter().next().is_some()
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
        if self.result_megabytes == 0 {
            return Some((("result_megabytes", None), "expected at least 1".to_owned()));
        }
        // Whoever wrote a token here rather than its hash would not want to see it again.
        let wrong = self.tokens.iter().find(|(_, hash, _)| sha256(hash).is_none());
        if let Some((name, ..)) = wrong {
            let how = "`printf %s \"$TOKEN\" | sha256sum` prints the digits";
            let message = format!("expected `sha256:` and 64 hex digits; {how}");
            return Some((("tokens", name.map(String::as_str)), message));
        }
        let of_token = self.tokens.iter().find_map(|(name, _, caller)| {
            let CallerEntry { policy, limits, .. } = caller?;
            let compiled = policy.clone().map(Policy::new);
            let wrong = compiled.and_then(Result::err).map(|error| error.to_string());
            let wrong = wrong.or_else(|| limits.as_ref()?.fault().map(|(_, message)| message));
            Some((("tokens", name.map(String::as_str)), wrong?))
        });
        let of_oauth = || match self.oauth.as_ref()?.compiled() {
            Ok(oauth) => oauth.fault().map(|(key, message)| (("oauth", Some(key)), message)),
            Err(error) => Some((("oauth", Some("scopes")), error.to_string())),
        };
        let of_limits =
            || self.limits.fault().map(|(key, message)| (("limits", Some(key)), message));
        of_token.or_else(of_oauth).or_else(of_limits)
    }
}

impl LimitsEntry {
    pub(crate) fn limits(&self) -> Limits {
        let mut limits = Limits::default();
        limits.calls_per_second = self.calls_per_second;
        limits.burst = self.burst;
        limits.in_flight = self.in_flight;
        limits
    }

    fn fault(&self) -> Option<(&'static str, String)> {
        let none = [
            ("calls_per_second", self.calls_per_second.is_some_and(|it| it <= 0.0 || it.is_nan())),
            ("burst", self.burst == Some(0)),
            ("in_flight", self.in_flight == Some(0)),
        ];
        let (key, _) = none.into_iter().find(|(_, is_none)| *is_none)?;
        Some((key, format!("expected `{key}` to be more than 0: else no call could be made")))
    }
}

impl OAuthEntry {
    /// The same, with its policies compiled.
    pub(crate) fn compiled(&self) -> Result<OAuth, PatternError> {
        let mut oauth = OAuth::new(&*self.issuer);
        oauth.url.clone_from(&self.url);
        oauth.audience.clone_from(&self.audience);
        oauth.jwks_url.clone_from(&self.jwks_url);
        oauth.required_scopes.clone_from(&self.required_scopes);
        for (scope, rules) in &self.scopes {
            oauth.scopes.insert(scope.clone(), Policy::new(rules.clone())?);
        }
        Ok(oauth)
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
    fn iter(&self) -> impl Iterator<Item = (Option<&String>, &String, Option<&CallerEntry>)> {
        let (list, named) = match self {
            Self::List(list) => (Some(list), None),
            Self::Named(named) => (None, Some(named)),
        };
        let list = list.into_iter().flatten().map(|hash| (None, hash, None));
        let named = named.into_iter().flatten().map(|(name, token)| match token {
            Token::Hash(hash) => (Some(name), hash, None),
            Token::Caller(caller) => (Some(name), &caller.hash, Some(caller)),
        });
        list.chain(named)
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
    fn a_token_may_have_a_policy_and_limits_of_its_own() {
        let text = format!(
            "[tokens.ci]\nhash = 'sha256:{}'\npolicy.read_only = true\nlimits.in_flight = 4",
            "0a".repeat(32)
        );
        let gateway: Gateway = toml::from_str(&text).unwrap();
        assert_eq!(gateway.fault(), None);
        let tokens = gateway.token_hashes();
        assert_eq!(tokens[0].name.as_deref(), Some("ci"));
        assert!(tokens[0].policy.as_ref().unwrap().read_only);
        assert_eq!(tokens[0].limits.unwrap().limits().in_flight, Some(4));
        for (more, place) in [
            ("policy.deny_tools = ['a{b']", ("tokens", Some("ci"))),
            ("limits.in_flight = 0", ("tokens", Some("ci"))),
        ] {
            let text = format!("[tokens.ci]\nhash = 'sha256:{}'\n{more}", "0a".repeat(32));
            let gateway: Gateway = toml::from_str(&text).unwrap();
            assert_eq!(gateway.fault().unwrap().0, place, "{more}");
        }
    }

    #[test]
    fn tokens_may_come_from_an_issuer() {
        let text = "[oauth]\nissuer = 'https://login.example'\nurl = 'https://crib.example'\n\
                    required_scopes = ['mcp']\n[oauth.scopes.read]\nread_only = true";
        let gateway: Gateway = toml::from_str(text).unwrap();
        assert!(gateway.is_guarded() && gateway.fault().is_none());
        let oauth = gateway.oauth.unwrap().compiled().unwrap();
        assert!(oauth.scopes["read"].rules().read_only);
        for (text, key) in [
            (
                "oauth = { issuer = 'http://login.example', url = 'https://a' }",
                ("oauth", Some("issuer")),
            ),
            ("oauth = { issuer = 'https://login.example' }", ("oauth", Some("url"))),
            ("limits.calls_per_second = 0.0", ("limits", Some("calls_per_second"))),
            ("limits.calls_per_second = nan", ("limits", Some("calls_per_second"))),
        ] {
            let gateway: Gateway = toml::from_str(text).unwrap();
            assert_eq!(gateway.fault().unwrap().0, key, "{text}");
        }
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
