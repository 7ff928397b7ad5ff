//! Ends what we started if we don't get to do it ourselves.
//!
//! A program that is killed can't clean up. So a shell waits beside it, holding the other end of a
//! pipe: it is told of every process group that is started and ended, and when the pipe closes,
//! whatever the reason, it ends those that are left.

use std::collections::BTreeSet;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, PoisonError};

const SCRIPT: &str = r#"
trap '' HUP INT TERM
left=' '
while read -r what group; do
    case $what in
        began) left="$left$group " ;;
        ended) case $left in
            *" $group "*) left="${left%% $group *} ${left#* $group }" ;;
        esac ;;
    esac
done
[ -z "${left# }" ] && exit
for group in $left; do kill -TERM "-$group"; done
sleep 1
for group in $left; do kill -KILL "-$group"; done
"#;

/// Started with the first process there is to guard.
static GUARD: Mutex<Guard> = Mutex::new(Guard { shell: None, groups: BTreeSet::new() });

struct Guard {
    /// The shell that waits.
    shell: Option<Child>,
    /// What it has been told of, should another one have to take over.
    groups: BTreeSet<u32>,
}

/// Guards a process group until this is dropped.
#[derive(Debug)]
pub(crate) struct Guarded(u32);

impl Guarded {
    pub(crate) fn new(group: u32) -> Self {
        let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
        guard.groups.insert(group);
        guard.tell("began", group);
        Self(group)
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        let mut guard = GUARD.lock().unwrap_or_else(PoisonError::into_inner);
        guard.groups.remove(&self.0);
        guard.tell("ended", self.0);
    }
}

impl Guard {
    fn tell(&mut self, what: &str, group: u32) {
        // A few bytes to a reader that does nothing else: this doesn't wait.
        if self.write(&format!("{what} {group}\n")).is_ok() {
            return;
        }
        if let Some(mut gone) = self.shell.take() {
            let _ = gone.wait();
        }
        if self.groups.is_empty() {
            return;
        }
        let all: String = self.groups.iter().map(|group| format!("began {group}\n")).collect();
        let again = start().and_then(|shell| {
            self.shell = Some(shell);
            self.write(&all)
        });
        if let Err(error) = again {
            tracing::warn!(%error, "servers may outlive this program if it is killed");
        }
    }

    fn write(&mut self, text: &str) -> std::io::Result<()> {
        let stdin = self.shell.as_mut().and_then(|shell| shell.stdin.as_mut());
        stdin.ok_or(std::io::ErrorKind::NotConnected)?.write_all(text.as_bytes())
    }
}

fn start() -> std::io::Result<Child> {
    Command::new("/bin/sh")
        .args(["-c", SCRIPT])
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .current_dir("/")
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        // A signal to our own group, such as Ctrl-C, is not for the guard.
        .process_group(0)
        .spawn()
}
