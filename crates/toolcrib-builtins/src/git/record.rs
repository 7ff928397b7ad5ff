//! Adding to a repository.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::command::{Repository, check_revision};
use super::inspect::here;
use crate::error::{Failure, check_size};
use crate::roots::Roots;

const LONGEST_MESSAGE: usize = 64 * 1024;

pub(super) const ADD: (&str, &str) = (
    "add",
    "Stage files for the next git commit: new, changed and deleted ones. Use it before commit; `.` \
     stages everything below the folder.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Add {
    /// The repository: a folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    repository: String,
    /// Files or folders, relative to the repository folder given. No patterns.
    #[schemars(length(min = 1, max = 500))]
    paths: Vec<String>,
}

pub(super) async fn add(roots: Arc<Roots>, arguments: Add) -> Result<Value, Failure> {
    let repository = Repository::open(&roots, &arguments.repository).await?;
    let mut values = vec!["--"];
    values.extend(arguments.paths.iter().map(String::as_str));
    repository.git(&["add", "--all"], &values).await?;
    let staged = repository
        .git(&["diff", "--cached", "--name-only", "-z", "--no-ext-diff", "--no-textconv"], &[])
        .await?;
    let staged: Vec<&str> = staged.text.split('\0').filter(|path| !path.is_empty()).collect();
    Ok(json!({"staged": staged}))
}

pub(super) const COMMIT: (&str, &str) = (
    "commit",
    "Record the staged changes of a git repository as a commit. Use it after add; hooks and signing \
     are not run. Answers with the hash of the new commit.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Commit {
    /// The repository: a folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    repository: String,
    /// The commit message: a short first line, then details after an empty line.
    #[schemars(length(min = 1))]
    message: String,
}

pub(super) async fn commit(roots: Arc<Roots>, arguments: Commit) -> Result<Value, Failure> {
    check_size("The message", &arguments.message, LONGEST_MESSAGE)?;
    let repository = Repository::open(&roots, &arguments.repository).await?;
    let message = format!("--message={}", arguments.message);
    let words =
        ["commit", "--quiet", "--no-verify", "--no-gpg-sign", "--cleanup=whitespace", &message];
    repository.git(&words, &[]).await?;
    let hash = repository.git(&["rev-parse", "HEAD"], &[]).await?.text;
    let words = ["show", "--stat", "--format=%s", "--no-ext-diff", "--no-textconv", "HEAD"];
    let summary = repository.git(&words, &[]).await?.into_text();
    Ok(json!({"commit": hash.trim(), "summary": summary.trim()}))
}

pub(super) const CREATE_BRANCH: (&str, &str) = (
    "create_branch",
    "Create a git branch at a commit without checking it out. Use it to mark a place to come back \
     to; the working tree is not touched.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateBranch {
    /// The repository: a folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    repository: String,
    /// The name of the new branch.
    name: String,
    /// Where it starts: a branch, tag or commit.
    #[serde(default = "head")]
    start: String,
}

fn head() -> String {
    "HEAD".to_owned()
}

pub(super) async fn create_branch(
    roots: Arc<Roots>,
    arguments: CreateBranch,
) -> Result<Value, Failure> {
    let repository = Repository::open(&roots, &arguments.repository).await?;
    let name = check_revision(&arguments.name)?;
    let start = check_revision(&arguments.start)?;
    repository.git(&["branch", "--no-track"], &["--end-of-options", name, start]).await?;
    Ok(json!({"created": name, "start": start}))
}
