//! An answer of Ollama's, line by line.

use serde_json::json;

use super::super::http;
use super::NAME;
use super::response::{self, Answer};
use crate::message::{Said, ToolCall};
use crate::provider::{Delta, ProviderError, Reply};
use crate::providers::body::Size;

/// Gathers one reply.
#[derive(Default)]
pub(super) struct Reader {
    content: Vec<Said>,
    /// What the model thinks at the moment.
    thinking: String,
    calls: usize,
    size: Size,
    finished: bool,
}

impl http::Reader for Reader {
    fn piece(&mut self, data: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        let mut answer = Answer::parse(data)?;
        if let Some(error) = &answer.error {
            return Err(response::failure(error));
        }
        self.size.grow(data.len())?;
        if let Some(thinking) = answer.message.thinking.take().filter(|text| !text.is_empty()) {
            self.thinking.push_str(&thinking);
            out.push(Delta::Thinking(thinking));
        }
        if let Some(text) = answer.message.content.take().filter(|text| !text.is_empty()) {
            self.say(&text);
            out.push(Delta::Text(text));
        }
        for call in answer.message.tool_calls.take().unwrap_or_default() {
            let (name, arguments) = call.into_parts();
            let index = self.calls;
            self.calls += 1;
            out.push(Delta::Call { index, name: name.clone() });
            if !arguments.is_empty() {
                out.push(Delta::Arguments { index, text: arguments.clone() });
            }
            self.keep_thinking();
            self.content.push(Said::Call(ToolCall { id: String::new(), name, arguments }));
        }
        if answer.done && !self.finished {
            self.finished = true;
            self.keep_thinking();
            let content = std::mem::take(&mut self.content);
            let (stop, usage) = (answer.stop(), answer.usage());
            out.push(Delta::Finished(Reply { content, stop, usage }));
        }
        Ok(())
    }

    fn end(&mut self, _: &mut Vec<Delta>) -> Result<(), ProviderError> {
        if self.finished {
            return Ok(());
        }
        Err(ProviderError::Broken("the answer ended before Ollama said it was done".to_owned()))
    }

    fn whole(&mut self, body: &str, out: &mut Vec<Delta>) -> Result<(), ProviderError> {
        self.piece(body, out)?;
        self.end(out)
    }
}

impl Reader {
    fn say(&mut self, more: &str) {
        self.keep_thinking();
        match self.content.last_mut() {
            Some(Said::Text { text }) => text.push_str(more),
            _ => self.content.push(Said::Text { text: more.to_owned() }),
        }
    }

    /// Puts what was thought so far into the reply, where it belongs.
    fn keep_thinking(&mut self) {
        if !self.thinking.is_empty() {
            let thinking = std::mem::take(&mut self.thinking);
            let json = json!({"thinking": thinking});
            self.content.push(Said::Native { provider: NAME.to_owned(), json });
        }
    }
}

#[cfg(test)]
mod tests {
    use toolcrib_tokens::Usage;

    use super::http::Reader as _;
    use super::*;
    use crate::provider::StopReason;

    const LINES: [&str; 7] = [
        r#"{"model":"qwen3","created_at":"2026-01-01T00:00:00Z","message":{"role":"assistant","content":"","thinking":"Two "},"done":false}"#,
        r#"{"model":"qwen3","message":{"role":"assistant","content":"","thinking":"tools."},"done":false}"#,
        r#"{"model":"qwen3","message":{"role":"assistant","content":"I'll "},"done":false}"#,
        r#"{"model":"qwen3","message":{"role":"assistant","content":"look.","new_field":[1]},"done":false}"#,
        r#"{"model":"qwen3","message":{"role":"assistant","content":"","tool_calls":[{"function":{"index":0,"name":"add","arguments":{"a": 1, "b":2.0}}},{"id":"call_1","function":{"name":"list"}}]},"done":false}"#,
        r#"{"model":"qwen3","message":{"role":"assistant","content":"","tool_calls":[{"function":{"name":"odd","arguments":"{\"x\": 1}"}}]},"done":false}"#,
        r#"{"model":"qwen3","message":{"role":"assistant","content":""},"done_reason":"stop","done":true,"total_duration":5,"load_duration":1,"prompt_eval_count":26,"eval_count":290}"#,
    ];

    fn call(name: &str, arguments: &str) -> Said {
        Said::Call(ToolCall { id: String::new(), name: name.into(), arguments: arguments.into() })
    }

    fn read(lines: &[&str]) -> (Vec<Delta>, Result<(), ProviderError>) {
        let (mut reader, mut out) = (Reader::default(), Vec::new());
        let pieces = lines.iter().try_for_each(|line| reader.piece(line, &mut out));
        let end = pieces.and_then(|()| reader.end(&mut out));
        (out, end)
    }

    #[test]
    fn an_answer_is_told_piece_by_piece_and_then_whole() {
        let text = |text: &str| Delta::Text(text.into());
        let begin = |index, name: &str| Delta::Call { index, name: name.into() };
        let arguments = |index, text: &str| Delta::Arguments { index, text: text.into() };
        let content = vec![
            Said::Native { provider: "ollama".into(), json: json!({"thinking": "Two tools."}) },
            Said::Text { text: "I'll look.".into() },
            call("add", r#"{"a": 1, "b":2.0}"#),
            call("list", ""),
            call("odd", r#"{"x": 1}"#),
        ];
        let usage = Usage { uncached: 26, output: 290, ..Usage::default() };
        let expected = vec![
            Delta::Thinking("Two ".into()),
            Delta::Thinking("tools.".into()),
            text("I'll "),
            text("look."),
            begin(0, "add"),
            arguments(0, r#"{"a": 1, "b":2.0}"#),
            begin(1, "list"),
            begin(2, "odd"),
            arguments(2, r#"{"x": 1}"#),
            Delta::Finished(Reply { content, stop: StopReason::End, usage }),
        ];
        assert_eq!(read(&LINES), (expected, Ok(())));
    }

    #[test]
    fn an_answer_cut_short_is_broken() {
        for count in 0..LINES.len() {
            let (out, end) = read(&LINES[..count]);
            assert!(matches!(end, Err(ProviderError::Broken(_))), "{count}: {end:?}");
            assert!(!out.iter().any(|delta| matches!(delta, Delta::Finished(_))), "{count}");
        }
    }

    #[test]
    fn what_is_no_answer_is_broken_and_an_error_is_passed_on() {
        for odd in ["nonsense", "[]", "17", r#"{"message": 3}"#, r#"{"message": {"content": 3}}"#] {
            assert!(matches!(read(&[LINES[0], odd]).1, Err(ProviderError::Broken(_))), "{odd}");
        }
        assert_eq!(
            read(&[LINES[2], r#"{"error":"unexpected EOF"}"#]),
            (
                vec![Delta::Text("I'll ".into())],
                Err(ProviderError::Failed("unexpected EOF".into()))
            )
        );
    }

    #[test]
    fn an_answer_says_why_it_ended() {
        for (reason, stop) in [
            (r#""stop""#, StopReason::End),
            ("null", StopReason::End),
            (r#""length""#, StopReason::Length),
            (r#""load""#, StopReason::Other("load".into())),
        ] {
            let line = format!(r#"{{"message":{{}},"done":true,"done_reason":{reason}}}"#);
            let reply = Reply { stop, ..Reply::default() };
            assert_eq!(read(&[&line]), (vec![Delta::Finished(reply)], Ok(())));
        }
    }

    #[test]
    fn an_answer_in_one_piece_is_read_too() {
        let body = "{\n  \"message\": {\"role\": \"assistant\", \"content\": \"Hi.\"},\n  \"done\": true\n}";
        let mut out = Vec::new();
        assert_eq!(Reader::default().whole(body, &mut out), Ok(()));
        let content = vec![Said::Text { text: "Hi.".into() }];
        let reply = Reply { content, ..Reply::default() };
        assert_eq!(out, [Delta::Text("Hi.".into()), Delta::Finished(reply)]);
    }

    #[test]
    fn an_answer_without_end_is_broken() {
        let long = format!(r#"{{"message":{{"content":"{}"}}}}"#, "x".repeat(1 << 20));
        let (mut reader, mut out) = (Reader::default(), Vec::new());
        let read = (0..40).try_for_each(|_| {
            out.clear();
            reader.piece(&long, &mut out)
        });
        assert!(matches!(read, Err(ProviderError::Broken(_))), "{read:?}");
    }
}
