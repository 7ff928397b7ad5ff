//! An answer of Chat Completions, read as it comes.

use serde::de::IgnoredAny;
use serde_json::{Value, json};
use toolcrib_tokens::Usage;

use super::NAME;
use super::response::{CallPiece, Chunk, Piece, arguments, stop, text, usage};
use crate::message::{Said, ToolCall};
use crate::provider::{Delta, ProviderError, Reply};
use crate::providers::body::Size;
use crate::providers::http::Reader;

/// What has been read of an answer.
#[derive(Default)]
pub(super) struct Answer {
    text: String,
    /// What the model thinks, and the member it comes as.
    thinking: Option<(&'static str, String)>,
    refusal: String,
    calls: Vec<Call>,
    /// Why it ended, once it has.
    finish_reason: Option<String>,
    usage: Usage,
    size: Size,
    is_finished: bool,
}

struct Call {
    /// What the server numbers it by.
    index: Option<u64>,
    call: ToolCall,
}

impl Reader for Answer {
    fn piece(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        match data.trim() {
            _ if self.is_finished => Ok(()),
            "" => Ok(()),
            // Whoever says so has ended the answer on purpose, with a reason or without.
            "[DONE]" if !self.text.is_empty() || !self.calls.is_empty() => {
                self.finish_reason.get_or_insert_with(|| "stop".into());
                self.end(out)
            }
            "[DONE]" => self.end(out),
            json => self.take(Chunk::read(json)?, out),
        }
    }

    fn end(&mut self, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.is_finished {
            return Ok(());
        }
        let Some(reason) = self.finish_reason.take() else {
            let message = "the answer broke off before the server said that it was complete";
            return Err(ProviderError::Broken(message.into()));
        };
        let refusal = Some(std::mem::take(&mut self.refusal)).filter(|text| !text.is_empty());
        let stop = stop(&reason, refusal)?;
        let thinking = self.thinking.take().map(|(member, text)| Said::Native {
            provider: NAME.into(),
            json: json!({member: text}),
        });
        let said = Some(std::mem::take(&mut self.text)).filter(|text| !text.is_empty());
        let calls = std::mem::take(&mut self.calls).into_iter().map(|it| Said::Call(it.call));
        let said = said.map(|text| Said::Text { text });
        let content = thinking.into_iter().chain(said).chain(calls).collect();
        out.push(Delta::Finished(Reply { content, stop, usage: self.usage }));
        self.is_finished = true;
        Ok(())
    }

    fn whole(&mut self, body: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        self.take(Chunk::read(body)?, out)?;
        self.end(out)
    }
}

impl Answer {
    fn take(&mut self, chunk: Chunk, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        // Where it comes more than once, each counts everything so far.
        if let Some(wire) = chunk.usage.filter(Value::is_object) {
            self.usage = usage(&wire, "prompt", "completion");
        }
        for choice in chunk.choices.into_iter().flatten() {
            if choice.index.unwrap_or(0) != 0 {
                continue;
            }
            if let Some(piece) = choice.delta.or(choice.message) {
                self.take_piece(piece, out)?;
            }
            if let Some(reason) = choice.finish_reason.filter(|reason| !reason.is_empty()) {
                self.finish_reason = Some(reason);
            }
        }
        Ok(())
    }

    fn take_piece(&mut self, piece: Piece, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        // Some servers send the same thinking under both names.
        let thinking =
            [("reasoning_content", piece.reasoning_content), ("reasoning", piece.reasoning)]
                .map(|(member, value)| (member, text(value)))
                .into_iter()
                .find(|(_, text)| !text.is_empty());
        if let Some((member, text)) = thinking {
            self.size.grow(text.len())?;
            self.thinking.get_or_insert((member, String::new())).1.push_str(&text);
            out.push(Delta::Thinking(text));
        }
        let said = text(piece.content);
        if !said.is_empty() {
            self.size.grow(said.len())?;
            self.text.push_str(&said);
            out.push(Delta::Text(said));
        }
        let refusal = text(piece.refusal);
        self.size.grow(refusal.len())?;
        self.refusal.push_str(&refusal);
        for (position, piece) in piece.tool_calls.into_iter().flatten().enumerate() {
            self.take_call(position, piece, out)?;
        }
        Ok(())
    }

    fn take_call(
        &mut self,
        position: usize,
        piece: CallPiece,
        out: &mut Vec<Delta>,
    ) -> Result<(), ProviderError> {
        let function = piece.function.unwrap_or_default();
        let (id, name) = (text(piece.id), text(function.name));
        let arguments = arguments(function.arguments);
        self.size.grow(id.len() + name.len() + arguments.len())?;
        let place = match self.continued(position, piece.index, &id, &name) {
            Some(place) => {
                let call = &mut self.calls[place].call;
                if call.id.is_empty() {
                    call.id = id;
                }
                // A name may come in pieces, or whole with every piece of the arguments.
                if call.name != name {
                    call.name.push_str(&name);
                }
                place
            }
            None if id.is_empty() && name.is_empty() && arguments.is_empty() => return Ok(()),
            None => {
                self.size.grow(size_of::<Call>())?;
                let index = self.calls.len();
                out.push(Delta::Call { index, name: name.clone() });
                let call = ToolCall { id, name, arguments: String::new() };
                self.calls.push(Call { index: piece.index, call });
                index
            }
        };
        if !arguments.is_empty() {
            self.calls[place].call.arguments.push_str(&arguments);
            out.push(Delta::Arguments { index: place, text: arguments });
        }
        Ok(())
    }

    /// Which call so far a piece goes on with, if it begins none. An index should tell, but some
    /// servers send none, and some the same for every call.
    fn continued(
        &self,
        position: usize,
        index: Option<u64>,
        id: &str,
        name: &str,
    ) -> Option<usize> {
        let same_id = |it: &Call| !id.is_empty() && it.call.id == id;
        let place = match index {
            Some(_) => self.calls.iter().rposition(|it| it.index == index)?,
            None => match self.calls.iter().rposition(same_id) {
                Some(place) => place,
                // Listed side by side they are calls of their own.
                None if position > 0 && !name.is_empty() => return None,
                None => self.calls.len().checked_sub(1)?,
            },
        };
        let call = &self.calls[place].call;
        let has_other_id = !id.is_empty() && !call.id.is_empty() && call.id != id;
        let is_complete = || {
            call.arguments.ends_with('}')
                && serde_json::from_str::<IgnoredAny>(&call.arguments).is_ok()
        };
        let begins_one =
            !name.is_empty() && (has_other_id || !same_id(&self.calls[place]) && is_complete());
        (!begins_one).then_some(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::provider::StopReason;

    fn read(pieces: &[String]) -> Result<Vec<Delta>, ProviderError> {
        let (mut answer, mut out) = (Answer::default(), Vec::new());
        for piece in pieces {
            answer.piece(piece, &mut out)?;
        }
        answer.end(&mut out)?;
        Ok(out)
    }

    fn chunk(delta: Value, finish_reason: Option<&str>) -> String {
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices":
            [{"index": 0, "delta": delta, "logprobs": null, "finish_reason": finish_reason}],
            "usage": null})
        .to_string()
    }

    fn usage_chunk() -> String {
        json!({"id": "c", "object": "chat.completion.chunk", "choices": [], "usage":
            {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25,
                "prompt_tokens_details": {"cached_tokens": 8}}})
        .to_string()
    }

    const USED: Usage = Usage { read: 8, written: 0, uncached: 12, output: 5 };

    fn said(text: &str) -> Said {
        Said::Text { text: text.into() }
    }

    fn thought(member: &str, text: &str) -> Said {
        Said::Native { provider: "openai-chat".into(), json: json!({member: text}) }
    }

    fn call(id: &str, name: &str, arguments: &str) -> Said {
        Said::Call(ToolCall { id: id.into(), name: name.into(), arguments: arguments.into() })
    }

    fn call_begins(index: usize, name: &str) -> Delta {
        Delta::Call { index, name: name.into() }
    }

    fn arguments_of(index: usize, text: &str) -> Delta {
        Delta::Arguments { index, text: text.into() }
    }

    /// Two calls whose pieces take turns.
    fn parallel() -> Vec<String> {
        let one = |index: u64, arguments: &str| json!({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]});
        let begin = |index: u64, id: &str, name: &str| {
            json!({"tool_calls": [{"index": index, "id": id, "type": "function",
                "function": {"name": name, "arguments": ""}}]})
        };
        vec![
            chunk(json!({"role": "assistant", "content": null, "reasoning_content": "Hm"}), None),
            chunk(json!({"content": "Wait"}), None),
            chunk(json!({"content": "."}), None),
            chunk(begin(0, "a", "look"), None),
            chunk(one(0, r#"{"x""#), None),
            chunk(begin(1, "b", "see"), None),
            chunk(one(1, "{"), None),
            chunk(one(0, ": 1}"), None),
            chunk(one(1, "}"), None),
            chunk(json!({}), Some("tool_calls")),
            usage_chunk(),
            "[DONE]".into(),
        ]
    }

    #[test]
    fn an_answer_is_told_as_it_comes_and_then_whole() {
        let reply = Reply {
            content: vec![
                thought("reasoning_content", "Hm"),
                said("Wait."),
                call("a", "look", r#"{"x": 1}"#),
                call("b", "see", "{}"),
            ],
            stop: StopReason::End,
            usage: USED,
        };
        assert_eq!(
            read(&parallel()).unwrap(),
            [
                Delta::Thinking("Hm".into()),
                Delta::Text("Wait".into()),
                Delta::Text(".".into()),
                call_begins(0, "look"),
                arguments_of(0, r#"{"x""#),
                call_begins(1, "see"),
                arguments_of(1, "{"),
                arguments_of(0, ": 1}"),
                arguments_of(1, "}"),
                Delta::Finished(reply),
            ]
        );
    }

    #[test]
    fn an_answer_cut_before_its_end_is_broken_and_one_cut_after_it_is_not() {
        let pieces = parallel();
        let ended = pieces.iter().position(|piece| piece.contains("\"tool_calls\"}")).unwrap();
        for length in 0..=pieces.len() {
            let outcome = read(&pieces[..length]);
            if length <= ended {
                assert!(matches!(outcome, Err(ProviderError::Broken(_))), "{length}: {outcome:?}");
            } else {
                let deltas = outcome.unwrap();
                let finished = deltas.iter().filter(|it| matches!(it, Delta::Finished(_))).count();
                assert_eq!((finished, deltas.len()), (1, 10), "{length}");
            }
        }
    }

    /// What is made of the tool_calls of several deltas.
    fn calls(deltas: &[Value]) -> Vec<Said> {
        let mut pieces: Vec<String> =
            deltas.iter().map(|calls| chunk(json!({"tool_calls": calls}), None)).collect();
        pieces.push(chunk(json!({}), Some("tool_calls")));
        let deltas = read(&pieces).unwrap();
        let mut begun = 0;
        let mut arguments = vec![String::new(); deltas.len()];
        for delta in &deltas {
            match delta {
                Delta::Call { index, .. } => {
                    assert_eq!(*index, begun);
                    begun += 1;
                }
                Delta::Arguments { index, text } => arguments[*index].push_str(text),
                Delta::Finished(reply) => {
                    for (said, told) in reply.content.iter().zip(&arguments) {
                        let Said::Call(call) = said else { panic!("{said:?}") };
                        assert_eq!(call.arguments, *told);
                    }
                    assert_eq!(reply.content.len(), begun);
                    return reply.content.clone();
                }
                other => panic!("{other:?}"),
            }
        }
        unreachable!("an answer that is read ends with the whole of it")
    }

    #[test]
    fn calls_are_told_apart_however_a_server_numbers_them() {
        let whole = |index: Option<u64>, id: &str, name: &str, arguments: &str| {
            json!({"index": index, "id": id, "type": "function",
                "function": {"name": name, "arguments": arguments}})
        };
        let two = [call("a", "look", r#"{"x":1}"#), call("b", "look", "{}")];
        for (server, deltas) in [
            (
                "whole calls in one delta",
                vec![json!([
                    whole(Some(0), "a", "look", r#"{"x":1}"#),
                    whole(Some(1), "b", "look", "{}")
                ])],
            ),
            (
                "the same index for all",
                vec![
                    json!([whole(Some(0), "a", "look", r#"{"x":1}"#)]),
                    json!([whole(Some(0), "b", "look", "{}")]),
                ],
            ),
            (
                "no index",
                vec![
                    json!([whole(None, "a", "look", r#"{"x":1}"#)]),
                    json!([whole(None, "b", "look", "{}")]),
                ],
            ),
            (
                "no index, pieces by id",
                vec![
                    json!([whole(None, "a", "look", "")]),
                    json!([whole(None, "b", "look", "")]),
                    json!([{"id": "a", "function": {"arguments": "{\"x\":1}"}}]),
                    json!([{"id": "b", "function": {"arguments": "{}"}}]),
                ],
            ),
            (
                "no index, pieces in order",
                vec![
                    json!([whole(None, "a", "look", "")]),
                    json!([{"function": {"arguments": "{\"x\""}}]),
                    json!([{"function": {"arguments": ":1}"}}]),
                    json!([whole(None, "b", "look", "{")]),
                    json!([{"function": {"arguments": "}"}}]),
                ],
            ),
            (
                "a name in pieces",
                vec![
                    json!([whole(Some(0), "a", "lo", "")]),
                    json!([{"index": 0, "function": {"name": "ok"}}]),
                    json!([{"index": 0, "function": {"arguments": "{\"x\":1}"}}]),
                    json!([whole(Some(1), "b", "l", "")]),
                    json!([{"index": 1, "id": "b", "function": {"name": "ook", "arguments": "{}"}}]),
                ],
            ),
            (
                "name and id with every piece",
                vec![
                    json!([whole(Some(0), "a", "look", "{\"x\"")]),
                    json!([whole(Some(0), "a", "look", ":1}")]),
                    json!([whole(Some(1), "b", "look", "{")]),
                    json!([whole(Some(1), "b", "look", "}")]),
                ],
            ),
            (
                "another id with every piece",
                vec![
                    json!([whole(Some(0), "a", "look", "{\"x\"")]),
                    json!([{"index": 0, "id": "z", "function": {"name": null, "arguments": ":1}"}}]),
                    json!([whole(Some(1), "b", "look", "{")]),
                    json!([{"index": 1, "id": "y", "function": {"arguments": "}"}}]),
                ],
            ),
            (
                "arguments that are an object",
                vec![json!([
                {"index": 0, "id": "a", "function": {"name": "look", "arguments": {"x": 1}}},
                {"index": 1, "id": "b", "function": {"name": "look", "arguments": {}}}])],
            ),
            (
                "an empty piece at the end",
                vec![
                    json!([whole(Some(0), "a", "look", r#"{"x":1}"#)]),
                    json!([whole(Some(1), "b", "look", "{}")]),
                    json!([{"index": 2, "function": {"arguments": ""}}]),
                    json!([{"index": 1, "id": "", "function": {"name": "", "arguments": ""}}]),
                ],
            ),
        ] {
            assert_eq!(calls(&deltas), two, "{server}");
        }
    }

    #[test]
    fn calls_without_ids_are_told_apart_too() {
        let whole = |arguments: &str| json!({"function": {"name": "look", "arguments": arguments}});
        let two = [call("", "look", "{}"), call("", "look", "{}")];
        assert_eq!(calls(&[json!([whole("{}"), whole("{}")])]), two);
        assert_eq!(calls(&[json!([whole("{}")]), json!([whole("{}")])]), two);
        let two = [call("", "look", ""), call("", "look", "")];
        assert_eq!(calls(&[json!([whole(""), whole("")])]), two);
    }

    #[test]
    fn usage_is_found_wherever_it_comes() {
        let wire = json!({"prompt_tokens": 20, "completion_tokens": 5,
            "prompt_tokens_details": {"cached_tokens": 8}});
        let mut finish: Value = serde_json::from_str(&chunk(json!({}), Some("stop"))).unwrap();
        finish["usage"] = wire;
        let text = chunk(json!({"content": "Hi"}), None);
        for (end, usage) in [
            (vec![chunk(json!({}), Some("stop")), usage_chunk()], USED),
            (vec![finish.to_string()], USED),
            (vec![chunk(json!({}), Some("stop"))], Usage::default()),
        ] {
            let pieces: Vec<String> = std::iter::once(text.clone()).chain(end).collect();
            let reply = Reply { content: vec![said("Hi")], stop: StopReason::End, usage };
            assert_eq!(read(&pieces).unwrap().pop(), Some(Delta::Finished(reply)));
        }
    }

    #[test]
    fn the_reason_it_ended_is_told() {
        use StopReason::{ContextFull, End, Length, Other, Refusal};
        let stop = |delta: Value, reason: &str| match read(&[
            chunk(delta, None),
            chunk(json!({}), Some(reason)),
        ])
        .unwrap()
        .pop()
        {
            Some(Delta::Finished(reply)) => reply.stop,
            other => panic!("{other:?}"),
        };
        for (reason, expected) in [
            ("stop", End),
            ("tool_calls", End),
            ("function_call", End),
            ("length", Length),
            ("model_length", ContextFull),
            ("content_filter", Refusal(None)),
            ("abort", Other("abort".into())),
        ] {
            assert_eq!(stop(json!({"content": "x"}), reason), expected, "{reason}");
        }
        let refused = Refusal(Some("I can't".into()));
        assert_eq!(stop(json!({"refusal": "I can't"}), "stop"), refused);
        assert_eq!(stop(json!({"refusal": "I can't"}), "content_filter"), refused);
        let error = read(&[chunk(json!({}), Some("error"))]);
        assert!(matches!(error, Err(ProviderError::Failed(_))), "{error:?}");
    }

    #[test]
    fn thinking_is_kept_by_the_name_it_came_by() {
        let both = json!({"reasoning_content": "Hm", "reasoning": "Hm"});
        for (deltas, kept) in [
            ([json!({"reasoning": "H"}), json!({"reasoning": "m"})], thought("reasoning", "Hm")),
            ([both, json!({})], thought("reasoning_content", "Hm")),
            (
                [json!({"reasoning_content": "H"}), json!({"reasoning": "m"})],
                thought("reasoning_content", "Hm"),
            ),
        ] {
            let [first, second] = deltas.map(|delta| chunk(delta, None));
            let pieces = [first, second, chunk(json!({"content": "Hi"}), Some("stop"))];
            let reply = Reply { content: vec![kept, said("Hi")], ..Reply::default() };
            assert_eq!(read(&pieces).unwrap().pop(), Some(Delta::Finished(reply)));
        }
    }

    #[test]
    fn done_ends_an_answer_whose_reason_is_missing_but_not_an_empty_one() {
        let done = || "[DONE]".to_owned();
        let reply = Reply { content: vec![said("Hi")], ..Reply::default() };
        let deltas = read(&[chunk(json!({"content": "Hi"}), None), done(), done()]).unwrap();
        assert_eq!(deltas, [Delta::Text("Hi".into()), Delta::Finished(reply)]);
        assert!(matches!(read(&[done()]), Err(ProviderError::Broken(_))));
    }

    #[test]
    fn what_is_no_chunk_is_refused_and_what_is_unknown_is_not() {
        for broken in ["{", "[1]", "null", r#"{"choices": 1}"#] {
            let outcome = read(&[broken.to_owned()]);
            assert!(matches!(outcome, Err(ProviderError::Broken(_))), "{broken}: {outcome:?}");
        }
        let unknown = json!({"choices": [{"index": 0, "delta": {"audio": {"id": 1}}, "x": 1},
            {"index": 1, "delta": {"content": "another"}, "finish_reason": "stop"}], "y": [2]});
        let empty = Reply::default();
        let pieces = [unknown.to_string(), json!({}).to_string(), chunk(json!({}), Some("stop"))];
        assert_eq!(read(&pieces).unwrap(), [Delta::Finished(empty)]);
    }

    #[test]
    fn an_error_in_the_stream_ends_it() {
        let text = chunk(json!({"content": "Hi"}), None);
        let outcome = |error: Value| read(&[text.clone(), error.to_string()]).unwrap_err();
        assert_eq!(
            outcome(json!({"error": {"message": "Slow", "code": 429},
                "choices": [{"index": 0, "delta": {"content": ""}, "finish_reason": "error"}]})),
            ProviderError::Busy { message: "Slow".into(), retry_after: None }
        );
        assert_eq!(
            outcome(json!({"object": "error", "message": "Bad", "type": "BadRequestError",
                "code": 400})),
            ProviderError::Rejected("Bad".into())
        );
    }

    #[test]
    fn a_whole_answer_is_told_in_the_same_deltas() {
        let body = json!({"id": "c", "object": "chat.completion", "model": "m", "choices": [{
            "index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": {
                "role": "assistant", "content": "Wait", "refusal": null, "reasoning": "Hm",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "see", "arguments": ""}},
                ]}}],
            "usage": {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25,
                "prompt_tokens_details": {"cached_tokens": 8}}});
        let mut out = Vec::new();
        Answer::default().whole(&body.to_string(), &mut out).unwrap();
        let reply = Reply {
            content: vec![
                thought("reasoning", "Hm"),
                said("Wait"),
                call("a", "look", "{}"),
                call("b", "see", ""),
            ],
            stop: StopReason::End,
            usage: USED,
        };
        assert_eq!(
            out,
            [
                Delta::Thinking("Hm".into()),
                Delta::Text("Wait".into()),
                call_begins(0, "look"),
                arguments_of(0, "{}"),
                call_begins(1, "see"),
                Delta::Finished(reply),
            ]
        );
        let refused = Answer::default().whole(r#"{"error":"no"}"#, &mut out);
        assert_eq!(refused, Err(ProviderError::Failed("no".into())));
    }

    #[test]
    fn an_answer_without_end_is_given_up() {
        let piece = chunk(json!({"content": "x".repeat(1_000_000)}), None);
        let (mut answer, mut out) = (Answer::default(), Vec::new());
        for _ in 0..32 {
            answer.piece(&piece, &mut out).unwrap();
            out.clear();
        }
        let error = answer.piece(&piece, &mut out);
        assert_eq!(error, Err(ProviderError::Broken("the answer is longer than 32 MB".into())));
    }
}
