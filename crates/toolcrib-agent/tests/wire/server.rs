//! A server that speaks a provider's API: it keeps what it is sent, and answers what it was told
//! to, unless the request breaks a rule of the API.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use futures::stream;
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::answer::{Answer, Saying};
use crate::api::Api;
use crate::rules;

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
    /// Requests that were refused as the script says.
    refused: Vec<String>,
    /// What was wrong with requests that were refused for what they are.
    broken: Vec<String>,
    /// How many calls each conversation has had.
    calls: BTreeMap<&'static str, usize>,
}

/// What will be answered.
struct Step {
    api: Api,
    conversation: &'static str,
    name: &'static str,
    reaction: Reaction,
}

enum Reaction {
    Say(Vec<Saying>),
    /// With this reason.
    Refuse(&'static str),
}

/// A request, with what was answered.
#[derive(Clone)]
pub(crate) struct Exchange {
    pub(crate) api: Api,
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
        Self::open(api, Arc::default()).await
    }

    /// Another server that goes by the same script.
    pub(crate) async fn beside(&self, api: Api) -> Self {
        Self::open(api, self.kept.clone()).await
    }

    async fn open(api: Api, kept: Arc<Mutex<Kept>>) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let base = format!("http://{}", listener.local_addr().unwrap());
        let server = Self { api, base, kept };
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
        let reaction = Reaction::Say(said);
        kept.script.push_back(Step { api: self.api, conversation, name, reaction });
    }

    /// Refuses a further request.
    pub(crate) fn refuse(&self, reason: &'static str) {
        let (conversation, name, reaction) = ("main", "refusal", Reaction::Refuse(reason));
        let step = Step { api: self.api, conversation, name, reaction };
        self.kept.lock().unwrap().script.push_back(step);
    }

    /// Everything that was asked and answered, once all of it was.
    pub(crate) fn exchanges(&self) -> Vec<Exchange> {
        let kept = self.kept.lock().unwrap();
        assert_eq!(kept.broken, [""; 0], "what the API would have refused");
        let left: Vec<&str> = kept.script.iter().map(|step| step.name).collect();
        assert!(left.is_empty(), "never asked for: {left:?}");
        kept.exchanges.clone()
    }

    /// The requests that were refused as the script says.
    pub(crate) fn refused(&self) -> Vec<String> {
        self.kept.lock().unwrap().refused.clone()
    }

    fn take(&self, path: &str, headers: &HeaderMap, body: &[u8]) -> Result<String, String> {
        let body = String::from_utf8(body.to_vec()).map_err(|error| error.to_string())?;
        let asked: Value = serde_json::from_str(&body).map_err(|error| error.to_string())?;
        // What belongs to the connection differs from run to run.
        let of_connection = ["host", "content-length", "user-agent", "accept-encoding"];
        let mut headers: Vec<(String, String)> = headers
            .iter()
            .filter(|(name, _)| !of_connection.contains(&name.as_str()))
            .map(|(name, value)| (name.to_string(), value.to_str().unwrap_or("?").to_owned()))
            .collect();
        headers.sort();
        let mut kept = self.kept.lock().unwrap();
        if let Some(reason) = rules::broken(self.api, &asked, &headers) {
            kept.broken.push(format!("{reason}: {body}"));
            return Err(reason);
        }
        let is_next = kept.script.front().is_some_and(|step| step.api == self.api);
        let step = if is_next { kept.script.pop_front() } else { None };
        let Some(Step { api, conversation, name, reaction }) = step else {
            kept.broken.push(format!("nothing was to be asked here: {body}"));
            return Err("nothing was to be asked here".to_owned());
        };
        let said = match reaction {
            Reaction::Say(said) => said,
            Reaction::Refuse(reason) => {
                kept.refused.push(body);
                return Err(reason.to_owned());
            }
        };
        let earlier = kept.exchanges.iter().filter(|it| it.conversation == conversation);
        let number = first(conversation) + earlier.count() + 1;
        let answer = Arc::new(Answer { number, asked, said });
        let stream = self.api.write(&answer);
        kept.exchanges.push(Exchange {
            api,
            conversation,
            step: name,
            path: path.to_owned(),
            headers,
            body,
            answer,
            stream: stream.clone(),
        });
        Ok(stream)
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
        Ok(text) => {
            // Networks cut where they like.
            let chunks: Vec<Result<Bytes, Infallible>> =
                text.as_bytes().chunks(61).map(|chunk| Ok(Bytes::copy_from_slice(chunk))).collect();
            let body = Body::from_stream(stream::iter(chunks));
            ([("content-type", server.api.content_type())], body).into_response()
        }
        Err(reason) => {
            let error = json!({"type": "invalid_request_error", "message": reason});
            let body = match server.api {
                Api::Anthropic => json!({"type": "error", "error": error}),
                Api::OpenAiResponses | Api::OpenAiChat => json!({"error": error}),
                Api::Ollama => json!({"error": reason}),
            };
            let json = [("content-type", "application/json")];
            (StatusCode::BAD_REQUEST, json, body.to_string()).into_response()
        }
    }
}
