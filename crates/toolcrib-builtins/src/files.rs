//! Files under the roots: read, write, find, search.

mod find;
mod read;
mod write;

use crate::builtin::Options;
use crate::error::BuiltinError;
use crate::roots::Roots;
use crate::tool::{Effect, Tool, Tools};

pub(crate) fn tools(options: &Options) -> Result<Vec<Tool>, BuiltinError> {
    let tools = Tools::new(Roots::new("files", options)?)
        .blocking(read::READ_TEXT_FILE, Effect::Reads, read::read_text_file)
        .blocking(read::READ_MANY_FILES, Effect::Reads, read::read_many_files)
        .blocking(read::LIST_DIRECTORY, Effect::Reads, read::list_directory)
        .blocking(read::FILE_INFO, Effect::Reads, read::file_info)
        .blocking(find::DIRECTORY_TREE, Effect::Reads, find::directory_tree)
        .blocking(find::SEARCH_FILES, Effect::Reads, find::search_files)
        .blocking(find::GREP_FILES, Effect::Reads, find::grep_files)
        .blocking(write::WRITE_FILE, Effect::Overwrites, write::write_file)
        .blocking(write::EDIT_FILE, Effect::Changes, write::edit_file)
        .blocking(write::CREATE_DIRECTORY, Effect::Ensures, write::create_directory)
        .blocking(write::MOVE_FILE, Effect::Changes, write::move_file)
        .blocking(write::DELETE_FILE, Effect::Changes, write::delete_file);
    Ok(tools.into_tools())
}

#[cfg(test)]
mod tests;
