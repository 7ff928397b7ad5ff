//! A server that speaks the providers' APIs, as little of them as it takes: it keeps the bodies
//! it is sent, and answers as it was told to.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use serde_json::{Value, json};
use tokio::net::TcpListener;
use toolcrib_agent::Provider;
use toolcrib_agent::providers::{Access, Anthropic, Ollama, OpenAiChat, OpenAiResponses};
use toolcrib_tokens::Feature;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Api {
    Anthropic,
    OpenAiResponses,
    OpenAiChat,
    Ollama,
}

impl Api {
    /// What a model must be able to do for tools to be given in the API's own form.
    pub(crate) fn native(self) -> Option<Feature> {
        match self {
            Self::Anthropic => Some(Feature::DeferLoading),
            Self::OpenAiResponses => Some(Feature::ToolSearch),
            Self::OpenAiChat | Self::Ollama => None,
        }
    }
}

impl fmt::Display for Api {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Anthropic => "Messages",
            Self::OpenAiResponses => "Responses",
            Self::OpenAiChat => "Chat Completions",
            Self::Ollama => "Ollama",
        })
    }
}

/// What the model answers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reply {
    pub(crate) text: String,
    /// Names with arguments.
    pub(crate) calls: Vec<(String, Value)>,
}

/// A handle: clones are the same server.
#[derive(Clone)]
pub(crate) struct Endpoint {
    api: Api,
    base: String,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    replies: VecDeque<Reply>,
    bodies: Vec<String>,
    calls: usize,
}

impl Endpoint {
    pub(crate) async fn start(api: Api, replies: impl IntoIterator<Item = Reply>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let kept = Kept { replies: replies.into_iter().collect(), ..Kept::default() };
        let endpoint = Self { api, base, kept: Arc::new(Mutex::new(kept)) };
        let routes = Router::new().fallback(respond).with_state(endpoint.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        endpoint
    }

    /// A provider that sends what it sends here.
    pub(crate) fn provider(&self) -> Arc<dyn Provider> {
        let mut access = Access::default();
        access.key = Some("a-key-for-tests".to_owned());
        access.base_url = Some(match self.api {
            Api::Ollama => self.base.clone(),
            _ => format!("{}/v1", self.base),
        });
        match self.api {
            Api::Anthropic => Arc::new(Anthropic::open(access).unwrap()),
            Api::OpenAiResponses => Arc::new(OpenAiResponses::open(access).unwrap()),
            Api::OpenAiChat => Arc::new(OpenAiChat::open(access).unwrap()),
            Api::Ollama => Arc::new(Ollama::open(access).unwrap()),
        }
    }

    /// The bodies of all requests, once all replies were given.
    pub(crate) fn bodies(&self) -> Vec<String> {
        let kept = self.kept.lock().unwrap();
        assert!(kept.replies.is_empty(), "{} replies were not asked for", kept.replies.len());
        kept.bodies.clone()
    }

    fn take(&self, body: String) -> Option<Value> {
        let mut kept = self.kept.lock().unwrap();
        let reply = kept.replies.pop_front()?;
        let asked = serde_json::from_str(&body).ok()?;
        kept.bodies.push(body);
        let first = kept.calls;
        kept.calls += reply.calls.len();
        Some(match self.api {
            Api::Anthropic => anthropic(reply, first),
            Api::OpenAiResponses => openai_responses(reply, first, &asked),
            Api::OpenAiChat => openai_chat(reply, first),
            Api::Ollama => ollama(reply),
        })
    }
}

async fn respond(State(endpoint): State<Endpoint>, body: String) -> Response {
    match endpoint.take(body) {
        Some(answer) => {
            ([("content-type", "application/json")], answer.to_string()).into_response()
        }
        None => (StatusCode::BAD_REQUEST, "nothing was to be asked here").into_response(),
    }
}

/// The calls, each with an id that counts on from `first`.
fn numbered(reply: &Reply, first: usize) -> impl Iterator<Item = (String, &String, &Value)> {
    let calls = reply.calls.iter().enumerate();
    calls.map(move |(at, (name, input))| (format!("call_{:03}", first + at), name, input))
}

fn anthropic(reply: Reply, first: usize) -> Value {
    let text = (!reply.text.is_empty()).then(|| json!({"type": "text", "text": reply.text}));
    let calls = numbered(&reply, first).map(
        |(id, name, input)| json!({"type": "tool_use", "id": id, "name": name, "input": input}),
    );
    let stop = if reply.calls.is_empty() { "end_turn" } else { "tool_use" };
    json!({"id": "msg_1", "type": "message", "role": "assistant", "stop_reason": stop,
        "content": text.into_iter().chain(calls).collect::<Vec<Value>>(),
        "usage": {"input_tokens": 1, "output_tokens": 1}})
}

/// A search is a call of its own kind where it was offered as such, and a tool that was found is
/// called by the namespace it was shown in.
fn openai_responses(reply: Reply, first: usize, asked: &Value) -> Value {
    let items = |list: &Value| list.as_array().cloned().unwrap_or_default();
    let searches = items(&asked["tools"]).iter().any(|tool| tool["type"] == "tool_search");
    let given: Vec<Value> =
        items(&asked["input"]).iter().flat_map(|item| items(&item["tools"])).collect();
    let namespace = |name: &str| {
        let has = |it: &&Value| items(&it["tools"]).iter().any(|tool| tool["name"] == name);
        given.iter().find(has).map(|namespace| namespace["name"].clone())
    };
    let text = (!reply.text.is_empty()).then(|| {
        json!({"type": "message", "role": "assistant", "status": "completed",
            "content": [{"type": "output_text", "text": reply.text, "annotations": []}]})
    });
    let calls = numbered(&reply, first).map(|(id, name, input)| {
        if searches && name == "tool_search" {
            return json!({"type": "tool_search_call", "status": "completed", "call_id": id,
                "execution": "client", "arguments": input});
        }
        let mut call = json!({"type": "function_call", "status": "completed", "call_id": id,
            "name": name, "arguments": input.to_string()});
        if let Some(namespace) = namespace(name) {
            call["namespace"] = namespace;
        }
        call
    });
    json!({"id": "resp_1", "object": "response", "status": "completed",
        "output": text.into_iter().chain(calls).collect::<Vec<Value>>(),
        "usage": {"input_tokens": 1, "output_tokens": 1}})
}

fn openai_chat(reply: Reply, first: usize) -> Value {
    let calls = numbered(&reply, first).map(|(id, name, input)| {
        json!({"id": id, "type": "function",
            "function": {"name": name, "arguments": input.to_string()}})
    });
    let mut message = json!({"role": "assistant", "content": reply.text});
    if !reply.calls.is_empty() {
        message["tool_calls"] = calls.collect();
    }
    let reason = if reply.calls.is_empty() { "stop" } else { "tool_calls" };
    json!({"id": "chatcmpl-1", "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": reason}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1}})
}

fn ollama(reply: Reply) -> Value {
    let calls = reply.calls.iter();
    let calls = calls.map(|(name, input)| json!({"function": {"name": name, "arguments": input}}));
    json!({"message": {"role": "assistant", "content": reply.text,
            "tool_calls": calls.collect::<Vec<Value>>()},
        "done": true, "done_reason": "stop", "prompt_eval_count": 1, "eval_count": 1})
}
