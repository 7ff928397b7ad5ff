//! What was made lately, by what it depends on.

use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Fingerprint;

/// Values kept.
const MOST: usize = 16;

/// The values made last, so that conversations which begin alike make each once.
#[derive(Debug)]
pub(crate) struct Lately<T>(Mutex<Vec<(Fingerprint, T)>>);

impl<T: Clone> Lately<T> {
    pub(crate) fn get(&self, key: Fingerprint) -> Option<T> {
        self.lock().iter().find(|(of, _)| *of == key).map(|(_, value)| value.clone())
    }

    pub(crate) fn keep(&self, key: Fingerprint, value: T) {
        let mut kept = self.lock();
        if kept.len() == MOST {
            kept.remove(0);
        }
        kept.push((key, value));
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(Fingerprint, T)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Default for Lately<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}
