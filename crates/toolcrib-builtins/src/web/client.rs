//! Fetching one page, with a check at every step of the way.

use std::error::Error as _;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use encoding_rs::Encoding;
use reqwest::header::{ACCEPT, CONTENT_TYPE, HeaderMap, LOCATION};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, StatusCode, Url};

use super::address::{Refused, Rule};
use crate::error::{Failure, check_size};

const MOST_SECONDS: u64 = 30;
const MOST_REDIRECTS: usize = 10;
const MOST_BYTES: usize = 4 * 1024 * 1024;
const LONGEST_URL: usize = 8 * 1024;
const AGENT: &str = concat!("toolcrib/", env!("CARGO_PKG_VERSION"));
const KINDS: &str =
    "text/html, text/markdown;q=0.9, text/plain;q=0.9, application/json;q=0.9, */*;q=0.5";

/// What may be fetched, and the connections that fetch it.
pub(super) struct Web {
    rule: Rule,
    /// Built when first needed: reading the machine's certificates takes a while, and may fail.
    client: OnceLock<Client>,
}

/// A page as text.
pub(super) struct Page {
    pub(super) url: Url,
    pub(super) text: String,
    pub(super) is_cut: bool,
    kind: String,
}

impl Page {
    pub(super) fn is_html(&self) -> bool {
        let start = self.text.trim_start();
        match self.kind.as_str() {
            "text/html" | "application/xhtml+xml" => true,
            "" => start.get(..5).is_some_and(|start| {
                start.eq_ignore_ascii_case("<html") || start.eq_ignore_ascii_case("<!doc")
            }),
            _ => false,
        }
    }
}

impl Web {
    pub(super) fn new(rule: Rule) -> Self {
        Self { rule, client: OnceLock::new() }
    }

    pub(super) async fn get(&self, url: &str) -> Result<Page, Failure> {
        check_size("The address", url, LONGEST_URL)?;
        let url = Url::parse(url.trim())
            .map_err(|error| Failure::invalid(format!("`{url}` is not an address: {error}.")))?;
        let limit = Duration::from_secs(MOST_SECONDS);
        let page = tokio::time::timeout(limit, self.follow(url)).await;
        page.unwrap_or(Err(Failure::TookTooLong(MOST_SECONDS)))
    }

    /// Follows redirects one by one, as each may lead somewhere else.
    async fn follow(&self, mut url: Url) -> Result<Page, Failure> {
        for _ in 0..=MOST_REDIRECTS {
            self.check(&url)?;
            let request = self.client()?.get(url.clone()).header(ACCEPT, KINDS);
            let response = request.send().await.map_err(|error| unreachable(&url, &error))?;
            if !response.status().is_redirection() || response.status() == StatusCode::NOT_MODIFIED
            {
                return read(url, response).await;
            }
            let target = response.headers().get(LOCATION).and_then(|target| target.to_str().ok());
            let target = target.and_then(|target| url.join(target).ok());
            url = target.ok_or_else(|| Failure::invalid(format!("{url} redirects to nowhere.")))?;
        }
        Err(Failure::invalid(format!("There are more than {MOST_REDIRECTS} redirects.")))
    }

    /// Refuses what no lookup would check: other schemes, and addresses written as such. `127.1`,
    /// `0x7f000001` and `2130706433` are addresses too, and have been read as one by now.
    fn check(&self, url: &Url) -> Result<(), Failure> {
        if !matches!(url.scheme(), "http" | "https") {
            let scheme = url.scheme();
            return Err(Failure::invalid(format!(
                "`{scheme}:` addresses are not fetched, only http and https."
            )));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(Failure::invalid(
                "Addresses with a user name or password are not fetched.",
            ));
        }
        let Some(host) = url.host_str() else {
            return Err(Failure::invalid("The address names no host."));
        };
        let bare = host.trim_start_matches('[').trim_end_matches(']');
        match bare.parse::<IpAddr>() {
            Ok(address) if !self.rule.allows(address) => Err(refused(host)),
            _ => Ok(()),
        }
    }

    fn client(&self) -> Result<&Client, Failure> {
        if let Some(client) = self.client.get() {
            return Ok(client);
        }
        let client = Client::builder()
            // A proxy would look names up itself, where nothing checks the answer.
            .no_proxy()
            .redirect(Policy::none())
            .dns_resolver(Arc::new(self.rule.clone()))
            .connect_timeout(Duration::from_secs(10))
            .timeout(Duration::from_secs(MOST_SECONDS))
            .pool_max_idle_per_host(1)
            .referer(false)
            .user_agent(AGENT)
            .build()
            .map_err(|error| {
                Failure::invalid(format!("Web access can't be set up: {}.", root(&error)))
            })?;
        Ok(self.client.get_or_init(|| client))
    }
}

async fn read(url: Url, mut response: Response) -> Result<Page, Failure> {
    let status = response.status();
    if !status.is_success() {
        return Err(Failure::invalid(format!("{url} answered {status}.")));
    }
    let header = content_type(response.headers());
    let (kind, charset) = (header.0, header.1);
    if !is_text(&kind) {
        return Err(Failure::invalid(format!("{url} is no text but `{kind}`.")));
    }
    let mut bytes = Vec::new();
    let mut is_cut = false;
    while let Some(chunk) = response.chunk().await.map_err(|error| unreachable(&url, &error))? {
        let left = MOST_BYTES - bytes.len();
        bytes.extend_from_slice(&chunk[..chunk.len().min(left)]);
        if chunk.len() > left {
            is_cut = true;
            break;
        }
    }
    let named = charset.as_deref().or_else(|| declared(&bytes)).map(str::as_bytes);
    let encoding = named.and_then(Encoding::for_label).unwrap_or(encoding_rs::UTF_8);
    let text = encoding.decode(&bytes).0.into_owned();
    if text.contains('\0') {
        return Err(Failure::invalid(format!("{url} is no text.")));
    }
    Ok(Page { url, text, is_cut, kind })
}

/// The media type in lower case, and the character set if it names one.
fn content_type(headers: &HeaderMap) -> (String, Option<String>) {
    let header = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let mut parts = header.split(';');
    let kind = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
    let charset = parts.find_map(|part| {
        let (name, value) = part.split_once('=')?;
        let is_charset = name.trim().eq_ignore_ascii_case("charset");
        is_charset.then(|| value.trim().trim_matches('"').to_owned())
    });
    (kind, charset)
}

/// The character set that an HTML page declares near its start.
fn declared(bytes: &[u8]) -> Option<&str> {
    let start = &bytes[..bytes.len().min(1024)];
    let at = start.windows(8).position(|part| part.eq_ignore_ascii_case(b"charset="))? + 8;
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    let start = start.get(at..)?;
    let start = start.strip_prefix(b"\"").or(start.strip_prefix(b"'")).unwrap_or(start);
    let end = start.iter().position(|byte| !is_name(byte)).unwrap_or(start.len());
    std::str::from_utf8(&start[..end]).ok()
}

fn is_text(kind: &str) -> bool {
    const OTHERS: [&str; 8] =
        ["json", "xml", "yaml", "x-yaml", "toml", "javascript", "x-javascript", "x-sh"];
    let is_known =
        |rest: &str| OTHERS.contains(&rest) || rest.ends_with("+json") || rest.ends_with("+xml");
    kind.is_empty()
        || kind.starts_with("text/")
        || kind.strip_prefix("application/").is_some_and(is_known)
}

fn refused(host: &str) -> Failure {
    Failure::invalid(format!("`{host}` is a private or local address, which is not fetched."))
}

fn unreachable(url: &Url, error: &reqwest::Error) -> Failure {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(Refused(host)) = cause.downcast_ref() {
            return refused(host);
        }
        source = cause.source();
    }
    Failure::invalid(format!("{url} can't be reached: {}.", root(error)))
}

/// The innermost cause, which says most.
fn root(error: &reqwest::Error) -> String {
    let mut cause: &dyn std::error::Error = error;
    while let Some(source) = cause.source() {
        cause = source;
    }
    cause.to_string()
}
