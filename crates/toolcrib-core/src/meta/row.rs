//! Tools in a result: their definitions, as many as fit.

use std::sync::Arc;

use serde::Serialize;

use crate::{Definition, Schema, Tool};

/// A tool in a result. Under inject the definition joins the tools array as well; it is here
/// because the model that has just searched should not have to look for it.
#[derive(Serialize)]
pub(crate) struct Row<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Schema,
    #[serde(skip_serializing_if = "Option::is_none")]
    loaded: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call_with: Option<&'static str>,
}

impl<'a> Row<'a> {
    pub(crate) fn of(definition: &'a Definition, loaded: Option<bool>) -> Self {
        Self {
            name: definition.name(),
            description: definition.description(),
            parameters: definition.schema(),
            loaded,
            call_with: None,
        }
    }

    /// Says which verb calls it.
    pub(crate) fn called_with(self, verb: Option<&'static str>) -> Self {
        Self { call_with: verb, ..self }
    }
}

/// What a tool's definition adds to a result.
pub(crate) fn bytes(tool: &Arc<Tool>) -> usize {
    tool.definition().schema().get().len() + tool.spec().description().len()
}

/// How many whole entries of these sizes fit; the first always does.
pub(crate) fn how_many_fit(sizes: impl ExactSizeIterator<Item = usize>, most: usize) -> usize {
    let all = sizes.len();
    let mut bytes = 0;
    let fits = |size: &usize| {
        bytes += size;
        bytes <= most
    };
    sizes.take_while(fits).count().max(1).min(all)
}
