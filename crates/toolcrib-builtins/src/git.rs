//! Git repositories under the roots, through the `git` command.

mod command;
mod inspect;
mod record;

use crate::builtin::Options;
use crate::error::BuiltinError;
use crate::roots::Roots;
use crate::tool::{Effect, Tool, Tools};

pub(crate) fn tools(options: &Options) -> Result<Vec<Tool>, BuiltinError> {
    let tools = Tools::new(Roots::new("git", options)?)
        .waiting(inspect::STATUS, Effect::Reads, inspect::status)
        .waiting(inspect::LOG, Effect::Reads, inspect::log)
        .waiting(inspect::DIFF, Effect::Reads, inspect::diff)
        .waiting(inspect::SHOW, Effect::Reads, inspect::show)
        .waiting(inspect::BLAME, Effect::Reads, inspect::blame)
        .waiting(inspect::BRANCHES, Effect::Reads, inspect::branches)
        .waiting(record::ADD, Effect::Ensures, record::add)
        .waiting(record::COMMIT, Effect::Adds, record::commit)
        .waiting(record::CREATE_BRANCH, Effect::Adds, record::create_branch);
    Ok(tools.into_tools())
}

#[cfg(test)]
mod tests;
