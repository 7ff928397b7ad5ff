//! Which tool was called after which query: what is kept of it, and the table that comes of it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::{Duration, SystemTime};

use tokio::runtime::Handle;
use tokio::time::sleep;
use toolcrib_core::{Choice, ToolName, Usage};

/// A choice counts for half after this long without another like it.
const HALF_LIFE: Duration = Duration::from_secs(60 * 24 * 60 * 60);

/// How long choices are gathered before the table is made anew.
const GATHERING: Duration = Duration::from_secs(10);

/// The longest query that is kept, in characters; a longer one is cut.
const MOST_CHARS: usize = 200;

/// A choice that was kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageRow {
    /// The query, on one line.
    pub query: String,
    /// The tool: `server/tool`.
    pub tool: String,
    /// How often it was called after that query.
    pub count: u32,
    /// When it last was.
    pub used_at: SystemTime,
}

impl UsageRow {
    /// What the row counts for at a time.
    pub fn choice(&self, now: SystemTime) -> Choice {
        // A clock that was put back makes nothing older.
        let age = now.duration_since(self.used_at).unwrap_or_default();
        let freshness = 0.5_f32.powf(age.as_secs_f32() / HALF_LIFE.as_secs_f32());
        let (query, tool) = (self.query.clone(), self.tool.clone());
        Choice { query, tool, times: self.count, freshness }
    }
}

/// Keeps which tool was called after which query, and nothing else.
///
/// A call waits for none of this: `record` hands over and returns. A store that fails says so in
/// the log and answers as if it had nothing.
pub trait UsageStore: Send + Sync + 'static {
    /// Counts one call of a tool after a query.
    fn record(&self, query: &str, tool: &str);

    /// Everything that is kept. May wait for the disk.
    fn rows(&self) -> Vec<UsageRow>;

    /// Forgets everything.
    fn clear(&self);
}

impl<T: UsageStore + ?Sized> UsageStore for Arc<T> {
    fn record(&self, query: &str, tool: &str) {
        (**self).record(query, tool);
    }

    fn rows(&self) -> Vec<UsageRow> {
        (**self).rows()
    }

    fn clear(&self) {
        (**self).clear();
    }
}

/// A store in use, with the table that was last made of it. A handle.
#[derive(Clone)]
pub(crate) struct Learning(Arc<Inner>);

struct Inner {
    store: Arc<dyn UsageStore>,
    table: RwLock<Arc<Usage>>,
    /// Whether the table is to be made anew soon.
    due: AtomicBool,
}

impl Learning {
    pub(crate) fn new(store: Arc<dyn UsageStore>) -> Self {
        Self(Arc::new(Inner { store, table: RwLock::default(), due: AtomicBool::new(false) }))
    }

    pub(crate) fn table(&self) -> Arc<Usage> {
        self.0.table.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Keeps a choice, unless the query looks as if it held what is nobody's business.
    pub(crate) fn record(&self, query: &str, tool: &ToolName) {
        match keepable(query) {
            Some(query) => self.0.store.record(&query, &tool.to_string()),
            None => return tracing::debug!("a query that may hold a secret is not kept"),
        }
        self.renew_after(GATHERING);
    }

    /// Makes the table anew in the background. What is chosen until then is part of it.
    pub(crate) fn renew_after(&self, delay: Duration) {
        // Without a runtime nobody can wait; the next program will have the choice.
        let Ok(runtime) = Handle::try_current() else { return };
        if self.0.due.swap(true, Ordering::AcqRel) {
            return;
        }
        let weak = Arc::downgrade(&self.0);
        runtime.spawn(async move {
            sleep(delay).await;
            let Some(inner) = weak.upgrade() else { return };
            inner.due.store(false, Ordering::Release);
            // Thousands of queries take a while to read and to stem.
            let renewing = tokio::task::spawn_blocking(move || inner.renew());
            if renewing.await.is_err() {
                tracing::warn!("what was learned from use could not be read");
            }
        });
    }
}

impl Inner {
    fn renew(&self) {
        let now = SystemTime::now();
        let table = Usage::new(self.store.rows().iter().map(|row| row.choice(now)));
        *self.table.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(table);
    }
}

/// A query as it is kept: one line, not too long. Nothing if any part of it looks like a secret or
/// like somebody's address, for then it is better forgotten as a whole.
fn keepable(query: &str) -> Option<String> {
    let words: Vec<&str> = query.split(|c: char| c.is_whitespace() || c.is_control()).collect();
    if names_a_secret(&words) || words.iter().any(|word| is_telling(word)) {
        return None;
    }
    let words: Vec<&str> = words.into_iter().filter(|word| !word.is_empty()).collect();
    let line: String = words.join(" ").chars().take(MOST_CHARS).collect();
    let line = line.trim_end();
    (!line.is_empty()).then(|| line.to_owned())
}

/// Whether a secret is given by its name, as in `password: hunter2` or `?token=…`.
fn names_a_secret(words: &[&str]) -> bool {
    const NAMES: &[&str] = &["password", "passwd", "pwd", "secret", "token", "key", "bearer"];
    let is_name = |text: &str| {
        let text = text.trim_end_matches(['"', '\'', '`']).to_ascii_lowercase();
        NAMES.iter().any(|name| text.ends_with(name))
    };
    let within = |word: &&str| {
        word.match_indices(['=', ':'])
            .any(|(at, sign)| is_name(&word[..at]) && !word[at + sign.len()..].is_empty())
    };
    let before = |pair: &[&str]| {
        let name = pair[0].strip_suffix(['=', ':']);
        name.is_some_and(is_name) || (is_name(pair[0]) && matches!(pair[1], "=" | ":"))
    };
    words.iter().any(within) || words.windows(2).any(before)
}

/// Whether a word looks like a key, an id, a number of somebody's or an e-mail address.
fn is_telling(word: &str) -> bool {
    /// Letters and digits that alternate this often in one word were not written by a person.
    const MOST_TURNS: usize = 3;
    /// Nor was a word of so many letters and digits with nothing between them.
    const LONGEST_RUN: usize = 40;
    /// A date has eight digits, a telephone or an account more.
    const MOST_DIGITS: usize = 8;

    let is_address = word.split_once('@').is_some_and(|(name, host)| {
        !name.is_empty() && host.trim_end_matches(['.', ',', ';', ')']).contains('.')
    });
    let plain: Vec<char> = word.chars().filter(char::is_ascii_alphanumeric).collect();
    let turns =
        plain.windows(2).filter(|pair| pair[0].is_ascii_digit() != pair[1].is_ascii_digit());
    let digits = plain.iter().filter(|c| c.is_ascii_digit()).count();
    let longest = word.split(|c: char| !c.is_ascii_alphanumeric()).map(str::len).max();
    is_address
        || (plain.len() >= 12 && turns.count() > MOST_TURNS)
        || digits > MOST_DIGITS
        || longest.unwrap_or_default() >= LONGEST_RUN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_kept_as_one_short_line() {
        assert_eq!(keepable(" open a\n\tpull   request\u{0} ").unwrap(), "open a pull request");
        assert_eq!(keepable(&"wörd ".repeat(100)).unwrap().chars().count(), 199);
        assert_eq!(keepable(" \n "), None);
    }

    #[test]
    fn what_people_look_for_is_kept() {
        for query in [
            "mcp__github__create_pull_request_review_comment",
            "s3 list objects v2 bucket",
            "convert base64 to utf8 in k8s",
            "events between 2026-01-01 and 2026-12-31",
            "rotate an api key; reset the password",
            "tool: search tokens",
            "mention @someone in chat",
            "getUserProfileByEmailAddressAndTenant",
            "東京の天気を調べる",
            "http://localhost:8080/api/v2 health",
        ] {
            assert_eq!(keepable(query).as_deref(), Some(query));
        }
    }

    #[test]
    fn what_may_be_a_secret_is_not() {
        for query in [
            "send mail to ada@example.com",
            "(ada.l@mail.example.org), please",
            "log in with sk-ant-api03-Zx9Qw2Er4Ty6Ui8Op0",
            "use ghp_16C7e42F292c6912E7710c838347Ae178B4a",
            "AKIAIOSFODNN7EXAMPLE1A2 list buckets",
            "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiIxIn0.abc",
            "order 550e8400-e29b-41d4-a716-446655440000",
            "call +49 170 1234567890",
            "password=hunter2",
            "my password: hunter2",
            "password = hunter2",
            "fetch https://example.com/?api_key=abc",
            "{\"token\": \"abc\"}",
            "qwertzuiopasdfghjklyxcvbnmqwertzuiopasdfgh",
        ] {
            assert_eq!(keepable(query), None, "{query}");
        }
    }

    #[test]
    fn what_was_chosen_long_ago_counts_for_less() {
        let now = SystemTime::now();
        let row =
            |age| UsageRow { query: "a".into(), tool: "s/t".into(), count: 3, used_at: now - age };
        assert_eq!(row(Duration::ZERO).choice(now).freshness, 1.0);
        assert_eq!(row(HALF_LIFE).choice(now).freshness, 0.5);
        assert_eq!(row(Duration::ZERO).choice(now - HALF_LIFE).freshness, 1.0);
    }
}
