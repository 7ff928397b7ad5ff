//! Tools under ids of the caller's own, to measure ranking on.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::Arc;

use toolcrib_search::{Analyzer, Explanation, Ranking, Reading, Tuning};

use crate::scope::{Learned, Scope};
use crate::segment::{Item, Segment, TUNING};
use crate::{
    Catalog, Choice, Group, GroupId, Learning, Members, Naming, Tool, ToolSpec, Usage, View,
};

/// Tools under ids of the caller's own, ranked exactly as [`View::search`] ranks them.
///
/// A [`Registry`](crate::Registry) refuses a second tool of one name, as a model could not tell
/// the two apart. Sets made for measuring have such tools, so nothing passes through one here.
///
/// ```
/// use toolcrib_core::{Corpus, Schema, ToolName, ToolSpec};
/// use toolcrib_search::Ranking;
///
/// let tool = |name, about: &str| {
///     ToolSpec::new(ToolName::mcp("git", name), Schema::empty()).with_description(about)
/// };
/// let corpus = Corpus::new([
///     ("1".into(), tool("log", "List the commits of a branch.")),
///     ("2".into(), tool("diff", "Show what changed between two commits.")),
/// ]);
/// let best = corpus.search("what changed", 10, Ranking::Lexical);
/// assert_eq!(&*best[0].id, "2");
///
/// let why = corpus.explain("what changed", "2", Ranking::Lexical).unwrap();
/// assert_eq!(why.total, best[0].score);
/// ```
pub struct Corpus {
    view: View,
    /// By [`address`], which lasts as long as the view has the tool.
    ids: HashMap<usize, Arc<str>>,
    tools: HashMap<Arc<str>, Arc<Tool>>,
}

/// A tool found, and how well it fits.
#[derive(Clone, Debug, PartialEq)]
pub struct Ranked {
    /// The caller's id.
    pub id: Arc<str>,
    /// Comparable within one answer only.
    pub score: f32,
}

impl Corpus {
    /// The numbers that tools are ranked with.
    pub const TUNING: Tuning = TUNING;

    /// A corpus of these tools, each with its id. Of several with one id the last counts. Tools
    /// of one server are indexed together, and so are those that belong to none.
    pub fn new(tools: impl IntoIterator<Item = (Arc<str>, ToolSpec)>) -> Self {
        Self::tuned(tools, &Self::TUNING)
    }

    /// The same, ranked with other numbers than those in use.
    pub fn tuned(tools: impl IntoIterator<Item = (Arc<str>, ToolSpec)>, tuning: &Tuning) -> Self {
        // In the order of ids, so that tools which share a name rank the same however they came.
        let specs: BTreeMap<Arc<str>, ToolSpec> = tools.into_iter().collect();
        let mut groups: BTreeMap<GroupId, Vec<Arc<Tool>>> = BTreeMap::new();
        let mut tools = HashMap::with_capacity(specs.len());
        for (id, spec) in specs {
            let group = GroupId::of(spec.name());
            let tool = Arc::new(Tool::new(spec, group.clone(), Naming::default()));
            groups.entry(group).or_default().push(tool.clone());
            tools.insert(id, tool);
        }
        let mut analyzer = Analyzer::reading(tuning.reading);
        let segments = groups.into_iter().map(|(id, tools)| {
            let mut group = Group::new(id).with_members(Members::Known(Vec::new()));
            // A tool without a server is not to be found by the words "host tools".
            if group.id().server_name().is_none() {
                group = group.with_display_name("");
            }
            Arc::new(Segment::tuned(tuning, group, tools, Naming::default(), &mut analyzer))
        });
        let catalog = Catalog::tuned(tuning, Naming::default(), segments.collect());
        Self::with(Arc::new(catalog).view_all(), tools)
    }

    fn with(view: View, tools: HashMap<Arc<str>, Arc<Tool>>) -> Self {
        let ids = tools.iter().map(|(id, tool)| (address(tool), id.clone())).collect();
        Self { view, ids, tools }
    }

    /// The same after these choices, whose tools are given by their ids: they are lifted as
    /// [`View::with_usage`] does. Those of tools that are not here count for nothing.
    pub fn after(self, choices: impl IntoIterator<Item = Choice>, learning: Learning) -> Self {
        let named = choices.into_iter().filter_map(|choice| {
            let tool = self.tools.get(&*choice.tool)?.name().to_string();
            Some(Choice { tool, ..choice })
        });
        let usage = Arc::new(Usage::tuned(named, learning));
        Self { view: self.view.with_usage(usage), ..self }
    }

    fn reading(&self) -> Reading {
        self.view.catalog().index().tuning().reading
    }

    /// The number of tools.
    pub fn len(&self) -> usize {
        self.tools.len()
    }

    /// Whether there is no tool.
    pub fn is_empty(&self) -> bool {
        self.tools.is_empty()
    }

    /// Whether a tool has this id.
    pub fn contains(&self, id: &str) -> bool {
        self.tools.contains_key(id)
    }

    /// The best `limit` tools, best first; none for a query that asks for nothing.
    pub fn search(&self, query: &str, limit: usize, ranking: Ranking) -> Vec<Ranked> {
        let nothing = Learned::new();
        let scope = Scope::new(&self.view, &nothing, true);
        let Ok(ask) = scope.ask(query) else { return Vec::new() };
        let found = scope.search(&ask.read(self.reading()).ranked_by(ranking), limit);
        let id = |item| match item {
            Item::Tool(tool) => self.ids.get(&address(tool)).cloned(),
            Item::Named(_) => None,
        };
        let hits = found.hits.into_iter();
        hits.filter_map(|hit| Some(Ranked { id: id(hit.item)?, score: hit.score })).collect()
    }

    /// Why the tool of this id ranks where it does; nothing for a query that is not of words.
    pub fn explain(&self, query: &str, id: &str, ranking: Ranking) -> Option<Explanation> {
        let tool = self.tools.get(id)?;
        let nothing = Learned::new();
        let scope = Scope::new(&self.view, &nothing, true);
        let ask = scope.ask(query).ok()?.read(self.reading()).ranked_by(ranking);
        let segment = self.view.catalog().segment(tool.group())?;
        let mut explanation = scope.explain(&ask, segment, Item::Tool(tool))?;
        id.clone_into(&mut explanation.key);
        Some(explanation)
    }
}

impl From<View> for Corpus {
    /// The tools a caller may know of, with `server/tool` for ids. What was learned from use does
    /// not count, as it would measure itself.
    fn from(view: View) -> Self {
        let view = view.without_usage();
        let tools = view.tools().map(|tool| (tool.name().to_string().into(), tool.clone()));
        let tools = tools.collect();
        Self::with(view, tools)
    }
}

impl fmt::Debug for Corpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Corpus({} tools)", self.len())
    }
}

fn address(tool: &Arc<Tool>) -> usize {
    Arc::as_ptr(tool).addr()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Registry, Schema, ServerTools, ToolName};

    fn tool(server: &str, name: &str, about: &str) -> ToolSpec {
        ToolSpec::new(ToolName::mcp(server, name), Schema::empty()).with_description(about)
    }

    fn ids(found: &[Ranked]) -> Vec<&str> {
        found.iter().map(|ranked| &*ranked.id).collect()
    }

    fn specs() -> Vec<ToolSpec> {
        vec![
            tool("git", "log", "List commits."),
            tool("git", "search", "Search the files of a commit."),
            tool("chat", "search", "Search messages."),
            tool("chat", "post_message", "Send a message to a channel."),
        ]
    }

    #[test]
    fn it_ranks_as_a_view_of_the_same_tools() {
        let registry = Registry::default();
        for server in ["git", "chat"] {
            let own = specs().into_iter().filter(|spec| spec.name().server() == Some(server));
            registry.replace_server(ServerTools::new(server, own));
        }
        let view = registry.catalog().view_all();
        let corpus =
            Corpus::new(specs().into_iter().map(|spec| (spec.name().to_string().into(), spec)));
        let of_view = Corpus::from(view.clone());
        for query in ["search", "git/search", "chat.post_message please", "list +commits", "/log/"]
        {
            let page = view.search(query, 10).unwrap();
            let expected: Vec<String> = page
                .results
                .iter()
                .map(|row| format!("{}/{}", row.server.as_deref().unwrap(), row.tool))
                .collect();
            assert!(!expected.is_empty(), "{query}");
            let found = corpus.search(query, 10, Ranking::default());
            assert_eq!(ids(&found), expected, "{query}");
            assert_eq!(of_view.search(query, 10, Ranking::default()), found, "{query}");
        }
        assert!(corpus.search(" ", 10, Ranking::Lexical).is_empty());
    }

    #[test]
    fn tools_of_one_name_are_told_apart_by_id() {
        let twins = [("b", "Area of a circle."), ("a", "Area of a circle, in inches.")];
        let specs = |order: &[usize]| {
            let twin = |at: &usize| (twins[*at].0.into(), tool("math", "area", twins[*at].1));
            Corpus::new(order.iter().map(twin).collect::<Vec<_>>())
        };
        let corpus = specs(&[0, 1]);
        let found = corpus.search("circle inches", 10, Ranking::Lexical);
        assert_eq!(ids(&found), ["a", "b"]);
        assert_eq!(specs(&[1, 0]).search("circle inches", 10, Ranking::Lexical), found);
        let why = corpus.explain("circle inches", "a", Ranking::Lexical).unwrap();
        assert_eq!((&*why.key, why.total), ("a", found[0].score));
        assert_eq!(corpus.explain("circle", "c", Ranking::Lexical), None);
    }

    #[test]
    fn other_numbers_give_other_ranks() {
        let specs =
            || [("1".into(), tool("a", "mail_box", "")), ("2".into(), tool("a", "x", "mail mail"))];
        let best = |weight: f32, told: f32| {
            let fields = Corpus::TUNING.fields.with("name", |field| {
                (field.weight, field.told, field.share) = (weight, told, 0.0);
            });
            let corpus = Corpus::tuned(specs(), &Tuning { fields, ..Corpus::TUNING });
            ids(&corpus.search("mail", 1, Ranking::Lexical))[0].to_owned()
        };
        assert_eq!(best(3.0, 1.0), "1");
        assert_eq!(best(0.01, 0.0), "2");
    }

    #[test]
    fn text_can_be_read_in_another_way() {
        let tools =
            || [("1".into(), tool("a", "one", "The issues.")), ("2".into(), specs()[0].clone())];
        let found = |reading: Reading, query: &str| {
            let corpus = Corpus::tuned(tools(), &Tuning { reading, ..Corpus::TUNING });
            let found = corpus.search(query, 10, Ranking::Lexical);
            for Ranked { id, score } in &found {
                assert_eq!(corpus.explain(query, id, Ranking::Lexical).unwrap().total, *score);
            }
            ids(&found).into_iter().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(found(Reading::DEFAULT, "the commit issue"), ["1", "2"]);
        let unstemmed = Reading { stemmed: f32::INFINITY, ..Reading::DEFAULT };
        assert!(found(unstemmed, "the commit issue").is_empty());
        assert_eq!(found(Reading { stops: false, ..unstemmed }, "the commit issue"), ["1"]);
    }

    #[test]
    fn what_was_chosen_before_is_lifted() {
        let twins = || ["1", "2"].map(|id| (id.into(), tool(&format!("x{id}"), "send_text", "")));
        let choice = |tool: &str| Choice {
            query: "a text".into(),
            tool: tool.into(),
            times: 2,
            freshness: 1.0,
        };
        let first = |corpus: Corpus| {
            let found = corpus.search("text", 10, Ranking::Lexical);
            let why = corpus.explain("text", &found[0].id, Ranking::Lexical).unwrap();
            assert_eq!(why.total, found[0].score);
            found[0].id.to_string()
        };
        assert_eq!(first(Corpus::new(twins())), "1");
        let choices = [choice("2"), choice("gone")];
        assert_eq!(first(Corpus::new(twins()).after(choices.clone(), Learning::DEFAULT)), "2");
        let learning = Learning { most_lift: 0.0, ..Learning::DEFAULT };
        assert_eq!(first(Corpus::new(twins()).after(choices, learning)), "1");
    }

    #[test]
    fn the_last_tool_of_an_id_counts() {
        let corpus = Corpus::new([
            ("1".into(), tool("a", "old", "Old.")),
            ("1".into(), tool("b", "new", "New.")),
        ]);
        assert_eq!(corpus.len(), 1);
        assert!(corpus.search("old", 10, Ranking::Lexical).is_empty());
        assert_eq!(ids(&corpus.search("new", 10, Ranking::Lexical)), ["1"]);
    }

    #[test]
    fn a_tool_without_a_server_is_found_by_its_own_words_only() {
        let spec = ToolSpec::new(ToolName::host("ping"), Schema::empty());
        let corpus = Corpus::new([("p".into(), spec)]);
        assert!(corpus.search("host tools", 10, Ranking::Lexical).is_empty());
        assert_eq!(ids(&corpus.search("ping", 10, Ranking::Lexical)), ["p"]);
    }
}
