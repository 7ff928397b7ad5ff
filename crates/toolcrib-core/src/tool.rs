//! A tool as the catalog holds it: its spec, the name it is exposed under, its fingerprint.

use std::sync::Arc;

use crate::{Definition, Fingerprint, GroupId, Naming, ToolName, ToolSpec};

/// A registered tool.
#[derive(Clone, Debug)]
pub struct Tool {
    spec: ToolSpec,
    group: GroupId,
    definition: Definition,
    fingerprint: Fingerprint,
}

impl Tool {
    pub(crate) fn new(spec: ToolSpec, group: GroupId, naming: Naming) -> Self {
        let exposed = spec.name().exposed(naming).into();
        let definition =
            Definition::new(exposed, spec.shared_description(), spec.input_schema().clone());
        let annotations = serde_json::to_vec(spec.annotations()).unwrap_or_default();
        let flags = format!("{:?} {}", spec.deferral(), spec.is_sequential());
        let fingerprint = Fingerprint::of([
            definition.name().as_bytes(),
            definition.description().as_bytes(),
            spec.input_schema().get().as_bytes(),
            &annotations,
            spec.search_hint().unwrap_or_default().as_bytes(),
            flags.as_bytes(),
            spec.extra().unwrap_or_default().as_bytes(),
        ]);
        Self { spec, group, definition, fingerprint }
    }

    /// The tool as it was registered.
    pub fn spec(&self) -> &ToolSpec {
        &self.spec
    }

    /// The tool's identity.
    pub fn name(&self) -> &ToolName {
        self.spec.name()
    }

    /// The name a model calls it by.
    pub fn exposed(&self) -> &Arc<str> {
        self.definition.name()
    }

    /// The toolset it was registered with, which is a group.
    pub fn group(&self) -> &GroupId {
        &self.group
    }

    /// What a model is shown.
    pub fn definition(&self) -> &Definition {
        &self.definition
    }

    /// Changes with anything about the tool that a model, a policy or a client could notice.
    pub fn fingerprint(&self) -> Fingerprint {
        self.fingerprint
    }

    /// Tokens of its definition in neutral form.
    pub fn tokens(&self) -> u64 {
        self.definition.tokens()
    }
}
