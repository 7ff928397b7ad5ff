//! Tasks are asked for by whoever began them, and by nobody else.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use support::{Client, Offered, Served, answer, crib};
use tokio::sync::broadcast;
use toolcrib_core::{GroupId, Policy, PolicyRules, Schema, ToolName, ToolSpec};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options, TokenHash};
use toolcrib_runtime::{
    AskError, CallError, Following, Health, Invocation, Listing, News, Offers, Party, Question,
    Server, ToolResult, Toolset,
};

/// A server called `jobs`, whose tools `begin` and `hidden` begin tasks that it numbers.
#[derive(Clone)]
struct Jobs {
    begun: Arc<AtomicUsize>,
    asked: Arc<Mutex<Vec<String>>>,
    /// What it is otherwise.
    rest: Arc<Offered>,
}

impl Toolset for Jobs {
    fn id(&self) -> GroupId {
        GroupId::server("jobs")
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let schema: Schema = json!({"type": "object"}).into();
        let tool = |name: &str| ToolSpec::new(ToolName::mcp("jobs", name), schema.clone());
        let listing = Listing::new(["begin", "hidden"].map(tool));
        Box::pin(async { Ok(listing) })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        let id = self.begun.fetch_add(1, Ordering::SeqCst) + 1;
        let text = match invocation.arguments["flat"] == true {
            true => format!(r#"{{"resultType":"task","taskId":"{id}","status":"working"}}"#),
            false => format!(r#"{{"task":{{"taskId":"{id}","status":"working"}}}}"#),
        };
        let result = ToolResult::from_json(RawValue::from_string(text).unwrap());
        Box::pin(async { Ok(result) })
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
}

impl Server for Jobs {
    fn offers(&self) -> Arc<Offers> {
        self.rest.offers()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Box<RawValue>, AskError>> {
        let params = question.params.as_ref().map_or("{}", |raw| raw.get());
        self.asked.lock().unwrap().push(format!("{} {params}", question.method));
        let params: Value = serde_json::from_str(params).unwrap();
        let task = |id: &str| json!({"taskId": id, "status": "completed"});
        let said = match &*question.method {
            "tasks/list" => {
                let all = 1..=self.begun.load(Ordering::SeqCst);
                json!({"tasks": all.map(|id| task(&id.to_string())).collect::<Vec<_>>()})
            }
            _ => task(params["taskId"].as_str().unwrap()),
        };
        Box::pin(async move { Ok(RawValue::from_string(said.to_string()).unwrap()) })
    }

    fn follow<'a>(
        &'a self,
        uri: &str,
        party: Option<&'a Arc<Party>>,
    ) -> BoxFuture<'a, Result<Following, AskError>> {
        self.rest.follow(uri, party)
    }

    fn news(&self) -> broadcast::Receiver<News> {
        self.rest.news()
    }

    fn tell(&self, _: &Party, _: &str, _: Option<&RawValue>) {}

    fn health(&self) -> Health {
        self.rest.health()
    }
}

async fn jobs() -> (Gateway, Jobs) {
    let crib = crib().await;
    let rest = Offered::new("jobs", json!({"tools": {}, "tasks": {}}));
    let jobs = Jobs { begun: Arc::default(), asked: Arc::default(), rest };
    crib.add(jobs.clone()).await;
    (Gateway::new(crib, Options::default()).unwrap(), jobs)
}

/// A session of a caller's at an endpoint.
struct Session<'a> {
    served: &'a Served,
    path: &'static str,
    token: &'static str,
    id: String,
}

impl<'a> Session<'a> {
    async fn open(served: &'a Served, path: &'static str, token: &'static str) -> Self {
        let body = support::rpc(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
        let response = served.post(path).bearer_auth(token).body(body).send().await.unwrap();
        let id = response.headers()["mcp-session-id"].to_str().unwrap().to_owned();
        Self { served, path, token, id }
    }

    async fn ask(&self, method: &str, params: Value) -> Value {
        let request = self.served.within(self.path, &self.id, method, params);
        answer(request.bearer_auth(self.token)).await.1
    }

    async fn raw(&self, method: &str, params: &str) -> Value {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
        let request = self.served.post(self.path).header("mcp-session-id", &self.id);
        answer(request.bearer_auth(self.token).body(body)).await.1
    }

    /// Begins a task; its id.
    async fn begin(&self, tool: &str) -> String {
        let begun = self.ask("tools/call", json!({"name": tool, "arguments": {}})).await;
        let result = &begun["result"];
        let id = result["taskId"].as_str().or_else(|| result["task"]["taskId"].as_str());
        id.unwrap_or_else(|| panic!("{begun}")).to_owned()
    }
}

#[tokio::test]
async fn nobody_else_may_ask_for_a_task() {
    let (gateway, jobs) = jobs().await;
    let mut options = HttpOptions::default();
    let deny_tools = vec!["hidden".to_owned()];
    let less = Policy::new(PolicyRules { deny_tools, ..Default::default() }).unwrap();
    options.tokens = vec![TokenHash::of("a"), TokenHash::of("b").narrowed(less)];
    let served = Served::start(&gateway, options).await;
    for (path, of, begin, hidden) in [
        ("/mcp/s/jobs", "", "begin", "hidden"),
        ("/mcp/full", "jobs:", "jobs__begin", "jobs__hidden"),
    ] {
        let (a, b) = (Session::open(&served, path, "a"), Session::open(&served, path, "b"));
        let (a, b) = (a.await, b.await);
        let (one, two) = (a.begin(hidden).await, a.begin(begin).await);
        let own = b.begin(begin).await;
        assert!(one.starts_with(of) && !one[of.len()..].contains(':'), "{one}");
        jobs.asked.lock().unwrap().clear();
        for id in [&one, &two, &format!("{of}999")] {
            for method in ["tasks/get", "tasks/result", "tasks/cancel", "tasks/update"] {
                let refused = b.ask(method, json!({"taskId": id})).await;
                assert_eq!(refused["error"]["code"], -32602, "{path} {method} {refused}");
                let text = format!("Unknown task: {id}");
                assert_eq!(refused["error"]["message"], text, "{path} {method}");
            }
        }
        let theirs = two.trim_start_matches(of);
        for twice in [
            format!(r#"{{"taskId":"{own}","taskId":"{theirs}"}}"#),
            format!(r#"{{"taskId":"{two}","taskId":"{own}"}}"#),
        ] {
            assert!(b.raw("tasks/get", &twice).await["error"].is_object(), "{path} {twice}");
        }
        assert!(b.ask("tasks/get", json!({})).await["error"].is_object());
        assert!(jobs.asked.lock().unwrap().is_empty(), "nothing of it reached the server");
        for (session, id) in [(&a, &one), (&a, &two), (&b, &own)] {
            let got = session.ask("tasks/get", json!({"taskId": id})).await;
            assert_eq!(got["result"]["taskId"], **id, "{path} {got}");
        }
        let count = async |session: &Session<'_>| {
            let listed = session.ask("tasks/list", json!({})).await;
            listed["result"]["tasks"].as_array().map(Vec::len)
        };
        match of {
            "" => assert_eq!((count(&a).await, count(&b).await), (Some(2), Some(1))),
            _ => assert_eq!(count(&a).await, None),
        }
    }
    let params = json!({"name": "jobs__hidden", "arguments": {"flat": true}});
    let begun = answer(served.modern("/mcp/full", "tools/call", params).bearer_auth("a")).await.1;
    let of_a = json!({"taskId": begun["result"]["taskId"]});
    assert_eq!(of_a["taskId"], "jobs:7", "{begun}");
    let (status, got) =
        answer(served.modern("/mcp", "tasks/get", of_a.clone()).bearer_auth("b")).await;
    assert_eq!((status, &got["error"]["code"]), (200, &json!(-32602)));
    let own = served.modern("/mcp", "tasks/get", of_a.clone()).bearer_auth("a");
    assert_eq!(answer(own).await.1["result"]["taskId"], "jobs:7");
}

#[tokio::test]
async fn where_callers_are_not_told_apart_every_task_is_theirs() {
    let (gateway, jobs) = jobs().await;
    jobs.begun.store(3, Ordering::SeqCst);
    let mut client = Client::open(&gateway, Endpoint::Server("jobs".to_owned())).await;
    let got = client.request("tasks/get", json!({"taskId": "1"})).await;
    assert_eq!(got["result"]["taskId"], "1", "{got}");
    let listed = client.request("tasks/list", json!({})).await;
    assert_eq!(listed["result"]["tasks"].as_array().map(Vec::len), Some(3));
}
