//! Who may come in: the host a request is addressed to, the page it comes from, its token.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use toolcrib_wire::{RpcError, code};

use super::refusal;
use crate::options::{HttpOptions, TokenHash};

/// Which of the tokens a request brought; `None` where none is needed.
pub(super) type Visitor = Option<usize>;

pub(super) struct Guard {
    tokens: Vec<TokenHash>,
    hosts: Vec<String>,
    origins: Vec<String>,
    loopback: bool,
}

impl Guard {
    pub(super) fn new(options: &HttpOptions) -> Self {
        let lower = |list: &[String]| list.iter().map(|name| name.to_ascii_lowercase()).collect();
        Self {
            tokens: options.tokens.clone(),
            hosts: lower(&options.allowed_hosts),
            origins: lower(&options.allowed_origins),
            loopback: options.loopback,
        }
    }

    /// Lets a request in, or says why not.
    pub(super) fn admit(&self, headers: &HeaderMap) -> Result<Visitor, Box<Response>> {
        self.admit_page(headers)?;
        self.visitor(headers).ok_or_else(|| {
            let error = RpcError::new(code::INVALID_REQUEST, "A valid bearer token is needed");
            let mut response = refusal(StatusCode::UNAUTHORIZED, &error);
            let how = HeaderValue::from_static("Bearer realm=\"toolcrib\"");
            response.headers_mut().insert(WWW_AUTHENTICATE, how);
            Box::new(response)
        })
    }

    /// Looks at all but the token: a browser asks without it first.
    pub(super) fn admit_page(&self, headers: &HeaderMap) -> Result<(), Box<Response>> {
        if !self.is_for_us(headers) {
            let text = "This host name is not served here: add it to the allowed hosts";
            return Err(forbidden(text));
        }
        if !self.is_from_a_page_we_know(headers) {
            let text = "Pages of this origin may not send requests: add it to the allowed origins";
            return Err(forbidden(text));
        }
        Ok(())
    }

    /// The page a request comes from, if it was allowed by name: its scripts may read answers.
    /// Pages of this machine may not, unless they were: anybody's code may run in one.
    pub(super) fn reader(&self, headers: &HeaderMap) -> Option<HeaderValue> {
        let origin = headers.get(ORIGIN)?;
        let text = origin.to_str().ok()?.to_ascii_lowercase();
        self.origins.contains(&text).then(|| origin.clone())
    }

    /// A page that has made its own name mean this machine is found out by that name.
    fn is_for_us(&self, headers: &HeaderMap) -> bool {
        // Elsewhere a token keeps such pages out, and the names are not ours to know.
        if !self.loopback && self.hosts.is_empty() {
            return true;
        }
        let Some(Some(host)) = only(headers, HOST) else { return false };
        let (host, name) = (host.to_ascii_lowercase(), without_port(host).to_ascii_lowercase());
        is_loopback(&name) || self.hosts.iter().any(|own| *own == host || *own == name)
    }

    fn is_from_a_page_we_know(&self, headers: &HeaderMap) -> bool {
        let Some(origin) = only(headers, ORIGIN) else { return false };
        let Some(origin) = origin else { return true };
        let origin = origin.to_ascii_lowercase();
        let name = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        let is_local = || name.is_some_and(|name| is_loopback(without_port(name)));
        self.origins.contains(&origin) || (self.loopback && is_local())
    }

    fn visitor(&self, headers: &HeaderMap) -> Option<Visitor> {
        if self.tokens.is_empty() {
            // Without tokens only this machine may come.
            return self.loopback.then_some(None);
        }
        let given = headers.get(AUTHORIZATION)?.to_str().ok()?;
        let (scheme, token) = given.split_once(' ')?;
        if !scheme.eq_ignore_ascii_case("bearer") {
            return None;
        }
        let given = TokenHash::of(token.trim());
        // Every hash is looked at, so that the time taken does not tell which one fits.
        let fits = |(at, hash): (usize, &TokenHash)| hash.matches(&given).then_some(at);
        let at = self.tokens.iter().enumerate().map(fits).fold(None, Option::or)?;
        tracing::trace!(caller = self.tokens[at].name(), "admitted");
        Some(Some(at))
    }
}

fn forbidden(text: &str) -> Box<Response> {
    Box::new(refusal(StatusCode::FORBIDDEN, &RpcError::new(code::INVALID_REQUEST, text)))
}

/// What a header says, if it is there; `None` if that can't be read, or it is there twice.
fn only(headers: &HeaderMap, name: HeaderName) -> Option<Option<&str>> {
    let mut values = headers.get_all(name).iter();
    let value = values.next().map(HeaderValue::to_str).transpose().ok();
    value.filter(|_| values.next().is_none())
}

/// Whether a name can't but mean this machine.
fn is_loopback(name: &str) -> bool {
    let bare = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let address = match bare {
        Some(bare) => bare.parse::<Ipv6Addr>().ok().map(|v6| v6.to_canonical()),
        None => name.parse::<Ipv4Addr>().ok().map(IpAddr::V4),
    };
    name == "localhost" || address.is_some_and(|address| address.is_loopback())
}

/// A host's name without the port, if there is one.
fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn status(guard: &Guard, pairs: &[(&'static str, &str)]) -> u16 {
        guard.admit(&headers(pairs)).map_or_else(|no| no.status().as_u16(), |_| 200)
    }

    #[test]
    fn on_the_loopback_only_its_names_are_answered_to() {
        let allowed_hosts = vec!["Crib.local:7171".to_owned(), "other".to_owned()];
        let options = HttpOptions { allowed_hosts, ..HttpOptions::default() };
        let guard = Guard::new(&options);
        for host in [
            "localhost",
            "127.0.0.1:7171",
            "[::1]:80",
            "[::1]",
            "crib.local:7171",
            "OTHER:1",
            "127.0.0.2",
            "[0:0:0:0:0:0:0:1]:80",
            "[::ffff:127.0.0.1]",
        ] {
            assert_eq!(status(&guard, &[("host", host)]), 200, "{host}");
        }
        for host in [
            "evil.example",
            "localhost.evil.example",
            "127.0.0.1.nip.io",
            "",
            "::1",
            "a@localhost",
            "localhost:80:80",
            "[::1].evil.example",
            "[::1",
            "0.0.0.0",
            "10.0.0.1",
            "localhost:x",
        ] {
            assert_eq!(status(&guard, &[("host", host)]), 403, "{host}");
        }
        assert_eq!(status(&guard, &[]), 403);
        assert_eq!(status(&guard, &[("host", "localhost"), ("host", "evil.example")]), 403);
        let origins = [("origin", "http://localhost"), ("origin", "https://evil.example")];
        assert_eq!(status(&guard, &[("host", "localhost"), origins[0], origins[1]]), 403);
    }

    #[test]
    fn pages_from_elsewhere_are_turned_away() {
        let allowed_origins = vec!["https://app.example".to_owned()];
        let options = HttpOptions { allowed_origins, ..HttpOptions::default() };
        let guard = Guard::new(&options);
        let from = |origin| status(&guard, &[("host", "localhost"), ("origin", origin)]);
        for origin in ["http://localhost:3000", "http://127.0.0.1", "https://app.example"] {
            assert_eq!(from(origin), 200, "{origin}");
        }
        for origin in ["https://evil.example", "null", "http://localhost.evil.example", "file://"] {
            assert_eq!(from(origin), 403, "{origin}");
        }
    }

    #[test]
    fn where_there_are_tokens_one_is_needed() {
        let tokens = vec![TokenHash::of("a"), TokenHash::of("b")];
        let options = HttpOptions { tokens, ..HttpOptions::default() };
        let guard = Guard::new(&options);
        let with = |auth| status(&guard, &[("host", "localhost"), ("authorization", auth)]);
        assert_eq!((with("Bearer a"), with("bearer b")), (200, 200));
        for wrong in ["Bearer c", "Bearer", "Basic a", "a", "Bearer ab"] {
            assert_eq!(with(wrong), 401, "{wrong}");
        }
        assert_eq!(status(&guard, &[("host", "localhost")]), 401);
        let tokens = headers(&[("host", "localhost"), ("authorization", "Bearer b")]);
        assert!(matches!(guard.admit(&tokens), Ok(Some(1))));
    }

    #[test]
    fn from_other_machines_nobody_comes_in_without_a_token() {
        let mut options = HttpOptions { loopback: false, ..HttpOptions::default() };
        assert_eq!(status(&Guard::new(&options), &[("host", "crib.example")]), 401);
        options.tokens = vec![TokenHash::of("a")];
        let come = [("host", "crib.example"), ("authorization", "Bearer a")];
        assert_eq!(status(&Guard::new(&options), &come), 200);
        let page = [come[0], come[1], ("origin", "http://localhost")];
        assert_eq!(status(&Guard::new(&options), &page), 403);
    }
}
