//! Changing files and folders.

use std::fs;
use std::io::Write as _;
use std::path::Path;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use similar::TextDiff;

use crate::error::{Failure, check_size};
use crate::roots::{Roots, read_file};
use crate::tool::Stop;

const MOST_WRITTEN: usize = 8 * 1024 * 1024;
const MOST_DIFF: usize = 64 * 1024;

pub(super) const WRITE_FILE: (&str, &str) = (
    "write_file",
    "Create a text file or replace its whole contents; missing folders are made. Use it for new \
     files; to change part of an existing file, edit_file is safer.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct WriteFile {
    /// The file, relative to the first allowed folder, or absolute.
    path: String,
    /// Everything that is to be in the file.
    content: String,
    /// Whether a file that is already there may be replaced.
    #[serde(default = "yes")]
    overwrite: bool,
}

fn yes() -> bool {
    true
}

pub(super) fn write_file(roots: &Roots, arguments: WriteFile, _: &Stop) -> Result<Value, Failure> {
    check_size("The content", &arguments.content, MOST_WRITTEN)?;
    let path = roots.writable(&arguments.path)?;
    let is_new = !path.exists();
    if !is_new && !arguments.overwrite {
        return Err(Failure::invalid(format!("`{}` is already there.", arguments.path)));
    }
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(|source| Failure::io(parent, source))?;
    }
    replace(&path, &arguments.path, arguments.content.as_bytes())?;
    let bytes = arguments.content.len();
    Ok(json!({"path": roots.shown(&path), "bytes": bytes, "created": is_new}))
}

/// Puts a file in place whole or not at all.
fn replace(path: &Path, shown: &str, bytes: &[u8]) -> Result<(), Failure> {
    let failed = |source| Failure::Io { path: shown.to_owned(), source };
    let before = match fs::metadata(path) {
        Ok(about) if !about.is_file() => {
            return Err(Failure::invalid(format!("`{shown}` is not a regular file.")));
        }
        about => about.ok(),
    };
    let mut builder = tempfile::Builder::new();
    builder.prefix(".toolcrib-");
    #[cfg(unix)]
    let permissions = {
        use std::os::unix::fs::PermissionsExt as _;
        fs::Permissions::from_mode(0o666)
    };
    #[cfg(unix)]
    builder.permissions(permissions);
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = builder.tempfile_in(folder).map_err(failed)?;
    file.write_all(bytes).map_err(failed)?;
    if let Some(before) = before {
        file.as_file().set_permissions(before.permissions()).map_err(failed)?;
    }
    file.as_file().sync_all().map_err(failed)?;
    file.persist(path).map_err(|error| failed(error.error))?;
    Ok(())
}

pub(super) const EDIT_FILE: (&str, &str) = (
    "edit_file",
    "Change part of a text file by replacing exact text. Use it for small changes to existing \
     files; with dry_run it shows the difference and changes nothing. All edits apply, or none.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct EditFile {
    /// The file, relative to the first allowed folder, or absolute.
    path: String,
    /// The replacements, made one after the other.
    #[schemars(length(min = 1, max = 100))]
    edits: Vec<Edit>,
    /// Show what would change, and change nothing.
    #[serde(default)]
    dry_run: bool,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Edit {
    /// The text to replace, exactly as it stands in the file, white space and line ends included.
    #[schemars(length(min = 1))]
    old_text: String,
    /// The text to put in its place.
    new_text: String,
    /// Replace every occurrence; otherwise the text must occur exactly once.
    #[serde(default)]
    replace_all: bool,
}

pub(super) fn edit_file(roots: &Roots, arguments: EditFile, stop: &Stop) -> Result<Value, Failure> {
    let path = roots.writable(&arguments.path)?;
    let shown = arguments.path.as_str();
    if !path.exists() {
        return Err(Failure::Missing(shown.to_owned()));
    }
    let advice = "It is too large to edit here.";
    let before = String::from_utf8(read_file(&path, shown, MOST_WRITTEN as u64, advice)?)
        .map_err(|_| Failure::invalid(format!("`{shown}` is not a text file in UTF-8.")))?;
    let mut after = before.clone();
    let mut replacements = 0;
    for (number, edit) in arguments.edits.iter().enumerate() {
        stop.check()?;
        let number = number + 1;
        let found =
            if edit.old_text.is_empty() { 0 } else { after.matches(&edit.old_text).count() };
        if found == 0 || (found > 1 && !edit.replace_all) {
            let how = match found {
                0 => {
                    "does not occur in the file; read it again and copy the text exactly".to_owned()
                }
                _ => format!(
                    "occurs {found} times; give more of the text around it, or set replace_all"
                ),
            };
            return Err(Failure::invalid(format!(
                "Nothing was changed: old_text of edit {number} {how}."
            )));
        }
        let grown = after.len() + found * edit.new_text.len().saturating_sub(edit.old_text.len());
        if grown > MOST_WRITTEN {
            let what = "The edited file";
            return Err(Failure::InputTooLarge { what, size: grown, limit: MOST_WRITTEN });
        }
        replacements += found;
        after = after.replace(&edit.old_text, &edit.new_text);
    }
    let mut answer = json!({"path": roots.shown(&path), "replacements": replacements});
    if arguments.dry_run {
        answer["dry_run"] = json!(true);
        answer["diff"] = json!(difference(&before, &after, shown));
    } else {
        replace(&path, shown, after.as_bytes())?;
    }
    Ok(answer)
}

fn difference(before: &str, after: &str, shown: &str) -> String {
    let limit = std::time::Duration::from_secs(2);
    let diff = TextDiff::configure().timeout(limit).diff_lines(before, after);
    let mut text = diff.unified_diff().context_radius(3).header(shown, shown).to_string();
    if text.len() > MOST_DIFF {
        text.truncate(text.floor_char_boundary(MOST_DIFF));
        text.push_str("\n[Cut here.]");
    }
    text
}

pub(super) const CREATE_DIRECTORY: (&str, &str) = (
    "create_directory",
    "Create a folder, with the folders above it where they are missing. Use it to prepare a place \
     for files; a folder that is already there is fine.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct CreateDirectory {
    /// The folder, relative to the first allowed folder, or absolute.
    path: String,
}

pub(super) fn create_directory(
    roots: &Roots,
    arguments: CreateDirectory,
    _: &Stop,
) -> Result<Value, Failure> {
    let path = roots.writable(&arguments.path)?;
    let is_new = !path.exists();
    fs::create_dir_all(&path).map_err(|source| Failure::Io { path: arguments.path, source })?;
    Ok(json!({"path": roots.shown(&path), "created": is_new}))
}

pub(super) const MOVE_FILE: (&str, &str) = (
    "move_file",
    "Move or rename a file or folder within the allowed folders. Fails if something is already at \
     the new place, unless it is a file that may be overwritten.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct MoveFile {
    /// What to move, relative to the first allowed folder, or absolute.
    from: String,
    /// Its new path, with the new name.
    to: String,
    /// Whether a file at the new place may be replaced.
    #[serde(default)]
    overwrite: bool,
}

pub(super) fn move_file(roots: &Roots, arguments: MoveFile, _: &Stop) -> Result<Value, Failure> {
    let from = roots.entry(&arguments.from)?;
    let to = roots.writable(&arguments.to)?;
    if to.exists() && !(arguments.overwrite && to.is_file()) {
        return Err(Failure::invalid(format!("`{}` is already there.", arguments.to)));
    }
    fs::rename(&from, &to).map_err(|source| Failure::Io { path: arguments.from, source })?;
    Ok(json!({"from": roots.shown(&from), "to": roots.shown(&to)}))
}

pub(super) const DELETE_FILE: (&str, &str) = (
    "delete_file",
    "Delete a file, a link or an empty folder for good. A folder with something in it is refused; \
     there is no way to get the file back.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct DeleteFile {
    /// What to delete, relative to the first allowed folder, or absolute.
    path: String,
}

pub(super) fn delete_file(
    roots: &Roots,
    arguments: DeleteFile,
    _: &Stop,
) -> Result<Value, Failure> {
    let path = roots.entry(&arguments.path)?;
    let failed = |source| Failure::Io { path: arguments.path.clone(), source };
    if fs::symlink_metadata(&path).map_err(failed)?.is_dir() {
        fs::remove_dir(&path).map_err(failed)?;
    } else {
        fs::remove_file(&path).map_err(failed)?;
    }
    Ok(json!({"deleted": roots.shown(&path)}))
}
