//! Ranking over small documents with fields.
//!
//! The crate knows nothing of what its documents stand for. It does no I/O, reads no clock and
//! keeps no global state: the same documents and the same query give the same hits with
//! bit-identical scores, whatever order the documents came in and however they were divided into
//! segments.
//!
//! The parts, in reading order:
//!
//! 1. [`tokenize`](fn@tokenize): text becomes words; identifiers are taken apart, accents folded.
//! 2. [`Analyzer`]: words become [`Term`]s, which are stemmed and hashed.
//! 3. [`Fields`]: what a document is made of, and how much an occurrence in each part counts.
//! 4. [`Segment`]: an immutable index of one set of documents, with a vector for each.
//! 5. [`Query`]: the words to look for, and those a hit must contain.
//! 6. [`Index`]: segments searched as one, with words and vectors in one score.
//! 7. [`Tuning`]: the numbers all this is done with.
//! 8. [`Explanation`]: a score taken apart again.
//!
//! ```
//! use std::sync::Arc;
//! use toolcrib_search::{Analyzer, Document, Field, Fields, Index, Query, Segment, Tuning};
//!
//! const TUNING: Tuning = Tuning::new(Fields::new(&[
//!     Field { name: "name", weight: 2.0, share: 0.2, ..Field::PLAIN },
//!     Field { name: "description", ..Field::PLAIN },
//! ]));
//!
//! let mut analyzer = Analyzer::new();
//! let issue = Document::new("createIssue", ["createIssue", "Opens an issue in a repository."]);
//! let file = Document::new("read_file", ["read_file", "Reads a file from a repository."]);
//! let segment = Segment::build(&mut analyzer, &TUNING, [issue.clone(), file]);
//!
//! let index = Index::new(&TUNING, vec![Arc::new(segment)]);
//! let query = Query::new("create issues");
//! let found = index.search(&query, 5);
//! assert_eq!(&**index.key(found.hits[0].doc), "createIssue");
//!
//! let why = index.explain(&query, &issue, &mut analyzer);
//! assert_eq!(why.total, found.hits[0].score);
//! println!("{why}");
//! ```

mod analyze;
mod bundle;
mod explain;
mod fields;
mod index;
mod query;
mod scores;
mod segment;
mod spelling;
mod synonyms;
mod table;
mod terms;
mod tokenize;
mod tuning;
mod vectors;

pub use analyze::{Analyzer, Term};
pub use explain::{Explanation, FieldScore, Lift, MeaningScore, SentenceScore, TermScore};
pub use fields::{Field, Fields, MAX_FIELDS};
pub use index::Index;
pub use query::{MAX_QUERY_TERMS, Query, Ranking, STOP_WORDS, UnknownRanking};
pub use scores::{Hit, Hits, Scores};
pub use segment::{Document, Segment};
pub use tokenize::{MAX_TEXT_BYTES, MAX_TEXT_TOKENS, MAX_TOKEN_BYTES, tokenize};
pub use tuning::{Reading, Tuning};
pub use vectors::Vectors;
