//! Telling clients what has changed: lists, and the resources they follow.

use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures::future::join_all;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::{broadcast, watch};
use tokio::time::{Instant, sleep_until};
use toolcrib_core::{Fingerprint, Group, GroupId};
use toolcrib_runtime::{News, Toolset};
use toolcrib_wire::version::meta::SUBSCRIPTION_ID;
use toolcrib_wire::{Id, NO_PARAMS, notification};

use crate::client::Client;
use crate::ends::Ends;
use crate::follows::{Followed, Follows, MOST_FOLLOWED};
use crate::gateway::{WeakGateway, server_name};
use crate::held::Held;
use crate::methods::Filter;
use crate::offers::{Kind, List};
use crate::outbox::Outbox;
use crate::passed::with_task;
use crate::relay::Hearing;
use crate::{Endpoint, Gateway};

/// Changes that come closer together than this are told as one.
const CLOSE_TOGETHER: Duration = Duration::from_millis(100);

/// What servers said lately that may wait for those who tell it.
const MOST_WAITING: usize = 1_024;

/// A list that clients know.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Listed {
    Tools,
    Prompts,
    Resources,
}

impl Listed {
    const ALL: [Self; 3] = [Self::Tools, Self::Prompts, Self::Resources];

    fn method(self) -> &'static str {
        match self {
            Self::Tools => "notifications/tools/list_changed",
            Self::Prompts => "notifications/prompts/list_changed",
            Self::Resources => "notifications/resources/list_changed",
        }
    }
}

/// What is compared to see whether a list has changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Version {
    Seen(Fingerprint),
    /// The hash of what is listed.
    Listed(u64),
}

/// The lists that somebody was last told of.
#[derive(Debug, Default)]
pub(crate) struct Told(Mutex<[Option<Version>; 3]>);

impl Told {
    /// Notes what is told from now on; says whether something else was told before.
    fn replace(&self, list: Listed, now: Version) -> bool {
        let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        told[list as usize].replace(now).is_some_and(|before| before != now)
    }
}

/// Waits for the end: until somebody says so, or nobody is left to.
pub(crate) async fn closed(mut closing: watch::Receiver<bool>) {
    let _ = closing.wait_for(|closing| *closing).await;
}

/// Something a server said.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    from: GroupId,
    /// None if it was missed: it may have been anything.
    news: Option<News>,
}

/// Where all that servers say comes together, once somebody listens.
pub(crate) struct Hub {
    said: broadcast::Sender<Said>,
    /// The servers that are heard.
    heard: Mutex<HashMap<GroupId, Heard>>,
    /// What any client follows.
    followed: Followed,
    gathering: OnceLock<Ends>,
}

/// A server that is heard, by a task of its own.
struct Heard {
    toolset: Weak<dyn Toolset>,
    _repeating: Ends,
}

impl Default for Hub {
    fn default() -> Self {
        let said = broadcast::Sender::new(MOST_WAITING);
        let (heard, followed) = (Mutex::default(), Followed::default());
        Self { said, heard, followed, gathering: OnceLock::new() }
    }
}

impl Hub {
    pub(crate) fn followed(&self) -> &Followed {
        &self.followed
    }

    /// What servers say from now on.
    fn listen(&self, gateway: &Gateway) -> broadcast::Receiver<Said> {
        self.gathering.get_or_init(|| {
            let keep_up = keep_up(gateway.downgrade(), gateway.crib().changes());
            Ends(tokio::spawn(keep_up).abort_handle())
        });
        let heard = self.said.subscribe();
        self.hear_all(gateway);
        heard
    }

    /// Hears every server there is, and no other.
    fn hear_all(&self, gateway: &Gateway) {
        // First, so that nobody who looked earlier has the last word.
        let mut heard = self.heard.lock().unwrap_or_else(PoisonError::into_inner);
        let catalog = gateway.catalog();
        let groups = catalog.groups().map(Group::id);
        let all = groups.chain(catalog.unready().map(|(id, _)| id));
        let there: HashMap<&GroupId, Arc<dyn Toolset>> =
            all.filter_map(|id| Some((id, gateway.crib().toolset(id)?))).collect();
        heard.retain(|id, heard| {
            let now = there.get(id).map(Arc::downgrade);
            now.is_some_and(|now| Weak::ptr_eq(&heard.toolset, &now))
        });
        for (id, toolset) in &there {
            if heard.contains_key(*id) {
                continue;
            }
            if let Some(server) = toolset.server() {
                let (said, followed) = (self.said.clone(), self.followed.clone());
                let repeating = repeat((*id).clone(), server.news(), said, followed);
                let _repeating = Ends(tokio::spawn(repeating).abort_handle());
                let toolset = Arc::downgrade(toolset);
                heard.insert((*id).clone(), Heard { toolset, _repeating });
            }
        }
        // Toolsets that nobody else has any more end without the lock.
        drop(heard);
    }
}

/// Hears servers as they come and go.
async fn keep_up(gateway: WeakGateway, mut changes: watch::Receiver<u64>) {
    while changes.changed().await.is_ok() {
        let Some(gateway) = gateway.upgrade() else { return };
        gateway.hub().hear_all(&gateway);
    }
}

/// Repeats what one server says, but for resources that nobody follows: the room for news is
/// everybody's.
async fn repeat(
    from: GroupId,
    mut news: broadcast::Receiver<News>,
    said: broadcast::Sender<Said>,
    followed: Followed,
) {
    loop {
        let news = match news.recv().await {
            Ok(News::Updated { uri, .. }) if !followed.has(&from, &uri) => continue,
            Ok(news) => Some(news),
            Err(RecvError::Lagged(_)) => None,
            Err(RecvError::Closed) => return,
        };
        let _ = said.send(Said { from: from.clone(), news });
    }
}

/// Who is told: a client, about what it knows and follows.
struct Audience<'a> {
    client: &'a Client,
    told: &'a Told,
    follows: &'a Follows,
    filter: &'a Filter,
    outbox: &'a Arc<Outbox>,
    /// What stands in every notification.
    meta: Option<&'a Value>,
}

impl Audience<'_> {
    fn wants(&self, list: Listed) -> bool {
        match list {
            Listed::Tools => self.filter.tools_list_changed,
            Listed::Prompts => self.filter.prompts_list_changed,
            Listed::Resources => self.filter.resources_list_changed,
        }
    }

    fn say_changed(&self, list: Listed) {
        let text = match self.meta {
            Some(meta) => notification(list.method(), Some(&json!({"_meta": meta}))),
            None => notification(list.method(), NO_PARAMS),
        };
        self.outbox.note(&text);
    }

    /// Passes on what is meant for this client, if it is.
    fn pass_on(&self, from: &GroupId, party: u64, method: &str, params: Option<&RawValue>) {
        let client = self.client;
        if self.meta.is_some() || client.party().is_none_or(|own| own.id() != party) {
            return;
        }
        let Some(params) = params else {
            return self.outbox.note(&notification(method, NO_PARAMS));
        };
        let logs = Some(client.logs().unwrap_or_default());
        let (outbox, held) = (self.outbox.clone(), Held::default());
        let hearing = Hearing { outbox, token: None, logs, held };
        let is_of_task = method.starts_with("notifications/tasks");
        let renamed = match client.endpoint {
            Endpoint::Server(_) => None,
            _ if is_of_task => with_task(server_name(from), params.get()),
            _ => None,
        };
        let renamed = renamed.and_then(|text| RawValue::from_string(text).ok());
        hearing.hear(method, renamed.as_deref().unwrap_or(params));
    }

    fn say_updated(&self, uri: &str) {
        let mut params = json!({"uri": uri});
        if let Some(meta) = self.meta {
            params["_meta"] = meta.clone();
        }
        self.outbox.note(&notification("notifications/resources/updated", Some(&params)));
    }
}

impl Gateway {
    /// Tells a client of the session era what changes, and what changed since it was last told.
    /// It never ends.
    pub(crate) async fn tell_changes(&self, client: &Client, outbox: &Arc<Outbox>) {
        let (told, follows) = (&client.told, &client.follows);
        let filter = &Filter::lists();
        let heard = self.hub().listen(self);
        // What was said of resources while nobody listened is not known any more.
        let missed = follows.all(None);
        let audience = Audience { client, told, follows, filter, outbox, meta: None };
        self.tell(audience, heard, missed).await;
    }

    /// Notes the lists as a client sees them now: what changes from here on is told.
    pub(crate) fn note_lists(&self, client: &Client, told: &Told) {
        for list in Listed::ALL {
            told.replace(list, self.version(client, list));
        }
    }

    /// Begins with the resources that may have changed before.
    async fn tell(
        &self,
        audience: Audience<'_>,
        mut heard: broadcast::Receiver<Said>,
        missed: Vec<String>,
    ) {
        let client = audience.client;
        let mut changes = self.crib().changes();
        changes.mark_changed();
        let mut due: Option<Instant> = None;
        let mut spoken = BTreeSet::new();
        let mut updated = BTreeSet::from_iter(missed);
        loop {
            let soon = Instant::now() + CLOSE_TOGETHER;
            tokio::select! {
                // The crib is as old as the gateway: there is no error to see.
                Ok(()) = changes.changed() => {
                    due.get_or_insert(soon);
                }
                said = heard.recv() => match said {
                    Ok(Said { from, news: None }) => {
                        updated.extend(audience.follows.all(Some(&from)));
                        due.get_or_insert(soon);
                    }
                    Ok(Said { from, news: Some(news) }) => match news {
                        News::Prompts | News::Resources => {
                            let is_prompts = matches!(news, News::Prompts);
                            let list = if is_prompts { Listed::Prompts } else { Listed::Resources };
                            if self.is_only(client, &from) {
                                spoken.insert(list);
                            }
                            due.get_or_insert(soon);
                        }
                        News::Updated { uri, whom } => {
                            let names = audience.follows.names(&from, &uri, &whom);
                            if !names.is_empty() {
                                updated.extend(names);
                                due.get_or_insert(soon);
                            }
                        }
                        News::For { party, method, params } => {
                            let params = params.as_deref();
                            audience.pass_on(&from, party, &method, params);
                        }
                    },
                    Err(RecvError::Lagged(_)) => {
                        updated.extend(audience.follows.all(None));
                        due.get_or_insert(soon);
                    }
                    Err(RecvError::Closed) => return,
                },
                () = sleep_until(due.unwrap_or(soon)), if due.is_some() => {
                    due = None;
                    for list in Listed::ALL {
                        let is_new = audience.told.replace(list, self.version(client, list));
                        if (spoken.remove(&list) || is_new) && audience.wants(list) {
                            audience.say_changed(list);
                        }
                    }
                    for uri in std::mem::take(&mut updated) {
                        audience.say_updated(&uri);
                    }
                }
            }
        }
    }

    /// Whether a client sees this server and no other, so that its word is passed on.
    fn is_only(&self, client: &Client, id: &GroupId) -> bool {
        match &client.endpoint {
            Endpoint::Server(server) => self.group_of(&client.seat, server).as_ref() == Some(id),
            _ => false,
        }
    }

    /// A list as it is now, as the client sees it.
    fn version(&self, client: &Client, list: Listed) -> Version {
        let hash = match list {
            Listed::Tools => return self.tools_version(client),
            Listed::Prompts => self.list_hash(client, Kind::Prompts),
            Listed::Resources => {
                let kinds = [Kind::Resources, Kind::Templates];
                hash_of(kinds.map(|kind| self.list_hash(client, kind)))
            }
        };
        Version::Listed(hash)
    }

    fn list_hash(&self, client: &Client, kind: Kind) -> u64 {
        match &client.endpoint {
            Endpoint::Server(server) => {
                let offers = self.offers_of(&client.seat, server);
                offers.map_or(0, |offers| List::own(kind, &offers).hash)
            }
            endpoint => self.table(&client.seat).list(kind, endpoint).hash,
        }
    }

    fn tools_version(&self, client: &Client) -> Version {
        let seat = &client.seat;
        let list = match &client.endpoint {
            // Written out it may have megabytes.
            Endpoint::Full => return Version::Seen(self.view(seat).fingerprint()),
            Endpoint::Inject => {
                let ledger = client.conversation(self);
                self.list(seat, &Endpoint::Inject, Some(&ledger))
            }
            endpoint => self.list(seat, endpoint, None),
        };
        Version::Listed(hash_of(list))
    }

    /// Answers `subscriptions/listen`: tells of changes until the gateway closes; the result is
    /// the response's.
    pub(crate) async fn listen(
        &self,
        client: &Client,
        id: &Id,
        filter: Filter,
        outbox: &Arc<Outbox>,
        closing: watch::Receiver<bool>,
    ) -> String {
        // Before the client hears that it will be told.
        let heard = self.hub().listen(self);
        let (told, follows) = (Told::default(), Follows::default());
        self.note_lists(client, &told);
        let (wanted, party) = (filter.uris.iter().take(MOST_FOLLOWED), filter.party.as_ref());
        let followed = wanted.map(|uri| {
            let follows = &follows;
            async move {
                let followed = self.follow(client, party, follows, uri).await;
                followed.is_ok().then_some(uri)
            }
        });
        let followed: Vec<&String> = join_all(followed).await.into_iter().flatten().collect();
        let meta = json!({SUBSCRIPTION_ID: id});
        let mut agreed = Value::Object(Default::default());
        for (name, is_wanted) in filter.named() {
            if is_wanted {
                agreed[name] = true.into();
            }
        }
        if !followed.is_empty() {
            agreed["resourceSubscriptions"] = json!(followed);
        }
        let ack = json!({"_meta": meta, "notifications": agreed});
        outbox.send(&notification("notifications/subscriptions/acknowledged", Some(&ack)));
        let (told, follows, filter) = (&told, &follows, &filter);
        let meta_of_all = Some(&meta);
        let audience = Audience { client, told, follows, filter, outbox, meta: meta_of_all };
        tokio::select! {
            () = self.tell(audience, heard, Vec::new()) => {}
            () = closed(closing) => {}
        }
        json!({"resultType": "complete", "_meta": meta}).to_string()
    }
}

fn hash_of(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn what_nobody_follows_takes_no_room() {
        let (news, said) = (broadcast::Sender::new(4), broadcast::Sender::new(4));
        let mut heard = said.subscribe();
        let id = GroupId::server("a");
        let repeating = repeat(id, news.subscribe(), said, Followed::default());
        let _repeating = Ends(tokio::spawn(repeating).abort_handle());
        news.send(News::Updated { uri: "x:y".into(), whom: [0].into() }).unwrap();
        news.send(News::Prompts).unwrap();
        let first = heard.recv().await.unwrap().news;
        assert!(matches!(first, Some(News::Prompts)), "{first:?}");
    }
}
