//! How tools reach the model in a story.

use serde_json::{Value, json};
use toolcrib_core::{Strategy, StrategyChoice};
use toolcrib_tokens::{Model, Models};

use crate::answer::Saying;
use crate::api::Api;

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Way {
    Dispatch,
    Inject,
    Native,
    /// Natively, with a model to which tools can't come and go in the middle of a conversation.
    NativeWithoutChanges,
}

impl Way {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Dispatch => "dispatch",
            Self::Inject => "inject",
            Self::Native => "native",
            Self::NativeWithoutChanges => "native-without-changes",
        }
    }

    pub(crate) fn choice(self) -> StrategyChoice {
        match self {
            Self::Dispatch => StrategyChoice::Dispatch,
            Self::Inject => StrategyChoice::Inject,
            Self::Native | Self::NativeWithoutChanges => StrategyChoice::Native,
        }
    }

    pub(crate) fn strategy(self) -> Strategy {
        match self {
            Self::Dispatch => Strategy::Dispatch,
            Self::Inject => Strategy::Inject,
            Self::Native | Self::NativeWithoutChanges => Strategy::Native,
        }
    }

    pub(crate) fn is_native(self) -> bool {
        matches!(self, Self::Native | Self::NativeWithoutChanges)
    }

    /// What the table knows of the model that is asked, where that matters.
    pub(crate) fn model(self, api: Api) -> Option<Model> {
        let name = match (self, api) {
            (Self::Native, Api::Anthropic) => "claude-opus-5.5",
            (Self::NativeWithoutChanges, Api::Anthropic) => "claude-haiku-4.5",
            (Self::Native | Self::NativeWithoutChanges, Api::OpenAiResponses) => "gpt-5.6-sol",
            _ => return None,
        };
        Models::embedded().find(name).cloned()
    }
}

/// A call; the server numbers it.
pub(crate) fn call(name: &str, arguments: Value) -> Saying {
    Saying::Call { number: 0, name: name.to_owned(), arguments: arguments.to_string() }
}

/// A call of a tool, the way it is called under a strategy.
pub(crate) fn tool(strategy: Strategy, name: &str, arguments: Value) -> Saying {
    match strategy {
        Strategy::Dispatch => call("call_tool", json!({"tool_name": name, "arguments": arguments})),
        _ => call(name, arguments),
    }
}

pub(crate) fn search(query: &str) -> Saying {
    call("tool_search", json!({"query": query, "limit": 2}))
}
