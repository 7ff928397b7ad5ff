//! What is said first, in either era.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_runtime::{Caller, Party};
use toolcrib_wire::version::{SESSION_VERSIONS, STATELESS_VERSION, meta};
use toolcrib_wire::{Era, Fields, RpcError, code};

use crate::connection::{Connection, Failure, Spoken};

/// What a server says of itself.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    pub(crate) version: String,
    pub(crate) server_info: Option<Box<RawValue>>,
    pub(crate) capabilities: Option<Box<RawValue>>,
    pub(crate) instructions: Option<String>,
}

/// What this client calls itself.
pub(crate) fn client_info() -> serde_json::Value {
    json!({"name": "toolcrib", "version": env!("CARGO_PKG_VERSION")})
}

/// Says in the `_meta` of a request who asks and what they can do: the client that is given, or
/// this program, which can do nothing beyond calling.
pub(crate) fn declare(filled: &mut Fields<'_>, party: Option<&Party>) {
    match party.and_then(Party::info) {
        Some(info) => filled.set(meta::CLIENT_INFO, &info),
        None => filled.set(meta::CLIENT_INFO, &client_info()),
    }
    match party.and_then(Party::capabilities) {
        Some(capabilities) => filled.set(meta::CLIENT_CAPABILITIES, &capabilities),
        None => filled.set(meta::CLIENT_CAPABILITIES, &json!({})),
    }
}

/// Agrees with the server on how to speak. The connection is one for the client that is given, if
/// it keeps a session of its own; what it can do is declared, and so it can be asked.
///
/// Unless told, sessions are tried first: nearly every server knows them, and some that don't
/// know `server/discover` never answer it. A server that refuses them is asked in the other way.
pub(crate) async fn greet(
    connection: &Connection,
    era: Option<Era>,
    party: Option<&Party>,
) -> Result<Greeting, Failure> {
    match era {
        Some(Era::Stateless) => discover(connection, party).await,
        Some(Era::Sessions) => initialize(connection, party).await,
        None => match initialize(connection, party).await {
            Err(refusal) if may_be_stateless(&refusal) => {
                discover(connection, party).await.map_err(|_| refusal)
            }
            other => other,
        },
    }
}

/// Whether the refusal of a session may mean that the server has none.
pub(crate) fn may_be_stateless(refusal: &Failure) -> bool {
    match refusal {
        Failure::Refused(error) => [
            code::METHOD_NOT_FOUND,
            code::INVALID_PARAMS,
            code::INVALID_REQUEST,
            code::UNSUPPORTED_VERSION,
            // What 2026-07-28 says of headers that a request with a session does not have.
            code::HEADER_MISMATCH,
        ]
        .contains(&error.code),
        Failure::Denied { status, .. } => [400, 404].contains(status),
        Failure::Unsent(_)
        | Failure::Lost(_)
        | Failure::Unrepeatable(_)
        | Failure::Unread(_)
        | Failure::Late(_) => false,
    }
}

async fn initialize(connection: &Connection, party: Option<&Party>) -> Result<Greeting, Failure> {
    if let Some(party) = party {
        connection.board().expect_questions();
        if party.era() == Era::Sessions {
            connection.board().dedicate();
        }
    }
    let mut params = Fields::default();
    params.set("protocolVersion", &Era::Sessions.newest());
    match party.and_then(Party::capabilities) {
        Some(capabilities) => params.set("capabilities", &capabilities),
        None => params.set("capabilities", &json!({})),
    }
    match party.and_then(Party::info) {
        Some(info) => params.set("clientInfo", &info),
        None => params.set("clientInfo", &client_info()),
    }
    let answer = connection.request("initialize", params, &Caller::default(), None).await?;
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Answer {
        protocol_version: String,
    }
    let version = match serde_json::from_str::<Answer>(answer.get()) {
        Ok(answer) => answer.protocol_version,
        Err(error) => return Err(Failure::Lost(format!("its greeting can't be read: {error}"))),
    };
    if !SESSION_VERSIONS.contains(&&*version) {
        let known = SESSION_VERSIONS.join(", ");
        let reason = format!("it speaks version `{version}` of MCP; known are {known}");
        return Err(Failure::Lost(reason));
    }
    connection.settle(Spoken { era: Era::Sessions, version: version.clone() });
    connection.announce("notifications/initialized").await;
    Ok(greeting(version, &answer))
}

async fn discover(connection: &Connection, party: Option<&Party>) -> Result<Greeting, Failure> {
    let mut declared = Fields::default();
    declared.set(meta::PROTOCOL_VERSION, &STATELESS_VERSION);
    declare(&mut declared, party);
    let mut params = Fields::default();
    params.set("_meta", &declared);
    let nobody = Caller::default();
    let ask = || connection.request("server/discover", params.clone(), &nobody, None);
    let answer = match ask().await {
        // It may say which version to come back with; once is enough.
        Err(Failure::Refused(error)) if names_ours(&error) => ask().await?,
        other => other?,
    };
    let fields = Fields::parse(answer.get()).unwrap_or_default();
    let versions: Vec<String> = fields.read("supportedVersions").unwrap_or_default();
    if !versions.iter().any(|version| version == STATELESS_VERSION) {
        let versions = versions.join(", ");
        let reason = format!("it speaks versions `{versions}` of MCP, not {STATELESS_VERSION}");
        return Err(Failure::Lost(reason));
    }
    let spoken = Spoken { era: Era::Stateless, version: STATELESS_VERSION.to_owned() };
    connection.settle(spoken);
    Ok(greeting(STATELESS_VERSION.to_owned(), &answer))
}

/// Whether a server that refuses a version knows one without sessions that is known here.
fn names_ours(error: &RpcError) -> bool {
    let data = error.data.as_ref().and_then(|data| Fields::parse(data.get()));
    let supported = data.and_then(|data| data.read::<Vec<String>>("supported"));
    error.code == code::UNSUPPORTED_VERSION
        && supported.is_some_and(|versions| versions.iter().any(|it| it == STATELESS_VERSION))
}

fn greeting(version: String, answer: &RawValue) -> Greeting {
    let fields = Fields::parse(answer.get()).unwrap_or_default();
    let meta: Option<Fields<'_>> = fields.get("_meta").and_then(|raw| Fields::parse(raw.get()));
    let info = |fields: &Fields<'_>, key| fields.get(key).map(ToOwned::to_owned);
    Greeting {
        version,
        server_info: info(&fields, "serverInfo")
            .or_else(|| meta.and_then(|meta| info(&meta, meta::SERVER_INFO))),
        capabilities: info(&fields, "capabilities"),
        instructions: fields.read("instructions"),
    }
}
