//! A server as more than its tools.

use std::sync::Arc;

use futures::future::BoxFuture;
use serde_json::value::RawValue;
use tokio::sync::broadcast;
use toolcrib_runtime::{AskError, Following, Health, News, Offers, Party, Question, Server};
use toolcrib_wire::Fields;

use super::call::{add_brought, unread};
use super::lanes::LaneKey;
use super::life::Phase;
use super::{Inner, Upstream, rounds};
use crate::connection::Failure;

impl Server for Upstream {
    fn offers(&self) -> Arc<Offers> {
        self.inner().lock().offers.clone()
    }

    fn ask(&self, question: Question) -> BoxFuture<'_, Result<Box<RawValue>, AskError>> {
        Box::pin(self.inner().ask(question))
    }

    fn follow<'a>(
        &'a self,
        uri: &str,
        party: Option<&'a Arc<Party>>,
    ) -> BoxFuture<'a, Result<Following, AskError>> {
        Box::pin(self.inner().follow(uri.into(), party))
    }

    fn news(&self) -> broadcast::Receiver<News> {
        self.inner().news.subscribe()
    }

    fn tell(&self, party: &Party, method: &str, params: Option<&RawValue>) {
        let state = self.inner().lock();
        let own = state.lanes.get(LaneKey::Own(party.id()));
        if let Some(Phase::Running(running)) = own.map(|lane| &lane.phase) {
            let connection = running.connection.clone();
            drop(state);
            connection.pass_on(method, params);
        }
    }

    fn health(&self) -> Health {
        self.inner().health()
    }
}

impl Inner {
    async fn ask(self: &Arc<Self>, question: Question) -> Result<Box<RawValue>, AskError> {
        let server = &self.config.name;
        let tell = |text: String| Err(AskError::Unreachable(format!("Server `{server}` {text}")));
        let _turn = match self.queue.turn(self.config.call_limit).await {
            Ok(turn) => turn,
            Err(busy) => return tell(format!("{busy}.")),
        };
        let mut is_first = true;
        loop {
            let (connection, mut lane) = match self.connection_for(&question.caller).await {
                Ok(found) => found,
                Err(reason) => return tell(format!("can't be asked: {reason}.")),
            };
            if &*question.method == "logging/setLevel"
                && let Some(answer) = self.level(&connection, &lane, &question).await
            {
                lane.went_well();
                return answer;
            }
            let params = question.params.as_ref().and_then(|raw| Fields::parse(raw.get()));
            let mut params = params.unwrap_or_default();
            if let Some(meta) = question.caller.meta() {
                params.set("_meta", &meta);
            }
            add_brought(&mut params, &question.caller);
            if let Some(error) = rounds::misplaced(&connection, &question.caller) {
                lane.was_no_call();
                return Err(AskError::Refused(error));
            }
            let (caller, refusal) = self.patient(&lane, &question.caller);
            let (method, limit) = (&question.method, self.config.call_limit);
            let asked = tokio::select! {
                biased;
                asked = rounds::drive(&connection, method, params, &caller, limit) => asked,
                reason = refusal.reason() => return tell(format!("{reason}.")),
            };
            match asked {
                Ok(answer) => {
                    lane.went_well();
                    return Ok(answer);
                }
                Err(Failure::Refused(error)) => {
                    lane.went_well();
                    return Err(AskError::Refused(error));
                }
                Err(failure @ Failure::Unsent(_)) if is_first && caller.retry().is_none() => {
                    let reason = connection.why(failure).await;
                    self.retire(&connection, &reason);
                    is_first = false;
                }
                Err(failure) => {
                    lane.went_wrong(&connection, &failure);
                    if let Failure::Unread(reason) = failure {
                        return tell(format!("{}.", unread(reason)));
                    }
                    let reason = self.secrets.hide(&failure.to_string());
                    return tell(format!("did not answer: {reason}."));
                }
            }
        }
    }
}
