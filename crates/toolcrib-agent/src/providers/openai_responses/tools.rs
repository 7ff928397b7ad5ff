//! Tools as the Responses API is told of them: the array, and those that a conversation is given
//! on its way.

use std::borrow::Cow;
use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use toolcrib_core::{Definition, Dialect, Revealed};
use toolcrib_wire::Fields;

use super::namespaces::Namespaces;
use crate::message::Message;
use crate::provider::{Native, Request};

#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(super) enum Tool<'a> {
    /// The server's own search, or ours with what the model must know to ask for it.
    #[serde(rename = "tool_search")]
    Search {
        #[serde(skip_serializing_if = "Option::is_none")]
        execution: Option<&'static str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        description: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        parameters: Option<&'a RawValue>,
    },
    Namespace {
        name: &'a str,
        description: &'a str,
        tools: Vec<Cow<'a, RawValue>>,
    },
    #[serde(untagged)]
    Function(Cow<'a, RawValue>),
}

impl<'a> Tool<'a> {
    fn function(tool: &'a Definition) -> Self {
        Self::Function(Cow::Borrowed(tool.render(Dialect::OpenaiResponses)))
    }

    fn search(tool: &'a Definition) -> Self {
        #[derive(Deserialize)]
        struct Rendered<'a> {
            #[serde(borrow)]
            parameters: &'a RawValue,
        }
        let rendered = tool.render(Dialect::OpenaiResponses).get();
        let rendered: Option<Rendered<'a>> = serde_json::from_str(rendered).ok();
        Self::Search {
            execution: Some("client"),
            description: Some(tool.description()),
            parameters: rendered.map(|it| it.parameters),
        }
    }
}

/// The tools array of a conversation in which no tool waits.
pub(super) fn plain(request: &Request) -> Vec<Tool<'_>> {
    request.tools.iter().map(Tool::function).collect()
}

/// Whether a function can be called where it stands, or by way of a search. What a search has found
/// is still marked as deferred; marked so elsewhere, it would have to be searched for.
#[derive(Clone, Copy)]
enum Loading {
    AtOnce,
    Deferred,
}

fn written(tool: &Definition, loading: Loading) -> Cow<'_, RawValue> {
    let rendered = tool.render(Dialect::OpenaiResponses);
    match (loading, Fields::parse(rendered.get())) {
        (Loading::Deferred, Some(mut fields)) => {
            fields.set("defer_loading", &true);
            Cow::Owned(fields.to_raw())
        }
        _ => Cow::Borrowed(rendered),
    }
}

/// A conversation in which tools wait.
pub(super) struct Deferral<'a> {
    native: &'a Native,
    /// The names in the tools array.
    array: HashSet<&'a str>,
    namespaces: Namespaces<'a>,
}

impl<'a> Deferral<'a> {
    /// Reads where the tools of a conversation live; `None` where none waits.
    pub(super) fn of(request: &'a Request) -> Option<Self> {
        let native = request.native.as_ref()?;
        let array: HashSet<&str> = request.tools.iter().map(|tool| &**tool.name()).collect();
        let mut namespaces = Namespaces::besides(array.iter().copied());
        if native.hosted.is_some() {
            namespaces.declare(&native.deferred);
        }
        for message in &request.messages {
            match &**message {
                Message::Tool { results } => {
                    results.iter().flat_map(|it| &it.revealed).for_each(|it| namespaces.place(it));
                }
                Message::Tools(change) => {
                    change.added.iter().for_each(|it| namespaces.place(it));
                }
                _ => {}
            }
        }
        Some(Self { native, array, namespaces })
    }

    /// The tools array. Tools that the conversation was given stand in its messages instead,
    /// unless the server searches among them.
    pub(super) fn tools(&'a self, request: &'a Request) -> Vec<Tool<'a>> {
        let is_search = |tool: &Definition| self.is_search(tool.name());
        if self.native.hosted.is_none() {
            let tool = |it| if is_search(it) { Tool::search(it) } else { Tool::function(it) };
            return request.tools.iter().map(tool).collect();
        }
        let waiting = self.shown(&self.native.deferred, Loading::Deferred);
        let search = (!waiting.is_empty()).then_some(Tool::Search {
            execution: None,
            description: None,
            parameters: None,
        });
        let others = request.tools.iter().filter(|it| !is_search(it)).map(Tool::function);
        search.into_iter().chain(others).chain(waiting).collect()
    }

    /// Whether it is the search that is ours.
    pub(super) fn is_search(&self, name: &str) -> bool {
        self.native.search.as_deref() == Some(name)
    }

    /// What a search has found.
    pub(super) fn found(&'a self, tools: &'a [Revealed]) -> Vec<Tool<'a>> {
        self.shown(tools.iter().map(|it| &it.tool), Loading::Deferred)
    }

    /// What is given without a search.
    pub(super) fn added(&'a self, tools: impl IntoIterator<Item = &'a Revealed>) -> Vec<Tool<'a>> {
        self.shown(tools.into_iter().map(|it| &it.tool), Loading::AtOnce)
    }

    fn shown(
        &'a self,
        tools: impl IntoIterator<Item = &'a Definition>,
        loading: Loading,
    ) -> Vec<Tool<'a>> {
        let sorted = self.namespaces.sort(tools);
        let namespace = |(namespace, tools): (_, Vec<&'a Definition>)| {
            let (name, description) = self.namespaces.words(namespace);
            let tools = tools.into_iter().map(|tool| written(tool, loading)).collect();
            Tool::Namespace { name, description, tools }
        };
        sorted.into_iter().map(namespace).collect()
    }

    /// The namespace that a call must name. The API refuses a call without one to a tool that the
    /// conversation has in a namespace, wherever it stands; the one it named itself is right
    /// unless the tool has since been put elsewhere, as in a conversation that was cut short.
    pub(super) fn namespace<'b>(&'b self, tool: &str, kept: Option<&'b str>) -> Option<&'b str> {
        match (kept, self.namespaces.of(tool)) {
            (Some(kept), Some(place)) if kept == place => Some(kept),
            _ if self.array.contains(tool) => None,
            (kept, place) => place.or(kept),
        }
    }
}

#[cfg(test)]
mod tests;
