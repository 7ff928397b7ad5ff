//! What a server offers: its tools and the rest, through all pages and within limits.

use std::collections::HashSet;

use globset::{Glob, GlobSet, GlobSetBuilder};
use serde_json::value::RawValue;
use tokio::time::Duration;
use toolcrib_core::{Annotations, Deferral, ToolName, ToolSpec};
use toolcrib_runtime::{Caller, Listing, Manifest};
use toolcrib_wire::Fields;
use toolcrib_wire::headers::Repeated;

use crate::config::ServerConfig;
use crate::connection::{Connection, Failure};
use crate::handshake::Greeting;
use crate::secrets::Secrets;

/// Pages read of a list.
const MOST_PAGES: usize = 1_000;
/// Entries taken of a list.
const MOST_ITEMS: usize = 50_000;
/// Bytes taken of a list.
const MOST_BYTES: usize = 128 << 20;
/// Bytes taken of a server's own words on what it can do.
const MOST_SENTENCE: usize = 500;

/// Asks for all tools.
pub(crate) async fn ask(
    connection: &Connection,
    config: &ServerConfig,
    greeting: &Greeting,
) -> Result<Manifest, Failure> {
    let listed = pages(connection, "tools/list", "tools").await?;
    if let Some(why) = listed.cut_short {
        tracing::warn!(server = config.name, "its list of tools {why}: cut short");
    }
    Ok(Manifest {
        server_info: greeting.server_info.clone(),
        capabilities: greeting.capabilities.clone(),
        instructions: greeting.instructions.clone(),
        tools: listed.items,
        holds_for: listed.holds_for,
        ..Manifest::new(&config.name, &greeting.version)
    })
}

/// What a server offers beside its tools; `None` for a list that could not be had.
#[derive(Debug, Default)]
pub(crate) struct Rest {
    pub(crate) resources: Option<Vec<Box<RawValue>>>,
    pub(crate) templates: Option<Vec<Box<RawValue>>>,
    pub(crate) prompts: Option<Vec<Box<RawValue>>>,
}

/// Asks for all that a server says it has beside tools.
pub(crate) async fn rest(
    connection: &Connection,
    greeting: &Greeting,
    server: &str,
    secrets: &Secrets,
) -> Rest {
    let declared = greeting.capabilities.as_ref().and_then(|raw| Fields::parse(raw.get()));
    let declares = |name| declared.as_ref().is_some_and(|declared| declared.get(name).is_some());
    let all = |declared: bool, method: &'static str, member: &'static str| async move {
        if !declared {
            return Some(Vec::new());
        }
        match pages(connection, method, member).await {
            Ok(listed) => {
                if let Some(why) = listed.cut_short {
                    tracing::warn!(server, method, "the list {why}: cut short");
                }
                Some(listed.items)
            }
            Err(failure) => {
                let reason = secrets.hide(&failure.to_string());
                tracing::warn!(server, method, reason, "what is known of it stays");
                None
            }
        }
    };
    let (has_resources, has_prompts) = (declares("resources"), declares("prompts"));
    let (resources, templates, prompts) = tokio::join!(
        all(has_resources, "resources/list", "resources"),
        all(has_resources, "resources/templates/list", "resourceTemplates"),
        all(has_prompts, "prompts/list", "prompts"),
    );
    Rest { resources, templates, prompts }
}

/// A list, through its pages.
struct Listed {
    items: Vec<Box<RawValue>>,
    holds_for: Option<Duration>,
    /// Why it is not whole, if it is not.
    cut_short: Option<&'static str>,
}

async fn pages(connection: &Connection, method: &str, member: &str) -> Result<Listed, Failure> {
    let mut listed = Listed { items: Vec::new(), holds_for: None, cut_short: None };
    let mut cursor: Option<String> = None;
    let mut seen = HashSet::new();
    let mut bytes = 0;
    loop {
        let mut params = Fields::default();
        if let Some(cursor) = &cursor {
            params.set("cursor", cursor);
        }
        let answer = match connection.request(method, params, &Caller::default(), None).await {
            // Servers that have nothing of the kind may not know the question.
            Err(Failure::Refused(error))
                if error.code == toolcrib_wire::code::METHOD_NOT_FOUND && cursor.is_none() =>
            {
                break;
            }
            other => other?,
        };
        let page = Fields::parse(answer.get()).unwrap_or_default();
        let Some(items) = page.read::<Vec<&RawValue>>(member) else {
            return Err(Failure::Lost(format!("its list of {member} can't be read")));
        };
        bytes += answer.get().len();
        if listed.items.len() + items.len() > MOST_ITEMS || bytes > MOST_BYTES {
            let most = format!("more than {MOST_ITEMS} {member} or {MOST_BYTES} bytes");
            return Err(Failure::Lost(format!("its list of {member} is too long: {most}")));
        }
        listed.items.extend(items.into_iter().map(ToOwned::to_owned));
        // Nothing, or no time at all, is no promise: the list is asked for when the server runs.
        if let Some(ttl) = page.read::<f64>("ttlMs").filter(|ttl| *ttl >= 1.0) {
            let ttl = Duration::from_millis(ttl as u64);
            listed.holds_for = Some(listed.holds_for.map_or(ttl, |before| before.min(ttl)));
        }
        let next = page.read::<String>("nextCursor").filter(|next| !next.is_empty());
        let Some(next) = next else { break };
        if !seen.insert(next.clone()) {
            listed.cut_short = Some("repeats itself");
            break;
        }
        if seen.len() >= MOST_PAGES {
            listed.cut_short = Some("has no end");
            break;
        }
        cursor = Some(next);
    }
    Ok(listed)
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
        ..Listing::default()
    };
    Read { listing, quarantined }
}

fn spec(raw: &RawValue, config: &ServerConfig) -> Result<ToolSpec, String> {
    let name = |tool: String| ToolName::mcp(config.name.as_str(), tool);
    let mut spec = ToolSpec::parse(raw.get(), name).map_err(|error| error.to_string())?;
    let mut extra = Fields::parse(raw.get()).unwrap_or_default();
    if let Some(schema) = extra.get("inputSchema") {
        Repeated::all(schema.get())?;
    }
    extra.retain(|key| !matches!(key, "name" | "description" | "inputSchema"));
    if !extra.is_empty() {
        spec = spec.with_extra(extra.to_raw().get());
    }
    if !config.trust_annotations {
        spec = spec.with_annotations(Annotations::default());
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
