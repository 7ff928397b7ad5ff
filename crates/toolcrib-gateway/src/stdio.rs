//! One client over stdio, or any pair of byte streams.

use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::timeout;
use toolcrib_wire::{Id, Lines, Message, RpcError, code, failure};

use crate::call::list_changed;
use crate::client::Client;
use crate::methods::{Reply, respond};
use crate::outbox::{Framing, Outbox};
use crate::request::{Params, Request};
use crate::watch::closed;
use crate::{Endpoint, Gateway, GatewayError};

mod pipes;

/// Bytes read at a time.
const CHUNK: usize = 64 << 10;

impl Gateway {
    /// Serves one client on this process's standard input and output, until the input ends or
    /// `shutdown` is ready. Requests that run by then may finish for a while.
    pub async fn serve_stdio(
        &self,
        endpoint: Endpoint,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), GatewayError> {
        let (reader, writer) = pipes::open();
        self.serve_on(reader, writer, endpoint, shutdown).await
    }

    /// Serves one client on a pair of byte streams, one message a line.
    pub async fn serve_on(
        &self,
        mut reader: impl AsyncRead + Unpin,
        writer: impl AsyncWrite + Unpin + Send + 'static,
        endpoint: Endpoint,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), GatewayError> {
        self.check(&endpoint)?;
        let options = self.options();
        let connection = Connection {
            gateway: self.clone(),
            client: Arc::new(Client::new(endpoint, options.requests_in_flight)),
            outbox: Arc::new(Outbox::new(Framing::Lines)),
            closing: watch::Sender::new(false),
            tells: OnceLock::new(),
        };
        let mut writing = tokio::spawn(write(writer, connection.outbox.clone()));
        let mut lines = Lines::new(options.line_bytes);
        let mut chunk = vec![0; CHUNK];
        tokio::pin!(shutdown);
        let ended = loop {
            let read = tokio::select! {
                read = reader.read(&mut chunk) => read,
                () = &mut shutdown => break Ok(()),
                written = &mut writing => {
                    connection.client.cancel_all();
                    return written.map_err(std::io::Error::other).flatten().or_else(gone);
                }
            };
            match read {
                Ok(0) => break Ok(()),
                Ok(length) => lines.push(&chunk[..length]),
                Err(error) => break Err(error),
            }
            // It may have to wait until less is under way, and not to the bitter end.
            tokio::select! {
                () = connection.take_all(&mut lines) => {}
                () = &mut shutdown => break Ok(()),
            }
        };
        connection.drain().await;
        // A client that does not read keeps nobody waiting for ever.
        let _ = timeout(options.drain, &mut writing).await;
        writing.abort();
        ended.map_err(GatewayError::io("can't read from the client"))
    }
}

/// A client that has gone has no more to ask, and that is no failure.
fn gone(error: std::io::Error) -> Result<(), GatewayError> {
    match error.kind() {
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset => Ok(()),
        _ => Err(GatewayError::Io { what: "can't write to the client", source: error }),
    }
}

/// Writes whatever waits in one go.
async fn write(mut writer: impl AsyncWrite + Unpin, outbox: Arc<Outbox>) -> std::io::Result<()> {
    let mut buffer = Vec::new();
    let written = async {
        while outbox.take(&mut buffer).await {
            writer.write_all(&buffer).await?;
            writer.flush().await?;
            // One large answer should not hold its memory for good.
            buffer.shrink_to(CHUNK);
        }
        writer.shutdown().await
    };
    let written = written.await;
    outbox.close();
    written
}

struct Connection {
    gateway: Gateway,
    client: Arc<Client>,
    outbox: Arc<Outbox>,
    closing: watch::Sender<bool>,
    /// Whether changes are told already.
    tells: OnceLock<()>,
}

impl Connection {
    async fn take_all(&self, lines: &mut Lines) {
        while let Some(line) = lines.next() {
            match line {
                Ok(line) => self.take(&line).await,
                Err(too_long) => {
                    let error = RpcError::new(code::INVALID_REQUEST, too_long.to_string());
                    self.outbox.send(&failure(None, &error));
                }
            }
        }
    }

    /// Takes in one line. Waits only if too much is under way.
    async fn take(&self, line: &str) {
        match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => {
                match Request::read(id, method, params, None) {
                    Ok(request) => self.request(&request).await,
                    Err((id, error)) => self.outbox.send(&failure(Some(&id), &error)),
                }
            }
            Ok(Message::Notification { method, params }) => match &*method {
                "notifications/initialized" => self.tell_changes(),
                "notifications/cancelled" => {
                    let params = Params::parse(params).unwrap_or_default();
                    let id = params.request_id.map(|raw| serde_json::from_str::<Id>(raw.get()));
                    if let Some(Ok(id)) = id {
                        self.client.cancel(&id);
                    }
                }
                _ => {}
            },
            // Nothing was asked of the client.
            Ok(Message::Response { .. }) => {}
            Err(malformed) => {
                self.outbox.send(&failure(malformed.id.as_ref(), &malformed.error));
            }
        }
    }

    async fn request(&self, request: &Request<'_>) {
        self.outbox.room().await;
        let id = request.id.clone();
        let reply = self.gateway.answer(&self.client, request);
        let started = match reply {
            Reply::Now(result) => {
                self.outbox.send(&respond(&id, result));
                true
            }
            Reply::Later(work) => {
                let Ok(permit) = self.client.room.clone().acquire_owned().await else { return };
                let (gateway, client) = (self.gateway.clone(), self.client.clone());
                let (outbox, of) = (self.outbox.clone(), id.clone());
                self.client.start(id.clone(), async move {
                    let result = gateway.work(work, &outbox).await;
                    if client.finish(&of) {
                        outbox.send(&respond(&of, result));
                    }
                    drop(permit);
                })
            }
            Reply::Listen(filter) => {
                let Ok(permit) = self.client.room.clone().acquire_owned().await else { return };
                let (gateway, client) = (self.gateway.clone(), self.client.clone());
                let (outbox, of) = (self.outbox.clone(), id.clone());
                let closing = self.closing.subscribe();
                self.client.start(id.clone(), async move {
                    let result = gateway.listen(&client, &of, filter, &outbox, closing).await;
                    if client.finish(&of) {
                        outbox.send(&respond(&of, Ok(result)));
                    }
                    drop(permit);
                })
            }
        };
        if !started {
            let error = RpcError::new(code::INVALID_REQUEST, "A request of that id still runs");
            self.outbox.send(&failure(Some(&id), &error));
        }
    }

    /// Tells a client of the session era of changes from now on.
    fn tell_changes(&self) {
        if self.tells.set(()).is_err() {
            return;
        }
        let (gateway, client) = (self.gateway.clone(), self.client.clone());
        let (outbox, closing) = (self.outbox.clone(), self.closing.subscribe());
        tokio::spawn(async move {
            tokio::select! {
                () = gateway.tell_changes(&client, || outbox.note(&list_changed())) => {}
                () = closed(closing) => {}
            }
        });
    }

    /// Lets what runs finish, for a while, and ends the rest.
    async fn drain(&self) {
        let _ = self.closing.send(true);
        let options = self.gateway.options();
        let all = u32::try_from(options.requests_in_flight.max(1)).unwrap_or(u32::MAX);
        let _ = timeout(options.drain, self.client.room.acquire_many(all)).await;
        self.client.cancel_all();
        self.outbox.close();
    }
}
