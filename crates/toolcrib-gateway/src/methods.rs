//! One function for each method.

use std::fmt::Write;
use std::sync::Arc;

use serde_json::value::RawValue;
use serde_json::{Value, json};
use toolcrib_core::GroupId;
use toolcrib_runtime::{Offers, Party};
use toolcrib_wire::version::{SESSION_VERSIONS, STATELESS_VERSION, meta};
use toolcrib_wire::{Era, Fields, Id, RpcError};

use crate::behalf::{Behalf, stateless_party};
use crate::call::ToolCall;
use crate::client::Client;
use crate::follows::MOST_FOLLOWED;
use crate::held::Held;
use crate::limits::{Place, TooMany};
use crate::offers::{Kind, List};
use crate::outbox::{MOST_EVENT_HEAD, Outbox};
use crate::pages::page;
use crate::passed::Asked;
use crate::relay::severity;
use crate::request::{ALL_VERSIONS, Params, Request, unsupported};
use crate::seat::Seat;
use crate::{Endpoint, Gateway, declared};

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
    /// A question that is a server's to answer.
    Ask(Box<Asked>),
    /// What one server says of itself.
    Discover(Box<Behalf>),
}

impl Work {
    /// The room that its answer will take.
    pub(crate) fn held(&self) -> Held {
        match self {
            Self::Call(call) => call.behalf().held().clone(),
            Self::Ask(asked) => asked.behalf().held().clone(),
            Self::Discover(behalf) => behalf.held().clone(),
            Self::List(..) => Held::default(),
        }
    }
}

/// What a client wants to be told of, as far as there is anything to tell.
#[derive(Clone, Debug, Default)]
pub(crate) struct Filter {
    pub(crate) tools_list_changed: bool,
    pub(crate) prompts_list_changed: bool,
    pub(crate) resources_list_changed: bool,
    /// Resources to be followed.
    pub(crate) uris: Vec<String>,
    /// Who wants it, where that is no session.
    pub(crate) party: Option<Arc<Party>>,
}

impl Filter {
    /// All lists.
    pub(crate) fn lists() -> Self {
        Self {
            tools_list_changed: true,
            prompts_list_changed: true,
            resources_list_changed: true,
            uris: Vec::new(),
            party: None,
        }
    }

    /// What is wanted of the lists, by the names clients use.
    pub(crate) fn named(&self) -> [(&'static str, bool); 3] {
        [
            ("toolsListChanged", self.tools_list_changed),
            ("promptsListChanged", self.prompts_list_changed),
            ("resourcesListChanged", self.resources_list_changed),
        ]
    }
}

/// How long a list may be taken for the truth, in milliseconds.
const FRESH: u64 = 60_000;

/// The same while servers are starting.
const FRESH_AT_START: u64 = 1_000;

/// Notifications of a client's that concern every server.
const FOR_ALL: [&str; 2] = ["notifications/roots/list_changed", "notifications/progress"];

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
                false if self.awaits(client) => {
                    return Reply::Later(Work::List(client.clone(), era));
                }
                false => Ok(self.tools_list(client, era)),
            },
            ("server/discover", Era::Stateless) if self.may_say_more(client) => {
                match Behalf::read(client, request) {
                    Ok(behalf) => return Reply::Later(Work::Discover(Box::new(behalf))),
                    Err(error) => Err(error),
                }
            }
            ("server/discover", _) => Ok(self.discover(client, None)),
            ("subscriptions/listen", Era::Stateless) => {
                return Reply::Listen(self.filter(client, request));
            }
            ("initialize", Era::Sessions) => self.initialize(client, request),
            ("ping", Era::Sessions) => Ok("{}".to_owned()),
            ("logging/setLevel", Era::Sessions) => set_level(client, request),
            _ => return self.pass(client, request),
        })
    }

    fn initialize(&self, client: &Client, request: &Request<'_>) -> Result<String, RpcError> {
        client.introduce(introduction(client, request))?;
        // What changes from here on is told, whenever the client begins to listen.
        self.note_lists(client, &client.told);
        let mut result = Fields::default();
        result.set("protocolVersion", &version_of(request));
        result.set("capabilities", &self.capabilities(client, Era::Sessions));
        result.set("serverInfo", &self.server_info());
        self.add_instructions(&mut result, client);
        Ok(result.to_text())
    }

    /// What an endpoint says of itself. `own` is what its one server just said, if it was asked.
    pub(crate) fn discover(&self, client: &Client, own: Option<&Offers>) -> String {
        let supported: &[&str] = match client.endpoint {
            Endpoint::Inject => &SESSION_VERSIONS,
            _ => &ALL_VERSIONS,
        };
        let mut result = Fields::default();
        result.set("resultType", &"complete");
        result.set("supportedVersions", &supported);
        let declared = match own {
            Some(own) => declared::own(own, Era::Stateless),
            None => self.capabilities(client, Era::Stateless),
        };
        result.set("capabilities", &declared);
        result.set("ttlMs", &self.fresh(client));
        result.set("cacheScope", &"private");
        result.set("_meta", &json!({meta::SERVER_INFO: self.server_info()}));
        self.add_instructions(&mut result, client);
        result.to_text()
    }

    /// One server's own, whole, where there is but one and nothing of it is hidden: they may be
    /// about any of its tools.
    fn add_instructions(&self, result: &mut Fields<'_>, client: &Client) {
        let own = match &client.endpoint {
            Endpoint::Server(server) if self.shows_all_of(&client.seat, server) => {
                self.offers_of(&client.seat, server)
            }
            _ => None,
        };
        let own = own.and_then(|offers| offers.instructions.clone());
        let instructions = own.unwrap_or_else(|| self.instructions(&client.seat, &client.endpoint));
        if !instructions.is_empty() {
            result.set("instructions", &&*instructions);
        }
    }

    /// Whether a caller may see every tool of a server.
    fn shows_all_of(&self, seat: &Seat, server: &str) -> bool {
        let catalog = self.catalog();
        self.group_of(seat, server).is_some_and(|id| {
            let shown = catalog.view(&seat.policy).tools_in(&id).count();
            shown == catalog.view_all().tools_in(&id).count()
        })
    }

    /// Takes a notification of a client's.
    pub(crate) fn notified(&self, client: &Client, method: &str, params: Option<&RawValue>) {
        match method {
            "notifications/initialized" => {}
            "notifications/cancelled" => {
                let params = Params::parse(params).unwrap_or_default();
                let id = params.request_id.map(|raw| serde_json::from_str::<Id>(raw.get()));
                if let Some(Ok(id)) = id {
                    client.cancel(&id);
                }
            }
            _ => self.pass_on_note(client, method, params),
        }
    }

    /// Passes a notification on to the connections that are the client's own: any at one
    /// server's endpoint, and what concerns every server at the others.
    fn pass_on_note(&self, client: &Client, method: &str, params: Option<&RawValue>) {
        let Some(party) = client.party() else { return };
        let ids: Vec<GroupId> = match &client.endpoint {
            Endpoint::Server(server) => self.group_of(&client.seat, server).into_iter().collect(),
            _ if FOR_ALL.contains(&method) => {
                let table = self.table(&client.seat);
                table.servers().iter().map(|server| server.id.clone()).collect()
            }
            _ => return,
        };
        for toolset in ids.iter().filter_map(|id| self.crib().toolset(id)) {
            if let Some(server) = toolset.server() {
                server.tell(party, method, params);
            }
        }
    }

    /// Takes a place for work. What was begun before has its own already.
    pub(crate) fn enter(&self, client: &Client, work: &Work) -> Result<Option<Place>, TooMany> {
        let goes_on = match work {
            Work::Call(call) => call.behalf().goes_on(),
            Work::Ask(asked) => asked.behalf().goes_on(),
            Work::List(..) | Work::Discover(_) => false,
        };
        if goes_on { Ok(None) } else { client.seat.enter() }
    }

    /// Does what takes a while: the result as JSON. What is heard meanwhile goes into the outbox.
    pub(crate) async fn work(
        &self,
        work: Work,
        place: Option<Place>,
        outbox: &Arc<Outbox>,
    ) -> Result<String, RpcError> {
        match work {
            Work::Call(call) => self.call(*call, place, outbox).await,
            Work::List(client, era) => {
                let mut patience = self.patience(&client.seat);
                loop {
                    patience.look();
                    if !self.awaits(&client) || !patience.again().await {
                        return Ok(self.tools_list(&client, era));
                    }
                }
            }
            Work::Ask(asked) => self.ask(*asked, place, outbox).await,
            Work::Discover(behalf) => self.ask_of_itself(*behalf, place, outbox).await,
        }
    }

    /// Whether an endpoint has nothing to show before one server has started.
    fn awaits(&self, client: &Client) -> bool {
        let group = |server| self.group_of(&client.seat, server);
        match &client.endpoint {
            Endpoint::Server(server) => group(server).is_some_and(|id| self.starts(&id)),
            _ => false,
        }
    }

    /// What a client wants to hear of, as far as there can be anything to hear.
    fn filter(&self, client: &Client, request: &Request<'_>) -> Filter {
        let asked = request.params.notifications.and_then(|raw| Fields::parse(raw.get()));
        let asked = asked.unwrap_or_default();
        let declared = self.capabilities(client, request.era);
        let declared = Fields::parse(declared.get()).unwrap_or_default();
        let wants =
            |name: &str, of: &str| declared.get(of).is_some() && asked.read(name).unwrap_or(false);
        let uris: Vec<Value> = asked.read("resourceSubscriptions").unwrap_or_default();
        let uris = uris.into_iter().filter_map(|uri| uri.as_str().map(ToOwned::to_owned));
        Filter {
            tools_list_changed: wants("toolsListChanged", "tools"),
            prompts_list_changed: wants("promptsListChanged", "prompts"),
            resources_list_changed: wants("resourcesListChanged", "resources"),
            uris: uris.take(MOST_FOLLOWED).collect(),
            party: Some(stateless_party(client, request)),
        }
    }

    /// A page of a list.
    pub(crate) fn page_of(
        &self,
        client: &Client,
        (kind, list): (Kind, &List),
        cursor: Option<&RawValue>,
        era: Era,
    ) -> Result<String, RpcError> {
        let page = page(cursor, list.entries.len(), list.hash, self.options().page_size)?;
        let entries = list.entries[page.from..page.to].join(",");
        let mut out = format!(r#"{{"{}":[{entries}]"#, kind.member());
        if let Some(next) = page.next {
            let _ = write!(out, r#","nextCursor":"{next}""#);
        }
        if era == Era::Stateless {
            let _ = write!(
                out,
                r#","resultType":"complete","ttlMs":{},"cacheScope":"private","_meta":{}"#,
                self.fresh(client),
                json!({meta::SERVER_INFO: self.server_info()}),
            );
        }
        out.push('}');
        Ok(out)
    }

    fn tools_list(&self, client: &Client, era: Era) -> String {
        let ledger = (client.endpoint == Endpoint::Inject).then(|| client.conversation(self));
        let tools = self.list(&client.seat, &client.endpoint, ledger.as_ref());
        match era {
            Era::Sessions => format!(r#"{{"tools":{tools}}}"#),
            Era::Stateless => format!(
                r#"{{"resultType":"complete","tools":{tools},"ttlMs":{},"cacheScope":"private","_meta":{}}}"#,
                self.fresh(client),
                json!({meta::SERVER_INFO: self.server_info()}),
            ),
        }
    }

    fn fresh(&self, client: &Client) -> u64 {
        if self.is_starting(&client.seat) { FRESH_AT_START } else { FRESH }
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

/// The version that a client which introduces itself is spoken to in.
pub(crate) fn version_of(request: &Request<'_>) -> &'static str {
    let asked = Params::text(request.params.protocol_version);
    let spoken = SESSION_VERSIONS.into_iter().find(|version| asked.as_deref() == Some(version));
    spoken.unwrap_or(SESSION_VERSIONS[0])
}

/// Who a client says it is.
fn introduction(client: &Client, request: &Request<'_>) -> Party {
    let params = request.params.whole.and_then(|raw| Fields::parse(raw.get())).unwrap_or_default();
    let own = |name: &str| params.get(name).map(|raw| Arc::from(raw.to_owned()));
    let party =
        Party::new(Era::Sessions, client.principal(), own("capabilities"), own("clientInfo"));
    client.seat.naming(party)
}

fn has_cursor(request: &Request<'_>) -> bool {
    request.params.cursor.is_some_and(|cursor| cursor.get() != "null")
}

fn set_level(client: &Client, request: &Request<'_>) -> Result<String, RpcError> {
    let level = Params::text(request.params.level);
    let mildest = level.as_deref().and_then(severity);
    client.set_logs(mildest.ok_or_else(|| RpcError::invalid_params("Unknown log level"))?);
    Ok("{}".to_owned())
}

/// A response, around a result that is JSON already.
pub(crate) fn respond(id: &Id, result: Result<String, RpcError>) -> String {
    match result {
        Ok(mut result) => {
            let id = serde_json::to_string(id).unwrap_or_default();
            let head = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":"#);
            // A long result is not copied, nor its room doubled; it may become an event.
            result.reserve_exact(head.len() + "}".len() + MOST_EVENT_HEAD);
            result.insert_str(0, &head);
            result.push('}');
            result
        }
        Err(error) => toolcrib_wire::failure(Some(id), &error),
    }
}
