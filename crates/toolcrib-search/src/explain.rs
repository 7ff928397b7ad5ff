//! A score taken apart.

use std::fmt;

use serde::Serialize;

use crate::analyze::Analyzer;
use crate::fields::{Fields, MAX_FIELDS, Occurrences};
use crate::index::Index;
use crate::query::Query;
use crate::segment::Document;

/// Why a document got its score. Its `Display` is an indented tree.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Explanation {
    /// The document.
    pub key: String,
    /// The score a search gives it: the sum over the terms, or zero if a required word is missing.
    pub total: f32,
    /// Required words that the document does not contain, stemmed.
    pub missing: Vec<String>,
    /// Every term of the query, in its order, found or not.
    pub terms: Vec<TermScore>,
    /// The number of documents searched.
    pub documents: usize,
}

/// What one term of the query adds to a score.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TermScore {
    /// The word, stemmed.
    pub term: String,
    /// What it adds.
    pub score: f32,
    /// How often the query has it.
    pub weight: f32,
    /// What its rarity makes it worth.
    pub idf: f32,
    /// The number of documents that contain it.
    pub documents: usize,
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

impl Explanation {
    pub(crate) fn new(
        index: &Index,
        query: &Query,
        document: &Document<'_>,
        fields: &Fields,
        analyzer: &mut Analyzer,
    ) -> Self {
        let found = document.occurrences(analyzer, fields);
        let find = |term| found.binary_search_by_key(&term, |&(term, _)| term).ok();
        let terms: Vec<_> = query
            .words()
            .iter()
            .map(|word| {
                let documents = index.frequency(word.term);
                let idf = index.idf(documents);
                let empty = TermScore {
                    term: word.text.clone(),
                    score: 0.0,
                    weight: word.weight,
                    idf,
                    documents,
                    fields: Vec::new(),
                };
                match find(word.term) {
                    Some(at) => {
                        let occurrences = &found[at].1;
                        let score = word.weight * idf * fields.impact(occurrences);
                        TermScore { score, fields: shares(score, fields, occurrences), ..empty }
                    }
                    None => empty,
                }
            })
            .collect();
        let missing: Vec<_> = query
            .requirements()
            .iter()
            .filter(|requirement| !requirement.is_met(|term| find(term).is_some()))
            .map(|requirement| requirement.text.clone())
            .collect();
        // Folded from +0.0 in the order of the terms, as the search does it.
        let sum = terms.iter().fold(0.0, |sum, term| sum + term.score);
        let total = if missing.is_empty() { sum } else { 0.0 };
        Explanation { key: document.key.to_string(), total, missing, terms, documents: index.len() }
    }
}

/// Divides a term's score between the fields. It is not linear in them, so each gets its part of
/// the sum that went into it.
fn shares(score: f32, fields: &Fields, occurrences: &[Occurrences; MAX_FIELDS]) -> Vec<FieldScore> {
    let found = || fields.list().iter().zip(occurrences).filter(|(_, found)| found.count > 0);
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
            let TermScore { term, score, weight, idf, documents, fields } = term;
            write!(
                f,
                "\n  {score:.4}  {term}  (in {documents} of {}, idf {idf:.4}",
                self.documents
            )?;
            if *weight != 1.0 {
                write!(f, ", ×{weight}")?;
            }
            f.write_str(")")?;
            for FieldScore { field, score, occurrences, length } in fields {
                write!(f, "\n    {score:.4}  {field}  ({occurrences} of {length} tokens)")?;
            }
        }
        Ok(())
    }
}
