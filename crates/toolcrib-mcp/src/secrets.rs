//! What a configuration keeps secret, and texts without it.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, PoisonError, RwLock};

use crate::config::Launch;

/// What is this short is no secret, and would blank out half of a text.
const LEAST_BYTES: usize = 6;

/// The most secrets that are learned; then the oldest is forgotten.
const MOST_LEARNED: usize = 32;

/// Values that no log, error or status may show. Clones share what is learned.
#[derive(Clone, Default)]
pub(crate) struct Secrets {
    /// Of the configuration, longest first.
    fixed: Arc<[String]>,
    /// Tokens, as they come.
    learned: Arc<RwLock<VecDeque<String>>>,
}

impl Secrets {
    /// The values of environment variables and headers, and what an address has beside its place.
    pub(crate) fn of(launch: &Launch) -> Self {
        let mut parts = BTreeSet::new();
        match launch {
            Launch::Command { env, .. } => {
                for value in env.own.values() {
                    // Output comes line by line, so a key of several lines does too.
                    parts.extend(value.lines().map(|line| line.trim().to_owned()));
                    parts.insert(value.clone());
                }
            }
            Launch::Http { url, headers } => {
                for (_, value) in headers {
                    // `Bearer`, `Basic` and the like stand before the secret itself.
                    parts.extend(value.split_whitespace().skip(1).map(ToOwned::to_owned));
                    parts.insert(value.clone());
                }
                if let Ok(url) = url.parse::<reqwest::Url>() {
                    parts.extend(url.query_pairs().map(|(_, value)| value.into_owned()));
                    parts.extend(url.password().map(ToOwned::to_owned));
                }
            }
        }
        let mut parts: Vec<String> =
            parts.into_iter().filter(|part| part.len() >= LEAST_BYTES).collect();
        // One may be the beginning of another.
        parts.sort_by_key(|part| std::cmp::Reverse(part.len()));
        Self { fixed: parts.into(), learned: Arc::default() }
    }

    /// Hides one more from now on.
    pub(crate) fn learn(&self, secret: &str) {
        if secret.len() < LEAST_BYTES {
            return;
        }
        let mut learned = self.learned.write().unwrap_or_else(PoisonError::into_inner);
        if learned.iter().any(|known| known == secret) {
            return;
        }
        if learned.len() >= MOST_LEARNED {
            learned.pop_front();
        }
        learned.push_back(secret.to_owned());
    }

    /// The text without them.
    pub(crate) fn hide(&self, text: &str) -> String {
        let mut text = text.to_owned();
        let mut learned: Vec<String> =
            self.learned.read().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        learned.sort_by_key(|secret| std::cmp::Reverse(secret.len()));
        for secret in learned.iter().chain(self.fixed.iter()).filter(|secret| !secret.is_empty()) {
            if text.contains(secret.as_str()) {
                text = text.replace(secret.as_str(), "***");
            }
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use crate::ServerConfig;

    use super::*;

    #[test]
    fn secrets_are_kept_out_of_texts() {
        let hide = |config: &ServerConfig, text| Secrets::of(&config.launch).hide(text);
        let config = ServerConfig::command("a", "run", ["x"])
            .env("T", "s3cr3t-1")
            .env("LONGER", "s3cr3t-1-and-more")
            .env("KEY", "-----BEGIN\nabcdefghij\n-----END")
            .env("L", "en");
        assert_eq!(hide(&config, "en: bad token s3cr3t-1"), "en: bad token ***");
        assert_eq!(hide(&config, "s3cr3t-1-and-more!"), "***!");
        assert_eq!(hide(&config, "line 2 is abcdefghij"), "line 2 is ***");
        let config = ServerConfig::http("a", "https://me:pass-word@host/mcp?key=k3y-in-url")
            .header("authorization", "Bearer abcdefgh");
        assert_eq!(hide(&config, "abcdefgh, k3y-in-url, pass-word"), "***, ***, ***");
        let debug = format!("{config:?}");
        assert!(debug.contains("https://host/mcp"), "{debug}");
        for secret in ["abcdefgh", "k3y-in-url", "pass-word"] {
            assert!(!debug.contains(secret), "{debug}");
        }
    }

    #[test]
    fn what_is_learned_is_hidden_by_every_clone() {
        let secrets = Secrets::default();
        let clone = secrets.clone();
        clone.learn("token-1");
        clone.learn("token-1-renewed");
        clone.learn("ok");
        assert_eq!(secrets.hide("ok: token-1-renewed, token-1"), "ok: ***, ***");
        (0..2 * MOST_LEARNED).for_each(|n| clone.learn(&format!("another-{n}")));
        assert_eq!(secrets.learned.read().unwrap().len(), MOST_LEARNED);
        assert_eq!(secrets.hide("another-63"), "***");
    }
}
