//! Requests to addresses that a server named: guarded, as it may name any.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::OnceLock;
use std::time::Duration;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use reqwest::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use reqwest::{Client, RequestBuilder, StatusCode, Url, redirect};
use serde::de::DeserializeOwned;

/// How long a request may take.
const LIMIT: Duration = Duration::from_secs(10);

/// The longest answer.
const MOST_BYTES: usize = 1 << 20;

/// What is asked beside the server itself.
pub(super) struct Fetch {
    /// Whether the server is on this machine: only then others may be.
    is_local: bool,
    client: OnceLock<Result<Client, String>>,
}

/// An answer that was read whole.
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) body: Vec<u8>,
}

impl Fetch {
    pub(super) fn new(server: &Url) -> Self {
        Self { is_local: is_local(server), client: OnceLock::new() }
    }

    /// An address that may be asked: `what` is what it is to be.
    pub(super) fn allow(&self, what: &str, text: &str) -> Result<Url, String> {
        let url: Url = text.parse().map_err(|_| format!("{what} is no address"))?;
        let host = url.host_str().unwrap_or_default();
        let is_local = is_local(&url);
        let reason = match url.scheme() {
            "https" => None,
            "http" if is_local && self.is_local => None,
            "http" => Some("is not https"),
            _ => Some("is neither http nor https"),
        };
        let reason = reason.or(match address(host) {
            Some(ip) if !may_be_asked(ip, self.is_local) => Some("must not be asked"),
            _ if is_local && !self.is_local => Some("is on this machine, and the server is not"),
            _ if !url.username().is_empty() || url.password().is_some() => Some("has a password"),
            _ => None,
        });
        match reason {
            Some(reason) => Err(format!("{what} ({}) {reason}", origin(&url))),
            None => Ok(url),
        }
    }

    /// A document, if there is one.
    pub(super) async fn document<T: DeserializeOwned>(
        &self,
        url: &Url,
    ) -> Result<Option<T>, String> {
        let request = self.client()?.get(url.clone()).header(ACCEPT, "application/json");
        let answer = read(request, url).await?;
        if answer.status.is_server_error() {
            return Err(format!("{} answered HTTP {}", origin(url), answer.status));
        }
        // Many answer any path with a page.
        Ok(match answer.status.is_success() {
            true => serde_json::from_slice(&answer.body).ok(),
            false => None,
        })
    }

    pub(super) async fn post_form(
        &self,
        url: &Url,
        form: &[(&str, &str)],
        authorization: Option<HeaderValue>,
    ) -> Result<Answer, String> {
        let body = encode(form);
        let request = self.client()?.post(url.clone()).body(body);
        let request = request.header(CONTENT_TYPE, "application/x-www-form-urlencoded");
        let request =
            authorization.into_iter().fold(request, |it, value| it.header(AUTHORIZATION, value));
        read(request.header(ACCEPT, "application/json"), url).await
    }

    pub(super) async fn post_json(
        &self,
        url: &Url,
        body: &serde_json::Value,
    ) -> Result<Answer, String> {
        let request = self.client()?.post(url.clone()).body(body.to_string());
        let request = request.header(CONTENT_TYPE, "application/json");
        read(request.header(ACCEPT, "application/json"), url).await
    }

    /// Made when it is first needed: most servers never need it.
    fn client(&self) -> Result<&Client, String> {
        let make = || {
            Client::builder()
                .timeout(LIMIT)
                .dns_resolver(Resolver { is_local: self.is_local })
                .redirect(redirect::Policy::custom(follow))
                .user_agent(concat!("toolcrib/", env!("CARGO_PKG_VERSION")))
                .build()
                .map_err(|error| format!("no HTTP client: {error}"))
        };
        self.client.get_or_init(make).as_ref().map_err(Clone::clone)
    }
}

/// Pairs as a form or a query has them.
pub(super) fn encode(pairs: &[(&str, &str)]) -> String {
    let Ok(mut url) = Url::parse("http://localhost") else { return String::new() };
    url.query_pairs_mut().extend_pairs(pairs);
    url.query().unwrap_or_default().to_owned()
}

/// Whom an address belongs to, without what may be secret in it.
pub(super) fn origin(url: &Url) -> String {
    url.origin().ascii_serialization()
}

async fn read(request: RequestBuilder, url: &Url) -> Result<Answer, String> {
    let failed = |error: reqwest::Error| {
        let reason = crate::http::why(&error);
        format!("{} can't be asked: {reason}", origin(url))
    };
    let mut response = request.send().await.map_err(failed)?;
    let status = response.status();
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(failed)? {
        if body.len() + chunk.len() > MOST_BYTES {
            return Err(format!("{} answered with more than {MOST_BYTES} bytes", origin(url)));
        }
        body.extend_from_slice(&chunk);
    }
    Ok(Answer { status, body })
}

/// Elsewhere there may be somebody else.
fn follow(attempt: redirect::Attempt<'_>) -> redirect::Action {
    let same_origin =
        attempt.previous().first().is_some_and(|first| first.origin() == attempt.url().origin());
    if same_origin && attempt.previous().len() <= 3 { attempt.follow() } else { attempt.stop() }
}

fn address(host: &str) -> Option<IpAddr> {
    host.trim_start_matches('[').trim_end_matches(']').parse().ok()
}

/// Whether an address is this machine's own.
pub(super) fn is_local(url: &Url) -> bool {
    let host = url.host_str().unwrap_or_default();
    match address(host) {
        Some(ip) => ip.to_canonical().is_loopback(),
        None => host == "localhost" || host.ends_with(".localhost"),
    }
}

/// Machines in a cloud answer with their keys at link-local addresses.
fn may_be_asked(ip: IpAddr, is_local: bool) -> bool {
    let ip = ip.to_canonical();
    let is_link_local = match ip {
        IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    };
    !is_link_local && !ip.is_unspecified() && !ip.is_multicast() && (is_local || !ip.is_loopback())
}

/// Resolves names, but not to what must not be asked.
struct Resolver {
    is_local: bool,
}

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let is_local = self.is_local;
        Box::pin(async move {
            let found: Vec<SocketAddr> =
                tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let fit: Vec<SocketAddr> =
                found.into_iter().filter(|found| may_be_asked(found.ip(), is_local)).collect();
            if fit.is_empty() {
                return Err(io::Error::other("its address must not be asked").into());
            }
            let fit: Addrs = Box::new(fit.into_iter());
            Ok(fit)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(server: &str, url: &str) -> Option<String> {
        Fetch::new(&server.parse().unwrap()).allow("it", url).err()
    }

    #[test]
    fn what_a_remote_server_names_must_be_remote_and_https() {
        let remote = "https://mcp.example/mcp";
        assert_eq!(fault(remote, "https://login.example/x"), None);
        assert_eq!(fault(remote, "https://10.1.2.3/x"), None, "a company may have its own");
        for (url, reason) in [
            ("http://login.example/x", "it (http://login.example) is not https"),
            ("http://localhost:8080/", "it (http://localhost:8080) is not https"),
            (
                "https://localhost/",
                "it (https://localhost) is on this machine, and the server is not",
            ),
            ("https://127.0.0.1/", "it (https://127.0.0.1) must not be asked"),
            ("https://[::1]/", "it (https://[::1]) must not be asked"),
            ("https://[::ffff:127.0.0.1]/", "it (https://[::ffff:7f00:1]) must not be asked"),
            ("https://169.254.169.254/latest", "it (https://169.254.169.254) must not be asked"),
            ("https://2852039166/", "it (https://169.254.169.254) must not be asked"),
            ("https://[fe80::1]/", "it (https://[fe80::1]) must not be asked"),
            ("https://0.0.0.0/", "it (https://0.0.0.0) must not be asked"),
            ("https://me:secret@login.example/", "it (https://login.example) has a password"),
            ("file:///etc/passwd", "it (null) is neither http nor https"),
            ("login.example", "it is no address"),
        ] {
            assert_eq!(fault(remote, url).as_deref(), Some(reason), "{url}");
        }
    }

    #[test]
    fn a_server_on_this_machine_may_name_another_on_it() {
        let local = "http://127.0.0.1:3000/mcp";
        assert_eq!(fault(local, "http://localhost:9/x"), None);
        assert_eq!(fault(local, "http://[::1]:9/x"), None);
        assert_eq!(fault(local, "https://login.example/x"), None);
        assert!(fault(local, "http://login.example/x").is_some());
        assert!(fault(local, "http://169.254.1.1/x").is_some());
        assert!(fault("http://192.168.1.5/mcp", "http://localhost/").is_some());
    }

    #[tokio::test]
    async fn a_name_that_leads_here_is_not_asked() {
        let remote = Resolver { is_local: false };
        assert!(remote.resolve("localhost".parse().unwrap()).await.is_err());
        let local = Resolver { is_local: true };
        assert!(local.resolve("localhost".parse().unwrap()).await.is_ok());
    }

    #[test]
    fn forms_are_encoded() {
        assert_eq!(encode(&[("a", "b c&d"), ("e", "é=")]), "a=b+c%26d&e=%C3%A9%3D");
    }
}
