//! Who a caller is, and what follows from that.

use std::fmt;
use std::sync::{Arc, OnceLock};

use toolcrib_core::{Fingerprint, Policy};
use toolcrib_runtime::{Conversation, Party, Trail};

use crate::limits::{Limits, Meter, Place, TooMany};

/// The longest name of a caller.
const MOST_NAME: usize = 100;

/// A caller's place. Those who can't be told apart share one; it is made once, not for each
/// request.
pub(crate) struct Seat {
    /// For logs, where somebody named the caller.
    pub(crate) name: Option<Arc<str>>,
    /// Equal for requests of the same caller.
    pub(crate) principal: u64,
    /// What the caller may see and call.
    pub(crate) policy: Policy,
    /// The same, with its rules for callers of other names.
    for_all: Policy,
    limits: Limits,
    meter: Option<Arc<Meter>>,
    /// What the caller searched for lately, where no session says who asks. Callers that nobody
    /// can tell apart have none in common.
    trail: Option<Trail>,
    /// Runs calls that are passed on as they stand. It has no ledger to speak of.
    pub(crate) straight: OnceLock<Conversation>,
}

impl Seat {
    /// The seat of whoever comes, where nobody is asked who they are.
    pub(crate) fn open(policy: Policy, limits: Limits) -> Self {
        Self {
            name: None,
            principal: 0,
            policy: policy.for_caller(None),
            for_all: policy,
            limits,
            meter: Meter::new(&limits).map(Arc::new),
            trail: None,
            straight: OnceLock::new(),
        }
    }

    /// The seat of a caller who is known: `who` are the bytes that tell them from others. They
    /// may do what whoever comes to the open seat may.
    pub(crate) fn known<'a>(open: &Self, who: impl IntoIterator<Item = &'a [u8]>) -> Self {
        Self {
            principal: number(Fingerprint::of(who)),
            trail: Some(Trail::default()),
            ..Self::open(open.for_all.clone(), open.limits)
        }
    }

    /// Names the caller, for logs and for rules. What is long or odd is cut and marked, so that it
    /// is nobody else's name.
    pub(crate) fn named(mut self, name: &str) -> Self {
        let plain = |c: char| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c };
        let mut shown: String = name.chars().map(plain).take(MOST_NAME).collect();
        if name.chars().count() > MOST_NAME {
            shown.push('…');
        }
        self.policy = self.for_all.for_caller(Some(&shown));
        self.name = Some(shown.into());
        self
    }

    /// Narrows what the caller may see to what any of these admits.
    pub(crate) fn narrowed(mut self, any_of: impl IntoIterator<Item = Policy>) -> Self {
        self.for_all = self.for_all.within(any_of);
        self.policy = self.for_all.for_caller(self.name.as_deref());
        self
    }

    /// Limits the caller in a way of its own.
    pub(crate) fn limited(mut self, limits: Limits) -> Self {
        (self.limits, self.meter) = (limits, Meter::new(&limits).map(Arc::new));
        self
    }

    /// Counts what the caller asks for together with what it asks for in another seat.
    pub(crate) fn sharing(mut self, other: &Self) -> Self {
        self.meter.clone_from(&other.meter);
        self
    }

    /// Takes a place for a call; none is needed where nothing is limited.
    pub(crate) fn enter(&self) -> Result<Option<Place>, TooMany> {
        self.meter.as_deref().map(Meter::enter).transpose()
    }

    /// A client with the caller's name, if there is one.
    pub(crate) fn naming(&self, party: Party) -> Party {
        match &self.name {
            Some(name) => party.named(name.clone()),
            None => party,
        }
    }

    pub(crate) fn trail(&self) -> Trail {
        self.trail.clone().unwrap_or_default()
    }

    /// Whether callers of both seats may see and call the same.
    pub(crate) fn sees_as(&self, other: &Self) -> bool {
        self.policy.fingerprint() == other.policy.fingerprint()
    }

    /// Whether what was begun in one seat may go on in the other.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.principal == other.principal && self.sees_as(other)
    }
}

/// Nobody's number is that of the open seat.
fn number(print: Fingerprint) -> u64 {
    let digits = print.to_string();
    u64::from_str_radix(&digits[..16], 16).unwrap_or_default().max(1)
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("name", &self.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use toolcrib_wire::Era;

    #[test]
    fn a_seat_is_its_callers_and_its_policys() {
        let (all, git) = (Policy::default(), Policy::only_server("git").unwrap());
        let open = |policy: &Policy| Seat::open(policy.clone(), Limits::default());
        let seat = |who: &str| Seat::known(&open(&all), [who.as_bytes()]);
        let narrow = || seat("a").narrowed([git.clone()]);
        assert!(seat("a").is_same(&seat("a")) && narrow().is_same(&narrow()));
        assert!(!seat("a").is_same(&seat("b")));
        assert!(!seat("a").is_same(&narrow()));
        assert!(!seat("a").is_same(&open(&all)));
        assert!(narrow().policy.admits_server("git") && !narrow().policy.admits_server("db"));
        let denied = Seat::known(&open(&git), [&b"a"[..]]).narrowed([all.clone()]);
        assert!(!denied.policy.admits_server("db"), "a policy of one's own gives nothing");
    }

    #[test]
    fn rules_for_a_caller_hold_for_that_caller() {
        let rule = r#"{"rules": [{"servers": ["db"], "callers": ["ci"], "then": "deny"}]}"#;
        let policy = Policy::new(serde_json::from_str(rule).unwrap()).unwrap();
        let open = Seat::open(policy, Limits::default());
        let admits = |seat: &Seat| seat.policy.admits_server("db");
        let seat = || Seat::known(&open, [&b"a"[..]]);
        assert!(admits(&open) && admits(&seat()) && admits(&seat().named("ann")));
        assert!(!admits(&seat().named("ci")));
        assert!(!admits(&seat().named("ci").narrowed([Policy::default()])));
        assert!(!admits(&seat().narrowed([Policy::default()]).named("ci")));
        // Nothing else becomes that name by being made fit for a log.
        assert!(admits(&seat().named("c\u{1}i")) && admits(&seat().named("ci\n")));
        let party = || Party::new(Era::Sessions, 0, None, None);
        let told = |seat: Seat| seat.naming(party()).name().map(ToString::to_string);
        assert_eq!((told(seat().named("ci")).as_deref(), told(seat())), (Some("ci"), None));
        let long = seat().named(&"x".repeat(1_000)).name.unwrap();
        assert!(long.ends_with("x…") && long.chars().count() == MOST_NAME + 1);
    }
}
