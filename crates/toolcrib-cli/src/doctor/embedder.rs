//! The embedder behind an address: does it answer, and soon enough?

use std::time::{Duration, Instant};

use tokio::time::timeout;
use toolcrib::embed::Endpoint;
use toolcrib::{Embed, EmbedError, Purpose};

use super::report::{Check, Kind};
use crate::args::Context;
use crate::output::duration;

/// How long the first answer may take: a model may have to be loaded for it.
const LONGEST: Duration = Duration::from_secs(60);

/// A query like any other.
const QUERY: &str = "send a message to a channel";

const NAME: &str = "embedder";

/// Nothing, unless there is an address to ask.
pub(super) async fn examine(context: &Context) -> Option<Check> {
    let (endpoint, limit) = match context.config.embedder_endpoint(&context.env)? {
        Ok(opened) => opened,
        Err(reason) => {
            let mut check = Check::new(Kind::Embedder, NAME, "can't be used");
            let fix = match reason.ends_with("is not set") {
                true => "set it where toolcrib is started",
                false => "correct `embedder` under [search]",
            };
            check.problem(reason, fix);
            return Some(check);
        }
    };
    let id = endpoint.id().to_owned();
    let (first, second) = match (ask(&endpoint).await, ask(&endpoint).await) {
        (Ok(first), Ok(second)) => (first, second),
        (Err(error), _) | (_, Err(error)) => {
            let mut check = Check::new(Kind::Embedder, NAME, id);
            let fix = "searches do without it meanwhile; check that it runs, and `embedder` under \
                       [search]";
            check.problem(error.to_string(), fix);
            return Some(check);
        }
    };
    let (dimensions, took) = second;
    let summary = format!("{id}: {dimensions} dimensions, {}", duration(took));
    let mut check = Check::new(Kind::Embedder, NAME, summary);
    if first.0 != dimensions {
        let what =
            format!("its vectors have {} dimensions at one time, {dimensions} at another", first.0);
        check.problem(what, "name one model as `model`");
    } else if took > limit {
        let what =
            format!("it takes {}; a search waits {} for it", duration(took), duration(limit));
        check.problem(what, "raise `timeout_ms`, or use a faster model");
    } else if first.1 > limit {
        let what = format!(
            "its first answer takes {}, so the first search does without",
            duration(first.1)
        );
        check.advice(what, "have its model kept loaded");
    }
    Some(check)
}

/// The dimensions of an answer, and how long it took.
async fn ask(endpoint: &Endpoint) -> Result<(usize, Duration), EmbedError> {
    let began = Instant::now();
    let asking = endpoint.embed(Purpose::Query, vec![QUERY.to_owned()]);
    let rows = timeout(LONGEST, asking).await.map_err(|_| EmbedError::TimedOut(LONGEST))??;
    Ok((rows.first().map_or(0, Vec::len), began.elapsed()))
}
