//! A session as it is kept.

use std::collections::BTreeMap;
use std::sync::Arc;

use indexmap::IndexMap;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{ResumeError, known_groups};
use crate::{
    Definition, Fingerprint, GroupId, Loaded, Preset, Session, Strategy, ToolChange, ToolName,
    ToolSpec,
};

/// The version of snapshots written now.
pub(super) const VERSION: u32 = 2;

/// A session as it is kept. Serialises to JSON; kept by us or by the host.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Snapshot {
    pub(super) version: u32,
    pub(super) turn: u64,
    pub(super) strategy: Option<Strategy>,
    pub(super) preset: Option<Preset>,
    pub(super) deferred: bool,
    pub(super) automatic: bool,
    pub(super) system_section: Option<Arc<str>>,
    pub(super) base_tools: Vec<Box<RawValue>>,
    /// `null` for all of a group, a list for some of it; what is not here is not loaded.
    pub(super) expanded_groups: IndexMap<GroupId, Option<Vec<Arc<str>>>>,
    pub(super) loaded_tools: Vec<SavedTool>,
    /// From version 2 on, as the three after it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) given_tools: Vec<Box<RawValue>>,
    /// By exposed name: what they are, the catalog says.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(super) waiting_tools: Vec<Arc<str>>,
    #[serde(default, skip_serializing_if = "ToolChange::is_empty")]
    pub(super) tool_change: ToolChange,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(super) hosted_search: bool,
    pub(super) learned_groups: IndexMap<GroupId, Vec<ToolSpec>>,
    pub(super) preload: Vec<String>,
    pub(super) announcements: Vec<String>,
    pub(super) known_groups: BTreeMap<GroupId, Fingerprint>,
    pub(super) with_mcp: bool,
    pub(super) may_load: bool,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct SavedTool {
    pub(super) name: ToolName,
    pub(super) group: GroupId,
    pub(super) within: Vec<GroupId>,
    pub(super) fingerprint: Fingerprint,
    pub(super) definition: Box<RawValue>,
    pub(super) last_used: u64,
}

/// What a session is brought back from.
#[derive(Debug, Clone)]
pub enum Saved {
    /// Our own snapshot.
    Snapshot(Box<Snapshot>),
    /// Which groups were loaded: `None` for all of a group, a list for some of it.
    ExpandedGroups(IndexMap<GroupId, Option<Vec<String>>>),
}

impl Session {
    /// The session as it is now, to be kept.
    pub fn snapshot(&self) -> Snapshot {
        let prefix = self.prefix.as_deref();
        let raw = |definition: &Definition| definition.neutral().to_owned();
        Snapshot {
            version: VERSION,
            turn: self.turn,
            strategy: self.strategy(),
            preset: self.latched.map(|latched| latched.preset),
            deferred: self.latched.is_some_and(|latched| latched.deferred),
            automatic: self.latched.is_some_and(|latched| latched.automatic),
            system_section: prefix.map(|prefix| prefix.section.clone()),
            base_tools: prefix
                .map_or_else(Vec::new, |prefix| prefix.tools.iter().map(raw).collect()),
            expanded_groups: self
                .groups
                .iter()
                .filter_map(|(id, loaded)| match loaded {
                    Loaded::Nothing => None,
                    Loaded::Some(names) => Some((id.clone(), Some(names.clone()))),
                    Loaded::All => Some((id.clone(), None)),
                })
                .collect(),
            loaded_tools: self
                .tools
                .values()
                .map(|tool| SavedTool {
                    name: tool.name.clone(),
                    group: tool.group.clone(),
                    within: tool.within.clone(),
                    fingerprint: tool.fingerprint,
                    definition: raw(&tool.definition),
                    last_used: tool.last_used,
                })
                .collect(),
            given_tools: self.given.values().map(raw).collect(),
            waiting_tools: self.waiting.keys().cloned().collect(),
            tool_change: self.change.clone(),
            hosted_search: self.latched.is_some_and(|latched| latched.hosted),
            learned_groups: self
                .learned
                .iter()
                .map(|(id, segment)| {
                    let specs = segment.tools.iter().map(|tool| tool.spec().clone());
                    (id.clone(), specs.collect())
                })
                .collect(),
            preload: self.preload.clone(),
            announcements: self.announcements.clone(),
            known_groups: self
                .adopted
                .as_ref()
                .map_or_else(BTreeMap::new, |view| known_groups(self.scope(view))),
            with_mcp: self.with_mcp,
            may_load: self.may_load,
        }
    }
}

impl Snapshot {
    /// The strategy in use when it was taken, if the first request had settled it.
    pub fn strategy(&self) -> Option<Strategy> {
        self.strategy
    }

    /// The same session without the provider's own form of deferral, for a driver that can't
    /// render it: it goes on with dispatch, and what the model sees is settled anew. See
    /// [`Session::without_native`].
    pub fn without_native(mut self) -> Self {
        if self.strategy == Some(Strategy::Native) {
            self.strategy = Some(Strategy::Dispatch);
            self.hosted_search = false;
            self.waiting_tools.clear();
            if self.deferred {
                self.system_section = None;
                self.base_tools.clear();
            }
        }
        self
    }
}

impl Saved {
    /// Reads either kind: our own snapshot, or expanded groups as `{"group": null | ["tool"]}`,
    /// alone or under `expanded_groups`.
    pub fn from_json(text: &str) -> Result<Self, ResumeError> {
        #[derive(Deserialize)]
        struct Probe {
            version: Option<u32>,
            /// Outside: whether the key is there. Inside: whether it holds anything.
            #[serde(default, deserialize_with = "present")]
            expanded_groups: Option<Option<IndexMap<GroupId, Option<Vec<String>>>>>,
        }
        fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(
            it: D,
        ) -> Result<Option<T>, D::Error> {
            T::deserialize(it).map(Some)
        }
        let format = |error: serde_json::Error| ResumeError::Format(error.to_string());
        let probe = serde_json::from_str::<Probe>(text);
        match probe {
            Ok(Probe { version: Some(found), .. }) if found > VERSION => {
                Err(ResumeError::Version { found, supported: VERSION })
            }
            Ok(Probe { version: Some(_), .. }) => {
                serde_json::from_str(text).map(Box::new).map(Self::Snapshot).map_err(format)
            }
            Ok(Probe { expanded_groups: Some(groups), .. }) => {
                Ok(Self::ExpandedGroups(groups.unwrap_or_default()))
            }
            _ => serde_json::from_str(text).map(Self::ExpandedGroups).map_err(format),
        }
    }
}
