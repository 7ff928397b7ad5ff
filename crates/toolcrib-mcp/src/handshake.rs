//! What is said first, in either era.

use serde::Deserialize;
use serde_json::json;
use serde_json::value::RawValue;
use toolcrib_wire::version::{SESSION_VERSIONS, STATELESS_VERSION, meta};
use toolcrib_wire::{Era, Fields, code};

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

/// Agrees with the server on how to speak.
///
/// Unless told, sessions are tried first: nearly every server knows them, and some that don't
/// know `server/discover` never answer it. A server that refuses them is asked in the other way.
pub(crate) async fn greet(connection: &Connection, era: Option<Era>) -> Result<Greeting, Failure> {
    match era {
        Some(Era::Stateless) => discover(connection).await,
        Some(Era::Sessions) => initialize(connection).await,
        None => match initialize(connection).await {
            Err(refusal) if may_be_stateless(&refusal) => {
                discover(connection).await.map_err(|_| refusal)
            }
            other => other,
        },
    }
}

/// Whether the refusal of a session may mean that the server has none.
fn may_be_stateless(refusal: &Failure) -> bool {
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
        Failure::Unsent(_) | Failure::Lost(_) | Failure::Late(_) => false,
    }
}

async fn initialize(connection: &Connection) -> Result<Greeting, Failure> {
    let mut params = Fields::default();
    params.set("protocolVersion", &Era::Sessions.newest());
    params.set("capabilities", &json!({}));
    params.set("clientInfo", &client_info());
    let answer = connection.request("initialize", params, None, None).await?;
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

async fn discover(connection: &Connection) -> Result<Greeting, Failure> {
    let mut params = Fields::default();
    params.set(
        "_meta",
        &json!({
            (meta::PROTOCOL_VERSION): STATELESS_VERSION,
            (meta::CLIENT_INFO): client_info(),
            (meta::CLIENT_CAPABILITIES): {},
        }),
    );
    let answer = connection.request("server/discover", params, None, None).await?;
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
