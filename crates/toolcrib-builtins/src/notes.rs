//! Notes with tags and full-text search, in one SQLite file.

mod store;

use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::builtin::Options;
use crate::error::{BuiltinError, Failure, check_size};
use crate::tool::{Effect, Stop, Tool, Tools};
use store::Notes;

const LONGEST_TITLE: usize = 500;
const LONGEST_BODY: usize = 256 * 1024;
const MOST_TAGS: usize = 32;
const LONGEST_TAG: usize = 100;
const MOST_LISTED: u32 = 100;

pub(crate) fn tools(options: &Options) -> Result<Vec<Tool>, BuiltinError> {
    let folder = options.data_dir.clone().ok_or(BuiltinError::NoDataDir { server: "notes" })?;
    let tools = Tools::new(Notes::new(folder))
        .blocking(ADD_NOTE, Effect::Adds, add_note)
        .blocking(GET_NOTE, Effect::Reads, get_note)
        .blocking(SEARCH_NOTES, Effect::Reads, search_notes)
        .blocking(LIST_NOTES, Effect::Reads, list_notes)
        .blocking(UPDATE_NOTE, Effect::Overwrites, update_note)
        .blocking(DELETE_NOTE, Effect::Overwrites, delete_note)
        .blocking(LIST_TAGS, Effect::Reads, list_tags);
    Ok(tools.into_tools())
}

const ADD_NOTE: (&str, &str) = (
    "add_note",
    "Save a new note with a title, text and tags. Use it to remember facts, decisions, ideas or \
     to-dos for later. Answers with the note's id.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct AddNote {
    /// A short title.
    #[schemars(length(min = 1))]
    title: String,
    /// The text, in Markdown if you like.
    #[serde(default)]
    body: String,
    /// Tags to find it by, such as `work` or `recipe`.
    #[serde(default)]
    #[schemars(length(max = 32))]
    tags: Vec<String>,
}

fn add_note(notes: &Notes, arguments: AddNote, _: &Stop) -> Result<Value, Failure> {
    let title = checked_title(&arguments.title)?;
    check_size("The note", &arguments.body, LONGEST_BODY)?;
    let tags = checked_tags(arguments.tags)?;
    let id = notes.add(title, &arguments.body, &tags)?;
    Ok(json!({"id": id, "title": title, "tags": tags}))
}

const GET_NOTE: (&str, &str) = (
    "get_note",
    "Read one note in full by its id. Use it after search_notes or list_notes, which give the ids \
     and only a part of the text.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NoteId {
    /// The note's id.
    id: i64,
}

fn get_note(notes: &Notes, arguments: NoteId, _: &Stop) -> Result<Value, Failure> {
    notes.get(arguments.id)
}

const SEARCH_NOTES: (&str, &str) = (
    "search_notes",
    "Search the saved notes by words in title, text and tags; the best matches come first, with the \
     passage that matched. Use it to recall something noted earlier.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct SearchNotes {
    /// Words to look for. Word endings don't matter; notes with all words come before others.
    query: String,
    /// Only notes with this tag.
    tag: Option<String>,
    /// How many notes to give at most.
    #[serde(default = "ten")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
}

fn ten() -> u32 {
    10
}

fn search_notes(notes: &Notes, arguments: SearchNotes, _: &Stop) -> Result<Value, Failure> {
    check_size("The query", &arguments.query, 1_000)?;
    let tag = arguments.tag.as_deref().map(normal_tag);
    let found = notes.search(&arguments.query, tag.as_deref(), arguments.limit.min(MOST_LISTED))?;
    Ok(json!({"notes": found}))
}

const LIST_NOTES: (&str, &str) = (
    "list_notes",
    "List saved notes, the last changed first, with id, title and tags. Use it to browse notes or \
     all notes with a tag; to find words use search_notes.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListNotes {
    /// Only notes with this tag.
    tag: Option<String>,
    /// How many notes to list at most.
    #[serde(default = "twenty")]
    #[schemars(range(min = 1, max = 100))]
    limit: u32,
    /// How many notes to skip, to go on where a list ended.
    #[serde(default)]
    offset: u32,
}

fn twenty() -> u32 {
    20
}

fn list_notes(notes: &Notes, arguments: ListNotes, _: &Stop) -> Result<Value, Failure> {
    let tag = arguments.tag.as_deref().map(normal_tag);
    notes.list(tag.as_deref(), arguments.limit.min(MOST_LISTED), arguments.offset)
}

const UPDATE_NOTE: (&str, &str) = (
    "update_note",
    "Change a note's title, text or tags; what is left out stays as it is. Use it to correct or \
     extend a note instead of adding a second one.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct UpdateNote {
    /// The note's id.
    id: i64,
    /// The new title.
    title: Option<String>,
    /// The new text, which replaces the old.
    body: Option<String>,
    /// Text to add at the end, on a new line.
    append: Option<String>,
    /// The new tags, which replace the old.
    tags: Option<Vec<String>>,
}

fn update_note(notes: &Notes, arguments: UpdateNote, _: &Stop) -> Result<Value, Failure> {
    let title = arguments.title.as_deref().map(checked_title).transpose()?;
    let tags = arguments.tags.map(checked_tags).transpose()?;
    let changes = store::Changes {
        title,
        body: arguments.body.as_deref(),
        append: arguments.append.as_deref(),
        tags: tags.as_deref(),
    };
    notes.update(arguments.id, &changes, LONGEST_BODY)
}

const DELETE_NOTE: (&str, &str) = (
    "delete_note",
    "Delete a saved note for good, by its id. Use it when a note is wrong or no longer needed; it \
     can't be brought back.",
);

fn delete_note(notes: &Notes, arguments: NoteId, _: &Stop) -> Result<Value, Failure> {
    notes.delete(arguments.id)?;
    Ok(json!({"deleted": arguments.id}))
}

const LIST_TAGS: (&str, &str) = (
    "list_tags",
    "List every tag used in the saved notes and how many notes carry it. Use it to see what topics \
     there are before you filter by tag.",
);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct ListTags {}

fn list_tags(notes: &Notes, _: ListTags, _: &Stop) -> Result<Value, Failure> {
    Ok(json!({"tags": notes.tags()?}))
}

fn checked_title(title: &str) -> Result<&str, Failure> {
    check_size("The title", title, LONGEST_TITLE)?;
    match title.trim() {
        "" => Err(Failure::invalid("A note needs a title.")),
        title => Ok(title),
    }
}

fn checked_tags(tags: Vec<String>) -> Result<Vec<String>, Failure> {
    if tags.len() > MOST_TAGS {
        return Err(Failure::invalid(format!("At most {MOST_TAGS} tags.")));
    }
    let mut checked = Vec::new();
    for tag in tags {
        check_size("A tag", &tag, LONGEST_TAG)?;
        let tag = normal_tag(&tag);
        if !tag.is_empty() && !checked.contains(&tag) {
            checked.push(tag);
        }
    }
    Ok(checked)
}

/// `#Work ` and `work` are one tag.
fn normal_tag(tag: &str) -> String {
    tag.trim().trim_start_matches('#').to_lowercase()
}

#[cfg(test)]
mod tests;
