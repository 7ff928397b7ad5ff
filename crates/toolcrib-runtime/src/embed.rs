//! Embedders: things that turn texts into vectors, and where vectors are kept.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;

/// Turns texts into vectors: a model behind an address, or one in the same process.
///
/// ```
/// use futures::future::BoxFuture;
/// use toolcrib_runtime::{Embed, EmbedError, Purpose};
///
/// struct Letters;
///
/// impl Embed for Letters {
///     fn id(&self) -> &str {
///         "letters"
///     }
///
///     fn embed(
///         &self,
///         _: Purpose,
///         texts: Vec<String>,
///     ) -> BoxFuture<'_, Result<Vec<Vec<f32>>, EmbedError>> {
///         let vector = |text: &String| {
///             ('a'..='z').map(|letter| text.matches(letter).count() as f32).collect()
///         };
///         let vectors = texts.iter().map(vector).collect();
///         Box::pin(async { Ok(vectors) })
///     }
/// }
/// ```
pub trait Embed: Send + Sync + 'static {
    /// Stands for all that its vectors depend on: what is kept under one id is never compared
    /// with what another made.
    fn id(&self) -> &str;

    /// A vector for each text, in their order. There are never more than 64 texts, and none is
    /// longer than 1,000 characters.
    fn embed(
        &self,
        purpose: Purpose,
        texts: Vec<String>,
    ) -> BoxFuture<'_, Result<Vec<Vec<f32>>, EmbedError>>;
}

/// What a text is: some models want to be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Something that is to be found.
    Document,
    /// What is looked for.
    Query,
}

/// Why there are no vectors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum EmbedError {
    /// There is nobody to ask.
    #[error("it can't be reached: {0}")]
    Unreachable(String),
    /// It says no, and perhaps why.
    #[error("it refused: {0}")]
    Refused(String),
    /// It answered with something else than was asked for.
    #[error("its answer makes no sense: {0}")]
    Invalid(String),
    /// It took too long.
    #[error("it did not answer within {0:?}")]
    TimedOut(Duration),
    /// It failed a moment ago, and is not asked again yet.
    #[error("it is not asked again yet, since {0}")]
    Resting(Box<EmbedError>),
    /// It panicked.
    #[error("it broke")]
    Broken,
}

/// What a vector is kept under: a hash of the text it was made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TextKey([u8; 32]);

impl TextKey {
    /// The key of a text.
    pub fn of(text: &str) -> Self {
        Self(*blake3::hash(text.as_bytes()).as_bytes())
    }

    /// The hash itself.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for TextKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, ..] = self.0;
        write!(f, "TextKey({a:02x}{b:02x}{c:02x}{d:02x}…)")
    }
}

/// Keeps the vectors of documents, by the id of the embedder that made them.
///
/// A store that fails says so in the log and answers as if it had nothing: a vector can always be
/// made again. What was put need not be there at once.
pub trait VectorStore: Send + Sync + 'static {
    /// What is kept under each key. May read from a disk.
    fn vectors(&self, embedder: &str, keys: &[TextKey]) -> Vec<Option<Vec<f32>>>;

    /// Keeps vectors, in place of what was there. Doesn't wait.
    fn put_vectors(&self, embedder: &str, vectors: Vec<(TextKey, Vec<f32>)>);

    /// Drops all that an embedder made. Doesn't wait.
    fn forget_vectors(&self, embedder: &str);
}

/// Keeps nothing.
impl VectorStore for () {
    fn vectors(&self, _: &str, keys: &[TextKey]) -> Vec<Option<Vec<f32>>> {
        vec![None; keys.len()]
    }

    fn put_vectors(&self, _: &str, _: Vec<(TextKey, Vec<f32>)>) {}

    fn forget_vectors(&self, _: &str) {}
}

impl<T: VectorStore + ?Sized> VectorStore for Arc<T> {
    fn vectors(&self, embedder: &str, keys: &[TextKey]) -> Vec<Option<Vec<f32>>> {
        (**self).vectors(embedder, keys)
    }

    fn put_vectors(&self, embedder: &str, vectors: Vec<(TextKey, Vec<f32>)>) {
        (**self).put_vectors(embedder, vectors);
    }

    fn forget_vectors(&self, embedder: &str) {
        (**self).forget_vectors(embedder);
    }
}
