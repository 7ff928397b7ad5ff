//! What goes wrong, and what becomes of it. Whatever it is, the history stays valid (`follow`
//! checks that).

use std::time::Duration;

use serde_json::json;
use toolcrib_agent::{
    Agent, End, Event, Message, ProviderError, RunLimits, Said, Scripted, StopReason, ToolCall,
    Turn,
};

use crate::support::*;

fn quick(stage: AgentLimits) -> RunLimits {
    let mut limits = RunLimits::default();
    limits.wait = Duration::from_millis(1);
    if let AgentLimits::Call(call) = stage {
        limits.call = call;
    }
    limits
}

enum AgentLimits {
    Wait,
    Call(Duration),
}

async fn quick_agent(turns: Vec<Turn>) -> Stage {
    agent_with(deferred(), Scripted::new(turns), |builder| builder.limits(quick(AgentLimits::Wait)))
        .await
}

#[tokio::test]
async fn an_answer_that_breaks_off_anywhere_is_asked_for_again_and_leaves_no_trace() {
    let whole = || {
        Turn::calls([
            ("tool_search", json!({"query": "drill"})),
            dispatched("drill", json!({"size": 1})),
        ])
        .with_text("First I look for the drill, then I use it.")
        .with_thinking("A drill is needed for that.")
    };
    for pieces in 0..40 {
        let turns = vec![whole().cut_after(pieces), whole(), Turn::text("Done.")];
        let stage = quick_agent(turns).await;
        let mut chat = stage.agent.chat();
        let (events, answer) = follow(&mut chat, "Drill.").await;
        assert_eq!((&*answer.text, answer.calls.len()), ("Done.", 1), "cut after {pieces}");
        assert_eq!(stage.log.lines().len(), 2, "it ran once");
        let retried = events.iter().filter(|event| matches!(event, Event::Retrying { .. })).count();
        assert_eq!((retried, chat.history().len()), (1, 4));
        let requests = stage.model.requests();
        assert_eq!(requests[0].messages, requests[1].messages);
    }
}

#[tokio::test]
async fn what_passes_is_tried_again_and_what_does_not_is_not() {
    let failing = |error: ProviderError| vec![Turn::error(error), Turn::text("At last.")];
    let busy = |retry_after| ProviderError::Busy { message: "busy".into(), retry_after };
    for passing in [
        busy(None),
        busy(Some(Duration::from_millis(1))),
        ProviderError::Failed("500".into()),
        ProviderError::Unreachable("no connection".into()),
        ProviderError::TimedOut(Duration::from_secs(1)),
        ProviderError::Broken("not JSON".into()),
    ] {
        let stage = quick_agent(failing(passing.clone())).await;
        let (_, answer) = follow(&mut stage.agent.chat(), "Hello?").await;
        assert_eq!((&*answer.text, answer.turns), ("At last.", 1), "{passing:?}");
    }
    let stays = [
        (
            ProviderError::ContextTooLong("too long".into()),
            End::ContextFull { reason: "too long".into() },
        ),
        (ProviderError::Denied("no key".into()), End::Failed { reason: "no key".into() }),
        (ProviderError::Rejected("bad".into()), End::Failed { reason: "bad".into() }),
    ];
    for (error, end) in stays {
        let stage = quick_agent(failing(error)).await;
        let mut chat = stage.agent.chat();
        let (_, answer) = follow(&mut chat, "Hello?").await;
        assert_eq!(answer.end, end);
        let (_, answer) = follow(&mut chat, "Again?").await;
        assert_eq!(answer.text, "At last.");
    }
}

#[tokio::test]
async fn after_four_more_tries_it_is_given_up() {
    let turns = vec![Turn::error(ProviderError::Failed("500".into())); 9];
    let stage = quick_agent(turns).await;
    let (_, answer) = follow(&mut stage.agent.chat(), "Hello?").await;
    assert_eq!(answer.end, End::Failed { reason: "500".into() });
    assert_eq!(stage.model.requests().len(), 5);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_asks_for_time_gets_it_up_to_a_limit() {
    for (asked, given) in [(7, 7), (900, 60)] {
        let error = ProviderError::Busy {
            message: "wait".into(),
            retry_after: Some(Duration::from_secs(asked)),
        };
        let stage = agent(deferred(), [Turn::error(error), Turn::text("Yes?")]).await;
        let started = tokio::time::Instant::now();
        follow(&mut stage.agent.chat(), "Hello?").await;
        assert_eq!(started.elapsed().as_secs(), given);
    }
}

#[tokio::test]
async fn a_refusal_ends_the_run_and_is_not_kept() {
    let refused = Turn::text("I").with_stop(StopReason::Refusal(Some("not that".into())));
    let stage = quick_agent(vec![refused, Turn::text("Gladly.")]).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Do harm.").await;
    assert_eq!(answer.end, End::Refused { reason: Some("not that".into()) });
    assert_eq!(chat.history().len(), 1);
    assert_eq!(follow(&mut chat, "Do good.").await.1.text, "Gladly.");
}

fn raw(id: &str, name: &str, arguments: &str) -> Said {
    Said::Call(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
}

#[tokio::test]
async fn arguments_that_are_no_json_come_back_with_the_schema() {
    for arguments in [r#"{"size": "#, "size=4", "\u{0}", "[4]", "nonsense {}"] {
        let turns = vec![Turn::said([raw("1", "drill", arguments)]), Turn::text("Sorry.")];
        let stage = quick_agent(turns).await;
        let mut chat = stage.agent.chat();
        let (_, answer) = follow(&mut chat, "Drill.").await;
        assert_eq!(answer.end, End::Done);
        assert!(answer.calls[0].is_error && stage.log.lines().is_empty());
        let told = &last_results(chat.history())[0];
        assert!(told.contains("In millimetres"), "{arguments}: {told}");
    }
}

#[tokio::test]
async fn arguments_may_be_blank() {
    let turns =
        vec![Turn::said([raw("1", "measure", ""), raw("2", "measure", " ")]), Turn::text("Sorry.")];
    let stage = quick_agent(turns).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "Measure.").await;
    assert!(last_results(chat.history())[0].contains("name"), "{:?}", last_results(chat.history()));
}

#[tokio::test]
async fn an_unknown_tool_is_answered_with_what_there_is() {
    let turns = vec![Turn::call("dril", json!({"size": 1})), Turn::text("Sorry.")];
    let stage = quick_agent(turns).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Drill.").await;
    assert!(answer.calls[0].is_error);
    assert!(last_results(chat.history())[0].contains("drill"));
}

#[tokio::test]
async fn two_calls_with_one_id_get_two() {
    let turns = vec![
        Turn::said([
            raw("x", "measure", r#"{"name":"a"}"#),
            raw("x", "measure", r#"{"name":"b"}"#),
        ]),
        Turn::said([raw("x", "measure", r#"{"name":"c"}"#), raw("", "measure", r#"{"name":"d"}"#)]),
        Turn::text("Measured."),
    ];
    let stage = quick_agent(turns).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Measure.").await;
    assert_eq!(answer.calls.len(), 4);
    assert_eq!(last_results(chat.history()), ["c: 7 mm", "d: 7 mm"]);
}

#[tokio::test]
async fn an_empty_answer_is_asked_for_again_once() {
    let stage = quick_agent(vec![Turn::said([]), Turn::text("Here.")]).await;
    assert_eq!(follow(&mut stage.agent.chat(), "Hello?").await.1.text, "Here.");
    let stage = quick_agent(vec![Turn::said([]), Turn::text(" \n"), Turn::text("Here.")]).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Hello?").await;
    assert_eq!((answer.end, chat.history().len()), (End::Empty, 1));
    assert_eq!(follow(&mut chat, "Hello?").await.1.text, "Here.");
}

#[tokio::test]
async fn an_answer_cut_at_its_longest_is_kept_and_half_a_call_is_not_run() {
    let cut = Turn::text("Once upon a").with_stop(StopReason::Length);
    let stage = quick_agent(vec![cut]).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "A story.").await;
    assert_eq!((&*answer.text, answer.end), ("Once upon a", End::Length));

    let calls =
        Turn::said([raw("1", "drill", r#"{"size": 1}"#), raw("2", "drill", r#"{"size": 2, "wh"#)]);
    let stage = quick_agent(vec![calls.with_stop(StopReason::Length), Turn::text("Again.")]).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Drill.").await;
    assert_eq!(answer.end, End::Done);
    assert_eq!(stage.log.lines(), ["drill 1 begins", "drill 1 ends"]);
    assert!(last_results(chat.history())[1].contains("in the middle of this call"));
}

#[tokio::test]
async fn a_call_cut_before_its_arguments_began_is_not_run_with_none() {
    for stop in [StopReason::Length, StopReason::ContextFull, StopReason::Other("odd".into())] {
        for written in ["", "{}", "{"] {
            let calls = Turn::said([raw("1", "explode", "{}"), raw("2", "explode", written)]);
            let turns = vec![calls.with_stop(stop.clone()), Turn::text("Again.")];
            let stage = quick_agent(turns).await;
            let mut chat = stage.agent.chat();
            follow(&mut chat, "Explode.").await;
            let results = last_results(chat.history());
            assert!(results[0].contains("broke"), "the first was whole: {results:?}");
            assert!(results[1].contains("in the middle of this call"), "{results:?}");
        }
    }
}

#[tokio::test]
async fn a_pause_is_gone_on_from() {
    let turns = vec![Turn::text("Wait.").with_stop(StopReason::Paused), Turn::text("Done.")];
    let stage = quick_agent(turns).await;
    let (_, answer) = follow(&mut stage.agent.chat(), "Hello?").await;
    assert_eq!((&*answer.text, answer.turns), ("Done.", 2));
}

#[tokio::test]
async fn a_tool_that_panics_never_returns_or_floods_costs_its_own_call_only() {
    let calls = [
        dispatched("explode", json!({})),
        dispatched("sleep", json!({})),
        dispatched("flood", json!({})),
        dispatched("measure", json!({"name": "bolt"})),
    ];
    let model = Scripted::new([Turn::calls(calls), Turn::text("Well.")]);
    let stage = agent_with(deferred(), model, |builder| {
        builder.limits(quick(AgentLimits::Call(Duration::from_millis(300))))
    })
    .await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Everything.").await;
    assert_eq!(answer.end, End::Done);
    let errors: Vec<bool> = answer.calls.iter().map(|call| call.is_error).collect();
    assert_eq!(errors, [true, true, false, false]);
    let results = last_results(chat.history());
    assert!(results[0].contains("broke"), "{}", results[0]);
    assert!(results[1].contains("300ms"), "{}", results[1]);
    assert!(results[2].len() <= 100_000 && results[2].contains("left out"));
    assert_eq!(results[3], "bolt: 7 mm");
}

#[tokio::test]
async fn a_host_that_ends_the_run_gets_its_way() {
    let calls = [dispatched("stop", json!({})), dispatched("measure", json!({"name": "bolt"}))];
    let stage = quick_agent(vec![Turn::calls(calls)]).await;
    let mut chat = stage.agent.chat();
    let (_, answer) = follow(&mut chat, "Stop.").await;
    assert_eq!(answer.end, End::Stopped { reason: "the shop is closed".into() });
    assert_eq!(last_results(chat.history()), ["the shop is closed", "bolt: 7 mm"]);
}

#[tokio::test]
async fn after_that_nothing_more_of_a_sequential_batch_runs() {
    let calls = [dispatched("stop", json!({})), dispatched("weld", json!({"size": 1}))];
    let stage = quick_agent(vec![Turn::calls(calls)]).await;
    let mut chat = stage.agent.chat();
    follow(&mut chat, "Stop, then weld.").await;
    assert!(stage.log.lines().is_empty());
    assert_eq!(last_results(chat.history())[1], "Nothing was run: the shop is closed");
}

#[tokio::test]
async fn a_ui_is_told_what_it_must_take_back() {
    let kept = |events: &[Event]| -> Vec<bool> {
        let kept = events.iter().filter_map(|event| match event {
            Event::TurnFinished { kept, .. } => Some(*kept),
            _ => None,
        });
        kept.collect()
    };
    let refused = Turn::text("I").with_stop(StopReason::Refusal(None));
    let failed = Turn::text("a few words are said").cut_after(1);
    let mut turns = vec![refused, Turn::text("Yes.")];
    turns.extend(vec![failed; 5]);
    let stage = quick_agent(turns).await;
    let mut chat = stage.agent.chat();
    assert_eq!(kept(&follow(&mut chat, "1").await.0), [false]);
    assert_eq!(kept(&follow(&mut chat, "2").await.0), [true]);
    assert_eq!(kept(&follow(&mut chat, "3").await.0), [false]);
}

#[tokio::test]
async fn a_configuration_that_can_offer_nothing_is_said_to_be_wrong() {
    let mut settings = deferred();
    settings.context_window = 10;
    let (crib, _) = shop(settings).await;
    let rules = toolcrib_core::PolicyRules {
        deny_tools: vec!["tool_search".into(), "load_tools".into(), "call_tool".into()],
        ..Default::default()
    };
    let policy = toolcrib_core::Policy::new(rules).unwrap();
    let model = Scripted::new([Turn::text("Hm.")]);
    let agent = Agent::builder(model, "scripted", crib).policy(policy).build();
    let (_, answer) = follow(&mut agent.chat(), "Hello?").await;
    assert!(matches!(&answer.end, End::Failed { reason } if reason.contains("tool_search")));
}

#[tokio::test]
async fn a_history_from_elsewhere_is_mended_before_it_is_sent() {
    let stage = quick_agent(vec![Turn::text("I see.")]).await;
    let said = toolcrib_agent::Assistant { content: vec![raw("9", "gone_tool", "{}")] };
    let mut chat = stage.agent.chat();
    chat.push(Message::user("Before."));
    chat.push(Message::Assistant(said));
    follow(&mut chat, "After.").await;
    assert_eq!(stage.model.requests()[0].messages.len(), 4);
}
