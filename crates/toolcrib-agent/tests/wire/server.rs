//! A server that speaks a provider's API: it keeps what it is sent, and answers what it was told
//! to.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::Value;
use tokio::net::TcpListener;

use crate::answer::{Answer, Saying};
use crate::api::Api;

/// A handle: clones are the same server.
#[derive(Clone)]
pub(crate) struct Server {
    api: Api,
    base: String,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Default)]
struct Kept {
    script: VecDeque<Step>,
    exchanges: Vec<Exchange>,
    /// How many calls each conversation has had.
    calls: BTreeMap<&'static str, usize>,
}

/// What will be answered.
struct Step {
    conversation: &'static str,
    name: &'static str,
    said: Vec<Saying>,
}

/// A request, with what was answered.
#[derive(Clone)]
pub(crate) struct Exchange {
    /// Which conversation it belongs to.
    pub(crate) conversation: &'static str,
    /// What it was answered with.
    pub(crate) step: &'static str,
    pub(crate) path: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
    pub(crate) answer: Arc<Answer>,
    /// The answer as it was sent.
    pub(crate) stream: String,
}

impl Server {
    pub(crate) async fn start(api: Api) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { api, base, kept: Arc::default() };
        let routes = Router::new().fallback(respond).with_state(server.clone());
        tokio::spawn(async move { axum::serve(listener, routes).await });
        server
    }

    pub(crate) fn base(&self) -> &str {
        &self.base
    }

    /// Answers a further request of a conversation. Each counts its calls, a fork from 51 on.
    pub(crate) fn expect(
        &self,
        conversation: &'static str,
        name: &'static str,
        mut said: Vec<Saying>,
    ) {
        let mut kept = self.kept.lock().unwrap();
        let calls = kept.calls.entry(conversation).or_insert(first(conversation));
        for said in &mut said {
            if let Saying::Call { number, .. } = said {
                *calls += 1;
                *number = *calls;
            }
        }
        kept.script.push_back(Step { conversation, name, said });
    }

    /// Everything that was asked, once all of it was.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        let kept = self.kept.lock().unwrap();
        let left: Vec<&str> = kept.script.iter().map(|step| step.name).collect();
        assert!(left.is_empty(), "never asked for: {left:?}");
        kept.exchanges.clone()
    }

    fn take(&self, path: &str, headers: &HeaderMap, body: &[u8]) -> Option<String> {
        let body = String::from_utf8(body.to_vec()).ok()?;
        let asked: Value = serde_json::from_str(&body).ok()?;
        let mut kept = self.kept.lock().unwrap();
        let Step { conversation, name, said } = kept.script.pop_front()?;
        let earlier = kept.exchanges.iter().filter(|it| it.conversation == conversation);
        let number = first(conversation) + earlier.count() + 1;
        let model = asked["model"].as_str()?.to_owned();
        let answer = Arc::new(Answer { number, model, said });
        let stream = self.api.write(&answer);
        // What belongs to the connection differs from run to run.
        let of_connection = ["host", "content-length", "user-agent", "accept-encoding"];
        let mut headers: Vec<(String, String)> = headers
            .iter()
            .filter(|(name, _)| !of_connection.contains(&name.as_str()))
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("?").to_owned()))
            .collect();
        headers.sort();
        kept.exchanges.push(Exchange {
            conversation,
            step: name,
            path: path.to_owned(),
            headers,
            body,
            answer,
            stream: stream.clone(),
        });
        Some(stream)
    }
}

/// A fork has what its parent was answered, and numbers of its own.
fn first(conversation: &str) -> usize {
    if conversation == "fork" { 50 } else { 0 }
}

async fn respond(
    State(server): State<Server>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    match server.take(uri.path(), &headers, &body) {
        Some(text) => {
            // Networks cut where they like.
            let chunks: Vec<Result<Bytes, Infallible>> =
                text.as_bytes().chunks(61).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
            let body = Body::from_stream(stream::iter(chunks));
            ([("content-type", server.api.content_type())], body).into_response()
        }
        None => (StatusCode::BAD_REQUEST, "nothing was to be asked here").into_response(),
    }
}
