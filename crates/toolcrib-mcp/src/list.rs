//! What a server offers: its tools, through all pages and within limits.

use std::collections::HashSet;
use std::time::SystemTime;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde_json::value::RawValue;
use tokio::time::Duration;
use toolcrib_core::{Deferral, ToolName, ToolSpec};
use toolcrib_runtime::{Listing, Manifest};
use toolcrib_wire::Fields;

use crate::config::ServerConfig;
use crate::connection::{Connection, Failure};
use crate::handshake::Greeting;

/// Pages read of a list.
const MOST_PAGES: usize = 1_000;
/// Tools taken of a server.
const MOST_TOOLS: usize = 50_000;
/// Bytes of tools taken of a server.
const MOST_BYTES: usize = 128 << 20;
/// Bytes taken of a server's own words on what it can do.
const MOST_SENTENCE: usize = 500;

/// Asks for all tools.
pub(crate) async fn ask(
    connection: &Connection,
    config: &ServerConfig,
    greeting: &Greeting,
) -> Result<Manifest, Failure> {
    let mut tools: Vec<Box<RawValue>> = Vec::new();
    let mut holds_for: Option<Duration> = None;
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    let mut bytes = 0;
    let cut_short =
        |why| tracing::warn!(server = config.name, "its list of tools {why}: cut short");
    loop {
        let mut params = Fields::default();
        if let Some(cursor) = &cursor {
            params.set("cursor", cursor);
        }
        let answer = match connection.request("tools/list", params, None, None).await {
            // Servers without tools may not know the question.
            Err(Failure::Refused(error))
                if error.code == toolcrib_wire::code::METHOD_NOT_FOUND && cursor.is_none() =>
            {
                break;
            }
            other => other?,
        };
        let page = Fields::parse(answer.get()).unwrap_or_default();
        let Some(items) = page.read::<Vec<&RawValue>>("tools") else {
            return Err(Failure::Lost("its list of tools can't be read".to_owned()));
        };
        bytes += answer.get().len();
        if tools.len() + items.len() > MOST_TOOLS || bytes > MOST_BYTES {
            let most = format!("more than {MOST_TOOLS} tools or {MOST_BYTES} bytes");
            return Err(Failure::Lost(format!("its list of tools is too long: {most}")));
        }
        tools.extend(items.into_iter().map(ToOwned::to_owned));
        // Nothing, or no time at all, is no promise: the list is asked for when the server runs.
        if let Some(ttl) = page.read::<f64>("ttlMs").filter(|ttl| *ttl >= 1.0) {
            let ttl = Duration::from_millis(ttl as u64);
            holds_for = Some(holds_for.map_or(ttl, |before| before.min(ttl)));
        }
        let next = page.read::<String>("nextCursor").filter(|next| !next.is_empty());
        let Some(next) = next else { break };
        if !seen.insert(next.clone()) {
            cut_short("repeats itself");
            break;
        }
        if seen.len() >= MOST_PAGES {
            cut_short("has no end");
            break;
        }
        cursor = Some(next);
    }
    Ok(Manifest {
        server: config.name.clone(),
        protocol_version: greeting.version.clone(),
        server_info: greeting.server_info.clone(),
        capabilities: greeting.capabilities.clone(),
        instructions: greeting.instructions.clone(),
        tools,
        listed_at: SystemTime::now(),
        holds_for,
        start_took: None,
    })
}

/// What was read, and what was left out with the reason.
pub(crate) struct Read {
    pub(crate) listing: Listing,
    pub(crate) quarantined: Vec<(String, String)>,
}

/// Reads a manifest tool by tool: one that is no tool costs no other.
pub(crate) fn read(manifest: &Manifest, config: &ServerConfig) -> Read {
    let (include, exclude) = (globs(&config.include), globs(&config.exclude));
    let wanted = |tool: &str| {
        (config.include.is_empty() || include.is_match(tool)) && !exclude.is_match(tool)
    };
    let (mut specs, mut quarantined) = (Vec::new(), Vec::new());
    let mut names = HashSet::new();
    for (at, raw) in manifest.tools.iter().enumerate() {
        match spec(raw, config) {
            Ok(spec) if !wanted(spec.name().tool()) => {}
            Ok(spec) if names.insert(spec.name().tool().to_owned()) => specs.push(spec),
            Ok(spec) => {
                quarantined.push((spec.name().tool().to_owned(), "it is listed twice".to_owned()));
            }
            Err(reason) => {
                let name = Fields::parse(raw.get()).and_then(|tool| tool.read::<String>("name"));
                let name = name.unwrap_or_else(|| format!("tool {}", at + 1));
                quarantined.push((name, reason));
            }
        }
    }
    let info = manifest.server_info.as_ref().and_then(|raw| Fields::parse(raw.get()));
    let title = info.and_then(|info| info.read::<String>("title"));
    let about = manifest.instructions.as_deref().map(first_sentence);
    let listing = Listing {
        title: config.title.clone().or(title),
        description: config.description.clone().or(about),
        specs,
        down: None,
    };
    Read { listing, quarantined }
}

fn spec(raw: &RawValue, config: &ServerConfig) -> Result<ToolSpec, String> {
    let name = |tool: String| ToolName::mcp(config.name.as_str(), tool);
    let mut spec = ToolSpec::parse(raw.get(), name).map_err(|error| error.to_string())?;
    let mut extra = Fields::parse(raw.get()).unwrap_or_default();
    extra.retain(|key| !matches!(key, "name" | "description" | "inputSchema"));
    if !extra.is_empty() {
        spec = spec.with_extra(extra.to_raw().get());
    }
    if config.eager {
        spec = spec.with_deferral(Deferral::Eager);
    }
    Ok(spec)
}

/// Patterns that can't be read match nothing; the configuration has been checked before.
fn globs(patterns: &[String]) -> GlobSet {
    let mut set = GlobSetBuilder::new();
    for glob in patterns.iter().filter_map(|pattern| Glob::new(pattern).ok()) {
        set.add(glob);
    }
    set.build().unwrap_or_default()
}

fn first_sentence(text: &str) -> String {
    let text = text.split_whitespace().collect::<Vec<&str>>().join(" ");
    let end = text.find(". ").map_or(text.len(), |at| at + 1);
    text[..end.min(text.floor_char_boundary(MOST_SENTENCE))].to_owned()
}
