//! What each number of ranking is worth: one at a time is changed, and everything measured again.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;
use toolcrib::search::{Field, Ranking, Reading, Tuning};
use toolcrib::{Choice, Corpus, Learning};

use super::measure::{self, Meter, Over, Part};
use super::metrics::Outcome;
use super::set::{Query, Set};

/// A weight must be above zero; this one counts for nothing.
const NEXT_TO_NOTHING: f32 = 1e-6;

/// A number of ranking, or a feature, and what is tried in its place.
struct Row {
    name: String,
    about: &'static str,
    /// Nothing for a feature.
    default: Option<f32>,
    variants: Vec<Variant>,
}

/// Another value, and the ranking with it.
struct Variant {
    change: Change,
    /// Nothing for a feature.
    value: Option<f32>,
    trial: Trial,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Change {
    Off,
    Half,
    Double,
    /// What is off by default is tried with some value.
    On,
}

/// One way to rank everything.
#[derive(Clone, Copy, PartialEq)]
struct Trial {
    tuning: Tuning,
    ranking: Ranking,
    /// After some of the queries were answered before, if they were.
    learning: Option<Learning>,
}

const DEFAULT: Trial = Trial { tuning: Corpus::TUNING, ranking: Ranking::Hybrid, learning: None };
const AFTER_USE: Trial = Trial { learning: Some(Learning::DEFAULT), ..DEFAULT };

/// Of so many queries one was answered before, and its tools were called so often after it.
const ANSWERED: usize = 2;
const TIMES: u32 = 3;

impl Trial {
    /// What it is compared with.
    fn base(&self) -> &'static Trial {
        if self.learning.is_some() && *self != AFTER_USE { &AFTER_USE } else { &DEFAULT }
    }
}

/// The values a number can sensibly have.
#[derive(Clone, Copy)]
struct Range {
    /// What leaves its effect out, if anything does.
    off: Option<f32>,
    most: f32,
    /// What to try if it is off by default.
    on: f32,
}

impl Range {
    const ANY: Range = Range { off: Some(0.0), most: f32::INFINITY, on: 0.1 };
    const SHARE: Range = Range { most: 1.0, ..Range::ANY };
    const LENGTH: Range = Range { off: None, ..Range::ANY };

    fn tried(self, default: f32) -> Vec<(Change, f32)> {
        if default <= 0.0 {
            return vec![(Change::On, self.on)];
        }
        let off = self.off.map(|off| (Change::Off, off));
        let half = (Change::Half, default / 2.0);
        let double = (Change::Double, (default * 2.0).min(self.most));
        let tried = off.into_iter().chain([half, double]);
        tried.filter(|(_, value)| *value != default).collect()
    }
}

/// A row for every number. They are taken apart here so that none can be added without one.
fn rows() -> Vec<Row> {
    let Tuning {
        fields,
        k1,
        frequency,
        coverage,
        repetition,
        unknown,
        synonym,
        misspelling,
        meaning,
        near,
        floor,
        long,
        fading,
        sentences,
        copy,
        reading: Reading { stemmed, stops: _ },
    } = Corpus::TUNING;
    let mut rows = features();
    let mut add = |name: &str, about, default, range: Range, set: fn(&mut Tuning, f32)| {
        rows.push(Row::new(name, about, default, range, set));
    };
    let any = Range::ANY;
    let share = Range::SHARE;
    add("k1", "how soon further occurrences stop counting", k1, any, |it, to| it.k1 = to);
    let about = "what occurrences are worth, by their saturated frequency";
    add("frequency", about, frequency, any, |it, to| it.frequency = to);
    let about = "what it is worth that a word occurs at all";
    add("coverage", about, coverage, any, |it, to| it.coverage = to);
    let about = "exponent of how often the query has a word";
    add("repetition", about, repetition, share, |it, to| it.repetition = to);
    let about = "part in the query of a word that no tool has, beside the rarest";
    add("unknown", about, unknown, share, |it, to| it.unknown = to);
    let about = "what a synonym is worth beside the word";
    add("synonym", about, synonym, share, |it, to| it.synonym = to);
    let about = "what a word one letter away is worth beside the word";
    add("misspelling", about, misspelling, share, |it, to| it.misspelling = to);
    let about = "what nearness in meaning is worth";
    add("meaning", about, meaning, any, |it, to| it.meaning = to);
    add("near", "cosine from which nearness counts", near, share, |it, to| it.near = to);
    let about = "cosine from which a tool is found that shares no word with the query";
    add("floor", about, floor, share, |it, to| it.floor = to);
    let about = "words up to which a query is about one thing";
    add("long", about, long, Range::LENGTH, |it, to| it.long = to);
    let about = "exponent with which nearness to a longer one is worth less";
    add("fading", about, fading, any, |it, to| it.fading = to);
    let about = "how much the best sentence of a request counts beside the whole";
    add("sentences", about, sentences, share, |it, to| it.sentences = to);
    let about = "share of its score that a further copy of a tool loses";
    add("copy", about, copy, share, |it, to| it.copy = to);
    let about = "letters from which a word is stemmed";
    add("stemmed", about, stemmed, Range::LENGTH, |it, to| it.reading.stemmed = to);
    fields.list().iter().for_each(|field| rows.extend(rows_of(field)));
    rows.extend(rows_of_learning());
    rows
}

/// Those of what is learned from use, each after some use.
fn rows_of_learning() -> Vec<Row> {
    let Learning { most_lift, least_choices, half_way, alike } = Learning::DEFAULT;
    let mut rows = Vec::new();
    let mut add = |number: &str, about, default, range: Range, set: fn(&mut Learning, f32)| {
        let variant = |(change, value)| {
            let mut learning = Learning::DEFAULT;
            set(&mut learning, value);
            let trial = Trial { learning: Some(learning), ..AFTER_USE };
            Variant { change, value: Some(value), trial }
        };
        let variants = range.tried(default).into_iter().map(variant).collect();
        rows.push(Row { name: format!("use: {number}"), about, default: Some(default), variants });
    };
    let about = "most that is added, as a share of the page's best score";
    add("most_lift", about, most_lift, Range::ANY, |it, to| it.most_lift = to);
    let about = "times a tool was chosen before it is lifted";
    add("least_choices", about, least_choices, Range::ANY, |it, to| it.least_choices = to);
    let about = "times at which half of the most is reached";
    add("half_way", about, half_way, Range::ANY, |it, to| it.half_way = to);
    let about = "share of their stems that makes two queries alike";
    add("alike", about, alike, Range::SHARE, |it, to| it.alike = to);
    rows
}

fn rows_of(field: &Field) -> Vec<Row> {
    let Field { name, weight, b, reference_length, told, share, meaning } = *field;
    let mut rows = Vec::new();
    let mut add = |number: &str, about, default, range, set: fn(&mut Field, f32)| {
        let row = format!("{name}: {number}");
        rows.push(Row::new(&row, about, default, range, |tuning, value| {
            tuning.fields = tuning.fields.with(name, |field| set(field, value));
        }));
    };
    let above_zero = Range { off: Some(NEXT_TO_NOTHING), ..Range::ANY };
    add("weight", "what an occurrence is worth", weight, above_zero, |it, to| it.weight = to);
    add("b", "how much a long text dilutes it", b, Range::SHARE, |it, to| it.b = to);
    let about = "tokens at which it is worth exactly its weight";
    add("reference_length", about, reference_length, Range::LENGTH, |it, to| {
        it.reference_length = to;
    });
    let about = "what is gained when a word of the query stands here, by its part in it";
    add("told", about, told, Range::ANY, |it, to| it.told = to);
    let about = "what is gained when the query has all words that stand here";
    add("share", about, share, Range { on: 0.05, ..Range::ANY }, |it, to| it.share = to);
    let about = "how much it counts in what a tool is about";
    add("meaning", about, meaning, Range { on: 0.5, ..Range::ANY }, |it, to| it.meaning = to);
    rows
}

/// What can be left out as a whole.
fn features() -> Vec<Row> {
    let off = |name: &str, about, change: fn(&mut Trial)| {
        let mut trial = DEFAULT;
        change(&mut trial);
        let variants = vec![Variant { change: Change::Off, value: None, trial }];
        Row { name: format!("feature: {name}"), about, default: None, variants }
    };
    vec![
        off("synonyms", "words that stand for each other", |it| it.tuning.synonym = 0.0),
        off("misspellings", "words one letter away", |it| it.tuning.misspelling = 0.0),
        off("stems", "words without their endings; synonyms go by them", |it| {
            it.tuning.reading.stemmed = f32::INFINITY;
        }),
        off("stop words", "words like `the`, left out of a query", |it| {
            it.tuning.reading.stops = false;
        }),
        off("copies", "one place for one tool of several servers", |it| it.tuning.copy = 0.0),
        off("sentences", "each sentence of a request by itself", |it| it.tuning.sentences = 0.0),
        off("vectors", "nearness in meaning; off: ranking lexical", |it| {
            it.ranking = Ranking::Lexical;
        }),
        off("words", "words in common; off: ranking static", |it| it.ranking = Ranking::Semantic),
        Row {
            name: "feature: use".to_owned(),
            about: "after every other query was answered three times; the rows of `use` compare \
                    with this",
            default: None,
            variants: vec![Variant { change: Change::On, value: None, trial: AFTER_USE }],
        },
    ]
}

impl Row {
    fn new(
        name: &str,
        about: &'static str,
        default: f32,
        range: Range,
        set: impl Fn(&mut Tuning, f32),
    ) -> Self {
        let variant = |(change, value)| {
            let mut trial = DEFAULT;
            set(&mut trial.tuning, value);
            Variant { change, value: Some(value), trial }
        };
        let variants = range.tried(default).into_iter().map(variant).collect();
        Self { name: name.to_owned(), about, default: Some(default), variants }
    }
}

fn queries_of(sets: &[(&Set, Vec<&Query>)]) -> usize {
    sets.iter().map(|(_, queries)| queries.len()).sum()
}

/// Measures every variant of every row. `meter` is made for the number of queries it gets.
pub(super) fn run<'m>(
    sets: &[(&Set, Vec<&Query>)],
    jobs: usize,
    meter: impl FnOnce(usize) -> Meter<'m>,
) -> Ablation {
    let rows = rows();
    // A feature that is left out may be the same as a number at zero.
    let mut trials = vec![DEFAULT];
    let variants = rows.iter().flat_map(|row| &row.variants).map(|variant| variant.trial);
    variants.for_each(|trial| {
        if !trials.contains(&trial) {
            trials.push(trial);
        }
    });
    let meter = meter(trials.len() * queries_of(sets));
    let means = measure_all(sets, &trials, jobs, &meter);
    let of = |trial: &Trial| {
        let at = trials.iter().position(|it| it == trial);
        &*means[at.unwrap_or_default()]
    };
    let before = of(&DEFAULT);
    let told = |variant: &Variant| {
        let (before, after) = (of(variant.trial.base()), of(&variant.trial));
        VariantFigures::new(variant, sets, before, after)
    };
    let parameters = rows.iter().map(|row| Parameter {
        parameter: row.name.clone(),
        about: row.about,
        default: row.default,
        variants: row.variants.iter().map(told).collect(),
    });
    let parameters = parameters.collect();
    let by_set = sets.iter().zip(before).map(|((set, queries), mean)| SetFigures {
        set: set.name.clone(),
        queries: queries.len(),
        ndcg_10: rounded(mean.ndcg_10),
        recall_5: rounded(mean.recall_5),
    });
    let mean = Outcome::mean(before);
    let default = DefaultFigures {
        queries: queries_of(sets),
        ndcg_10: rounded(mean.ndcg_10),
        recall_5: rounded(mean.recall_5),
        sets: by_set.collect(),
    };
    Ablation { default, parameters, jobs, warnings: Vec::new() }
}

/// The mean of each set, by trial. Each thread takes what is next: one set under one trial.
fn measure_all(
    sets: &[(&Set, Vec<&Query>)],
    trials: &[Trial],
    jobs: usize,
    meter: &Meter<'_>,
) -> Vec<Vec<Outcome>> {
    let next = AtomicUsize::new(0);
    let work = || {
        let mut done = Vec::new();
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            let Some(trial) = trials.get(at / sets.len()) else { return done };
            let (set, queries) = &sets[at % sets.len()];
            done.push((at, mean(set, queries, trial, meter)));
        }
    };
    let mut means = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..jobs).map(|_| scope.spawn(work)).collect();
        let joined = threads.into_iter().map(|thread| thread.join());
        let done = joined.map(|done| done.unwrap_or_else(|it| std::panic::resume_unwind(it)));
        done.flatten().collect::<Vec<_>>()
    });
    means.sort_by_key(|(at, _)| *at);
    let means: Vec<Outcome> = means.into_iter().map(|(_, mean)| mean).collect();
    means.chunks(sets.len()).map(<[Outcome]>::to_vec).collect()
}

fn mean(set: &Set, queries: &[&Query], trial: &Trial, meter: &Meter<'_>) -> Outcome {
    // Indexed alike for every trial: a view has names of servers that its tools alone don't tell.
    let mut corpus = Corpus::tuned(set.tools.each(), &trial.tuning);
    if let Some(learning) = trial.learning {
        let answered = queries.iter().step_by(ANSWERED);
        let choices = answered.flat_map(|query| {
            let called = query.needs.0.iter().filter_map(|need| need.first());
            called.map(|tool| Choice {
                query: query.text.clone(),
                tool: tool.clone(),
                times: TIMES,
                freshness: 1.0,
            })
        });
        corpus = corpus.after(choices, learning);
    }
    let corpus = Arc::new(corpus);
    let part = Part { set, queries: queries.to_vec(), corpus, build: None };
    let run = measure::run(Over::Own, trial.ranking, &[part], 1, meter);
    Outcome::mean(run.answers.iter().flatten().map(|answer| &answer.outcome))
}

/// Everything that is told.
#[derive(Serialize)]
pub(super) struct Ablation {
    default: DefaultFigures,
    parameters: Vec<Parameter>,
    jobs: usize,
    pub(super) warnings: Vec<String>,
}

#[derive(Serialize)]
struct DefaultFigures {
    queries: usize,
    /// Means over sets.
    ndcg_10: f64,
    recall_5: f64,
    sets: Vec<SetFigures>,
}

#[derive(Serialize)]
struct SetFigures {
    set: String,
    queries: usize,
    ndcg_10: f64,
    recall_5: f64,
}

#[derive(Serialize)]
struct Parameter {
    parameter: String,
    about: &'static str,
    default: Option<f32>,
    variants: Vec<VariantFigures>,
}

/// Means over sets, and their differences to the default.
#[derive(Serialize)]
struct VariantFigures {
    change: Change,
    value: Option<f32>,
    ndcg_10: f64,
    ndcg_10_change: f64,
    recall_5: f64,
    recall_5_change: f64,
    worst: WorstSet,
}

/// The set that loses most nDCG@10, or gains least.
#[derive(Serialize)]
struct WorstSet {
    set: String,
    ndcg_10_change: f64,
}

impl VariantFigures {
    fn new(
        variant: &Variant,
        sets: &[(&Set, Vec<&Query>)],
        before: &[Outcome],
        after: &[Outcome],
    ) -> Self {
        let (was, is) = (Outcome::mean(before), Outcome::mean(after));
        let changes = before.iter().zip(after).map(|(was, is)| is.ndcg_10 - was.ndcg_10);
        let changes = changes.zip(sets.iter().map(|(set, _)| &*set.name));
        let (change, set) = changes.min_by(|a, b| a.0.total_cmp(&b.0)).unwrap_or_default();
        Self {
            change: variant.change,
            value: variant.value,
            ndcg_10: rounded(is.ndcg_10),
            ndcg_10_change: rounded(is.ndcg_10 - was.ndcg_10),
            recall_5: rounded(is.recall_5),
            recall_5_change: rounded(is.recall_5 - was.recall_5),
            worst: WorstSet { set: set.to_owned(), ndcg_10_change: rounded(change) },
        }
    }

    /// What stands in a cell: `0.5: 0.7012 (-0.0130, at worst -0.0304)`.
    fn describe(&self, has_sets: bool, with_recall: bool) -> String {
        let value = self.value.map(|value| format!("{value}: ")).unwrap_or_default();
        let mut text = format!("{value}{:.4} ({}", self.ndcg_10, difference(self.ndcg_10_change));
        if has_sets {
            let _ = write!(text, ", at worst {}", difference(self.worst.ndcg_10_change));
        }
        text.push(')');
        if with_recall {
            let change = difference(self.recall_5_change);
            let _ = write!(text, ", R@5 {:.4} ({change})", self.recall_5);
        }
        text
    }
}

impl Ablation {
    /// A table in Markdown.
    pub(super) fn describe(&self, with_recall: bool) -> String {
        let has_sets = self.default.sets.len() > 1;
        let mut text = String::from(
            "| parameter | what it does | default | off | half | double, or on |\n\
             |---|---|---|---|---|---|\n",
        );
        let DefaultFigures { ndcg_10, recall_5, .. } = self.default;
        let recall = if with_recall { format!(", R@5 {recall_5:.4}") } else { String::new() };
        let _ = writeln!(text, "| *all as they are* | | {ndcg_10:.4}{recall} | | | |");
        for row in &self.parameters {
            let cell = |changes: &[Change]| {
                let mut found = row.variants.iter().filter(|it| changes.contains(&it.change));
                found.next().map(|it| it.describe(has_sets, with_recall)).unwrap_or_default()
            };
            let is_added = row.variants.iter().any(|it| it.change == Change::On);
            let feature = if is_added { "off" } else { "on" };
            let default = row.default.map_or(feature.to_owned(), |default| default.to_string());
            let _ = writeln!(
                text,
                "| {} | {} | {default} | {} | {} | {} |",
                row.parameter,
                row.about,
                cell(&[Change::Off]),
                cell(&[Change::Half]),
                cell(&[Change::Double, Change::On]),
            );
        }
        let means = if has_sets { "mean nDCG@10 over sets" } else { "nDCG@10" };
        let worst = if has_sets { ", and that of the set that loses most" } else { "" };
        let _ =
            writeln!(text, "\nEach cell: the value, {means} (difference to the default{worst}).");
        text
    }
}

/// With its sign, and without one where nothing changed.
fn difference(change: f64) -> String {
    match format!("{change:+.4}") {
        none if none.ends_with("0.0000") => "0".to_owned(),
        told => told,
    }
}

fn rounded(figure: f64) -> f64 {
    // Added to +0.0, as -0.0 would be printed with its sign.
    (figure * 1e6).round() / 1e6 + 0.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn every_number_has_a_row_that_changes_it_alone() {
        let rows = rows();
        let names: HashSet<&str> = rows.iter().map(|row| &*row.name).collect();
        assert_eq!(names.len(), rows.len(), "two rows have one name");
        let features = features().len();
        let fields = Corpus::TUNING.fields.list().len();
        assert_eq!(rows.len(), features + 15 + 6 * fields + 4);
        for row in &rows[features..] {
            assert!(!row.variants.is_empty(), "{}", row.name);
            for variant in &row.variants {
                let Trial { tuning, learning, .. } = variant.trial;
                let was = format!("{:?} {:?}", Corpus::TUNING, Learning::DEFAULT);
                let is = format!("{tuning:?} {:?}", learning.unwrap_or_default());
                let (was, is) = (numbers(&was), numbers(&is));
                let changed: Vec<_> = was.iter().zip(&is).filter(|(was, is)| was != is).collect();
                let number = row.name.rsplit(": ").next().unwrap();
                let (default, value) = (row.default.unwrap(), variant.value.unwrap());
                let expected = (format!("{number}: {default:?}"), format!("{number}: {value:?}"));
                assert_eq!(changed.len(), 1, "{}", row.name);
                assert_eq!((changed[0].0.clone(), changed[0].1.clone()), expected);
            }
        }
    }

    /// `name: value` of every number in a debug text.
    fn numbers(text: &str) -> Vec<String> {
        let parts = text.split([',', '{', '}', '[', ']']).map(str::trim);
        parts.filter(|part| part.contains(": ")).map(str::to_owned).collect()
    }

    #[test]
    fn the_documentation_has_every_number_as_it_is() {
        let docs = include_str!("../../../../docs/search.md");
        let features = features().len();
        let of_field = |row: &&Row| row.name.contains(": ") && !row.name.starts_with("use: ");
        for row in rows()[features..].iter().filter(|row| !of_field(row)) {
            let name = row.name.strip_prefix("use: ").unwrap_or(&row.name);
            let (name, default) = (format!("| `{name}` | "), row.default.unwrap());
            let line = docs.lines().find(|line| line.starts_with(&name)).unwrap_or_default();
            assert!(line.ends_with(&format!(" | {default} |")), "{name}{default}: {line}");
        }
        for field in Corpus::TUNING.fields.list() {
            let numbers = rows_of(field).into_iter().map(|row| row.default.unwrap().to_string());
            let numbers = numbers.collect::<Vec<_>>().join(" | ");
            let line = format!("| `{}` | {numbers} |", field.name);
            assert!(docs.lines().any(|of_docs| of_docs == line), "{line}");
        }
    }

    #[test]
    fn what_is_tried_suits_the_number() {
        let tried = |range: Range, default| range.tried(default);
        let (off, half, double) = (Change::Off, Change::Half, Change::Double);
        assert_eq!(tried(Range::ANY, 2.0), [(off, 0.0), (half, 1.0), (double, 4.0)]);
        assert_eq!(tried(Range::SHARE, 0.75), [(off, 0.0), (half, 0.375), (double, 1.0)]);
        assert_eq!(tried(Range::SHARE, 1.0), [(off, 0.0), (half, 0.5)]);
        assert_eq!(tried(Range::LENGTH, 3.0), [(half, 1.5), (double, 6.0)]);
        assert_eq!(tried(Range::ANY, 0.0), [(Change::On, 0.1)]);
    }

    #[test]
    fn differences_have_a_sign_unless_there_is_none() {
        assert_eq!(difference(0.01234), "+0.0123");
        assert_eq!(difference(-0.5), "-0.5000");
        assert_eq!(difference(-0.00001), "0");
        assert!(rounded(-1e-9).is_sign_positive());
    }
}
