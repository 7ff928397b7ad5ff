//! One client over stdio, or any pair of byte streams.

use std::io::ErrorKind;
use std::sync::{Arc, OnceLock};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use toolcrib_wire::{Lines, Message, RpcError, code, failure};

use crate::client::Client;
use crate::methods::{Reply, respond};
use crate::outbox::{Framing, Outbox};
use crate::request::Request;
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
        self.check(self.seat(), &endpoint)?;
        let options = self.options();
        let outbox = Arc::new(Outbox::new(Framing::Lines));
        let mut writing = tokio::spawn(write(writer, outbox.clone()));
        let connection = Connection {
            gateway: self.clone(),
            client: Arc::new(Client::new(
                self.seat().clone(),
                endpoint,
                options.requests_in_flight,
            )),
            outbox,
            writing: writing.abort_handle(),
            closing: watch::Sender::new(false),
            tells: OnceLock::new(),
        };
        let mut lines = Lines::new(options.line_bytes);
        let mut chunk = vec![0; CHUNK];
        tokio::pin!(shutdown);
        let ended = loop {
            let read = tokio::select! {
                read = reader.read(&mut chunk) => read,
                () = &mut shutdown => break Ok(()),
                written = &mut writing => {
                    return written.map_err(std::io::Error::other).flatten().or_else(gone);
                }
            };
            match read {
                Ok(0) => break Ok(()),
                Ok(length) => lines.push(&chunk[..length]),
                Err(error) => break Err(error),
            }
            // It may have to wait until more has been written, and not to the bitter end.
            tokio::select! {
                () = connection.take_all(&mut lines) => {}
                () = &mut shutdown => break Ok(()),
            }
        };
        connection.drain().await;
        // A client that does not read keeps nobody waiting for ever.
        let _ = timeout(options.drain, &mut writing).await;
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
    let written = async {
        while let Some(bytes) = outbox.take().await {
            writer.write_all(&bytes).await?;
            writer.flush().await?;
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
    writing: AbortHandle,
    closing: watch::Sender<bool>,
    /// Whether changes are told already.
    tells: OnceLock<()>,
}

/// Whoever stops serving, in whatever way, leaves nothing behind that runs.
impl Drop for Connection {
    fn drop(&mut self) {
        self.client.end();
        self.gateway.parking().leave(&self.client);
        self.outbox.close();
        self.writing.abort();
    }
}

impl Connection {
    async fn take_all(&self, lines: &mut Lines) {
        while let Some(line) = lines.next() {
            self.outbox.room().await;
            match line {
                Ok(line) => self.take(&line),
                Err(too_long) => {
                    let error = RpcError::new(code::INVALID_REQUEST, too_long.to_string());
                    self.outbox.send(&failure(None, &error));
                }
            }
        }
    }

    /// Takes in one line.
    fn take(&self, line: &str) {
        match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => {
                match Request::read(id, method, params, None) {
                    Ok(request) => self.request(&request),
                    Err((id, error)) => self.outbox.send(&failure(Some(&id), &error)),
                }
            }
            Ok(Message::Notification { method, params }) => match &*method {
                "notifications/initialized" => self.tell_changes(),
                _ => self.gateway.notified(&self.client, &method, params),
            },
            Ok(Message::Response { id, outcome }) => {
                self.client.answered(id.as_ref(), outcome);
            }
            Err(malformed) => {
                self.outbox.send(&failure(malformed.id.as_ref(), &malformed.error));
            }
        }
    }

    fn request(&self, request: &Request<'_>) {
        let (gateway, outbox) = (self.gateway.clone(), self.outbox.clone());
        let (id, to) = (request.id.clone(), self.outbox.clone());
        let answer = move |answer: String| to.send(&answer);
        let started = match self.gateway.answer(&self.client, request) {
            Reply::Now(result) => return self.outbox.send(&respond(&id, result)),
            Reply::Later(work) => match self.gateway.enter(&self.client, &work) {
                Ok(place) => {
                    let (held, to) = (work.held(), self.outbox.clone());
                    let answer = move |answer: String| to.send_held(&answer, held);
                    let work = async move { gateway.work(work, place, &outbox).await };
                    self.client.start(id, work, answer)
                }
                Err(too_many) => {
                    self.gateway.metrics().turned_away();
                    Err(too_many.error())
                }
            },
            Reply::Listen(filter) => {
                let (client, of, closing) =
                    (self.client.clone(), id.clone(), self.closing.subscribe());
                let work =
                    async move { Ok(gateway.listen(&client, &of, filter, &outbox, closing).await) };
                self.client.start_aside(id, work, answer)
            }
        };
        if let Err(error) = started {
            self.outbox.send(&failure(Some(&request.id), &error));
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
                () = gateway.tell_changes(&client, &outbox) => {}
                () = closed(closing) => {}
            }
        });
    }

    /// Lets what runs finish, for a while, and ends the rest.
    async fn drain(&self) {
        let _ = self.closing.send(true);
        // Nothing more is read, so nothing more is answered.
        self.client.asks.end();
        let _ = timeout(self.gateway.options().drain, self.client.idle()).await;
        self.client.end();
        self.outbox.close();
    }
}
