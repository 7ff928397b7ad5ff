//! Finding tools: exact names first, then `select:a,b`, `/regex/`, `+must` and plain words.

use std::collections::HashSet;
use std::sync::Arc;

use indexmap::IndexSet;
use regex::{Regex, RegexBuilder};
use serde::Serialize;
use toolcrib_search::{Analyzer, Explanation, Query, Ranking, Reading, Scores};

use crate::scope::{Learned, Lookup, Scope};
use crate::segment::{Item, Segment, document};
use crate::text::one_line;
use crate::usage::Chosen;
use crate::{GroupId, Meaning, ToolName, View};

/// Longest pattern that is compiled, and the most memory its automaton may take. The engine is
/// linear in the text, so these bound the time as well.
const MOST_PATTERN_BYTES: usize = 1_000;
const MOST_AUTOMATON_BYTES: usize = 1 << 20;

/// Longest query that is looked at; a model that pastes a page means its beginning.
const MOST_QUERY_BYTES: usize = 4_000;

/// How many of the tools that share words with a wrong name are compared with it by letters.
const MOST_COMPARED: usize = 64;

/// How close (Jaro-Winkler) a name must be to count as the same but for a slip, and how close to
/// be worth mentioning at all.
const ALIKE: f64 = 0.9;
const SIMILAR: f64 = 0.8;

/// Names that are looked up at a time.
const MOST_SELECTED: usize = 200;

/// A query, understood.
#[derive(Debug)]
pub(crate) enum Ask<'q> {
    /// These very tools.
    Select(Vec<&'q str>),
    /// Names or descriptions that match.
    Pattern(Regex),
    /// Words to rank by, of which some must occur.
    Words { text: &'q str, query: Query },
}

/// A query that asks for nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unasked {
    Blank,
    BadPattern(String),
}

impl<'q> Ask<'q> {
    pub(crate) fn parse(text: &'q str) -> Result<Self, Unasked> {
        if let Some(names) = strip_prefix_ignoring_case(text.trim(), "select:") {
            let names = split_names(names);
            return if names.is_empty() { Err(Unasked::Blank) } else { Ok(Self::Select(names)) };
        }
        let text = clip(text.trim(), MOST_QUERY_BYTES);
        if let Some(pattern) = text
            .strip_prefix('/')
            .and_then(|rest| rest.strip_suffix("/i").or_else(|| rest.strip_suffix('/')))
        {
            return if pattern.is_empty() { Err(Unasked::Blank) } else { Self::pattern(pattern) };
        }
        let query = words_of(text, Reading::DEFAULT);
        // What has no words, such as an emoji, may still be a name.
        if (query.is_empty() && text.is_ascii()) || text.eq_ignore_ascii_case("null") {
            return Err(Unasked::Blank);
        }
        Ok(Self::Words { text, query })
    }

    /// Words to rank by, whatever marks they stand with; nothing if there are none.
    pub(crate) fn words(text: &'q str) -> Option<Self> {
        let text = clip(text.trim(), MOST_QUERY_BYTES);
        let query = Query::new(text);
        (!query.is_empty()).then_some(Self::Words { text, query })
    }

    /// The same, its words ranked in another way.
    pub(crate) fn ranked_by(self, ranking: Ranking) -> Self {
        match self {
            Self::Words { text, query } => Self::Words { text, query: query.ranked_by(ranking) },
            other => other,
        }
    }

    /// The same where tools were read in another way than the usual.
    pub(crate) fn read(self, reading: Reading) -> Self {
        match self {
            Self::Words { text, .. } if reading != Reading::DEFAULT => {
                Self::Words { text, query: words_of(text, reading) }
            }
            other => other,
        }
    }

    pub(crate) fn pattern(pattern: &str) -> Result<Self, Unasked> {
        if pattern.len() > MOST_PATTERN_BYTES {
            let reason = format!("it is longer than {MOST_PATTERN_BYTES} bytes");
            return Err(Unasked::BadPattern(reason));
        }
        RegexBuilder::new(pattern)
            .case_insensitive(true)
            .size_limit(MOST_AUTOMATON_BYTES)
            .dfa_size_limit(MOST_AUTOMATON_BYTES)
            .build()
            .map(Self::Pattern)
            .map_err(|error| Unasked::BadPattern(reason(&error)))
    }
}

/// The words of a query; those that must occur stand with a plus.
fn words_of(text: &str, reading: Reading) -> Query {
    let (must, rest): (Vec<&str>, Vec<&str>) =
        text.split_whitespace().partition(|word| word.len() > 1 && word.starts_with('+'));
    let must: Vec<&str> = must.iter().map(|word| &word[1..]).collect();
    Query::read(reading, &rest.join(" "), &must)
}

/// The one line of the error that says what is wrong; the others draw an arrow below the pattern.
fn reason(error: &regex::Error) -> String {
    match error {
        regex::Error::CompiledTooBig(_) => "it is too large when compiled".to_owned(),
        other => {
            let text = other.to_string();
            let told = text.lines().find_map(|line| line.strip_prefix("error: "));
            one_line(told.unwrap_or(&text), 300)
        }
    }
}

/// `a, b ,,a` as `[a, b]`.
pub(crate) fn split_names(text: &str) -> Vec<&str> {
    let names = text.split([',', '\n']).map(str::trim).filter(|name| !name.is_empty());
    names.collect::<IndexSet<&str>>().into_iter().collect()
}

fn strip_prefix_ignoring_case<'t>(text: &'t str, prefix: &str) -> Option<&'t str> {
    let head = text.get(..prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then(|| &text[prefix.len()..])
}

fn clip(text: &str, most: usize) -> &str {
    let mut end = text.len().min(most);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What a query found.
#[derive(Debug, Default)]
pub(crate) struct Found<'a> {
    pub(crate) total: usize,
    pub(crate) hits: Vec<Hit<'a>>,
    pub(crate) misses: Vec<Miss>,
    /// How many of the names asked for were not looked up, there being too many.
    pub(crate) unread: usize,
    /// For the audit log: tools asked for by name that the policy hides.
    pub(crate) denied: Vec<ToolName>,
    /// Whether words were ranked by, and none of them was a name.
    pub(crate) by_words: bool,
    /// Tools that gave up their place because another server's are the same and fit better.
    pub(crate) left_out: Vec<Item<'a>>,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Hit<'a> {
    pub(crate) item: Item<'a>,
    pub(crate) score: f32,
}

/// What use adds to the score of a document, and why.
struct Lifted {
    doc: usize,
    by: f32,
    reason: String,
}

/// A name that led to no one tool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Miss {
    pub(crate) asked: String,
    /// The tools that share the name, if that is the trouble.
    pub(crate) candidates: Vec<Arc<str>>,
}

impl<'a> Scope<'a> {
    /// A query, understood where these are the tools: what would ask for nothing, such as `null` or
    /// a dash, may be the name of one.
    pub(crate) fn ask<'q>(self, text: &'q str) -> Result<Ask<'q>, Unasked> {
        let name = text.trim();
        match Ask::parse(text) {
            Err(Unasked::Blank) if self.has(name) => {
                Ok(Ask::Words { text: name, query: Query::new(name) })
            }
            asked => asked,
        }
    }

    /// Whether a tool is called exactly this, by its exposed name or its own.
    pub(crate) fn has(self, name: &str) -> bool {
        let is_it = |item: &Item<'_>| **item.exposed() == *name || item.name().tool() == name;
        match self.find(name) {
            Lookup::Tool(tool) => is_it(&Item::Tool(tool)),
            Lookup::Named(named) => is_it(&Item::Named(named)),
            Lookup::Ambiguous(items) => items.iter().any(is_it),
            Lookup::Missing { .. } => false,
        }
    }

    /// The best `limit` answers, and how many there are in all.
    pub(crate) fn search(self, ask: &Ask<'_>, limit: usize) -> Found<'a> {
        match ask {
            Ask::Select(names) => self.select(names),
            Ask::Pattern(regex) => self.matching(regex, limit),
            Ask::Words { text, query } => self.ranked(text, query, limit),
        }
    }

    /// Looks each name up.
    pub(crate) fn select(self, names: &[&str]) -> Found<'a> {
        let mut found =
            Found { unread: names.len().saturating_sub(MOST_SELECTED), ..Found::default() };
        for name in names.iter().take(MOST_SELECTED) {
            let item = match self.find(name) {
                Lookup::Tool(tool) => Item::Tool(tool),
                Lookup::Named(named) => Item::Named(named),
                Lookup::Ambiguous(items) => {
                    let candidates = items.iter().map(|item| item.exposed().clone()).collect();
                    found.misses.push(Miss { asked: one_line(name, 200), candidates });
                    continue;
                }
                Lookup::Missing { denied } => {
                    found.denied.extend(denied);
                    found.misses.push(Miss { asked: one_line(name, 200), candidates: vec![] });
                    continue;
                }
            };
            if !found.hits.iter().any(|hit| hit.item.name() == item.name()) {
                found.hits.push(Hit { item, score: 1.0 });
            }
        }
        found.total = found.hits.len();
        found
    }

    /// Names or descriptions that match, in the order of names.
    fn matching(self, regex: &Regex, limit: usize) -> Found<'a> {
        let matches = |item: Item<'_>| {
            let describes = match item {
                Item::Tool(tool) => regex.is_match(tool.spec().description()),
                Item::Named(_) => false,
            };
            describes || regex.is_match(item.exposed()) || regex.is_match(item.name().tool())
        };
        let mut items: Vec<Item<'a>> = self.candidates().filter(|item| matches(*item)).collect();
        items.sort_by(|a, b| a.exposed().cmp(b.exposed()));
        items.dedup_by(|a, b| a.exposed() == b.exposed());
        let total = items.len();
        let hits = items.into_iter().take(limit).map(|item| Hit { item, score: 1.0 }).collect();
        Found { total, hits, ..Found::default() }
    }

    fn ranked(self, text: &str, query: &Query, limit: usize) -> Found<'a> {
        let index = self.index();
        let exact = self.named_in(text);
        let by_words = exact.is_empty();
        let most = limit.saturating_add(exact.len());
        let mut scores = index.score(query);
        for Lifted { doc, by, .. } in self.lifts(text, &scores) {
            scores.lift(doc, by);
        }
        let page = self.page(&index, &scores, most);
        let best = page.hits.first().map_or(0.0, |hit| hit.score);
        let named = exact.into_iter().map(|item| Hit { item, score: best + 1.0 });
        let mut seen = HashSet::new();
        let mut hits: Vec<Hit<'a>> = named.chain(page.hits).collect();
        hits.retain(|hit| seen.insert(hit.item.key()));
        let total = page.total.max(hits.len());
        hits.truncate(limit);
        let is_named = |item: &Item<'a>| seen.contains(&item.key());
        let left_out = page.left_out.into_iter().filter(|item| !is_named(item)).collect();
        Found { total, hits, by_words, left_out, ..Found::default() }
    }

    /// What use adds to the scores of documents that match.
    fn lifts(self, text: &str, scores: &Scores) -> Vec<Lifted> {
        let is_known = |tool: &str| !self.documents_of(tool).is_empty();
        let chosen = self.view.usage().map_or_else(Vec::new, |usage| usage.chosen(text, is_known));
        if chosen.is_empty() {
            return Vec::new();
        }
        let best = scores.best();
        let lifted = |chosen: &Chosen| {
            let by = chosen.lift * best;
            let matches = |doc: &usize| scores.of(*doc) > 0.0;
            let docs = self.documents_of(&chosen.tool).into_iter().filter(matches);
            docs.map(|doc| Lifted { doc, by, reason: chosen.reason() }).collect::<Vec<_>>()
        };
        chosen.iter().flat_map(lifted).collect()
    }

    /// Where the score of an item comes from, if it is ranked by words.
    pub(crate) fn explain(
        self,
        ask: &Ask<'_>,
        segment: &Segment,
        item: Item<'_>,
    ) -> Option<Explanation> {
        let Ask::Words { text, query } = ask else { return None };
        let document = document(item, &segment.group);
        let index = self.index();
        let mut explanation =
            index.explain(query, &document, &mut Analyzer::reading(index.tuning().reading));
        let mut scores = index.score(query);
        for Lifted { doc, by, reason } in self.lifts(text, &scores) {
            scores.lift(doc, by);
            if self.document(&index, doc).key() == item.key() {
                explanation.lift(by, reason);
            }
        }
        let is_named = || self.named_in(text).iter().any(|named| named.key() == item.key());
        if let Some(copy) = self.behind(&index, &scores, item).filter(|_| !is_named()) {
            explanation.lift(-copy.loss, copy.reason());
        }
        Some(explanation)
    }

    /// Tools the query names outright: the whole query may be any kind of name; a single word of
    /// it only a full one, since `search` is a word before it is a tool.
    fn named_in(self, text: &str) -> Vec<Item<'a>> {
        if !text.contains(char::is_whitespace) || self.has_spaced_names() {
            match self.find(text) {
                Lookup::Tool(tool) => return vec![Item::Tool(tool)],
                Lookup::Named(named) => return vec![Item::Named(named)],
                Lookup::Ambiguous(items) => return items,
                Lookup::Missing { .. } => {}
            }
        }
        let full = |word: &str| match self.find(word) {
            Lookup::Tool(tool) if tool.name().tool() != word => Some(Item::Tool(tool)),
            Lookup::Named(named) if named.name.tool() != word => Some(Item::Named(named)),
            _ => None,
        };
        let words = text.split([' ', ',', '\n', '\t']);
        words.filter(|word| ToolName::may_be_qualified(word)).take(16).filter_map(full).collect()
    }

    /// Names close to one that doesn't exist: those spelt nearly alike, then those that share its
    /// words; if none does, those with similar letters.
    pub(crate) fn nearest(self, name: &str, most: usize) -> Vec<Arc<str>> {
        let name = clip(name, 200);
        let asked = name.to_lowercase();
        let measured = |item: Item<'a>| {
            let own = strsim::jaro_winkler(&asked, &item.name().tool().to_lowercase());
            let exposed = strsim::jaro_winkler(&asked, &item.exposed().to_lowercase());
            (own.max(exposed), item)
        };
        let by_words = match Ask::parse(name) {
            Ok(ask @ Ask::Words { .. }) => {
                self.search(&ask.ranked_by(Ranking::Lexical), MOST_COMPARED).hits
            }
            _ => Vec::new(),
        };
        let mut near: Vec<(f64, Item<'a>)> =
            by_words.iter().map(|hit| measured(hit.item)).collect();
        if near.is_empty() {
            let all = self.candidates().map(measured);
            near.extend(all.filter(|(closeness, _)| *closeness >= SIMILAR));
            near.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.exposed().cmp(b.1.exposed())));
        } else {
            let alike = |closeness: f64| if closeness >= ALIKE { closeness } else { 0.0 };
            near.sort_by(|a, b| alike(b.0).total_cmp(&alike(a.0)));
        }
        near.into_iter().take(most).map(|(_, item)| item.exposed().clone()).collect()
    }

    /// Groups whose members nobody knows yet and whose description shares a word with the query.
    pub(crate) fn unopened(self, text: &str) -> Vec<&'a GroupId> {
        let words: HashSet<String> =
            toolcrib_search::tokenize(clip(text, 1_000)).into_iter().collect();
        self.segments()
            .filter(|(segment, _)| self.is_unopened(segment))
            .filter(|(segment, _)| {
                let group = &segment.group;
                let about =
                    format!("{} {} {}", group.id(), group.display_name(), group.description());
                toolcrib_search::tokenize(&about).iter().any(|word| words.contains(word))
            })
            .map(|(segment, _)| segment.id())
            .collect()
    }
}

/// A page of search results.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchPage {
    /// How many tools match, beyond those listed too.
    pub total_matches: usize,
    /// The best, best first; equals in the order of their names.
    pub results: Vec<SearchRow>,
    /// Names asked for with `select:` that no one tool has.
    pub not_found: Vec<String>,
}

/// A search result.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SearchRow {
    /// The exposed name.
    pub name: Arc<str>,
    /// The server or namespace, if the tool has one.
    pub server: Option<Arc<str>>,
    /// The tool's own name.
    pub tool: Arc<str>,
    /// How well it fits: comparable within one page.
    pub score: f32,
}

/// Why a query can't be run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SearchError {
    /// There is nothing to look for.
    #[error("the query is empty; say in a few words what the tool should do")]
    Blank,
    /// The pattern between the slashes does not compile.
    #[error("not a valid regular expression: {0}")]
    BadPattern(String),
}

impl View {
    /// Searches as `tool_search` does: words, `+must`, `select:a,b`, `/regex/`, exact names first.
    pub fn search(&self, query: &str, limit: usize) -> Result<SearchPage, SearchError> {
        self.search_with(Meaning::default(), query, limit)
    }

    /// The same, with another say on what is near in meaning.
    pub fn search_with(
        &self,
        meaning: Meaning<'_>,
        query: &str,
        limit: usize,
    ) -> Result<SearchPage, SearchError> {
        let nothing = Learned::new();
        let scope = Scope::new(self, &nothing, true);
        let ask = scope.ask(query).map_err(|unasked| match unasked {
            Unasked::Blank => SearchError::Blank,
            Unasked::BadPattern(reason) => SearchError::BadPattern(reason),
        })?;
        let found = scope.search(&ask.with_meaning(meaning), limit);
        let row = |hit: &Hit<'_>| SearchRow {
            name: hit.item.exposed().clone(),
            server: hit.item.name().namespace().map(Into::into),
            tool: hit.item.name().tool().into(),
            score: hit.score,
        };
        Ok(SearchPage {
            total_matches: found.total,
            results: found.hits.iter().map(row).collect(),
            not_found: found.misses.into_iter().map(|miss| miss.asked).collect(),
        })
    }

    /// Why the tool exposed as `name` ranks where it does for `query`.
    pub fn explain(&self, query: &str, name: &str) -> Option<Explanation> {
        self.explain_with(Meaning::default(), query, name)
    }

    /// The same, for a search with this say on what is near in meaning.
    pub fn explain_with(
        &self,
        meaning: Meaning<'_>,
        query: &str,
        name: &str,
    ) -> Option<Explanation> {
        let nothing = Learned::new();
        let scope = Scope::new(self, &nothing, true);
        let ask = scope.ask(query).ok()?.with_meaning(meaning);
        let (segment, item) = scope.segments().find_map(|(segment, admitted)| {
            let item = scope.items_of(segment, admitted).find(|item| **item.exposed() == *name)?;
            Some((segment, item))
        })?;
        scope.explain(&ask, segment, item)
    }
}
