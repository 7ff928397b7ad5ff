//! Walking folders: trees, names, contents.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::Path;

use globset::{GlobBuilder, GlobMatcher};
use ignore::{DirEntry, WalkBuilder};
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use super::read::here;
use crate::error::{Failure, check_size};
use crate::roots::{Roots, open_file};
use crate::tool::Stop;

const MOST_IN_TREE: usize = 1_000;
const MOST_RESULTS: usize = 1_000;
/// A file larger than this is not searched.
const MOST_SEARCHED: u64 = 4 * 1024 * 1024;
const LONGEST_LINE: usize = 400;
const LONGEST_PATTERN: usize = 2_000;

/// What lies below a folder, sorted, links not followed. `.git` is never entered; what
/// `.gitignore` files name and what is hidden only if asked for.
fn walk<'a>(
    top: &Path,
    include_ignored: bool,
    depth: Option<usize>,
    stop: &'a Stop,
) -> impl Iterator<Item = Result<DirEntry, Failure>> + use<'a> {
    let walk = WalkBuilder::new(top)
        .standard_filters(false)
        .hidden(!include_ignored)
        .git_ignore(!include_ignored)
        .ignore(!include_ignored)
        .parents(!include_ignored)
        .require_git(false)
        .follow_links(false)
        .max_depth(depth)
        .filter_entry(|entry| entry.depth() == 0 || entry.file_name() != ".git")
        .sort_by_file_name(std::ffi::OsStr::cmp)
        .build();
    // What can't be read is passed over: one closed folder should not hide the rest.
    walk.filter_map(Result::ok).filter(|entry| entry.depth() > 0).map(|entry| {
        stop.check()?;
        Ok(entry)
    })
}

fn is_file(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_file())
}

fn is_folder(entry: &DirEntry) -> bool {
    entry.file_type().is_some_and(|kind| kind.is_dir())
}

pub(super) const DIRECTORY_TREE: (&str, &str) = (
    "directory_tree",
    "Show a folder and everything below it as an indented tree. Use it to get an overview of a \
     project; files named in .gitignore and hidden ones are left out unless asked for.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DirectoryTree {
    /// The folder, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    path: String,
    /// How many levels to go down.
    #[serde(default = "three")]
    #[schemars(range(min = 1, max = 20))]
    depth: usize,
    /// Also show hidden files and those named in .gitignore.
    #[serde(default)]
    include_ignored: bool,
}

fn three() -> usize {
    3
}

pub(super) fn directory_tree(
    roots: &Roots,
    arguments: DirectoryTree,
    stop: &Stop,
) -> Result<String, Failure> {
    let top = roots.existing(&arguments.path)?;
    let mut tree = format!("{}/\n", roots.shown(&top));
    let depth = arguments.depth.clamp(1, 20);
    for (count, entry) in walk(&top, arguments.include_ignored, Some(depth), stop).enumerate() {
        let entry = entry?;
        if count == MOST_IN_TREE {
            tree.push_str(&format!(
                "[Cut at {MOST_IN_TREE} entries; go less deep or further in.]\n"
            ));
            break;
        }
        let indent = "  ".repeat(entry.depth());
        let slash = if is_folder(&entry) { "/" } else { "" };
        tree.push_str(&format!("{indent}{}{slash}\n", entry.file_name().to_string_lossy()));
    }
    Ok(tree)
}

pub(super) const SEARCH_FILES: (&str, &str) = (
    "search_files",
    "Find files by name with a glob such as `*.rs` or `src/**/test_*.py`. Use it when you know \
     roughly what a file is called but not where it is; for what is inside files use grep_files.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct SearchFiles {
    /// A glob. Without a slash it matches the file's name in any folder.
    pattern: String,
    /// The folder to search, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    path: String,
    /// Also look at hidden files and those named in .gitignore.
    #[serde(default)]
    include_ignored: bool,
    /// How many files to name at most.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1000))]
    max_results: usize,
}

fn hundred() -> usize {
    100
}

pub(super) fn search_files(
    roots: &Roots,
    arguments: SearchFiles,
    stop: &Stop,
) -> Result<Value, Failure> {
    let top = roots.existing(&arguments.path)?;
    let glob = glob(&arguments.pattern)?;
    let most = arguments.max_results.clamp(1, MOST_RESULTS);
    let mut found = Vec::new();
    let mut more = false;
    for entry in walk(&top, arguments.include_ignored, None, stop) {
        let entry = entry?;
        let below = entry.path().strip_prefix(&top).unwrap_or(entry.path());
        if is_folder(&entry) || !glob.is_match(below) {
            continue;
        }
        if found.len() == most {
            more = true;
            break;
        }
        found.push(roots.shown(entry.path()));
    }
    Ok(json!({"files": found, "truncated": more}))
}

fn glob(pattern: &str) -> Result<GlobMatcher, Failure> {
    check_size("The pattern", pattern, LONGEST_PATTERN)?;
    let anywhere = if pattern.contains('/') { "" } else { "**/" };
    GlobBuilder::new(&format!("{anywhere}{pattern}"))
        .literal_separator(true)
        .build()
        .map(|glob| glob.compile_matcher())
        .map_err(|error| Failure::invalid(format!("`{pattern}` is not a glob: {}.", error.kind())))
}

pub(super) const GREP_FILES: (&str, &str) = (
    "grep_files",
    "Search the contents of files for a regular expression and get the matching lines with file \
     and line number. Use it to find where something is defined, used or mentioned.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct GrepFiles {
    /// A regular expression in Rust's syntax, matched line by line.
    pattern: String,
    /// The file or folder to search, relative to the first allowed folder, or absolute.
    #[serde(default = "here")]
    path: String,
    /// Only files that this glob matches, such as `*.md`.
    glob: Option<String>,
    /// Take upper and lower case for the same.
    #[serde(default)]
    ignore_case: bool,
    /// How many lines to show before and after each match.
    #[serde(default)]
    #[schemars(range(max = 10))]
    context: usize,
    /// Also search hidden files and those named in .gitignore.
    #[serde(default)]
    include_ignored: bool,
    /// How many matching lines to give at most.
    #[serde(default = "hundred")]
    #[schemars(range(min = 1, max = 1000))]
    max_matches: usize,
}

pub(super) fn grep_files(
    roots: &Roots,
    arguments: GrepFiles,
    stop: &Stop,
) -> Result<String, Failure> {
    let top = roots.existing(&arguments.path)?;
    check_size("The pattern", &arguments.pattern, LONGEST_PATTERN)?;
    let pattern = RegexBuilder::new(&arguments.pattern)
        .case_insensitive(arguments.ignore_case)
        .size_limit(2 * 1024 * 1024)
        .build()
        .map_err(|error| Failure::invalid(format!("The pattern is not usable: {error}")))?;
    let only = arguments.glob.as_deref().map(glob).transpose()?;
    let mut search = Search {
        pattern,
        context: arguments.context.min(10),
        left: arguments.max_matches.clamp(1, MOST_RESULTS),
        found: String::new(),
        too_large: 0,
        stop,
    };
    if top.is_file() {
        search.file(&top, &roots.shown(&top))?;
    } else {
        for entry in walk(&top, arguments.include_ignored, None, stop) {
            let entry = entry?;
            let below = entry.path().strip_prefix(&top).unwrap_or(entry.path());
            if is_file(&entry) && only.as_ref().is_none_or(|glob| glob.is_match(below)) {
                search.file(entry.path(), &roots.shown(entry.path()))?;
            }
            if search.left == 0 {
                break;
            }
        }
    }
    Ok(search.into_answer())
}

struct Search<'a> {
    pattern: Regex,
    context: usize,
    left: usize,
    found: String,
    too_large: usize,
    stop: &'a Stop,
}

impl Search<'_> {
    fn file(&mut self, path: &Path, shown: &str) -> Result<(), Failure> {
        // A file that went away or is closed to us is passed over, as in a walk.
        let Ok(file) = open_file(path, shown) else { return Ok(()) };
        if file.metadata().is_ok_and(|about| about.len() > MOST_SEARCHED) {
            self.too_large += 1;
            return Ok(());
        }
        let mut reader = BufReader::new(file.take(MOST_SEARCHED));
        if reader.fill_buf().is_ok_and(|start| start.contains(&0)) {
            return Ok(());
        }
        let mut bytes = Vec::new();
        if reader.read_to_end(&mut bytes).is_err() {
            return Ok(());
        }
        let bytes = bytes.strip_suffix(b"\n").unwrap_or(&bytes);
        let lines: Vec<&[u8]> = bytes.split(|byte| *byte == b'\n').collect();
        // The first line not yet shown, so that contexts never overlap.
        let mut next = 0;
        for (at, line) in lines.iter().enumerate() {
            self.stop.check()?;
            if self.left == 0 {
                break;
            }
            if !self.pattern.is_match(line) {
                continue;
            }
            self.left -= 1;
            let start = at.saturating_sub(self.context).max(next);
            let end = (at + self.context + 1).min(lines.len());
            if self.context > 0 && start > next && !self.found.is_empty() {
                self.found.push_str("--\n");
            }
            for (number, line) in lines.iter().enumerate().take(end).skip(start) {
                let mark = if self.pattern.is_match(line) { ':' } else { '-' };
                let text = clip(line);
                self.found.push_str(&format!("{shown}{mark}{}{mark} {text}\n", number + 1));
            }
            next = end.max(next);
        }
        Ok(())
    }

    fn into_answer(mut self) -> String {
        if self.found.is_empty() {
            self.found.push_str("Nothing matches.\n");
        }
        if self.left == 0 {
            self.found.push_str("[There may be more; narrow the search or raise max_matches.]\n");
        }
        if self.too_large > 0 {
            let count = self.too_large;
            self.found.push_str(&format!("[{count} files of over 4 MiB were not searched.]\n"));
        }
        self.found
    }
}

fn clip(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = text.trim_end();
    match text.char_indices().nth(LONGEST_LINE) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
