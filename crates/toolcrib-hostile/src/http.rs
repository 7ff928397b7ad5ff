//! Any number of clients over streamable HTTP, on the loopback.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Request as HttpRequest, State};
use axum::http::header::{CONTENT_TYPE, LOCATION};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use axum::response::Response;
use axum::routing::any;
use futures::stream;
use hyper::server::conn::http1;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use toolcrib_wire::version::header::SESSION_ID;
use toolcrib_wire::{Era, Message, RpcError, code, failure};

use crate::Error;
use crate::catalog::Kind;
use crate::script::{Act, Script, Stage, To, stretch};
use crate::server::{Request, Server, Step};

/// Bytes of a request, at most.
const MOST_BODY: usize = 64 << 20;

/// What is said of a session that there isn't.
pub(crate) const NO_SESSION: &str = "There is no such session: begin with `initialize`";

struct Web {
    server: Arc<Server>,
    sessions: Mutex<BTreeSet<String>>,
    /// Sessions begun so far.
    begun: AtomicU64,
}

/// Serves for ever. The address is printed on standard output.
pub(crate) async fn serve(server: Arc<Server>, port: u16) -> Result<(), Error> {
    let listen = |source| Error::Listen { port, source };
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await.map_err(listen)?;
    let address = listener.local_addr().map_err(listen)?;
    let _ = writeln!(io::stdout(), "http://{address}/mcp");
    let web = Web { server, sessions: Mutex::default(), begun: AtomicU64::new(0) };
    let router = Router::new().route("/mcp", any(handle)).with_state(Arc::new(web));
    let service = TowerToHyperService::new(router);
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Too many files are open, say: others will be closed.
            tokio::time::sleep(Duration::from_millis(50)).await;
            continue;
        };
        let _ = stream.set_nodelay(true);
        let connection =
            http1::Builder::new().serve_connection(TokioIo::new(stream), service.clone());
        tokio::spawn(async move {
            // Whoever breaks off knows why.
            let _ = connection.await;
        });
    }
}

async fn handle(State(web): State<Arc<Web>>, request: HttpRequest) -> Response {
    match *request.method() {
        Method::POST => web.post(request).await,
        Method::GET => match web.session(request.headers()) {
            Some(Err(())) | None => no_session(),
            Some(Ok(_)) => web.begin(web.server.news(), true),
        },
        Method::DELETE => match web.session(request.headers()) {
            Some(Ok(session)) => {
                if web.server.strikes(Kind::HangAtShutdown) {
                    web.server.outlast().await;
                }
                web.sessions().remove(&session);
                empty(StatusCode::NO_CONTENT)
            }
            _ => no_session(),
        },
        _ => empty(StatusCode::METHOD_NOT_ALLOWED),
    }
}

impl Web {
    async fn post(&self, request: HttpRequest) -> Response {
        let session = self.session(request.headers());
        if session == Some(Err(())) {
            return no_session();
        }
        let session = session.and_then(Result::ok);
        let Ok(body) = to_bytes(request.into_body(), MOST_BODY).await else {
            return empty(StatusCode::PAYLOAD_TOO_LARGE);
        };
        let text = String::from_utf8_lossy(&body);
        match Message::parse(&text) {
            Ok(Message::Request { id, method, params }) => {
                let request = Request::new(id, &method, params.map(|raw| raw.get()));
                self.answer(&request, session).await
            }
            Ok(Message::Notification { method, .. }) => {
                let script = self.server.hear(&method);
                if script.acts.is_empty() {
                    empty(StatusCode::ACCEPTED)
                } else {
                    self.perform(script, false).await
                }
            }
            Ok(Message::Response { .. }) => empty(StatusCode::ACCEPTED),
            Err(malformed) => {
                let message = failure(malformed.id.as_ref(), &malformed.error);
                typed(StatusCode::BAD_REQUEST, "application/json", message)
            }
        }
    }

    async fn answer(&self, request: &Request, session: Option<String>) -> Response {
        let script = self.server.answer(request);
        if let Some(session) = session.filter(|_| script.head.forgets) {
            self.sessions().remove(&session);
        }
        let has_begun = request.step == Step::Initialize && request.era == Era::Sessions;
        let is_stream = request.step == Step::Listen;
        let mut response = self.perform(script, is_stream).await;
        if has_begun && self.server.only != Some(Era::Stateless) {
            let number = self.begun.fetch_add(1, Ordering::Relaxed) + 1;
            // Of another process, it would be another session.
            let session = format!("hostile-{}-{number}", std::process::id());
            if let Ok(value) = HeaderValue::from_str(&session) {
                response.headers_mut().insert(HeaderName::from_static(SESSION_ID), value);
            }
            self.sessions().insert(session);
        }
        response
    }

    /// Performs a script; what it writes is the body. One that begins with silence never gets as
    /// far as a status.
    async fn perform(&self, script: Script, is_stream: bool) -> Response {
        if let Some(Act::Never) = script.acts.first() {
            return std::future::pending().await;
        }
        let is_stream = is_stream || self.server.events || script.needs_stream();
        self.begin(script, is_stream)
    }

    /// Begins to perform a script.
    fn begin(&self, script: Script, is_stream: bool) -> Response {
        let Script { head, mut acts } = script;
        let body = match acts.pop() {
            Some(Act::Say(text)) if acts.is_empty() && !is_stream => Body::from(text),
            Some(Act::Stretch(text, megabytes)) if acts.is_empty() && !is_stream => {
                Body::from(stretch(&text, megabytes))
            }
            last => {
                acts.extend(last);
                self.body(acts, is_stream)
            }
        };
        let failed = StatusCode::INTERNAL_SERVER_ERROR;
        let status = head.status.map(|status| StatusCode::from_u16(status).unwrap_or(failed));
        let usual = if is_stream { "text/event-stream" } else { "application/json" };
        let mut response = typed(status.unwrap_or(StatusCode::OK), usual, body);
        let odd = [(CONTENT_TYPE, head.content_type), (LOCATION, head.location)];
        for (name, value) in odd {
            if let Some(value) = value.and_then(|value| HeaderValue::from_str(&value).ok()) {
                response.headers_mut().insert(name, value);
            }
        }
        response
    }

    fn body(&self, acts: Vec<Act>, is_stream: bool) -> Body {
        let (chunks, written) = mpsc::channel(4);
        let stage = Stage { to: To::Body { chunks, is_stream }, cancelled: Arc::default() };
        let server = self.server.clone();
        tokio::spawn(async move {
            // Whoever left misses the rest.
            let _ = stage.perform(&server, acts).await;
        });
        Body::from_stream(stream::unfold(written, |mut written| async {
            written.recv().await.map(|chunk| (chunk, written))
        }))
    }

    /// The session that a request names, or an error if there is no such session.
    fn session(&self, headers: &HeaderMap) -> Option<Result<String, ()>> {
        let named = headers.get(SESSION_ID)?.to_str().unwrap_or_default();
        Some(if self.sessions().contains(named) { Ok(named.to_owned()) } else { Err(()) })
    }

    fn sessions(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_session() -> Response {
    let error = RpcError::new(code::INVALID_REQUEST, NO_SESSION);
    typed(StatusCode::NOT_FOUND, "application/json", failure(None, &error))
}

fn empty(status: StatusCode) -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    response
}

fn typed(status: StatusCode, kind: &'static str, body: impl Into<Body>) -> Response {
    let mut response = Response::new(body.into());
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}
