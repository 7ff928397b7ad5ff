//! What was tried on many ways, and that all of it has to work.

use futures::stream::{self, StreamExt};

use crate::AT_ONCE;
use crate::client::Outcome;
use crate::site::Way;

/// Tries something on ways of every kind, some at a time.
pub(crate) async fn each<F: Future<Output = Outcome>>(
    attempt: impl Fn(Way) -> F,
) -> Vec<(String, Outcome)> {
    let ways = Way::direct().into_iter().chain(Way::through());
    let attempts = ways.map(|way| {
        let attempt = attempt(way);
        async move { (way.to_string(), attempt.await) }
    });
    stream::iter(attempts).buffered(AT_ONCE).collect().await
}

/// Fails if anything did, and says what.
pub(crate) fn all_work(outcomes: impl IntoIterator<Item = (String, Outcome)>) {
    let wrong = outcomes.into_iter().filter_map(|(name, outcome)| Some((name, outcome.err()?)));
    let wrong: Vec<String> = wrong.map(|(name, error)| format!("{name}\n      {error}")).collect();
    assert!(wrong.is_empty(), "\n{} fail\n{}", wrong.len(), wrong.join("\n"));
}
