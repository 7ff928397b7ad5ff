//! What must hold for the requests of every story.

use serde_json::{Value, json};
use toolcrib_agent::{Reply, Said};

use crate::answer::Saying;
use crate::api::{Api, Token};
use crate::server::Exchange;
use crate::way::Way;

pub(crate) fn parsed(exchange: &Exchange) -> Value {
    serde_json::from_str(&exchange.body).unwrap()
}

pub(crate) fn requests_go_where_they_should(exchanges: &[Exchange]) {
    for exchange in exchanges {
        let headers = exchange.api.headers(&parsed(exchange)).into_iter();
        let expected: Vec<(String, String)> =
            headers.map(|(name, value)| (name.to_owned(), value)).collect();
        assert_eq!((&*exchange.path, &exchange.headers), (exchange.api.path(), &expected));
    }
}

pub(crate) fn answers_are_read_as_they_were_meant(exchanges: &[Exchange], replies: &[Reply]) {
    assert_eq!(exchanges.len(), replies.len());
    for (exchange, reply) in exchanges.iter().zip(replies) {
        let api = exchange.api;
        let mut meant = Vec::new();
        for said in &exchange.answer.said {
            match said {
                Saying::Thinking(_)
                | Saying::Found { .. }
                | Saying::Refusal(_)
                | Saying::Cut
                | Saying::Costly => {}
                Saying::Text(text) => meant.push(json!({"type": "text", "text": text})),
                Saying::Call { number, name, arguments } => meant.push(json!({"type": "call",
                    "id": api.call_id(*number), "name": name, "arguments": arguments})),
            }
        }
        let read = reply.content.iter().filter(|said| !matches!(said, Said::Native { .. }));
        assert_eq!(json!(read.collect::<Vec<&Said>>()), json!(meant), "{}", exchange.step);
        assert_eq!(reply.usage, api.told(exchange.answer.usage()), "{}", exchange.step);
    }
}

pub(crate) fn every_call_has_its_result(exchanges: &[Exchange]) {
    for exchange in exchanges {
        let api = exchange.api;
        let messages = api.messages(&parsed(exchange));
        let tokens = messages.iter().flat_map(|message| api.tokens(message));
        let mut open: Vec<String> = Vec::new();
        let mut seen: Vec<String> = Vec::new();
        let mut answered = 0;
        for token in tokens {
            match token {
                Token::Call(id) => {
                    assert_eq!(answered, 0, "a call among the results of others");
                    assert!(api == Api::Ollama || !seen.contains(&id), "{id} twice");
                    seen.push(id.clone());
                    open.push(id);
                }
                Token::Result(id) => {
                    assert_eq!(open.get(answered), Some(&id), "{}", exchange.step);
                    answered += 1;
                    if answered == open.len() {
                        open.clear();
                        answered = 0;
                    }
                }
                Token::Thinking => assert_eq!(answered, 0),
                Token::Other => assert!(open.is_empty(), "{open:?} has no result"),
            }
        }
        assert!(open.is_empty(), "{open:?} has no result");
    }
}

/// A request and the next of the same conversation.
pub(crate) type Pair<'a> = (&'a Exchange, &'a Exchange);

/// What the request before has, the next has too, in the same place.
pub(crate) fn goes_on((before, after): Pair<'_>, way: Way) {
    match way {
        Way::Dispatch => nothing_before_the_end_changes(before, after),
        Way::Inject => tools_are_only_appended(before, after),
        Way::Native | Way::NativeWithoutChanges => only_what_waits_grows(before, after),
    }
    grows_at_its_end((before, after));
}

pub(crate) fn grows_at_its_end((before, after): Pair<'_>) {
    let messages = |exchange: &Exchange| exchange.api.messages(&parsed(exchange));
    let (old, new) = (messages(before), messages(after));
    assert!(new.len() > old.len() && new.starts_with(&old), "{}", after.step);
}

fn nothing_before_the_end_changes(before: &Exchange, after: &Exchange) {
    let head = |exchange: &Exchange| {
        let conversation = exchange.api.conversation();
        let (head, _) = exchange.body.split_once(&format!("\"{conversation}\":[")).unwrap();
        // Where the conversation stands in the middle, the tools come after it.
        (head.to_owned(), parsed(exchange)["tools"].to_string())
    };
    assert_eq!(head(before), head(after), "{}", after.step);
}

fn tools_are_only_appended(before: &Exchange, after: &Exchange) {
    let api = after.api;
    let (mut old, new) = (api.tools(&parsed(before)), api.tools(&parsed(after)));
    // The host has taken one out; it comes back behind the others once it is called.
    if after.step == "call after unloading" {
        let names = api.tool_names(&parsed(before));
        let place = names.iter().position(|name| name == "mcp__github__create_issue").unwrap();
        old.remove(place);
        assert_eq!(new, old);
    }
    assert!(new.starts_with(&old), "{}", after.step);
    assert_eq!(api.system(&parsed(before)), api.system(&parsed(after)), "{}", after.step);
}

/// Tools that wait are no part of the prompt until something refers to them.
fn only_what_waits_grows(before: &Exchange, after: &Exchange) {
    let api = after.api;
    let tools = |exchange: &Exchange| {
        let waits = |tool: &Value| tool["defer_loading"] == true;
        api.tools(&parsed(exchange)).into_iter().partition::<Vec<Value>, _>(waits)
    };
    let ((old, plain), (new, still)) = (tools(before), tools(after));
    assert_eq!(plain, still, "{}", after.step);
    assert!(new.starts_with(&old), "{}", after.step);
    assert!(api == Api::Anthropic || new.is_empty(), "{}", after.step);
    assert_eq!(api.system(&parsed(before)), api.system(&parsed(after)), "{}", after.step);
}
