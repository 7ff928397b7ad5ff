//! Asking servers for what they have, and showing how far that has come.

use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, interval_at};
use toolcrib::mcp::Upstream;
use toolcrib::{Change, Group, GroupId, Listing, Registry, Toolset};

use super::Fleet;
use crate::args::Context;
use crate::output::Progress;

/// Those who answer sooner need no progress bar.
const SOON: Duration = Duration::from_millis(150);

/// How often the bar is drawn anew.
const TICK: Duration = Duration::from_millis(100);

/// Asks every server the same, all at once. Answers come in the order of the servers; of one that
/// broke off there is none.
pub(crate) async fn ask_each<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    servers: &[Upstream],
    context: &Context,
    ask: impl Fn(Upstream) -> F,
) -> Vec<(Upstream, T)> {
    let progress = Progress::new(!context.quiet);
    let mut asking = JoinSet::new();
    for (at, server) in servers.iter().enumerate() {
        let answer = ask(server.clone());
        asking.spawn(async move { (at, answer.await) });
    }
    let mut tick = interval_at(Instant::now() + SOON, TICK);
    let mut answers: Vec<Option<T>> = servers.iter().map(|_| None).collect();
    loop {
        tokio::select! {
            answered = asking.join_next() => match answered {
                Some(Ok((at, answer))) => answers[at] = Some(answer),
                Some(Err(_)) => {}
                None => break,
            },
            _ = tick.tick() => {
                let waiting = servers.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
                let names: Vec<&str> =
                    waiting.map(|(server, _)| server.config().name.as_str()).collect();
                let done = servers.len() - names.len();
                progress.bar(done, servers.len(), &format!("starting {}", names.join(", ")));
            }
        }
    }
    let answered = servers.iter().cloned().zip(answers);
    answered.filter_map(|(server, answer)| Some((server, answer?))).collect()
}

impl Fleet {
    /// Every tool there is: what is known, and the rest as soon as its servers have been started
    /// and listed. A server that can't be is told of and costs no other.
    pub(crate) async fn registry(&self, context: &Context) -> Registry {
        self.warn(context);
        let registry = Registry::default();
        let list = |server: Upstream| {
            let pinned = self.pinned(&server);
            async move { pinned.list().await }
        };
        let mut left_out = Vec::new();
        for (server, listed) in ask_each(&self.servers, context, list).await {
            let name = &server.config().name;
            match listed {
                Ok(listing) => {
                    let change = register(&registry, server.id(), listing);
                    let quarantined = server.status().quarantined.into_iter();
                    left_out.extend(
                        quarantined.map(|(tool, why)| format!("{name}/{tool} was left out: {why}")),
                    );
                    let rejected = change.rejected.into_iter();
                    left_out
                        .extend(rejected.map(|(tool, why)| format!("{tool} was left out: {why}")));
                }
                Err(reason) => context.warn(&format!("server `{name}` can't be listed: {reason}")),
            }
        }
        context.warn_of_left_out(&left_out);
        registry
    }
}

/// Adds what a toolset has listed.
pub(crate) fn register(registry: &Registry, id: GroupId, listing: Listing) -> Change {
    let mut group = Group::new(id);
    if let Some(title) = listing.title {
        group = group.with_display_name(title);
    }
    if let Some(description) = listing.description {
        group = group.with_description(description);
    }
    registry.replace_toolset(group, listing.specs)
}
