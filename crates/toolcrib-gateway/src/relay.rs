//! What a server says while a request runs, passed on to the client.

use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use toolcrib_runtime::{Listener, Room};
use toolcrib_wire::version::meta::PROGRESS_TOKEN;
use toolcrib_wire::{Fields, notification};

use crate::asks::{Answer, can_not};
use crate::client::Client;
use crate::held::Held;
use crate::outbox::Outbox;

/// Severities as MCP names them, mildest first.
const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// Where a severity stands; `None` if there is none of that name.
pub(crate) fn severity(level: &str) -> Option<usize> {
    LEVELS.iter().position(|name| *name == level)
}

/// Its name.
pub(crate) fn level(severity: usize) -> Option<&'static str> {
    LEVELS.get(severity).copied()
}

/// What a client wants to hear while a request of its runs, and where.
pub(crate) struct Hearing {
    pub(crate) outbox: Arc<Outbox>,
    /// What the client calls the progress of this request; `None` if it wants none.
    pub(crate) token: Option<Box<RawValue>>,
    /// The mildest log messages wanted; `None` if none are.
    pub(crate) logs: Option<usize>,
    /// The room that the answer takes.
    pub(crate) held: Held,
}

impl Hearing {
    /// Passes on what the client wants to hear, in order.
    pub(crate) fn hear(&self, method: &str, params: &RawValue) {
        match method {
            "notifications/progress" => {
                let Some(token) = &self.token else { return };
                let Some(mut fields) = Fields::parse(params.get()) else { return };
                fields.set(PROGRESS_TOKEN, token);
                self.outbox.note(&notification(method, Some(&fields)));
            }
            "notifications/message" => {
                let Some(mildest) = self.logs else { return };
                let level = Fields::parse(params.get()).and_then(|it| it.read::<String>("level"));
                // What can't be ranked is passed on.
                let rank = level.as_deref().and_then(severity).unwrap_or(usize::MAX);
                if rank >= mildest {
                    self.outbox.note(&notification(method, Some(params)));
                }
            }
            _ => self.outbox.note(&notification(method, Some(params))),
        }
    }
}

/// Passes on what is said, and asks a client with a session.
pub(crate) struct Relay {
    pub(crate) hearing: Hearing,
    /// Who can be asked, if anybody can.
    pub(crate) client: Option<Arc<Client>>,
}

impl Listener for Relay {
    fn hear(&self, method: &str, params: &RawValue) {
        self.hearing.hear(method, params);
    }

    fn wants_progress(&self) -> bool {
        self.hearing.token.is_some()
    }

    fn let_go(&self, retry: Duration) {
        self.hearing.outbox.let_go(retry);
    }

    fn ask(&self, method: &str, params: Option<&RawValue>) -> BoxFuture<'static, Answer> {
        match &self.client {
            Some(client) => client.ask(&self.hearing.outbox, method, params),
            None => {
                let error = can_not(method);
                Box::pin(async { Err(error) })
            }
        }
    }

    fn keep(&self, room: Room) {
        self.hearing.held.keep(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outbox::{Framing, Reading};

    fn heard(token: Option<&str>, logs: Option<usize>, notes: &[(&str, &str)]) -> String {
        let outbox = Arc::new(Outbox::new(Framing::Lines));
        let token = token.map(|token| RawValue::from_string(token.to_owned()).unwrap());
        let held = Held::default();
        let relay = Hearing { outbox: outbox.clone(), token, logs, held };
        for (method, params) in notes {
            relay.hear(method, serde_json::from_str(params).unwrap());
        }
        String::from_utf8(Reading::new(outbox).take_now().into()).unwrap()
    }

    #[test]
    fn progress_goes_by_the_clients_own_token() {
        let note = ("notifications/progress", r#"{"progressToken":7,"progress":0.50,"x":[1]}"#);
        assert_eq!(
            heard(Some("\"mine\""), None, &[note]),
            "{\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\",\
             \"params\":{\"progressToken\":\"mine\",\"progress\":0.50,\"x\":[1]}}\n"
        );
        assert_eq!(heard(None, Some(0), &[note]), "");
    }

    #[test]
    fn log_messages_are_passed_on_from_the_level_asked_for() {
        let notes = [
            ("notifications/message", r#"{"level":"debug","data":1}"#),
            ("notifications/message", r#"{"level":"error","data":2}"#),
            ("notifications/other", r#"{"level":"error"}"#),
        ];
        let count = |logs| heard(None, logs, &notes).lines().count();
        // What nobody here knows is passed on in any case.
        assert_eq!((count(None), count(severity("debug")), count(severity("error"))), (1, 3, 2));
    }
}
