//! What does not work yet. The lists only shrink: nothing on them may work.

use futures::stream::{self, StreamExt};

use crate::AT_ONCE;
use crate::client::Outcome;
use crate::site::Way;

/// Cells of the matrix; `*` stands for anything.
pub(crate) const MATRIX: &[&str] = &["resources: * > 2025 stdio"];

/// Ways on which clients disturb each other.
pub(crate) const APART: &[&str] = &[];

/// Ways on which a call that asks can't be stopped.
pub(crate) const STOPPED: &[&str] = &[];

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

/// Fails unless exactly what is known to fail does.
pub(crate) fn compare<'a>(
    outcomes: impl IntoIterator<Item = (String, &'a Outcome)>,
    known: &[&str],
) {
    let (mut wrong, mut used) = (Vec::new(), Vec::new());
    for (name, outcome) in outcomes {
        let fitting = known.iter().filter(|pattern| fits(pattern, &name));
        let before = used.len();
        used.extend(fitting);
        let is_known = used.len() > before;
        match outcome {
            Err(error) if !is_known => wrong.push(format!("FAILS {name}\n      {error}")),
            Ok(()) if is_known => wrong.push(format!("WORKS {name}: take it off the list")),
            _ => {}
        }
    }
    let unused = known.iter().filter(|pattern| !used.contains(pattern));
    wrong.extend(unused.map(|pattern| format!("NOTHING is called {pattern}")));
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n"));
}

fn fits(pattern: &str, name: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = name.strip_prefix(first) else { return false };
    let mut last = None;
    for part in parts {
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
        last = Some(part);
    }
    rest.is_empty() || last.is_some_and(str::is_empty)
}

#[test]
fn a_pattern_fits_whole_names() {
    assert!(fits("a: *", "a: b > c") && fits("* > *", "b > c") && fits("a", "a"));
    assert!(fits("*: 2025 * > 2026 *", "x: 2025 stdio > 2026 http"));
    assert!(!fits("a: *", "b: a: c") && !fits("a", "ab") && !fits("* > c", "b > cd"));
}
