//! Which tools are sent in full at any rate, and why.

use std::fmt;

use indexmap::IndexMap;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::globs::Globs;
use crate::{Deferral, GroupId, PatternError, Preset, ProviderClass, Settings, Tool, ToolSource};

/// The set that local models get unless the rules say otherwise: small models search poorly, so
/// what nearly every task needs is in front of them. Names of tools, whatever server they are of.
const CORE: [&str; 8] = [
    "read_file",
    "write_file",
    "edit_file",
    "list_directory",
    "search_files",
    "fetch",
    "get_current_time",
    "execute_command",
];

/// Which tools are sent in full at any rate.
///
/// A pattern is a glob or a tool's own name; it matches as those of
/// [`PolicyRules`](crate::PolicyRules) do. Sets give a list of patterns a name; a profile (a seat
/// or role) is a union of sets.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct EagerRules {
    /// For every model.
    pub always: Vec<String>,
    /// Sets for local models.
    pub local: Vec<String>,
    /// Sets for cloud models.
    pub cloud: Vec<String>,
    /// Sets for a seat or role.
    pub profiles: IndexMap<String, Vec<String>>,
    /// Patterns by the name of their set. `core` is there from the start.
    pub sets: IndexMap<String, Vec<String>>,
}

impl Default for EagerRules {
    fn default() -> Self {
        Self {
            always: Vec::new(),
            local: vec!["core".to_owned()],
            cloud: Vec::new(),
            profiles: IndexMap::new(),
            sets: IndexMap::new(),
        }
    }
}

/// Why a tool is sent in full.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "because")]
pub enum EagerReason {
    /// Its own spec says so.
    Flag,
    /// A rule for every model.
    Always {
        /// What matched.
        pattern: String,
    },
    /// A rule for this kind of model.
    Class {
        /// The kind.
        class: ProviderClass,
        /// The set the pattern is in.
        set: String,
        /// What matched.
        pattern: String,
    },
    /// A rule for the seat or role.
    Profile {
        /// The seat or role.
        profile: String,
        /// The set the pattern is in.
        set: String,
        /// What matched.
        pattern: String,
    },
    /// It was asked for in advance.
    Preloaded,
    /// The preset holds back other tools only.
    Preset {
        /// The preset.
        preset: Preset,
    },
}

impl fmt::Display for EagerReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => write!(f, "registered as eager"),
            Self::Always { pattern } => write!(f, "eager.always has `{pattern}`"),
            Self::Class { class, set, pattern } => {
                write!(f, "set `{set}` for {class} models has `{pattern}`")
            }
            Self::Profile { profile, set, pattern } => {
                write!(f, "set `{set}` of profile `{profile}` has `{pattern}`")
            }
            Self::Preloaded => write!(f, "preloaded"),
            Self::Preset { preset } => write!(f, "preset `{preset}` does not defer it"),
        }
    }
}

/// Why eager rules can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EagerError {
    /// A set is used that is not defined.
    #[error("eager set `{0}` is not defined")]
    UnknownSet(String),
    /// The profile in use is not defined.
    #[error("eager profile `{0}` is not defined")]
    UnknownProfile(String),
    /// A pattern can't be read.
    #[error(transparent)]
    Pattern(#[from] PatternError),
}

/// The rules that apply under the given settings, compiled.
#[derive(Clone, Debug)]
pub(crate) struct Eager {
    preset: Preset,
    /// Each pattern with what to say if it matches.
    rules: Vec<(Globs, EagerReason)>,
    /// All patterns at once: most tools match none.
    any: Globs,
}

impl Eager {
    pub(crate) fn new(settings: &Settings) -> Result<Self, EagerError> {
        let rules = &settings.eager;
        let mut compiled = Vec::new();
        let mut patterns = Vec::new();
        let mut add = |pattern: &String, reason: EagerReason| -> Result<(), EagerError> {
            compiled.push((Globs::new(&[pattern])?, reason));
            patterns.push(pattern.clone());
            Ok(())
        };
        for pattern in &rules.always {
            add(pattern, EagerReason::Always { pattern: pattern.clone() })?;
        }
        let class = settings.provider_class;
        let sets = match class {
            ProviderClass::Local => &rules.local,
            ProviderClass::Cloud => &rules.cloud,
        };
        for set in sets {
            for pattern in &rules.set(set)? {
                let (set, pattern) = (set.clone(), pattern.clone());
                add(&pattern.clone(), EagerReason::Class { class, set, pattern })?;
            }
        }
        if let Some(profile) = &settings.profile {
            let sets = rules.profiles.get(profile);
            let sets = sets.ok_or_else(|| EagerError::UnknownProfile(profile.clone()))?;
            for set in sets {
                for pattern in &rules.set(set)? {
                    let (profile, set) = (profile.clone(), set.clone());
                    let pattern = pattern.clone();
                    add(&pattern.clone(), EagerReason::Profile { profile, set, pattern })?;
                }
            }
        }
        let any = Globs::new(&patterns)?;
        Ok(Self { preset: settings.preset, rules: compiled, any })
    }

    /// Why the tool is sent in full, if it is; preloading aside.
    pub(crate) fn reason(&self, tool: &Tool) -> Option<EagerReason> {
        if tool.spec().deferral() == Deferral::Eager {
            return Some(EagerReason::Flag);
        }
        if self.any.matches_tool(tool.name(), tool.exposed()) {
            let matching = |(globs, _): &&(Globs, EagerReason)| {
                globs.matches_tool(tool.name(), tool.exposed())
            };
            return self.rules.iter().find(matching).map(|(_, reason)| reason.clone());
        }
        if tool.spec().deferral() == Deferral::Deferred || self.preset.defers(tool) {
            return None;
        }
        Some(EagerReason::Preset { preset: self.preset })
    }
}

impl EagerRules {
    fn set(&self, name: &str) -> Result<Vec<String>, EagerError> {
        match self.sets.get(name) {
            Some(patterns) => Ok(patterns.clone()),
            None if name == "core" => Ok(CORE.map(str::to_owned).to_vec()),
            None => Err(EagerError::UnknownSet(name.to_owned())),
        }
    }
}

impl Preset {
    fn defers(self, tool: &Tool) -> bool {
        match self {
            Self::Crib | Self::Regex | Self::Lazy => true,
            Self::Stubs | Self::Exact => matches!(tool.name().source(), ToolSource::Mcp { .. }),
            Self::Groups => ![GroupId::host(), GroupId::builtin()].contains(tool.group()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Naming, Schema, ToolName, ToolSpec};

    fn tool(name: ToolName) -> Tool {
        let group = name.server().map_or_else(GroupId::host, GroupId::server);
        Tool::new(ToolSpec::new(name, Schema::empty()), group, Naming::Model)
    }

    fn why(settings: &Settings, name: ToolName) -> Option<EagerReason> {
        Eager::new(settings).unwrap().reason(&tool(name))
    }

    #[test]
    fn local_models_keep_a_small_core_and_cloud_models_none() {
        let mut settings = Settings::default();
        let name = || ToolName::mcp("files", "read_file");
        assert_eq!(why(&settings, name()), None);
        settings.provider_class = ProviderClass::Local;
        let reason = why(&settings, name()).unwrap();
        assert_eq!(reason.to_string(), "set `core` for local models has `read_file`");
        assert_eq!(why(&settings, ToolName::mcp("files", "chmod")), None);
    }

    #[test]
    fn a_profile_is_a_union_of_sets() {
        let mut settings = Settings::default();
        let rules = &mut settings.eager;
        rules.sets.insert("memory".into(), vec!["engage".into(), "reflect".into()]);
        rules.sets.insert("desk".into(), vec!["operator/*".into()]);
        rules.profiles.insert("seat".into(), vec!["memory".into(), "desk".into()]);
        settings.profile = Some("seat".into());
        assert!(why(&settings, ToolName::mcp("kb", "reflect")).is_some());
        assert!(why(&settings, ToolName::mcp("operator", "anything")).is_some());
        assert_eq!(why(&settings, ToolName::mcp("kb", "bulk_import")), None);
    }

    #[test]
    fn each_preset_defers_what_it_documents() {
        let deferred = |preset, name| why(&Settings::preset(preset), name).is_none();
        let table = Preset::ALL.map(|preset| {
            (deferred(preset, ToolName::mcp("s", "t")), deferred(preset, ToolName::host("t")))
        });
        assert_eq!(
            table,
            [(true, true), (true, true), (true, false), (true, true), (true, false), (true, false)]
        );
    }

    #[test]
    fn a_tools_own_flag_beats_the_preset() {
        let settings = Settings::preset(Preset::Stubs);
        let spec = ToolSpec::new(ToolName::host("t"), Schema::empty());
        let eager = Eager::new(&settings).unwrap();
        let deferred = spec.clone().with_deferral(Deferral::Deferred);
        let deferred = Tool::new(deferred, GroupId::host(), Naming::Model);
        assert_eq!(eager.reason(&deferred), None);
        let flagged = spec.with_deferral(Deferral::Eager);
        let flagged = Tool::new(flagged, GroupId::host(), Naming::Model);
        assert_eq!(eager.reason(&flagged), Some(EagerReason::Flag));
    }

    #[test]
    fn what_is_not_defined_is_named() {
        let mut settings = Settings { profile: Some("x".into()), ..Settings::default() };
        let error = |settings: &Settings| Eager::new(settings).unwrap_err().to_string();
        assert_eq!(error(&settings), "eager profile `x` is not defined");
        settings.eager.cloud.push("y".into());
        assert_eq!(error(&settings), "eager set `y` is not defined");
    }
}
