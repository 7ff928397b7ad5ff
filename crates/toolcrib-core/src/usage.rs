//! Which tools were called after which queries, and what that adds to their scores.
//!
//! The table is a plain value: whoever keeps the choices says how often each was made and how much
//! of it still counts, so that no clock is needed here. A query is known by the set of its stems,
//! so word order, inflection and filler words don't matter.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::{Arc, LazyLock};

use toolcrib_search::{Analyzer, STOP_WORDS, Term};

/// Tools lifted for one query.
const MOST_LIFTED: usize = 8;

/// Stems a query is known by; further ones are not looked at.
const MOST_STEMS: usize = 32;

/// The numbers that learning from use goes by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Learning {
    /// The most that use adds to a score, as a share of the best score of the page: enough to
    /// settle what is nearly a draw, too little to put a poor match before a good one.
    pub most_lift: f32,
    /// Choices of a tool before it is lifted at all: one may have been a mistake.
    pub least_choices: f32,
    /// With this many choices of a tool, the lift is half of what it can become.
    pub half_way: f32,
    /// How much of their stems (intersection over union) two queries must share to be alike. What
    /// was chosen after one that is merely alike counts for that share of it.
    pub alike: f32,
}

impl Learning {
    /// The numbers in use.
    pub const DEFAULT: Learning =
        Learning { most_lift: 0.15, least_choices: 2.0, half_way: 2.0, alike: 0.6 };
}

impl Default for Learning {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// That a tool was called after a query found it.
#[derive(Clone, Debug, PartialEq)]
pub struct Choice {
    /// The query.
    pub query: String,
    /// The tool, as its [`ToolName`](crate::ToolName) is displayed: `server/tool`.
    pub tool: String,
    /// How often.
    pub times: u32,
    /// How much of that still counts, from 0 to 1: less for what was long ago.
    pub freshness: f32,
}

/// Which tools were called after which queries. A [`View`](crate::View) that is given one lifts
/// these tools a little where such a query is asked again.
///
/// A tool is lifted only if it matches anyway, never by more than a fixed share of the best score,
/// and never above a tool that the query names outright. One choice lifts nothing yet.
///
/// ```
/// use std::sync::Arc;
/// use toolcrib_core::{Choice, Registry, Schema, ServerTools, ToolName, ToolSpec, Usage};
///
/// let tool = |server| ToolSpec::new(ToolName::mcp(server, "send_text"), Schema::empty());
/// let registry = Registry::default();
/// registry.replace_server(ServerTools::new("x1", [tool("x1")]));
/// registry.replace_server(ServerTools::new("x2", [tool("x2")]));
/// let view = registry.catalog().view_all();
/// let first = |view: &toolcrib_core::View| view.search("text", 1).unwrap().results[0].name.clone();
/// assert_eq!(&*first(&view), "mcp__x1__send_text");
///
/// let choice = Choice { query: "text".into(), tool: "x2/send_text".into(), times: 2, freshness: 1.0 };
/// let view = view.with_usage(Arc::new(Usage::new([choice])));
/// assert_eq!(&*first(&view), "mcp__x2__send_text");
/// ```
#[derive(Clone, Default, PartialEq)]
pub struct Usage {
    learning: Learning,
    /// By stem: the queries that have it.
    having: HashMap<Term, Vec<u32>>,
    /// In the order of their stems, so that no sum depends on tools that not everybody sees.
    queries: Vec<Asked>,
}

/// What followed queries of the same stems.
#[derive(Clone, Debug, PartialEq)]
struct Asked {
    stems: Box<[Term]>,
    /// By name.
    chosen: Vec<(Arc<str>, Count)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Count {
    times: u32,
    /// The same, less what no longer counts.
    weight: f32,
}

/// A tool that was chosen after queries like the one asked.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Chosen {
    pub(crate) tool: Arc<str>,
    /// What to add to its score, as a share of the best.
    pub(crate) lift: f32,
    times: u32,
    of: u32,
}

impl Chosen {
    /// In words, for an explanation.
    pub(crate) fn reason(&self) -> String {
        format!("chosen {} of {} times after queries like this", self.times, self.of)
    }
}

impl Count {
    fn add(&mut self, times: u32, weight: f32) {
        self.times = self.times.saturating_add(times);
        self.weight += weight;
    }
}

impl Usage {
    /// A table of these choices; their order does not matter.
    pub fn new(choices: impl IntoIterator<Item = Choice>) -> Self {
        Self::tuned(choices, Learning::DEFAULT)
    }

    /// The same, by other numbers than those in use.
    pub(crate) fn tuned(choices: impl IntoIterator<Item = Choice>, learning: Learning) -> Self {
        let mut choices: Vec<Choice> = choices.into_iter().collect();
        // Sums of floats depend on their order.
        choices.sort_by(|a, b| {
            let names = (&a.query, &a.tool, a.times).cmp(&(&b.query, &b.tool, b.times));
            names.then(a.freshness.total_cmp(&b.freshness))
        });
        let mut analyzer = Analyzer::new();
        let mut sets: BTreeMap<Box<[Term]>, BTreeMap<String, Count>> = BTreeMap::new();
        for Choice { query, tool, times, freshness } in choices {
            let stems = stems(&query, &mut analyzer);
            if stems.is_empty() || times == 0 {
                continue;
            }
            let count = sets.entry(stems).or_default().entry(tool).or_default();
            let freshness = if freshness.is_nan() { 0.0 } else { freshness.clamp(0.0, 1.0) };
            count.add(times, times as f32 * freshness);
        }
        let mut usage = Self { learning, ..Self::default() };
        for (number, (stems, tools)) in (0..).zip(sets) {
            stems.iter().for_each(|stem| usage.having.entry(*stem).or_default().push(number));
            let chosen = tools.into_iter().map(|(tool, count)| (tool.into(), count)).collect();
            usage.queries.push(Asked { stems, chosen });
        }
        usage
    }

    /// Whether nothing was chosen.
    pub fn is_empty(&self) -> bool {
        self.queries.is_empty()
    }

    /// How many queries it tells apart.
    pub fn len(&self) -> usize {
        self.queries.len()
    }

    /// The tools to lift for a query, the most lifted first. Those that aren't known, be they gone
    /// or hidden, count for nothing.
    pub(crate) fn chosen(&self, query: &str, is_known: impl Fn(&str) -> bool) -> Vec<Chosen> {
        if self.is_empty() {
            return Vec::new();
        }
        let Learning { most_lift, least_choices, half_way, alike } = self.learning;
        let asked = stems(query, &mut Analyzer::new());
        let mut counts: BTreeMap<&Arc<str>, Count> = BTreeMap::new();
        for number in self.candidates(&asked) {
            let past = &self.queries[number as usize];
            let (a, b) = (asked.len(), past.stems.len());
            // They can't share more than all of the shorter one.
            if (a.min(b) as f32 / a.max(b) as f32) < alike {
                continue;
            }
            let shared = past.stems.iter().filter(|stem| asked.binary_search(stem).is_ok()).count();
            let overlap = shared as f32 / (asked.len() + past.stems.len() - shared) as f32;
            if overlap < alike {
                continue;
            }
            for (tool, count) in &past.chosen {
                counts.entry(tool).or_default().add(count.times, count.weight * overlap);
            }
        }
        counts.retain(|tool, _| is_known(tool));
        let mut all = Count::default();
        counts.values().for_each(|count| all.add(count.times, count.weight));
        let mut chosen: Vec<Chosen> = counts
            .into_iter()
            .filter(|(_, count)| count.times as f32 >= least_choices && count.weight > 0.0)
            .map(|(tool, count)| {
                let (share, n) = (count.weight / all.weight, count.weight);
                let lift = most_lift * share * n / (n + half_way);
                Chosen { tool: tool.clone(), lift, times: count.times, of: all.times }
            })
            .collect();
        chosen.sort_by(|a, b| b.lift.total_cmp(&a.lift).then_with(|| a.tool.cmp(&b.tool)));
        chosen.truncate(MOST_LIFTED);
        chosen
    }

    /// Queries that may be like one of these stems, in order.
    fn candidates(&self, asked: &[Term]) -> Vec<u32> {
        // One that shares enough of them must have one of the rarest, leaving out as many of the
        // others as it has to share less one.
        let least = (self.learning.alike * asked.len() as f32 - 0.01).ceil() as usize;
        let mut known: Vec<&Vec<u32>> =
            asked.iter().filter_map(|stem| self.having.get(stem)).collect();
        known.sort_by_key(|having| having.len());
        known.truncate((known.len() + 1).saturating_sub(least.max(1)));
        let mut found: Vec<u32> = known.into_iter().flatten().copied().collect();
        found.sort_unstable();
        found.dedup();
        found
    }
}

impl fmt::Debug for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Usage({} queries)", self.len())
    }
}

/// The stems a query is known by: a set, in order.
fn stems(query: &str, analyzer: &mut Analyzer) -> Box<[Term]> {
    static LEFT_OUT: LazyLock<Vec<Term>> =
        LazyLock::new(|| Analyzer::new().terms(&STOP_WORDS.join(" ")));
    let mut stems = analyzer.terms(query);
    stems.retain(|stem| !LEFT_OUT.contains(stem));
    stems.truncate(MOST_STEMS);
    stems.sort_unstable();
    stems.dedup();
    stems.into()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MOST_LIFT: f32 = Learning::DEFAULT.most_lift;
    const ALIKE: f32 = Learning::DEFAULT.alike;

    fn choice(query: &str, tool: &str, times: u32) -> Choice {
        Choice { query: query.into(), tool: tool.into(), times, freshness: 1.0 }
    }

    fn known(query: &str) -> Box<[Term]> {
        stems(query, &mut Analyzer::new())
    }

    fn lifts(usage: &Usage, query: &str) -> Vec<(String, f32)> {
        usage.chosen(query, |_| true).iter().map(|it| (it.tool.to_string(), it.lift)).collect()
    }

    #[test]
    fn one_choice_lifts_nothing_and_two_do() {
        assert_eq!(lifts(&Usage::new([choice("open an issue", "gh/new", 1)]), "open issue"), []);
        let usage = Usage::new([choice("open an issue", "gh/new", 2)]);
        assert_eq!(lifts(&usage, "issues to open"), [("gh/new".to_owned(), MOST_LIFT / 2.0)]);
    }

    #[test]
    fn the_lift_follows_the_share_and_stays_below_its_bound() {
        let usage =
            Usage::new([choice("send text", "a/send", 3), choice("send text", "b/send", 1)]);
        let [chosen] = &usage.chosen("send a text", |_| true)[..] else { panic!() };
        assert_eq!(chosen.reason(), "chosen 3 of 4 times after queries like this");
        assert_eq!(chosen.lift, MOST_LIFT * 0.75 * 3.0 / 5.0);
        let much = Usage::new([choice("send text", "a/send", u32::MAX)]);
        assert!(much.chosen("send text", |_| true)[0].lift <= MOST_LIFT);
    }

    #[test]
    fn other_numbers_lift_otherwise() {
        let lift = |learning| {
            let usage = Usage::tuned([choice("send text", "a/send", 2)], learning);
            usage.chosen("send text now", |_| true).first().map(|it| it.lift)
        };
        let usual = lift(Learning::DEFAULT).unwrap();
        assert_eq!(lift(Learning { most_lift: 0.3, ..Learning::DEFAULT }), Some(2.0 * usual));
        assert!(lift(Learning { half_way: 1.0, ..Learning::DEFAULT }) > Some(usual));
        assert_eq!(lift(Learning { least_choices: 3.0, ..Learning::DEFAULT }), None);
        assert_eq!(lift(Learning { alike: 0.7, ..Learning::DEFAULT }), None);
    }

    #[test]
    fn a_query_that_is_merely_alike_counts_for_less() {
        let usage = Usage::new([choice("list open pull requests", "gh/list", 4)]);
        let same = usage.chosen("open pull requests: list", |_| true)[0].lift;
        let alike = usage.chosen("list pull requests", |_| true)[0].lift;
        assert!(alike > 0.0 && alike < same, "{alike} {same}");
        assert_eq!(usage.chosen("list requests", |_| true), []);
        assert_eq!(
            usage.chosen("list open pull requests by author, month and label", |_| true),
            []
        );
        assert_eq!(usage.chosen("weather in Oslo", |_| true), []);
        assert_eq!(usage.chosen("the", |_| true), []);
    }

    #[test]
    fn what_was_long_ago_counts_for_less() {
        let old = Choice { freshness: 0.25, ..choice("send text", "a/send", 4) };
        let usage = Usage::new([old, choice("send text", "b/send", 3)]);
        let order: Vec<String> = lifts(&usage, "send text").into_iter().map(|it| it.0).collect();
        assert_eq!(order, ["b/send", "a/send"]);
        for freshness in [0.0, -1.0, f32::NAN] {
            let none = Choice { freshness, ..choice("send text", "a/send", 4) };
            assert_eq!(Usage::new([none]).chosen("send text", |_| true), []);
        }
    }

    #[test]
    fn queries_are_found_among_very_many() {
        let others = (0..20_000).map(|n| choice(&format!("list things {n}x"), "a/list", 3));
        let usage = Usage::new(others.chain([choice("list things", "b/list", 2)]));
        let chosen = usage.chosen("things, list", |_| true);
        assert!(chosen.iter().any(|it| &*it.tool == "b/list"), "{chosen:?}");
        let without = usage.chosen("things, list", |tool| tool == "b/list");
        let alone = Usage::new([choice("list things", "b/list", 2)]);
        assert_eq!(without, alone.chosen("things, list", |_| true));
    }

    #[test]
    fn filler_words_say_nothing_whatever_their_form() {
        assert!(known("Could you please do what this does for me").is_empty());
        assert_eq!(known("please DO list the issues"), known("issue listing"));
    }

    fn choices() -> impl Strategy<Value = Vec<Choice>> {
        let word = prop::sample::select(vec!["list", "open", "pull", "request", "send", "the", ""]);
        let query = prop::collection::vec(word, 0..5).prop_map(|words| words.join(" "));
        let tool = prop::sample::select(vec!["a/x", "a/y", "b/x", "z"]);
        let one = (query, tool, 0..5_u32, 0.0..1.2_f32);
        let one = one.prop_map(|(query, tool, times, freshness)| Choice {
            freshness,
            ..choice(&query, tool, times)
        });
        prop::collection::vec(one, 0..40)
    }

    proptest! {
        #[test]
        fn the_order_of_choices_does_not_matter(
            choices in choices(), seed in any::<prop::sample::Index>(), query in "[a-z ]{0,20}|list open pull|send"
        ) {
            let mut turned = choices.clone();
            if !turned.is_empty() {
                let by = seed.index(turned.len());
                turned.rotate_left(by);
                turned.swap(0, by);
            }
            let (one, other) = (Usage::new(choices), Usage::new(turned));
            prop_assert_eq!(&one, &other);
            prop_assert_eq!(one.chosen(&query, |_| true), other.chosen(&query, |_| true));
        }

        #[test]
        fn no_query_that_is_alike_is_missed(
            choices in choices(), words in "(list |open |pull |request |send |other ){1,6}"
        ) {
            let usage = Usage::new(choices);
            let asked = known(&words);
            let candidates = usage.candidates(&asked);
            for (number, past) in (0..).zip(&usage.queries) {
                let shared = past.stems.iter().filter(|stem| asked.contains(stem)).count();
                let overlap = shared as f32 / (asked.len() + past.stems.len() - shared) as f32;
                prop_assert!(overlap < ALIKE || candidates.contains(&number), "{past:?} {asked:?}");
            }
            let lifted: f32 = usage.chosen(&words, |_| true).iter().map(|it| it.lift).sum();
            prop_assert!(lifted <= MOST_LIFT * 1.000_01);
        }
    }
}
