//! What the Messages API answers, event by event.

use std::collections::BTreeMap;
use std::mem;

use serde::Deserialize;
use serde_json::Value;
use serde_json::value::RawValue;

use super::response::{self, Tally, read};
use crate::message::Said;
use crate::provider::{Delta, ProviderError, StopReason};
use crate::providers::body::Size;
use crate::providers::http::Reader;

/// An answer as far as it has come.
#[derive(Default)]
pub(super) struct Answer {
    blocks: BTreeMap<u64, Block>,
    calls: usize,
    stop: Option<StopReason>,
    tally: Tally,
    size: Size,
    finished: bool,
}

/// A block as it began, with what it grew to.
struct Block {
    said: Said,
    /// The number of the call, if it is one.
    call: usize,
    /// The pieces of its input; they can't be read before all are there.
    input: String,
}

#[derive(Deserialize)]
struct Kind {
    r#type: String,
}

#[derive(Deserialize)]
struct MessageStart {
    message: Message,
}

#[derive(Deserialize)]
struct Message {
    #[serde(default)]
    usage: Tally,
}

#[derive(Deserialize)]
struct BlockStart {
    index: u64,
    content_block: Box<RawValue>,
}

#[derive(Deserialize)]
struct BlockDelta {
    index: u64,
    delta: Piece,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Piece {
    TextDelta {
        text: String,
    },
    ThinkingDelta {
        thinking: String,
    },
    SignatureDelta {
        signature: String,
    },
    InputJsonDelta {
        partial_json: String,
    },
    #[serde(other)]
    Unknown,
}

#[derive(Deserialize)]
struct MessageDelta {
    delta: Stop,
    #[serde(default)]
    usage: Tally,
}

#[derive(Deserialize)]
struct Stop {
    stop_reason: Option<String>,
    stop_details: Option<Value>,
}

impl Reader for Answer {
    fn piece(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.finished {
            return Ok(());
        }
        let kind: Kind = read(data)?;
        match kind.r#type.as_str() {
            "message_start" => {
                let start: MessageStart = read(data)?;
                self.tally.update(start.message.usage);
            }
            "content_block_start" => self.begin(read(data)?, out)?,
            "content_block_delta" => self.grow(read(data)?, out)?,
            "message_delta" => {
                let MessageDelta { delta, usage } = read(data)?;
                self.tally.update(usage);
                if let Some(reason) = delta.stop_reason {
                    self.stop = Some(response::stop(reason, delta.stop_details));
                }
            }
            "message_stop" => self.finish(out)?,
            "error" => {
                return Err(response::told(data).unwrap_or_else(|| {
                    ProviderError::Failed("the provider failed without a message".to_owned())
                }));
            }
            _ => {}
        }
        Ok(())
    }

    fn end(&mut self, _out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.finished { Ok(()) } else { Err(broken("the answer broke off before its end")) }
    }

    fn whole(&mut self, body: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        self.size.grow(body.len())?;
        let reply = response::reply(body)?;
        for said in &reply.content {
            self.open(said, out);
            if let Said::Call(call) = said {
                out.push(Delta::Arguments { index: self.calls - 1, text: call.arguments.clone() });
            }
        }
        self.finished = true;
        out.push(Delta::Finished(reply));
        Ok(())
    }
}

impl Answer {
    fn begin(&mut self, start: BlockStart, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        self.size.grow(start.content_block.get().len())?;
        let said = response::said(&start.content_block)?;
        let call = self.calls;
        self.open(&said, out);
        let block = Block { said, call, input: String::new() };
        match self.blocks.insert(start.index, block) {
            Some(_) => Err(broken("the answer has two blocks in one place")),
            None => Ok(()),
        }
    }

    /// Tells of a block that begins, with what it begins with.
    fn open(&mut self, said: &Said, out: &mut Vec<Delta>) {
        match said {
            Said::Text { text } if !text.is_empty() => out.push(Delta::Text(text.clone())),
            Said::Text { .. } => {}
            Said::Call(call) => {
                out.push(Delta::Call { index: self.calls, name: call.name.clone() });
                self.calls += 1;
            }
            Said::Native { json, .. } => {
                let thinking = json["thinking"].as_str().unwrap_or_default();
                if json["type"] == "thinking" && !thinking.is_empty() {
                    out.push(Delta::Thinking(thinking.to_owned()));
                }
            }
        }
    }

    fn grow(&mut self, grown: BlockDelta, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let (Piece::TextDelta { text: piece }
        | Piece::ThinkingDelta { thinking: piece }
        | Piece::SignatureDelta { signature: piece }
        | Piece::InputJsonDelta { partial_json: piece }) = &grown.delta
        else {
            return Ok(());
        };
        self.size.grow(piece.len())?;
        let Some(block) = self.blocks.get_mut(&grown.index) else {
            return Err(broken("the answer goes on with a block that never began"));
        };
        match (grown.delta, &mut block.said) {
            (Piece::TextDelta { text: piece }, Said::Text { text }) => {
                text.push_str(&piece);
                if !piece.is_empty() {
                    out.push(Delta::Text(piece));
                }
            }
            (Piece::InputJsonDelta { partial_json: text }, Said::Call(_)) => {
                block.input.push_str(&text);
                if !text.is_empty() {
                    out.push(Delta::Arguments { index: block.call, text });
                }
            }
            (Piece::InputJsonDelta { partial_json }, Said::Native { .. }) => {
                block.input.push_str(&partial_json);
            }
            (Piece::TextDelta { text }, Said::Native { json, .. }) => append(json, "text", &text),
            (Piece::ThinkingDelta { thinking }, Said::Native { json, .. }) => {
                append(json, "thinking", &thinking);
                if !thinking.is_empty() {
                    out.push(Delta::Thinking(thinking));
                }
            }
            (Piece::SignatureDelta { signature }, Said::Native { json, .. }) => {
                set(json, "signature", signature.into());
            }
            _ => return Err(broken("the answer goes on with a piece of another kind")),
        }
        Ok(())
    }

    fn finish(&mut self, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let stop = self.stop.take().ok_or_else(response::unexplained)?;
        let blocks = mem::take(&mut self.blocks).into_values();
        let content = blocks.filter_map(|block| block.finish(out)).collect();
        self.finished = true;
        out.push(Delta::Finished(response::assemble(content, stop, self.tally)));
        Ok(())
    }
}

impl Block {
    /// The whole block; none if the API's own input was cut off, since it wouldn't take that back.
    fn finish(self, out: &mut Vec<Delta>) -> Option<Said> {
        let Self { mut said, call: index, input } = self;
        let came = !input.trim().is_empty();
        match &mut said {
            Said::Call(call) if came => call.arguments = input,
            // Some servers send the arguments along with the beginning.
            Said::Call(call) if call.arguments != "{}" => {
                out.push(Delta::Arguments { index, text: call.arguments.clone() });
            }
            Said::Native { json, .. } if came => {
                set(json, "input", serde_json::from_str(&input).ok()?);
            }
            _ => {}
        }
        Some(said)
    }
}

fn append(json: &mut Value, member: &str, piece: &str) {
    match json.get_mut(member) {
        Some(Value::String(text)) => text.push_str(piece),
        _ => set(json, member, piece.into()),
    }
}

fn set(json: &mut Value, member: &str, value: Value) {
    if let Value::Object(block) = json {
        block.insert(member.to_owned(), value);
    }
}

fn broken(message: &str) -> ProviderError {
    ProviderError::Broken(message.to_owned())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use toolcrib_tokens::Usage;

    use super::*;
    use crate::message::ToolCall;
    use crate::provider::Reply;

    fn start(index: u64, block: Value) -> Value {
        json!({"type": "content_block_start", "index": index, "content_block": block})
    }

    fn delta(index: u64, delta: Value) -> Value {
        json!({"type": "content_block_delta", "index": index, "delta": delta})
    }

    fn stop(index: u64) -> Value {
        json!({"type": "content_block_stop", "index": index})
    }

    fn text(index: u64, text: &str) -> Value {
        delta(index, json!({"type": "text_delta", "text": text}))
    }

    fn input(index: u64, piece: &str) -> Value {
        delta(index, json!({"type": "input_json_delta", "partial_json": piece}))
    }

    fn found() -> Value {
        json!({"type": "web_search_result", "url": "https://example.com", "title": "x",
            "encrypted_content": "Er==", "page_age": null})
    }

    fn began() -> Value {
        json!({"type": "message_start", "message": {"id": "msg_1", "type": "message",
            "role": "assistant", "model": "claude-x", "content": [], "stop_reason": null,
            "stop_sequence": null, "usage": {"input_tokens": 25, "cache_creation_input_tokens": 7,
                "cache_read_input_tokens": 900, "output_tokens": 1}}})
    }

    fn ended(reason: &str) -> [Value; 2] {
        [
            json!({"type": "message_delta", "delta": {"stop_reason": reason, "stop_sequence": null},
                "usage": {"output_tokens": 89}}),
            json!({"type": "message_stop"}),
        ]
    }

    /// Thinking, text, a search of the API's own, calls that take turns, and what nobody knows
    /// yet.
    fn events() -> Vec<Value> {
        let mut events = vec![
            began(),
            start(0, json!({"type": "thinking", "thinking": "", "signature": ""})),
            json!({"type": "ping"}),
            delta(0, json!({"type": "thinking_delta", "thinking": "Let me "})),
            delta(0, json!({"type": "thinking_delta", "thinking": "think."})),
            delta(0, json!({"type": "signature_delta", "signature": "EqQB=="})),
            stop(0),
            start(1, json!({"type": "redacted_thinking", "data": "Em=="})),
            stop(1),
            start(2, json!({"type": "text", "text": ""})),
            text(2, "Looking "),
            delta(
                2,
                json!({"type": "citations_delta", "citation": {"type": "char_location",
                "cited_text": "x", "document_index": 0, "document_title": null, "file_id": null,
                "start_char_index": 0, "end_char_index": 1}}),
            ),
            text(2, "it up."),
            stop(2),
            start(
                3,
                json!({"type": "server_tool_use", "id": "srvtoolu_1",
                "name": "web_search", "input": {}}),
            ),
            input(3, "{\"query\":"),
            input(3, "\"oslo\"}"),
            stop(3),
            start(
                4,
                json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
                "content": [found()]}),
            ),
            stop(4),
            start(5, json!({"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {}})),
            input(5, ""),
            input(5, "{\"city\": "),
            start(6, json!({"type": "tool_use", "id": "toolu_2", "name": "time", "input": {}})),
            input(6, "{\"zone\":"),
            input(5, "\"Oslo\"}"),
            input(6, "2}"),
            stop(6),
            stop(5),
            start(7, json!({"type": "tool_use", "id": "toolu_3", "name": "now", "input": {}})),
            input(7, ""),
            stop(7),
            json!({"type": "from_the_future", "x": [1]}),
            start(8, json!({"type": "hologram", "rays": 3})),
            delta(8, json!({"type": "ray_delta", "ray": 4})),
            stop(8),
        ];
        events.extend(ended("tool_use"));
        events
    }

    fn read_all(events: &[Value]) -> Result<Vec<Delta>, (Vec<Delta>, ProviderError)> {
        let (mut answer, mut out) = (Answer::default(), Vec::new());
        let read = events.iter().try_for_each(|event| answer.piece(&event.to_string(), &mut out));
        match read.and_then(|()| answer.end(&mut out)) {
            Ok(()) => Ok(out),
            Err(error) => Err((out, error)),
        }
    }

    fn finished(events: &[Value]) -> Reply {
        match read_all(events).unwrap().pop() {
            Some(Delta::Finished(reply)) => reply,
            other => panic!("{other:?}"),
        }
    }

    fn call(id: &str, name: &str, arguments: &str) -> Said {
        Said::Call(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
    }

    fn native(json: Value) -> Said {
        Said::Native { provider: "anthropic".into(), json }
    }

    #[test]
    fn an_answer_is_told_as_it_comes_and_then_whole() {
        let arguments = |index, text: &str| Delta::Arguments { index, text: text.into() };
        let reply = Reply {
            content: vec![
                native(json!({"type": "thinking", "thinking": "Let me think.",
                    "signature": "EqQB=="})),
                native(json!({"type": "redacted_thinking", "data": "Em=="})),
                Said::Text { text: "Looking it up.".into() },
                native(json!({"type": "server_tool_use", "id": "srvtoolu_1",
                    "name": "web_search", "input": {"query": "oslo"}})),
                native(json!({"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1",
                    "content": [found()]})),
                call("toolu_1", "weather", r#"{"city": "Oslo"}"#),
                call("toolu_2", "time", r#"{"zone":2}"#),
                call("toolu_3", "now", "{}"),
                native(json!({"type": "hologram", "rays": 3})),
            ],
            stop: StopReason::End,
            usage: Usage { read: 900, written: 7, uncached: 25, output: 89 },
        };
        let expected = vec![
            Delta::Thinking("Let me ".into()),
            Delta::Thinking("think.".into()),
            Delta::Text("Looking ".into()),
            Delta::Text("it up.".into()),
            Delta::Call { index: 0, name: "weather".into() },
            arguments(0, r#"{"city": "#),
            Delta::Call { index: 1, name: "time".into() },
            arguments(1, r#"{"zone":"#),
            arguments(0, r#""Oslo"}"#),
            arguments(1, "2}"),
            Delta::Call { index: 2, name: "now".into() },
            Delta::Finished(reply),
        ];
        assert_eq!(read_all(&events()), Ok(expected));
    }

    #[test]
    fn the_apis_own_search_for_tools_is_kept_as_it_came() {
        let asked = |input: Value| {
            json!({"type": "server_tool_use", "id": "srvtoolu_1",
                "name": "tool_search_tool_regex", "input": input})
        };
        let given = json!({"type": "tool_search_tool_search_result", "tool_references":
            [{"type": "tool_reference", "tool_name": "weather"}]});
        let nothing = json!({"type": "tool_search_tool_search_result", "tool_references": []});
        let failed = json!({"type": "tool_search_tool_result_error",
            "error_code": "too_many_requests", "error_message": null});
        for content in [given, nothing, failed] {
            let answered = json!({"type": "tool_search_tool_result",
                "tool_use_id": "srvtoolu_1", "content": content});
            let mut events = vec![
                began(),
                start(0, asked(json!({}))),
                input(0, ""),
                input(0, "{\"pattern\": \"wea"),
                input(0, "ther\"}"),
                stop(0),
                json!({"type": "ping"}),
                start(1, answered.clone()),
                stop(1),
            ];
            events.extend(ended("end_turn"));
            let told = read_all(&events).unwrap();
            let asked = native(asked(json!({"pattern": "weather"})));
            let expected = [asked, native(answered)];
            assert_eq!(finished(&events).content, expected);
            // It is nobody's call but the API's.
            assert_eq!(told.len(), 1, "{told:?}");
        }
    }

    #[test]
    fn a_pause_after_the_apis_own_call_keeps_it_for_the_next_request() {
        let call = json!({"type": "server_tool_use", "id": "srvtoolu_1",
            "name": "tool_search_tool_bm25", "input": {}});
        let mut events = vec![began(), start(0, call), input(0, r#"{"query":"w"}"#), stop(0)];
        events.extend(ended("pause_turn"));
        let reply = finished(&events);
        assert_eq!(reply.stop, StopReason::Paused);
        let kept = json!({"type": "server_tool_use", "id": "srvtoolu_1",
            "name": "tool_search_tool_bm25", "input": {"query": "w"}});
        assert_eq!(reply.content, [native(kept)]);
    }

    #[test]
    fn an_answer_cut_anywhere_is_broken() {
        let events = events();
        for count in 0..events.len() {
            let (told, error) = read_all(&events[..count]).unwrap_err();
            assert_eq!(error, broken("the answer broke off before its end"), "{count}");
            assert!(!told.iter().any(|delta| matches!(delta, Delta::Finished(_))), "{count}");
        }
    }

    #[test]
    fn an_error_in_place_of_an_event_ends_the_answer() {
        let error = |kind: &str, message: &str| {
            let error = json!({"type": kind, "message": message});
            json!({"type": "error", "error": error})
        };
        let events = events();
        for count in 0..events.len() {
            let mut events = events[..count].to_vec();
            events.push(error("overloaded_error", "Overloaded"));
            let (_, error) = read_all(&events).unwrap_err();
            let message = "Overloaded (overloaded_error)".into();
            assert_eq!(error, ProviderError::Busy { message, retry_after: None }, "{count}");
        }
        for (event, expected) in [
            (error("api_error", "x"), ProviderError::Failed("x (api_error)".into())),
            (error("new_error", "x"), ProviderError::Failed("x (new_error)".into())),
            (
                error("invalid_request_error", "x"),
                ProviderError::Rejected("x (invalid_request_error)".into()),
            ),
            (
                error("invalid_request_error", "prompt is too long"),
                ProviderError::ContextTooLong("prompt is too long (invalid_request_error)".into()),
            ),
            (
                json!({"type": "error"}),
                ProviderError::Failed("the provider failed without a message".into()),
            ),
        ] {
            assert_eq!(read_all(&[began(), event]).unwrap_err().1, expected);
        }
    }

    #[test]
    fn events_that_make_no_answer_are_broken() {
        let words = || start(0, json!({"type": "text", "text": ""}));
        let now = || start(0, json!({"type": "tool_use", "id": "1", "name": "now", "input": {}}));
        for events in [
            vec![text(0, "x")],
            vec![words(), words()],
            vec![words(), input(0, "{")],
            vec![now(), text(0, "x")],
            vec![json!({"type": "content_block_delta", "delta": {"type": "text_delta"}})],
            vec![began(), json!({"type": "message_stop"})],
            vec![json!({"no": "type"})],
            vec![json!([])],
        ] {
            let error = read_all(&events).unwrap_err().1;
            assert!(matches!(error, ProviderError::Broken(_)), "{events:?}: {error:?}");
        }
        let mut answer = Answer::default();
        for data in ["", "{", "[DONE]", "{\"type\":\"ping\"} x"] {
            let error = answer.piece(data, &mut Vec::new()).unwrap_err();
            assert!(matches!(error, ProviderError::Broken(_)), "{data}: {error:?}");
        }
    }

    #[test]
    fn nothing_is_said_after_the_end() {
        let mut events = events();
        let told = read_all(&events).unwrap();
        events.extend(self::events());
        events.push(json!("[DONE]"));
        assert_eq!(read_all(&events), Ok(told));
    }

    #[test]
    fn a_call_cut_by_the_limit_keeps_what_was_written() {
        let mut events = vec![
            began(),
            start(0, json!({"type": "tool_use", "id": "1", "name": "write", "input": {}})),
            input(0, "{\"text\": \"abc"),
            start(
                1,
                json!({"type": "server_tool_use", "id": "2", "name": "web_search", "input": {}}),
            ),
            input(1, "{\"q"),
        ];
        events.extend(ended("max_tokens"));
        let reply = finished(&events);
        assert_eq!(reply.content, [call("1", "write", "{\"text\": \"abc")]);
        assert_eq!(reply.stop, StopReason::Length);
    }

    #[test]
    fn a_call_of_the_apis_own_that_had_just_begun_at_the_limit_is_left_out() {
        let begun =
            json!({"type": "server_tool_use", "id": "2", "name": "web_search", "input": {}});
        let events = |reason| {
            let text = start(0, json!({"type": "text", "text": "a"}));
            let mut events = vec![began(), text, start(1, begun.clone())];
            events.extend(ended(reason));
            events
        };
        let text = Said::Text { text: "a".into() };
        for cut in ["max_tokens", "model_context_window_exceeded"] {
            assert_eq!(finished(&events(cut)).content, std::slice::from_ref(&text));
        }
        assert_eq!(finished(&events("pause_turn")).content, [text, native(begun)]);
    }

    #[test]
    fn arguments_that_come_with_the_beginning_count_if_no_others_do() {
        let whole = json!({"type": "tool_use", "id": "1", "name": "t", "input": {"a": 1}});
        let mut events = vec![began(), start(0, whole), stop(0)];
        events.extend(ended("tool_use"));
        let told = read_all(&events).unwrap();
        assert_eq!(
            told[..2],
            [
                Delta::Call { index: 0, name: "t".into() },
                Delta::Arguments { index: 0, text: r#"{"a":1}"#.into() },
            ]
        );
        assert_eq!(finished(&events).content, [call("1", "t", r#"{"a":1}"#)]);
        events.insert(2, input(0, r#"{"b":2}"#));
        assert_eq!(finished(&events).content, [call("1", "t", r#"{"b":2}"#)]);
    }

    #[test]
    fn the_last_count_of_tokens_holds_and_the_reason_of_a_refusal_is_kept() {
        let end = json!({"type": "message_delta", "delta": {"stop_reason": "refusal",
            "stop_details": {"type": "refusal", "explanation": "Not this."}},
            "usage": {"input_tokens": 30, "cache_read_input_tokens": null, "output_tokens": 5}});
        let reply = finished(&[began(), end, json!({"type": "message_stop"})]);
        let expected = Reply {
            content: Vec::new(),
            stop: StopReason::Refusal(Some("Not this.".into())),
            usage: Usage { read: 900, written: 7, uncached: 30, output: 5 },
        };
        assert_eq!(reply, expected);
    }

    #[test]
    fn an_answer_in_one_piece_is_told_the_same_way() {
        let body = json!({"type": "message", "role": "assistant", "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "Now."},
            {"type": "tool_use", "id": "1", "name": "now", "input": {}}],
            "stop_reason": "tool_use", "usage": {"input_tokens": 1, "output_tokens": 2}});
        let (mut answer, mut out) = (Answer::default(), Vec::new());
        answer.whole(&body.to_string(), &mut out).unwrap();
        answer.end(&mut out).unwrap();
        let reply = Reply {
            content: vec![
                native(json!({"type": "thinking", "thinking": "hm", "signature": "s"})),
                Said::Text { text: "Now.".into() },
                call("1", "now", "{}"),
            ],
            stop: StopReason::End,
            usage: Usage { uncached: 1, output: 2, ..Usage::default() },
        };
        let expected = [
            Delta::Thinking("hm".into()),
            Delta::Text("Now.".into()),
            Delta::Call { index: 0, name: "now".into() },
            Delta::Arguments { index: 0, text: "{}".into() },
            Delta::Finished(reply),
        ];
        assert_eq!(out, expected);
    }

    #[test]
    fn an_answer_without_end_is_given_up() {
        let (mut answer, mut out) = (Answer::default(), Vec::new());
        let begin = start(0, json!({"type": "text", "text": ""})).to_string();
        answer.piece(&begin, &mut out).unwrap();
        let megabyte = text(0, &"x".repeat(1_000_000)).to_string();
        let read = (1..=40).find_map(|count| {
            out.clear();
            answer.piece(&megabyte, &mut out).err().map(|error| (count, error))
        });
        assert_eq!(read, Some((32, broken("the answer is longer than 32 MB"))));
    }
}
