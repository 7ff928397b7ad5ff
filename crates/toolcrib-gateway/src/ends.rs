//! Work that nobody waits for.

use tokio::task::AbortHandle;

/// A task that ends with this.
pub(crate) struct Ends(pub(crate) AbortHandle);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.abort();
    }
}
