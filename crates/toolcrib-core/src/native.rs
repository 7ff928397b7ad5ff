//! Under strategy `native`: which tools a conversation was given, and which it is told of when.
//!
//! What was given stays given. A provider that finds the name of a tool in a history looks for
//! its definition in the request, so none of them is ever taken back or replaced: not when it is
//! unloaded, not when its server goes or changes it. A change is told in words.
//!
//! A search of the provider's is another matter: it gets every tool that the conversation may see
//! now, and no other, or it would find what nobody can call. What the model has used keeps the
//! form in which it knows it.

use std::sync::Arc;

use crate::scope::Scope;
use crate::session::{Latched, LoadedTool};
use crate::{Definition, Revealed, Session, Strategy, Tool, ToolChange, View};

impl Latched {
    /// Whether tools are given in the provider's own form.
    pub(crate) fn is_native(self) -> bool {
        self.deferred && self.strategy == Strategy::Native
    }
}

impl Session {
    pub(crate) fn is_native(&self) -> bool {
        self.latched.is_some_and(Latched::is_native)
    }

    /// Gives a tool that an answer shows; says with which definition the model knows it.
    pub(crate) fn reveal(&mut self, tool: &Tool) -> Definition {
        // The answer says it, so nothing else need.
        self.take_back_addition(tool.exposed());
        self.take_back_removal(tool.exposed());
        self.give(tool.definition())
    }

    /// Gives a tool on the host's behalf: the model is told at the next request.
    pub(crate) fn offer(&mut self, tool: &Tool) {
        let definition = self.give(tool.definition());
        if !self.take_back_removal(tool.exposed()) {
            self.change.added.push(Revealed { group: tool.group().clone(), tool: definition });
        }
    }

    /// Takes a tool away: the model is told at the next request, if it was told of the tool.
    pub(crate) fn withdraw(&mut self, exposed: &Arc<str>) {
        if !self.take_back_addition(exposed) {
            self.change.removed.push(exposed.clone());
        }
    }

    /// Gives what was loaded before the first request, which nothing else would show.
    pub(crate) fn offer_loaded(&mut self) {
        let revealed = |tool: &LoadedTool| Revealed {
            group: tool.group.clone(),
            tool: tool.definition.clone(),
        };
        let loaded: Vec<Revealed> = self
            .tools
            .iter()
            .filter(|(name, _)| !self.is_base(name))
            .map(|it| revealed(it.1))
            .collect();
        for Revealed { group, tool } in loaded {
            let tool = self.give(&tool);
            self.change.added.push(Revealed { group, tool });
        }
    }

    /// The tools that are declared besides those of the first request.
    pub(crate) fn declared(&mut self, view: &View) -> Vec<Definition> {
        if self.is_hosted() {
            self.list_waiting(view);
            return self.waiting.values().flatten().cloned().collect();
        }
        let given = self.given.iter().filter(|(name, _)| !self.is_base(name));
        given.map(|(_, tool)| tool.clone()).collect()
    }

    /// Brings the list for a search of the provider's in line with what can be seen now. It is in
    /// the order of names, with those that came later behind.
    fn list_waiting(&mut self, view: &View) {
        let scope = Scope::new(view, &self.learned, self.with_mcp);
        let prefix = self.prefix.as_deref();
        self.waiting.values_mut().for_each(|tool| *tool = None);
        let mut new: Vec<&Definition> = Vec::new();
        for tool in scope.tools().map(|tool| tool.definition()) {
            if prefix.is_some_and(|prefix| prefix.has(tool.name())) {
                continue;
            }
            let tool = self.given.get(tool.name()).unwrap_or(tool);
            match self.waiting.get_mut(tool.name()) {
                Some(place) => *place = Some(tool.clone()),
                None => new.push(tool),
            }
        }
        new.sort_by(|a, b| a.name().cmp(b.name()));
        self.waiting.extend(new.into_iter().map(|tool| (tool.name().clone(), Some(tool.clone()))));
    }

    /// What the model is told of what the host did. A tool that is not there, or hidden, is kept
    /// back until it is.
    pub(crate) fn take_change(&mut self, view: &View) -> ToolChange {
        let ToolChange { added, removed } = std::mem::take(&mut self.change);
        let scope = self.scope(view);
        let is_there = |added: &Revealed| {
            let loaded = self.tools.get(added.tool.name());
            loaded.is_some_and(|loaded| scope.identity(&loaded.name).is_some())
        };
        let (added, later) = added.into_iter().partition(is_there);
        self.change.added = later;
        ToolChange { added, removed }
    }

    /// The definition that the model knows the tool by, which is this one if it knows none.
    pub(crate) fn give(&mut self, definition: &Definition) -> Definition {
        let name = definition.name();
        let shown = self.waiting.get(name).and_then(Option::as_ref).unwrap_or(definition);
        self.given.entry(name.clone()).or_insert_with(|| shown.clone()).clone()
    }

    pub(crate) fn take_back_removal(&mut self, exposed: &str) -> bool {
        let before = self.change.removed.len();
        self.change.removed.retain(|name| **name != *exposed);
        self.change.removed.len() < before
    }

    fn take_back_addition(&mut self, exposed: &str) -> bool {
        let before = self.change.added.len();
        self.change.added.retain(|added| **added.tool.name() != *exposed);
        self.change.added.len() < before
    }
}
