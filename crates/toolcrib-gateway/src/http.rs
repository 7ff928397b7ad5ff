//! Any number of clients over streamable HTTP.

mod bearer;
mod guard;
mod keys;
mod params;
mod post;
mod resume;
mod serve;
mod sessions;
mod stream;

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Path, Request, State};
use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_REQUEST_HEADERS, ALLOW, CONTENT_TYPE, HeaderMap,
    VARY,
};
use axum::http::{HeaderValue, Method, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{any, get};
use futures::FutureExt;
use tokio::sync::{Semaphore, watch};
use toolcrib_wire::version::SESSION_VERSIONS;
use toolcrib_wire::version::header::{PROTOCOL_VERSION, SESSION_ID};
use toolcrib_wire::{Era, RpcError, code, failure};

use crate::options::HttpOptions;
use crate::request::unsupported;
use crate::seat::Seat;
use crate::watch::closed;
use crate::{Endpoint, Gateway};
use guard::{Admitted, Guard};
use resume::Resumed;
use sessions::{Sessions, Visit};

/// What an endpoint may be asked with.
const METHODS: &str = "GET, POST, DELETE";

/// What the handlers share.
struct Http {
    gateway: Gateway,
    options: HttpOptions,
    guard: Guard,
    sessions: Sessions,
    /// As many permits as requests may run.
    room: Arc<Semaphore>,
    closing: watch::Sender<bool>,
}

impl Gateway {
    /// The endpoints as a router, to be served or nested by an embedding program. It guards
    /// itself as `options` say; connection limits are the server's.
    pub fn router(&self, options: HttpOptions) -> Router {
        router(Arc::new(Http::new(self.clone(), options)))
    }
}

fn router(http: Arc<Http>) -> Router {
    let endpoint = |endpoint: Endpoint| {
        any(move |State(http): State<Arc<Http>>, request: Request| async move {
            http.serve(endpoint, request).await
        })
    };
    let server = |State(http): State<Arc<Http>>, Path(server): Path<String>, request: Request| async move {
        http.serve(Endpoint::Server(server), request).await
    };
    Router::new()
        .route("/mcp", endpoint(Endpoint::Meta))
        .route("/mcp/full", endpoint(Endpoint::Full))
        .route("/mcp/inject", endpoint(Endpoint::Inject))
        .route("/mcp/s/{server}", any(server))
        .route(bearer::METADATA, get(Http::metadata))
        .route(&format!("{}/{{*path}}", bearer::METADATA), get(Http::metadata))
        .route("/healthz", get(|| async { text(StatusCode::OK, "ok\n") }))
        .route("/readyz", get(Http::ready))
        .route("/metrics", get(Http::metrics))
        .route("/servers", get(Http::servers))
        .with_state(http)
}

impl Http {
    fn new(gateway: Gateway, options: HttpOptions) -> Self {
        Self {
            guard: Guard::new(&options, gateway.seat()),
            sessions: Sessions::new(&options, gateway.clone()),
            room: Arc::new(Semaphore::new(options.requests_in_flight.min(Semaphore::MAX_PERMITS))),
            closing: watch::Sender::new(false),
            gateway,
            options,
        }
    }

    async fn serve(self: Arc<Self>, endpoint: Endpoint, request: Request) -> Response {
        let reader = self.guard.reader(request.headers());
        let asked = request.headers().get(ACCESS_CONTROL_REQUEST_HEADERS).cloned();
        let mut response = match *request.method() {
            Method::OPTIONS => match self.guard.admit_page(request.headers()) {
                Ok(()) => empty(StatusCode::NO_CONTENT),
                Err(response) => *response,
            },
            _ => self.answer(endpoint, request).await,
        };
        if let Some(origin) = reader {
            let headers = response.headers_mut();
            headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
            headers.insert(VARY, HeaderValue::from_static("origin"));
            let shown = HeaderValue::from_static("mcp-session-id, www-authenticate");
            headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, shown);
            headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static(METHODS));
            // The page is trusted, and which headers a tool wants is not known here.
            if let Some(asked) = asked {
                headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, asked);
            }
        }
        response
    }

    async fn answer(self: &Arc<Self>, endpoint: Endpoint, request: Request) -> Response {
        // A body can't be shared between threads, so it is put aside while the token is checked.
        let (head, body) = request.into_parts();
        let admitted = match self.guard.admit(&head.headers, head.uri.path()).await {
            Ok(admitted) => admitted,
            Err(response) => return *response,
        };
        let visitor = &admitted.seat;
        let request = Request::from_parts(head, body);
        if let Err(error) = self.gateway.check(visitor, &endpoint) {
            let error = RpcError::new(code::INVALID_REQUEST, error.to_string());
            return refusal(StatusCode::NOT_FOUND, &error);
        }
        match *request.method() {
            Method::POST => self.post(endpoint, admitted, request).await,
            Method::GET => self.notices(&endpoint, &admitted, request.headers()),
            Method::DELETE => match self.session(&endpoint, visitor, request.headers()) {
                Ok(session) => {
                    self.sessions.end(session.id());
                    empty(StatusCode::NO_CONTENT)
                }
                Err((status, error)) => refusal(status, &error),
            },
            _ => {
                let mut response = empty(StatusCode::METHOD_NOT_ALLOWED);
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(METHODS));
                response
            }
        }
    }

    /// The session a request names.
    fn session(
        &self,
        endpoint: &Endpoint,
        visitor: &Seat,
        headers: &HeaderMap,
    ) -> Result<Visit, (StatusCode, RpcError)> {
        let refused = |status, text: &str| (status, RpcError::new(code::INVALID_REQUEST, text));
        let Some(id) = headers.get(SESSION_ID) else {
            let text = "Mcp-Session-Id is missing: begin with `initialize`";
            return Err(refused(StatusCode::BAD_REQUEST, text));
        };
        let version = headers.get(PROTOCOL_VERSION).map(|value| value.to_str().unwrap_or_default());
        if let Some(version) = version.filter(|version| Era::of(version) != Some(Era::Sessions)) {
            return Err((StatusCode::BAD_REQUEST, unsupported(version, &SESSION_VERSIONS)));
        }
        let found = id.to_str().ok().and_then(|id| self.sessions.find(id, endpoint, visitor));
        found.ok_or_else(|| {
            let text = "There is no such session: begin with `initialize`";
            refused(StatusCode::NOT_FOUND, text)
        })
    }

    /// `GET`: what happens outside any request of a session's, or the rest of a stream that broke.
    fn notices(&self, endpoint: &Endpoint, admitted: &Admitted, headers: &HeaderMap) -> Response {
        let session = match self.session(endpoint, &admitted.seat, headers) {
            Ok(session) => session,
            Err((status, error)) => return refusal(status, &error),
        };
        if !post::accepts_events(headers) {
            return empty(StatusCode::NOT_ACCEPTABLE);
        }
        let keep_alive = self.options.keep_alive;
        let (first, reading) = match resume::resume(&session, headers) {
            Ok(Resumed::Answer(first, reading)) => {
                let expired = admitted.expired().map(|()| None);
                return stream::events_after(first, Box::pin(expired), reading, keep_alive);
            }
            Ok(Resumed::Notices(first, reading)) => (first, reading),
            Err((status, error)) => return refusal(status, &error),
        };
        session.client().open_notices(reading.outbox());
        let (gateway, told) = (self.gateway.clone(), reading.outbox().clone());
        let (closing, expired) = (self.closing.subscribe(), admitted.expired());
        let work = async move {
            let client = session.client();
            tokio::select! {
                () = gateway.tell_changes(client, &told) => {}
                () = closed(closing) => {}
                () = expired => {}
            }
            None
        };
        stream::events_after(first, Box::pin(work), reading, keep_alive)
    }

    async fn ready(State(http): State<Arc<Self>>, headers: HeaderMap) -> Response {
        if http.gateway.starting().is_empty() {
            return text(StatusCode::OK, "ready\n");
        }
        // Whoever may not call need not know which servers there are.
        let which = match http.guard.admit(&headers, "/mcp").await {
            Ok(admitted) => match http.gateway.starting_for(&admitted.seat) {
                starting if starting.is_empty() => "starting\n".to_owned(),
                starting => format!("starting: {}\n", starting.join(", ")),
            },
            Err(_) => "starting\n".to_owned(),
        };
        text(StatusCode::SERVICE_UNAVAILABLE, which)
    }

    /// What tokens must say to be let in. Whoever is to get one has none yet, so all may read it.
    async fn metadata(State(http): State<Arc<Self>>, uri: Uri) -> Response {
        let options = http.gateway.options();
        let name = options.title.as_deref().unwrap_or(&options.name);
        let path = uri.path().strip_prefix(bearer::METADATA).unwrap_or_default();
        let is_endpoint = path.is_empty() || path == "/mcp" || path.starts_with("/mcp/");
        let found = http.guard.bearer().filter(|_| is_endpoint);
        let Some(metadata) = found.and_then(|bearer| bearer.metadata(path, name)) else {
            return empty(StatusCode::NOT_FOUND);
        };
        let mut response = json(StatusCode::OK, metadata.to_string());
        let anybody = HeaderValue::from_static("*");
        response.headers_mut().insert(ACCESS_CONTROL_ALLOW_ORIGIN, anybody);
        response
    }

    /// How the servers are doing that a caller may know of.
    async fn servers(State(http): State<Arc<Self>>, headers: HeaderMap) -> Response {
        match http.guard.admit(&headers, "/mcp").await {
            Ok(admitted) => json(StatusCode::OK, http.gateway.servers_for(&admitted.seat)),
            Err(response) => *response,
        }
    }

    async fn metrics(State(http): State<Arc<Self>>, headers: HeaderMap) -> Response {
        match http.guard.admit(&headers, "/mcp").await {
            // They name tools of all callers.
            Ok(admitted) if !admitted.seat.sees_as(http.gateway.seat()) => {
                return text(StatusCode::FORBIDDEN, "These are for callers with all tools\n");
            }
            Ok(_) => {}
            Err(response) => return *response,
        }
        http.gateway.metrics().set_sessions(http.sessions.len());
        let mut response = text(StatusCode::OK, http.gateway.metrics_text());
        let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
        response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
        response
    }
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn text(status: StatusCode, text: impl Into<Body>) -> Response {
    typed(status, "text/plain; charset=utf-8", text)
}

fn json(status: StatusCode, message: impl Into<Body>) -> Response {
    typed(status, "application/json", message)
}

fn typed(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// An error that answers no request in particular.
fn refusal(status: StatusCode, error: &RpcError) -> Response {
    json(status, failure(None, error))
}
