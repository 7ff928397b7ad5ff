//! Looking into a repository.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::command::{Repository, check_revision};
use crate::error::Failure;
use crate::roots::Roots;

const MOST_COMMITS: u32 = 500;

pub(super) fn here() -> String {
    ".".to_owned()
}

pub(super) const STATUS: (&str, &str) = (
    "status",
    "Show the state of a git working tree: the branch, what is staged, changed, untracked or in \
     conflict. Use it before committing or to see what was changed.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Status {
    /// The repository: a folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    repository: String,
}

pub(super) async fn status(roots: Arc<Roots>, arguments: Status) -> Result<Value, Failure> {
    let repository = Repository::open(&roots, &arguments.repository).await?;
    let words = ["status", "--porcelain=v2", "--branch", "--null", "--ignore-submodules=dirty"];
    let output = repository.git(&words, &[]).await?;
    let mut status = json!({"branch": null, "changes": []});
    let mut changes = Vec::new();
    let mut records = output.text.split('\0').filter(|record| !record.is_empty());
    while let Some(record) = records.next() {
        if let Some(head) = record.strip_prefix("# branch.") {
            let (key, value) = head.split_once(' ').unwrap_or((head, ""));
            match key {
                "head" => status["branch"] = json!(value),
                "upstream" => status["upstream"] = json!(value),
                "ab" => status["ahead_behind"] = json!(value),
                _ => {}
            }
            continue;
        }
        // How many fields stand before the path depends on the kind of record.
        let (fields, state) = match record.as_bytes().first() {
            Some(b'1') => (9, record.get(2..4)),
            Some(b'2') => (10, record.get(2..4)),
            Some(b'u') => (11, record.get(2..4)),
            Some(b'?') => (2, Some("??")),
            _ => continue,
        };
        let path = record.splitn(fields, ' ').last().unwrap_or_default();
        let state = state.unwrap_or_default();
        let mut change = match state {
            "??" => json!({"path": path, "state": "untracked"}),
            _ if record.starts_with('u') => json!({"path": path, "state": "conflict"}),
            _ => {
                let mut change = json!({"path": path});
                let letters = state.chars().zip(["staged", "unstaged"]);
                for (letter, place) in letters.filter(|(letter, _)| *letter != '.') {
                    change[place] = json!(change_word(letter));
                }
                change
            }
        };
        if record.starts_with('2') {
            change["renamed_from"] = json!(records.next());
        }
        changes.push(change);
    }
    status["is_clean"] = json!(changes.is_empty());
    status["changes"] = Value::Array(changes);
    if output.is_cut {
        status["note"] = json!("There are more changes than are listed.");
    }
    Ok(status)
}

fn change_word(letter: char) -> &'static str {
    match letter {
        'A' => "added",
        'D' => "deleted",
        'R' => "renamed",
        'C' => "copied",
        'T' => "type changed",
        _ => "modified",
    }
}

pub(super) const LOG: (&str, &str) = (
    "log",
    "List commits of a git repository, newest first, with hash, author, date and message. Use it \
     to see the history of a branch or a file, or to find when something changed.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Log {
    /// The repository: a folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    repository: String,
    /// Where to start: a branch, tag, commit or range such as `v1.0..main`.
    #[serde(default = "head")]
    revision: String,
    /// Only commits that touch this path, relative to the repository folder given.
    path: Option<String>,
    /// Only commits whose message contains this text.
    message_contains: Option<String>,
    /// Only commits after this date, such as `2024-05-01` or `2 weeks ago`.
    since: Option<String>,
    /// How many commits to list at most.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 500))]
    max_count: u32,
}

fn head() -> String {
    "HEAD".to_owned()
}

fn twenty() -> u32 {
    20
}

pub(super) async fn log(roots: Arc<Roots>, arguments: Log) -> Result<Value, Failure> {
    let repository = Repository::open(&roots, &arguments.repository).await?;
    let revision = check_revision(&arguments.revision)?;
    let count = format!("--max-count={}", arguments.max_count.clamp(1, MOST_COMMITS));
    let mut words = vec!["log", "--format=%H%x1f%an%x1f%ae%x1f%aI%x1f%s%x1f%b%x1e", &count];
    let since = arguments.since.map(|since| format!("--since={since}"));
    let grep = arguments.message_contains.map(|text| format!("--grep={text}"));
    words.extend(["--fixed-strings", "--regexp-ignore-case", "--no-ext-diff", "--no-textconv"]);
    words.extend(since.as_deref().into_iter().chain(grep.as_deref()));
    let mut values = vec!["--end-of-options", revision, "--"];
    values.extend(arguments.path.as_deref());
    let output = repository.git(&words, &values).await?;
    let commit = |record: &str| {
        let mut fields = record.trim_start_matches('\n').splitn(6, '\u{1f}');
        let mut field = || fields.next().unwrap_or_default().trim_end().to_owned();
        let (hash, author, email, date) = (field(), field(), field(), field());
        let (subject, body) = (field(), field());
        let author = format!("{author} <{email}>");
        let mut commit = json!({"hash": hash, "author": author, "date": date, "subject": subject});
        if !body.is_empty() {
            commit["body"] = json!(body);
        }
        commit
    };
    // What stands after the last mark is no whole commit.
    let whole = output.text.rsplit_once('\u{1e}').map_or("", |(whole, _)| whole);
    let records = whole.split('\u{1e}').filter(|record| !record.is_empty());
    let commits: Vec<Value> = records.map(commit).collect();
    Ok(json!({"commits": commits}))
}

pub(super) const DIFF: (&str, &str) = (
    "diff",
    "Show differences in a git repository as a patch: unstaged changes, staged changes, or between \
     two commits or branches. Use it to review changes before a commit or between versions.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Diff {
    /// The repository: a folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    repository: String,
    /// Compare with this branch, tag or commit instead of what is staged.
    base: Option<String>,
    /// The other side of the comparison; the working tree if left out. Needs `base`.
    target: Option<String>,
    /// Show what is staged for the next commit.
    #[serde(default)]
    staged: bool,
    /// Only this file or folder, relative to the repository folder given.
    path: Option<String>,
    /// Only the names of changed files with line counts.
    #[serde(default)]
    stat_only: bool,
    /// How many unchanged lines to show around each change.
    #[serde(default = "three")]
    #[schemars(range(max = 100))]
    context: u32,
}

fn three() -> u32 {
    3
}

pub(super) async fn diff(roots: Arc<Roots>, arguments: Diff) -> Result<String, Failure> {
    let repository = Repository::open(&roots, &arguments.repository).await?;
    let context = format!("--unified={}", arguments.context.min(100));
    // Outside a repository `git diff` compares any two files.
    repository.git(&["rev-parse", "--git-dir"], &[]).await?;
    let mut words =
        vec!["diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=dirty", &context];
    words.extend(arguments.staged.then_some("--cached"));
    words.extend(arguments.stat_only.then_some("--stat"));
    if arguments.target.is_some() && (arguments.base.is_none() || arguments.staged) {
        return Err(Failure::invalid("`target` goes with `base`, and not with `staged`."));
    }
    let mut values = vec!["--end-of-options"];
    for revision in arguments.base.iter().chain(&arguments.target) {
        values.push(check_revision(revision)?);
    }
    values.push("--");
    values.extend(arguments.path.as_deref());
    let text = repository.git(&words, &values).await?.into_text();
    Ok(if text.is_empty() { "There are no differences.".to_owned() } else { text })
}

pub(super) const SHOW: (&str, &str) = (
    "show",
    "Show one git commit with its message and patch, or a file as it was at a commit. Use it to see \
     what a commit changed or to read an old version of a file.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Show {
    /// The repository: a folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    repository: String,
    /// A branch, tag or commit.
    #[serde(default = "head")]
    revision: String,
    /// Show this file as it was then, instead of the commit. Relative to the repository's top.
    file: Option<String>,
}

pub(super) async fn show(roots: Arc<Roots>, arguments: Show) -> Result<String, Failure> {
    let repository = Repository::open(&roots, &arguments.repository).await?;
    let revision = check_revision(&arguments.revision)?;
    let object = match &arguments.file {
        Some(file) => format!("{revision}:{file}"),
        None => revision.to_owned(),
    };
    let words = ["show", "--no-ext-diff", "--no-textconv", "--no-show-signature"];
    let output = repository.git(&words, &["--end-of-options", &object, "--"]).await?;
    Ok(output.into_text())
}

pub(super) const BLAME: (&str, &str) = (
    "blame",
    "Show for each line of a file which git commit and author last changed it, and when. Use it to \
     find out why or by whom a line was written.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Blame {
    /// The repository: a folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    repository: String,
    /// The file, relative to the repository folder given.
    file: String,
    /// The first line, counted from 1.
    #[schemars(range(min = 1))]
    start_line: Option<u32>,
    /// The last line, itself included.
    #[schemars(range(min = 1))]
    end_line: Option<u32>,
    /// The version to look at; the working tree if left out.
    revision: Option<String>,
}

pub(super) async fn blame(roots: Arc<Roots>, arguments: Blame) -> Result<String, Failure> {
    let repository = Repository::open(&roots, &arguments.repository).await?;
    let range = match (arguments.start_line, arguments.end_line) {
        (None, None) => None,
        (start, Some(end)) => Some(format!("-L{},{end}", start.unwrap_or(1))),
        (Some(start), None) => Some(format!("-L{start},")),
    };
    let mut words = vec!["blame", "--date=short", "--no-textconv"];
    words.extend(range.as_deref());
    let mut values = Vec::new();
    if let Some(revision) = &arguments.revision {
        values.push(check_revision(revision)?);
    }
    values.extend(["--", &arguments.file]);
    Ok(repository.git(&words, &values).await?.into_text())
}

pub(super) const BRANCHES: (&str, &str) = (
    "branches",
    "List the branches and tags of a git repository, with the newest commit of each and which one \
     is checked out. Use it to find the name of a branch or release.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Branches {
    /// The repository: a folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    repository: String,
    /// Also list branches of remotes, as last fetched.
    #[serde(default)]
    include_remote: bool,
    /// Also list tags.
    #[serde(default)]
    include_tags: bool,
}

pub(super) async fn branches(roots: Arc<Roots>, arguments: Branches) -> Result<Value, Failure> {
    let repository = Repository::open(&roots, &arguments.repository).await?;
    let format = "--format=%(HEAD)%1f%(refname)%1f%(objectname:short)%1f%(creatordate:iso-strict)%1f%(contents:subject)";
    let mut values = vec!["refs/heads"];
    values.extend(arguments.include_remote.then_some("refs/remotes"));
    values.extend(arguments.include_tags.then_some("refs/tags"));
    let words = ["for-each-ref", "--sort=-creatordate", "--count=500", format];
    let output = repository.git(&words, &values).await?;
    let branch = |line: &str| {
        let mut fields = line.splitn(5, '\u{1f}');
        let mut field = || fields.next().unwrap_or_default();
        let (head, name, commit, date, subject) = (field(), field(), field(), field(), field());
        let (kind, name) = match name.split_once('/').and_then(|(_, rest)| rest.split_once('/')) {
            Some(("remotes", name)) => ("remote branch", name),
            Some(("tags", name)) => ("tag", name),
            Some((_, name)) => ("branch", name),
            None => ("branch", name),
        };
        json!({
            "name": name, "kind": kind, "current": head == "*",
            "commit": commit, "date": date, "subject": subject,
        })
    };
    let branches: Vec<Value> = output.text.lines().map(branch).collect();
    Ok(json!({"branches": branches}))
}
