//! Where a browser brings the answer of a login: a server on this machine that takes one request.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use reqwest::Url;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::timeout;

const PATH: &str = "/callback";

/// How long a browser may take to ask, once it has connected.
const READ_LIMIT: Duration = Duration::from_secs(10);
const MOST_BYTES: usize = 16 * 1024;

/// Browsers connect more often than they ask.
const MOST_AT_ONCE: usize = 16;

const DONE: &str = "Toolcrib has the answer. You can close this page.";
const ODD: &str = "This is not the answer that was waited for.";

/// A place to send an answer to.
pub(super) struct Callback {
    listener: TcpListener,
    pub(super) uri: String,
}

/// What an authorization server has a browser bring.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) code: Option<String>,
    pub(super) issuer: Option<String>,
    pub(super) error: Option<String>,
    pub(super) description: Option<String>,
    state: Option<String>,
}

impl Callback {
    /// At the port that is asked for, or else at one that was used before if it is free.
    pub(super) async fn bind(fixed: Option<u16>, before: Option<u16>) -> Result<Self, String> {
        let at = |port| TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        let listener = match (fixed, before) {
            (Some(port), _) => at(port).await.map_err(|error| {
                format!("can't listen on port {port} for the answer ({error}); set another `redirect_port`")
            })?,
            (None, Some(port)) => match at(port).await {
                Ok(listener) => listener,
                Err(_) => at(0).await.map_err(|error| error.to_string())?,
            },
            (None, None) => at(0).await.map_err(|error| error.to_string())?,
        };
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        Ok(Self { listener, uri: format!("http://127.0.0.1:{port}{PATH}") })
    }

    /// The port of an address made here.
    pub(super) fn port_of(uri: &str) -> Option<u16> {
        uri.parse::<Url>().ok()?.port()
    }

    /// Waits for the answer to the question with this state. Whatever else comes is turned away:
    /// anybody on this machine can ask here.
    pub(super) async fn answer(self, state: &str) -> Answer {
        let mut asking = JoinSet::new();
        loop {
            tokio::select! {
                Ok((stream, _)) = self.listener.accept(), if asking.len() < MOST_AT_ONCE => {
                    let state = state.to_owned();
                    asking.spawn(async move {
                        timeout(READ_LIMIT, serve(stream, &state)).await.ok().flatten()
                    });
                }
                Some(done) = asking.join_next(), if !asking.is_empty() => {
                    if let Ok(Some(answer)) = done {
                        return answer;
                    }
                }
                else => tokio::time::sleep(Duration::from_millis(20)).await,
            }
        }
    }
}

async fn serve(mut stream: TcpStream, state: &str) -> Option<Answer> {
    let mut head = Vec::new();
    let mut buffer = [0; 2048];
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        let read = stream.read(&mut buffer).await.ok()?;
        head.extend_from_slice(&buffer[..read]);
        if read == 0 || head.len() > MOST_BYTES {
            return None;
        }
    }
    let head = String::from_utf8_lossy(&head);
    let answer = read(&head).filter(|answer| answer.state.as_deref() == Some(state));
    let (status, text) = match answer {
        Some(_) => ("200 OK", DONE),
        None => ("404 Not Found", ODD),
    };
    let page = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nreferrer-policy: no-referrer\r\nconnection: close\r\n\r\n{text}",
        text.len()
    );
    let _ = stream.write_all(page.as_bytes()).await;
    let _ = stream.shutdown().await;
    answer
}

/// The answer in the head of a request.
fn read(head: &str) -> Option<Answer> {
    let target = head.strip_prefix("GET ")?.split(' ').next()?;
    let url = Url::parse("http://127.0.0.1").ok()?.join(target).ok()?;
    if url.path() != PATH || !target.starts_with('/') {
        return None;
    }
    let mut answer = Answer::default();
    for (name, value) in url.query_pairs() {
        let place = match &*name {
            "code" => &mut answer.code,
            "iss" => &mut answer.issuer,
            "error" => &mut answer.error,
            "error_description" => &mut answer.description,
            "state" => &mut answer.state,
            _ => continue,
        };
        // What is said twice is not clear.
        if place.replace(value.into_owned()).is_some() {
            return None;
        }
    }
    Some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn get(uri: &str) -> String {
        let url: Url = uri.parse().unwrap();
        let mut stream = TcpStream::connect(("127.0.0.1", url.port().unwrap())).await.unwrap();
        let target = &uri[uri.find("/callback").or(uri.find("/favicon")).unwrap()..];
        let head = format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).await.unwrap();
        page
    }

    #[tokio::test]
    async fn only_the_answer_with_the_right_state_is_taken() {
        let callback = Callback::bind(None, None).await.unwrap();
        let uri = callback.uri.clone();
        let waiting = tokio::spawn(async move { callback.answer("right").await });
        // A browser that connects and says nothing.
        let _idle =
            TcpStream::connect(("127.0.0.1", Callback::port_of(&uri).unwrap())).await.unwrap();
        for odd in ["?state=wrong&code=a", "?code=a", "", "?state=right&state=right&code=a"] {
            assert!(get(&format!("{uri}{odd}")).await.contains(ODD), "{odd}");
        }
        assert!(get(&uri.replace("callback", "favicon.ico")).await.starts_with("HTTP/1.1 404"));
        let page = get(&format!("{uri}?state=right&code=a%20b&iss=https://i")).await;
        assert!(page.contains(DONE) && !page.contains("a b"), "{page}");
        let answer = waiting.await.unwrap();
        assert_eq!(answer.code.as_deref(), Some("a b"));
        assert_eq!(answer.issuer.as_deref(), Some("https://i"));
    }

    #[tokio::test]
    async fn a_port_that_is_taken_is_only_insisted_on_if_it_was_set() {
        let taken = Callback::bind(None, None).await.unwrap();
        let port = Callback::port_of(&taken.uri);
        assert!(Callback::bind(port, None).await.err().unwrap().contains("redirect_port"));
        assert_ne!(Callback::bind(None, port).await.unwrap().uri, taken.uri);
        let uri = taken.uri.clone();
        drop(taken);
        assert_eq!(Callback::bind(None, port).await.unwrap().uri, uri);
    }
}
