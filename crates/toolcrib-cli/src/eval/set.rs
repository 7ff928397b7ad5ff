//! Labelled sets: tools, and queries that say which of them they need.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, anyhow, bail};
use serde::Deserialize;
use serde_json::Value;
use toolcrib::search::Tuning;
use toolcrib::{Corpus, ToolName, ToolSpec, View};

use super::metrics::Needs;
use crate::output::Misuse;

const TOOLS: &str = "tools.jsonl";
const QUERIES: &str = "queries.jsonl";

/// The set that ships with the program.
const OWN: (&str, &str, &str) = (
    "toolcrib",
    include_str!("../../data/eval/tools.jsonl"),
    include_str!("../../data/eval/queries.jsonl"),
);

/// Tools, and queries over them. One without queries only adds to the pool.
#[derive(Debug)]
pub(super) struct Set {
    pub(super) name: String,
    pub(super) tools: Tools,
    pub(super) queries: Vec<Query>,
}

#[derive(Debug)]
pub(super) enum Tools {
    /// Those of a set, under its ids.
    Listed(Vec<(Arc<str>, ToolSpec)>),
    /// Those of servers, as a caller sees them.
    Seen(View),
}

#[derive(Debug)]
pub(super) struct Query {
    pub(super) id: Value,
    pub(super) text: String,
    pub(super) style: Option<String>,
    pub(super) needs: Needs,
}

/// What a path turned out to be.
pub(super) enum Found {
    /// Folders with a `tools.jsonl` in them.
    Sets(Vec<PathBuf>),
    /// A tool list, or a folder of them.
    Lists(PathBuf),
}

impl Tools {
    /// The tools, indexed to be ranked with these numbers.
    pub(super) fn corpus(&self, tuning: &Tuning) -> Corpus {
        match self {
            Self::Seen(view) if *tuning == Corpus::TUNING => Corpus::from(view.clone()),
            _ => Corpus::tuned(self.each(), tuning),
        }
    }

    /// Each tool under its id.
    pub(super) fn each(&self) -> Box<dyn Iterator<Item = (Arc<str>, ToolSpec)> + '_> {
        match self {
            Self::Listed(tools) => Box::new(tools.iter().cloned()),
            Self::Seen(view) => {
                let tools = view.tools();
                Box::new(tools.map(|tool| (tool.name().to_string().into(), tool.spec().clone())))
            }
        }
    }
}

impl Found {
    pub(super) fn at(path: &Path) -> anyhow::Result<Self> {
        let shown = path.display();
        let kind = fs::metadata(path).with_context(|| format!("can't read {shown}"))?;
        if path.join(TOOLS).is_file() {
            return Ok(Self::Sets(vec![path.to_owned()]));
        }
        if !kind.is_dir() {
            return Ok(Self::Lists(path.to_owned()));
        }
        let entries = fs::read_dir(path).and_then(Iterator::collect::<Result<Vec<_>, _>>);
        let entries = entries.with_context(|| format!("can't read folder {shown}"))?;
        let mut inside: Vec<PathBuf> = entries.iter().map(fs::DirEntry::path).collect();
        inside.sort();
        let sets: Vec<PathBuf> =
            inside.iter().filter(|path| path.join(TOOLS).is_file()).cloned().collect();
        if !sets.is_empty() {
            return Ok(Self::Sets(sets));
        }
        let is_list = |path: &PathBuf| path.extension().is_some_and(|it| it == "json");
        if !inside.iter().any(is_list) {
            bail!(
                "folder {shown} has no {TOOLS}, no folder with one, and no *.json file of a \
                 server's tools"
            );
        }
        Ok(Self::Lists(path.to_owned()))
    }
}

impl Set {
    /// The set that ships with the program.
    pub(super) fn own() -> anyhow::Result<Self> {
        let (name, tools, queries) = OWN;
        let mut warnings = Vec::new();
        let tools = read_tools("the shipped tools", tools, &mut warnings)?;
        let queries = read_queries("the shipped queries", queries)?;
        Ok(Self { name: name.to_owned(), tools: Tools::Listed(tools), queries })
    }

    /// The set in a folder. Tools that can't be read are told of in `warnings`.
    pub(super) fn read(folder: &Path, warnings: &mut Vec<String>) -> anyhow::Result<Self> {
        let file = folder.join(TOOLS);
        let tools = read_tools(&file.display().to_string(), &read(&file)?, warnings)?;
        let file = folder.join(QUERIES);
        let queries = if file.exists() { Self::queries(&file)? } else { Vec::new() };
        let full = fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
        let name = full.file_name().unwrap_or(folder.as_os_str());
        let name = name.to_string_lossy().into_owned();
        Ok(Self { name, tools: Tools::Listed(tools), queries })
    }

    /// The queries of a file.
    pub(super) fn queries(file: &Path) -> anyhow::Result<Vec<Query>> {
        read_queries(&file.display().to_string(), &read(file)?)
    }

    /// Tools that queries need and the corpus doesn't have, each once. Those that would only do as
    /// well may be missing.
    pub(super) fn unknown(&self, corpus: &Corpus) -> Vec<&str> {
        let mut seen = HashSet::new();
        let needs = self.queries.iter().flat_map(|query| &query.needs.0);
        let needed = needs.filter_map(|tools| tools.first()).map(String::as_str);
        needed.filter(|id| !corpus.contains(id) && seen.insert(*id)).collect()
    }
}

/// A line of `tools.jsonl`, beside what any tool has.
#[derive(Deserialize)]
struct ToolLine {
    id: Option<Arc<str>>,
    server: Option<Arc<str>>,
}

/// A line of `queries.jsonl`.
#[derive(Deserialize)]
struct QueryLine {
    id: Value,
    query: String,
    #[serde(default)]
    style: Option<String>,
    gold: Vec<String>,
    #[serde(default)]
    gold_any: Option<Equivalents>,
}

/// Tools that do as well: for the one tool that is needed, or for each by its id.
#[derive(Deserialize)]
#[serde(untagged)]
enum Equivalents {
    OfOne(Vec<String>),
    OfEach(BTreeMap<String, Vec<String>>),
}

fn read(file: &Path) -> anyhow::Result<String> {
    let shown = file.display();
    let bytes = fs::read(file).with_context(|| format!("can't read {shown}"))?;
    let text = String::from_utf8(bytes).map_err(|_| anyhow!("{shown} is not text"))?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

/// The lines that say something, each with its place for a message.
fn lines<'a>(file: &'a str, text: &'a str) -> impl Iterator<Item = (String, &'a str)> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(move |(at, line)| (format!("{file}, line {}", at + 1), line))
}

fn read_tools(
    file: &str,
    text: &str,
    warnings: &mut Vec<String>,
) -> anyhow::Result<Vec<(Arc<str>, ToolSpec)>> {
    let mut tools = Vec::new();
    for (place, line) in lines(file, text) {
        let ToolLine { id, server } = serde_json::from_str(line).map_err(|error| {
            anyhow!(
                "{place}: expected {{\"id\", \"server\", \"name\", \"description\", \
                 \"inputSchema\"}}: {error}"
            )
        })?;
        let name = |tool: String| match server {
            Some(server) => ToolName::mcp(server, tool),
            None => ToolName::host(tool),
        };
        match ToolSpec::parse(line, name) {
            Ok(spec) => {
                let id = id.unwrap_or_else(|| spec.name().to_string().into());
                tools.push((id, spec));
            }
            Err(error) => warnings.push(format!("{place} was left out: {error}")),
        }
    }
    if tools.is_empty() {
        bail!("{file} has no tool");
    }
    Ok(tools)
}

fn read_queries(file: &str, text: &str) -> anyhow::Result<Vec<Query>> {
    let mut queries: Vec<Query> = Vec::new();
    let mut ids = HashSet::new();
    for (place, line) in lines(file, text) {
        let line: QueryLine = serde_json::from_str(line).map_err(|error| {
            anyhow!("{place}: expected {{\"id\", \"query\", \"gold\": [tool ids]}}: {error}")
        })?;
        if !matches!(line.id, Value::String(_) | Value::Number(_)) {
            bail!("{place}: `id` is neither a string nor a number");
        }
        if !ids.insert(line.id.to_string()) {
            bail!("{place}: there is a query with the id {} already", line.id);
        }
        if line.gold.is_empty() {
            bail!("{place}: `gold` is empty; it lists the ids of the tools that are needed");
        }
        let needs = needs(line.gold, line.gold_any);
        queries.push(Query { id: line.id, text: line.query, style: line.style, needs });
    }
    if queries.is_empty() {
        return Err(Misuse::new(format!("{file} has no query")).into());
    }
    Ok(queries)
}

/// One need per tool of `gold`. Which need several tools of a plain list would meet can't be told
/// where there is more than one, so it counts only where there is one.
fn needs(gold: Vec<String>, any: Option<Equivalents>) -> Needs {
    let mut seen = HashSet::new();
    let gold: Vec<String> = gold.into_iter().filter(|id| seen.insert(id.clone())).collect();
    let is_one = gold.len() == 1;
    let equivalents = |id: &String| match &any {
        Some(Equivalents::OfOne(ids)) if is_one => ids.clone(),
        Some(Equivalents::OfEach(by_id)) => by_id.get(id).cloned().unwrap_or_default(),
        _ => Vec::new(),
    };
    Needs(
        gold.iter()
            .map(|id| std::iter::once(id.clone()).chain(equivalents(id)).collect())
            .collect(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs_of(line: &str) -> Vec<Vec<String>> {
        let line: QueryLine = serde_json::from_str(line).unwrap();
        needs(line.gold, line.gold_any).0
    }

    #[test]
    fn equivalents_count_where_it_is_clear_for_what() {
        let one = r#"{"id":1,"query":"q","gold":["a"],"gold_any":["b","c"]}"#;
        assert_eq!(needs_of(one), [["a", "b", "c"]]);
        let each = r#"{"id":1,"query":"q","gold":["a","b"],"gold_any":{"b":["c"]}}"#;
        assert_eq!(needs_of(each), [vec!["a"], vec!["b", "c"]]);
        let unclear = r#"{"id":1,"query":"q","gold":["a","b"],"gold_any":["c"]}"#;
        assert_eq!(needs_of(unclear), [["a"], ["b"]]);
        assert_eq!(needs_of(r#"{"id":1,"query":"q","gold":["a","a"]}"#), [["a"]]);
    }

    #[test]
    fn the_shipped_set_is_sound() {
        let set = Set::own().unwrap();
        let corpus = set.tools.corpus(&Corpus::TUNING);
        assert_eq!(set.unknown(&corpus), Vec::<&str>::new());
        let Tools::Listed(tools) = &set.tools else { panic!("{set:?}") };
        assert_eq!(tools.len(), corpus.len(), "an id occurs twice");
        let styles: HashSet<&str> =
            set.queries.iter().filter_map(|query| query.style.as_deref()).collect();
        assert_eq!(styles.len(), 7, "{styles:?}");
        for query in &set.queries {
            let is_multi = query.style.as_deref() == Some("multi");
            assert_eq!(is_multi, query.needs.0.len() > 1, "{query:?}");
        }
        let texts: HashSet<&str> = set.queries.iter().map(|query| &*query.text).collect();
        assert_eq!(texts.len(), set.queries.len(), "a query occurs twice");
    }
}
