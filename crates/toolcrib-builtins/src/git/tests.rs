use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::builtin::{Builtin, BuiltinTools, Options};
use crate::error::Failure;
use crate::tool::Answer;

struct Place {
    folder: TempDir,
    git: BuiltinTools,
}

/// Runs git as a person would, away from that person's own settings.
fn run_git(folder: &Path, words: &[&str]) {
    let output = Command::new("git")
        .args([
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.org",
            "-c",
            "init.defaultBranch=main",
        ])
        .args(words)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .current_dir(folder)
        .output()
        .unwrap();
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
}

impl Place {
    /// A root that holds the repository `repo` of two commits.
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let roots = vec![folder.path().to_owned()];
        let git = Builtin::Git.open(&Options { roots, ..Options::default() }).unwrap();
        let place = Self { folder, git };
        fs::create_dir(place.path("")).unwrap();
        place.user(&["init", "--quiet"]);
        place.user(&["config", "user.name", "Ann"]);
        place.user(&["config", "user.email", "ann@example.org"]);
        for (text, message) in [("one\n", "First"), ("one\ntwo\n", "Second\n\nWith a body.")] {
            fs::write(place.path("a.txt"), text).unwrap();
            place.user(&["add", "--all"]);
            place.user(&["commit", "--quiet", "--message", message]);
        }
        place
    }

    fn user(&self, words: &[&str]) {
        run_git(&self.path(""), words);
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join("repo").join(path)
    }

    async fn call(&self, tool: &str, mut arguments: Value) -> Result<Answer, Failure> {
        if arguments.get("repository").is_none() {
            arguments["repository"] = json!("repo");
        }
        self.git.dispatch(tool, arguments).await
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        match self.call(tool, arguments).await.unwrap() {
            Answer::Text(text) => text,
            Answer::Data(data) => panic!("data: {data}"),
        }
    }

    async fn data(&self, tool: &str, arguments: Value) -> Value {
        match self.call(tool, arguments).await.unwrap() {
            Answer::Text(text) => panic!("text: {text}"),
            Answer::Data(data) => data,
        }
    }
}

#[tokio::test]
async fn status_tells_what_changed() {
    let place = Place::new();
    let clean = place.data("status", json!({})).await;
    assert_eq!(clean, json!({"branch": "main", "changes": [], "is_clean": true}));
    fs::write(place.path("a.txt"), "changed\n").unwrap();
    fs::write(place.path("new file.txt"), "").unwrap();
    fs::write(place.path("b.txt"), "b\n").unwrap();
    place.user(&["add", "b.txt"]);
    let status = place.data("status", json!({})).await;
    let changes = json!([
        {"path": "a.txt", "unstaged": "modified"},
        {"path": "b.txt", "staged": "added"},
        {"path": "new file.txt", "state": "untracked"},
    ]);
    assert_eq!((&status["changes"], &status["is_clean"]), (&changes, &json!(false)));
}

#[tokio::test]
async fn a_rename_and_a_conflict_are_told() {
    let place = Place::new();
    place.user(&["mv", "a.txt", "b.txt"]);
    let status = place.data("status", json!({})).await;
    let renamed = json!([{"path": "b.txt", "staged": "renamed", "renamed_from": "a.txt"}]);
    assert_eq!(status["changes"], renamed);
}

#[tokio::test]
async fn history_can_be_read_and_filtered() {
    let place = Place::new();
    let log = place.data("log", json!({})).await;
    let commits = log["commits"].as_array().unwrap();
    assert_eq!(commits.len(), 2);
    assert_eq!(commits[0]["subject"], "Second");
    assert_eq!(commits[0]["body"], "With a body.");
    assert_eq!(commits[1]["author"], "Ann <ann@example.org>");
    let filtered = place.data("log", json!({"message_contains": "first", "path": "a.txt"})).await;
    assert_eq!(filtered["commits"].as_array().unwrap().len(), 1);
    let one = place.data("log", json!({"max_count": 1, "revision": "HEAD~1"})).await;
    assert_eq!(one["commits"][0]["subject"], "First");
    assert_eq!(place.data("log", json!({"path": "none"})).await, json!({"commits": []}));
}

#[tokio::test]
async fn differences_versions_and_authors_can_be_seen() {
    let place = Place::new();
    assert_eq!(place.text("diff", json!({})).await, "There are no differences.");
    let diff = place.text("diff", json!({"base": "HEAD~1", "target": "HEAD"})).await;
    assert!(diff.contains("+two"), "{diff}");
    let stat = place.text("diff", json!({"base": "HEAD~1", "stat_only": true})).await;
    assert!(stat.contains("1 file changed"), "{stat}");
    let show = place.text("show", json!({})).await;
    assert!(show.contains("Second") && show.contains("+two"), "{show}");
    assert_eq!(place.text("show", json!({"revision": "HEAD~1", "file": "a.txt"})).await, "one\n");
    let blame = place.text("blame", json!({"file": "a.txt", "start_line": 2})).await;
    assert!(
        blame.contains("Ann") && blame.ends_with("two\n") && !blame.contains(") one"),
        "{blame}"
    );
}

#[tokio::test]
async fn changes_are_staged_and_committed() {
    let place = Place::new();
    fs::write(place.path("b.txt"), "b\n").unwrap();
    fs::remove_file(place.path("a.txt")).unwrap();
    let staged = place.data("add", json!({"paths": ["."]})).await;
    assert_eq!(staged, json!({"staged": ["a.txt", "b.txt"]}));
    let staged = place.text("diff", json!({"staged": true})).await;
    assert!(staged.contains("+b"), "{staged}");
    let made = place.data("commit", json!({"message": "-m Third\n\n# not a comment"})).await;
    assert_eq!(made["commit"].as_str().unwrap().len(), 40);
    let log = place.data("log", json!({})).await;
    assert_eq!(log["commits"][0]["hash"], made["commit"]);
    assert_eq!(log["commits"][0]["subject"], "-m Third");
    assert_eq!(log["commits"][0]["body"], "# not a comment");
    let failure = place.call("commit", json!({"message": "Nothing"})).await.unwrap_err();
    assert!(failure.to_string().contains("nothing to commit"), "{failure}");
}

#[tokio::test]
async fn branches_are_listed_and_made() {
    let place = Place::new();
    place.data("create_branch", json!({"name": "topic", "start": "HEAD~1"})).await;
    place.user(&["tag", "v1"]);
    let branches = place.data("branches", json!({"include_tags": true})).await;
    let branches = branches["branches"].as_array().unwrap();
    let named = |name: &str| branches.iter().find(|branch| branch["name"] == name).unwrap();
    assert_eq!(
        (&named("main")["current"], &named("topic")["current"]),
        (&json!(true), &json!(false))
    );
    assert_eq!(named("topic")["subject"], "First");
    assert_eq!(named("v1")["kind"], "tag");
}

#[tokio::test]
async fn nothing_from_outside_is_taken_for_an_option() {
    let place = Place::new();
    let target = place.path("written");
    let output = format!("--output={}", target.display());
    let tries = [
        ("log", json!({"revision": output})),
        ("diff", json!({"base": output})),
        ("diff", json!({"base": "HEAD", "target": output})),
        ("show", json!({"revision": output})),
        ("blame", json!({"file": "a.txt", "revision": output})),
        ("create_branch", json!({"name": "--delete"})),
        ("create_branch", json!({"name": "x", "start": "-D"})),
        ("diff", json!({"path": output})),
        ("log", json!({"path": output})),
        ("show", json!({"file": output})),
        ("blame", json!({"file": output})),
        ("add", json!({"paths": ["--chmod=+x", output]})),
    ];
    for (tool, arguments) in tries {
        let _ = place.call(tool, arguments.clone()).await;
        assert!(!target.exists(), "{tool} {arguments}");
    }
    let failure = place.call("show", json!({"revision": "--help"})).await.unwrap_err();
    assert!(failure.to_string().contains("not a revision"), "{failure}");
}

#[tokio::test]
async fn repositories_outside_the_roots_are_out_of_reach() {
    let place = Place::new();
    let outside = Place::new();
    let absolute = outside.path("").display().to_string();
    for path in ["../..", "/", &absolute] {
        let failure = place.call("status", json!({"repository": path})).await.unwrap_err();
        assert!(matches!(failure, Failure::OutsideRoots { .. }), "{path}: {failure}");
    }
    // A root within a repository does not open the repository around it.
    fs::create_dir(outside.path("sub")).unwrap();
    let roots = vec![outside.path("sub")];
    let git = Builtin::Git.open(&Options { roots, ..Options::default() }).unwrap();
    let failure = git.dispatch("log", json!({})).await.unwrap_err();
    assert!(failure.to_string().contains("not a git repository"), "{failure}");
    // Nor is a file outside shown by a path.
    let secret = place.folder.path().join("secret");
    fs::write(&secret, "secret").unwrap();
    for tool in ["blame", "show"] {
        let failure = place.call(tool, json!({"file": "../secret"})).await.unwrap_err();
        assert!(!failure.to_string().contains("secret\n"), "{failure}");
    }
    let diff = place.call("diff", json!({"path": "../secret"})).await.unwrap_err();
    assert!(diff.to_string().contains("outside repository"), "{diff}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_repository_can_not_have_commands_run() {
    let place = Place::new();
    let ran = place.path("ran");
    let command = format!("touch {}; cat", ran.display());
    let settings = [
        "core.fsmonitor",
        "core.pager",
        "core.editor",
        "diff.external",
        "core.sshCommand",
        "filter.evil.clean",
        "filter.evil.smudge",
        "filter.a=b.clean",
        "diff.evil.textconv",
        "diff.evil.command",
        "gpg.program",
    ];
    for setting in settings {
        place.user(&["config", setting, &command]);
    }
    place.user(&["config", "commit.gpgSign", "true"]);
    place.user(&["config", "log.showSignature", "true"]);
    fs::write(place.path(".gitattributes"), "*.txt filter=evil diff=evil\n*.md filter=a=b\n")
        .unwrap();
    for hook in
        ["pre-commit", "commit-msg", "post-commit", "post-index-change", "reference-transaction"]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let path = place.path(".git/hooks").join(hook);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, format!("#!/bin/sh\n{command} </dev/null\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    fs::write(place.path("a.txt"), "changed\n").unwrap();
    fs::write(place.path("b.md"), "new\n").unwrap();
    let calls = [
        ("status", json!({})),
        ("diff", json!({})),
        ("diff", json!({"base": "HEAD~1"})),
        ("add", json!({"paths": ["."]})),
        ("diff", json!({"staged": true})),
        ("commit", json!({"message": "Third"})),
        ("log", json!({})),
        ("show", json!({})),
        ("blame", json!({"file": "a.txt"})),
        ("branches", json!({})),
        ("create_branch", json!({"name": "topic"})),
    ];
    for (tool, arguments) in calls {
        place.call(tool, arguments).await.unwrap();
        assert!(!ran.exists(), "{tool} ran a command");
    }
    // The traps are real: git as it comes does fall into them.
    fs::write(place.path("a.txt"), "again\n").unwrap();
    let _ =
        Command::new("git").args(["add", "a.txt"]).current_dir(place.path("")).output().unwrap();
    assert!(ran.exists());
}

#[tokio::test]
async fn a_folder_made_to_look_like_a_repository_is_not_one() {
    let place = Place::new();
    let fake = place.folder.path().join("fake");
    fs::create_dir(&fake).unwrap();
    run_git(&fake, &["init", "--quiet", "--bare"]);
    let failure = place.call("log", json!({"repository": "fake"})).await.unwrap_err();
    assert!(failure.to_string().contains("bare repository"), "{failure}");
}

#[tokio::test]
async fn a_long_output_is_cut() {
    let place = Place::new();
    fs::write(place.path("big.txt"), "line\n".repeat(200_000)).unwrap();
    place.user(&["add", "--all"]);
    place.user(&["commit", "--quiet", "--message", "Big"]);
    let show = place.text("show", json!({})).await;
    assert!(show.len() < 300_000 && show.ends_with("[Cut here; ask for less.]"), "{}", show.len());
}

/// Whether a process works in the folder.
#[cfg(target_os = "linux")]
fn is_worked_in(folder: &Path) -> bool {
    let processes = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
    processes
        .filter_map(|process| fs::read_link(process.path().join("cwd")).ok())
        .any(|at| at == folder)
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn dropping_a_call_ends_its_git() {
    let place = Place::new();
    // Git waits for somebody to write its configuration, which nobody does.
    fs::remove_file(place.path(".git/config")).unwrap();
    let made = Command::new("mkfifo").arg(place.path(".git/config")).status().unwrap();
    assert!(made.success());
    let folder = fs::canonicalize(place.path("")).unwrap();
    let until = |wanted: bool| {
        let folder = folder.clone();
        let poll = async move {
            while is_worked_in(&folder) != wanted {
                tokio::time::sleep(std::time::Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(60), poll)
    };
    tokio::select! {
        done = place.call("status", json!({})) => panic!("it ended: {done:?}"),
        begun = until(true) => begun.unwrap(),
    }
    until(false).await.unwrap();
}
