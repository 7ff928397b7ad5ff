//! From names to positions, for looking one name up in hundreds of segments.

use std::hash::{DefaultHasher, Hash, Hasher};

/// A name with its hash, worked out once.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key<'t> {
    pub(crate) text: &'t str,
    hash: u64,
}

impl<'t> Key<'t> {
    pub(crate) fn new(text: &'t str) -> Self {
        // Its keys are fixed, so every map agrees on the hash.
        let mut hasher = DefaultHasher::new();
        text.hash(&mut hasher);
        Self { text, hash: hasher.finish() }
    }
}

/// Positions by the hash of a name. Names that share a hash are told apart by whoever has them.
#[derive(Debug)]
pub(crate) struct Positions(Box<[(u64, u32)]>);

impl Positions {
    pub(crate) fn new<'t>(names: impl Iterator<Item = (&'t str, u32)>) -> Self {
        let mut entries: Vec<(u64, u32)> =
            names.map(|(name, at)| (Key::new(name).hash, at)).collect();
        entries.sort_unstable();
        Self(entries.into())
    }

    /// Where the name may be.
    pub(crate) fn of(&self, key: Key<'_>) -> impl Iterator<Item = usize> {
        let start = self.0.partition_point(|(hash, _)| *hash < key.hash);
        let same = self.0[start..].iter().take_while(move |(hash, _)| *hash == key.hash);
        same.map(|(_, at)| *at as usize)
    }
}
