//! Resources that a client follows.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use toolcrib_core::GroupId;
use toolcrib_runtime::{AskError, Following, Party};
use toolcrib_wire::{Era, RpcError, code, error_in_era};

use crate::Gateway;
use crate::client::Client;
use crate::offers::Place;

/// What one client follows.
#[derive(Default)]
pub(crate) struct Follows(Mutex<HashMap<Own, Vec<Follow>>>);

/// A server's resource, by the server's own uri.
type Own = (GroupId, String);

/// A resource, by the uri that the client knows it by.
struct Follow {
    asked: String,
    /// Who the server was told follows it.
    party: u64,
    _until: Following,
    _noted: Noted,
}

/// What any client follows, and how many do. A handle.
#[derive(Clone, Default)]
pub(crate) struct Followed(Arc<Mutex<HashMap<Own, usize>>>);

/// One of those who follow a resource.
struct Noted {
    among: Followed,
    own: Own,
}

impl Followed {
    /// Whether anybody follows this resource.
    pub(crate) fn has(&self, id: &GroupId, own: &str) -> bool {
        self.lock().contains_key(&(id.clone(), own.to_owned()))
    }

    fn note(&self, place: &Place) -> Noted {
        let own = (place.id.clone(), place.own.clone());
        *self.lock().entry(own.clone()).or_default() += 1;
        Noted { among: self.clone(), own }
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Own, usize>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Noted {
    fn drop(&mut self) {
        let mut followed = self.among.lock();
        if let Some(count) = followed.get_mut(&self.own) {
            *count -= 1;
            if *count == 0 {
                followed.remove(&self.own);
            }
        }
    }
}

/// Resources that one client may follow.
pub(crate) const MOST_FOLLOWED: usize = 1_000;

impl Follows {
    /// The uris that a client knows a server's resource by, if it is among those who are told.
    pub(crate) fn names(&self, id: &GroupId, own: &str, whom: &[u64]) -> Vec<String> {
        let follows = self.lock();
        let found = follows.get(&(id.clone(), own.to_owned())).into_iter().flatten();
        let found = found.filter(|followed| whom.binary_search(&followed.party).is_ok());
        found.map(|followed| followed.asked.clone()).collect()
    }

    /// All that the client follows, or all of one server's, by the uris that it knows.
    pub(crate) fn all(&self, of: Option<&GroupId>) -> Vec<String> {
        let follows = self.lock();
        let found = follows.iter().filter(|((id, _), _)| of.is_none_or(|of| of == id));
        found.flat_map(|(_, known)| known).map(|it| it.asked.clone()).collect()
    }

    /// Ends following what the client knows by this uri.
    pub(crate) fn forget(&self, asked: &str) {
        let mut ended = Vec::new();
        self.lock().retain(|_, known| {
            ended.extend(known.extract_if(.., |followed| followed.asked == asked));
            !known.is_empty()
        });
        // Their servers are told without the lock.
        drop(ended);
    }

    fn has(&self, place: &Place, asked: &str) -> bool {
        let key = (place.id.clone(), place.own.clone());
        self.lock().get(&key).is_some_and(|known| known.iter().any(|it| it.asked == asked))
    }

    /// Keeps what is followed, if there is room.
    fn keep(&self, place: Place, follow: Follow) -> Result<(), RpcError> {
        let mut follows = self.lock();
        if follows.values().map(Vec::len).sum::<usize>() >= MOST_FOLLOWED {
            // The server is told without the lock.
            drop(follows);
            drop(follow);
            return Err(too_many());
        }
        follows.entry((place.id, place.own)).or_default().push(follow);
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Own, Vec<Follow>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_many() -> RpcError {
    let text = format!("No more than {MOST_FOLLOWED} resources can be followed: end another first");
    RpcError::new(code::INVALID_REQUEST, text)
}

impl Gateway {
    /// Has a client follow the resource that it knows by this uri. `party` is how the server
    /// knows the client.
    pub(crate) async fn follow(
        &self,
        client: &Client,
        party: Option<&Arc<Party>>,
        follows: &Follows,
        uri: &str,
    ) -> Result<(), RpcError> {
        let era = Era::Sessions;
        let place = self.resource_of(client, uri).await;
        let place = place.map_err(|lost| lost.into_error("uri", uri, era))?;
        if follows.has(&place, uri) {
            return Ok(());
        }
        let toolset = self.crib().toolset(&place.id);
        let server = toolset.as_ref().and_then(|toolset| toolset.server());
        let server = server.ok_or_else(|| RpcError::unknown_method("resources/subscribe"))?;
        // Before the server may say anything of it.
        let noted = self.hub().followed().note(&place);
        match server.follow(&place.own, party).await {
            Ok(until) => {
                let (asked, party) = (uri.to_owned(), party.map_or(0, |party| party.id()));
                follows.keep(place, Follow { asked, party, _until: until, _noted: noted })
            }
            Err(AskError::Refused(error)) => Err(error_in_era("resources/read", error, era)),
            Err(AskError::Unreachable(reason)) => Err(RpcError::new(code::INTERNAL_ERROR, reason)),
        }
    }
}
