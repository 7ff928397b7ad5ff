//! What was missed, and why: the rank of every tool that was needed, and what stood above it.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;
use toolcrib::search::{Explanation, Ranking};

use super::measure::{Answer, Part, Run};
use crate::output::{BOLD, DIM, RED, one_line};

/// The tools shown of those that were ranked first.
const MOST_ABOVE: usize = 3;
/// The words shown of an explanation.
const MOST_WORDS: usize = 5;

/// A query that was not answered as well as possible.
#[derive(Serialize)]
pub(super) struct Miss {
    set: String,
    id: Value,
    query: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    style: Option<String>,
    ndcg_10: f64,
    /// The tools needed, the best of equivalents.
    needed: Vec<Tool>,
    /// The tools ranked first.
    first: Vec<Tool>,
}

#[derive(Serialize)]
struct Tool {
    id: String,
    /// From 1; nothing if it was not found at all.
    rank: Option<usize>,
    is_needed: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    explanation: Option<Explanation>,
}

/// The worst answers of a run, at most so many.
pub(super) fn worst(parts: &[Part<'_>], run: &Run, most: usize) -> Vec<Miss> {
    let mut missed: Vec<(usize, usize, &Answer)> = Vec::new();
    for (part, answers) in run.answers.iter().enumerate() {
        let answers = answers.iter().enumerate();
        // A perfect answer may miss 1 by a rounding.
        let missing = answers.filter(|(_, answer)| answer.outcome.ndcg_10 < 1.0 - 1e-9);
        missed.extend(missing.map(|(at, answer)| (part, at, answer)));
    }
    missed.sort_by(|a, b| a.2.outcome.ndcg_10.total_cmp(&b.2.outcome.ndcg_10));
    missed.truncate(most);
    missed.into_iter().map(|(part, at, it)| Miss::new(&parts[part], at, it, run.ranking)).collect()
}

impl Miss {
    fn new(part: &Part<'_>, at: usize, answer: &Answer, ranking: Ranking) -> Self {
        let query = part.queries[at];
        let all = part.corpus.search(&query.text, usize::MAX, ranking);
        let tool = |id: &str, rank: Option<usize>| Tool {
            id: id.to_owned(),
            rank,
            is_needed: query.needs.tools().any(|needed| needed == id),
            explanation: part.corpus.explain(&query.text, id, ranking),
        };
        let places = query.needs.places(all.iter().map(|ranked| &*ranked.id));
        let needed = places.iter().zip(&query.needs.0).map(|(place, tools)| match place {
            Some(place) => tool(&all[place - 1].id, Some(*place)),
            None => tool(&tools[0], None),
        });
        let first = all.iter().enumerate().take(MOST_ABOVE);
        Self {
            set: part.set.name.clone(),
            id: query.id.clone(),
            query: query.text.clone(),
            style: query.style.clone(),
            ndcg_10: answer.outcome.ndcg_10,
            needed: needed.collect(),
            first: first.map(|(at, ranked)| tool(&ranked.id, Some(at + 1))).collect(),
        }
    }

    pub(super) fn write(&self, text: &mut String) {
        let id = match &self.id {
            Value::String(id) => id.clone(),
            other => other.to_string(),
        };
        let style = self.style.as_ref().map(|style| format!(", {style}")).unwrap_or_default();
        let about = format!("{} {id}{style}, nDCG@10 {:.3}", self.set, self.ndcg_10);
        let _ = writeln!(
            text,
            "{BOLD}{}{BOLD:#}  {DIM}{}{DIM:#}",
            one_line(&self.query),
            one_line(&about)
        );
        for tool in &self.needed {
            let _ = writeln!(text, "  {RED}needed{RED:#}  {}", tool.describe());
        }
        for tool in self.first.iter().filter(|tool| !tool.is_needed) {
            let _ = writeln!(text, "  found   {}", tool.describe());
        }
        text.push('\n');
    }
}

impl Tool {
    fn describe(&self) -> String {
        let rank = self.rank.map_or("-".to_owned(), |rank| format!("#{rank}"));
        let why = match &self.explanation {
            Some(explanation) => in_short(explanation),
            None => "no tool has this id".to_owned(),
        };
        format!("{rank:>4}  {}  {DIM}{}{DIM:#}", one_line(&self.id), one_line(&why))
    }
}

/// The words that count most with where they were found, and those that were not.
fn in_short(explanation: &Explanation) -> String {
    let mut terms: Vec<_> = explanation.terms.iter().filter(|term| term.score > 0.0).collect();
    terms.sort_by(|a, b| b.score.total_cmp(&a.score));
    let mut parts: Vec<String> = terms
        .iter()
        .take(MOST_WORDS)
        .map(|term| {
            let best = term.fields.iter().max_by(|a, b| a.score.total_cmp(&b.score));
            let field = best.map(|field| format!(" in {}", field.field)).unwrap_or_default();
            let like = if term.by_another { "~" } else { "" };
            format!("{like}{} {:.2}{field}", term.term, term.score)
        })
        .collect();
    if let Some(more @ 1..) = terms.len().checked_sub(MOST_WORDS) {
        parts.push(format!("{more} more"));
    }
    if let Some(meaning) = &explanation.meaning {
        parts.push(format!("meaning {:.2} by cosine {:.2}", meaning.score, meaning.cosine));
    }
    if let Some(sentence) = &explanation.sentence {
        parts.push(format!("sentence {:.2}", sentence.change));
    }
    parts.extend(explanation.lifts.iter().map(|lift| format!("{} {:.2}", lift.reason, lift.score)));
    let lacking: Vec<&str> = explanation
        .terms
        .iter()
        .filter(|term| term.score <= 0.0)
        .map(|term| term.term.as_str())
        .collect();
    let mut text = format!("{:.2}", explanation.total);
    if !parts.is_empty() {
        let _ = write!(text, " = {}", parts.join(" + "));
    }
    if !lacking.is_empty() {
        let _ = write!(text, "; without {}", lacking.join(", "));
    }
    text
}
