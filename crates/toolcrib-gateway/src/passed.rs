//! What is no call of a tool, passed on to the server it is for.

use std::sync::Arc;

use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_core::{GroupId, ToolName};
use toolcrib_runtime::{
    AskError, Caller, Eras, Kind as ResultKind, Offers, Question, Server, ToolResult, aside,
};
use toolcrib_wire::{Era, Fields, RpcError, code, error_in_era, result_in_era};

use crate::behalf::{Behalf, is_callers};
use crate::client::Client;
use crate::gateway::server_name;
use crate::methods::{Reply, Work};
use crate::offers::{Form, Kind, List, Lost, Place, Table};
use crate::outbox::Outbox;
use crate::pages::Cursor;
use crate::request::{Params, Request};
use crate::tasks::is_anybody;
use crate::{Endpoint, Gateway, limits};

/// Something asked that is no call of a tool.
pub(crate) struct Asked {
    behalf: Behalf,
    inquiry: Inquiry,
}

/// What is asked.
struct Inquiry {
    client: Arc<Client>,
    era: Era,
    method: String,
    /// With what, but for `_meta` and the answers to earlier questions.
    params: Option<Arc<RawValue>>,
}

/// What a request is about, which says whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Subject {
    Resource,
    Prompt,
    /// A prompt or a template, to be completed.
    Reference,
    Task,
}

impl Subject {
    fn of(method: &str) -> Option<Self> {
        match method {
            "resources/read" | "resources/subscribe" | "resources/unsubscribe" => {
                Some(Self::Resource)
            }
            "prompts/get" => Some(Self::Prompt),
            "completion/complete" => Some(Self::Reference),
            "tasks/get" | "tasks/result" | "tasks/update" | "tasks/cancel" => Some(Self::Task),
            _ => None,
        }
    }
}

/// Whether a server may be asked with a method as it stands. What concerns the connection is not
/// its affair, and whatever else might call tools would pass by what callers may call.
fn may_pass(method: &str, era: Era) -> bool {
    let sessions_only = ["resources/subscribe", "resources/unsubscribe"];
    let ours =
        ["initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel"];
    !(ours.contains(&method)
        || method.starts_with("tools/")
        || era == Era::Stateless && sessions_only.contains(&method))
}

impl Asked {
    fn read(client: &Arc<Client>, request: &Request<'_>) -> Result<Self, RpcError> {
        let params = request.params.whole.map(|whole| {
            let is_ours = |name: &str| is_callers(request, name);
            let mut fields = Fields::parse(whole.get()).unwrap_or_default();
            if !fields.names().any(is_ours) {
                return whole.to_owned();
            }
            fields.retain(|name| !is_ours(name));
            fields.to_raw()
        });
        let (client, era) = (client.clone(), request.era);
        let method = request.method.clone().into_owned();
        let behalf = Behalf::read(&client, request)?;
        let inquiry = Inquiry { client, era, method, params: params.map(Arc::from) };
        Ok(Self { behalf, inquiry })
    }

    pub(crate) fn behalf(&self) -> &Behalf {
        &self.behalf
    }
}

impl Inquiry {
    fn fields(&self) -> Fields<'_> {
        self.params.as_ref().and_then(|raw| Fields::parse(raw.get())).unwrap_or_default()
    }

    /// A parameter that must be a text.
    fn text(&self, name: &str) -> Result<String, RpcError> {
        let text = self.fields().read::<String>(name);
        text.ok_or_else(|| RpcError::invalid_params(format!("`{name}` must be a string")))
    }
}

impl Gateway {
    /// Says how to answer a request that is not for the gateway itself.
    pub(crate) fn pass(&self, client: &Arc<Client>, request: &Request<'_>) -> Reply {
        let method = &*request.method;
        let is_known = match client.endpoint {
            Endpoint::Server(_) => true,
            _ => self.is_offered(client, request),
        };
        if !is_known || !may_pass(method, request.era) {
            return Reply::Now(Err(RpcError::unknown_method(method)));
        }
        match (&client.endpoint, Kind::of(method)) {
            (Endpoint::Server(_), _) | (_, None) => match Asked::read(client, request) {
                Ok(asked) => Reply::Later(Work::Ask(Box::new(asked))),
                Err(error) => Reply::Now(Err(error)),
            },
            (endpoint, Some(kind)) => {
                let table = self.table(&client.seat);
                let list = table.list(kind, endpoint);
                let cursor = request.params.cursor;
                Reply::Now(self.page_of(client, (kind, list), cursor, request.era))
            }
        }
    }

    /// Whether any of several servers may have an answer to a request.
    fn is_offered(&self, client: &Client, request: &Request<'_>) -> bool {
        let method = &*request.method;
        let needed = match (Kind::of(method), Subject::of(method)) {
            (_, Some(Subject::Task)) => return true,
            (None, None) => return false,
            (_, Some(Subject::Reference)) => "completions",
            (Some(Kind::Prompts), _) | (_, Some(Subject::Prompt)) => "prompts",
            _ => "resources",
        };
        let declared = self.capabilities(client, request.era);
        Fields::parse(declared.get()).is_some_and(|declared| declared.get(needed).is_some())
    }

    /// Asks the server that a request is for: its result as JSON. What is heard meanwhile goes
    /// into the outbox.
    pub(crate) async fn ask(
        &self,
        asked: Asked,
        place: Option<limits::Place>,
        outbox: &Arc<Outbox>,
    ) -> Result<String, RpcError> {
        let Asked { behalf, inquiry } = asked;
        let gateway = self.clone();
        let work = |caller| async move { gateway.inquire(inquiry, caller).await };
        self.attend(behalf, place, outbox, work).await
    }

    async fn inquire(&self, inquiry: Inquiry, caller: Caller) -> Result<String, RpcError> {
        let (client, method, era) = (&inquiry.client, &*inquiry.method, inquiry.era);
        if method == "resources/subscribe" {
            self.follow(client, caller.party(), &client.follows, &inquiry.text("uri")?).await?;
            return Ok("{}".to_owned());
        }
        if method == "resources/unsubscribe" {
            client.follows.forget(&inquiry.text("uri")?);
            return Ok("{}".to_owned());
        }
        let (place, params) = self.whose(&inquiry).await?;
        let toolset = self.crib().toolset(&place.id);
        let server = toolset.as_ref().and_then(|toolset| toolset.server());
        let server = server.ok_or_else(|| RpcError::unknown_method(method))?;
        self.check_task(&inquiry, &place)?;
        if let Some(kind) = Kind::of(method)
            && let Some(page) = self.known_page(&inquiry, kind, server)
        {
            return page;
        }
        let question = Question { method: method.into(), params, caller };
        tracing::debug!(server = &*place.server, method, "asked");
        match server.ask(question).await {
            Ok(result) => {
                let mut result = Box::<str>::from(result).into_string();
                if method == "tasks/list" {
                    let name = server_name(&place.id);
                    let own = self.tasks().own_of(&client.seat, name, &result);
                    result = own.unwrap_or(result);
                }
                let (bytes, method) = (result.len(), method.to_owned());
                let adapt = move || {
                    let result = result_in_era(&method, result, era)?;
                    Ok(match place.form {
                        Form::Own => result,
                        Form::Crib => renamed(Subject::of(&method), &place.server, result),
                    })
                };
                aside(bytes, adapt).await
            }
            Err(AskError::Refused(error)) => Err(error_in_era(method, error, era)),
            Err(AskError::Unreachable(reason)) => {
                tracing::warn!(server = &*place.server, method, reason, "not answered");
                Err(RpcError::new(code::INTERNAL_ERROR, reason))
            }
        }
    }

    /// Fails if a request is about a task that another caller began: as if there were none.
    fn check_task(&self, inquiry: &Inquiry, place: &Place) -> Result<(), RpcError> {
        let seat = &inquiry.client.seat;
        let is_about_one = inquiry.method.starts_with("tasks/") && inquiry.method != "tasks/list";
        if !is_about_one || is_anybody(seat) {
            return Ok(());
        }
        let asked = inquiry.text("taskId")?;
        let own = match place.form {
            Form::Own => &asked,
            Form::Crib => &place.own,
        };
        // Of two names the server may go by the other.
        let once = inquiry.fields().names().filter(|name| *name == "taskId").count() == 1;
        match once && self.tasks().is_of(seat, server_name(&place.id), own) {
            true => Ok(()),
            false => Err(Lost::Unknown.into_error("taskId", &asked, inquiry.era)),
        }
    }

    /// The result of a call: a task in it is the caller's from now on.
    pub(crate) fn of_call(
        &self,
        client: &Client,
        tool: &ToolName,
        result: ToolResult,
    ) -> ToolResult {
        if let Some(server) = tool.server()
            && let Some(task) = task_of(&result)
        {
            self.tasks().begin(&client.seat, server, &task);
        }
        of_call(&client.endpoint, tool, result)
    }

    /// Whether a server may say more of itself in the stateless era than is known of it.
    pub(crate) fn may_say_more(&self, client: &Client) -> bool {
        match &client.endpoint {
            Endpoint::Server(server) => {
                let offers = self.offers_of(&client.seat, server);
                offers.is_some_and(|offers| offers.eras.stateless != Some(false))
            }
            _ => false,
        }
    }

    /// Asks the one server of an endpoint what it can do, and says what is known if it can't be.
    pub(crate) async fn ask_of_itself(
        &self,
        behalf: Behalf,
        place: Option<limits::Place>,
        outbox: &Arc<Outbox>,
    ) -> Result<String, RpcError> {
        let (gateway, client) = (self.clone(), behalf.client().clone());
        let work = |caller| async move {
            let own = gateway.said_of_itself(&client, caller).await;
            Ok(gateway.discover(&client, own.as_ref()))
        };
        self.attend(behalf, place, outbox, work).await
    }

    async fn said_of_itself(&self, client: &Client, caller: Caller) -> Option<Offers> {
        let Endpoint::Server(server) = &client.endpoint else { return None };
        let toolset = self.crib().toolset(&self.group_of(&client.seat, server)?)?;
        let question = Question { caller, ..Question::new("server/discover", None) };
        let said = toolset.server()?.ask(question).await.ok()?;
        let said = Fields::parse(said.get())?;
        let capabilities = said.get("capabilities")?.to_owned();
        let eras = Eras { sessions: None, stateless: Some(true) };
        Some(Offers { capabilities: Some(capabilities.into()), eras, ..Offers::default() })
    }

    /// Whose a request is, and its parameters in the words of that server.
    async fn whose(&self, inquiry: &Inquiry) -> Result<(Place, Option<Arc<RawValue>>), RpcError> {
        let client = &inquiry.client;
        if let Endpoint::Server(server) = &client.endpoint {
            let id = self.group_of(&client.seat, server);
            let id = id.ok_or_else(|| RpcError::unknown_method(&inquiry.method))?;
            return Ok((own_place(id, server, ""), inquiry.params.clone()));
        }
        let mut fields = inquiry.fields();
        let subject = Subject::of(&inquiry.method);
        let (key, name) = match subject {
            Some(Subject::Resource) => ("uri", inquiry.text("uri")?),
            Some(Subject::Prompt) => ("name", inquiry.text("name")?),
            Some(Subject::Task) => ("taskId", inquiry.text("taskId")?),
            Some(Subject::Reference) => {
                let whole = fields.get("ref").map(ToOwned::to_owned);
                let whole = whole.as_ref().and_then(|raw| Fields::parse(raw.get()));
                let mut inner = whole.unwrap_or_default();
                let key = if inner.get("uri").is_some() { "uri" } else { "name" };
                let Some(name) = inner.read::<String>(key) else {
                    let text = "`ref` must name a prompt or the uri of a resource";
                    return Err(RpcError::invalid_params(text));
                };
                let find = |table: &Table| match key {
                    "uri" => table.template(&name),
                    _ => table.prompt(&name),
                };
                let place = self.find_place(inquiry, key, &name, find).await?;
                inner.set(key, &place.own);
                fields.set("ref", &inner);
                return Ok((place, Some(fields.to_raw().into())));
            }
            None => return Err(RpcError::unknown_method(&inquiry.method)),
        };
        let find = |table: &Table| match subject {
            Some(Subject::Resource) => table.resource(&name),
            Some(Subject::Task) => table.task(&name),
            _ => table.prompt(&name),
        };
        let place = self.find_place(inquiry, key, &name, find).await?;
        fields.set(key, &place.own);
        Ok((place, Some(fields.to_raw().into())))
    }

    /// Looks for something, perhaps for a while.
    async fn find_place(
        &self,
        inquiry: &Inquiry,
        key: &str,
        name: &str,
        find: impl Fn(&Table) -> Result<Place, Lost>,
    ) -> Result<Place, RpcError> {
        let found = self.look(&inquiry.client, find).await;
        found.map_err(|lost| lost.into_error(key, name, inquiry.era))
    }

    async fn look(
        &self,
        client: &Client,
        find: impl Fn(&Table) -> Result<Place, Lost>,
    ) -> Result<Place, Lost> {
        let mut patience = self.patience(&client.seat);
        loop {
            patience.look();
            let found = find(&self.table(&client.seat));
            if found != Err(Lost::Unknown) || !patience.again().await {
                return found;
            }
        }
    }

    /// Whose resource a client means.
    pub(crate) async fn resource_of(&self, client: &Client, uri: &str) -> Result<Place, Lost> {
        match &client.endpoint {
            Endpoint::Server(server) => {
                let id = self.group_of(&client.seat, server).ok_or(Lost::Unknown)?;
                Ok(own_place(id, server, uri))
            }
            _ => self.look(client, |table| table.resource(uri)).await,
        }
    }

    /// A page of what is known of a server that does not run, so that it need not be started to
    /// be listed. `None` if it has to be inquiry.
    fn known_page(
        &self,
        inquiry: &Inquiry,
        kind: Kind,
        server: &dyn Server,
    ) -> Option<Result<String, RpcError>> {
        let offers: Arc<Offers> = server.offers();
        let mut fields = inquiry.fields();
        let cursor = fields.remove("cursor").filter(|cursor| cursor.get() != "null");
        let given = cursor.as_deref().map(|raw| Params::text(Some(raw)));
        let given = given.map(|text| text.and_then(|text| Cursor::parse(&text)));
        if offers.capabilities.is_none() || !fields.is_empty() || given == Some(None) {
            return None;
        }
        let list = List::own(kind, &offers);
        let goes_on = given.flatten().is_some_and(|cursor| cursor.is_of(list.hash));
        let runs = server.health().connections > 0;
        (goes_on || !runs)
            .then(|| self.page_of(&inquiry.client, (kind, &list), cursor.as_deref(), inquiry.era))
    }
}

fn own_place(id: GroupId, server: &str, own: &str) -> Place {
    Place { id, server: server.into(), own: own.to_owned(), form: Form::Own }
}

impl Lost {
    /// What a client is told who asked for `name`, given as the parameter `key`.
    pub(crate) fn into_error(self, key: &str, name: &str, era: Era) -> RpcError {
        let short: String = name.chars().take(200).collect();
        match (self, key) {
            (Self::Several(names), _) => {
                let text =
                    format!("Several servers have `{short}`. Ask for one of: {}", names.join(", "));
                RpcError::invalid_params(text).with_data(&json!({"candidates": names}))
            }
            (Self::Unknown, "uri") => {
                let code = match era {
                    Era::Sessions => code::RESOURCE_NOT_FOUND,
                    Era::Stateless => code::INVALID_PARAMS,
                };
                let text = format!("Resource not found: {short}");
                RpcError::new(code, text).with_data(&json!({"uri": name}))
            }
            (Self::Unknown, "taskId") => RpcError::invalid_params(format!("Unknown task: {short}")),
            (Self::Unknown, _) => RpcError::invalid_params(format!("Unknown prompt: {short}")),
        }
    }
}

/// A server's result where there are several servers: what is named in it is named as it was
/// asked for.
fn renamed(subject: Option<Subject>, server: &str, result: String) -> String {
    let again = match subject {
        Some(Subject::Resource) => with_uris(server, &result),
        Some(Subject::Task) => with_task(server, &result),
        _ => None,
    };
    again.unwrap_or(result)
}

fn with_uris(server: &str, result: &str) -> Option<String> {
    let mut fields = Fields::parse(result)?;
    let mut contents: Vec<Fields<'_>> = serde_json::from_str(fields.get("contents")?.get()).ok()?;
    for content in &mut contents {
        if let Some(own) = content.read::<String>("uri") {
            content.set("uri", &Form::Crib.write(server, &own));
        }
    }
    let contents = serde_json::value::to_raw_value(&contents).ok()?;
    fields.set("contents", &contents);
    Some(fields.to_text())
}

/// The result of a call where there are several servers: a task is named with its server.
fn of_call(endpoint: &Endpoint, tool: &ToolName, result: ToolResult) -> ToolResult {
    let is_renamed = !matches!(endpoint, Endpoint::Server(_)) && result.kind() == ResultKind::Task;
    let server = tool.server().filter(|_| is_renamed);
    let renamed = server.and_then(|server| with_task(server, result.json().get()));
    match renamed.and_then(|text| RawValue::from_string(text).ok()) {
        Some(renamed) => ToolResult::from_json(renamed),
        None => result,
    }
}

/// The task that a call's result is, as its server names it.
fn task_of(result: &ToolResult) -> Option<String> {
    if result.kind() != ResultKind::Task {
        return None;
    }
    let fields = Fields::parse(result.json().get())?;
    let inner = || Fields::parse(fields.get("task")?.get())?.read("taskId");
    fields.read("taskId").or_else(inner)
}

/// A result or a notification whose task is named with its server; `None` if it names none.
pub(crate) fn with_task(server: &str, json: &str) -> Option<String> {
    let mut fields = Fields::parse(json)?;
    if let Some(own) = fields.read::<String>("taskId") {
        fields.set("taskId", &format!("{server}:{own}"));
    } else {
        let inner = fields.get("task")?.to_owned();
        let mut inner = Fields::parse(inner.get())?;
        let own = inner.read::<String>("taskId")?;
        inner.set("taskId", &format!("{server}:{own}"));
        let inner = inner.to_raw();
        fields.set("task", &inner);
    }
    Some(fields.to_text())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_is_named_with_its_server_where_there_are_several() {
        let named = |endpoint: &Endpoint, json: &str| {
            let result = ToolResult::from_json(RawValue::from_string(json.to_owned()).unwrap());
            let tool = ToolName::mcp("git", "log");
            of_call(endpoint, &tool, result).json().get().to_owned()
        };
        let new = r#"{"resultType":"task","taskId":"7","x":1.0}"#;
        let old = r#"{"task":{"taskId":"7"}}"#;
        let none = r#"{"content":[],"task":{"taskId":"7"}, "taskId":"7"}"#;
        assert_eq!(
            named(&Endpoint::Full, new),
            r#"{"resultType":"task","taskId":"git:7","x":1.0}"#
        );
        assert_eq!(named(&Endpoint::Meta, old), r#"{"task":{"taskId":"git:7"}}"#);
        assert_eq!(named(&Endpoint::Meta, none), none);
        assert_eq!(named(&Endpoint::Server("git".to_owned()), new), new);
    }

    #[test]
    fn only_names_change_in_a_result() {
        let read =
            r#"{ "contents":[{"uri":"a:b","n":1e3},{"text":"x"}],"v":12345678901234567890 }"#;
        let expected = r#"{"contents":[{"uri":"crib://my%20s/a:b","n":1e3},{"text":"x"}],"v":12345678901234567890}"#;
        let renamed = |subject, json: &'static str| renamed(Some(subject), "my s", json.into());
        assert_eq!(renamed(Subject::Resource, read), expected);
        assert_eq!(
            renamed(Subject::Task, r#"{"taskId":"7","x":1.0}"#),
            r#"{"taskId":"my s:7","x":1.0}"#
        );
        assert_eq!(
            renamed(Subject::Task, r#"{"task":{"taskId":"7","x":1.0}}"#),
            r#"{"task":{"taskId":"my s:7","x":1.0}}"#
        );
        for (subject, odd) in [
            (Subject::Resource, r#"{"contents":7}"#),
            (Subject::Resource, "[]"),
            (Subject::Task, r#"{"task":[]}"#),
            (Subject::Prompt, r#"{ "name":"x" }"#),
        ] {
            assert_eq!(renamed(subject, odd), odd);
        }
    }
}
