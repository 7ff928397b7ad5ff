//! Patterns over names: `*` any run of characters, `?` one, `[ab]` one of these, `{a,b}` either.

use globset::{GlobBuilder, GlobSet, GlobSetBuilder};

use crate::ToolName;

/// A pattern that can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{pattern}` is not a valid pattern: {reason}")]
pub struct PatternError {
    pattern: String,
    reason: String,
}

/// A compiled list of patterns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Globs(GlobSet);

impl Globs {
    pub(crate) fn new<S: AsRef<str>>(patterns: &[S]) -> Result<Self, PatternError> {
        let failed = |pattern: &str, error: globset::Error| PatternError {
            pattern: pattern.to_owned(),
            reason: error.kind().to_string(),
        };
        let mut set = GlobSetBuilder::new();
        for pattern in patterns.iter().map(AsRef::as_ref) {
            set.add(GlobBuilder::new(pattern).build().map_err(|error| failed(pattern, error))?);
        }
        set.build().map(Self).map_err(|error| failed("", error))
    }

    pub(crate) fn is_match(&self, text: &str) -> bool {
        self.0.is_match(text)
    }

    /// Whether any way of writing the tool's name matches: as exposed, `server/tool`,
    /// `server.tool`, or the tool's own name.
    pub(crate) fn matches_tool(&self, name: &ToolName, exposed: &str) -> bool {
        if self.0.is_empty() {
            return false;
        }
        let qualified = |separator: &str| {
            let namespace = name.namespace()?;
            Some(self.is_match(&format!("{namespace}{separator}{}", name.tool())))
        };
        self.is_match(exposed)
            || self.is_match(name.tool())
            || ["/", ".", "__"].iter().any(|separator| qualified(separator) == Some(true))
    }
}
