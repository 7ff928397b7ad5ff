//! The servers of a gateway that runs.

use std::time::Duration;

use anyhow::anyhow;
use reqwest::{StatusCode, Url, redirect};
use serde::Deserialize;
use serde_json::Value;

use crate::args::Context;
use crate::output::{self, BOLD, DIM, GREEN, Misuse, RED, Rows, YELLOW, counted, number};

/// How long a gateway may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// The longest answer that is read, in bytes.
const LONGEST: usize = 16 << 20;

#[derive(Deserialize)]
struct Report {
    servers: Vec<Row>,
}

/// What a gateway tells of a server.
#[derive(Deserialize)]
struct Row {
    name: String,
    state: String,
    tools: usize,
    #[serde(default)]
    held: Vec<String>,
    error: Option<String>,
    breaker: Option<String>,
    #[serde(default)]
    running: usize,
    #[serde(default)]
    waiting: usize,
    connections: Option<usize>,
}

/// Shows the servers of the gateway at this address.
pub(super) fn show(url: &str, token_env: &str, context: &Context) -> anyhow::Result<()> {
    let address = address(url)?;
    let token = context.env.get(token_env).filter(|token| !token.is_empty());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let text = runtime.block_on(fetch(&address, token, token_env))?;
    let address = shown(&address);
    let unreadable =
        |_| anyhow!("{address} answers with something else: is it a Toolcrib gateway?");
    if context.json {
        let whole: Value = serde_json::from_str(&text).map_err(unreadable)?;
        return output::json(&whole);
    }
    let report: Report = serde_json::from_str(&text).map_err(unreadable)?;
    output::text(&describe(&report.servers))
}

/// Where a gateway tells of its servers, whichever of its addresses is given.
fn address(url: &str) -> Result<Url, Misuse> {
    let wrong = || Misuse::new("--url wants the address of a gateway: http://127.0.0.1:7171");
    let mut address = Url::parse(url).map_err(|_| wrong())?;
    if !matches!(address.scheme(), "http" | "https") || !address.has_host() {
        return Err(wrong());
    }
    let path = address.path().trim_end_matches('/').to_owned();
    let base =
        ["/servers", "/mcp/full", "/mcp/inject"].iter().find_map(|end| path.strip_suffix(end));
    let of_server = || path.rsplit_once("/mcp/s/").filter(|(_, server)| !server.contains('/'));
    // Last, since a server may be called that too.
    let base = base
        .or_else(|| of_server().map(|(base, _)| base))
        .or_else(|| path.strip_suffix("/mcp"))
        .unwrap_or(&path);
    address.set_path(&format!("{base}/servers"));
    address.set_query(None);
    address.set_fragment(None);
    Ok(address)
}

/// An address as it may be shown: whatever stands before the host is nobody's business.
fn shown(address: &Url) -> Url {
    let mut shown = address.clone();
    // They fail where there is no host, and then there is nothing to hide.
    let _ = shown.set_username("");
    let _ = shown.set_password(None);
    shown
}

async fn fetch(address: &Url, token: Option<&str>, token_env: &str) -> anyhow::Result<String> {
    let mut client = reqwest::Client::builder().redirect(redirect::Policy::none()).timeout(LIMIT);
    let is_here = |host: &str| host == "localhost" || host.starts_with("127.") || host == "[::1]";
    if address.host_str().is_some_and(is_here) {
        client = client.no_proxy();
    }
    let mut request = client.build()?.get(address.clone());
    let address = shown(address);
    if let Some(token) = token {
        request = request.bearer_auth(token);
    }
    let mut response = request.send().await.map_err(|error| {
        let how = if error.is_timeout() { "does not answer" } else { "can't be reached" };
        anyhow!("{address} {how}: is `toolcrib serve` running there?")
    })?;
    match response.status() {
        StatusCode::OK => {}
        StatusCode::UNAUTHORIZED if token.is_some() => {
            return Err(anyhow!("{address} does not take the token in {token_env}"));
        }
        StatusCode::UNAUTHORIZED => {
            return Err(anyhow!("{address} wants a token: put it into the variable {token_env}"));
        }
        StatusCode::NOT_FOUND => {
            return Err(anyhow!("there is nothing at {address}: is it a Toolcrib gateway?"));
        }
        status => return Err(anyhow!("{address} answers {status}")),
    }
    let mut body = Vec::new();
    while let Some(piece) = response.chunk().await? {
        body.extend_from_slice(&piece);
        if body.len() > LONGEST {
            return Err(anyhow!("{address} answers with more than {LONGEST} bytes"));
        }
    }
    Ok(String::from_utf8_lossy(&body).into_owned())
}

fn describe(rows: &[Row]) -> String {
    let titles =
        ["SERVER", "STATE", "BREAKER", "TOOLS>", "HELD>", "CALLS>", "CONNECTIONS>", "LAST ERROR"];
    let mut table = Rows::new(&titles);
    for row in rows {
        let style = match (row.state.as_str(), row.breaker.as_deref()) {
            ("down", _) | (_, Some("open")) => RED,
            (_, Some("probing")) => YELLOW,
            ("ready", _) => GREEN,
            _ => DIM,
        };
        let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let calls = match (&row.breaker, row.waiting) {
            (None, _) => "-".to_owned(),
            (Some(_), 0) => number(row.running as u64),
            (Some(_), waiting) => format!("{} + {waiting} waiting", row.running),
        };
        table.add(
            style,
            [
                row.name.clone(),
                row.state.clone(),
                or_dash(row.breaker.clone()),
                number(row.tools as u64),
                number(row.held.len() as u64),
                calls,
                or_dash(row.connections.map(|count| number(count as u64))),
                row.error.clone().unwrap_or_default(),
            ],
        );
    }
    let servers = counted(rows.len(), "server");
    let tools = counted(rows.iter().map(|row| row.tools).sum(), "tool");
    let mut text = format!("{table}\n{BOLD}{servers}, {tools}{BOLD:#}\n");
    text.push_str(&super::held_back(rows.iter().map(|row| (&*row.name, &*row.held))));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_address_of_a_gateway_will_do() {
        for given in ["http://h:7171", "http://h:7171/", "http://h:7171/mcp", "http://h:7171/mcp/"]
            .into_iter()
            .chain(["http://h:7171/mcp/s/git", "http://h:7171/servers?x=1"])
        {
            assert_eq!(address(given).unwrap().as_str(), "http://h:7171/servers", "{given}");
        }
        for (given, meant) in [
            ("https://h/crib/mcp", "https://h/crib/servers"),
            ("https://h/mcp-gw/mcp", "https://h/mcp-gw/servers"),
            ("https://h/mcp/mcp/full", "https://h/mcp/servers"),
            ("https://h/mcp/s/mcp", "https://h/servers"),
            ("https://h/mcp-gw", "https://h/mcp-gw/servers"),
        ] {
            assert_eq!(address(given).unwrap().as_str(), meant, "{given}");
        }
        let secret = address("https://me:secret@h/mcp").unwrap();
        assert_eq!(shown(&secret).as_str(), "https://h/servers");
        for wrong in ["h:7171", "", "file:///x", "127.0.0.1:7171"] {
            assert!(address(wrong).is_err(), "{wrong}");
        }
    }
}
