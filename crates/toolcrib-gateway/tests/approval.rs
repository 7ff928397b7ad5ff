//! Rules that have a person asked, what the audit log has, and verbs for each effect.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::{Value, json};
use support::{Client, crib, modern};
use toolcrib_core::{Annotations, GroupId, Policy, PolicyRules, Rule, Schema, ToolName, ToolSpec};
use toolcrib_gateway::{Endpoint, Gateway, Options};
use toolcrib_runtime::{
    AuditEvent, AuditLog, CallError, Invocation, Listing, ToolResult, Toolset, Verdict,
};

/// A server with a tool of each effect, and one that is held back.
struct Disk;

impl Toolset for Disk {
    fn id(&self) -> GroupId {
        GroupId::server("disk")
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let spec = |own: &str, read_only, destructive| {
            let says = Annotations { read_only, destructive, ..Annotations::default() };
            ToolSpec::new(ToolName::mcp("disk", own), Schema::empty()).with_annotations(says)
        };
        let mut listing = Listing::new([
            spec("look", Some(true), None),
            spec("mark", None, Some(false)),
            spec("wipe", None, Some(true)),
        ]);
        listing.held.push(ToolName::mcp("disk", "burn"));
        Box::pin(async { Ok(listing) })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async move { Ok(ToolResult::text(format!("ran {}", invocation.tool))) })
    }
}

/// An audit log in memory, which may be full.
#[derive(Debug, Default)]
struct Log {
    events: Mutex<Vec<AuditEvent>>,
    is_full: bool,
}

impl AuditLog for Log {
    fn digest(&self, arguments: &Value) -> String {
        arguments.to_string()
    }

    fn begin<'a>(&'a self, _: &'a AuditEvent) -> BoxFuture<'a, Result<(), String>> {
        let begun = if self.is_full { Err("no room".to_owned()) } else { Ok(()) };
        Box::pin(async { begun })
    }

    fn record(&self, event: AuditEvent) {
        self.events.lock().unwrap().push(event);
    }
}

impl Log {
    /// Tool, decision and whether it ended well, in order; then nothing is left.
    fn take(&self) -> Vec<(String, Verdict, Option<bool>)> {
        let mut events = self.events.lock().unwrap();
        let told = |event: AuditEvent| {
            (event.tool.to_string(), event.decision, event.ending.map(|it| !it.is_error))
        };
        events.drain(..).map(told).collect()
    }
}

async fn gateway(rules: &[Value], log: &Arc<Log>) -> Gateway {
    gateway_with(rules, log, |_| ()).await
}

async fn gateway_with(
    rules: &[Value],
    log: &Arc<Log>,
    change: impl FnOnce(&mut Options),
) -> Gateway {
    let rule = |json: &Value| serde_json::from_value::<Rule>(json.clone()).unwrap();
    let rules = rules.iter().map(rule).collect();
    let mut options = Options::default();
    options.policy = Policy::new(PolicyRules { rules, ..PolicyRules::default() }).unwrap();
    options.audit = Some(log.clone());
    change(&mut options);
    let crib = crib().await;
    crib.add(Disk).await;
    Gateway::new(crib, options).unwrap()
}

async fn introduced(gateway: &Gateway, endpoint: Endpoint, capabilities: Value) -> Client {
    let mut client = Client::connect(gateway, endpoint);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities});
    client.request("initialize", params).await;
    client
}

fn response(id: &Value, result: Value) -> String {
    json!({"jsonrpc": "2.0", "id": id, "result": result}).to_string()
}

fn chosen(decision: &str) -> Value {
    json!({"action": "accept", "content": {"decision": decision}})
}

fn text(answer: &Value) -> &str {
    answer["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer}"))
}

/// A call of the tool as it is made at an endpoint.
fn call(endpoint: &Endpoint, own: &str) -> Value {
    match endpoint {
        Endpoint::Meta => {
            let arguments = json!({"tool_name": format!("disk__{own}"), "arguments": {"x": 1}});
            json!({"name": "call_tool", "arguments": arguments})
        }
        Endpoint::Server(_) => json!({"name": own, "arguments": {"x": 1}}),
        _ => json!({"name": format!("disk__{own}"), "arguments": {"x": 1}}),
    }
}

fn endpoints() -> [Endpoint; 3] {
    [Endpoint::Meta, Endpoint::Full, Endpoint::Server("disk".to_owned())]
}

fn asks() -> Vec<Value> {
    vec![json!({"read_only": true, "then": "allow"}), json!({"servers": ["disk"], "then": "ask"})]
}

#[tokio::test]
async fn a_person_is_asked_and_the_answer_decides() {
    let ran = |own: &str| format!("ran disk/{own}");
    for endpoint in endpoints() {
        let log = Arc::<Log>::default();
        let gateway = gateway(&asks(), &log).await;
        let mut client = introduced(&gateway, endpoint.clone(), json!({"elicitation": {}})).await;
        let answer = client.request("tools/call", call(&endpoint, "look")).await;
        assert_eq!(text(&answer), ran("look"));
        for (reply, runs) in [
            (json!({"action": "decline"}), false),
            (json!({"action": "accept"}), false),
            (chosen("no"), false),
            (chosen("once"), true),
        ] {
            let id = client.send("tools/call", call(&endpoint, "wipe")).await;
            let asked = client.read().await;
            assert_eq!(asked["method"], "elicitation/create");
            let message = asked["params"]["message"].as_str().unwrap();
            assert_eq!(
                message,
                r#"May `wipe` of `disk` run? It may destroy something. Its arguments: {"x":1}"#
            );
            client.write(&response(&asked["id"], reply)).await;
            let answer = client.read().await;
            assert_eq!(answer["id"], id);
            assert_eq!(text(&answer) == ran("wipe"), runs, "{answer}");
            assert_eq!(answer["result"]["isError"] == json!(true), !runs);
        }
        // For the session: not asked about this tool again, but about others.
        client.send("tools/call", call(&endpoint, "wipe")).await;
        let asked = client.read().await;
        client.write(&response(&asked["id"], chosen("session"))).await;
        assert_eq!(text(&client.read().await), ran("wipe"));
        let answer = client.request("tools/call", call(&endpoint, "wipe")).await;
        assert_eq!(text(&answer), ran("wipe"));
        client.send("tools/call", call(&endpoint, "mark")).await;
        assert_eq!(client.read().await["method"], "elicitation/create");
        let (yes, no) = (Verdict::AskedYes, Verdict::AskedNo);
        let wipe = |verdict, well| ("disk/wipe".to_owned(), verdict, well);
        let expected = [
            ("disk/look".to_owned(), Verdict::Allowed, Some(true)),
            wipe(no, None),
            wipe(no, None),
            wipe(no, None),
            wipe(yes, Some(true)),
            wipe(yes, Some(true)),
            wipe(yes, Some(true)),
        ];
        assert_eq!(log.take(), expected, "{endpoint}");
    }
}

#[tokio::test]
async fn without_a_session_the_question_comes_as_input_that_is_required() {
    let log = Arc::<Log>::default();
    let gateway = gateway(&asks(), &log).await;
    let mut client = Client::connect(&gateway, Endpoint::Full);
    let mut params = call(&Endpoint::Full, "wipe");
    params["_meta"] = modern();
    params["_meta"]["io.modelcontextprotocol/clientCapabilities"] = json!({"elicitation": {}});
    let asked = client.request("tools/call", params.clone()).await;
    assert_eq!(asked["result"]["resultType"], "input_required", "{asked}");
    let requests = asked["result"]["inputRequests"].as_object().unwrap();
    let (key, request) = requests.iter().next().unwrap();
    let choices = &request["params"]["requestedSchema"]["properties"]["decision"]["enum"];
    assert_eq!(*choices, json!(["once", "no"]));
    // For other arguments the answer is worth nothing.
    let mut other = params.clone();
    other["arguments"] = json!({"x": 2});
    for (request, runs) in [(other, false), (params, true)] {
        let mut again = request;
        again["requestState"] = asked["result"]["requestState"].clone();
        again["inputResponses"] = json!({ key: chosen("once") });
        let answer = client.request("tools/call", again).await;
        let ran = answer["result"]["content"][0]["text"] == json!("ran disk/wipe");
        assert_eq!(ran, runs, "{answer}");
    }
    assert_eq!(log.take(), [("disk/wipe".to_owned(), Verdict::AskedYes, Some(true))]);
}

#[tokio::test]
async fn a_client_that_can_not_ask_is_told_which_rule_stands_in_the_way() {
    for (capabilities, era) in
        [(json!({}), "old"), (json!({"elicitation": {"url": {}}}), "old"), (json!({}), "new")]
    {
        let log = Arc::<Log>::default();
        let gateway = gateway(&asks(), &log).await;
        let mut params = call(&Endpoint::Full, "wipe");
        let mut client = introduced(&gateway, Endpoint::Full, capabilities).await;
        if era == "new" {
            params["_meta"] = modern();
        }
        let answer = client.request("tools/call", params).await;
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        assert!(text(&answer).contains("(rule 2), and this client can't ask one"), "{answer}");
        assert_eq!(log.take(), [("disk/wipe".to_owned(), Verdict::AskedNo, None)]);
    }
}

#[tokio::test]
async fn what_is_denied_or_held_is_unknown_and_recorded_at_every_endpoint() {
    let denies = [json!({"tools": ["wipe"], "then": "deny"})];
    for endpoint in endpoints() {
        let log = Arc::<Log>::default();
        let gateway = gateway(&denies, &log).await;
        let mut client = introduced(&gateway, endpoint.clone(), json!({})).await;
        let mut told = Vec::new();
        for own in ["wipe", "burn", "none"] {
            let answer = client.request("tools/call", call(&endpoint, own)).await;
            let mut answer = answer.to_string().replace(own, "x");
            let id = answer.find("\"id\":").unwrap();
            answer.replace_range(id..id + 6, "");
            told.push(answer);
        }
        let ids = |text: &String| text.chars().filter(|c| !c.is_ascii_digit()).collect::<String>();
        assert_eq!(ids(&told[0]), ids(&told[2]), "{endpoint}");
        assert_eq!(ids(&told[1]), ids(&told[2]), "{endpoint}");
        let expected = [
            ("disk/wipe".to_owned(), Verdict::Denied, None),
            ("disk/burn".to_owned(), Verdict::Held, None),
        ];
        assert_eq!(log.take(), expected, "{endpoint}");
    }
}

#[tokio::test]
async fn a_call_that_must_be_recorded_and_can_not_be_does_not_run() {
    let log = Arc::new(Log { is_full: true, ..Log::default() });
    let gateway = gateway(&[], &log).await;
    let mut client = introduced(&gateway, Endpoint::Full, json!({})).await;
    let answer = client.request("tools/call", call(&Endpoint::Full, "look")).await;
    assert!(text(&answer).contains("was not run: calls must be recorded here"), "{answer}");
    assert!(!answer.to_string().contains("no room"), "the reason is for the log");
    assert_eq!(log.take(), []);
}

#[tokio::test]
async fn split_verbs_say_what_they_do_and_keep_to_it() {
    let log = Arc::<Log>::default();
    let split = |options: &mut Options| options.settings.split_calls = true;
    let gateway = gateway_with(&[], &log, split).await;
    let mut client = introduced(&gateway, Endpoint::Meta, json!({})).await;
    let listed = client.request("tools/list", json!({})).await;
    let verbs: Vec<(&str, Value)> = listed["result"]["tools"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tool| (tool["name"].as_str().unwrap(), tool["annotations"].clone()))
        .collect();
    let names: Vec<&str> = verbs.iter().map(|(name, _)| *name).collect();
    let split = ["call_read_tool", "call_write_tool", "call_destructive_tool"];
    assert_eq!(names[2..], split);
    assert_eq!(verbs[2].1["readOnlyHint"], true);
    assert_eq!(
        (&verbs[3].1["readOnlyHint"], &verbs[3].1["destructiveHint"]),
        (&json!(false), &json!(false))
    );
    assert_eq!(verbs[4].1["destructiveHint"], true);
    assert!(!listed.to_string().contains("call_tool`"), "{listed}");
    let wipe = json!({"tool_name": "disk__wipe", "arguments": {}});
    let answer = client.call("call_read_tool", wipe.clone()).await;
    assert!(text(&answer).contains("call it with `call_destructive_tool`"), "{answer}");
    assert!(text(&client.call("disk__wipe", json!({})).await).contains("call_destructive_tool"));
    assert_eq!(log.take(), []);
    assert_eq!(text(&client.call("call_destructive_tool", wipe).await), "ran disk/wipe");
}
