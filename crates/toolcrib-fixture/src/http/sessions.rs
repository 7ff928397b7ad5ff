//! Sessions over HTTP: each with its streams.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use axum::http::StatusCode;
use axum::http::header::HeaderMap;
use data_encoding::HEXLOWER;
use tokio::task::AbortHandle;
use toolcrib_wire::version::header;

use super::Refused;
use super::log::Log;
use crate::caller::Out;
use crate::server::Server;
use crate::session::{Session, lock};

#[derive(Default)]
pub(super) struct Sessions(Mutex<HashMap<String, Arc<Open>>>);

/// A session that somebody may come back to.
pub(super) struct Open {
    pub(super) session: Arc<Session>,
    /// What is told outside of any request.
    pub(super) news: Arc<Log>,
    streams: Mutex<HashMap<String, Arc<Log>>>,
    next: AtomicU64,
    telling: AbortHandle,
}

impl Sessions {
    /// Remembers a session and returns the name it goes by.
    pub(super) fn open(&self, server: &Server, session: Session) -> String {
        let mut name = [0; 16];
        let _ = getrandom::fill(&mut name);
        let name = HEXLOWER.encode(&name);
        let (session, news) = (Arc::new(session), Log::new("news".into()));
        let (out, mut sent) = Out::new();
        let log = news.clone();
        let telling = tokio::spawn({
            let telling = session.clone().tell_changes(server, out);
            async move {
                let writing = async {
                    while let Some(next) = sent.recv().await {
                        log.push(next);
                    }
                };
                tokio::join!(telling, writing);
            }
        });
        let open = Open {
            session,
            news,
            streams: Mutex::default(),
            next: AtomicU64::new(1),
            telling: telling.abort_handle(),
        };
        lock(&self.0).insert(name.clone(), Arc::new(open));
        name
    }

    pub(super) fn find(&self, headers: &HeaderMap) -> Result<Arc<Open>, Refused> {
        let name =
            named(headers).ok_or(Refused(StatusCode::BAD_REQUEST, "Mcp-Session-Id is missing"))?;
        lock(&self.0).get(name).cloned().ok_or(Refused(StatusCode::NOT_FOUND, "No such session"))
    }

    pub(super) fn close(&self, headers: &HeaderMap) -> bool {
        let open = named(headers).and_then(|name| lock(&self.0).remove(name));
        open.is_some_and(|open| {
            open.telling.abort();
            open.session.running.stop();
            open.news.end();
            true
        })
    }
}

fn named(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::SESSION_ID).and_then(|value| value.to_str().ok())
}

impl Open {
    /// A new stream; those that have been read to the end are forgotten.
    pub(super) fn stream(&self) -> Arc<Log> {
        let name = format!("s{}", self.next.fetch_add(1, Ordering::Relaxed));
        let log = Log::new(name.clone());
        // Clients of older versions may take an event without contents for a broken message.
        if self.session.version == "2025-11-25" {
            log.prime();
        }
        let mut streams = lock(&self.streams);
        streams.retain(|_, log| !log.is_done());
        streams.insert(name, log.clone());
        log
    }

    /// The stream of an event that somebody has seen, and which event comes next.
    pub(super) fn resumed(&self, last: &str) -> Option<(Arc<Log>, usize)> {
        let (name, at) = last.rsplit_once('-')?;
        let log = match name {
            "news" => Some(self.news.clone()),
            _ => lock(&self.streams).get(name).cloned(),
        };
        Some((log?, at.parse::<usize>().ok()?.saturating_add(1)))
    }
}
