//! Web pages, as Markdown.

mod address;
mod client;
mod markdown;

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin::Options;
use crate::error::Failure;
use crate::tool::{Effect, Tool, Tools, on_a_thread};
use address::Rule;
use client::Web;
use markdown::Document;

const LONGEST_PART: usize = 100_000;
const MOST_LINKS: usize = 500;

pub(crate) fn tools(options: &Options) -> Vec<Tool> {
    let rule = if options.allow_private_addresses { Rule::any() } else { Rule::public() };
    Tools::new(Web::new(rule))
        .waiting(FETCH, Effect::ReadsOpenWorld, fetch)
        .waiting(EXTRACT_LINKS, Effect::ReadsOpenWorld, extract_links)
        .into_tools()
}

const FETCH: (&str, &str) = (
    "fetch",
    "Fetch a web page or other text from a URL and read it as Markdown. Use it to read articles, \
     documentation or an API's answer; long pages come in parts, with start_index to go on.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Fetch {
    /// The address, beginning with http:// or https://.
    url: String,
    /// How many characters to give at most.
    #[serde(default = "part")]
    #[schemars(range(min = 1, max = 100000))]
    max_length: usize,
    /// The character to start at, to go on where the last part ended.
    #[serde(default)]
    start_index: usize,
    /// Give the page as it was sent, not as Markdown.
    #[serde(default)]
    raw: bool,
}

fn part() -> usize {
    20_000
}

async fn fetch(web: Arc<Web>, arguments: Fetch) -> Result<String, Failure> {
    let page = web.get(&arguments.url).await?;
    on_a_thread(move |_| {
        let is_page = page.is_html() && !arguments.raw;
        let (title, text) = match is_page {
            true => {
                let Document { title, text, .. } = Document::read(&page.text, &page.url);
                (title, text)
            }
            false => (None, page.text.clone()),
        };
        let total = text.chars().count();
        let most = arguments.max_length.clamp(1, LONGEST_PART);
        let part: String = text.chars().skip(arguments.start_index).take(most).collect();
        if part.is_empty() && arguments.start_index > 0 {
            return Err(Failure::invalid(format!("The page has only {total} characters.")));
        }
        let mut answer = String::new();
        if is_page {
            let title = title.map(|title| format!("Title: {title}\n")).unwrap_or_default();
            answer = format!("{title}URL: {}\n\n", page.url);
        }
        answer.push_str(&part);
        let end = arguments.start_index.saturating_add(most);
        if end < total {
            answer.push_str(&format!(
                "\n\n[Go on with start_index {end}; there are {total} characters.]"
            ));
        } else if page.is_cut {
            answer.push_str("\n\n[The page is very large; only its beginning was read.]");
        }
        Ok(answer)
    })
    .await
}

const EXTRACT_LINKS: (&str, &str) = (
    "extract_links",
    "List the links of a web page with their texts and full addresses. Use it to find where a page \
     leads, such as downloads, chapters or search results.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ExtractLinks {
    /// The address, beginning with http:// or https://.
    url: String,
    /// Only links whose text or address contains this, whatever the case.
    contains: Option<String>,
    /// How many links to give at most.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 500))]
    limit: usize,
}

fn hundred() -> usize {
    100
}

async fn extract_links(web: Arc<Web>, arguments: ExtractLinks) -> Result<Value, Failure> {
    let page = web.get(&arguments.url).await?;
    if !page.is_html() {
        return Err(Failure::invalid("This is not an HTML page, so it has no links."));
    }
    on_a_thread(move |_| {
        let wanted = arguments.contains.unwrap_or_default().to_lowercase();
        let fits = |text: &str| text.to_lowercase().contains(&wanted);
        let mut links = Document::read(&page.text, &page.url).links;
        links.retain(|link| fits(&link.text) || fits(&link.url));
        let count = links.len();
        let links = links.iter().take(arguments.limit.clamp(1, MOST_LINKS));
        let links: Vec<Value> =
            links.map(|link| json!({"text": link.text, "url": link.url})).collect();
        Ok(json!({"url": page.url.as_str(), "count": count, "links": links}))
    })
    .await
}

#[cfg(test)]
mod tests;
