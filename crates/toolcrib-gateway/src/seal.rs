//! What a client is to bring back, sealed so that it is seen if somebody has changed it.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use data_encoding::BASE64URL_NOPAD;

/// What every seal of this process's begins with: no server's state is taken for one, not even
/// that of a server which is such a gateway itself.
static OURS: LazyLock<String> = LazyLock::new(|| {
    let mut own = [0; 4];
    // Where chance fails, nothing is sealed at all.
    let _ = getrandom::fill(&mut own);
    format!("toolcrib-{:08x}.", u32::from_le_bytes(own))
});

/// Bytes of a mark.
const MARK: usize = blake3::OUT_LEN;

/// How long a key is used; it is known for as long again.
const KEY_AGE: Duration = Duration::from_secs(3_600);

type Key = [u8; blake3::KEY_LEN];

/// Closes and opens seals. Its keys are made when they are first needed, and kept nowhere.
#[derive(Default)]
pub(crate) struct Seal(Mutex<Keys>);

#[derive(Default)]
struct Keys {
    newest: Option<(Key, Instant)>,
    before: Option<Key>,
}

impl Seal {
    /// Whether a text claims to be sealed here.
    pub(crate) fn is_ours(text: &str) -> bool {
        text.starts_with(&**OURS)
    }

    /// Seals what is meant for one purpose. `None` if chance fails: a seal could be forged then.
    pub(crate) fn close(&self, purpose: &str, content: &str) -> Option<String> {
        let key = self.lock().newest(Instant::now())?;
        let mut bytes = mark(&key, purpose, content.as_bytes()).as_bytes().to_vec();
        bytes.extend_from_slice(content.as_bytes());
        Some(format!("{}{}", *OURS, BASE64URL_NOPAD.encode(&bytes)))
    }

    /// What was sealed for that purpose; `None` if it was not, or somebody has changed it.
    pub(crate) fn open(&self, purpose: &str, sealed: &str) -> Option<String> {
        let mut bytes = BASE64URL_NOPAD.decode(sealed.strip_prefix(&**OURS)?.as_bytes()).ok()?;
        let content = bytes.split_off(MARK.min(bytes.len()));
        let given = blake3::Hash::from_slice(&bytes).ok()?;
        let (newest, before) = {
            let keys = self.lock();
            (keys.newest.map(|(key, _)| key), keys.before)
        };
        // Hashes are compared in constant time.
        let fits = |key: &Key| mark(key, purpose, &content) == given;
        let is_ours = [newest, before].iter().flatten().any(fits);
        is_ours.then(|| String::from_utf8(content).ok()).flatten()
    }

    fn lock(&self) -> MutexGuard<'_, Keys> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Keys {
    fn newest(&mut self, now: Instant) -> Option<Key> {
        if let Some((key, made)) = self.newest
            && now.saturating_duration_since(made) < KEY_AGE
        {
            return Some(key);
        }
        let mut key = Key::default();
        getrandom::fill(&mut key).ok()?;
        self.before = self.newest.map(|(key, _)| key);
        self.newest = Some((key, now));
        Some(key)
    }
}

fn mark(key: &Key, purpose: &str, content: &[u8]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(key);
    hasher.update(&(purpose.len() as u64).to_le_bytes());
    hasher.update(purpose.as_bytes());
    hasher.update(content);
    hasher.finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_or_meant_for_something_else_stays_closed() {
        let seal = Seal::default();
        let sealed = seal.close("a", "some content").unwrap();
        assert!(Seal::is_ours(&sealed) && !Seal::is_ours("state of a server"));
        // So do those of other gateways begin.
        assert!(!Seal::is_ours("toolcrib.AAAA") && !Seal::is_ours("toolcrib-0.AAAA"));
        assert_eq!(seal.open("a", &sealed).as_deref(), Some("some content"));
        assert_eq!(seal.open("b", &sealed), None);
        assert_eq!(Seal::default().open("a", &sealed), None);
        for at in OURS.len()..sealed.len() {
            let other = if sealed.as_bytes()[at] == b'A' { "B" } else { "A" };
            let mut changed = sealed.clone();
            changed.replace_range(at..=at, other);
            assert_eq!(seal.open("a", &changed), None, "{at}");
        }
        let short = format!("{}AAAA", *OURS);
        for wrong in ["", &**OURS, &short, &sealed[1..], &format!("{sealed}-TAMPERED")] {
            assert_eq!(seal.open("a", wrong), None, "{wrong}");
        }
    }

    #[test]
    fn a_key_that_has_been_replaced_is_known_for_a_while() {
        let seal = Seal::default();
        let sealed = seal.close("a", "x").unwrap();
        let later = Instant::now() + KEY_AGE;
        let next = seal.lock().newest(later).unwrap();
        assert_eq!(seal.lock().newest(later + KEY_AGE / 2), Some(next));
        assert_eq!(seal.open("a", &sealed).as_deref(), Some("x"));
        seal.lock().newest(later + KEY_AGE).unwrap();
        assert_eq!(seal.open("a", &sealed), None);
    }
}
