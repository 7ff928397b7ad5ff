//! Calls: batches, loads, order, limits, steering.

use futures::future::BoxFuture;
use serde_json::json;
use toolcrib_agent::{End, Event, Input, Message, ModelOptions, Turn};
use toolcrib_core::{GroupId, Schema, Strategy, ToolName, ToolSpec};
use toolcrib_runtime::{CallError, Invocation, Listing, ToolResult, Toolset};

use crate::support::*;

#[tokio::test]
async fn a_run_streams_text_calls_tools_and_ends_with_an_answer() {
    let stage = agent(
        deferred(),
        [
            Turn::calls([dispatched("drill", json!({"size": 4}))]).with_text("Drilling first."),
            Turn::text("The hole is there."),
        ],
    )
    .await;
    let mut chat = stage.agent.chat();
    let (events, answer) = follow(&mut chat, "A hole, please.").await;
    assert_eq!((&*answer.text, answer.turns, &answer.end), ("The hole is there.", 2, &End::Done));
    assert_eq!(answer.calls[0].name, "drill");
    assert_eq!(answer.calls[0].arguments, json!({"size": 4}));
    assert!(answer.usage.output > 0 && answer.usage.read > 0, "{:?}", answer.usage);
    let text: String = events
        .iter()
        .filter_map(|event| match event {
            Event::Text { text } => Some(text.as_str()),
            _ => None,
        })
        .collect();
    assert_eq!(text, "Drilling first.The hole is there.");
    let started = events.iter().find_map(|event| match event {
        Event::CallStarted { name, arguments, .. } => Some((name.clone(), arguments.clone())),
        _ => None,
    });
    assert_eq!(started, Some(("drill".into(), json!({"size": 4}))), "the real name is shown");
    assert_eq!(chat.history().len(), 4);
    let appended = events.iter().filter(|event| matches!(event, Event::Appended { .. })).count();
    assert_eq!(appended, 4, "a host that keeps what is appended keeps the whole history");
}

#[tokio::test]
async fn events_are_one_tagged_union() {
    let stage = agent(deferred(), [Turn::text("Yes.")]).await;
    let mut chat = stage.agent.chat();
    let (events, _) = follow(&mut chat, "Hello?").await;
    let kinds: Vec<String> = events
        .iter()
        .map(|event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(
        kinds,
        [
            "run_started",
            "appended",
            "turn_started",
            "text",
            "turn_finished",
            "appended",
            "run_finished"
        ]
    );
}

#[tokio::test]
async fn search_and_use_work_in_one_batch_in_either_order() {
    for strategy in [Strategy::Dispatch, Strategy::Inject] {
        for search_first in [true, false] {
            let search = ("tool_search", json!({"query": "drill a hole"}));
            let call = match strategy {
                Strategy::Dispatch => dispatched("drill", json!({"size": 3})),
                _ => ("drill", json!({"size": 3})),
            };
            let calls = if search_first { [search, call] } else { [call, search] };
            let turns = [Turn::calls(calls), Turn::text("Done.")];
            let stage = agent(under(strategy), turns).await;
            let mut chat = stage.agent.chat();
            let (_, answer) = follow(&mut chat, "Drill.").await;
            assert_eq!(answer.calls.len(), 1, "{strategy:?} {search_first}");
            assert!(!answer.calls[0].is_error);
            assert_eq!(stage.log.lines(), ["drill 3 begins", "drill 3 ends"]);
        }
    }
}

#[tokio::test]
async fn calls_of_a_batch_run_together_unless_a_tool_is_sequential() {
    let two = |first, second| {
        [
            Turn::calls([
                dispatched(first, json!({"size": 1})),
                dispatched(second, json!({"size": 2})),
            ]),
            Turn::text("Done."),
        ]
    };
    let stage = agent(deferred(), two("drill", "mill")).await;
    follow(&mut stage.agent.chat(), "Both.").await;
    assert_eq!(
        stage.log.lines(),
        ["drill 1 begins", "mill 2 begins", "drill 1 ends", "mill 2 ends"]
    );
    let stage = agent(deferred(), two("drill", "weld")).await;
    follow(&mut stage.agent.chat(), "Both.").await;
    assert_eq!(
        stage.log.lines(),
        ["drill 1 begins", "drill 1 ends", "weld 2 begins", "weld 2 ends"]
    );
}

#[tokio::test]
async fn a_run_ends_after_25_requests_and_after_75_while_deferring() {
    for (settings, limit) in [(deferred(), 75), (Default::default(), 25)] {
        let model = toolcrib_agent::Scripted::by(|request| {
            Turn::call("measure", json!({"name": request.messages.len().to_string()}))
        });
        let stage = agent_with(settings, model, |builder| builder).await;
        let mut chat = stage.agent.chat();
        let (_, answer) = follow(&mut chat, "Measure everything.").await;
        assert_eq!((answer.turns, &answer.end), (limit, &End::Limit { turns: limit }));
        assert_eq!(stage.model.requests().len(), limit);
    }
}

#[tokio::test]
async fn a_model_that_goes_in_circles_is_told_and_then_stopped() {
    let model = toolcrib_agent::Scripted::by(|_| Turn::call("measure", json!({"name": "bolt"})));
    let stage = agent_with(Default::default(), model, |builder| builder).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Measure the bolt.").await;
    assert_eq!(answer.end, End::Repeating { name: "measure".into() });
    assert_eq!(answer.turns, 6);
    let said: Vec<bool> = chat
        .history()
        .iter()
        .filter_map(|message| match &**message {
            Message::Tool { results } => Some(results[0].described().contains("with the same")),
            _ => None,
        })
        .collect();
    assert_eq!(said, [false, false, true, true, true, true]);
}

#[tokio::test]
async fn a_word_put_in_is_read_after_the_calls_or_keeps_the_run_going() {
    let stage = agent(
        deferred(),
        [
            Turn::calls([dispatched("drill", json!({"size": 4}))]),
            Turn::text("A hole."),
            Turn::text("And a slot."),
        ],
    )
    .await;
    let mut chat = stage.agent.chat();
    let steering = chat.steering();
    let mut events = chat.stream("Drill.");
    let mut answer = None;
    while let Some(event) = futures::StreamExt::next(&mut events).await {
        match event {
            Event::CallStarted { .. } => steering.say("Larger!"),
            Event::TurnStarted { turn: 2 } => steering.say("And then?"),
            Event::RunFinished(finished) => answer = Some(finished),
            _ => {}
        }
    }
    drop(events);
    check_history(chat.history());
    assert_eq!(answer.unwrap().text, "And a slot.");
    let requests = stage.model.requests();
    assert_eq!(*requests[1].messages.last().unwrap().clone(), Message::user("Larger!"));
    assert_eq!(*requests[2].messages.last().unwrap().clone(), Message::user("And then?"));
}

#[tokio::test]
async fn what_changes_in_the_catalog_is_told_at_the_end_of_the_context() {
    let stage = agent(deferred(), [Turn::text("Hello."), Turn::text("I see.")]).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "Hi.").await;
    stage.crib.add(Lathe).await;
    follow(&mut chat, "Anything new?").await;
    let requests = stage.model.requests();
    let told = requests[1].messages.last().unwrap().clone();
    assert!(matches!(&*told, Message::Notice { text } if text.contains("lathe")), "{told:?}");
    assert_eq!(requests[0].system, requests[1].system);
    assert_eq!(requests[0].messages[..], requests[1].messages[..requests[0].messages.len()]);
}

struct Lathe;

impl Toolset for Lathe {
    fn id(&self) -> GroupId {
        "mcp:lathe".into()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let spec = ToolSpec::new(ToolName::mcp("lathe", "turn"), Schema::empty());
        Box::pin(async { Ok(Listing::new([spec])) })
    }

    fn call(&self, _: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async { Ok(ToolResult::text("turned")) })
    }
}

#[tokio::test]
async fn a_fork_goes_its_own_way() {
    let stage = agent(
        deferred(),
        [
            Turn::call("tool_search", json!({"query": "drill"})),
            Turn::text("Found."),
            Turn::call("tool_search", json!({"query": "weld"})),
            Turn::text("In the fork."),
            Turn::text("In the parent."),
        ],
    )
    .await;
    let mut parent = stage.agent.chat();
    follow(&mut parent, "Find the drill.").await;
    let before = parent.conversation().stats().unwrap().loaded;
    let mut fork = parent.fork();
    follow(&mut fork, "Find the welder.").await;
    assert_eq!(parent.conversation().stats().unwrap().loaded, before);
    assert_eq!((parent.history().len(), fork.history().len()), (4, 8));
    follow(&mut parent, "And now?").await;
    let requests = stage.model.requests();
    let parents = &requests[4].messages;
    assert_eq!(parents.len(), 5);
    assert_eq!(parents[..4], requests[2].messages[..4], "both began alike");
}

#[tokio::test]
async fn many_equal_calls_in_one_batch_are_warned_of_before_the_run_ends() {
    let six = || Turn::calls(vec![dispatched("measure", json!({"name": "bolt"})); 6]);
    let stage = agent(deferred(), [six(), Turn::text("Enough.")]).await;
    assert_eq!(follow(&mut stage.agent.chat(), "Measure.").await.1.end, End::Done);
    let stage = agent(deferred(), [six(), six(), Turn::text("Enough.")]).await;
    let (_, answer) = follow(&mut stage.agent.chat(), "Measure.").await;
    assert_eq!(answer.end, End::Repeating { name: "measure".into() });
}

#[tokio::test]
async fn a_model_can_be_let_go_on_without_a_word() {
    let stage = agent(deferred(), [Turn::text("Once upon a"), Turn::text("time.")]).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "A story.").await;
    assert_eq!(chat.send(Input::none()).await.text, "time.");
    let sent = stage.model.requests();
    assert!(matches!(&**sent[1].messages.last().unwrap(), Message::Notice { .. }));
    assert_eq!(chat.history().len(), 4);
}

#[tokio::test]
async fn what_was_put_in_too_late_comes_before_what_is_said_next() {
    let stage = agent(deferred(), [Turn::text("One."), Turn::text("Two.")]).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "First.").await;
    chat.steering().say("By the way.");
    follow(&mut chat, "Second.").await;
    let texts: Vec<String> = chat.history().iter().map(|message| format!("{message:?}")).collect();
    assert!(texts[2].contains("By the way.") && texts[3].contains("Second."), "{texts:?}");
}

#[tokio::test]
async fn a_conversation_is_kept_and_brought_back() {
    let turns = [
        Turn::call("tool_search", json!({"query": "drill"})),
        Turn::text("Found."),
        Turn::calls([dispatched("drill", json!({"size": 1}))]),
        Turn::text("Drilled."),
    ];
    let stage = agent(deferred(), turns).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "Find the drill.").await;
    let saved = serde_json::to_string(&chat.conversation().snapshot()).unwrap();
    let history = serde_json::to_string(chat.history()).unwrap();
    drop(chat);

    let snapshot = serde_json::from_str(&saved).unwrap();
    let saved = toolcrib_core::Saved::Snapshot(Box::new(snapshot));
    let history = serde_json::from_str(&history).unwrap();
    let (mut chat, report) = stage.agent.resume(saved, Strategy::Dispatch, history).await.unwrap();
    assert!(report.restored.iter().any(|tool| &**tool == "drill"), "{report:?}");
    follow(&mut chat, "Drill.").await;
    let sent = stage.model.requests();
    assert_eq!((&sent[0].system, sent[0].tools.len()), (&sent[2].system, sent[2].tools.len()));
    assert_eq!(sent[1].cache_key, sent[2].cache_key);
    assert_eq!(sent[1].messages[..], sent[2].messages[..sent[1].messages.len()]);
}

#[tokio::test]
async fn a_history_can_be_shortened() {
    let stage = agent(deferred(), [Turn::text("One."), Turn::text("Two.")]).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "First.").await;
    chat.set_history(Vec::new());
    follow(&mut chat, "Second.").await;
    assert_eq!(stage.model.requests()[1].messages.len(), 1);
}

#[tokio::test]
async fn a_fork_that_may_load_nothing_can_call_what_is_loaded() {
    let turns = [
        Turn::calls([dispatched("drill", json!({"size": 1}))]),
        Turn::text("Drilled."),
        Turn::calls([
            dispatched("drill", json!({"size": 2})),
            dispatched("mill", json!({"size": 2})),
        ]),
        Turn::text("Half of it."),
    ];
    let stage = agent(deferred(), turns).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "Drill.").await;
    let (_, answer) = follow(&mut chat.fork_without_loading(), "Drill and mill.").await;
    let errors: Vec<bool> = answer.calls.iter().map(|call| call.is_error).collect();
    assert_eq!(errors, [false, true]);
}

#[tokio::test]
async fn what_a_tool_says_while_it_works_is_passed_on() {
    struct Slow;

    impl Toolset for Slow {
        fn id(&self) -> GroupId {
            "mcp:slow".into()
        }

        fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
            let spec = ToolSpec::new(ToolName::mcp("slow", "work"), Schema::empty());
            Box::pin(async { Ok(Listing::new([spec])) })
        }

        fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
            Box::pin(async move {
                if let Some(listener) = invocation.caller.listener() {
                    let half = serde_json::value::to_raw_value(&json!({"progress": 0.5}));
                    listener.hear("notifications/progress", &half.expect("it is JSON"));
                }
                Ok(ToolResult::text("done"))
            })
        }
    }

    let turns = [Turn::calls([dispatched("slow.work", json!({}))]), Turn::text("Done.")];
    let stage = agent(deferred(), turns).await;
    stage.crib.add(Slow).await;
    let (events, answer) = follow(&mut stage.agent.chat(), "Work.").await;
    assert_eq!(answer.calls[0].name, "mcp__slow__work");
    let heard = events.iter().find_map(|event| match event {
        Event::Progress { progress, .. } => Some(progress.clone()),
        _ => None,
    });
    assert_eq!(heard, Some(json!({"progress": 0.5})));
    let loaded = events.iter().find_map(|event| match event {
        Event::Loaded { tools } => Some(tools.clone()),
        _ => None,
    });
    assert_eq!(loaded, Some(vec!["mcp__slow__work".to_owned()]));
}

#[tokio::test]
async fn what_the_table_knows_of_a_model_is_used_unless_the_options_say_otherwise() {
    let models = toolcrib_tokens::Models::embedded();
    let (claude, llama) = (models.find("claude-opus-5").unwrap(), models.find("local").unwrap());
    for (model, asked, output, sees) in [
        (claude, None, claude.output, true),
        (claude, Some(5), Some(5), true),
        (llama, None, None, false),
    ] {
        let scripted = toolcrib_agent::Scripted::new([Turn::text("Yes.")]);
        let options = ModelOptions { max_output: asked, ..ModelOptions::default() };
        let stage =
            agent_with(deferred(), scripted, |builder| builder.known_as(model).options(options))
                .await;
        follow(&mut stage.agent.chat(), "Hello?").await;
        let sent = &stage.model.requests()[0];
        assert_eq!((sent.options.max_output, sent.sees_images), (output, sees));
    }
}
