//! Ids of sessions: short enough to type, and in the order of time.

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::time::SystemTime;

use crate::manifests::millis;

/// Digits and letters without those that are taken for others, in the order SQLite sorts them.
const DIGITS: &[u8; 32] = b"0123456789abcdefghjkmnpqrstvwxyz";

/// Of the time, in milliseconds: enough for a thousand years.
const TIME_DIGITS: u32 = 9;

/// Drawn, for those of one moment.
const DRAWN_DIGITS: u32 = 3;

const LENGTH: usize = (TIME_DIGITS + DRAWN_DIGITS) as usize;

/// An id for a session that begins now.
pub(crate) fn new_id() -> String {
    at(millis(SystemTime::now()), random())
}

fn at(millis: i64, drawn: u64) -> String {
    let room = 32_u64.pow(DRAWN_DIGITS);
    let mut number = (millis as u64) * room + drawn % room;
    let mut id = [0; LENGTH];
    for place in id.iter_mut().rev() {
        *place = DIGITS[(number % 32) as usize];
        number /= 32;
    }
    id.map(char::from).iter().collect()
}

/// Whether a text could be an id that was made here.
pub(crate) fn is_id(text: &str) -> bool {
    text.len() == LENGTH && text.bytes().all(|byte| DIGITS.contains(&byte))
}

/// Seeded by the system, once for each thread, and different each time.
pub(crate) fn random() -> u64 {
    RandomState::new().hash_one(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_sort_by_time_and_are_short() {
        let times = [0, 1, 1_790_000_000_123, 1_790_000_000_124, 30_000_000_000_000];
        let ids = times.map(|time| at(time, random()));
        assert!(ids.is_sorted() && ids.iter().all(|id| is_id(id)), "{ids:?}");
        assert_eq!(at(1_790_000_000_123, 32 * 32 + 31), "1m3250v3v10z");
        assert_ne!(random(), random());
    }

    #[test]
    fn other_texts_are_no_ids() {
        for text in ["", "1m3250v3v10", "1m3250v3v10zz", "1M315EW3V10Z", "1m315ew3v1é"] {
            assert!(!is_id(text), "{text}");
        }
    }
}
