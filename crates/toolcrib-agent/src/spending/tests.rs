use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib_core::{Definition, Revealed, ToolChange};
use toolcrib_tokens::{Block, Cost, Model, Models, Request as Prompt, Tokenizer, simulate};

use super::*;
use crate::message::{Assistant, CallResult, Message, Part, Said, ToolCall};
use crate::provider::{Native, Reply, Request};

const SECTION: &str = "Many tools wait. Search for them with tool_search.";

fn begun() -> Meter {
    Meter::new(Some(house()), Spent::default())
}

/// A dollar for a million tokens in, ten for a million out.
fn house() -> Model {
    let mut models = Models::default();
    let text = r#"
        [[model]]
        name = "house"
        vocabulary = "o200k_base"
        price = { input = 1.0, output = 10.0, long = { above = 100_000, input = 2.0, output = 20.0 } }
        cache = { write = 1.25, read = 0.1, minimum = 1000 }
    "#;
    models.extend_from_toml(text).unwrap();
    models.find("house").unwrap().clone()
}

fn count(text: &str) -> u64 {
    Tokenizer::O200K.count(text).tokens
}

fn tool(name: &str) -> Definition {
    let schema = json!({"type": "object", "properties": {"size": {"type": "integer"}}});
    let tool = json!({"name": name, "description": "Does it.", "input_schema": schema});
    serde_json::from_str(&tool.to_string()).unwrap()
}

fn call(id: &str, name: &str, arguments: &Value) -> Said {
    let (id, name, arguments) = (id.to_owned(), name.to_owned(), arguments.to_string());
    Said::Call(ToolCall { id, name, arguments })
}

fn said(content: Vec<Said>) -> Arc<Message> {
    Arc::new(Message::Assistant(Assistant { content }))
}

fn results(results: &[(&str, &str, &str)]) -> Arc<Message> {
    let result = |&(id, name, text): &(&str, &str, &str)| CallResult {
        call_id: id.into(),
        name: name.into(),
        content: vec![Part::text(text)],
        ..CallResult::default()
    };
    Arc::new(Message::Tool { results: results.iter().map(result).collect() })
}

fn user(text: &str) -> Arc<Message> {
    Arc::new(Message::user(text))
}

fn request(messages: &[Arc<Message>]) -> Request {
    Request {
        system: format!("You run a shop.\n\n{SECTION}").into(),
        tools: vec![tool("tool_search"), tool("call_tool")],
        messages: messages.to_vec(),
        ..Request::new("house", [])
    }
}

fn reply(content: Vec<Said>, usage: Usage) -> Reply {
    Reply { content, usage, ..Reply::default() }
}

fn deferred(full_tools: u64) -> Deferred {
    Deferred { section: SECTION.into(), full_tools }
}

fn usage(read: u64, written: u64, uncached: u64, output: u64) -> Usage {
    Usage { read, written, uncached, output }
}

/// A turn as the loop feeds it, without attempts that failed.
fn turn(meter: &mut Meter, messages: &[Arc<Message>], full_tools: u64, reply: &Reply) -> TurnCost {
    meter.turn(&request(messages), Some(&deferred(full_tools)), reply.usage, reply)
}

fn dollars(cost: Cost) -> String {
    format!("{:.9}", cost.dollars.unwrap())
}

/// Search, call through the envelope, answer.
struct Shop {
    query: Value,
    envelope: Value,
    rows: &'static str,
    messages: Vec<Arc<Message>>,
    replies: [Reply; 3],
}

fn shop() -> Shop {
    let query = json!({"query": "drill a hole"});
    let envelope = json!({"tool_name": "drill", "arguments": {"size": 7}});
    let rows = r#"{"total_matches":1,"tools":[{"name":"drill","description":"Drills.","parameters":{"type":"object"}}],"not_found":[],"hint":"Call them."}"#;
    let search = vec![Said::Text { text: "Let me look.".into() }, call("1", "tool_search", &query)];
    let drill = vec![call("2", "call_tool", &envelope)];
    let done = vec![Said::Text { text: "Done.".into() }];
    let messages = vec![
        user("Drill a hole."),
        said(search.clone()),
        results(&[("1", "tool_search", rows)]),
        said(drill.clone()),
        results(&[("2", "call_tool", "drilled")]),
    ];
    let replies = [
        reply(search, usage(0, 2_000, 0, 30)),
        reply(drill, usage(2_000, 500, 0, 40)),
        reply(done, usage(2_500, 100, 0, 20)),
    ];
    Shop { query, envelope, rows, messages, replies }
}

#[test]
fn a_conversation_of_three_turns_is_worked_out_as_by_hand() {
    let Shop { query, envelope, rows, messages, replies } = shop();
    let mut meter = begun();
    let turns: Vec<TurnCost> = [1, 3, 5]
        .iter()
        .zip(&replies)
        .map(|(&length, reply)| turn(&mut meter, &messages[..length], 10_000, reply))
        .collect();

    // As reported, at $1 and $10: written 1.25, read 0.1.
    assert_eq!(dollars(turns[0].cost), "0.002800000");
    assert_eq!(dollars(turns[1].cost), "0.001225000");
    assert_eq!(dollars(turns[2].cost), "0.000575000");

    let (tools, section) = (request(&[]).tools, count(SECTION));
    let sent: u64 = tools.iter().map(|tool| count(tool.neutral().get())).sum();
    let round = count("Let me look.") + count(&format!("tool_search{query}")) + count(rows);
    let wrapping = count(&format!("call_tool{envelope}")) - count(r#"drill{"size":7}"#);
    assert!(wrapping > 0);
    let second = 2_500 - sent - section - round + 10_000;
    let third = 2_600 - sent - section - round - wrapping + 10_000;
    let full = [usage(0, second, 0, 40 - wrapping), usage(second, third - second, 0, 20)];

    assert_eq!(turns[0].full, Some(Cost::ZERO));
    assert_eq!(turns[1].full, Some(full[0].cost(&house())));
    assert_eq!(turns[2].full, Some(full[1].cost(&house())));
    let spent = meter.spent();
    assert_eq!((spent.turns, spent.full_turns, spent.compared, spent.unreported), (3, 2, 3, 0));
    assert_eq!(spent.usage, usage(4_500, 2_600, 0, 90));
    assert_eq!(spent.full_usage, full[0] + full[1]);
    assert_eq!(dollars(spent.cost), "0.004600000");
    assert_eq!(spent.full, full[0].cost(&house()) + full[1].cost(&house()));
    let saving = 1.0 - spent.cost.dollars.unwrap() / spent.full.dollars.unwrap();
    assert!((spent.saving().unwrap() - saving).abs() < 1e-12 && saving > 0.5);
}

#[test]
fn what_full_would_have_read_agrees_with_the_simulation_of_whole_prompts() {
    let Shop { messages, replies, .. } = shop();
    let mut meter = begun();
    turn(&mut meter, &messages[..3], 10_000, &replies[1]);
    let first = meter.spent().full_usage;
    turn(&mut meter, &messages, 10_000, &replies[2]);
    let both = meter.spent().full_usage;

    let block = |key, tokens| Block { key, tokens };
    let (one, two) = (first.prompt(), both.prompt() - first.prompt());
    let prompts = [
        Prompt { blocks: vec![block(0, 10_000), block(1, one - 10_000)], output: first.output },
        Prompt {
            blocks: vec![block(0, 10_000), block(1, one - 10_000), block(2, two - one)],
            output: 20,
        },
    ];
    assert_eq!(both, simulate(&house().cache, &prompts).into_iter().sum());
}

#[test]
fn a_search_beside_a_real_call_is_only_left_out_of_the_answer() {
    let query = json!({"query": "mill"});
    let both = vec![call("1", "tool_search", &query), call("2", "drill", &json!({"size": 7}))];
    let mut meter = begun();
    turn(&mut meter, &[user("Go.")], 10_000, &reply(both, usage(0, 2_000, 0, 100)));
    let spent = meter.spent();
    assert_eq!(
        (spent.full_turns, spent.full_usage.output),
        (1, { 100 - count(&format!("tool_search{query}")) })
    );
}

#[test]
fn tools_given_in_a_providers_own_form_or_by_the_host_are_in_full_mode_s_array() {
    let revealed = Revealed { group: "mcp:shop".into(), tool: tool("drill") };
    let change = ToolChange { added: vec![revealed.clone()], removed: Vec::new() };
    let line = revealed.tool.neutral().get().to_owned();
    let mut result =
        CallResult { call_id: "1".into(), name: "tool_search".into(), ..<_>::default() };
    result.revealed.push(revealed);
    let messages = [
        user("Go."),
        said(vec![call("1", "tool_search", &json!({}))]),
        Arc::new(Message::Tool { results: vec![result] }),
        Arc::new(Message::Tools(change)),
        Arc::new(Message::notice(format!("Now loaded:\n{line}"))),
        Arc::new(Message::notice("The shop closes at six.")),
    ];
    let mut request = request(&messages);
    request.native = Some(Native { deferred: vec![tool("drill")], ..Native::default() });
    let done = reply(vec![Said::Text { text: "Done.".into() }], usage(0, 3_000, 0, 5));
    let mut meter = begun();
    meter.turn(&request, Some(&deferred(10_000)), done.usage, &done);

    let sent: u64 = request.tools.iter().map(|tool| count(tool.neutral().get())).sum();
    let brought = count(&line) + 2 * count(&format!("Now loaded:\n{line}"));
    let gone = sent + count(SECTION) + count("tool_search{}") + brought;
    assert_eq!(meter.spent().full_usage, usage(0, 13_000 - gone, 0, 5));
}

#[test]
fn a_conversation_that_defers_nothing_costs_what_it_costs() {
    let (mut meter, messages) = (begun(), [user("Go.")]);
    let searched = reply(vec![call("1", "tool_search", &json!({}))], usage(10, 2_000, 3, 30));
    let cost = meter.turn(&request(&messages), None, searched.usage, &searched);
    assert_eq!(cost.full, Some(cost.cost));
    assert_eq!((meter.spent().full_usage, meter.spent().saving()), (searched.usage, Some(0.0)));
}

#[test]
fn attempts_that_failed_are_paid_for_in_both_and_priced_apart() {
    let mut meter = begun();
    let done = reply(vec![Said::Text { text: "Done.".into() }], usage(0, 0, 60_000, 10));
    let all = usage(0, 0, 120_000, 20);
    let cost = meter.turn(&request(&[user("Go.")]), None, all, &done);
    // Together they would be a long prompt, at twice the price.
    assert_eq!(dollars(cost.cost), "0.120200000");
    assert_eq!((cost.usage, cost.full), (all, Some(cost.cost)));

    let failed = meter.failed(usage(0, 0, 1_000, 0));
    assert_eq!((dollars(failed.cost), failed.full), ("0.001000000".to_owned(), None));
    let spent = meter.spent();
    assert_eq!((spent.turns, spent.full_turns, spent.compared), (2, 2, 1));
    assert_eq!((spent.full_usage, spent.full), (spent.usage, spent.cost));
}

#[test]
fn a_history_that_was_cut_reads_the_tools_and_the_system_prompt() {
    let (messages, done) = ([user("One."), user("Two."), user("Three.")], |tokens| {
        reply(vec![Said::Text { text: "Done.".into() }], usage(0, tokens, 0, 5))
    });
    let mut meter = begun();
    turn(&mut meter, &messages, 10_000, &done(5_000));
    let before = meter.spent().full_usage;
    // A summary in place of the first two; it is longer, so that length tells nothing.
    let cut = [user("A summary of what was said."), messages[2].clone()];
    turn(&mut meter, &cut, 10_000, &done(6_000));
    let system = count(&request(&[]).system) - count(SECTION);
    assert_eq!(meter.spent().full_usage.read - before.read, 10_000 + system);
}

#[test]
fn other_tools_or_another_model_begin_the_prompt_anew() {
    let messages = [user("Go.")];
    let done = reply(vec![Said::Text { text: "Done.".into() }], usage(0, 5_000, 0, 5));
    let mut meter = begun();
    turn(&mut meter, &messages, 10_000, &done);
    turn(&mut meter, &messages, 10_000, &done);
    let read = meter.spent().full_usage.read;
    assert!(read > 10_000);
    turn(&mut meter, &messages, 11_000, &done);
    assert_eq!(meter.spent().full_usage.read, read);

    let other = Model { name: "other".into(), ..house() };
    let mut moved = Meter::new(Some(other), meter.spent().clone());
    turn(&mut moved, &messages, 11_000, &done);
    assert_eq!(moved.spent().full_usage.read, read);
}

#[test]
fn a_conversation_that_was_kept_goes_on_as_if_it_had_not_been_left() {
    let Shop { messages, replies, .. } = shop();
    let (mut whole, mut first) = (begun(), begun());
    for meter in [&mut whole, &mut first] {
        turn(meter, &messages[..1], 10_000, &replies[0]);
        turn(meter, &messages[..3], 10_000, &replies[1]);
    }
    let kept = serde_json::to_string(first.spent()).unwrap();
    assert!(kept.len() < 700, "{kept}");
    let mut second = Meter::new(Some(house()), serde_json::from_str(&kept).unwrap());
    // The history comes back as other messages of the same content.
    let read: Vec<Message> =
        serde_json::from_str(&serde_json::to_string(&messages).unwrap()).unwrap();
    let read: Vec<Arc<Message>> = read.into_iter().map(Arc::new).collect();
    turn(&mut whole, &messages, 10_000, &replies[2]);
    turn(&mut second, &read, 10_000, &replies[2]);
    assert_eq!(second.spent(), whole.spent());
}

#[test]
fn of_an_unknown_model_tokens_are_added_up_and_no_more() {
    let Shop { messages, replies, .. } = shop();
    let mut meter = Meter::new(None, Spent::default());
    let cost = turn(&mut meter, &messages[..1], 10_000, &replies[0]);
    assert_eq!(cost.cost, Cost { input_equivalents: 2_000.0, dollars: None });
    assert_eq!(cost.full, None);
    turn(&mut meter, &messages[..3], 10_000, &replies[1]);
    let spent = meter.spent();
    assert_eq!((spent.full, spent.saving(), spent.is_priced()), (spent.cost, None, false));
    assert_eq!(
        spent.to_string(),
        "2 turns: 4,500 in (44 % read from cache), 70 out, at a price that is not known"
    );
}

#[test]
fn a_provider_that_reports_nothing_is_said_to() {
    let mut meter = begun();
    let silent = reply(vec![Said::Text { text: "Done.".into() }], Usage::default());
    turn(&mut meter, &[user("Go.")], 10_000, &silent);
    let spent = meter.spent();
    assert_eq!((spent.unreported, spent.saving(), spent.full), (1, None, Cost::ZERO));
    assert_eq!(spent.to_string(), "1 turn, of which the provider reports no tokens");
}

#[test]
fn a_sum_is_told_in_one_line() {
    let mut spent = Spent {
        turns: 12,
        usage: usage(43_872, 4_000, 338, 3_120),
        cost: Cost { input_equivalents: 9_726.1, dollars: Some(0.04123) },
        full: Cost { input_equivalents: 70_400.4, dollars: Some(0.1933) },
        compared: 12,
        ..Spent::default()
    };
    assert_eq!(
        spent.to_string(),
        "12 turns: 48,210 in (91 % read from cache), 3,120 out, $0.0412; sending every schema \
         would have cost ~$0.1933"
    );
    (spent.cost.dollars, spent.full.dollars, spent.unreported) = (None, None, 1);
    assert_eq!(
        spent.to_string(),
        "12 turns: 48,210 in (91 % read from cache), 3,120 out, at a price that is not known; 1 \
         turn reported no tokens; sending every schema would have cost ~70,400 input-token \
         equivalents, where this cost 9,726"
    );
    assert_eq!(spent.saving().map(|share| (share * 100.0) as i64), Some(86));
}
