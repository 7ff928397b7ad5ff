//! One client over standard input and output.

use std::collections::HashMap;
use std::sync::{Arc, Mutex as Lock, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::sync::{Mutex, Notify};
use tokio::task::JoinSet;
use tokio::time::timeout;
use toolcrib_wire::{Id, Lines, Message, RpcError, code, failure};

use crate::catalog::Kind;
use crate::script::{Script, Stage, To};
use crate::server::{Request, Server};

/// Bytes of a line that is read, at most.
const MOST_LINE: usize = 64 << 20;

/// How long what runs may go on when the client has gone.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// Requests under way that may be given up.
type Running = Arc<Lock<HashMap<Id, Arc<Notify>>>>;

/// Serves until the input ends, or longer if told to.
pub(crate) async fn serve(server: Arc<Server>) {
    let mut client = Client {
        server: server.clone(),
        stdout: Arc::new(Mutex::new(tokio::io::stdout())),
        running: Running::default(),
        tasks: JoinSet::new(),
    };
    let mut stdin = tokio::io::stdin();
    let mut lines = Lines::new(MOST_LINE);
    let mut chunk = vec![0; 64 << 10];
    loop {
        server.may_read().await;
        let count = stdin.read(&mut chunk).await.unwrap_or_default();
        // The last line may lack its end.
        lines.push(if count == 0 { b"\n" } else { &chunk[..count] });
        while let Some(line) = lines.next() {
            server.may_read().await;
            match line {
                Ok(line) => client.take(&line),
                Err(too_long) => {
                    let error = RpcError::new(code::INVALID_REQUEST, too_long.to_string());
                    client.perform(Script::say(failure(None, &error)), None);
                }
            }
        }
        if count == 0 {
            break;
        }
        while client.tasks.try_join_next().is_some() {}
    }
    let Client { mut tasks, .. } = client;
    let _ = timeout(LAST_WORDS, async { while tasks.join_next().await.is_some() {} }).await;
    // Not the one or the other: both may be wanted, and each counts for itself.
    let stays = [Kind::IgnoreEof, Kind::HangAtShutdown].map(|kind| server.strikes(kind));
    if stays.contains(&true) {
        server.outlast().await;
    }
}

struct Client {
    server: Arc<Server>,
    stdout: Arc<Mutex<tokio::io::Stdout>>,
    running: Running,
    tasks: JoinSet<()>,
}

impl Client {
    fn take(&mut self, line: &str) {
        match Message::parse(line) {
            Ok(Message::Request { id, method, params }) => {
                let request = Request::new(id, &method, params.map(|raw| raw.get()));
                let script = self.server.answer(&request);
                self.perform(script, Some(request.id));
            }
            Ok(Message::Notification { method, params }) => {
                if method == "notifications/cancelled" {
                    return self.cancel(params.map(|raw| raw.get()));
                }
                self.perform(self.server.hear(&method), None);
                if method == "notifications/initialized" {
                    self.perform(self.server.news(), None);
                }
            }
            // To what a fault has asked.
            Ok(Message::Response { .. }) => {}
            Err(malformed) if line.trim().is_empty() => drop(malformed),
            Err(malformed) => {
                let message = failure(malformed.id.as_ref(), &malformed.error);
                self.perform(Script::say(message), None);
            }
        }
    }

    fn perform(&mut self, script: Script, id: Option<Id>) {
        let cancelled = Arc::<Notify>::default();
        if let Some(id) = &id {
            lock(&self.running).insert(id.clone(), cancelled.clone());
        }
        let stage = Stage { to: To::Stdout(self.stdout.clone()), cancelled };
        let (server, running) = (self.server.clone(), self.running.clone());
        self.tasks.spawn(async move {
            // Nobody is left to hear it: the end of the input will tell.
            let _ = stage.perform(&server, script.acts).await;
            if let Some(id) = id {
                lock(&running).remove(&id);
            }
        });
    }

    fn cancel(&self, params: Option<&str>) {
        let params: Value =
            params.and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default();
        let id = params.get("requestId").cloned().unwrap_or_default();
        if let Ok(id) = serde_json::from_value::<Id>(id)
            && let Some(cancelled) = lock(&self.running).get(&id)
        {
            cancelled.notify_one();
        }
    }
}

fn lock(running: &Running) -> std::sync::MutexGuard<'_, HashMap<Id, Arc<Notify>>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}
