//! Resources that clients follow: asked for where the calls of each client go, and again whenever
//! that is a new connection.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

use futures::future::{BoxFuture, Shared, WeakShared, join_all};
use futures::{FutureExt, StreamExt, stream};
use tokio::runtime::Handle;
use tokio::time::{Duration, Instant, sleep, timeout};
use toolcrib_runtime::{AskError, Caller, Following, News, Party};
use toolcrib_wire::{Era, Fields, RpcError, code};

use super::choosing::{Pick, WhenFull};
use super::follows::{Home, Moved, number};
use super::lanes::{LaneGuard, LaneKey};
use super::{Inner, State};
use crate::connection::{Connection, Failure};

/// How many resources of a server may be followed.
const MOST_FOLLOWED: usize = 10_000;

/// How many are asked for at a time when the connection is a new one.
const AT_ONCE: usize = 16;

/// How long calls on a new connection wait until what is followed on it has been asked for.
const HEAD_START: Duration = Duration::from_secs(2);

/// How long a server may take to open the stream that it tells on: some say nothing at all there
/// before there is news.
const STREAM_LIMIT: Duration = Duration::from_secs(1);

/// How often to look for room for a connection that somebody follows something on.
const LOOK: Duration = Duration::from_secs(1);

/// Where the calls of a client go, the connections there, and what keeps one of them in use.
type There = (Home, Vec<Arc<Connection>>, Option<LaneGuard>);

type Opening = BoxFuture<'static, Result<Arc<There>, AskError>>;

/// The connections that clients wait for, by their numbers: one that follows much at once needs
/// no more than one.
#[derive(Default)]
pub(super) struct Openings(Mutex<HashMap<u64, WeakShared<Opening>>>);

impl Openings {
    /// What the client waits for already, or else this.
    fn join(&self, id: u64, opening: impl FnOnce() -> Opening) -> Shared<Opening> {
        let mut openings = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let there = openings.get(&id).and_then(WeakShared::upgrade);
        if let Some(there) = there.filter(|it| it.peek().is_none()) {
            return there;
        }
        openings.retain(|_, opening| opening.upgrade().is_some());
        let opening = opening().shared();
        if let Some(weak) = opening.downgrade() {
            openings.insert(id, weak);
        }
        opening
    }
}

fn caller(party: Option<&Arc<Party>>) -> Caller {
    let caller = Caller::default();
    party.map_or(caller.clone(), |party| caller.with_party(party.clone()))
}

/// What has begun or ended to be followed while a connection was a new one.
pub(super) struct Since {
    begun: Vec<Arc<str>>,
    ended: Vec<Arc<str>>,
}

impl State {
    /// Whether a connection must stay because of what is followed on it. Of those that are lent
    /// to a group, one is enough.
    pub(super) fn is_followed(&self, key: LaneKey) -> bool {
        let stays = |other: &LaneKey| match (key, other) {
            (LaneKey::Leased { group, slot }, LaneKey::Leased { group: of, slot: before }) => {
                group == *of && *before < slot
            }
            _ => false,
        };
        let mut others = self.lanes.others.iter();
        self.follows.has(key.into())
            && !others.any(|(other, lane)| stays(other) && lane.open().is_some())
    }

    /// The connections of a home that can be used.
    fn open_in(&self, home: Home) -> Vec<Arc<Connection>> {
        let lanes = self.lanes.iter().filter(|(key, _)| Home::from(*key) == home);
        lanes.filter_map(|(_, lane)| lane.open()).cloned().collect()
    }

    /// What was begun or ended in a home since a connection there was asked for so much.
    pub(super) fn followed_since(&self, home: Home, asked: HashSet<Arc<str>>) -> Since {
        let mut begun = self.follows.agreed(home);
        begun.retain(|uri| !asked.contains(uri));
        let is_over = |uri: &Arc<str>| !self.follows.is_followed(home, uri);
        Since { begun, ended: asked.into_iter().filter(is_over).collect() }
    }

    /// A caller for each home that something is followed in and that has no connection.
    fn due(&self) -> Vec<Caller> {
        let now = Instant::now();
        let is_left_alone = self.trouble.as_ref().is_some_and(|it| it.until > now)
            || self.breaker.refusal(now).is_some();
        if self.is_over || is_left_alone {
            return Vec::new();
        }
        let there = self.lanes.iter().filter(|(_, lane)| !lane.phase.is_stopped());
        let mut homes: HashSet<Home> = there.map(|(key, _)| key.into()).collect();
        let is_present = |party: &Arc<Party>| !party.has_ended();
        let present = self.follows.followers().filter(|(_, it)| it.is_none_or(is_present));
        let due = present.filter(|(home, _)| homes.insert(*home));
        due.map(|(_, party)| caller(party)).collect()
    }
}

impl Inner {
    /// Follows a resource for a client until what is returned is dropped.
    pub(super) async fn follow(
        self: &Arc<Self>,
        uri: Arc<str>,
        party: Option<&Arc<Party>>,
    ) -> Result<Following, AskError> {
        let caller = caller(party);
        let lent = self.lent_home(&caller);
        let is_lent = lent.is_some();
        let there = match lent {
            Some(there) => Arc::new(there),
            None => self.clone().home_for(caller.clone()).await?,
        };
        match self.follow_there(&there, &uri, party).await {
            // What was lent may have ended with its call.
            Err(AskError::Unreachable(_)) if is_lent => {
                let there = self.clone().home_for(caller).await?;
                self.follow_there(&there, &uri, party).await
            }
            followed => followed,
        }
    }

    async fn follow_there(
        self: &Arc<Self>,
        there: &There,
        uri: &Arc<str>,
        party: Option<&Arc<Party>>,
    ) -> Result<Following, AskError> {
        let (home, connections) = (there.0, &there.1);
        let (following, moved) = self.note(home, uri, party)?;
        self.move_along(connections, home, moved);
        let asking = connections.iter().map(|connection| self.subscribe(connection, home, uri));
        let asked = join_all(asking).await;
        if asked.iter().all(Result::is_err) {
            let server = &self.config.name;
            return Err(match asked.into_iter().find_map(Result::err) {
                Some(Failure::Refused(error)) => AskError::Refused(error),
                Some(other) => AskError::Unreachable(self.secrets.hide(&other.to_string())),
                None => AskError::Unreachable(format!("Server `{server}` ended meanwhile.")),
            });
        }
        let now = {
            let mut state = self.lock();
            state.follows.agree(home, uri);
            state.open_in(home)
        };
        // One that was opened meanwhile has not heard of it.
        let is_new = |it: &&Arc<Connection>| !connections.iter().any(|old| Arc::ptr_eq(old, it));
        for connection in now.iter().filter(is_new) {
            let _ = self.subscribe(connection, home, uri).await;
        }
        Ok(following)
    }

    /// The connections that are lent to a caller's group, if there are any: none of them need be
    /// free to be told.
    fn lent_home(&self, caller: &Caller) -> Option<There> {
        let state = self.lock();
        let home = Home::from(self.lane_for(&state, caller));
        let open = state.open_in(home);
        (matches!(home, Home::Leased(_)) && !open.is_empty()).then_some((home, open, None))
    }

    /// Where the calls of a caller go: there is a connection then, the same for all that it waits
    /// to follow.
    fn home_for(self: Arc<Self>, caller: Caller) -> Shared<Opening> {
        let (id, inner) = (number(caller.party()), self.clone());
        self.openings
            .join(id, || async move { inner.open_home(&caller).await.map(Arc::new) }.boxed())
    }

    async fn open_home(self: &Arc<Self>, caller: &Caller) -> Result<There, AskError> {
        let connected = self.connection_for(caller).await;
        let (connection, mut guard) = connected.map_err(|reason| {
            let server = &self.config.name;
            AskError::Unreachable(format!("Server `{server}` can't be asked: {reason}."))
        })?;
        guard.was_no_call();
        let home = Home::from(guard.key);
        let mut open = self.lock().open_in(home);
        if !open.iter().any(|it| Arc::ptr_eq(it, &connection)) {
            open.push(connection);
        }
        Ok((home, open, Some(guard)))
    }

    /// Counts one who follows. Says what that client has followed elsewhere until now.
    fn note(
        self: &Arc<Self>,
        home: Home,
        uri: &Arc<str>,
        party: Option<&Arc<Party>>,
    ) -> Result<(Following, Moved), AskError> {
        let mut state = self.lock();
        if state.follows.count() >= MOST_FOLLOWED && !state.follows.is_followed(home, uri) {
            let text = format!("{MOST_FOLLOWED} resources of this server are followed already");
            return Err(AskError::Refused(RpcError::new(code::INTERNAL_ERROR, text)));
        }
        let moved = state.follows.add(party, home, uri);
        drop(state);
        let (inner, id, uri) = (Arc::downgrade(self), number(party), uri.clone());
        let following = Following::new(move || {
            if let Some(inner) = inner.upgrade() {
                inner.unfollow(id, uri);
            }
        });
        Ok((following, moved))
    }

    /// Takes one off who follows. The server is told of the last.
    fn unfollow(self: &Arc<Self>, id: u64, uri: Arc<str>) {
        let mut state = self.lock();
        let Some((home, is_to_be_told)) = state.follows.remove(id, &uri) else { return };
        // They may be idle since long ago.
        let now = Instant::now();
        for key in state.lanes.keys().into_iter().filter(|key| Home::from(*key) == home) {
            if let Some(lane) = state.lanes.get_mut(key) {
                lane.last_used = now;
            }
        }
        let connections = state.open_in(home);
        drop(state);
        if is_to_be_told {
            self.tell_ended(connections, home, vec![uri]);
        }
    }

    /// Tells connections what nobody follows there any more, without waiting for it.
    fn tell_ended(
        self: &Arc<Self>,
        connections: Vec<Arc<Connection>>,
        home: Home,
        uris: Vec<Arc<str>>,
    ) {
        let Ok(runtime) = Handle::try_current() else { return };
        let inner = self.clone();
        runtime.spawn(async move {
            for connection in &connections {
                let inner = &inner;
                // One without sessions is given the whole set, whatever it is that has ended.
                let is_whole = connection.era() == Era::Stateless;
                let ended = uris.iter().take(if is_whole { 1 } else { uris.len() });
                let telling = stream::iter(ended).for_each_concurrent(AT_ONCE, |uri| async move {
                    if inner.lock().follows.is_followed(home, uri) {
                        return;
                    }
                    let _ = inner.ask_for(connection, "resources/unsubscribe", home, uri).await;
                    // Somebody may have come back while the server was told.
                    if inner.lock().follows.is_followed(home, uri) {
                        let _ = inner.subscribe(connection, home, uri).await;
                    }
                });
                telling.await;
            }
        });
    }

    async fn subscribe(
        &self,
        connection: &Arc<Connection>,
        home: Home,
        uri: &Arc<str>,
    ) -> Result<(), Failure> {
        connection.hears_news(STREAM_LIMIT).await;
        self.ask_for(connection, "resources/subscribe", home, uri).await
    }

    /// Has a server with sessions begin or end; one without is given the whole set anew.
    async fn ask_for(
        &self,
        connection: &Arc<Connection>,
        method: &str,
        home: Home,
        uri: &Arc<str>,
    ) -> Result<(), Failure> {
        if connection.era() == Era::Stateless {
            let followed = || self.lock().follows.all(home);
            connection.listen(followed).within(self.config.start_limit).await;
            return Ok(());
        }
        let mut params = Fields::default();
        params.set("uri", uri);
        let limit = Some(self.config.start_limit);
        connection.request(method, params, &Caller::default(), limit).await.map(drop)
    }

    /// Asks for much at once, as the server has agreed to before. `done` is told of each.
    async fn subscribe_all(
        &self,
        connection: &Arc<Connection>,
        home: Home,
        uris: Vec<Arc<str>>,
        done: impl Fn(&Arc<str>),
    ) {
        if connection.era() == Era::Stateless && !uris.is_empty() {
            let followed = || self.lock().follows.all(home);
            connection.listen(followed).within(STREAM_LIMIT).await;
            return uris.iter().for_each(done);
        }
        let done = &done;
        let asking = stream::iter(uris).for_each_concurrent(AT_ONCE, |uri| async move {
            if let Err(failure) = self.subscribe(connection, home, &uri).await {
                let server = &self.config.name;
                let reason = self.secrets.hide(&failure.to_string());
                tracing::warn!(server, %uri, reason, "no longer followed");
            }
            done(&uri);
        });
        asking.await;
    }

    /// Has a new connection tell of what it should, before it is used. What is followed on it and
    /// nowhere else was out of sight for a while, and so counts as changed. Returns what was asked
    /// for.
    pub(super) async fn follow_anew(
        &self,
        connection: &Arc<Connection>,
        key: LaneKey,
    ) -> HashSet<Arc<str>> {
        let home = Home::from(key);
        let (uris, is_alone) = {
            let state = self.lock();
            (state.follows.agreed(home), state.open_in(home).is_empty())
        };
        if uris.is_empty() {
            let _ = connection.listen(Vec::new);
            return HashSet::new();
        }
        if connection.era() == Era::Sessions {
            let _ = connection.listen(|| uris.clone());
        }
        let asked = Mutex::new(HashSet::new());
        let done = |uri: &Arc<str>| {
            asked.lock().unwrap_or_else(PoisonError::into_inner).insert(uri.clone());
            if is_alone {
                self.tell_updated(home, uri);
            }
        };
        let asking = self.subscribe_all(connection, home, uris, done);
        let _ = timeout(HEAD_START, asking).await;
        asked.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes up for what was begun or ended while a connection was a new one.
    pub(super) async fn catch_up(
        &self,
        connection: &Arc<Connection>,
        key: LaneKey,
        Since { begun, ended }: Since,
    ) {
        let home = Home::from(key);
        for uri in &ended {
            let _ = self.ask_for(connection, "resources/unsubscribe", home, uri).await;
        }
        let tell = |uri: &Arc<str>| self.tell_updated(home, uri);
        self.subscribe_all(connection, home, begun, tell).await;
    }

    /// Asks for what was followed elsewhere and ends it there, without waiting for it.
    fn move_along(
        self: &Arc<Self>,
        connections: &[Arc<Connection>],
        home: Home,
        Moved { agreed, left }: Moved,
    ) {
        if let Some((from, uris)) = left {
            let there = self.lock().open_in(from);
            self.tell_ended(there, from, uris);
        }
        if agreed.is_empty() {
            return;
        }
        let (inner, connections) = (self.clone(), connections.to_vec());
        let moved: Vec<Arc<str>> = agreed.into_iter().collect();
        tokio::spawn(async move {
            for connection in &connections {
                let tell = |uri: &Arc<str>| inner.tell_updated(home, uri);
                inner.subscribe_all(connection, home, moved.clone(), tell).await;
            }
        });
    }

    /// Tells those who follow a resource that it has changed.
    pub(super) fn tell_updated(&self, home: Home, uri: &str) {
        let whom = self.lock().follows.whom(home, uri);
        self.tell_news(whom.map(|whom| News::Updated { uri: uri.into(), whom }));
    }

    /// Tells those who follow what the server says has changed, or what that is a part of: each by
    /// the uri that it follows.
    pub(super) fn tell_changed(&self, home: Home, uri: &str) {
        let followed = self.lock().follows.holding(home, uri);
        followed.iter().for_each(|uri| self.tell_updated(home, uri));
    }

    /// Tells of all that is followed in a place: any of it may have changed.
    pub(super) fn tell_all_updated(&self, home: Home) {
        let followed = self.lock().follows.all(home);
        followed.iter().for_each(|uri| self.tell_updated(home, uri));
    }

    /// Sees to it that there is a connection wherever something is followed.
    pub(super) fn follow_on(self: &Arc<Self>) {
        let Ok(runtime) = Handle::try_current() else { return };
        let mut state = self.lock();
        if state.follows.is_seen_to || state.due().is_empty() {
            return;
        }
        state.follows.is_seen_to = true;
        drop(state);
        runtime.spawn(self.clone().see_to_follows());
    }

    async fn see_to_follows(self: Arc<Self>) {
        loop {
            let due = {
                let mut state = self.lock();
                let due = state.due();
                state.follows.is_seen_to = !due.is_empty();
                due
            };
            if due.is_empty() {
                return;
            }
            let inner = &self;
            let starting = stream::iter(due)
                .for_each_concurrent(AT_ONCE, |caller| async move { inner.take_up(&caller).await });
            starting.await;
            // Those who call have what room there is first.
            sleep(LOOK).await;
        }
    }

    /// Opens the connection that a caller's calls would go to now, if there is room for it: it
    /// need not be one like before.
    async fn take_up(self: &Arc<Self>, caller: &Caller) {
        let Ok(Pick::Lane(mut guard, connection)) = self.pick(caller, WhenFull::DoWithout) else {
            return;
        };
        guard.was_no_call();
        let connection = match connection {
            Some(connection) => connection,
            None => match self.running(&guard).await {
                Ok(connection) => connection,
                Err(_) => return,
            },
        };
        let home = Home::from(guard.key);
        let moved = self.rehome(caller, home);
        self.move_along(&[connection], home, moved);
    }

    /// Moves what a caller follows to where its calls go now, and all that was followed in the
    /// same place by others whose calls go there, too.
    fn rehome(&self, moving: &Caller, to: Home) -> Moved {
        let (mut state, mut moved) = (self.lock(), Moved::default());
        let id = number(moving.party());
        let from = state.follows.home_of(id);
        let goes_along = |party: Option<&Arc<Party>>| {
            number(party) == id || Home::from(self.lane_for(&state, &caller(party))) == to
        };
        let followers = state.follows.followers().filter(|(home, _)| Some(*home) == from);
        let along = followers.filter(|(_, party)| goes_along(*party));
        let along: Vec<u64> = along.map(|(_, party)| number(party)).collect();
        for id in along {
            state.follows.rehome(id, to, &mut moved);
        }
        moved
    }
}
