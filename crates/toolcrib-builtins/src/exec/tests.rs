use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;
use toolcrib_core::Annotations;

use crate::builtin::{Builtin, BuiltinTools, Options};
use crate::error::{BuiltinError, Failure};
use crate::tool::Answer;

struct Place {
    folder: TempDir,
    exec: BuiltinTools,
}

impl Place {
    /// A root with the folder `sub`.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("sub")).unwrap();
        let roots = vec![folder.path().to_owned()];
        let environment = [("PATH".to_owned(), std::env::var("PATH").unwrap())].into();
        let options = Options { roots, environment, ..Options::default() };
        let exec = Builtin::Exec.open(&options).unwrap();
        Self { folder, exec }
    }

    async fn call(&self, arguments: Value) -> Result<String, Failure> {
        match self.exec.dispatch("run_command", arguments).await? {
            Answer::Text(text) => Ok(text),
            Answer::Data(data) => panic!("data: {data}"),
        }
    }

    async fn run(&self, command: &str) -> String {
        self.call(json!({"command": command})).await.unwrap()
    }

    /// The id of a process, once a command has written it.
    async fn pid(&self, file: &str) -> u32 {
        let path = self.folder.path().join(file);
        eventually(|| fs::read_to_string(&path).ok()?.trim().parse().ok()).await
    }
}

/// What comes true within a few seconds.
async fn eventually<T>(mut check: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(10);
    loop {
        if let Some(found) = check() {
            return found;
        }
        assert!(Instant::now() < until, "it never came true");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Whether a process runs: one that has ended but wasn't waited for doesn't.
fn runs(pid: u32) -> bool {
    let output = std::process::Command::new("ps")
        .args(["-o", "stat=", "-p", &pid.to_string()])
        .output()
        .unwrap();
    let state = String::from_utf8_lossy(&output.stdout);
    !state.trim().is_empty() && !state.trim_start().starts_with('Z')
}

async fn ends(pid: u32) {
    eventually(|| (!runs(pid)).then_some(())).await;
}

#[tokio::test]
async fn a_command_gives_its_status_and_both_outputs() {
    let place = Place::new();
    assert_eq!(place.run("echo hello").await, "Exit status 0.\n\nstdout:\nhello");
    assert_eq!(
        place.run("echo out; echo err >&2; exit 3").await,
        "Exit status 3.\n\nstdout:\nout\n\nstderr:\nerr"
    );
    assert_eq!(place.run("true").await, "Exit status 0.");
    assert_eq!(place.run("kill -9 $$").await, "Ended by signal 9.");
    assert!(place.run("no-such-command").await.starts_with("Exit status 127.\n\nstderr:\n"));
}

#[tokio::test]
async fn it_reads_what_it_is_given_and_else_nothing() {
    let place = Place::new();
    let given = json!({"command": "cat; cat", "stdin": "a\nb"});
    assert_eq!(place.call(given).await.unwrap(), "Exit status 0.\n\nstdout:\na\nb");
    assert_eq!(place.run("cat").await, "Exit status 0.");
    // Neither one that never reads nor one that answers at length holds the other up.
    let long = "x".repeat(1024 * 1024);
    let unread = json!({"command": "echo done", "stdin": long});
    assert_eq!(place.call(unread).await.unwrap(), "Exit status 0.\n\nstdout:\ndone");
    let both = json!({"command": "tee /dev/stderr | wc -c", "stdin": long});
    let text = place.call(both).await.unwrap();
    assert!(text.contains("1048576") && text.contains("bytes are left out"), "{}", text.len());
}

#[tokio::test]
async fn it_starts_in_the_first_root_or_a_folder_below() {
    let place = Place::new();
    place.run("echo 1 > here; cd sub && echo 2 > there").await;
    assert!(place.folder.path().join("here").exists());
    let below = json!({"command": "cat there", "cwd": "sub"});
    assert_eq!(place.call(below).await.unwrap(), "Exit status 0.\n\nstdout:\n2");
}

#[tokio::test]
async fn a_folder_outside_the_roots_is_refused_and_nothing_runs() {
    let place = Place::new();
    let marker = place.folder.path().join("ran");
    let command = format!("touch '{}'", marker.display());
    std::os::unix::fs::symlink("/", place.folder.path().join("link")).unwrap();
    for cwd in ["..", "/", "sub/../..", "link"] {
        let failure = place.call(json!({"command": command, "cwd": cwd})).await.unwrap_err();
        assert!(matches!(failure, Failure::OutsideRoots { .. }), "{cwd}: {failure}");
    }
    let missing = place.call(json!({"command": command, "cwd": "gone"})).await.unwrap_err();
    assert!(matches!(missing, Failure::Missing(_)), "{missing}");
    fs::write(place.folder.path().join("file"), "").unwrap();
    let file = place.call(json!({"command": command, "cwd": "file"})).await.unwrap_err();
    assert_eq!(file.to_string(), "`file` is not a folder.");
    assert!(!marker.exists());
}

#[tokio::test]
async fn arguments_that_can_not_be_run_are_refused() {
    let place = Place::new();
    for command in ["", " \n", &"x".repeat(64 * 1024 + 1), "echo a\0b"] {
        assert!(place.call(json!({"command": command})).await.is_err());
    }
    // A line that looks like an option is none.
    assert!(place.run("-c true").await.starts_with("Exit status 127."));
}

#[tokio::test]
async fn the_time_limit_ends_all_that_was_started_and_shows_what_was_printed() {
    let place = Place::new();
    let command = "echo begun; sleep 300 & echo $! > child; sleep 300";
    let started = Instant::now();
    let arguments = json!({"command": command, "timeout_seconds": 1});
    let text = place.call(arguments).await.unwrap_err().to_string();
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(text, "It took longer than 1 seconds and was ended.\n\nstdout:\nbegun");
    ends(place.pid("child").await).await;
}

#[tokio::test]
async fn a_command_that_ignores_the_request_to_end_is_killed() {
    let place = Place::new();
    let command = "trap '' TERM; echo $$ > shell; while true; do sleep 1; done";
    let arguments = json!({"command": command, "timeout_seconds": 1});
    assert!(place.call(arguments).await.is_err());
    ends(place.pid("shell").await).await;
}

#[tokio::test]
async fn a_call_that_is_dropped_takes_all_that_was_started_with_it() {
    let place = Place::new();
    let command = "trap '' TERM; sleep 300 & echo $! > child; echo $$ > shell; wait";
    let call = place.call(json!({"command": command}));
    let (child, shell) = tokio::select! {
        done = call => panic!("it ended by itself: {done:?}"),
        pids = async { (place.pid("child").await, place.pid("shell").await) } => pids,
    };
    ends(child).await;
    ends(shell).await;
}

#[tokio::test]
async fn what_is_left_in_the_background_ends_with_the_command() {
    let place = Place::new();
    let started = Instant::now();
    let text = place.run("sleep 300 & echo $! > child; echo done").await;
    assert_eq!(text, "Exit status 0.\n\nstdout:\ndone");
    assert!(started.elapsed() < Duration::from_secs(5));
    ends(place.pid("child").await).await;
}

#[tokio::test]
async fn a_command_has_a_session_of_its_own_and_so_no_terminal() {
    if std::process::Command::new("setsid").arg("true").status().is_err() {
        return;
    }
    let place = Place::new();
    let text = place.run("ps -o sid= -p $$; echo $$").await;
    let ids: Vec<&str> = text.lines().skip(3).map(str::trim).collect();
    let [session, process] = ids[..] else { panic!("{text}") };
    assert_eq!(session, process);
    let text = place.run(": > /dev/tty").await;
    assert!(!text.starts_with("Exit status 0."), "{text}");
}

#[tokio::test]
async fn long_output_loses_its_middle() {
    let place = Place::new();
    let text = place.run("seq 1 200000").await;
    assert!(text.len() < 40_000, "{}", text.len());
    assert!(text.contains("stdout:\n1\n2\n") && text.ends_with("\n199999\n200000"));
    assert!(text.contains("bytes are left out here"));
}

#[tokio::test]
async fn bytes_that_are_not_text_are_not_shown() {
    let place = Place::new();
    let text = place.run("head -c 1000 /dev/zero").await;
    assert!(text.contains("stdout:\n[1000 bytes that are not text"), "{text}");
    let text = place.run(r"printf 'caf\351 ok\n'").await;
    assert_eq!(text, "Exit status 0.\n\nstdout:\ncaf\u{fffd} ok");
}

#[tokio::test]
async fn only_harmless_variables_reach_a_command() {
    let text = Place::new().run("env | sed 's/=.*//' | sort -u").await;
    let names: Vec<&str> = text.lines().skip(3).collect();
    assert!(names.contains(&"PATH") && names.contains(&"TERM"), "{text}");
    // Cargo sets this for every test.
    assert!(std::env::var_os("CARGO_PKG_NAME").is_some());
    let is_known = |name: &str| {
        ["HOME", "LANG", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "USER", "TERM", "NO_COLOR"]
            .contains(&name)
            || ["PAGER", "GIT_PAGER", "GIT_TERMINAL_PROMPT"].contains(&name)
            || name.starts_with("LC_")
            || name.starts_with("XDG_")
            // What a shell sets by itself.
            || ["PWD", "OLDPWD", "SHLVL", "_"].contains(&name)
    };
    assert!(names.iter().all(|name| is_known(name)), "{text}");
}

#[test]
fn it_is_offered_only_to_those_who_ask_and_says_what_it_is() {
    assert!(!Builtin::ALL.contains(&Builtin::Exec));
    let folder = Path::new(".").to_owned();
    let exec = |read_only| {
        Builtin::Exec.open(&Options {
            roots: vec![folder.clone()],
            read_only,
            ..Options::default()
        })
    };
    let specs: Vec<_> = exec(false).unwrap().specs().collect();
    let [spec] = specs.as_slice() else { panic!("{specs:?}") };
    assert!(spec.is_sequential());
    let expected = Annotations {
        read_only: Some(false),
        destructive: Some(true),
        idempotent: Some(false),
        open_world: Some(true),
    };
    assert_eq!(spec.annotations(), &expected);
    let error = exec(true).unwrap_err();
    assert!(matches!(error, BuiltinError::NeverReadOnly { .. }), "{error}");
}
