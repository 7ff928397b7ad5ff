//! Which search a call follows.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcrib_core::{Searched, ToolName};

/// Searches that a call may be put down to: the latest ones.
const MOST_SEARCHES: usize = 3;

/// Calls after which a search is no longer the reason for one.
const MOST_CALLS: usize = 8;

/// The latest searches of one caller, so that a call can be put down to one of them. A handle:
/// clones are the same trail.
///
/// A [`Conversation`](crate::Conversation) has its own. Where every request is a conversation of
/// its own but is known to come from one caller, they can share one: see
/// [`Crib::converse_on`](crate::Crib::converse_on).
#[derive(Clone, Debug, Default)]
pub struct Trail(Arc<Mutex<Steps>>);

#[derive(Clone, Debug, Default)]
struct Steps {
    /// The latest first.
    searches: VecDeque<Search>,
    searched: u64,
}

#[derive(Clone, Debug)]
struct Search {
    number: u64,
    query: Arc<str>,
    listed: Vec<ToolName>,
    /// Of what was listed, what has been called.
    chosen: Vec<ToolName>,
    calls_since: usize,
}

/// The search that a call follows.
#[derive(Clone, Debug)]
pub(crate) struct Followed {
    number: u64,
    pub(crate) query: Arc<str>,
}

impl Trail {
    pub(crate) fn searched(&self, Searched { query, tools }: &Searched) {
        if tools.is_empty() {
            return;
        }
        let mut steps = self.lock();
        steps.searched += 1;
        let (number, query) = (steps.searched, query.as_str().into());
        let (listed, chosen) = (tools.clone(), Vec::new());
        steps.searches.push_front(Search { number, query, listed, chosen, calls_since: 0 });
        steps.searches.truncate(MOST_SEARCHES);
    }

    /// The latest search that listed a tool which is now called.
    pub(crate) fn follow(&self, tool: &ToolName) -> Option<Followed> {
        let mut steps = self.lock();
        steps.searches.iter_mut().for_each(|search| search.calls_since += 1);
        steps.searches.retain(|search| search.calls_since <= MOST_CALLS);
        let search = steps.searches.iter().find(|search| search.listed.contains(tool))?;
        Some(Followed { number: search.number, query: search.query.clone() })
    }

    /// Notes that the call went well; says whether that is a choice. The second call of a tool
    /// after one search is none.
    pub(crate) fn chosen(&self, followed: &Followed, tool: &ToolName) -> bool {
        let mut steps = self.lock();
        let mut searches = steps.searches.iter_mut();
        // One that has been forgotten while the call ran had its turn.
        let Some(search) = searches.find(|search| search.number == followed.number) else {
            return false;
        };
        let is_news = !search.chosen.contains(tool);
        if is_news {
            search.chosen.push(tool.clone());
        }
        is_news
    }

    /// A copy that goes its own way.
    pub(crate) fn fork(&self) -> Self {
        Self(Arc::new(Mutex::new(self.lock().clone())))
    }

    fn lock(&self) -> MutexGuard<'_, Steps> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tool(name: &str) -> ToolName {
        ToolName::host(name)
    }

    fn search(trail: &Trail, query: &str, tools: &[&str]) {
        let tools = tools.iter().map(|name| tool(name)).collect();
        trail.searched(&Searched { query: query.to_owned(), tools });
    }

    fn followed(trail: &Trail, name: &str) -> Option<String> {
        trail.follow(&tool(name)).map(|it| it.query.to_string())
    }

    #[test]
    fn a_call_follows_the_latest_search_that_listed_its_tool() {
        let trail = Trail::default();
        search(&trail, "one", &["a", "b"]);
        search(&trail, "two", &["b", "c"]);
        search(&trail, "nothing", &[]);
        assert_eq!(followed(&trail, "b").as_deref(), Some("two"));
        assert_eq!(followed(&trail, "a").as_deref(), Some("one"));
        assert_eq!(followed(&trail, "d"), None);
    }

    #[test]
    fn searches_are_forgotten_after_three_more_or_eight_calls() {
        let trail = Trail::default();
        for query in ["one", "two", "three", "four"] {
            search(&trail, query, &[query]);
        }
        assert_eq!(followed(&trail, "one"), None);
        for _ in 0..MOST_CALLS - 1 {
            assert_eq!(followed(&trail, "two").as_deref(), Some("two"));
        }
        assert_eq!(followed(&trail, "two"), None);
    }

    #[test]
    fn one_search_is_one_choice_of_a_tool() {
        let trail = Trail::default();
        search(&trail, "one", &["a", "b"]);
        let first = trail.follow(&tool("a")).unwrap();
        assert!(trail.chosen(&first, &tool("a")));
        assert!(!trail.chosen(&first, &tool("a")));
        assert!(trail.chosen(&first, &tool("b")));
        let fork = trail.fork();
        search(&trail, "one", &["a"]);
        assert!(trail.chosen(&trail.follow(&tool("a")).unwrap(), &tool("a")));
        assert!(!fork.chosen(&fork.follow(&tool("a")).unwrap(), &tool("a")));
    }
}
