//! What was sent on a stream, kept so that a reader who lost it can go on.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::{Stream, stream};
use tokio::sync::watch;
use toolcrib_wire::event;

use crate::caller::Sent;

/// One stream of a session.
pub(super) struct Log {
    name: String,
    lines: watch::Sender<Lines>,
    delivered: AtomicUsize,
}

#[derive(Default)]
struct Lines {
    events: Vec<String>,
    /// How often the readers were sent away.
    cuts: usize,
    is_ended: bool,
}

impl Log {
    pub(super) fn new(name: String) -> Arc<Self> {
        Arc::new(Self { name, lines: watch::Sender::default(), delivered: AtomicUsize::default() })
    }

    /// An event without contents: from its id on, the stream can be resumed.
    pub(super) fn prime(&self) {
        let id = format!("{}-0", self.name);
        self.lines.send_modify(|lines| {
            lines.events.push(format!("id: {id}\nretry: 100\ndata: \n\n"));
        });
    }

    pub(super) fn push(&self, sent: Sent) {
        self.lines.send_modify(|lines| match sent {
            Sent::Open => {}
            Sent::Message(text) => self.add(lines, &text),
            Sent::Cut => lines.cuts += 1,
            Sent::Answer(text, _) => {
                self.add(lines, &text);
                lines.is_ended = true;
            }
        });
    }

    fn add(&self, lines: &mut Lines, text: &str) {
        let id = format!("{}-{}", self.name, lines.events.len());
        lines.events.push(event(Some(&id), text));
    }

    pub(super) fn end(&self) {
        self.lines.send_modify(|lines| lines.is_ended = true);
    }

    /// Whether nothing more is to come from it.
    pub(super) fn is_done(&self) -> bool {
        let lines = self.lines.borrow();
        lines.is_ended && self.delivered() >= lines.events.len()
    }

    /// How many of its events somebody has read.
    pub(super) fn delivered(&self) -> usize {
        self.delivered.load(Ordering::Relaxed)
    }

    /// Its events, from one on.
    pub(super) fn from(self: Arc<Self>, at: usize) -> impl Stream<Item = io::Result<String>> {
        let lines = self.lines.subscribe();
        let cuts = lines.borrow().cuts;
        stream::unfold((self, lines, at), move |(log, mut lines, at)| async move {
            let ready =
                |lines: &Lines| lines.cuts > cuts || lines.is_ended || lines.events.len() > at;
            let event = lines.wait_for(ready).await.ok()?.events.get(at).cloned()?;
            log.delivered.fetch_max(at + 1, Ordering::Relaxed);
            Some((Ok(event), (log, lines, at + 1)))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::StreamExt;

    #[tokio::test]
    async fn a_reader_who_was_cut_off_goes_on_where_they_were() {
        let log = Log::new("s".into());
        log.prime();
        log.push(Sent::Message("1".into()));
        let reader = tokio::spawn(log.clone().from(0).collect::<Vec<_>>());
        while log.delivered() < 2 {
            tokio::task::yield_now().await;
        }
        log.push(Sent::Cut);
        let read = reader.await.unwrap();
        assert_eq!(read.len(), 2);
        log.push(Sent::Answer("2".into(), None));
        assert!(!log.is_done());
        let rest: Vec<_> = log.clone().from(2).map(Result::unwrap).collect().await;
        assert_eq!(rest, ["id: s-2\nevent: message\ndata: 2\n\n"]);
        assert!(log.is_done());
    }
}
