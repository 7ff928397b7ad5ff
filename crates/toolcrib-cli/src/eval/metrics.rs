//! How good a ranking is, and how fast it came.

use std::collections::HashSet;
use std::time::Duration;

use serde::Serialize;

/// How far down a ranking is looked at.
pub(super) const DEPTH: usize = 100;

/// The tools a query needs. Each need is met by any one of its tools.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Needs(pub(super) Vec<Vec<String>>);

impl Needs {
    /// All tools that meet some need.
    pub(super) fn tools(&self) -> impl Iterator<Item = &str> {
        self.0.iter().flatten().map(String::as_str)
    }

    /// The place of the first tool that meets each need, from 1.
    pub(super) fn places<'a>(&self, ranked: impl Iterator<Item = &'a str>) -> Vec<Option<usize>> {
        let mut places = vec![None; self.0.len()];
        for (at, id) in ranked.enumerate() {
            for (place, tools) in places.iter_mut().zip(&self.0) {
                if place.is_none() && tools.iter().any(|tool| tool == id) {
                    *place = Some(at + 1);
                }
            }
        }
        places
    }
}

/// How well one query was answered. Every figure is between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(super) struct Outcome {
    pub(super) ndcg_10: f64,
    pub(super) hit_1: f64,
    pub(super) recall_1: f64,
    pub(super) recall_5: f64,
    pub(super) recall_10: f64,
    pub(super) complete_10: f64,
    pub(super) mrr: f64,
}

impl Outcome {
    pub(super) fn new(needs: &Needs, ranked: &[&str]) -> Self {
        let mut seen = HashSet::new();
        let ranked = ranked.iter().copied().filter(|id| seen.insert(*id)).take(DEPTH);
        let places = needs.places(ranked);
        let within = |most: usize| places.iter().flatten().filter(move |place| **place <= most);
        let recall = |most| within(most).count() as f64 / places.len().max(1) as f64;
        let gain = |place: usize| 1.0 / (place as f64 + 1.0).log2();
        let ideal: f64 = (1..=places.len().min(10)).map(gain).sum();
        let first = places.iter().flatten().min();
        Self {
            // Folded from +0.0, as the sum of nothing is -0.0.
            ndcg_10: within(10).fold(0.0, |sum, place| sum + gain(*place)) / ideal.max(1.0),
            hit_1: if first == Some(&1) { 1.0 } else { 0.0 },
            recall_1: recall(1),
            recall_5: recall(5),
            recall_10: recall(10),
            complete_10: if within(10).count() == places.len() { 1.0 } else { 0.0 },
            mrr: first.map_or(0.0, |place| 1.0 / *place as f64),
        }
    }

    /// All of them, in the order in which they are printed.
    pub(super) fn figures(&self) -> [f64; 7] {
        let Self { ndcg_10, hit_1, recall_1, recall_5, recall_10, complete_10, mrr } = *self;
        [ndcg_10, hit_1, recall_1, recall_5, recall_10, complete_10, mrr]
    }

    /// The mean of each figure; zero of none.
    pub(super) fn mean<'a>(outcomes: impl IntoIterator<Item = &'a Outcome>) -> Self {
        let (mut sums, mut count) = ([0.0; 7], 0_u32);
        for outcome in outcomes {
            sums.iter_mut().zip(outcome.figures()).for_each(|(sum, figure)| *sum += figure);
            count += 1;
        }
        Self::from_figures(sums.map(|sum| sum / f64::from(count.max(1))))
    }

    fn from_figures(
        [ndcg_10, hit_1, recall_1, recall_5, recall_10, complete_10, mrr]: [f64; 7],
    ) -> Self {
        Self { ndcg_10, hit_1, recall_1, recall_5, recall_10, complete_10, mrr }
    }
}

/// The figures of some queries, as they are printed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Figures {
    pub(super) queries: usize,
    #[serde(flatten)]
    pub(super) mean: Outcome,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

impl Figures {
    pub(super) fn new(queries: usize, mean: Outcome, mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let percentile = |share: usize| {
            let place = (times.len() * share).div_ceil(100).saturating_sub(1);
            times.get(place).map_or(0.0, |time| rounded(time.as_secs_f64() * 1e6, 10.0))
        };
        let mean = Outcome::from_figures(mean.figures().map(|figure| rounded(figure, 1e6)));
        Self { queries, mean, p50_us: percentile(50), p99_us: percentile(99) }
    }
}

fn rounded(figure: f64, steps: f64) -> f64 {
    (figure * steps).round() / steps
}

#[cfg(test)]
mod tests {
    use super::*;

    fn needs(groups: &[&[&str]]) -> Needs {
        Needs(
            groups.iter().map(|group| group.iter().map(|id| (*id).to_owned()).collect()).collect(),
        )
    }

    fn close(outcome: Outcome, expected: [f64; 7]) {
        for (figure, expected) in outcome.figures().into_iter().zip(expected) {
            assert!((figure - expected).abs() < 1e-4, "{outcome:?} for {expected}");
        }
    }

    #[test]
    fn one_tool_in_the_third_place() {
        let outcome = Outcome::new(&needs(&[&["c"]]), &["a", "b", "c"]);
        // 1 / log2(4)
        close(outcome, [0.5, 0.0, 0.0, 1.0, 1.0, 1.0, 0.3333]);
    }

    #[test]
    fn two_tools_of_which_one_is_far_down() {
        let ranked = ["a", "1", "2", "3", "4", "b"];
        let outcome = Outcome::new(&needs(&[&["b"], &["a"]]), &ranked);
        // (1 + 1 / log2(7)) / (1 + 1 / log2(3))
        close(outcome, [0.8316, 1.0, 0.5, 0.5, 1.0, 1.0, 1.0]);
        let outcome = Outcome::new(&needs(&[&["a"], &["z"]]), &ranked);
        close(outcome, [0.6131, 1.0, 0.5, 0.5, 0.5, 0.0, 1.0]);
    }

    #[test]
    fn a_need_is_met_by_its_first_tool_and_counted_once() {
        let outcome = Outcome::new(&needs(&[&["a", "b"]]), &["x", "b", "a"]);
        // 1 / log2(3)
        close(outcome, [0.6309, 0.0, 0.0, 1.0, 1.0, 1.0, 0.5]);
    }

    #[test]
    fn the_eleventh_place_counts_for_the_reciprocal_rank_alone() {
        let ranked = ["1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "a"];
        close(Outcome::new(&needs(&[&["a"]]), &ranked), [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0 / 11.0]);
    }

    #[test]
    fn a_repeated_tool_takes_one_place() {
        close(
            Outcome::new(&needs(&[&["a"]]), &["x", "x", "a"]),
            [0.6309, 0.0, 0.0, 1.0, 1.0, 1.0, 0.5],
        );
    }

    #[test]
    fn more_than_ten_tools_can_still_be_ranked_ideally() {
        let ids: Vec<String> = (0..12).map(|id| id.to_string()).collect();
        let all = Needs(ids.iter().map(|id| vec![id.clone()]).collect());
        let ranked: Vec<&str> = ids.iter().map(String::as_str).collect();
        close(
            Outcome::new(&all, &ranked),
            [1.0, 1.0, 1.0 / 12.0, 5.0 / 12.0, 10.0 / 12.0, 0.0, 1.0],
        );
    }

    #[test]
    fn nothing_found_is_nothing() {
        let outcome = Outcome::new(&needs(&[&["a"]]), &[]);
        assert_eq!(outcome, Outcome::default());
        assert!(outcome.ndcg_10.is_sign_positive());
    }

    #[test]
    fn percentiles_are_times_that_occurred() {
        let times = (1..=200).rev().map(Duration::from_micros).collect();
        let figures = Figures::new(200, Outcome::default(), times);
        assert_eq!((figures.p50_us, figures.p99_us), (100.0, 198.0));
        assert_eq!(Figures::new(0, Outcome::default(), Vec::new()).p99_us, 0.0);
    }
}
