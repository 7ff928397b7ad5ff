//! How far a call has come, for whoever waits for it at a terminal.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use serde_json::value::RawValue;
use tokio::time::{Instant, interval_at};
use toolcrib::Listener;

use crate::output::Progress;

/// How often the time is told.
const TICK: Duration = Duration::from_secs(1);

/// Shows how far a call has come.
pub(super) struct Watch {
    progress: Progress,
    /// Whether the server says so itself.
    is_told: AtomicBool,
}

impl Watch {
    pub(super) fn new(wanted: bool) -> Self {
        Self { progress: Progress::new(wanted), is_told: AtomicBool::new(false) }
    }

    /// Shows how long it has been, for as long as the server says nothing.
    pub(super) async fn wait(&self, tool: &str) -> Infallible {
        let began = Instant::now();
        let mut tick = interval_at(began + TICK, TICK);
        loop {
            tick.tick().await;
            if !self.is_told.load(Ordering::Relaxed) {
                let seconds = began.elapsed().as_secs();
                self.progress.say(&format!("waiting for {tool}: {seconds} s"));
            }
        }
    }
}

/// Hears what the server says about it.
pub(super) struct Watcher(pub(super) Arc<Watch>);

impl Listener for Watcher {
    fn hear(&self, method: &str, params: &RawValue) {
        if method != "notifications/progress" {
            return;
        }
        let params: Value = serde_json::from_str(params.get()).unwrap_or_default();
        let message = params["message"].as_str().unwrap_or_default();
        match (params["progress"].as_f64(), params["total"].as_f64()) {
            (Some(done), Some(total)) if total >= 1.0 => {
                self.0.progress.bar(done as usize, total as usize, message);
            }
            (Some(done), _) => self.0.progress.say(&format!("{done} {message}")),
            _ => return,
        }
        self.0.is_told.store(true, Ordering::Relaxed);
    }

    fn wants_progress(&self) -> bool {
        self.0.progress.is_wanted()
    }
}
