//! Agents as tools of agents.

use futures::future::BoxFuture;
use serde_json::json;
use toolcrib_agent::{Agent, End, Scripted, Turn};
use toolcrib_core::{GroupId, Policy, PolicyRules, Schema, ToolName, ToolSpec};
use toolcrib_runtime::{CallError, Invocation, Listing, ToolResult, Toolset};

use crate::support::*;

fn allowing(tools: &[&str]) -> Policy {
    let allow_tools = Some(tools.iter().map(|tool| (*tool).to_owned()).collect());
    Policy::new(PolicyRules { allow_tools, ..PolicyRules::default() }).unwrap()
}

/// A parent that asks a sub-agent once; the child plays `child` under `policy`.
async fn family(policy: Policy, child: Vec<Turn>) -> (Stage, Scripted) {
    let asks = Turn::calls([("helper", json!({"task": "Help."}))]);
    let stage = agent(deferred(), [asks, Turn::text("Thanks.")]).await;
    let model = Scripted::new(child);
    let agent = Agent::builder(model.clone(), "small", stage.crib.clone()).policy(policy).build();
    stage.crib.register(agent.into_tool("helper", "Helps.")).unwrap();
    (stage, model)
}

#[tokio::test]
async fn a_sub_agent_has_its_own_catalog_and_its_own_ledger() {
    let child = vec![
        Turn::call("tool_search", json!({"query": "drill or mill"})),
        Turn::calls([
            dispatched("drill", json!({"size": 1})),
            dispatched("mill", json!({"size": 1})),
        ]),
        Turn::text("Drilled."),
    ];
    let (stage, model) = family(allowing(&["drill"]), child).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Get help.").await;
    assert_eq!(answer.text, "Thanks.");
    assert_eq!(stage.log.lines(), ["drill 1 begins", "drill 1 ends"]);
    assert_eq!(last_results(chat.history()), ["Drilled."]);
    let loaded: Vec<String> =
        chat.conversation().session().loaded_tools().map(ToString::to_string).collect();
    assert_eq!(loaded, ["helper"], "what the child loaded is the child's");
    assert_eq!(model.requests()[0].messages.len(), 1, "it knows its task and nothing else");
    assert!(!model.requests()[0].system.contains("mill"), "{}", model.requests()[0].system);
}

#[tokio::test]
async fn an_empty_list_of_tools_stays_empty() {
    let child = vec![Turn::call("tool_search", json!({"query": "drill"})), Turn::text("Nothing.")];
    let (stage, model) = family(allowing(&[]), child).await;
    follow(&mut stage.agent.chat(), "Get help.").await;
    for request in model.requests() {
        assert!(request.tools.is_empty() && request.system.is_empty(), "{request:?}");
    }
}

#[tokio::test]
async fn an_agent_does_not_see_the_tool_that_it_is() {
    let child = vec![
        Turn::calls([dispatched("helper", json!({"task": "You do it."}))]),
        Turn::text("I tried."),
    ];
    let (stage, model) = family(Policy::default(), child).await;
    follow(&mut stage.agent.chat(), "Get help.").await;
    assert_eq!(model.requests().len(), 2, "it was asked once, and not by itself");
}

#[tokio::test]
async fn agents_that_call_each_other_come_to_an_end() {
    let (crib, _) = shop(deferred()).await;
    let calls = |other: &'static str| {
        Scripted::by(move |request| match request.messages.len() {
            1 => Turn::calls([dispatched(other, json!({"task": "You do it."}))]),
            _ => Turn::text("That's that."),
        })
    };
    let (ping, pong) = (calls("pong"), calls("ping"));
    let first = Agent::builder(ping.clone(), "a", crib.clone()).build();
    let second = Agent::builder(pong.clone(), "b", crib.clone()).build();
    crib.register(first.clone().into_tool("ping", "Ping.")).unwrap();
    crib.register(second.into_tool("pong", "Pong.")).unwrap();
    let (_, answer) = follow(&mut first.chat(), "Play.").await;
    assert_eq!(answer.end, End::Done);
    assert_eq!((ping.requests().len(), pong.requests().len()), (6, 4));
}

#[tokio::test]
async fn a_sub_agent_that_does_not_finish_says_so() {
    let child = vec![Turn::error(toolcrib_agent::ProviderError::Denied("no key".into()))];
    let (stage, _) = family(Policy::default(), child).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Get help.").await;
    assert_eq!(answer.end, End::Done);
    assert!(answer.calls[0].is_error);
    assert!(last_results(chat.history())[0].contains("no key"));
}

#[tokio::test]
async fn a_sub_agent_sees_other_tools_of_its_own_name() {
    let (crib, _) = shop(deferred()).await;
    crib.add(Searcher).await;
    let child =
        Scripted::new([Turn::calls([dispatched("web.search", json!({}))]), Turn::text("Found.")]);
    let agent = Agent::builder(child, "small", crib.clone()).build();
    crib.register(agent.into_tool("search", "Searches.")).unwrap();
    let model = Scripted::new([
        Turn::calls([dispatched("search", json!({"task": "Search."}))]),
        Turn::text("Thanks."),
    ]);
    let parent = Agent::builder(model, "large", crib).build();
    let mut chat = parent.chat();
    follow(&mut chat, "Search.").await;
    assert_eq!(last_results(chat.history()), ["Found."]);
}

struct Searcher;

impl Toolset for Searcher {
    fn id(&self) -> GroupId {
        "mcp:web".into()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let spec = ToolSpec::new(ToolName::mcp("web", "search"), Schema::empty());
        Box::pin(async { Ok(Listing::new([spec])) })
    }

    fn call(&self, _: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async { Ok(ToolResult::text("a page")) })
    }
}

#[tokio::test]
async fn whoever_cancels_the_parent_cancels_the_child() {
    let child = vec![Turn::calls([dispatched("sleep", json!({}))])];
    let (stage, model) = family(Policy::default(), child).await;
    let mut chat = stage.agent.chat();
    let token = chat.cancellation();
    let soon = async {
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
        token.cancel();
    };
    let ((_, answer), ()) = futures::join!(follow(&mut chat, "Get help."), soon);
    assert_eq!((answer.end, model.requests().len()), (End::Cancelled, 1));
}
