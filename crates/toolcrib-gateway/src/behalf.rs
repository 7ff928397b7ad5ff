//! Whom a request is for: what of it every server is given, whatever it asks for.

use std::sync::Arc;

use futures::FutureExt;
use serde_json::value::RawValue;
use serde_json::{Map, Value};
use toolcrib_core::Fingerprint;
use toolcrib_runtime::{Caller, Party, Retry};
use toolcrib_wire::{Era, RpcError};

use crate::Gateway;
use crate::client::Client;
use crate::desk::AtDesk;
use crate::held::Held;
use crate::limits::Place;
use crate::outbox::Outbox;
use crate::parking::{Back, Outcome, Round, without_questions};
use crate::relay::{Hearing, Relay, level, severity};
use crate::request::{Params, Request};
use crate::seal::Seal;

/// The requests that may be answered with questions, where there is no session.
const MAY_ASK: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// Their parameters that change when they come again with answers.
const OF_A_RETRY: [&str; 2] = ["inputResponses", "requestState"];

/// Whether a parameter belongs to whom a request is for, and not to what it asks for.
pub(crate) fn is_callers(request: &Request<'_>, parameter: &str) -> bool {
    parameter == "_meta" || (OF_A_RETRY.contains(&parameter) && may_ask(request))
}

fn may_ask(request: &Request<'_>) -> bool {
    request.era == Era::Stateless && MAY_ASK.contains(&&*request.method)
}

/// Whom a request is for, as it says itself and as the client has introduced itself.
pub(crate) struct Behalf {
    client: Arc<Client>,
    era: Era,
    meta: Option<Box<RawValue>>,
    token: Option<Box<RawValue>>,
    logs: Option<usize>,
    /// The log messages asked for in so many words.
    level: Option<&'static str>,
    party: Option<Arc<Party>>,
    /// What it brings for a server that asked for it.
    retry: Option<Retry>,
    /// Where its client has no session and can be asked, or has been.
    round: Option<Box<Round>>,
    /// The room that the answer takes.
    held: Held,
}

impl Behalf {
    pub(crate) fn read(client: &Arc<Client>, request: &Request<'_>) -> Result<Self, RpcError> {
        let behalf = Self {
            client: client.clone(),
            era: request.era,
            meta: request.meta.to_pass_on(),
            token: request.meta.progress_token(),
            logs: None,
            level: None,
            party: None,
            retry: None,
            round: None,
            held: Held::default(),
        };
        match request.era {
            Era::Sessions => {
                let logs = client.logs();
                Ok(Self {
                    logs: Some(logs.unwrap_or_default()),
                    level: logs.and_then(level),
                    party: client.party().cloned(),
                    ..behalf
                })
            }
            Era::Stateless => behalf.stateless(request),
        }
    }

    /// In this era a request says everything itself.
    fn stateless<'a>(self, request: &Request<'a>) -> Result<Self, RpcError> {
        let party = stateless_party(&self.client, request);
        let logs = request.meta.log_level().and_then(|level| severity(&level));
        let may_ask = may_ask(request);
        let brought = |raw: Option<&'a RawValue>| raw.filter(|_| may_ask);
        let responses = brought(request.params.input_responses);
        let state = brought(request.params.request_state);
        let sealed = Params::text(state).filter(|state| Seal::is_ours(state));
        let is_ours = sealed.is_some();
        let back = sealed.map(|state| Back {
            state: state.into_owned(),
            answers: responses.map(ToOwned::to_owned),
        });
        let retry = (!is_ours && (responses.is_some() || state.is_some())).then(|| Retry {
            responses: responses.map(ToOwned::to_owned),
            state: state.map(ToOwned::to_owned),
        });
        let round = match is_ours || (may_ask && party.can_be_asked()) {
            true => {
                let (client, party) = (self.client.clone(), party.clone());
                let subject = subject(&client, request)?;
                Some(Box::new(Round { client, party, subject, back }))
            }
            false => None,
        };
        let level = logs.and_then(level);
        Ok(Self { logs, level, party: Some(party), retry, round, ..self })
    }

    pub(crate) fn client(&self) -> &Arc<Client> {
        &self.client
    }

    pub(crate) fn era(&self) -> Era {
        self.era
    }

    pub(crate) fn held(&self) -> &Held {
        &self.held
    }

    /// Whether the request goes on with one that was begun before.
    pub(crate) fn goes_on(&self) -> bool {
        self.round.as_ref().is_some_and(|round| round.back.is_some())
    }
}

/// The client as a request says that stands for itself.
pub(crate) fn stateless_party(client: &Client, request: &Request<'_>) -> Arc<Party> {
    let own = |raw: Option<&RawValue>| raw.map(|raw| Arc::from(raw.to_owned()));
    let (capabilities, info) = (request.meta.capabilities(), request.meta.client_info());
    let principal = client.principal();
    let party = Party::new(Era::Stateless, principal, own(capabilities), own(info));
    Arc::new(client.seat.naming(party))
}

/// What a request is, but for what changes when it comes again.
fn subject(client: &Client, request: &Request<'_>) -> Result<Fingerprint, RpcError> {
    let whole = request.params.whole.map_or("{}", RawValue::get);
    let mut params: Map<String, Value> = serde_json::from_str(whole)
        .map_err(|error| RpcError::invalid_params(format!("`params` can't be read: {error}")))?;
    params.retain(|name, _| !is_callers(request, name));
    let params = Fingerprint::of_json(&Value::Object(params)).to_string();
    let endpoint = client.endpoint.to_string();
    // What was begun may not go on for a caller who might no longer begin it.
    let policy = client.seat.policy.fingerprint().to_string();
    let parts = [endpoint.as_bytes(), request.method.as_bytes(), params.as_bytes()];
    Ok(Fingerprint::of(parts.into_iter().chain([policy.as_bytes()])))
}

impl Gateway {
    /// Does work for a client, which hears what is said meanwhile and may be asked. `work` is
    /// told whom it is for, and has its place until it ends, however long that takes.
    pub(crate) async fn attend<F>(
        &self,
        behalf: Behalf,
        place: Option<Place>,
        outbox: &Arc<Outbox>,
        work: impl FnOnce(Caller) -> F,
    ) -> Outcome
    where
        F: Future<Output = Outcome> + Send + 'static,
    {
        let Behalf { client, era, meta, token, logs, level, party, retry, round, held } = behalf;
        let outbox = outbox.clone();
        let hearing = Hearing { outbox, token, logs, held };
        let introduce = |mut caller: Caller| {
            if let Some(meta) = meta {
                caller = caller.with_meta(meta);
            }
            if let Some(party) = party.clone() {
                caller = caller.with_party(party);
            }
            if let Some(level) = level {
                caller = caller.with_log_level(level);
            }
            if let Some(retry) = retry {
                caller = caller.with_retry(retry);
            }
            caller
        };
        if let Some(round) = round {
            let begin = |desk, place: Option<Place>| {
                let work = work(introduce(Caller::new(AtDesk(desk))));
                let placed = async move {
                    let done = work.await;
                    drop(place);
                    done
                };
                placed.boxed()
            };
            return self.attend_round(*round, place, hearing, begin).await;
        }
        let can_be_asked =
            era == Era::Sessions && party.as_ref().is_some_and(|it| it.can_be_asked());
        let client = can_be_asked.then_some(client);
        let done = work(introduce(Caller::new(Relay { hearing, client }))).await;
        drop(place);
        match era {
            Era::Sessions => done,
            Era::Stateless => done.map_err(without_questions),
        }
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_core::Policy;
    use toolcrib_wire::Id;

    use super::*;
    use crate::seat::Seat;
    use crate::{Endpoint, Limits};

    #[test]
    fn a_request_comes_again_under_the_policy_it_came_under() {
        let open = Seat::open(Policy::default(), Limits::default());
        let seat = || Seat::known(&open, [&b"a"[..]]);
        let of = |seat: Seat, state: &str| {
            let client = Client::new(Arc::new(seat), Endpoint::Full, 1);
            let params = format!(
                r#"{{"name":"x","requestState":"{state}","_meta":{{
                "io.modelcontextprotocol/protocolVersion":"2026-07-28",
                "io.modelcontextprotocol/clientCapabilities":{{}}}}}}"#
            );
            let params: &RawValue = serde_json::from_str(&params).unwrap();
            let request = Request::read(Id::from(1), "tools/call".into(), Some(params), None);
            subject(&client, &request.ok().unwrap()).unwrap()
        };
        let narrowed = || seat().narrowed([Policy::only_server("git").unwrap()]);
        assert_eq!(of(seat(), "1"), of(seat(), "2"));
        assert_eq!(of(narrowed(), "1"), of(narrowed(), "2"));
        assert_ne!(of(seat(), "1"), of(narrowed(), "1"));
    }
}
