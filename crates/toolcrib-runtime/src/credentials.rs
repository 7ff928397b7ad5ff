//! Where logins are kept between runs.

use std::any::Any;
use std::fmt;

use crate::journal::StorageError;

/// Keeps what logins brought, for several programs at once.
///
/// What is kept is text that only its owner reads. A store shows it to nobody else: a file is
/// readable by its owner alone.
pub trait CredentialStore: Send + Sync + 'static {
    /// What is kept under a key.
    fn load(&self, key: &str) -> Result<Option<Credential>, StorageError>;

    /// Keeps it, whole or not at all. When this returns, a kill loses nothing.
    fn save(&self, key: &str, credential: &Credential) -> Result<(), StorageError>;

    /// Forgets it. Nothing happens if there is nothing.
    fn remove(&self, key: &str) -> Result<(), StorageError>;

    /// Keeps others, also in other programs, from changing what is kept under a key by use of the
    /// network, until the answer is dropped. `None` if somebody else does so now. Nobody is kept
    /// from loading and saving.
    fn try_lock(&self, key: &str) -> Result<Option<CredentialLock>, StorageError>;
}

/// What must not be shown: a token, or a text that holds one.
#[derive(Clone, PartialEq, Eq)]
pub struct Credential(String);

impl Credential {
    /// Takes it over.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// The text itself, for what must have it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Held while somebody renews a login; see [`CredentialStore::try_lock`].
pub struct CredentialLock(
    #[expect(dead_code, reason = "held until it is dropped")] Box<dyn Any + Send + Sync>,
);

impl CredentialLock {
    /// Ends when `held` is dropped.
    pub fn new(held: impl Any + Send + Sync) -> Self {
        Self(Box::new(held))
    }
}

impl fmt::Debug for CredentialLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("CredentialLock")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_not_shown() {
        assert_eq!(format!("{:?}", Some(Credential::new("s3cr3t"))), "Some((hidden))");
    }
}
