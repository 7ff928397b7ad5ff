//! Whose the tasks are that servers work on: whoever began one may ask for it, and nobody else.

use std::collections::{HashSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::value::RawValue;
use toolcrib_core::Fingerprint;
use toolcrib_wire::Fields;

use crate::seat::Seat;

/// Tasks that are remembered; the oldest are forgotten.
const MOST_KEPT: usize = 10_000;

/// The tasks that callers have begun.
#[derive(Default)]
pub(crate) struct Tasks(Mutex<Kept>);

#[derive(Default)]
struct Kept {
    known: HashSet<Fingerprint>,
    /// The same, the oldest first.
    in_order: VecDeque<Fingerprint>,
}

impl Tasks {
    /// Notes that a caller has begun a task.
    pub(crate) fn begin(&self, seat: &Seat, server: &str, task: &str) {
        if is_anybody(seat) {
            return;
        }
        let key = key(seat, server, task);
        let mut kept = self.lock();
        if !kept.known.insert(key) {
            return;
        }
        kept.in_order.push_back(key);
        if kept.in_order.len() > MOST_KEPT
            && let Some(oldest) = kept.in_order.pop_front()
        {
            kept.known.remove(&oldest);
        }
    }

    /// Whether a task is a caller's, who may do what it might when it began. Where callers can't
    /// be told apart, each is.
    pub(crate) fn is_of(&self, seat: &Seat, server: &str, task: &str) -> bool {
        is_anybody(seat) || self.lock().known.contains(&key(seat, server, task))
    }

    /// A server's list of tasks, with the caller's own alone; `None` if it is one already.
    pub(crate) fn own_of(&self, seat: &Seat, server: &str, list: &str) -> Option<String> {
        if is_anybody(seat) {
            return None;
        }
        let mut fields = Fields::parse(list).unwrap_or_default();
        let listed = fields.get("tasks").map(ToOwned::to_owned);
        let tasks = listed.as_ref().and_then(|raw| serde_json::from_str(raw.get()).ok());
        let mut tasks: Vec<&RawValue> = tasks.unwrap_or_default();
        tasks.retain(|task| {
            let id = Fields::parse(task.get()).and_then(|task| task.read::<String>("taskId"));
            id.is_some_and(|id| self.is_of(seat, server, &id))
        });
        fields.retain(|name| name != "tasks");
        fields.set("tasks", &tasks);
        Some(fields.to_text())
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether this is the seat of whoever comes, where every task is everybody's.
pub(crate) fn is_anybody(seat: &Seat) -> bool {
    seat.principal == 0
}

fn key(seat: &Seat, server: &str, task: &str) -> Fingerprint {
    let (principal, policy) = (seat.principal.to_le_bytes(), seat.policy.fingerprint().to_string());
    Fingerprint::of([&principal[..], policy.as_bytes(), server.as_bytes(), task.as_bytes()])
}

#[cfg(test)]
mod tests {
    use toolcrib_core::Policy;

    use super::*;
    use crate::Limits;

    #[test]
    fn a_task_is_its_callers_under_the_policy_it_began_with() {
        let open = Seat::open(Policy::default(), Limits::default());
        let seat = |who: &str| Seat::known(&open, [who.as_bytes()]);
        let tasks = Tasks::default();
        tasks.begin(&seat("a"), "git", "7");
        assert!(tasks.is_of(&seat("a"), "git", "7") && tasks.is_of(&open, "git", "7"));
        assert!(!tasks.is_of(&seat("a"), "git", "8") && !tasks.is_of(&seat("a"), "db", "7"));
        let narrowed = seat("a").narrowed([Policy::only_server("git").unwrap()]);
        assert!(!tasks.is_of(&seat("b"), "git", "7") && !tasks.is_of(&narrowed, "git", "7"));
        let list = r#"{"tasks":[{"taskId":"7","x":1.0},{"taskId":"8"},7],"nextCursor":"c"}"#;
        let own = |seat: &Seat| tasks.own_of(seat, "git", list);
        let only_seven = r#"{"nextCursor":"c","tasks":[{"taskId":"7","x":1.0}]}"#;
        assert_eq!(own(&seat("a")).as_deref(), Some(only_seven));
        assert_eq!(own(&seat("b")).as_deref(), Some(r#"{"nextCursor":"c","tasks":[]}"#));
        assert_eq!(own(&open), None);
    }

    #[test]
    fn so_many_tasks_are_remembered() {
        let open = Seat::open(Policy::default(), Limits::default());
        let (seat, tasks) = (Seat::known(&open, [&b"a"[..]]), Tasks::default());
        for task in 0..=MOST_KEPT {
            tasks.begin(&seat, "git", &task.to_string());
            tasks.begin(&seat, "git", &task.to_string());
        }
        let is_kept = |task: usize| tasks.is_of(&seat, "git", &task.to_string());
        assert!(!is_kept(0) && is_kept(1) && is_kept(MOST_KEPT));
        assert_eq!(tasks.lock().known.len(), MOST_KEPT);
    }
}
