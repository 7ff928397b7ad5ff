//! A provider that needs no model.

mod demo;
mod turn;
mod usage;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::stream::{self, BoxStream, StreamExt};

use crate::provider::{Delta, Provider, ProviderError, Request};
pub use turn::Turn;
use usage::{Prompts, Seen};

/// Says what it was told to say, and keeps what it was asked. For tests, and for trying things
/// out without a model.
///
/// An answer comes as a model's would: text a few words at a time, arguments in pieces, one call
/// after the other. Its usage is estimated by counting what was sent (`o200k_base`); whatever the
/// conversation's request before began with alike is counted as read from a cache. Requests
/// without a [`Request::cache_key`] have none, nor has a conversation that 1,024 others have been
/// heard of since.
///
/// Clones are handles to one script.
///
/// ```
/// use serde_json::json;
/// use toolcrib_agent::{Scripted, Turn};
///
/// let model = Scripted::new([
///     Turn::call("add", json!({"a": 1, "b": 2})).with_text("Let me see."),
///     Turn::text("It's 3."),
/// ]);
/// // … a conversation later:
/// for request in model.requests() {
///     println!("{} messages", request.messages.len());
/// }
/// ```
#[derive(Clone)]
pub struct Scripted {
    script: Arc<Script>,
    pace: Duration,
}

struct Script {
    source: Source,
    state: Mutex<State>,
}

enum Source {
    /// In order, once each.
    Listed,
    By(Box<dyn Fn(&Request) -> Turn + Send + Sync>),
}

#[derive(Default)]
struct State {
    turns: VecDeque<Turn>,
    played: usize,
    records: bool,
    requests: Vec<Request>,
    seen: Prompts,
}

impl Scripted {
    /// Plays these turns in order, one for each request. After the last one every request is
    /// rejected.
    pub fn new<T: Into<Turn>>(turns: impl IntoIterator<Item = T>) -> Self {
        let turns = turns.into_iter().map(Into::into).collect();
        Self::of(Source::Listed, State { turns, records: true, ..State::default() })
    }

    /// Answers every request with what a function makes of it.
    pub fn by(answer: impl Fn(&Request) -> Turn + Send + Sync + 'static) -> Self {
        let state = State { records: true, ..State::default() };
        Self::of(Source::By(Box::new(answer)), state)
    }

    /// Does what a person types: `search WORDS`, `call NAME {"json": "arguments"}`, several lines
    /// for several calls at once. For anything else it searches, and calls the best tool it finds
    /// if that one needs no arguments. It keeps no requests.
    pub fn demo() -> Self {
        Self::of(Source::By(Box::new(demo::answer)), State::default())
    }

    /// Waits this long before every piece of an answer.
    pub fn with_pace(mut self, pace: Duration) -> Self {
        self.pace = pace;
        self
    }

    /// Keeps no requests from now on: for very many of them.
    pub fn without_record(self) -> Self {
        self.script.state().records = false;
        self
    }

    /// The requests so far, oldest first.
    pub fn requests(&self) -> Vec<Request> {
        self.script.state().requests.clone()
    }

    fn of(source: Source, state: State) -> Self {
        let script = Arc::new(Script { source, state: Mutex::new(state) });
        Self { script, pace: Duration::ZERO }
    }
}

impl Script {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn next(&self, request: &Request) -> Turn {
        match &self.source {
            Source::By(answer) => answer(request),
            Source::Listed => {
                let mut state = self.state();
                match state.turns.pop_front() {
                    Some(turn) => {
                        state.played += 1;
                        turn
                    }
                    None => Turn::error(ProviderError::Rejected(format!(
                        "the script has ended: it has {} turns, and this is one request more",
                        state.played
                    ))),
                }
            }
        }
    }
}

impl Provider for Scripted {
    fn name(&self) -> &str {
        "scripted"
    }

    fn stream(&self, request: Request) -> BoxStream<'static, Result<Delta, ProviderError>> {
        let turn = self.script.next(&request);
        let prompt = usage::prompt(&request);
        let key = request.cache_key.clone();
        let before = key.as_deref().and_then(|key| self.script.state().seen.get(key));
        let (seen, mut usage) = Seen::of(&prompt, before.as_ref());
        usage.output = turn.tokens();
        let mut state = self.script.state();
        if let Some(key) = key {
            state.seen.insert(key, seen);
        }
        if state.records {
            state.requests.push(request);
        }
        drop(state);
        let (deltas, hangs) = turn.play(usage);
        let pace = self.pace;
        let paced = stream::iter(deltas).then(move |delta| async move {
            if !pace.is_zero() {
                tokio::time::sleep(pace).await;
            }
            delta
        });
        if hangs { paced.chain(stream::pending()).boxed() } else { paced.boxed() }
    }
}

impl fmt::Debug for Scripted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.script.state();
        f.debug_struct("Scripted")
            .field("turns_left", &state.turns.len())
            .field("requests", &state.requests.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::message::{Message, Said};
    use crate::provider::{Reply, StopReason};

    fn request(texts: &[&str]) -> Request {
        let messages = texts.iter().map(|text| Message::user(*text));
        Request {
            system: "Be brief.".into(),
            sees_images: false,
            cache_key: Some("one".into()),
            ..Request::new("scripted", messages)
        }
    }

    async fn ask(model: &Scripted, texts: &[&str]) -> Vec<Result<Delta, ProviderError>> {
        model.stream(request(texts)).collect().await
    }

    fn reply(items: &[Result<Delta, ProviderError>]) -> Reply {
        match items.last() {
            Some(Ok(Delta::Finished(reply))) => reply.clone(),
            other => panic!("{other:?}"),
        }
    }

    #[tokio::test]
    async fn turns_are_played_in_order_and_then_there_are_none() {
        let model = Scripted::new(["one", "two"]);
        let handle = model.clone();
        for text in ["one", "two"] {
            assert_eq!(
                reply(&ask(&model, &["Hi"]).await).content,
                [Said::Text { text: text.into() }]
            );
        }
        let over = ask(&handle, &["And?"]).await;
        assert!(matches!(&over[..], [Err(ProviderError::Rejected(_))]), "{over:?}");
        let asked = handle.requests();
        assert_eq!(asked.len(), 3);
        assert_eq!(*asked[2].messages[0], Message::user("And?"));
    }

    #[tokio::test]
    async fn an_answer_comes_in_pieces() {
        let text = "Tools that wait are loaded when they are needed, not before.";
        let arguments = json!({"query": "weather in Oslo", "limit": 3});
        let turn = Turn::call("tool_search", arguments.clone()).with_text(text);
        let items = ask(&Scripted::new([turn]), &["Hi"]).await;
        let (mut said, mut written, mut pieces) = (String::new(), String::new(), 0);
        for item in &items {
            match item.as_ref().unwrap() {
                Delta::Text(piece) => {
                    assert!(written.is_empty() && piece.len() < 20, "{piece}");
                    pieces += 1;
                    said += piece;
                }
                Delta::Arguments { index: 0, text } => written += text,
                Delta::Call { index: 0, name } => assert_eq!(name, "tool_search"),
                Delta::Finished(_) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(pieces > 4 && items.len() > pieces + 4, "{items:?}");
        assert_eq!(said, text);
        assert_eq!(serde_json::from_str::<serde_json::Value>(&written).unwrap(), arguments);
        let Reply { content, stop, usage } = reply(&items);
        assert_eq!((content.len(), stop), (2, StopReason::End));
        assert!(usage.output > 15 && usage.uncached > 0, "{usage:?}");
    }

    #[tokio::test]
    async fn what_was_sent_before_is_read_from_the_cache() {
        let model = Scripted::by(|_| Turn::text("Yes."));
        let first = reply(&ask(&model, &["Is it raining?"]).await).usage;
        let second = reply(&ask(&model, &["Is it raining?", "Still?"]).await).usage;
        assert_eq!((first.read, second.read), (0, first.uncached));
        assert!(second.uncached > 0 && second.uncached < first.uncached, "{second:?}");
        let other = reply(&ask(&model, &["Is it snowing?", "Still?"]).await).usage;
        assert_eq!(other.read, 0);
    }

    #[tokio::test]
    async fn requests_without_a_key_share_no_cache() {
        let model = Scripted::by(|_| Turn::text("Yes."));
        let without_key = || Request { cache_key: None, ..request(&["Is it raining?"]) };
        for _ in 0..2 {
            let items: Vec<_> = model.stream(without_key()).collect().await;
            assert_eq!(reply(&items).usage.read, 0);
        }
    }

    #[tokio::test]
    async fn it_fails_breaks_off_and_hangs_where_it_is_told_to() {
        let failed = ProviderError::Failed("no".into());
        let model = Scripted::new([
            Turn::error(failed.clone()),
            Turn::text("a few words are said").cut_after(1),
            Turn::text("cut at the very end").cut_after(99),
            Turn::text("a few words are said").hang_after(1),
        ]);
        assert_eq!(ask(&model, &["Hi"]).await, [Err(failed)]);
        let cut = ask(&model, &["Hi"]).await;
        assert!(matches!(&cut[..], [Ok(Delta::Text(_)), Err(ProviderError::Broken(_))]), "{cut:?}");
        let cut = ask(&model, &["Hi"]).await;
        assert!(matches!(cut.last(), Some(Err(ProviderError::Broken(_)))), "{cut:?}");
        let mut hanging = model.stream(request(&["Hi"]));
        assert!(matches!(hanging.next().await, Some(Ok(Delta::Text(_)))));
        let more = tokio::time::timeout(Duration::from_millis(20), hanging.next()).await;
        assert!(more.is_err(), "{more:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn the_pace_is_kept() {
        let model = Scripted::new(["one two three four five six"]);
        let started = tokio::time::Instant::now();
        let items = ask(&model.with_pace(Duration::from_secs(1)), &["Hi"]).await;
        assert_eq!(started.elapsed().as_secs(), items.len() as u64);
    }
}
