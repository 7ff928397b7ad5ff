//! One function for each method.

use std::sync::Arc;

use serde_json::{Value, json};
use toolcrib_wire::version::{SESSION_VERSIONS, STATELESS_VERSION, meta};
use toolcrib_wire::{Era, Fields, Id, RpcError};

use crate::call::ToolCall;
use crate::client::Client;
use crate::outbox::Outbox;
use crate::relay::severity;
use crate::request::{ALL_VERSIONS, Params, Request, unsupported};
use crate::{Endpoint, Gateway};

/// How a request is answered.
pub(crate) enum Reply {
    /// At once, with a result as JSON.
    Now(Result<String, RpcError>),
    /// When the work is done.
    Later(Work),
    /// When the client has heard enough, or the gateway closes.
    Listen(Filter),
}

/// What takes a while.
pub(crate) enum Work {
    /// A call.
    Call(Box<ToolCall>),
    /// A list of one server's tools, while that server is starting.
    List(Arc<Client>, Era),
}

/// What a client wants to be told of, as far as there is anything to tell.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) tools_list_changed: bool,
}

/// How long a list may be taken for the truth, in milliseconds.
const FRESH: u64 = 60_000;

/// The same while servers are starting.
const FRESH_AT_START: u64 = 1_000;

impl Gateway {
    /// Says how to answer a request.
    pub(crate) fn answer(&self, client: &Arc<Client>, request: &Request<'_>) -> Reply {
        let era = request.era;
        if client.endpoint == Endpoint::Inject && era == Era::Stateless {
            let mut error = unsupported(STATELESS_VERSION, &SESSION_VERSIONS);
            error.message = "/mcp/inject is for clients with sessions, as its list of tools \
                             changes with what a client loads; use /mcp"
                .to_owned();
            return Reply::Now(Err(error));
        }
        Reply::Now(match (&*request.method, era) {
            ("tools/call", _) => match ToolCall::read(client, request) {
                Ok(call) => return Reply::Later(Work::Call(Box::new(call))),
                Err(error) => Err(error),
            },
            ("tools/list", _) => match has_cursor(request) {
                true => Err(RpcError::invalid_params("There is one page: leave `cursor` out")),
                false if self.awaits(&client.endpoint) => {
                    return Reply::Later(Work::List(client.clone(), era));
                }
                false => Ok(self.tools_list(client, era)),
            },
            ("server/discover", _) => Ok(self.discover(&client.endpoint)),
            ("subscriptions/listen", Era::Stateless) => return Reply::Listen(filter(request)),
            ("initialize", Era::Sessions) => Ok(self.initialize(client, request)),
            ("ping", Era::Sessions) => Ok("{}".to_owned()),
            ("logging/setLevel", Era::Sessions) => set_level(client, request),
            (method, _) => Err(RpcError::unknown_method(method)),
        })
    }

    fn initialize(&self, client: &Client, request: &Request<'_>) -> String {
        // What changes from here on is told, whenever the client begins to listen.
        client.told.replace(self.version(client));
        let asked = Params::text(request.params.protocol_version);
        let spoken = SESSION_VERSIONS.into_iter().find(|version| asked.as_deref() == Some(version));
        let mut result = json!({
            "protocolVersion": spoken.unwrap_or(SESSION_VERSIONS[0]),
            "capabilities": capabilities(),
            "serverInfo": self.server_info(),
        });
        self.add_instructions(&mut result, &client.endpoint);
        result.to_string()
    }

    fn discover(&self, endpoint: &Endpoint) -> String {
        let supported: &[&str] = match endpoint {
            Endpoint::Inject => &SESSION_VERSIONS,
            _ => &ALL_VERSIONS,
        };
        let mut result = json!({
            "resultType": "complete",
            "supportedVersions": supported,
            "capabilities": capabilities(),
            "ttlMs": self.fresh(),
            "cacheScope": "private",
            "_meta": {meta::SERVER_INFO: self.server_info()},
        });
        self.add_instructions(&mut result, endpoint);
        result.to_string()
    }

    fn add_instructions(&self, result: &mut Value, endpoint: &Endpoint) {
        let instructions = self.instructions(endpoint);
        if !instructions.is_empty() {
            result["instructions"] = Value::from(&*instructions);
        }
    }

    /// Does what takes a while: the result as JSON. What is heard meanwhile goes into the outbox.
    pub(crate) async fn work(&self, work: Work, outbox: &Arc<Outbox>) -> Result<String, RpcError> {
        match work {
            Work::Call(call) => self.call(*call, outbox).await,
            Work::List(client, era) => {
                let mut patience = self.patience();
                loop {
                    patience.look();
                    if !self.awaits(&client.endpoint) || !patience.again().await {
                        return Ok(self.tools_list(&client, era));
                    }
                }
            }
        }
    }

    /// Whether an endpoint has nothing to show before one server has started.
    fn awaits(&self, endpoint: &Endpoint) -> bool {
        match endpoint {
            Endpoint::Server(server) => self.group_of(server).is_some_and(|id| self.starts(&id)),
            _ => false,
        }
    }

    fn tools_list(&self, client: &Client, era: Era) -> String {
        let ledger = (client.endpoint == Endpoint::Inject).then(|| client.conversation(self));
        let tools = self.list(&client.endpoint, ledger.as_ref());
        match era {
            Era::Sessions => format!(r#"{{"tools":{tools}}}"#),
            Era::Stateless => format!(
                r#"{{"resultType":"complete","tools":{tools},"ttlMs":{},"cacheScope":"private","_meta":{}}}"#,
                self.fresh(),
                json!({meta::SERVER_INFO: self.server_info()}),
            ),
        }
    }

    fn fresh(&self) -> u64 {
        if self.is_starting() { FRESH_AT_START } else { FRESH }
    }

    fn server_info(&self) -> Value {
        let options = self.options();
        let mut info = json!({"name": options.name, "version": options.version});
        if let Some(title) = &options.title {
            info["title"] = Value::from(title.as_str());
        }
        info
    }
}

fn has_cursor(request: &Request<'_>) -> bool {
    request.params.cursor.is_some_and(|cursor| cursor.get() != "null")
}

fn capabilities() -> Value {
    json!({"tools": {"listChanged": true}})
}

fn set_level(client: &Client, request: &Request<'_>) -> Result<String, RpcError> {
    let level = Params::text(request.params.level);
    let mildest = level.as_deref().and_then(severity);
    client.set_logs(mildest.ok_or_else(|| RpcError::invalid_params("Unknown log level"))?);
    Ok("{}".to_owned())
}

fn filter(request: &Request<'_>) -> Filter {
    let asked = request.params.notifications.and_then(|raw| Fields::parse(raw.get()));
    let wants = |name: &str| asked.as_ref().and_then(|fields| fields.read(name)).unwrap_or(false);
    Filter { tools_list_changed: wants("toolsListChanged") }
}

/// A response, around a result that is JSON already.
pub(crate) fn respond(id: &Id, result: Result<String, RpcError>) -> String {
    match result {
        Ok(result) => {
            let id = serde_json::to_string(id).unwrap_or_default();
            let mut text = String::with_capacity(result.len() + id.len() + 36);
            text.push_str(r#"{"jsonrpc":"2.0","id":"#);
            text.push_str(&id);
            text.push_str(r#","result":"#);
            text.push_str(&result);
            text.push('}');
            text
        }
        Err(error) => toolcrib_wire::failure(Some(id), &error),
    }
}
