//! Anthropic's Messages API.

mod request;
mod response;
mod stream;
mod thinking;
mod tools;

use futures::StreamExt;
use futures::stream::{self as streams, BoxStream};
use toolcrib_tokens::Feature;

use super::http::{Access, AccessError, Auth, Exchange, Framing, Http};
use crate::provider::{Delta, Provider, ProviderError, Request};
use request::Written;
use thinking::Refused;

const NAME: &str = "anthropic";
const VERSION: &str = "2023-06-01";

/// What a request must name for tools to come and go in the middle of it.
const TOOL_CHANGES: (&str, &str) = ("anthropic-beta", "mid-conversation-tool-changes-2026-07-01");

/// Models behind the Messages API: Anthropic's own at `https://api.anthropic.com/v1`, or whatever
/// speaks the same at another base URL.
///
/// Thinking, and what the API's own tools did, is kept in the conversation and sent back as it
/// came. If the API refuses thinking because something before it has changed, the request is sent
/// once more without. Prompt caching needs no setting: tools, system prompt and conversation are marked so
/// that each request reads what the one before wrote. A `cache_control` in
/// [`ModelOptions::extra`](crate::ModelOptions::extra) replaces these marks with the API's own, and
/// a null there takes them away.
///
/// Tools that wait are declared with `defer_loading` and given by `tool_reference`; where the
/// model takes them, `tool_addition` and `tool_removal` tell of tools that come and go.
///
/// ```
/// use toolcrib_agent::Provider;
/// use toolcrib_agent::providers::{Access, Anthropic};
///
/// let mut access = Access::default();
/// access.key = Some("sk-ant-example".to_owned());
/// let anthropic = Anthropic::open(access)?;
/// assert_eq!(anthropic.name(), "anthropic");
/// # Ok::<_, toolcrib_agent::providers::AccessError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Anthropic {
    http: Http,
    refused: Refused,
}

impl Anthropic {
    /// Where it is, unless [`Access::base_url`] says otherwise.
    pub const HOME: &'static str = "https://api.anthropic.com/v1";

    /// Takes an address and a key. Nothing is sent yet.
    pub fn open(access: Access) -> Result<Self, AccessError> {
        let fixed = [("anthropic-version", VERSION)];
        let http = Http::open(access, Self::HOME, Auth::Header("x-api-key"), &fixed)?;
        Ok(Self { http, refused: Refused::default() })
    }

    /// Sends a request, without thinking that was refused before.
    fn send(&self, request: &Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let Written { body, changes_tools } = request::write(request, &self.refused);
        let exchange = Exchange {
            path: "messages",
            body,
            framing: Framing::Events,
            refusal: response::refusal,
        };
        let http = self.http.with(changes_tools.then_some(TOOL_CHANGES));
        http.stream(exchange, stream::Answer::default())
    }
}

impl Provider for Anthropic {
    fn name(&self) -> &str {
        NAME
    }

    fn native(&self) -> Option<Feature> {
        Some(Feature::DeferLoading)
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let (this, mut answer) = (self.clone(), self.send(&request));
        let answer = async move {
            let first = answer.next().await;
            match &first {
                Some(Err(error))
                    if response::refuses_thinking(error) && this.refused.take(&request) =>
                {
                    this.send(&request)
                }
                _ => streams::iter(first).chain(answer).boxed(),
            }
        };
        streams::once(answer).flatten().boxed()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use toolcrib_core::ToolChange;

    use super::*;
    use crate::message::{Assistant, Message, Said};
    use crate::provider::Native;

    /// The head of a request in which `read` goes, as it is sent.
    async fn head(headers: &[(&str, &str)], changes: bool) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let access = Access {
            base_url: Some(format!("http://{}", listener.local_addr().unwrap())),
            headers: headers.iter().map(|(name, to)| ((*name).into(), (*to).into())).collect(),
            ..Access::default()
        };
        let gone = ToolChange { removed: vec!["read".into()], ..ToolChange::default() };
        let mut request = Request::new("m", [Message::user("a"), Message::Tools(gone)]);
        let read = r#"{"name":"read","description":"","input_schema":{"type":"object"}}"#;
        request.tools = vec![serde_json::from_str(read).unwrap()];
        request.native = Some(Native { changes, ..Native::default() });
        let mut stream = Anthropic::open(access).unwrap().stream(request);
        let served = async {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut head = String::new();
            while !head.contains("\r\n\r\n") {
                let mut bytes = [0; 4096];
                let read = socket.read(&mut bytes).await.unwrap();
                assert!(read > 0, "{head}");
                head.push_str(&String::from_utf8_lossy(&bytes[..read]));
            }
            let refusal = "HTTP/1.1 400 No\r\nconnection: close\r\n\r\n";
            socket.write_all(refusal.as_bytes()).await.unwrap();
            head.to_lowercase()
        };
        let (head, answer) = futures::join!(served, stream.next());
        assert!(matches!(answer, Some(Err(ProviderError::Rejected(_)))), "{answer:?}");
        head
    }

    #[tokio::test]
    async fn requests_that_change_tools_name_the_beta_beside_those_the_user_named() {
        let beta = "mid-conversation-tool-changes-2026-07-01\r\n";
        let own = ("Anthropic-Beta", "files-api-2025-04-14, context-1m-2025-08-07");
        let plain = head(&[], true).await;
        assert!(plain.contains(&format!("\r\nanthropic-beta: {beta}")), "{plain}");
        let joined = head(&[own], true).await;
        let both = format!("\r\nanthropic-beta: {},{beta}", own.1);
        assert!(joined.contains(&both), "{joined}");
        // Others name it not.
        assert!(!head(&[], false).await.contains("anthropic-beta"));
        let theirs = head(&[own], false).await;
        assert!(theirs.contains(&format!("\r\nanthropic-beta: {}\r\n", own.1)), "{theirs}");
    }

    /// Answers each request in turn, with a status and a body, and gives what was sent.
    async fn serve(listener: &TcpListener, answers: &[(u16, Value)]) -> Vec<Value> {
        let mut bodies = Vec::new();
        for (status, answer) in answers {
            let (mut socket, _) = listener.accept().await.unwrap();
            let mut bytes = Vec::new();
            let body = loop {
                assert!(socket.read_buf(&mut bytes).await.unwrap() > 0);
                let text = String::from_utf8_lossy(&bytes);
                let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
                if let Ok(body) = serde_json::from_str(body) {
                    break body;
                }
            };
            bodies.push(body);
            let answer = answer.to_string();
            let head = format!(
                "HTTP/1.1 {status} So\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\nconnection: close\r\n\r\n{answer}",
                answer.len()
            );
            socket.write_all(head.as_bytes()).await.unwrap();
        }
        bodies
    }

    fn thought(signature: &str) -> Message {
        let json = json!({"type": "thinking", "thinking": "hm", "signature": signature});
        let thinking = Said::Native { provider: NAME.into(), json };
        let text = Said::Text { text: "so".into() };
        Message::Assistant(Assistant { content: vec![thinking, text] })
    }

    fn bound() -> (u16, Value) {
        let message = "messages.1.content.0: Invalid `signature` in `thinking` block. The block is \
            bound to a different conversation. The `tools` differ.";
        (
            400,
            json!({"type": "error", "error": {"type": "invalid_request_error",
            "message": message}}),
        )
    }

    #[tokio::test]
    async fn thinking_that_is_refused_stays_away_and_what_is_thought_later_goes_back() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let base_url = Some(format!("http://{}", listener.local_addr().unwrap()));
        let anthropic = Anthropic::open(Access { base_url, ..Access::default() }).unwrap();
        let ask = async |messages: &[Message], answers: &[(u16, Value)]| {
            let request = Request::new("m", messages.to_vec());
            let answer = anthropic.stream(request).collect::<Vec<_>>();
            let (bodies, mut answer) = futures::join!(serve(&listener, answers), answer);
            let signatures: Vec<Vec<Value>> = bodies
                .iter()
                .map(|body| {
                    let turns = body["messages"].as_array().unwrap().iter();
                    let blocks = turns.flat_map(|turn| turn["content"].as_array().unwrap());
                    blocks.filter_map(|block| block.get("signature").cloned()).collect()
                })
                .collect();
            (signatures, answer.pop().unwrap())
        };
        let said = (
            200,
            json!({"content": [{"type": "text", "text": "b"}], "stop_reason": "end_turn",
                "usage": {}}),
        );
        let none: Vec<Value> = Vec::new();
        let mut messages = vec![Message::user("a"), thought("1"), thought("2"), Message::user("b")];
        let (sent, answer) = ask(&messages, &[bound(), said.clone()]).await;
        assert_eq!(sent, [vec![json!("1"), json!("2")], none.clone()]);
        assert!(matches!(answer, Ok(Delta::Finished(_))), "{answer:?}");
        // What followed was thought without it, and is sent with the first request.
        messages.extend([thought("3"), Message::user("c")]);
        let (sent, answer) = ask(&messages, std::slice::from_ref(&said)).await;
        assert_eq!(sent, [[json!("3")]]);
        assert!(answer.is_ok(), "{answer:?}");
        // Something has changed again.
        let (sent, _) = ask(&messages, &[bound(), said.clone()]).await;
        assert_eq!(sent, [vec![json!("3")], none.clone()]);
        // With nothing left to leave out, or for another reason, it is an error at once.
        let (sent, answer) = ask(&messages, &[bound()]).await;
        assert_eq!(sent, [none]);
        assert!(matches!(answer, Err(ProviderError::Rejected(_))), "{answer:?}");
        messages.push(thought("4"));
        let another = (400, json!({"error": {"message": "thinking: wrong `signature` header"}}));
        let (sent, answer) = ask(&messages, &[another]).await;
        assert_eq!(sent.len(), 1);
        assert!(matches!(answer, Err(ProviderError::Rejected(_))), "{answer:?}");
    }
}
