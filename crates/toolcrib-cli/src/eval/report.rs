//! The figures of a run, as tables or as JSON.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use clap::builder::styling::Style;
use serde::Serialize;
use toolcrib::search::Ranking;

use super::measure::{Answer, Over, Part, Run};
use super::metrics::{Figures, Outcome};
use super::misses::Miss;
use crate::output::{BOLD, DIM, Rows, YELLOW, number};

/// The order of the usual styles; others follow.
const STYLES: [&str; 7] = ["keywords", "intent", "paraphrase", "user", "guess", "multi", "foreign"];

/// Where a style stands among others.
pub(super) fn place_of_style(style: &str) -> usize {
    STYLES.iter().position(|known| *known == style).unwrap_or(STYLES.len())
}

/// Everything that is told.
#[derive(Serialize)]
pub(super) struct Report {
    pub(super) runs: Vec<RunReport>,
    /// Sets on which the hybrid ranking has a lower nDCG@10 than the lexical one.
    pub(super) below_lexical: Vec<Below>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) misses: Option<Vec<Miss>>,
    pub(super) jobs: usize,
    pub(super) warnings: Vec<String>,
}

#[derive(Serialize)]
pub(super) struct RunReport {
    over: &'static str,
    ranking: String,
    /// The mean over sets; times over all queries.
    mean: Figures,
    sets: Vec<SetFigures>,
    /// Over the queries of all sets.
    styles: Vec<StyleFigures>,
}

#[derive(Serialize)]
struct SetFigures {
    set: String,
    tools: usize,
    /// How long it took to index the tools; nothing if they came from servers or tool lists.
    build_ms: Option<f64>,
    #[serde(flatten)]
    figures: Figures,
    styles: Vec<StyleFigures>,
}

#[derive(Serialize)]
struct StyleFigures {
    style: String,
    #[serde(flatten)]
    figures: Figures,
}

#[derive(Serialize)]
pub(super) struct Below {
    over: &'static str,
    set: String,
}

impl RunReport {
    pub(super) fn new(run: &Run, parts: &[Part<'_>]) -> Self {
        let sets: Vec<SetFigures> = parts
            .iter()
            .zip(&run.answers)
            .map(|(part, answers)| SetFigures {
                set: part.set.name.clone(),
                tools: part.corpus.len(),
                build_ms: part.build.map(|time| (time.as_secs_f64() * 1e4).round() / 10.0),
                figures: figures(answers.iter()),
                styles: by_style(styled(part, answers)),
            })
            .collect();
        let means: Vec<Outcome> = run.answers.iter().map(|answers| mean(answers.iter())).collect();
        let all = || run.answers.iter().flatten();
        let times = all().map(|answer| answer.time).collect();
        let mean = Figures::new(all().count(), Outcome::mean(&means), times);
        let styled = parts.iter().zip(&run.answers).flat_map(|(part, it)| styled(part, it));
        Self {
            over: run.over.name(),
            ranking: run.ranking.to_string(),
            mean,
            sets,
            styles: by_style(styled),
        }
    }
}

fn mean<'a>(answers: impl Iterator<Item = &'a Answer>) -> Outcome {
    Outcome::mean(answers.map(|answer| &answer.outcome))
}

fn figures<'a>(answers: impl Iterator<Item = &'a Answer> + Clone) -> Figures {
    let times = answers.clone().map(|answer| answer.time).collect();
    Figures::new(answers.clone().count(), mean(answers), times)
}

fn styled<'a>(
    part: &'a Part<'_>,
    answers: &'a [Answer],
) -> impl Iterator<Item = (&'a str, &'a Answer)> {
    let queries = part.queries.iter().zip(answers);
    queries.filter_map(|(query, answer)| Some((query.style.as_deref()?, answer)))
}

fn by_style<'a>(answers: impl Iterator<Item = (&'a str, &'a Answer)>) -> Vec<StyleFigures> {
    let mut styles: BTreeMap<(usize, &str), Vec<&Answer>> = BTreeMap::new();
    for (style, answer) in answers {
        styles.entry((place_of_style(style), style)).or_default().push(answer);
    }
    let figures = |answers: Vec<&Answer>| figures(answers.iter().copied());
    let styles = styles.into_iter();
    styles
        .map(|((_, style), answers)| StyleFigures {
            style: style.to_owned(),
            figures: figures(answers),
        })
        .collect()
}

/// Where the hybrid ranking is worse than the lexical one.
pub(super) fn below_lexical(runs: &[RunReport]) -> Vec<Below> {
    let mut below = Vec::new();
    for hybrid in runs.iter().filter(|run| run.ranking == Ranking::Hybrid.to_string()) {
        let lexical = runs
            .iter()
            .find(|run| run.over == hybrid.over && run.ranking == Ranking::Lexical.to_string());
        let pairs = hybrid.sets.iter().zip(lexical.iter().flat_map(|run| &run.sets));
        let worse = pairs
            .filter(|(hybrid, lexical)| hybrid.figures.mean.ndcg_10 < lexical.figures.mean.ndcg_10);
        below.extend(worse.map(|(set, _)| Below { over: hybrid.over, set: set.set.clone() }));
    }
    below
}

impl Report {
    pub(super) fn describe(&self) -> String {
        let mut text = String::new();
        for over in [Over::Own, Over::Pool] {
            let runs: Vec<&RunReport> =
                self.runs.iter().filter(|run| run.over == over.name()).collect();
            if !runs.is_empty() {
                self.write_runs(&mut text, over, &runs);
            }
        }
        for miss in self.misses.iter().flatten() {
            miss.write(&mut text);
        }
        if let Some([]) = self.misses.as_deref() {
            text.push_str("Nothing was missed.\n");
        }
        text
    }

    fn write_runs(&self, text: &mut String, over: Over, runs: &[&RunReport]) {
        let is_one = runs[0].sets.len() == 1;
        let over_what = match over {
            Over::Own if is_one => "Over the tools of the set",
            Over::Own => "Over the tools of each set",
            Over::Pool => "Over the tools of all sets",
        };
        let ranking = match runs {
            [run] => format!(", {} ranking", run.ranking),
            _ => String::new(),
        };
        let threads = match self.jobs {
            1 => "one thread".to_owned(),
            jobs => format!("{jobs} threads at once"),
        };
        let _ = writeln!(
            text,
            "{BOLD}{over_what}{BOLD:#}{ranking} {DIM}(times with {threads}){DIM:#}\n"
        );
        let _ = writeln!(text, "{}", self.set_table(over, runs));
        if !runs[0].styles.is_empty() {
            let _ = writeln!(text, "{}", style_table(runs));
        }
        if runs.len() > 1 {
            let mut rows = Rows::new(&titles("RANKING"));
            for run in runs {
                rows.add(Style::new(), cells(&run.ranking, &run.mean));
            }
            let _ = writeln!(text, "{rows}");
        }
    }

    fn set_table(&self, over: Over, runs: &[&RunReport]) -> Rows {
        let is_one = runs[0].sets.len() == 1;
        let mean = "mean over sets";
        if let [run] = runs {
            let mut head = titles("SET");
            head.extend(["TOOLS>", "INDEX ms>"]);
            let mut rows = Rows::new(&head);
            for set in &run.sets {
                let build = set.build_ms.map(|ms| number(ms.round() as u64));
                let mut cells = cells(&set.set, &set.figures);
                cells.extend([number(set.tools as u64), build.unwrap_or_default()]);
                rows.add(Style::new(), cells);
            }
            if !is_one {
                rows.add(BOLD, cells(mean, &run.mean));
            }
            return rows;
        }
        let mut rows = Rows::new(&refs(&comparing("SET", runs)));
        for (at, set) in runs[0].sets.iter().enumerate() {
            let figures = runs.iter().map(|run| &run.sets[at].figures).collect::<Vec<_>>();
            let is_below = |it: &Below| it.over == over.name() && it.set == set.set;
            let below = self.below_lexical.iter().any(is_below);
            let style = if below { YELLOW } else { Style::new() };
            rows.add(style, compared(&set.set, &figures, below));
        }
        if !is_one {
            let figures: Vec<&Figures> = runs.iter().map(|run| &run.mean).collect();
            rows.add(BOLD, compared(mean, &figures, false));
        }
        rows
    }
}

fn style_table(runs: &[&RunReport]) -> Rows {
    if let [run] = runs {
        let mut rows = Rows::new(&titles("STYLE"));
        for style in &run.styles {
            rows.add(Style::new(), cells(&style.style, &style.figures));
        }
        return rows;
    }
    let mut rows = Rows::new(&refs(&comparing("STYLE", runs)));
    for (at, style) in runs[0].styles.iter().enumerate() {
        let figures = runs.iter().map(|run| &run.styles[at].figures).collect::<Vec<_>>();
        rows.add(Style::new(), compared(&style.style, &figures, false));
    }
    rows
}

fn titles(first: &str) -> Vec<&str> {
    let figures = ["nDCG@10>", "HIT@1>", "R@1>", "R@5>", "R@10>", "ALL@10>", "MRR>"];
    let times = ["P50 µs>", "P99 µs>"];
    [first, "QUERIES>"].into_iter().chain(figures).chain(times).collect()
}

fn cells(name: &str, it: &Figures) -> Vec<String> {
    let mut cells = vec![name.to_owned(), number(it.queries as u64)];
    cells.extend(it.mean.figures().map(|figure| format!("{figure:.3}")));
    cells.extend([it.p50_us, it.p99_us].map(|time| number(time.round() as u64)));
    cells
}

/// The titles of a comparison: nDCG@10 by ranking, then recall@5 by ranking.
fn comparing(first: &str, runs: &[&RunReport]) -> Vec<String> {
    let mut titles = vec![first.to_owned(), "QUERIES>".to_owned()];
    for figure in ["nDCG@10 ", "R@5 "] {
        for (at, run) in runs.iter().enumerate() {
            let figure = if at == 0 { figure } else { "" };
            titles.push(format!("{figure}{}>", run.ranking));
        }
    }
    titles.push(String::new());
    titles
}

fn compared(name: &str, by: &[&Figures], below: bool) -> Vec<String> {
    let queries = by.first().map_or(0, |figures| figures.queries);
    let mut cells = vec![name.to_owned(), number(queries as u64)];
    cells.extend(by.iter().map(|figures| format!("{:.3}", figures.mean.ndcg_10)));
    cells.extend(by.iter().map(|figures| format!("{:.3}", figures.mean.recall_5)));
    cells.push(if below { "▼ below lexical".to_owned() } else { String::new() });
    cells
}

fn refs(titles: &[String]) -> Vec<&str> {
    titles.iter().map(String::as_str).collect()
}
