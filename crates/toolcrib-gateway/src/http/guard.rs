//! Who may come in: the host a request is addressed to, the page it comes from, its token.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use axum::http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderName, ORIGIN, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use tokio::time::{Instant, sleep_until};
use toolcrib_wire::{RpcError, code};

use super::bearer::{Bearer, Refused};
use super::refusal;
use crate::options::{HttpOptions, TokenHash};
use crate::seat::Seat;

/// Whom a request comes from.
pub(super) type Visitor = Arc<Seat>;

/// Somebody who was let in.
pub(super) struct Admitted {
    pub(super) seat: Visitor,
    /// When their token ends, if it does.
    pub(super) until: Option<Instant>,
}

impl Admitted {
    fn for_good(seat: &Visitor) -> Self {
        Self { seat: seat.clone(), until: None }
    }

    /// Waits until their token has ended.
    pub(super) fn expired(&self) -> impl Future<Output = ()> + Send + 'static {
        let until = self.until;
        async move {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        }
    }
}

pub(super) struct Guard {
    /// The seat of whoever comes, where no token is needed.
    open: Visitor,
    tokens: Vec<(TokenHash, Visitor)>,
    bearer: Option<Bearer>,
    hosts: Vec<String>,
    origins: Vec<String>,
    loopback: bool,
}

impl Guard {
    pub(super) fn new(options: &HttpOptions, open: &Visitor) -> Self {
        let lower = |list: &[String]| list.iter().map(|name| name.to_ascii_lowercase()).collect();
        let seat = |token: &TokenHash| (token.clone(), Arc::new(token.seat(open)));
        Self {
            open: open.clone(),
            tokens: options.tokens.iter().map(seat).collect(),
            bearer: options.oauth.as_ref().map(|oauth| Bearer::new(oauth, open)),
            hosts: lower(&options.allowed_hosts),
            origins: lower(&options.allowed_origins),
            loopback: options.loopback,
        }
    }

    /// Lets a request to the endpoint of this path in, or says why not.
    pub(super) async fn admit(
        &self,
        headers: &HeaderMap,
        path: &str,
    ) -> Result<Admitted, Box<Response>> {
        self.admit_page(headers)?;
        if self.tokens.is_empty() && self.bearer.is_none() {
            // Without tokens only this machine may come.
            let open = self.loopback.then(|| Admitted::for_good(&self.open));
            return open.ok_or_else(|| Box::new(unauthorized()));
        }
        let token = bearer_token(headers);
        let admitted = match (token.and_then(|token| self.known(token)), &self.bearer) {
            (Some(seat), _) => Admitted::for_good(seat),
            (None, None) => return Err(Box::new(unauthorized())),
            (None, Some(bearer)) => {
                let admitted = match token {
                    Some(token) => bearer.admit(token, path).await,
                    None => Err(Refused::Missing),
                };
                admitted.map_err(|refused| Box::new(bearer.refuse(&refused, path)))?
            }
        };
        tracing::trace!(caller = admitted.seat.name.as_deref(), "admitted");
        Ok(admitted)
    }

    /// Where tokens come from, if anybody gives them.
    pub(super) fn bearer(&self) -> Option<&Bearer> {
        self.bearer.as_ref()
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

    /// The seat of whoever brings a token that is known by its hash.
    fn known(&self, token: &str) -> Option<&Visitor> {
        if self.tokens.is_empty() {
            return None;
        }
        let given = TokenHash::of(token);
        let fit = |known: &TokenHash| known.matches(&given);
        // Every hash is looked at, so that the time taken does not tell which one fits.
        let seats = self.tokens.iter().map(|(hash, seat)| fit(hash).then_some(seat));
        seats.fold(None, Option::or)
    }
}

/// The token of a request, if it brings one.
fn bearer_token(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = only(headers, AUTHORIZATION)??.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

fn unauthorized() -> Response {
    let error = RpcError::new(code::INVALID_REQUEST, "A valid bearer token is needed");
    let mut response = refusal(StatusCode::UNAUTHORIZED, &error);
    let how = HeaderValue::from_static("Bearer realm=\"toolcrib\"");
    response.headers_mut().insert(WWW_AUTHENTICATE, how);
    response
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
    use futures::FutureExt;
    use toolcrib_core::Policy;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    fn guard(options: &HttpOptions) -> Guard {
        Guard::new(options, &Arc::new(Seat::open(Policy::default(), Default::default())))
    }

    fn status(guard: &Guard, pairs: &[(&'static str, &str)]) -> u16 {
        let headers = headers(pairs);
        let admitted = guard.admit(&headers, "/mcp").now_or_never().unwrap();
        admitted.map_or_else(|no| no.status().as_u16(), |_| 200)
    }

    #[test]
    fn on_the_loopback_only_its_names_are_answered_to() {
        let allowed_hosts = vec!["Crib.local:7171".to_owned(), "other".to_owned()];
        let options = HttpOptions { allowed_hosts, ..HttpOptions::default() };
        let guard = guard(&options);
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
        let guard = guard(&options);
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
        let guard = guard(&options);
        let with = |auth| status(&guard, &[("host", "localhost"), ("authorization", auth)]);
        assert_eq!((with("Bearer a"), with("bearer b")), (200, 200));
        for wrong in ["Bearer c", "Bearer", "Basic a", "a", "Bearer ab"] {
            assert_eq!(with(wrong), 401, "{wrong}");
        }
        assert_eq!(status(&guard, &[("host", "localhost")]), 401);
        let seat = |token: &str| {
            let headers = headers(&[("host", "localhost"), ("authorization", token)]);
            guard.admit(&headers, "/mcp").now_or_never().unwrap().unwrap().seat.principal
        };
        assert_eq!(seat("Bearer b"), seat("bearer b"));
        assert!(seat("Bearer a") != seat("Bearer b") && seat("Bearer a") != 0);
    }

    #[test]
    fn from_other_machines_nobody_comes_in_without_a_token() {
        let mut options = HttpOptions { loopback: false, ..HttpOptions::default() };
        assert_eq!(status(&guard(&options), &[("host", "crib.example")]), 401);
        options.tokens = vec![TokenHash::of("a")];
        let come = [("host", "crib.example"), ("authorization", "Bearer a")];
        assert_eq!(status(&guard(&options), &come), 200);
        let page = [come[0], come[1], ("origin", "http://localhost")];
        assert_eq!(status(&guard(&options), &page), 403);
    }
}
