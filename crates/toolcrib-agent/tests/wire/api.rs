//! The APIs, with what the tests need to know of each.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use toolcrib_agent::providers::{Access, Anthropic, Ollama, OpenAiChat, OpenAiResponses};
use toolcrib_agent::{ModelOptions, Provider, Usage};

use crate::answer::Answer;
use crate::{anthropic, ollama, openai_chat, openai_responses};

pub(crate) const KEY: &str = "a-key-for-tests";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Api {
    Anthropic,
    OpenAiResponses,
    OpenAiChat,
    Ollama,
}

/// What matters for whether a conversation is valid.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Token {
    /// A call, by its id.
    Call(String),
    /// The result of a call.
    Result(String),
    /// What may stand among the calls of an answer.
    Thinking,
    Other,
}

impl Api {
    pub(crate) const ALL: [Self; 4] =
        [Self::Anthropic, Self::OpenAiResponses, Self::OpenAiChat, Self::Ollama];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Anthropic => "anthropic",
            Self::OpenAiResponses => "openai-responses",
            Self::OpenAiChat => "openai-chat",
            Self::Ollama => "ollama",
        }
    }

    /// A provider that sends what it sends to `base`.
    pub(crate) fn open(self, base: &str) -> Arc<dyn Provider> {
        let mut access = Access::default();
        access.key = Some(KEY.to_owned());
        access.base_url = Some(match self {
            Self::Ollama => base.to_owned(),
            _ => format!("{base}/v1"),
        });
        match self {
            Self::Anthropic => Arc::new(Anthropic::open(access).unwrap()),
            Self::OpenAiResponses => Arc::new(OpenAiResponses::open(access).unwrap()),
            Self::OpenAiChat => Arc::new(OpenAiChat::open(access).unwrap()),
            Self::Ollama => Arc::new(Ollama::open(access).unwrap()),
        }
    }

    /// A limit, and something only this API knows.
    pub(crate) fn options(self) -> ModelOptions {
        let extra = match self {
            Self::Anthropic => json!({"thinking": {"type": "adaptive"}}),
            Self::OpenAiResponses => json!({"reasoning": {"effort": "low", "summary": "auto"}}),
            Self::OpenAiChat => json!({"reasoning_effort": "low"}),
            Self::Ollama => json!({"think": true}),
        };
        let extra: Map<String, Value> = extra.as_object().cloned().unwrap_or_default();
        ModelOptions { max_output: Some(4096), extra, ..ModelOptions::default() }
    }

    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Anthropic => "/v1/messages",
            Self::OpenAiResponses => "/v1/responses",
            Self::OpenAiChat => "/v1/chat/completions",
            Self::Ollama => "/api/chat",
        }
    }

    /// The headers that are the API's own business, in alphabetical order.
    pub(crate) fn headers(self, body: &Value) -> Vec<(&'static str, String)> {
        let accept = ("accept", self.content_type().to_owned());
        let content = ("content-type", "application/json".to_owned());
        let own = match self {
            Self::Anthropic => vec![
                ("anthropic-version", "2023-06-01".to_owned()),
                content,
                ("x-api-key", KEY.to_owned()),
            ],
            _ => vec![("authorization", format!("Bearer {KEY}")), content],
        };
        let changes_tools = self == Self::Anthropic
            && self.messages(body).iter().any(|message| message["role"] == "system");
        let beta = ("anthropic-beta", "mid-conversation-tool-changes-2026-07-01".to_owned());
        let beta = changes_tools.then_some(beta);
        [accept].into_iter().chain(beta).chain(own).collect()
    }

    pub(crate) fn content_type(self) -> &'static str {
        if self == Self::Ollama { "application/x-ndjson" } else { "text/event-stream" }
    }

    /// An answer as the API's server sends it.
    pub(crate) fn write(self, answer: &Answer) -> String {
        match self {
            Self::Anthropic => anthropic::write(answer),
            Self::OpenAiResponses => openai_responses::write(answer),
            Self::OpenAiChat => openai_chat::write(answer),
            Self::Ollama => ollama::write(answer),
        }
    }

    /// The id the API's server gives a call.
    pub(crate) fn call_id(self, number: usize) -> String {
        match self {
            Self::Anthropic => anthropic::id(number),
            Self::OpenAiResponses => openai_responses::id(number),
            Self::OpenAiChat => openai_chat::id(number),
            Self::Ollama => String::new(),
        }
    }

    /// What of an answer's usage the API tells.
    pub(crate) fn told(self, usage: Usage) -> Usage {
        match self {
            Self::Ollama => Usage { read: 0, written: 0, ..usage },
            _ => usage,
        }
    }

    /// The member of a body that has the conversation.
    pub(crate) fn conversation(self) -> &'static str {
        if self == Self::OpenAiResponses { "input" } else { "messages" }
    }

    /// The conversation in a body, without marks that move.
    pub(crate) fn messages(self, body: &Value) -> Vec<Value> {
        self.unmarked(&body[self.conversation()])
    }

    /// The tools in a body, without marks that move.
    pub(crate) fn tools(self, body: &Value) -> Vec<Value> {
        self.unmarked(&body["tools"])
    }

    fn unmarked(self, list: &Value) -> Vec<Value> {
        let list = list.as_array().cloned().unwrap_or_default();
        match self {
            Self::Anthropic => list.into_iter().map(anthropic::without_marks).collect(),
            _ => list,
        }
    }

    /// The system prompt in a body; null if it has none.
    pub(crate) fn system(self, body: &Value) -> Value {
        match self {
            Self::Anthropic => body["system"][0]["text"].clone(),
            Self::OpenAiResponses => body["instructions"].clone(),
            Self::OpenAiChat | Self::Ollama => {
                let first = &body["messages"][0];
                if first["role"] == "system" { first["content"].clone() } else { Value::Null }
            }
        }
    }

    /// The names in the tools array of a body.
    pub(crate) fn tool_names(self, body: &Value) -> Vec<String> {
        let name = |tool: &Value| match self {
            Self::OpenAiResponses if tool["type"] == "tool_search" => tool["type"].clone(),
            Self::Anthropic | Self::OpenAiResponses => tool["name"].clone(),
            Self::OpenAiChat | Self::Ollama => tool["function"]["name"].clone(),
        };
        let tools = body["tools"].as_array().into_iter().flatten();
        tools.filter_map(|tool| Some(name(tool).as_str()?.to_owned())).collect()
    }

    pub(crate) fn tokens(self, message: &Value) -> Vec<Token> {
        match self {
            Self::Anthropic => anthropic::tokens(message),
            Self::OpenAiResponses => openai_responses::tokens(message),
            Self::OpenAiChat => openai_chat::tokens(message),
            Self::Ollama => ollama::tokens(message),
        }
    }
}
