//! `POST`: one message, and its answer.

use std::borrow::Cow;
use std::sync::Arc;

use axum::body::to_bytes;
use axum::extract::Request as HttpRequest;
use axum::http::header::{ACCEPT, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::Response;
use serde_json::value::RawValue;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::timeout;
use toolcrib_wire::version::header;
use toolcrib_wire::{Era, Id, Message, RpcError, code, failure};

use super::guard::{Admitted, Visitor};
use super::params::{self, decoded};
use super::sessions::Visit;
use super::{Http, empty, json, refusal, resume, stream};
use crate::Endpoint;
use crate::client::Client;
use crate::limits::TooMany;
use crate::methods::{Reply, respond, version_of};
use crate::outbox::{Framing, Outbox};
use crate::request::{Params, Request};
use crate::seat::Seat;

impl Http {
    pub(super) async fn post(
        self: &Arc<Self>,
        endpoint: Endpoint,
        admitted: Admitted,
        request: HttpRequest,
    ) -> Response {
        let Ok(permit) = self.room.clone().try_acquire_owned() else { return too_busy() };
        let (head, body) = request.into_parts();
        let headers = head.headers;
        if !is_json(&headers) {
            return empty(StatusCode::UNSUPPORTED_MEDIA_TYPE);
        }
        let most = self.options.body_bytes;
        let announced = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok());
        let announced = announced.and_then(|length| length.parse::<usize>().ok());
        if announced.is_some_and(|length| length > most) {
            return too_large(most);
        }
        let bytes = match timeout(self.options.body_limit, to_bytes(body, most)).await {
            Ok(Ok(bytes)) => bytes,
            Ok(Err(_)) => return too_large(most),
            Err(_) => return empty(StatusCode::REQUEST_TIMEOUT),
        };
        let Ok(text) = std::str::from_utf8(&bytes) else {
            let error = RpcError::new(code::PARSE_ERROR, "The body is not UTF-8");
            return refusal(StatusCode::BAD_REQUEST, &error);
        };
        match Message::parse(text) {
            Ok(Message::Request { id, method, params }) => {
                self.request(endpoint, admitted, &headers, permit, (id, method, params)).await
            }
            Ok(Message::Notification { method, params }) => {
                self.told(&endpoint, &admitted.seat, &headers, |client| {
                    self.gateway.notified(client, &method, params);
                })
            }
            Ok(Message::Response { id, outcome }) => {
                self.told(&endpoint, &admitted.seat, &headers, |client| {
                    client.answered(id.as_ref(), outcome);
                })
            }
            Err(malformed) => {
                let message = failure(malformed.id.as_ref(), &malformed.error);
                json(StatusCode::BAD_REQUEST, message)
            }
        }
    }

    /// Takes in what wants no answer.
    fn told(
        &self,
        endpoint: &Endpoint,
        visitor: &Seat,
        headers: &HeaderMap,
        take: impl FnOnce(&Client),
    ) -> Response {
        // In the stateless era there is none to take part in a session.
        if !headers.contains_key(header::SESSION_ID) {
            return empty(StatusCode::ACCEPTED);
        }
        match self.session(endpoint, visitor, headers) {
            Ok(session) => {
                take(session.client());
                empty(StatusCode::ACCEPTED)
            }
            Err((status, error)) => refusal(status, &error),
        }
    }

    async fn request(
        self: &Arc<Self>,
        endpoint: Endpoint,
        admitted: Admitted,
        headers: &HeaderMap,
        permit: OwnedSemaphorePermit,
        (id, method, params): (Id, Cow<'_, str>, Option<&RawValue>),
    ) -> Response {
        let expired = admitted.expired();
        let visitor = admitted.seat;
        let version = headers.get(header::PROTOCOL_VERSION);
        let version = version.map(|value| value.to_str().unwrap_or_default());
        let request = match Request::read(id, method, params, version) {
            Ok(request) => request,
            Err((id, error)) => return json(StatusCode::BAD_REQUEST, failure(Some(&id), &error)),
        };
        if request.era == Era::Stateless {
            let checked = check_headers(headers, &request)
                .and_then(|()| self.check_params(&visitor, &endpoint, headers, &request));
            if let Err(error) = checked {
                return json(StatusCode::BAD_REQUEST, failure(Some(&request.id), &error));
            }
            let client = Arc::new(Client::new(visitor, endpoint, 1));
            return self.stateless(&client, headers, permit, &request, expired).await;
        }
        if request.method == "initialize" {
            return self.initialize(endpoint, visitor, &request);
        }
        let session = match self.session(&endpoint, &visitor, headers) {
            Ok(session) => session,
            Err((status, error)) => return json(status, failure(Some(&request.id), &error)),
        };
        self.in_session(session, headers, permit, &request).await
    }

    /// What headers repeat of a call's arguments must agree with them, as far as the tool is known.
    fn check_params(
        &self,
        visitor: &Seat,
        endpoint: &Endpoint,
        headers: &HeaderMap,
        request: &Request<'_>,
    ) -> Result<(), RpcError> {
        let name = Params::text(request.params.name).filter(|_| request.method == "tools/call");
        let Some(tool) = name.and_then(|name| self.gateway.tool_at(visitor, endpoint, &name))
        else {
            return Ok(());
        };
        let schema = tool.spec().input_schema().get();
        let is_shown = matches!(endpoint, Endpoint::Full | Endpoint::Server(_));
        params::check(headers, schema, request.params.arguments, is_shown)
    }

    fn initialize(&self, endpoint: Endpoint, visitor: Visitor, request: &Request<'_>) -> Response {
        let version = version_of(request);
        let Some(session) = self.sessions.open(endpoint, visitor, version) else {
            return too_busy();
        };
        let Reply::Now(result) = self.gateway.answer(session.client(), request) else {
            return empty(StatusCode::INTERNAL_SERVER_ERROR);
        };
        let mut response = json(StatusCode::OK, respond(&request.id, result));
        if let Ok(id) = HeaderValue::from_str(session.id()) {
            response.headers_mut().insert(header::SESSION_ID, id);
        }
        response
    }

    /// Answers by itself; whoever stops listening cancels. Nobody listens longer than until they
    /// have `expired`.
    async fn stateless(
        &self,
        client: &Arc<Client>,
        headers: &HeaderMap,
        permit: OwnedSemaphorePermit,
        request: &Request<'_>,
        expired: impl Future<Output = ()> + Send + 'static,
    ) -> Response {
        let id = request.id.clone();
        let gateway = self.gateway.clone();
        let keep_alive = self.options.keep_alive;
        let outbox = Arc::new(Outbox::new(Framing::Events));
        let told = outbox.clone();
        match self.gateway.answer(client, request) {
            Reply::Now(result) => {
                let (status, message) = answer_of(&id, result);
                json(status, message)
            }
            Reply::Later(work) => {
                let place = match gateway.enter(client, &work) {
                    Ok(place) => place,
                    Err(too_many) => return self.turn_away(&id, &too_many),
                };
                outbox.expect(work.held());
                let work = async move {
                    let result = gateway.work(work, place, &told).await;
                    drop(permit);
                    Some(answer_of(&id, result))
                };
                stream::answer(Box::pin(work), outbox, accepts_events(headers), keep_alive).await
            }
            Reply::Listen(filter) => {
                if !accepts_events(headers) {
                    return empty(StatusCode::NOT_ACCEPTABLE);
                }
                let (client, closing) = (client.clone(), self.closing.subscribe());
                let work = async move {
                    let result = tokio::select! {
                        result = gateway.listen(&client, &id, filter, &told, closing) => result,
                        () = expired => return None,
                    };
                    drop(permit);
                    Some(answer_of(&id, Ok(result)))
                };
                stream::events(Box::pin(work), outbox, keep_alive)
            }
        }
    }

    /// Answers within a session. Work goes on if nobody listens: to stop listening is not to
    /// cancel here, and who comes back finds what was said.
    async fn in_session(
        &self,
        session: Visit,
        headers: &HeaderMap,
        permit: OwnedSemaphorePermit,
        request: &Request<'_>,
    ) -> Response {
        let id = request.id.clone();
        let client = session.client().clone();
        let work = match self.gateway.answer(&client, request) {
            Reply::Now(result) => return json(StatusCode::OK, respond(&id, result)),
            Reply::Later(work) => work,
            Reply::Listen(_) => return empty(StatusCode::INTERNAL_SERVER_ERROR),
        };
        let place = match self.gateway.enter(&client, &work) {
            Ok(place) => place,
            Err(too_many) => return self.turn_away(&id, &too_many),
        };
        let takes_events = accepts_events(headers);
        let (answering, ending) = resume::begin(session, takes_events);
        answering.outbox().expect(work.held());
        let (gateway, told) = (self.gateway.clone(), answering.outbox().clone());
        let work = async move {
            let result = gateway.work(work, place, &told).await;
            drop(permit);
            result
        };
        if let Err(error) = client.start(id.clone(), work, |answer| ending.with(answer)) {
            return json(StatusCode::OK, failure(Some(&id), &error));
        }
        answering.respond(self.options.keep_alive).await
    }
}

impl Http {
    /// Answers a caller who asks for too much.
    fn turn_away(&self, id: &Id, too_many: &TooMany) -> Response {
        self.gateway.metrics().turned_away();
        let message = failure(Some(id), &too_many.error());
        let mut response = json(StatusCode::TOO_MANY_REQUESTS, message);
        let seconds = too_many.wait.as_secs_f64().ceil().max(1.0) as u64;
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
        response
    }
}

/// A response of the stateless era, with its HTTP status.
fn answer_of(id: &Id, result: Result<String, RpcError>) -> (StatusCode, String) {
    let status = result.as_ref().map_or_else(status_of, |_| StatusCode::OK);
    (status, respond(id, result))
}

/// The HTTP status of an error in the stateless era.
fn status_of(error: &RpcError) -> StatusCode {
    match error.code {
        code::METHOD_NOT_FOUND => StatusCode::NOT_FOUND,
        code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH | code::MISSING_CAPABILITY => {
            StatusCode::BAD_REQUEST
        }
        _ => StatusCode::OK,
    }
}

/// What headers repeat of the body must agree with it: others on the way go by the headers.
fn check_headers(headers: &HeaderMap, request: &Request<'_>) -> Result<(), RpcError> {
    let mismatch = |text: String| Err(RpcError::new(code::HEADER_MISMATCH, text));
    let params = &request.params;
    let subject = match &*request.method {
        "tools/call" | "prompts/get" => Some(params.name),
        "resources/read" => Some(params.uri),
        "tasks/get" | "tasks/update" | "tasks/cancel" => Some(params.task_id),
        _ => None,
    };
    let named = subject.map(|_| header::NAME);
    for name in [header::PROTOCOL_VERSION, header::METHOD].into_iter().chain(named) {
        let mut values = headers.get_all(name).iter();
        // Of two, somebody on the way may have read the other.
        let (Some(value), None) = (values.next(), values.next()) else {
            return mismatch(format!("Header mismatch: {name} must be there once"));
        };
        let body = match name {
            header::METHOD => Some(Cow::Borrowed(&*request.method)),
            header::NAME => Params::text(subject.flatten()),
            // It was compared when the request was read.
            _ => continue,
        };
        let given = value.to_str().ok().and_then(decoded);
        if given.is_none() || given != body {
            return mismatch(format!("Header mismatch: {name} is not what the body says"));
        }
    }
    Ok(())
}

/// Whether the client reads streams of events.
pub(super) fn accepts_events(headers: &HeaderMap) -> bool {
    let mut accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.any(|value| value.contains("text/event-stream") || value.contains("*/*"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

fn too_busy() -> Response {
    let mut response = empty(StatusCode::SERVICE_UNAVAILABLE);
    response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    response
}

fn too_large(most: usize) -> Response {
    let text = format!("The body has more than {most} bytes");
    refusal(StatusCode::PAYLOAD_TOO_LARGE, &RpcError::new(code::INVALID_REQUEST, text))
}
