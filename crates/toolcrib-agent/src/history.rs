//! What keeps a history valid.

use std::collections::HashSet;
use std::sync::Arc;

use crate::message::{CallResult, Message, Part, Said, ToolCall};

/// What stands in for the result of a call that nobody saw the end of.
pub(crate) const INTERRUPTED: &str = "The run was interrupted before this call had a result. It may or may \
                           not have taken effect.";

/// Makes a history valid that was cut off: calls without a result get one that says so, and
/// results without a call go. Says how many messages it touched.
pub fn mend(history: &mut Vec<Arc<Message>>) -> usize {
    let mut touched = 0;
    let mut at = 0;
    while at < history.len() {
        let calls: Vec<ToolCall> = match &*history[at] {
            Message::Assistant(said) => said.calls().cloned().collect(),
            Message::Tool { .. } => {
                // Whatever comes after an assistant's calls is passed over below.
                history.remove(at);
                touched += 1;
                continue;
            }
            _ => Vec::new(),
        };
        at += 1;
        if calls.is_empty() {
            continue;
        }
        let found = history.get(at).map(|next| &**next);
        let given = match found {
            Some(Message::Tool { results }) => results.as_slice(),
            _ => &[],
        };
        let answers = |call: &ToolCall| given.iter().find(|result| result.call_id == call.id);
        let is_whole = given.len() == calls.len()
            && calls.iter().zip(given).all(|(call, result)| call.id == result.call_id);
        if !is_whole {
            let results = calls.iter().map(|call| match answers(call) {
                Some(result) => result.clone(),
                None => failure(call, INTERRUPTED),
            });
            let mended = Arc::new(Message::Tool { results: results.collect() });
            match found {
                Some(Message::Tool { .. }) => history[at] = mended,
                _ => history.insert(at, mended),
            }
            touched += 1;
        }
        at += 1;
    }
    touched
}

/// A result that tells of a failure.
pub(crate) fn failure(call: &ToolCall, text: impl Into<String>) -> CallResult {
    CallResult {
        call_id: call.id.clone(),
        name: call.name.clone(),
        content: vec![Part::text(text)],
        is_error: true,
        revealed: Vec::new(),
    }
}

/// The ids of calls in use.
pub(crate) struct Ids(HashSet<String>);

impl Ids {
    pub(crate) fn of(history: &[Arc<Message>]) -> Self {
        let calls = history.iter().flat_map(|message| match &**message {
            Message::Assistant(said) => said.calls().map(|call| call.id.clone()).collect(),
            _ => Vec::new(),
        });
        Self(calls.collect())
    }

    /// Gives every call an id that no other has. One that is missing or taken is replaced by the
    /// next number, so that the same replies get the same ids.
    pub(crate) fn settle(&mut self, content: &mut [Said]) {
        for said in content {
            let Said::Call(call) = said else { continue };
            if call.id.is_empty() || self.0.contains(&call.id) {
                let mut number = self.0.len() + 1;
                while self.0.contains(&format!("call_{number}")) {
                    number += 1;
                }
                call.id = format!("call_{number}");
            }
            self.0.insert(call.id.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::Assistant;

    fn call(id: &str) -> ToolCall {
        ToolCall { id: id.into(), name: "t".into(), arguments: "{}".into() }
    }

    fn said(ids: &[&str]) -> Message {
        Message::Assistant(Assistant {
            content: ids.iter().map(|id| Said::Call(call(id))).collect(),
        })
    }

    fn results(ids: &[&str]) -> Message {
        let result = |id: &&str| CallResult {
            call_id: (*id).into(),
            name: "t".into(),
            content: vec![Part::text("ok")],
            ..CallResult::default()
        };
        Message::Tool { results: ids.iter().map(result).collect() }
    }

    fn mended(messages: Vec<Message>) -> (usize, Vec<Message>) {
        let mut history: Vec<Arc<Message>> = messages.into_iter().map(Arc::new).collect();
        let touched = mend(&mut history);
        (touched, history.into_iter().map(Arc::unwrap_or_clone).collect())
    }

    #[test]
    fn a_valid_history_stays_as_it_is() {
        let valid = vec![
            Message::user("a"),
            said(&["1", "2"]),
            results(&["1", "2"]),
            Message::notice("n"),
            Message::user("b"),
            said(&[]),
        ];
        assert_eq!(mended(valid.clone()), (0, valid));
    }

    #[test]
    fn calls_without_results_get_one_and_results_without_calls_go() {
        let interrupted = |ids: &[&str]| Message::Tool {
            results: ids.iter().map(|id| failure(&call(id), INTERRUPTED)).collect(),
        };
        assert_eq!(mended(vec![said(&["1"])]), (1, vec![said(&["1"]), interrupted(&["1"])]));
        assert_eq!(
            mended(vec![said(&["1"]), Message::user("x")]),
            (1, vec![said(&["1"]), interrupted(&["1"]), Message::user("x")])
        );
        let (touched, history) =
            mended(vec![results(&["0"]), said(&["1", "2"]), results(&["2"]), results(&["3"])]);
        assert_eq!(touched, 3);
        let Message::Tool { results: both } = &history[1] else { panic!("{history:?}") };
        assert_eq!((both.len(), both[0].is_error, both[1].is_error), (2, true, false));
        assert_eq!(history.len(), 2);
        assert_eq!(mended(history).0, 0);
    }

    #[test]
    fn results_in_another_order_are_put_in_the_order_of_the_calls() {
        let (_, history) = mended(vec![said(&["1", "2"]), results(&["2", "1"])]);
        assert_eq!(history[1], results(&["1", "2"]));
    }

    #[test]
    fn missing_and_repeated_ids_are_replaced() {
        let mut ids = Ids::of(&[Arc::new(said(&["a", "call_3"]))]);
        let mut content = ["a", "", "b", "b"].map(|id| Said::Call(call(id)));
        ids.settle(&mut content);
        let given: Vec<&str> = content
            .iter()
            .map(|said| match said {
                Said::Call(call) => &*call.id,
                _ => "",
            })
            .collect();
        assert_eq!(given, ["call_4", "call_5", "b", "call_6"]);
    }
}
