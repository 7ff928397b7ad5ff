//! Vectors of an embedder of the driver's own: which documents it has yet to see, when a search
//! asks it about a query, and what becomes of a search without it.

use std::sync::Arc;

use serde_json::Value;
use toolcrib_search::{Ranking, Vectors};

use crate::find::Ask;
use crate::meta::Verb;
use crate::scope::Scope;
use crate::segment::{Item, Segment};
use crate::text::one_line;
use crate::{Catalog, Group, GroupId, Need, Session, View};

/// The most characters of a text that is embedded.
const MOST_TEXT: usize = 1_000;

/// The most of them that a description takes, so that the names of parameters have a place too.
const MOST_DESCRIPTION: usize = 700;

/// Who says how near a query and a tool are in meaning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Embedder {
    /// The table in this library, which needs nobody.
    #[default]
    Static,
    /// Nobody: tools are ranked by their words alone.
    None,
    /// The driver, as soon as it has supplied the vectors of every tool (see
    /// [`Catalog::unembedded`]) and wherever it has one for the query (see [`Need::Vector`]).
    /// Elsewhere the table.
    Supplied,
}

/// How near a query and a tool are in meaning, for one search.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Meaning<'a> {
    /// The table in this library says.
    #[default]
    Static,
    /// It does not matter.
    None,
    /// By the query's vector, if every tool was supplied with one of the same embedder; otherwise
    /// the table says.
    Vector(&'a [f32]),
}

impl Ask<'_> {
    /// The same, its words ranked with this.
    pub(crate) fn with_meaning(self, meaning: Meaning<'_>) -> Self {
        match (self, meaning) {
            (ask, Meaning::Static) => ask,
            (ask, Meaning::None) => ask.ranked_by(Ranking::Lexical),
            (Self::Words { text, query }, Meaning::Vector(vector)) => {
                Self::Words { text, query: query.with_vector(vector) }
            }
            (ask, Meaning::Vector(_)) => ask,
        }
    }
}

/// What an embedder should be asked about a query; nothing if the query is not one of words.
pub fn text_to_embed(query: &str) -> Option<Arc<str>> {
    match Ask::parse(query) {
        Ok(Ask::Words { text, .. }) => Some(without_marks(text)),
        _ => None,
    }
}

/// The query without the marks of required words.
fn without_marks(text: &str) -> Arc<str> {
    let words = text.split_whitespace().map(|word| match word.strip_prefix('+') {
        Some(required) if !required.is_empty() => required,
        _ => word,
    });
    one_line(&words.collect::<Vec<_>>().join(" "), MOST_TEXT).into()
}

/// The tools of one group that have no vectors yet.
///
/// ```
/// use toolcrib_core::{Registry, Schema, ToolName, ToolSpec};
///
/// let registry = Registry::default();
/// let spec = ToolSpec::new(ToolName::host("sendMail"), Schema::empty());
/// registry.register(spec.with_description("Sends a letter."))?;
///
/// let [waiting] = &registry.catalog().unembedded()[..] else { panic!() };
/// assert_eq!(waiting.texts(), ["Host tools: send Mail. Sends a letter."]);
/// assert!(waiting.supply(2, [[0.6, 0.8]]));
/// assert!(registry.catalog().unembedded().is_empty());
/// # Ok::<_, toolcrib_core::RegisterError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Unembedded {
    group: GroupId,
    texts: Vec<String>,
    documents: Arc<toolcrib_search::Segment>,
}

impl Unembedded {
    fn of(segment: &Segment) -> Option<Self> {
        if segment.len() == 0 || segment.index.supplied().is_some() {
            return None;
        }
        let texts = segment.items().map(|item| text_of(item, &segment.group)).collect();
        Some(Self { group: segment.id().clone(), texts, documents: segment.index.clone() })
    }

    /// The group.
    pub fn group(&self) -> &GroupId {
        &self.group
    }

    /// What to embed, a text for each tool.
    pub fn texts(&self) -> &[String] {
        &self.texts
    }

    /// Takes the vectors, one for each text in its order, all of this many dimensions. Searches
    /// use them from then on. False if they are not as many as the texts, or somebody was faster;
    /// if the group has changed meanwhile, they are of no use and do no harm.
    pub fn supply<R: AsRef<[f32]>>(
        &self,
        dimensions: usize,
        vectors: impl IntoIterator<Item = R>,
    ) -> bool {
        self.documents.supply(Vectors::new(dimensions, vectors))
    }
}

impl Catalog {
    /// The groups whose tools have no vectors yet, in the order of their ids.
    pub fn unembedded(&self) -> Vec<Unembedded> {
        self.segments.iter().filter_map(|segment| Unembedded::of(segment)).collect()
    }
}

impl Session {
    /// The groups that this conversation has loaded and whose tools have no vectors yet.
    pub fn unembedded(&self) -> Vec<Unembedded> {
        self.learned.values().filter_map(|segment| Unembedded::of(segment)).collect()
    }
}

impl View {
    /// The dimensions of the vectors that were supplied, if they were for every tool.
    pub fn dimensions(&self) -> Option<usize> {
        let nothing = Default::default();
        Scope::new(self, &nothing, true).dimensions()
    }
}

impl Scope<'_> {
    fn dimensions(self) -> Option<usize> {
        let filled = self.segments().filter(|(segment, _)| segment.len() > 0);
        let mut supplied =
            filled.map(|(segment, _)| segment.index.supplied().map(Vectors::dimensions));
        let first = supplied.next()??;
        supplied.all(|dimensions| dimensions == Some(first)).then_some(first)
    }
}

impl Verb<'_> {
    /// The same question with what the embedder in use has to say about it, or what must be
    /// fetched for that first.
    pub(crate) fn with_meaning<'q>(&mut self, ask: Ask<'q>) -> Result<Ask<'q>, Need> {
        let Ask::Words { text, .. } = &ask else { return Ok(ask) };
        match self.engine.settings.embedder {
            Embedder::Static => return Ok(ask),
            Embedder::None => return Ok(ask.with_meaning(Meaning::None)),
            Embedder::Supplied => {}
        }
        let Some(dimensions) = self.session.scope(self.view).dimensions() else { return Ok(ask) };
        let reason = match &self.call.vector {
            None => return Err(Need::Vector(without_marks(text))),
            Some(Ok(vector)) if vector.len() == dimensions => {
                return Ok(ask.with_meaning(Meaning::Vector(vector)));
            }
            Some(Ok(vector)) => {
                format!("the query's has {} dimensions, the tools' {dimensions}", vector.len())
            }
            Some(Err(reason)) => one_line(reason, 300),
        };
        self.effects.notes.push(format!("ranked without the embedder's vectors: {reason}"));
        Ok(ask)
    }
}

/// What an embedder reads of a tool.
fn text_of(item: Item<'_>, group: &Group) -> String {
    let name = item.name();
    let place = name.namespace().unwrap_or(group.display_name());
    let mut text = format!("{place}: {}.", in_words(name.tool()));
    if let Item::Tool(tool) = item {
        let description = one_line(tool.spec().description(), MOST_DESCRIPTION);
        if !description.is_empty() {
            text.push(' ');
            text.push_str(&description);
        }
        let schema = tool.spec().input_schema().to_value();
        let parameters = schema.get("properties").and_then(Value::as_object);
        let parameters: Vec<String> =
            parameters.into_iter().flatten().map(|(name, _)| in_words(name)).collect();
        if !parameters.is_empty() {
            text.push_str(&format!(" Parameters: {}.", parameters.join(", ")));
        }
    }
    one_line(&text, MOST_TEXT)
}

/// `create_issue` and `createIssue` as words.
fn in_words(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 4);
    let mut before = ' ';
    for c in name.chars() {
        let c = if matches!(c, '_' | '-' | '.' | '/' | ':') { ' ' } else { c };
        if c.is_uppercase() && (before.is_lowercase() || before.is_numeric()) {
            words.push(' ');
        }
        words.push(c);
        before = c;
    }
    words.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Naming, Tool, ToolName, ToolSpec};

    #[test]
    fn names_are_read_as_words() {
        for (name, words) in [
            ("create_issue", "create issue"),
            ("createIssue", "create Issue"),
            ("getURL2Text", "get URL2 Text"),
            ("a.b/c--d", "a b c d"),
            ("读取文件", "读取文件"),
        ] {
            assert_eq!(in_words(name), words);
        }
    }

    #[test]
    fn a_text_is_one_bounded_line_with_the_names_of_parameters() {
        let schema = serde_json::json!({"type": "object", "properties": {
            "issueId": {"type": "integer"}, "note_text": {"type": "string"}}});
        let spec = ToolSpec::new(ToolName::mcp("git hub", "addNote"), schema)
            .with_description("Adds a note.\n\n".to_owned() + &"More. ".repeat(1_000));
        let group = Group::new("mcp:git hub");
        let tool = Arc::new(Tool::new(spec, group.id().clone(), Naming::default()));
        let text = text_of(Item::Tool(&tool), &group);
        assert!(text.starts_with("git hub: add Note. Adds a note. More."), "{text}");
        assert!(text.ends_with("… Parameters: issue Id, note text."), "{text}");
        assert!(text.chars().count() <= MOST_TEXT && !text.contains('\n'));
    }

    #[test]
    fn only_words_are_embedded_and_without_their_marks() {
        assert_eq!(text_to_embed(" send +message  now + ").as_deref(), Some("send message now +"));
        assert_eq!(text_to_embed("select:a,b"), None);
        assert_eq!(text_to_embed("/a+/"), None);
        assert_eq!(text_to_embed("  "), None);
        let long = text_to_embed(&"word ".repeat(500)).unwrap();
        assert!(long.chars().count() <= MOST_TEXT);
    }
}
