//! The prompt that a provider makes of a request's body: what a model reads, in its order.

use std::collections::BTreeMap;

use serde_json::Value;
use serde_json::value::RawValue;
use toolcrib_tokens::{Model, Section};
use toolcrib_wire::Fields;

use crate::endpoint::Api;

/// A request, as far as it matters to a cache.
pub(crate) struct Prompt {
    /// Everything in the body that is neither tools nor text.
    pub(crate) settings: String,
    pub(crate) blocks: Vec<Block>,
}

/// What changes as a whole. Its bytes are those of the body.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Block {
    pub(crate) text: String,
    /// Whether a `cache_control` stands at its end.
    pub(crate) mark: bool,
}

impl Block {
    fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), mark: false }
    }
}

impl Prompt {
    pub(crate) fn read(api: Api, model: &Model, body: &str) -> Self {
        let mut body = Fields::parse(body).expect("a body is an object");
        let sections = match api {
            Api::Anthropic => anthropic(&mut body),
            Api::OpenAiResponses => openai_responses(&mut body),
            Api::OpenAiChat | Api::Ollama => chat(&mut body),
        };
        let [tools, system, messages] = sections;
        let section = |section: &Section| match section {
            Section::Tools => tools.clone(),
            Section::System => system.clone(),
            Section::Messages => messages.clone(),
        };
        let blocks = model.order.iter().flat_map(section).collect();
        Self { settings: body.to_raw().get().to_owned(), blocks }
    }

    /// All of it.
    pub(crate) fn text(&self) -> String {
        self.blocks.iter().map(|block| block.text.as_str()).collect()
    }
}

type Sections = [Vec<Block>; 3];

/// A member that is a list; an empty one if it is missing.
fn take(body: &mut Fields<'_>, name: &str) -> Vec<Box<RawValue>> {
    let list = body.remove(name);
    list.map(|list| serde_json::from_str(list.get()).unwrap()).unwrap_or_default()
}

fn plain(items: Vec<Box<RawValue>>) -> Vec<Block> {
    items.iter().map(|item| Block::plain(item.get())).collect()
}

/// Tools and items stand in the prompt as they stand in the body, those of a search included.
fn openai_responses(body: &mut Fields<'_>) -> Sections {
    let system = body.remove("instructions").map(|text| Block::plain(text.get()));
    [plain(take(body, "tools")), system.into_iter().collect(), plain(take(body, "input"))]
}

/// The system prompt is the first message.
fn chat(body: &mut Fields<'_>) -> Sections {
    let tools = plain(take(body, "tools"));
    let is_system = |message: &RawValue| parsed(message)["role"] == "system";
    let (system, messages) =
        take(body, "messages").into_iter().partition(|message| is_system(message));
    [tools, plain(system), plain(messages)]
}

/// What the API tells a model about tools that wait, before all others, as soon as there is one.
pub(crate) const ABOUT_WAITING: &str = "Some tools are shown later.";

/// Definitions that wait are read where something refers to them, and nowhere else. The others are
/// one block: any change in them is a change of all that follows.
fn anthropic(body: &mut Fields<'_>) -> Sections {
    let mut waiting: BTreeMap<String, String> = BTreeMap::new();
    let mut tools = Block::plain("");
    for tool in take(body, "tools") {
        let mut fields = Fields::parse(tool.get()).expect("a tool is an object");
        let mark = fields.remove("cache_control").is_some();
        if fields.remove("defer_loading").is_some_and(|waits| waits.get() == "true") {
            assert!(!mark, "a tool that waits may not be marked");
            let name = fields.read("name").expect("a tool has a name");
            waiting.insert(name, fields.to_raw().get().to_owned());
        } else {
            tools.text.push_str(fields.to_raw().get());
            tools.mark |= mark;
        }
    }
    if !waiting.is_empty() {
        tools.text.insert_str(0, ABOUT_WAITING);
    }
    let system = take(body, "system");
    let system = system.iter().map(|block| marked("", block, &waiting)).collect();
    let messages = take(body, "messages").into_iter().flat_map(|message| {
        let fields = Fields::parse(message.get()).expect("a message is an object");
        let role: String = fields.read("role").expect("a message has a role");
        let blocks: Vec<Box<RawValue>> = fields.read("content").expect("content is a list");
        blocks.iter().map(|block| marked(&role, block, &waiting)).collect::<Vec<Block>>()
    });
    let messages = messages.collect();
    [if tools.text.is_empty() { Vec::new() } else { vec![tools] }, system, messages]
}

fn marked(role: &str, block: &RawValue, waiting: &BTreeMap<String, String>) -> Block {
    let mut fields = Fields::parse(block.get()).expect("a block is an object");
    let mark = fields.remove("cache_control").is_some();
    let mut text = format!("{role}{}", fields.to_raw().get());
    for name in references(&parsed(block)) {
        let definition = waiting.get(&name);
        text.push_str(definition.unwrap_or_else(|| panic!("`{name}` is not declared")));
    }
    Block { text, mark }
}

/// The tools that a block shows.
fn references(block: &Value) -> Vec<String> {
    let shown = match block["type"].as_str() {
        Some("tool_result") => &block["content"],
        Some("tool_search_tool_result") => &block["content"]["tool_references"],
        Some("tool_addition") => &block["tool"],
        _ => &Value::Null,
    };
    let shown = shown.as_array().map_or(std::slice::from_ref(shown), Vec::as_slice);
    let is_reference = |piece: &&Value| piece["type"] == "tool_reference";
    let name = |piece: &Value| {
        let name = piece.get("tool_name").or(piece.get("name"));
        name.and_then(Value::as_str).expect("a reference has a name").to_owned()
    };
    shown.iter().filter(is_reference).map(name).collect()
}

fn parsed(json: &RawValue) -> Value {
    serde_json::from_str(json.get()).unwrap_or_default()
}
