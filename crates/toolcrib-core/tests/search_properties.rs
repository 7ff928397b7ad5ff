//! Arbitrary tools and arbitrary queries: a name finds its tool, neither the order of registration
//! nor what is hidden matters, and nothing panics.

use std::sync::Arc;

use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};
use toolcrib_core::{
    Choice, Meaning, Naming, Policy, Registry, SearchError, ServerTools, ToolName, ToolSpec, Usage,
    View,
};

/// A server, or the host if it has no name, and its tools.
type Source = (Option<String>, Vec<(String, String, Value)>);

/// Names that share words, differ by a letter, or look like something else.
const NAMES: &str = "search create_issue createIssue create-issue list_issues add_issue_comment \
    a.b a__b _x x_2 🦀 getURLById ünï 天気予報 select:x /x/ +x the null _ --- zorblatt zorblett zorblitt \
    functions_search zorblatts";

fn own_name() -> impl Strategy<Value = String> {
    let known = NAMES.split(' ').chain(["with space"]).collect::<Vec<_>>();
    prop_oneof![6 => select(known).prop_map(str::to_owned), 1 => "\\PC{1,12}", 1 => ".{1,80}"]
}

fn about() -> impl Strategy<Value = String> {
    let known = select(vec![
        "",
        "Opens a ticket in a repository.",
        "create_issue search mcp__github__create_issue list_issues",
        "東京の天気予報を調べる",
        "Search, find, look up. Then delete the zorblatt file.",
    ]);
    prop_oneof![4 => known.prop_map(str::to_owned), 1 => ".{0,60}"]
}

fn schema() -> impl Strategy<Value = Value> {
    select(vec![
        json!({}),
        json!({"type": "object", "properties": {"search": {"description": "create_issue"}}}),
        json!({"properties": {"a": {"enum": ["list_issues", 7, null]}, "b": true}}),
        json!(true),
    ])
}

fn server_name() -> impl Strategy<Value = Option<String>> {
    let known = select(vec!["github", "gitlab", "a__b", "a", "mcp", "sp ace", "ü", "search"]);
    let named = prop_oneof![4 => known.prop_map(str::to_owned), 1 => "\\PC{1,10}"];
    prop_oneof![4 => named.prop_map(Some), 1 => Just(None)]
}

fn naming() -> impl Strategy<Value = Naming> {
    select(vec![Naming::Model, Naming::Gateway])
}

fn sources() -> impl Strategy<Value = Vec<Source>> {
    btree_map(server_name(), vec((own_name(), about(), schema()), 0..8), 0..5)
        .prop_map(|sources| sources.into_iter().collect())
}

/// The same sources and the tools of each in another order. Of two tools of one name the first
/// stays, so there are no two.
fn in_two_orders() -> impl Strategy<Value = (Vec<Source>, Vec<Source>)> {
    let sources = sources().prop_map(|mut sources| {
        for (_, tools) in &mut sources {
            tools.sort_by(|a, b| a.0.cmp(&b.0));
            tools.dedup_by(|a, b| a.0 == b.0);
        }
        sources
    });
    (sources, any::<prop::sample::Index>(), any::<bool>()).prop_map(|(first, by, reversed)| {
        let mut second = first.clone();
        for (_, tools) in second.iter_mut().filter(|(_, tools)| !tools.is_empty()) {
            let by = by.index(tools.len());
            tools.rotate_left(by);
        }
        if reversed {
            second.reverse();
        }
        (first, second)
    })
}

/// Queries that mean something special, nearly do, or nothing at all; one to a line.
const QUERIES: &str = "
 \u{0}
null
select:
select:search,,nope
SELECT: a.b
/.*/
/(/
/
//
/i
/a{9}{9}{9}{9}/
+issue
+
++ +
+🦀
🦀
search
issue create
.*
mcp__github__new_issue
github.createIssue
mcp__
__
:
zorblutt
then. then. then
。。。
a. b; c? d! e
\u{301}
\u{202e}issue
create the issue. Then search for it, also list issues
天気を調べて。
ﷺ";

fn query() -> impl Strategy<Value = String> {
    prop_oneof![
        6 => select(QUERIES.lines().collect::<Vec<_>>()).prop_map(str::to_owned),
        2 => ".{0,40}",
        1 => "\\PC{0,40}",
        1 => own_name(),
        1 => (own_name(), 1_000_usize..20_000).prop_map(|(name, times)| name.repeat(times)),
    ]
}

fn view(naming: Naming, sources: &[Source]) -> View {
    let registry = Registry::new(naming);
    for (server, tools) in sources {
        let spec = |(own, about, schema): &(String, String, Value)| {
            let name = match server {
                Some(server) => ToolName::mcp(server.as_str(), own.as_str()),
                None => ToolName::host(own.as_str()),
            };
            ToolSpec::new(name, schema.clone()).with_description(about.as_str())
        };
        // What is refused is not there.
        match server {
            Some(name) => {
                registry.replace_server(ServerTools::new(name.as_str(), tools.iter().map(spec)));
            }
            None => tools.iter().for_each(|tool| {
                let _ = registry.register(spec(tool));
            }),
        }
    }
    registry.catalog().view_all()
}

/// The same where only these tools of it are registered.
fn with_only(view: &View, specs: &[ToolSpec]) -> View {
    let registry = Registry::new(view.catalog().naming());
    let mut servers: Vec<&str> = specs.iter().filter_map(|spec| spec.name().server()).collect();
    servers.dedup();
    for server in servers {
        let own = specs.iter().filter(|spec| spec.name().server() == Some(server)).cloned();
        registry.replace_server(ServerTools::new(server, own));
    }
    for spec in specs.iter().filter(|spec| spec.name().server().is_none()) {
        registry.register(spec.clone()).expect("it was registered before");
    }
    registry.catalog().view_all()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 150,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn every_exposed_name_ranks_its_tool_first(naming in naming(), sources in sources()) {
        let view = view(naming, &sources);
        for tool in view.tools() {
            let name = tool.exposed();
            for meaning in [Meaning::Static, Meaning::None, Meaning::Vector(&[1.0, 2.0])] {
                let page = view.search_with(meaning, name, 3).expect("a query");
                let (best, others) = page.results.split_first().expect("a hit");
                prop_assert_eq!((&best.name, &*best.tool), (name, tool.name().tool()));
                prop_assert!(others.iter().all(|row| row.score < best.score));
            }
        }
    }

    #[test]
    fn results_do_not_depend_on_the_order_of_registration(
        (first, second) in in_two_orders(),
        naming in naming(),
        queries in vec(query(), 1..8),
    ) {
        let (first, second) = (view(naming, &first), view(naming, &second));
        for query in &queries {
            for meaning in [Meaning::Static, Meaning::None] {
                let search = |view: &View| view.search_with(meaning, query, 9);
                prop_assert_eq!(search(&first), search(&second), "{}", query);
            }
        }
    }

    #[test]
    fn any_query_gets_a_page_or_a_reason(
        sources in sources(),
        query in query(),
        limit in 0_usize..6,
    ) {
        let view = view(Naming::Model, &sources);
        let asked = query.trim().to_lowercase();
        let page = match view.search(&query, limit) {
            Ok(page) => page,
            Err(SearchError::Blank) => {
                let rest = asked.trim_start_matches("select:").trim_end_matches("/i");
                prop_assert!(rest == "null" || !rest.contains(char::is_alphanumeric));
                return Ok(());
            }
            Err(SearchError::BadPattern(reason)) => {
                prop_assert!(asked.starts_with('/') && !reason.is_empty());
                return Ok(());
            }
        };
        prop_assert!(page.results.len() <= limit || asked.starts_with("select:"));
        prop_assert!(page.total_matches >= page.results.len());
        prop_assert!(page.results.is_sorted_by(|a, b| a.score >= b.score));
        for row in &page.results {
            prop_assert!(row.score.is_finite() && row.score > 0.0);
            prop_assert!(view.tools().any(|tool| tool.exposed() == &row.name));
            let why = view.explain(&query, &row.name);
            prop_assert!(why.is_none_or(|why| why.total.is_finite()));
        }
    }

    #[test]
    fn what_is_hidden_changes_no_bit_of_what_is_found(
        naming in naming(),
        sources in sources(),
        hides in vec(any::<bool>(), 40),
        queries in vec(query(), 1..8),
        chosen in vec((query(), any::<prop::sample::Index>(), 1_u32..9, 0.1_f32..1.0), 0..12),
        limit in 0_usize..9,
        by_words: bool,
    ) {
        let all = view(naming, &sources);
        let tools: Vec<&ToolSpec> = all.tools().map(|tool| tool.spec()).collect();
        let hidden = tools.iter().zip(&hides).filter(|(_, hides)| **hides);
        let policy =
            hidden.fold(Policy::default(), |policy, (spec, _)| policy.without(spec.name()));
        let left = tools.iter().zip(&hides).filter(|(_, hides)| !**hides);
        let left: Vec<ToolSpec> = left.map(|(spec, _)| (*spec).clone()).collect();
        let choices = chosen.iter().filter(|_| !tools.is_empty()).map(|(query, at, times, fresh)| {
            let tool = tools[at.index(tools.len())].name();
            let (query, tool) = (query.clone(), tool.to_string());
            Choice { query, tool, times: *times, freshness: *fresh }
        });
        let choices: Vec<Choice> = choices.collect();
        let is_left = |choice: &&Choice| left.iter().any(|it| it.name().to_string() == choice.tool);
        let of_left: Vec<Choice> = choices.iter().filter(is_left).cloned().collect();

        let narrowed = all.catalog().view(&policy).with_usage(Arc::new(Usage::new(choices)));
        let alone = with_only(&all, &left).with_usage(Arc::new(Usage::new(of_left)));
        let meaning = if by_words { Meaning::None } else { Meaning::Static };
        let asked = chosen.iter().map(|(query, ..)| query).chain(&queries);
        let names = tools.iter().map(|spec| spec.name().to_string()).take(6);
        for query in asked.cloned().chain(names) {
            let [found, expected] =
                [&narrowed, &alone].map(|view| view.search_with(meaning, &query, limit));
            prop_assert_eq!(found, expected, "{}", query);
            for tool in narrowed.tools().take(2) {
                let [why, expected] = [&narrowed, &alone]
                    .map(|view| view.explain_with(meaning, &query, tool.exposed()));
                prop_assert_eq!(why, expected, "{}", query);
            }
        }
    }
}
