//! A score taken apart.

use std::fmt;

use serde::Serialize;

use crate::analyze::Analyzer;
use crate::fields::{MAX_FIELDS, Occurrences};
use crate::index::{Found, Index};
use crate::query::{Need, Query, Ranking};
use crate::segment::Document;
use crate::table::Table;
use crate::tuning::Tuning;
use crate::vectors::Vectors;

/// Why a document got its score. Its `Display` is an indented tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The document.
    pub key: String,
    /// The score a search gives it, or zero if a required word is missing.
    pub total: f32,
    /// Required words that the document does not contain, stemmed.
    pub missing: Vec<String>,
    /// Every word of the query, in its order, found or not.
    pub terms: Vec<TermScore>,
    /// How near it is to the query in meaning, if that was looked at.
    pub meaning: Option<MeaningScore>,
    /// The sentence of the request that it fits best, if there are several.
    pub sentence: Option<SentenceScore>,
    /// What was added or taken for other reasons, such as use.
    pub lifts: Vec<Lift>,
    /// The number of documents that count.
    pub documents: usize,
}

/// What one word of the query adds to a score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TermScore {
    /// The word, stemmed.
    pub term: String,
    /// What it adds.
    pub score: f32,
    /// Its part in the query, by its rarity and how often the query has it.
    pub part: f32,
    /// The number of documents that contain it.
    pub documents: usize,
    /// Whether a synonym or another spelling stands for it in this document.
    pub by_another: bool,
    /// The fields it was found in.
    pub fields: Vec<FieldScore>,
}

/// What the occurrences of a term in one field add to its score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FieldScore {
    /// The name of the field.
    pub field: &'static str,
    /// The share of the term's score that comes from here.
    pub score: f32,
    /// How often the term occurs here.
    pub occurrences: u32,
    /// The number of tokens here.
    pub length: u32,
}

/// What nearness in meaning adds to a score.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct MeaningScore {
    /// What it adds.
    pub score: f32,
    /// The cosine between the two.
    pub cosine: f32,
}

/// The score of a document for one sentence of a request.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SentenceScore {
    /// The sentence.
    pub text: String,
    /// The score for it alone.
    pub score: f32,
    /// What that adds to the score for the whole, or takes from it.
    pub change: f32,
}

/// Something added to a score from outside.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Lift {
    /// What was added.
    pub score: f32,
    /// Why.
    pub reason: String,
}

/// A document as scoring sees it.
struct Seen {
    found: Vec<(crate::Term, [Occurrences; MAX_FIELDS])>,
    vectors: Vectors,
}

impl Seen {
    fn find(&self, term: crate::Term) -> Option<&[Occurrences; MAX_FIELDS]> {
        let at = self.found.binary_search_by_key(&term, |&(term, _)| term).ok()?;
        Some(&self.found[at].1)
    }
}

impl Explanation {
    pub(crate) fn new(
        index: &Index,
        query: &Query,
        document: &Document<'_>,
        analyzer: &mut Analyzer,
    ) -> Self {
        let tuning = index.tuning();
        let table = Table::embedded();
        let meaning = table.map(|table| document.meaning(table, &tuning.fields));
        let seen = Seen {
            found: document.occurrences(analyzer, &tuning.fields),
            vectors: Vectors::new(table.map_or(0, Table::dimensions), meaning),
        };
        let whole = query.needs.first().cloned().unwrap_or_default();
        let found = index.find(&whole);
        let Parts { terms, meaning, mut total } =
            parts(index, query, &whole, &found, &seen, document);
        let sentences = query.needs.iter().skip(1);
        let best = sentences
            .map(|need| (parts(index, query, need, &found, &seen, document).total, need))
            .reduce(|best, next| if next.0 > best.0 { next } else { best });
        let sentence = best.map(|(score, need)| {
            let joined = index.join(total, score);
            let change = joined - total;
            total = joined;
            SentenceScore { text: need.text.trim().to_owned(), score, change }
        });
        let missing: Vec<_> = query
            .requirements
            .iter()
            .filter(|requirement| !requirement.is_met(|term| seen.find(term).is_some()))
            .map(|requirement| requirement.text.clone())
            .collect();
        if !missing.is_empty() {
            total = 0.0;
        }
        let (key, documents) = (document.key.to_string(), index.count());
        Explanation { key, total, missing, terms, meaning, sentence, lifts: vec![], documents }
    }

    /// Adds what was added to the score from outside, as [`Scores::lift`](crate::Scores::lift) does.
    pub fn lift(&mut self, score: f32, reason: impl Into<String>) {
        self.total += score;
        self.lifts.push(Lift { score, reason: reason.into() });
    }
}

/// What the words of a need and its meaning add.
struct Parts {
    terms: Vec<TermScore>,
    meaning: Option<MeaningScore>,
    /// Summed in the order in which the search does it.
    total: f32,
}

fn parts(
    index: &Index,
    query: &Query,
    need: &Need,
    found: &Found<'_>,
    seen: &Seen,
    document: &Document<'_>,
) -> Parts {
    let tuning = index.tuning();
    let lines = index.lines(need, found);
    let is_lexical = query.ranking != Ranking::Semantic;
    let mut total = 0.0;
    let terms = lines
        .chunk_by(|a, b| a.word == b.word)
        .filter(|_| is_lexical)
        .map(|lines| {
            let own = &lines[0];
            let mut told = TermScore {
                term: need.words[own.word].text.clone(),
                score: 0.0,
                part: own.part,
                documents: own.documents,
                by_another: false,
                fields: Vec::new(),
            };
            for line in lines {
                let Some(occurrences) = seen.find(line.term) else { continue };
                let (impact, share) = tuning.worth(occurrences);
                let worth = line.worth(impact, share);
                if worth > told.score {
                    total += worth - told.score;
                    told.score = worth;
                    told.by_another = line.term != own.term;
                    told.fields = shares(worth, tuning, occurrences);
                }
            }
            told
        })
        .collect();
    let cosine =
        (query.ranking != Ranking::Lexical).then(|| cosine(index, query, need, seen, document));
    let worth = tuning.worth_of_meaning(query.ranking, need.words.len());
    let score = |cosine| MeaningScore { score: worth(cosine, total), cosine };
    let meaning = cosine.flatten().map(score);
    total += meaning.map_or(0.0, |meaning| meaning.score);
    Parts { terms, meaning, total }
}

fn cosine(
    index: &Index,
    query: &Query,
    need: &Need,
    seen: &Seen,
    document: &Document<'_>,
) -> Option<f32> {
    let mut cosine = [0.0];
    let Some(vector) = index.supplied(query) else {
        seen.vectors.cosines(&need.meaning()?, &mut cosine);
        return Some(cosine[0]);
    };
    let (segment, at) = index.find_key(&document.key)?;
    let mut cosines = vec![0.0; segment.len()];
    segment.supplied()?.cosines(vector, &mut cosines);
    Some(cosines[at])
}

/// Divides a term's score between the fields. It is not linear in them, so each gets its part of
/// the sum that went into it.
fn shares(score: f32, tuning: &Tuning, occurrences: &[Occurrences; MAX_FIELDS]) -> Vec<FieldScore> {
    let found =
        || tuning.fields.list().iter().zip(occurrences).filter(|(_, found)| found.count > 0);
    let whole: f32 = found().map(|(field, &found)| field.frequency(found)).sum();
    found()
        .map(|(field, &found)| FieldScore {
            field: field.name,
            score: score * field.frequency(found) / whole,
            occurrences: found.count,
            length: found.length,
        })
        .collect()
}

impl fmt::Display for Explanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.4}  {}", self.total, self.key)?;
        for word in &self.missing {
            write!(f, "\n  required word missing: {word}")?;
        }
        for term in &self.terms {
            let TermScore { term, score, part, documents, by_another, fields } = term;
            let (all, percent) = (self.documents, part * 100.0);
            write!(
                f,
                "\n  {score:.4}  {term}  (in {documents} of {all}, {percent:.0} % of the query"
            )?;
            if *by_another {
                f.write_str(", by a word that stands for it")?;
            }
            f.write_str(")")?;
            for FieldScore { field, score, occurrences, length } in fields {
                write!(f, "\n    {score:.4}  {field}  ({occurrences} of {length} tokens)")?;
            }
        }
        if let Some(MeaningScore { score, cosine }) = self.meaning {
            write!(f, "\n  {score:.4}  meaning  (cosine {cosine:.4})")?;
        }
        if let Some(SentenceScore { text, score, change }) = &self.sentence {
            write!(f, "\n  {change:+.4}  the sentence that fits best ({score:.4}): {text}")?;
        }
        for Lift { score, reason } in &self.lifts {
            write!(f, "\n  {score:+.4}  {reason}")?;
        }
        Ok(())
    }
}
