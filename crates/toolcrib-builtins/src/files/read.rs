//! Reading files and folders.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Seek as _, SeekFrom};
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::error::Failure;
use crate::roots::{Roots, open_file, read_file};
use crate::tool::Stop;

/// The most bytes of one file that are read into an answer.
const MOST_BYTES: u64 = 256 * 1024;
const MOST_FILES: usize = 20;
const MOST_ENTRIES: usize = 1_000;
const READ_PART: &str = "Read a part of it with head, tail or start_line and end_line.";

pub(super) const READ_TEXT_FILE: (&str, &str) = (
    "read_text_file",
    "Read the contents of a text file: all of it, the first or last lines, or a range of lines. \
     Use it to look at source code, configuration, logs or documents.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadTextFile {
    /// The file, relative to the first allowed folder, or absolute.
    path: String,
    /// Only this many lines from the start.
    head: Option<u64>,
    /// Only this many lines from the end.
    tail: Option<u64>,
    /// The first line to read, counted from 1.
    #[schemars(range(min = 1))]
    start_line: Option<u64>,
    /// The last line to read, itself included.
    #[schemars(range(min = 1))]
    end_line: Option<u64>,
}

pub(super) fn read_text_file(
    roots: &Roots,
    arguments: ReadTextFile,
    stop: &Stop,
) -> Result<String, Failure> {
    let path = roots.existing(&arguments.path)?;
    let shown = arguments.path.as_str();
    match arguments {
        ReadTextFile { head: None, tail: None, start_line: None, end_line: None, .. } => {
            text_of(shown, read_file(&path, shown, MOST_BYTES, READ_PART)?)
        }
        ReadTextFile { head: Some(head), tail: None, start_line: None, end_line: None, .. } => {
            read_lines(&path, shown, 1, head, stop)
        }
        ReadTextFile { head: None, tail: Some(tail), start_line: None, end_line: None, .. } => {
            read_last_lines(&path, shown, tail)
        }
        ReadTextFile { head: None, tail: None, start_line, end_line, .. } => {
            let first = start_line.unwrap_or(1).max(1);
            let last = end_line.unwrap_or(u64::MAX);
            if last < first {
                return Err(Failure::invalid("end_line comes before start_line."));
            }
            read_lines(&path, shown, first, last, stop)
        }
        _ => Err(Failure::invalid("Give one of head, tail, or start_line and end_line.")),
    }
}

fn read_lines(
    path: &Path,
    shown: &str,
    first: u64,
    last: u64,
    stop: &Stop,
) -> Result<String, Failure> {
    let failed = |source| Failure::Io { path: shown.to_owned(), source };
    let mut reader = BufReader::new(open_file(path, shown)?);
    for _ in 1..first {
        stop.check()?;
        if reader.skip_until(b'\n').map_err(failed)? == 0 {
            return Err(Failure::invalid(format!("`{shown}` has fewer than {first} lines.")));
        }
    }
    let mut bytes = Vec::new();
    for line in first..=last {
        let left = MOST_BYTES - bytes.len() as u64;
        let before = bytes.len();
        if (&mut reader).take(left).read_until(b'\n', &mut bytes).map_err(failed)? == 0 {
            let is_over = reader.fill_buf().map_err(failed)?.is_empty();
            let text = text_of(shown, bytes)?;
            return Ok(if is_over { text } else { cut(text, line) });
        }
        if bytes.len() as u64 == MOST_BYTES && bytes.last() != Some(&b'\n') {
            // What is left of the line goes with the next read, unless the line alone is too long.
            let (whole, next) = if before == 0 { (bytes.len(), line + 1) } else { (before, line) };
            bytes.truncate(whole);
            return Ok(cut(text_of(shown, bytes)?, next));
        }
    }
    text_of(shown, bytes)
}

fn cut(text: String, next: u64) -> String {
    format!("{text}\n[Cut at {MOST_BYTES} bytes; go on with start_line {next}.]")
}

fn read_last_lines(path: &Path, shown: &str, count: u64) -> Result<String, Failure> {
    let failed = |source| Failure::Io { path: shown.to_owned(), source };
    let mut file = open_file(path, shown)?;
    let size = file.seek(SeekFrom::End(0)).map_err(failed)?;
    let start = size.saturating_sub(MOST_BYTES);
    file.seek(SeekFrom::Start(start)).map_err(failed)?;
    let mut bytes = Vec::new();
    file.take(MOST_BYTES).read_to_end(&mut bytes).map_err(failed)?;
    if start > 0 {
        // It may begin within a line, and within a character.
        let line = bytes.iter().position(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        bytes.drain(..line);
    }
    let text = text_of(shown, bytes)?;
    let lines: Vec<&str> = text.split_inclusive('\n').collect();
    let skipped = lines.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
    Ok(lines.into_iter().skip(skipped).collect())
}

fn text_of(shown: &str, bytes: Vec<u8>) -> Result<String, Failure> {
    if bytes.contains(&0) {
        return Err(Failure::invalid(format!("`{shown}` is not a text file.")));
    }
    Ok(match String::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
    })
}

pub(super) const READ_MANY_FILES: (&str, &str) = (
    "read_many_files",
    "Read several text files in one call. Use it instead of one call per file when you know which \
     files you need; a file that can't be read is reported and the others still come.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ReadManyFiles {
    /// The files, relative to the first allowed folder, or absolute. At most 20.
    #[schemars(length(min = 1, max = 20))]
    paths: Vec<String>,
}

pub(super) fn read_many_files(
    roots: &Roots,
    arguments: ReadManyFiles,
    stop: &Stop,
) -> Result<String, Failure> {
    if arguments.paths.len() > MOST_FILES {
        return Err(Failure::invalid(format!("At most {MOST_FILES} files at once.")));
    }
    let mut answer = String::new();
    for path in &arguments.paths {
        stop.check()?;
        let left = (2 * MOST_BYTES).saturating_sub(answer.len() as u64).min(MOST_BYTES);
        let text = roots
            .existing(path)
            .and_then(|real| read_file(&real, path, left, "Read it by itself."))
            .and_then(|bytes| text_of(path, bytes));
        let text = text.unwrap_or_else(|failure| format!("[{failure}]\n"));
        let gap = if text.ends_with('\n') { "\n" } else { "\n\n" };
        answer.push_str(&format!("==> {path} <==\n{text}{gap}"));
    }
    Ok(answer.trim_end().to_owned())
}

pub(super) const LIST_DIRECTORY: (&str, &str) = (
    "list_directory",
    "List the files and folders in one folder, with their sizes. Use it to see what is there; for \
     what lies below as well, use directory_tree.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ListDirectory {
    /// The folder, relative to the first allowed folder, or absolute.
    #[serde(default = "super::read::here")]
    path: String,
}

pub(super) fn here() -> String {
    ".".to_owned()
}

pub(super) fn list_directory(
    roots: &Roots,
    arguments: ListDirectory,
    _: &Stop,
) -> Result<Value, Failure> {
    let shown = arguments.path.as_str();
    let failed = |source| Failure::Io { path: shown.to_owned(), source };
    let path = roots.existing(shown)?;
    let mut entries = Vec::new();
    let mut more = false;
    for entry in fs::read_dir(&path).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entries.len() == MOST_ENTRIES {
            more = true;
            break;
        }
        // A link is told as a link, not followed: it may lead out.
        let Ok(about) = entry.metadata() else { continue };
        entries.push((entry.file_name().to_string_lossy().into_owned(), about));
    }
    entries.sort_by(|(one, _), (other, _)| one.cmp(other));
    let entries: Vec<Value> = entries
        .into_iter()
        .map(|(name, about)| match kind(&about) {
            "file" => json!({"name": name, "kind": "file", "size": about.len()}),
            kind => json!({"name": name, "kind": kind}),
        })
        .collect();
    let mut answer = json!({"path": roots.shown(&path), "entries": entries});
    if more {
        answer["note"] = json!(format!("Only the first {MOST_ENTRIES} entries are listed."));
    }
    Ok(answer)
}

fn kind(about: &fs::Metadata) -> &'static str {
    let kind = about.file_type();
    if kind.is_symlink() {
        "link"
    } else if kind.is_dir() {
        "folder"
    } else if kind.is_file() {
        "file"
    } else {
        "special"
    }
}

pub(super) const FILE_INFO: (&str, &str) = (
    "file_info",
    "Get the size, kind, permissions and times of a file or folder. Use it to check whether \
     something exists, how large it is or when it last changed, without reading it.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct FileInfo {
    /// The file or folder, relative to the first allowed folder, or absolute.
    path: String,
}

pub(super) fn file_info(roots: &Roots, arguments: FileInfo, _: &Stop) -> Result<Value, Failure> {
    let path = roots.existing(&arguments.path)?;
    let about = fs::metadata(&path)
        .map_err(|source| Failure::Io { path: arguments.path.clone(), source })?;
    let time = |time: std::io::Result<std::time::SystemTime>| {
        time.ok().and_then(|time| jiff::Timestamp::try_from(time).ok()).map(|time| time.to_string())
    };
    let mut answer = json!({
        "path": roots.shown(&path),
        "kind": kind(&about),
        "size": about.len(),
        "modified": time(about.modified()),
        "created": time(about.created()),
        "read_only": about.permissions().readonly(),
    });
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        answer["mode"] = json!(format!("{:o}", about.permissions().mode() & 0o7777));
    }
    Ok(answer)
}
