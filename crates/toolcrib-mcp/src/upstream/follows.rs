//! Who follows which resource, and where.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use toolcrib_runtime::Party;

use super::lanes::LaneKey;

/// How long the uri of a resource may be that others are looked upon as parts of.
const LONGEST_PATH: usize = 2_048;

/// The connections that the calls of a client may go to: what it follows is followed on all of
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Home {
    Main,
    Stateless,
    Own(u64),
    /// Those that are lent to a group.
    Leased(u128),
}

impl From<LaneKey> for Home {
    fn from(key: LaneKey) -> Self {
        match key {
            LaneKey::Main => Self::Main,
            LaneKey::Stateless => Self::Stateless,
            LaneKey::Own(party) => Self::Own(party),
            LaneKey::Leased { group, .. } => Self::Leased(group),
        }
    }
}

/// Who follows which resource, and where. All that a client follows is followed in one place.
#[derive(Default)]
pub(super) struct Follows {
    by_client: HashMap<u64, Follower>,
    by_home: HashMap<Home, HashMap<Arc<str>, Followed>>,
    /// Whether somebody sees to it that there is a connection wherever something is followed.
    pub(super) is_seen_to: bool,
}

struct Follower {
    party: Option<Arc<Party>>,
    home: Home,
    /// What, and how often.
    uris: HashMap<Arc<str>, usize>,
}

#[derive(Default)]
struct Followed {
    by: BTreeSet<u64>,
    /// Whether the server has agreed, now or on an earlier connection.
    is_agreed: bool,
}

/// What clients have followed elsewhere until now.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Moved {
    /// What the server had agreed to there.
    pub(super) agreed: BTreeSet<Arc<str>>,
    /// Where that was, and what nobody follows there any more of it.
    pub(super) left: Option<(Home, Vec<Arc<str>>)>,
}

/// A client's number, or that of nobody in particular.
pub(super) fn number(party: Option<&Arc<Party>>) -> u64 {
    party.map_or(0, |party| party.id())
}

impl Follows {
    /// How many resources are followed, each as often as there are places.
    pub(super) fn count(&self) -> usize {
        self.by_home.values().map(HashMap::len).sum()
    }

    pub(super) fn has(&self, home: Home) -> bool {
        self.by_home.contains_key(&home)
    }

    pub(super) fn is_followed(&self, home: Home, uri: &str) -> bool {
        self.by_home.get(&home).is_some_and(|uris| uris.contains_key(uri))
    }

    /// What is followed in a place.
    pub(super) fn all(&self, home: Home) -> Vec<Arc<str>> {
        self.by_home.get(&home).into_iter().flat_map(HashMap::keys).cloned().collect()
    }

    /// The same, as far as the server has agreed.
    pub(super) fn agreed(&self, home: Home) -> Vec<Arc<str>> {
        let all = self.by_home.get(&home).into_iter().flatten();
        all.filter(|(_, followed)| followed.is_agreed).map(|(uri, _)| uri.clone()).collect()
    }

    /// Notes that the server has agreed to tell of a resource.
    pub(super) fn agree(&mut self, home: Home, uri: &str) {
        if let Some(followed) = self.by_home.get_mut(&home).and_then(|uris| uris.get_mut(uri)) {
            followed.is_agreed = true;
        }
    }

    /// The clients that follow a resource in a place, by number.
    pub(super) fn whom(&self, home: Home, uri: &str) -> Option<Arc<[u64]>> {
        let followed = self.by_home.get(&home)?.get(uri)?;
        Some(followed.by.iter().copied().collect())
    }

    /// What is followed in a place and is this resource, or one that it is a part of: a path that
    /// it is further down from.
    pub(super) fn holding(&self, home: Home, uri: &str) -> Vec<Arc<str>> {
        let Some(followed) = self.by_home.get(&home) else { return Vec::new() };
        let slashes = uri.match_indices('/').map(|(at, _)| at);
        let slashes = slashes.take_while(|at| *at < LONGEST_PATH);
        // Such a path may be followed with its last slash or without.
        let paths = slashes.flat_map(|at| [&uri[..at], &uri[..=at]]);
        let held = paths.filter(|path| path.len() < uri.len()).chain([uri]);
        held.filter_map(|path| followed.get_key_value(path)).map(|(uri, _)| uri.clone()).collect()
    }

    /// Who follows anything, and where.
    pub(super) fn followers(&self) -> impl Iterator<Item = (Home, Option<&Arc<Party>>)> {
        self.by_client.values().map(|follower| (follower.home, follower.party.as_ref()))
    }

    /// Where a client follows anything.
    pub(super) fn home_of(&self, id: u64) -> Option<Home> {
        self.by_client.get(&id).map(|follower| follower.home)
    }

    /// Counts one who follows. What that client has followed elsewhere moves along.
    pub(super) fn add(&mut self, party: Option<&Arc<Party>>, home: Home, uri: &Arc<str>) -> Moved {
        let (id, mut moved) = (number(party), Moved::default());
        self.rehome(id, home, &mut moved);
        let new = || Follower { party: party.cloned(), home, uris: HashMap::new() };
        let follower = self.by_client.entry(id).or_insert_with(new);
        *follower.uris.entry(uri.clone()).or_default() += 1;
        self.by_home.entry(home).or_default().entry(uri.clone()).or_default().by.insert(id);
        moved
    }

    /// Moves all that a client follows to another place. What is `moved` comes from the same one.
    pub(super) fn rehome(&mut self, id: u64, to: Home, moved: &mut Moved) {
        let Some(follower) = self.by_client.get_mut(&id).filter(|it| it.home != to) else { return };
        let from = std::mem::replace(&mut follower.home, to);
        let uris: Vec<Arc<str>> = follower.uris.keys().cloned().collect();
        for uri in uris {
            let (is_last, is_agreed) = self.take(from, &uri, id).unwrap_or_default();
            let there = self.by_home.entry(to).or_default().entry(uri.clone()).or_default();
            there.by.insert(id);
            if !is_agreed {
                continue;
            }
            there.is_agreed = true;
            if is_last {
                moved.left.get_or_insert((from, Vec::new())).1.push(uri.clone());
            }
            moved.agreed.insert(uri);
        }
    }

    /// Takes one off who follows. Says where, and whether the server is to be told.
    pub(super) fn remove(&mut self, id: u64, uri: &Arc<str>) -> Option<(Home, bool)> {
        let follower = self.by_client.get_mut(&id)?;
        let (home, count) = (follower.home, follower.uris.get_mut(uri)?);
        *count -= 1;
        if *count > 0 {
            return Some((home, false));
        }
        follower.uris.remove(uri);
        if follower.uris.is_empty() {
            self.by_client.remove(&id);
        }
        let (is_last, is_agreed) = self.take(home, uri, id)?;
        Some((home, is_last && is_agreed))
    }

    /// Takes a client off a resource. Says whether it was the last, and whether the server had
    /// agreed.
    fn take(&mut self, home: Home, uri: &Arc<str>, id: u64) -> Option<(bool, bool)> {
        let uris = self.by_home.get_mut(&home)?;
        let followed = uris.get_mut(uri)?;
        followed.by.remove(&id);
        let (is_last, is_agreed) = (followed.by.is_empty(), followed.is_agreed);
        if is_last {
            uris.remove(uri);
            if uris.is_empty() {
                self.by_home.remove(&home);
            }
        }
        Some((is_last, is_agreed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcrib_wire::Era;

    #[test]
    fn what_a_client_follows_moves_whole_and_is_counted_by_place() {
        let party = || Some(Arc::new(Party::new(Era::Sessions, 0, None, None)));
        let (one, two) = (party(), party());
        let ids = [number(one.as_ref()), number(two.as_ref())];
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut follows = Follows::default();
        let own = Home::Own(ids[0]);
        assert_eq!(follows.add(one.as_ref(), own, &a), Moved::default());
        follows.agree(own, "a");
        follows.add(two.as_ref(), Home::Main, &a);
        assert_eq!(*follows.whom(own, "a").unwrap(), [ids[0]]);
        assert_eq!(follows.count(), 2);
        // Its next is followed elsewhere, and so the first is, too.
        let moved = follows.add(one.as_ref(), Home::Main, &b);
        let left = Some((own, vec![a.clone()]));
        assert_eq!(moved, Moved { agreed: [a.clone()].into(), left });
        assert!(!follows.has(own));
        assert_eq!(*follows.whom(Home::Main, "a").unwrap(), ids);
        assert_eq!(follows.agreed(Home::Main), vec![a.clone()], "nobody has asked for b yet");
        follows.add(one.as_ref(), Home::Main, &a);
        assert_eq!(follows.remove(ids[0], &a), Some((Home::Main, false)), "once more");
        assert_eq!(follows.remove(ids[0], &a), Some((Home::Main, false)), "the other still does");
        assert_eq!(follows.remove(ids[1], &a), Some((Home::Main, true)));
        assert_eq!(follows.remove(ids[0], &b), Some((Home::Main, false)), "never agreed to");
        assert_eq!((follows.remove(ids[0], &b), follows.count()), (None, 0));
        assert!(follows.followers().next().is_none() && !follows.has(Home::Main));
    }
    #[test]
    fn a_resource_is_held_by_the_paths_above_it_and_by_no_other() {
        let mut follows = Follows::default();
        let all = ["f:///", "f:///a", "f:///a/", "f:///a/b", "f:///a/b/c", "f:///ab"];
        for uri in all {
            follows.add(None, Home::Main, &uri.into());
        }
        let holding = |uri| {
            follows.holding(Home::Main, uri).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        assert_eq!(holding("f:///a/b/d"), ["f:///", "f:///a", "f:///a/", "f:///a/b"]);
        assert_eq!(holding("f:///a/b"), ["f:///", "f:///a", "f:///a/", "f:///a/b"]);
        assert_eq!(holding("f:///a/"), ["f:///", "f:///a", "f:///a/"], "each once");
        assert_eq!(holding("f:///abc"), ["f:///"]);
        assert!(holding("g:///a").is_empty());
        assert!(follows.holding(Home::Stateless, "f:///a").is_empty());
    }
}
