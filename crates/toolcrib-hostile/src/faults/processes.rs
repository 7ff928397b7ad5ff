//! Processes that multiply, and one that does not go.

use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tokio::signal::unix::{SignalKind, signal};

use super::Strike;
use crate::catalog::Kind;
use crate::script::{Act, Script};
use crate::server::Server;

/// Child processes, at most.
const MOST_CHILDREN: u64 = 1000;

/// How long each sleeps, in seconds: whoever fails to end them gets rid of them at last.
const SLEEP: &str = "600";

pub(super) fn bend(strike: &Strike<'_>, script: &mut Script) {
    script.before(Act::Spawn(strike.chosen.number));
}

pub(super) fn at_start(server: &Arc<Server>) {
    if let Some(chosen) = server.chosen(Kind::Children)
        && server.ledger.strike(chosen.fault).is_some()
    {
        spawn(server, chosen.number);
    }
    let stays = [Kind::IgnoreSigterm, Kind::HangAtShutdown];
    if stays.iter().any(|kind| server.chosen(*kind).is_some())
        && let Ok(mut terminate) = signal(SignalKind::terminate())
    {
        let server = server.clone();
        tokio::spawn(async move {
            while terminate.recv().await.is_some() {
                // Each counts for itself.
                if !stays.map(|kind| server.strikes(kind)).contains(&true) {
                    std::process::exit(0);
                }
            }
        });
    }
}

/// Starts processes in the server's own process group, so that they can be ended with it. They
/// hold its standard output and standard error open, as forgotten children do.
pub(crate) fn spawn(server: &Server, count: u64) {
    for _ in 0..count {
        if server.children.load(Ordering::Relaxed) >= MOST_CHILDREN {
            return;
        }
        let mut sleep = Command::new("sleep");
        let started = sleep.arg(SLEEP).stdin(Stdio::null()).spawn();
        // Where no more can be had, those there are must do.
        let Ok(_left_behind) = started else { return };
        server.children.fetch_add(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Task, parse};

    #[test]
    fn there_is_a_bound_to_children() {
        let Task::Serve(options) = parse(["toolcrib-hostile".into()]) else { panic!() };
        let Ok(server) = Server::new(*options) else { panic!() };
        server.children.store(MOST_CHILDREN, Ordering::Relaxed);
        spawn(&server, 5);
        assert_eq!(server.children.load(Ordering::Relaxed), MOST_CHILDREN);
    }
}
