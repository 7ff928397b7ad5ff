//! A server with tools, resources and prompts that are named after it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::broadcast;
use toolcrib_core::{GroupId, Schema, ToolName, ToolSpec};
use toolcrib_runtime::{
    AskError, CallError, Following, Health, Invocation, Listing, News, Offers, Party, Question,
    RpcError, Server, ToolResult, Toolset,
};

/// A server of the given name with the given tools.
#[derive(Clone)]
pub struct Shelf {
    name: &'static str,
    /// What is said of each tool.
    tools: Arc<Mutex<BTreeMap<String, String>>>,
    news: broadcast::Sender<News>,
    has_instructions: bool,
    state: State,
    asked: Arc<AtomicUsize>,
}

/// Whether its tools can be listed.
#[derive(Clone, Copy)]
enum State {
    Listed,
    Starting,
    Down,
    Remembered,
}

impl Shelf {
    pub fn new(name: &'static str, tools: &[&str]) -> Self {
        let about = |tool: &str| match tool.split_once('_') {
            Some(("purge", _)) => "Obliterate everything in a mailbox".to_owned(),
            _ => format!("The {} of the {name}", tool.replace('_', " ")),
        };
        let tools = tools.iter().map(|tool| ((*tool).to_owned(), about(tool))).collect();
        let (tools, news) = (Arc::new(Mutex::new(tools)), broadcast::Sender::new(16));
        let (state, asked) = (State::Listed, Arc::default());
        Self { name, tools, news, has_instructions: true, state, asked }
    }

    /// The same, with no instructions.
    pub fn terse(self) -> Self {
        Self { has_instructions: false, ..self }
    }

    /// One that is not there yet.
    pub fn starting(name: &'static str) -> Self {
        Self { state: State::Starting, ..Self::new(name, &[]) }
    }

    /// One that can't be reached.
    pub fn down(name: &'static str) -> Self {
        Self { state: State::Down, ..Self::new(name, &[]) }
    }

    /// The same, known from before: it has not been reached since.
    pub fn remembered(self) -> Self {
        Self { state: State::Remembered, ..self }
    }

    /// How often it was asked for something, be it a tool's work or not.
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }

    /// Changes what is said of a tool.
    pub fn say(&self, tool: &str, about: &str) {
        self.tools.lock().unwrap().insert(tool.to_owned(), about.to_owned());
    }

    fn answer(&self, method: &str, params: &Value) -> Result<Value, RpcError> {
        let uri = format!("shelf://{}/door", self.name);
        let resource = json!({"uri": uri, "name": "door"});
        let prompt = json!({"name": "about", "description": format!("About the {}", self.name)});
        match method {
            "resources/list" => Ok(json!({"resources": [resource]})),
            "resources/templates/list" => Ok(json!({"resourceTemplates": []})),
            "resources/read" if params["uri"] == uri => {
                Ok(json!({"contents": [{"uri": uri, "text": self.name}]}))
            }
            "prompts/list" => Ok(json!({"prompts": [prompt]})),
            "prompts/get" if params["name"] == "about" => {
                let content = json!({"type": "text", "text": self.name});
                Ok(json!({"messages": [{"role": "user", "content": content}]}))
            }
            "completion/complete" => Ok(json!({"completion": {"values": [self.name]}})),
            "resources/read" | "prompts/get" => Err(RpcError::invalid_params("there is none")),
            _ => Err(RpcError::unknown_method(method)),
        }
    }
}

impl Toolset for Shelf {
    fn id(&self) -> GroupId {
        GroupId::server(self.name)
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        Box::pin(async {
            match self.state {
                State::Listed | State::Remembered => {}
                State::Starting => std::future::pending().await,
                State::Down => return Err(CallError::Tell("it is down".to_owned())),
            }
            let tools = self.tools.lock().unwrap().clone();
            let schema: Schema = json!({"type": "object",
                "properties": {"what": {"type": "string"}}, "required": []})
            .into();
            let tools = tools.into_iter().map(|(tool, about)| {
                ToolSpec::new(ToolName::mcp(self.name, tool), schema.clone())
                    .with_description(about)
            });
            let mut listing = Listing::new(tools.collect::<Vec<_>>());
            if let State::Remembered = self.state {
                listing.down = Some("it has not answered yet".to_owned());
            }
            Ok(listing)
        })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        self.asked.fetch_add(1, Ordering::SeqCst);
        let text = format!("{} of the {}", invocation.tool.tool(), self.name);
        Box::pin(async { Ok(ToolResult::text(text)) })
    }

    fn server(&self) -> Option<&dyn Server> {
        Some(self)
    }
}

impl Server for Shelf {
    fn offers(&self) -> Arc<Offers> {
        let raw = |value: Value| -> Arc<RawValue> {
            Arc::from(RawValue::from_string(value.to_string()).unwrap())
        };
        let all = |method: &str, key: &str| {
            let answer = self.answer(method, &Value::Null).unwrap();
            answer[key].as_array().unwrap().iter().cloned().map(raw).collect()
        };
        Arc::new(Offers {
            capabilities: Some(raw(json!({
                "tools": {}, "resources": {"subscribe": true}, "prompts": {}, "completions": {},
            }))),
            instructions: self
                .has_instructions
                .then(|| format!("How to use the {}", self.name).into()),
            resources: all("resources/list", "resources"),
            prompts: all("prompts/list", "prompts"),
            ..Offers::default()
        })
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Box<RawValue>, AskError>> {
        Box::pin(async move {
            self.asked.fetch_add(1, Ordering::SeqCst);
            let params = question.params.as_deref().map(RawValue::get).unwrap_or("null");
            let params = serde_json::from_str(params).unwrap_or_default();
            let answer = self.answer(&question.method, &params).map_err(AskError::Refused)?;
            Ok(RawValue::from_string(answer.to_string()).unwrap())
        })
    }

    fn follow<'a>(
        &'a self,
        _: &str,
        _: Option<&'a Arc<Party>>,
    ) -> BoxFuture<'a, Result<Following, AskError>> {
        Box::pin(async { Ok(Following::new(|| {})) })
    }

    fn news(&self) -> broadcast::Receiver<News> {
        self.news.subscribe()
    }

    fn tell(&self, _: &Party, _: &str, _: Option<&RawValue>) {}

    fn health(&self) -> Health {
        Health::default()
    }
}
