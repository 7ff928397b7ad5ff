//! Standard input and output, in both eras: one message a line.

use std::io;
use std::sync::Arc;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::JoinSet;
use toolcrib_wire::version::meta;
use toolcrib_wire::{Id, Message, RpcError, code, failure, response};

use crate::caller::{Out, Sent};
use crate::server::{Eras, Server, check_meta, unsupported};
use crate::session::{Running, Session};

/// Serves one client until its input ends.
pub async fn serve(
    server: Arc<Server>,
    input: impl AsyncRead + Unpin,
    output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    let (out, sent) = Out::new();
    let reading = async {
        let mut client = Client {
            server,
            out,
            session: None,
            running: Running::default(),
            work: JoinSet::new(),
        };
        let mut lines = BufReader::new(input).lines();
        while let Some(line) = lines.next_line().await? {
            client.take(&line);
        }
        Ok(())
    };
    tokio::try_join!(reading, write(sent, output)).map(|_| ())
}

async fn write(
    mut sent: UnboundedReceiver<Sent>,
    mut output: impl AsyncWrite + Unpin,
) -> io::Result<()> {
    while let Some(next) = sent.recv().await {
        if let Sent::Message(text) | Sent::Answer(text, _) = next {
            output.write_all(text.as_bytes()).await?;
            output.write_all(b"\n").await?;
            output.flush().await?;
        }
    }
    Ok(())
}

/// The one client; its work ends with it.
struct Client {
    server: Arc<Server>,
    out: Out,
    session: Option<Arc<Session>>,
    running: Running,
    work: JoinSet<()>,
}

impl Client {
    fn take(&mut self, line: &str) {
        if line.trim().is_empty() {
            return;
        }
        match Message::parse(line) {
            Err(malformed) => self.fail(malformed.id.as_ref(), &malformed.error),
            Ok(Message::Request { id, method, params }) => self.request(id, &method, value(params)),
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    self.running.cancel(&value(params));
                }
            }
            Ok(Message::Response { id, outcome }) => {
                if let (Some(session), Some(id)) = (&self.session, id) {
                    session.answered(&id, outcome.map(|raw| value(Some(raw))));
                }
            }
        }
    }

    fn request(&mut self, id: Id, method: &str, params: Value) {
        let server = self.server.clone();
        let is_stateless = match server.eras {
            Eras::Sessions => false,
            Eras::Stateless => true,
            Eras::Both => {
                method == "server/discover"
                    || params["_meta"].get(meta::PROTOCOL_VERSION).is_some()
                    || (self.session.is_none() && method != "initialize")
            }
        };
        while self.work.try_join_next().is_some() {}
        let (method, out) = (method.to_owned(), self.out.clone());
        let work = if is_stateless {
            let checked = match &*method {
                "initialize" => {
                    Err(unsupported(params["protocolVersion"].as_str().unwrap_or_default()))
                }
                _ => check_meta(&params),
            };
            if let Err(error) = checked {
                return self.fail(Some(&id), &error);
            }
            self.work.spawn(server.answer_stateless(id.clone(), method, params, out))
        } else if let Some(session) = self.session.clone().filter(|_| method != "initialize") {
            self.work.spawn(server.answer_session(session, id.clone(), method, params, out))
        } else if self.session.is_some() {
            let error = RpcError::new(code::INVALID_REQUEST, "There is a session already");
            return self.fail(Some(&id), &error);
        } else if method != "initialize" {
            let error = RpcError::new(code::INVALID_REQUEST, "There is no session yet");
            return self.fail(Some(&id), &error);
        } else {
            let (session, result) = server.initialize(&params);
            let session = Arc::new(session);
            self.out.send(Sent::Answer(response(&id, &result), None));
            self.work.spawn(session.clone().tell_changes(&server, out));
            self.session = Some(session);
            return;
        };
        self.running.insert(id, work);
    }

    fn fail(&self, id: Option<&Id>, error: &RpcError) {
        self.out.send(Sent::Answer(failure(id, error), Some(error.code)));
    }
}

fn value(raw: Option<&RawValue>) -> Value {
    raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default()
}
