//! Hooks: each is asked, they compose, and they see real names.

use std::sync::Arc;

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};
use toolcrib_agent::{
    Answer, End, Flow, Hooks, Message, PendingCall, Reply, Request, Said, Scripted, Turn, Verdict,
};
use toolcrib_core::{Call, ToolName};
use toolcrib_runtime::ToolResult;

use crate::support::*;

/// Notes every question under its own name.
#[derive(Clone)]
struct Noting(&'static str, Log);

impl Hooks for Noting {
    fn transform_context(
        &self,
        mut messages: Vec<Arc<Message>>,
    ) -> BoxFuture<'_, Vec<Arc<Message>>> {
        messages.push(Arc::new(Message::Host { kind: self.0.into(), data: Value::Null }));
        ready(messages).boxed()
    }

    fn transform_system_prompt(&self, prompt: String) -> BoxFuture<'_, String> {
        let opening = prompt.lines().next().unwrap_or_default().to_owned();
        ready(prompt.replacen(&opening, &format!("{opening} {}", self.0), 1)).boxed()
    }

    fn convert_to_llm(&self, messages: Vec<Arc<Message>>) -> BoxFuture<'_, Vec<Arc<Message>>> {
        let convert = |message: Arc<Message>| match &*message {
            Message::Host { kind, .. } if kind == self.0 => {
                Arc::new(Message::user(format!("from {kind}")))
            }
            _ => message,
        };
        ready(messages.into_iter().map(convert).collect()).boxed()
    }

    fn before_model<'a>(&'a self, request: &'a mut Request) -> BoxFuture<'a, Flow> {
        self.1.note(format!("{} before_model {}", self.0, request.messages.len()));
        ready(Flow::Continue).boxed()
    }

    fn after_model_response<'a>(&'a self, reply: &'a mut Reply) -> BoxFuture<'a, Flow> {
        for said in &mut reply.content {
            if let Said::Text { text } = said {
                text.push_str(self.0);
            }
        }
        ready(Flow::Continue).boxed()
    }

    fn resolve_tool_call<'a>(&'a self, call: &'a Call) -> BoxFuture<'a, Option<Call>> {
        self.1.note(format!("{} resolve {} {}", self.0, call.name, call.arguments));
        ready((call.name == "bore").then(|| Call::new("drill", call.arguments.clone()))).boxed()
    }

    fn before_tool_call<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Verdict> {
        self.1.note(format!("{} before {} {}", self.0, call.name, call.arguments));
        let size = call.arguments["size"].as_u64().unwrap_or_default();
        ready(Verdict::Rewrite(json!({"size": size * 10 + 1}))).boxed()
    }

    fn after_tool_call<'a>(
        &'a self,
        call: &'a PendingCall,
        result: ToolResult,
    ) -> BoxFuture<'a, ToolResult> {
        self.1.note(format!("{} after {} {}", self.0, call.name, call.arguments));
        ready(ToolResult::text(format!("{} {}", result.to_text(), self.0))).boxed()
    }

    fn on_tools_expanded<'a>(&'a self, tools: &'a [ToolName]) -> BoxFuture<'a, ()> {
        self.1.note(format!("{} expanded {}", self.0, tools[0]));
        ready(()).boxed()
    }

    fn should_stop<'a>(&'a self, history: &'a [Arc<Message>]) -> BoxFuture<'a, Flow> {
        self.1.note(format!("{} should_stop {}", self.0, history.len()));
        ready(Flow::Continue).boxed()
    }

    fn on_run_end<'a>(&'a self, answer: &'a Answer) -> BoxFuture<'a, ()> {
        self.1.note(format!("{} end {}", self.0, answer.end));
        ready(()).boxed()
    }
}

#[tokio::test]
async fn all_of_them_are_asked_in_order_and_each_gets_what_the_one_before_made() {
    let seen = Log::default();
    let model =
        Scripted::new([Turn::calls([dispatched("bore", json!({"size": 2}))]), Turn::text("Done")]);
    let stage = agent_with(deferred(), model, |builder| {
        builder.hooks(Noting("A", seen.clone())).hooks(Noting("B", seen.clone()))
    })
    .await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Bore.").await;
    assert_eq!(answer.text, "DoneAB");
    assert_eq!(stage.log.lines(), ["drill 211 begins", "drill 211 ends"]);
    assert_eq!(last_results(chat.history()), ["drill 211 done A B"]);
    assert_eq!(answer.calls[0].arguments, json!({"size": 211}));
    assert_eq!(
        seen.lines(),
        [
            "A before_model 3",
            "B before_model 3",
            "A resolve bore {\"size\":2}",
            "B resolve drill {\"size\":2}",
            "A expanded drill",
            "B expanded drill",
            "A before drill {\"size\":2}",
            "B before drill {\"size\":21}",
            "A after drill {\"size\":211}",
            "B after drill {\"size\":211}",
            "A should_stop 3",
            "B should_stop 3",
            "A before_model 5",
            "B before_model 5",
            "A end done",
            "B end done",
        ]
    );
    let first = &stage.model.requests()[0];
    assert!(first.system.starts_with("You run a shop. A B\n"), "{}", first.system);
    let texts: Vec<String> = first.messages.iter().map(|message| format!("{message:?}")).collect();
    assert!(texts[1].contains("from A") && texts[2].contains("from B"), "{texts:?}");
    assert_eq!(chat.history().len(), 4, "the history knows nothing of it");
}

/// Gives one verdict.
struct Says(Verdict);

impl Hooks for Says {
    fn before_tool_call<'a>(&'a self, _: &'a PendingCall) -> BoxFuture<'a, Verdict> {
        ready(self.0.clone()).boxed()
    }
}

#[tokio::test]
async fn of_several_verdicts_the_strictest_holds() {
    use Verdict::{Allow, Ask, Deny, Pass};
    let deny = || Deny("no".into());
    for (verdicts, runs) in [
        (vec![Pass, Pass], true),
        (vec![Allow, Pass], true),
        (vec![Allow, Ask], false), // nobody can be asked here
        (vec![Ask, Allow], false),
        (vec![Allow, deny()], false),
        (vec![deny(), Allow], false),
    ] {
        let model = Scripted::new([
            Turn::calls([dispatched("drill", json!({"size": 2}))]),
            Turn::text("Done"),
        ]);
        let stage = agent_with(deferred(), model, |mut builder| {
            for verdict in verdicts.clone() {
                builder = builder.hooks(Says(verdict));
            }
            builder
        })
        .await;
        let (_, answer) = follow(&mut stage.agent.chat(), "Drill.").await;
        assert_eq!(!answer.calls[0].is_error, runs, "{verdicts:?}");
        assert_eq!(stage.log.lines().is_empty(), !runs, "{verdicts:?}");
    }
}

#[tokio::test]
async fn rewritten_arguments_are_checked_again() {
    let model =
        Scripted::new([Turn::calls([dispatched("drill", json!({"size": 2}))]), Turn::text("Done")]);
    let stage = agent_with(deferred(), model, |builder| {
        builder.hooks(Says(Verdict::Rewrite(json!({"size": "very"}))))
    })
    .await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Drill.").await;
    assert!(answer.calls[0].is_error && stage.log.lines().is_empty());
    assert!(last_results(chat.history())[0].contains("In millimetres"));
}

/// Stops at one place.
struct StopsAt(&'static str);

impl Hooks for StopsAt {
    fn before_model<'a>(&'a self, _: &'a mut Request) -> BoxFuture<'a, Flow> {
        ready(self.flow("before_model")).boxed()
    }

    fn after_model_response<'a>(&'a self, _: &'a mut Reply) -> BoxFuture<'a, Flow> {
        ready(self.flow("after_model_response")).boxed()
    }

    fn should_stop<'a>(&'a self, _: &'a [Arc<Message>]) -> BoxFuture<'a, Flow> {
        ready(self.flow("should_stop")).boxed()
    }
}

impl StopsAt {
    fn flow(&self, place: &str) -> Flow {
        if self.0 == place { Flow::Stop(format!("at {place}")) } else { Flow::Continue }
    }
}

#[tokio::test]
async fn a_hook_can_end_a_run_and_the_history_is_valid() {
    for (place, messages, ran) in
        [("before_model", 1, false), ("after_model_response", 3, false), ("should_stop", 3, true)]
    {
        let model = Scripted::new([
            Turn::calls([dispatched("drill", json!({"size": 2}))]),
            Turn::text("Done"),
        ]);
        let stage = agent_with(deferred(), model, |builder| builder.hooks(StopsAt(place))).await;
        let mut chat = stage.agent.chat();
        let (_, answer) = follow(&mut chat, "Drill.").await;
        assert_eq!(answer.end, End::Stopped { reason: format!("at {place}") });
        assert_eq!(
            (chat.history().len(), !stage.log.lines().is_empty()),
            (messages, ran),
            "{place}"
        );
    }
}

/// Keeps the newest messages only.
struct Newest(usize);

impl Hooks for Newest {
    fn transform_context(&self, messages: Vec<Arc<Message>>) -> BoxFuture<'_, Vec<Arc<Message>>> {
        ready(messages[messages.len().saturating_sub(self.0)..].to_vec()).boxed()
    }
}

#[tokio::test]
async fn a_context_cut_between_a_call_and_its_result_is_mended() {
    for newest in 1..5 {
        let model = Scripted::new([
            Turn::calls([dispatched("drill", json!({"size": 2}))]),
            Turn::text("Done"),
            Turn::text("Still done"),
        ]);
        let stage = agent_with(deferred(), model, |builder| builder.hooks(Newest(newest))).await;
        let mut chat = stage.agent.chat();
        follow(&mut chat, "Drill.").await;
        follow(&mut chat, "And?").await;
        for request in stage.model.requests() {
            check_history(&request.messages);
        }
    }
}

/// Never comes back from one place.
struct Hangs(&'static str);

impl Hangs {
    async fn at(&self, place: &str) {
        if self.0 == place {
            std::future::pending().await
        }
    }
}

impl Hooks for Hangs {
    fn transform_context(&self, messages: Vec<Arc<Message>>) -> BoxFuture<'_, Vec<Arc<Message>>> {
        async move {
            self.at("transform_context").await;
            messages
        }
        .boxed()
    }

    fn before_model<'a>(&'a self, _: &'a mut Request) -> BoxFuture<'a, Flow> {
        self.at("before_model").map(|()| Flow::Continue).boxed()
    }

    fn after_model_response<'a>(&'a self, _: &'a mut Reply) -> BoxFuture<'a, Flow> {
        self.at("after_model_response").map(|()| Flow::Continue).boxed()
    }

    fn resolve_tool_call<'a>(&'a self, _: &'a Call) -> BoxFuture<'a, Option<Call>> {
        self.at("resolve_tool_call").map(|()| None).boxed()
    }

    fn before_tool_call<'a>(&'a self, _: &'a PendingCall) -> BoxFuture<'a, Verdict> {
        self.at("before_tool_call").map(|()| Verdict::Pass).boxed()
    }

    fn after_tool_call<'a>(
        &'a self,
        _: &'a PendingCall,
        result: ToolResult,
    ) -> BoxFuture<'a, ToolResult> {
        self.at("after_tool_call").map(|()| result).boxed()
    }

    fn on_tools_expanded<'a>(&'a self, _: &'a [ToolName]) -> BoxFuture<'a, ()> {
        self.at("on_tools_expanded").boxed()
    }

    fn should_stop<'a>(&'a self, _: &'a [Arc<Message>]) -> BoxFuture<'a, Flow> {
        self.at("should_stop").map(|()| Flow::Continue).boxed()
    }
}

#[tokio::test]
async fn a_run_is_cancelled_whichever_hook_it_waits_for() {
    for place in [
        "transform_context",
        "before_model",
        "after_model_response",
        "resolve_tool_call",
        "before_tool_call",
        "after_tool_call",
        "on_tools_expanded",
        "should_stop",
    ] {
        let model = Scripted::new([
            Turn::calls([dispatched("drill", json!({"size": 2}))]),
            Turn::text("Done"),
        ]);
        let stage = agent_with(deferred(), model, |builder| builder.hooks(Hangs(place))).await;
        let mut chat = stage.agent.chat();
        let token = chat.cancellation();
        let soon = async {
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            token.cancel();
        };
        let ((_, answer), ()) = futures::join!(follow(&mut chat, "Drill."), soon);
        assert_eq!(answer.end, End::Cancelled, "{place}");
    }
}

#[tokio::test]
async fn verbs_are_nobodys_business() {
    let seen = Log::default();
    let model =
        Scripted::new([Turn::call("tool_search", json!({"query": "drill"})), Turn::text("Done")]);
    let stage =
        agent_with(deferred(), model, |builder| builder.hooks(Noting("A", seen.clone()))).await;
    follow(&mut stage.agent.chat(), "Search.").await;
    let asked: Vec<String> = seen
        .lines()
        .into_iter()
        .filter(|line| ["resolve", "before ", "after "].iter().any(|word| line.contains(word)))
        .collect();
    assert!(asked.is_empty(), "{asked:?}");
}
