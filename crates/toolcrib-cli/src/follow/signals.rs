//! Being told to stop.

use std::io::{self, IsTerminal};

use tokio::signal::unix::{SignalKind, signal};

/// A way of being told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Signal {
    /// Ctrl-C: what is under way should end.
    Interrupt,
    /// The program should end.
    Terminate,
}

/// Hears every time somebody wants something to stop.
pub(crate) struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
    /// The terminal is gone.
    hangup: Option<tokio::signal::unix::Signal>,
    terminated: bool,
    /// Whether nothing is to be waited for any more.
    pub(crate) is_hurried: bool,
}

impl Signals {
    /// Begins to listen: from now on nothing else happens at these signals.
    pub(crate) fn listen() -> io::Result<Self> {
        let interrupt = signal(SignalKind::interrupt())?;
        let terminate = signal(SignalKind::terminate())?;
        let hangup = hangup()?;
        Ok(Self { interrupt, terminate, hangup, terminated: false, is_hurried: false })
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.interrupt.recv() => return Signal::Interrupt,
            _ = self.terminate.recv() => {}
            () = hung_up(&mut self.hangup) => {}
        }
        self.terminated = true;
        Signal::Terminate
    }

    /// Whether the program was told to end.
    pub(crate) fn is_terminated(&self) -> bool {
        self.terminated
    }
}

/// Hears that the terminal is gone, unless whoever started this wants it to go on then, as `nohup`
/// does.
pub(crate) fn hangup() -> io::Result<Option<tokio::signal::unix::Signal>> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let is_ignored = match status.lines().find_map(|line| line.strip_prefix("SigIgn:")) {
        Some(mask) => u64::from_str_radix(mask.trim(), 16).is_ok_and(|mask| mask & 1 == 1),
        // Where the system doesn't say: `nohup` leaves no terminal to anything.
        None => {
            !(io::stdin().is_terminal() || io::stdout().is_terminal() || io::stderr().is_terminal())
        }
    };
    (!is_ignored).then(|| signal(SignalKind::hangup())).transpose()
}

/// Waits until the terminal is gone.
pub(crate) async fn hung_up(hangup: &mut Option<tokio::signal::unix::Signal>) {
    match hangup {
        Some(hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}
