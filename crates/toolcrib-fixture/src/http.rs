//! Streamable HTTP, in both eras, at `/mcp`.

mod check;
mod log;
mod sessions;

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use futures::{StreamExt, future, stream};
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::AbortHandle;
use toolcrib_wire::version::{SESSION_VERSIONS, header, meta};
use toolcrib_wire::{Era, Message, RpcError, code, event, failure, response};

use crate::caller::{Out, Sent};
use crate::server::{Server, check_meta, unsupported};
use sessions::{Open, Sessions};

/// Serves clients until the listener fails.
pub async fn serve(server: Arc<Server>, listener: TcpListener) -> io::Result<()> {
    let site = Arc::new(Site { server, sessions: Sessions::default() });
    let routes = post(posted).get(got).delete(deleted);
    axum::serve(listener, Router::new().route("/mcp", routes).with_state(site)).await
}

struct Site {
    server: Arc<Server>,
    sessions: Sessions,
}

async fn posted(State(site): State<Arc<Site>>, headers: HeaderMap, body: Bytes) -> Response {
    match site.post(&headers, &body).await {
        Ok(answer) => answer,
        Err(refused) => refused.into_response(),
    }
}

async fn got(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    match site.get(&headers) {
        Ok(stream) => stream,
        Err(refused) => refused.into_response(),
    }
}

async fn deleted(State(site): State<Arc<Site>>, headers: HeaderMap) -> Response {
    match check::local(&headers) {
        Err(refused) => refused.into_response(),
        Ok(()) if site.sessions.close(&headers) => StatusCode::NO_CONTENT.into_response(),
        Ok(()) => StatusCode::NOT_FOUND.into_response(),
    }
}

impl Site {
    async fn post(&self, headers: &HeaderMap, body: &[u8]) -> Result<Response, Refused> {
        check::local(headers)?;
        let text = String::from_utf8_lossy(body);
        let message = match Message::parse(&text) {
            Ok(message) => message,
            Err(malformed) => {
                let text = failure(malformed.id.as_ref(), &malformed.error);
                return Ok(json(StatusCode::BAD_REQUEST, text));
            }
        };
        let eras = self.server.eras;
        if is_stateless(headers, &message) {
            if !eras.has(Era::Stateless) {
                return Err(Refused(StatusCode::BAD_REQUEST, "Unsupported protocol version"));
            }
            return Ok(self.post_stateless(headers, message).await);
        }
        if !eras.has(Era::Sessions) {
            return Ok(no_session(&message));
        }
        match message {
            Message::Request { id, method, params } if method == "initialize" => {
                let (session, result) = self.server.initialize(&value(params));
                let name = self.sessions.open(&self.server, session);
                let mut answer = json(StatusCode::OK, response(&id, &result));
                if let Ok(name) = HeaderValue::from_str(&name) {
                    answer.headers_mut().insert(HeaderName::from_static(header::SESSION_ID), name);
                }
                Ok(answer)
            }
            Message::Request { id, method, params } => {
                let open = self.sessions.find(headers)?;
                let (out, sent) = Out::new();
                let session = open.session.clone();
                let (method, params) = (method.into_owned(), value(params));
                let answering =
                    self.server.clone().answer_session(session, id.clone(), method, params, out);
                let work = tokio::spawn(answering).abort_handle();
                open.session.running.insert(id, work);
                Ok(answer_session(&open, sent).await)
            }
            Message::Notification { method, params } => {
                let open = self.sessions.find(headers)?;
                if method == "notifications/cancelled" {
                    open.session.running.cancel(&value(params));
                }
                Ok(StatusCode::ACCEPTED.into_response())
            }
            Message::Response { id, outcome } => {
                let open = self.sessions.find(headers)?;
                let outcome = outcome.map(|raw| value(Some(raw)));
                let is_known = id.is_some_and(|id| open.session.answered(&id, outcome));
                let status = if is_known { StatusCode::ACCEPTED } else { StatusCode::BAD_REQUEST };
                Ok(status.into_response())
            }
        }
    }

    async fn post_stateless(&self, headers: &HeaderMap, message: Message<'_>) -> Response {
        let Message::Request { id, method, params } = message else {
            return StatusCode::ACCEPTED.into_response();
        };
        let params = value(params);
        // A version nobody knows is told as such only if both places agree on it.
        let checked = check::version(headers, &params)
            .and_then(|()| check_meta(&params))
            .and_then(|()| check::method(headers, &method, &params))
            .and_then(|()| check::arguments(&self.server, headers, &method, &params));
        if let Err(error) = checked {
            return json(StatusCode::BAD_REQUEST, failure(Some(&id), &error));
        }
        let (out, mut sent) = Out::new();
        let answering = self.server.clone().answer_stateless(id, method.into_owned(), params, out);
        // A client that goes away takes its request with it.
        let work = AbortOnDrop(tokio::spawn(answering).abort_handle());
        let first = match sent.recv().await {
            Some(Sent::Answer(text, code)) => return json(status(code), text),
            first => first.and_then(line),
        };
        let rest = stream::unfold((sent, work), |(mut sent, work)| async move {
            Some((line(sent.recv().await?), (sent, work)))
        });
        let all = stream::iter(first).chain(rest.filter_map(future::ready));
        events(Body::from_stream(all.map(Ok::<_, io::Error>)))
    }

    fn get(&self, headers: &HeaderMap) -> Result<Response, Refused> {
        check::local(headers)?;
        let accepts = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
        let is_stateless =
            !headers.contains_key(header::SESSION_ID) || !self.server.eras.has(Era::Sessions);
        if is_stateless || !accepts.is_some_and(|value| value.contains("text/event-stream")) {
            return Err(Refused(StatusCode::METHOD_NOT_ALLOWED, "No such stream"));
        }
        let open = self.sessions.find(headers)?;
        let last = headers.get("last-event-id").and_then(|value| value.to_str().ok());
        let (log, at) = match last {
            None => (open.news.clone(), open.news.delivered()),
            Some(last) => {
                open.resumed(last).ok_or(Refused(StatusCode::NOT_FOUND, "No such event"))?
            }
        };
        Ok(events(Body::from_stream(log.from(at))))
    }
}

/// The era a message is in: that of its version, wherever that stands.
fn is_stateless(headers: &HeaderMap, message: &Message<'_>) -> bool {
    let version = headers.get(header::PROTOCOL_VERSION).and_then(|value| value.to_str().ok());
    let says_so = match message {
        Message::Request { params, .. } => {
            value(*params)["_meta"].get(meta::PROTOCOL_VERSION).is_some()
        }
        _ => false,
    };
    says_so || version.is_some_and(|version| !SESSION_VERSIONS.contains(&version))
}

/// What a server without sessions says to a message that needs one.
fn no_session(message: &Message<'_>) -> Response {
    let Message::Request { id, params, .. } = message else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let version = value(*params)["protocolVersion"].as_str().unwrap_or_default().to_owned();
    json(StatusCode::BAD_REQUEST, failure(Some(id), &unsupported(&version)))
}

/// Plain JSON if the answer is the first that comes, else a stream that can be taken up again.
async fn answer_session(open: &Arc<Open>, mut sent: UnboundedReceiver<Sent>) -> Response {
    let first = match sent.recv().await {
        Some(Sent::Answer(text, _)) => return json(StatusCode::OK, text),
        Some(first) => first,
        // Cancelled: there is nothing to answer.
        None => return StatusCode::ACCEPTED.into_response(),
    };
    let log = open.stream();
    log.push(first);
    tokio::spawn({
        let log = log.clone();
        async move {
            while let Some(next) = sent.recv().await {
                log.push(next);
            }
            log.end();
        }
    });
    events(Body::from_stream(log.from(0)))
}

/// Why a request is not even looked at.
#[derive(Debug)]
struct Refused(StatusCode, &'static str);

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        json(self.0, failure(None, &RpcError::new(code::INVALID_REQUEST, self.1)))
    }
}

struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// What is sent, as an event without an id.
fn line(sent: Sent) -> Option<String> {
    match sent {
        Sent::Open => Some(": open\n\n".into()),
        Sent::Message(text) | Sent::Answer(text, _) => Some(event(None, &text)),
        Sent::Cut => None,
    }
}

/// The status that goes with an error in the stateless era.
fn status(error: Option<i64>) -> StatusCode {
    match error {
        None => StatusCode::OK,
        Some(code::METHOD_NOT_FOUND) => StatusCode::NOT_FOUND,
        Some(code::HEADER_MISMATCH | code::MISSING_CAPABILITY | code::UNSUPPORTED_VERSION) => {
            StatusCode::BAD_REQUEST
        }
        Some(_) => StatusCode::OK,
    }
}

fn value(raw: Option<&serde_json::value::RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}

fn json(status: StatusCode, text: String) -> Response {
    (status, [(CONTENT_TYPE, "application/json")], text).into_response()
}

fn events(body: Body) -> Response {
    ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
}
