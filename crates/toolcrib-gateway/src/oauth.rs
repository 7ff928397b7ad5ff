//! Tokens that an authorization server gives to callers: what they must say to be let in.

use std::collections::BTreeMap;

use reqwest::Url;
use toolcrib_core::Policy;

/// Where callers get their tokens, and what those must say.
///
/// ```
/// use toolcrib_gateway::OAuth;
///
/// let mut oauth = OAuth::new("https://login.example.com");
/// assert!(oauth.fault().is_some(), "nobody knows yet whom tokens must be for");
/// oauth.url = Some("https://crib.example.com".to_owned());
/// assert_eq!(oauth.fault(), None);
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct OAuth {
    /// Who must have issued a token, to the letter.
    pub issuer: String,
    /// The address that callers know the gateway by, without the path of an endpoint. The first
    /// of `audience` that is an address unless given.
    pub url: Option<String>,
    /// Whom tokens may be for, besides the address of the endpoint they are brought to.
    pub audience: Vec<String>,
    /// Where the issuer's keys are. Found out from the issuer unless given.
    pub jwks_url: Option<String>,
    /// Scopes that every token needs.
    pub required_scopes: Vec<String>,
    /// What the bearer of a scope may see and call, of what the gateway shows at all. If there
    /// are any, a token needs one of them, and of several each adds its part.
    pub scopes: BTreeMap<String, Policy>,
}

impl OAuth {
    /// Tokens of one issuer.
    pub fn new(issuer: impl Into<String>) -> Self {
        Self {
            issuer: issuer.into(),
            url: None,
            audience: Vec::new(),
            jwks_url: None,
            required_scopes: Vec::new(),
            scopes: BTreeMap::new(),
        }
    }

    /// The first thing wrong with it: which field, and why.
    pub fn fault(&self) -> Option<(&'static str, String)> {
        let given = [("issuer", Some(&self.issuer)), ("jwks_url", self.jwks_url.as_ref())];
        for (field, url) in given {
            if let Some(Err(reason)) = url.map(|url| safe_url(url)) {
                return Some((field, reason));
            }
        }
        if self.url.as_deref().is_some_and(|url| !is_url(url)) {
            return Some((
                "url",
                "expected an address such as https://crib.example.com".to_owned(),
            ));
        }
        if self.base().is_none() {
            let reason = "whom tokens are for is not known: give the address that callers know \
                          the gateway by";
            return Some(("url", reason.to_owned()));
        }
        let mut scopes = self.required_scopes.iter().chain(self.scopes.keys());
        let odd = scopes.find(|scope| !is_scope(scope))?;
        let field = if self.scopes.contains_key(odd) { "scopes" } else { "required_scopes" };
        Some((field, format!("`{odd}` can't be a scope")))
    }

    /// The address of the gateway, to which the path of an endpoint can be added.
    pub(crate) fn base(&self) -> Option<&str> {
        let own = self.url.as_deref();
        let url = own.or_else(|| self.audience.iter().map(String::as_str).find(|it| is_url(it)))?;
        let url = url.trim_end_matches('/');
        Some(url.strip_suffix("/mcp").unwrap_or(url))
    }
}

fn is_url(text: &str) -> bool {
    let url = text.parse::<Url>().ok();
    url.is_some_and(|url| matches!(url.scheme(), "http" | "https") && url.query().is_none())
}

/// A scope as RFC 6749 has it: visible, and neither a quotation mark nor a backslash.
fn is_scope(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic() && !b"\"\\".contains(&byte))
}

/// An address that keys may come from: nobody on the way must be able to change them.
pub(crate) fn safe_url(text: &str) -> Result<Url, String> {
    let url: Url = text.parse().map_err(|_| "expected an https address".to_owned())?;
    let is_safe = match url.scheme() {
        "https" => true,
        "http" => is_loopback(&url),
        _ => false,
    };
    match is_safe {
        true => Ok(url),
        false => Err("expected an https address, or an http one of this machine".to_owned()),
    }
}

pub(crate) fn is_loopback(url: &Url) -> bool {
    let Some(host) = url.host_str() else { return false };
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    let address = bare.parse::<std::net::IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_from_https_or_this_machine() {
        for good in
            ["https://a.example", "http://127.0.0.1:8", "http://localhost/x", "http://[::1]/"]
        {
            assert!(safe_url(good).is_ok(), "{good}");
        }
        for bad in ["http://a.example", "http://127.0.0.1.example", "ftp://localhost", "a", ""] {
            assert!(safe_url(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_address_is_the_one_given_or_the_first_among_those_tokens_are_for() {
        let mut oauth = OAuth::new("https://a.example");
        assert_eq!(oauth.fault().map(|(field, _)| field), Some("url"));
        oauth.audience = vec!["api://crib".to_owned(), "https://crib.example/mcp/".to_owned()];
        assert_eq!((oauth.base(), oauth.fault()), (Some("https://crib.example"), None));
        oauth.url = Some("https://x.example/crib/".to_owned());
        assert_eq!(oauth.base(), Some("https://x.example/crib"));
        oauth.required_scopes = vec!["a b".to_owned()];
        assert_eq!(oauth.fault().map(|(field, _)| field), Some("required_scopes"));
        oauth.issuer = "http://a.example".to_owned();
        assert_eq!(oauth.fault().map(|(field, _)| field), Some("issuer"));
    }
}
