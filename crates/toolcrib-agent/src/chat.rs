//! A conversation with an agent.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::channel::mpsc::{UnboundedReceiver, unbounded};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use toolcrib_core::{ResumeError, ResumeReport, Saved};
use toolcrib_runtime::Conversation;

use crate::agent::Agent;
use crate::event::{Answer, Event};
use crate::history::mend;
use crate::message::Message;
use crate::permission::Remembered;
use crate::run::{Emitter, Run};

/// A conversation with an [`Agent`]: its history and what it has loaded.
pub struct Chat {
    agent: Agent,
    conversation: Conversation,
    history: Vec<Arc<Message>>,
    remembered: Remembered,
    steering: Steering,
    cancel: CancellationToken,
}

impl Chat {
    pub(crate) fn new(
        agent: Agent,
        conversation: Conversation,
        history: Vec<Arc<Message>>,
    ) -> Self {
        Self {
            agent,
            conversation,
            history,
            remembered: Remembered::default(),
            steering: Steering::default(),
            cancel: CancellationToken::new(),
        }
    }

    /// Says something and waits for the answer.
    pub async fn send(&mut self, message: impl Into<Input>) -> Answer {
        let mut events = self.stream(message);
        let mut answer = Answer::default();
        while let Some(event) = events.next().await {
            if let Event::RunFinished(finished) = event {
                answer = finished;
            }
        }
        answer
    }

    /// Says something and follows what happens. Nothing happens unless the stream is read; one
    /// that is dropped stops where it is.
    pub fn stream(&mut self, message: impl Into<Input>) -> Events<'_> {
        let (sender, receiver) = unbounded();
        let Input(input) = message.into();
        let run = Run {
            agent: &self.agent.0,
            conversation: &self.conversation,
            history: &mut self.history,
            remembered: &self.remembered,
            steering: &self.steering,
            cancel: std::mem::take(&mut self.cancel),
            emit: Emitter(sender),
            key: None,
        };
        Events { run: Some(run.drive(input).boxed()), receiver }
    }

    /// Everything said so far. After a run that was dropped it may end in calls without results;
    /// the next run mends that, and so does [`mend`].
    pub fn history(&self) -> &[Arc<Message>] {
        &self.history
    }

    /// Puts another history in place of this one: a shorter one, for instance. What is loaded
    /// stays loaded.
    pub fn set_history(&mut self, history: Vec<Arc<Message>>) {
        self.history = history;
        mend(&mut self.history);
    }

    /// Adds to the history without asking the model.
    pub fn push(&mut self, message: Message) {
        self.history.push(Arc::new(message));
    }

    /// What the conversation has loaded, and may see.
    pub fn conversation(&self) -> &Conversation {
        &self.conversation
    }

    /// The agent it is with.
    pub fn agent(&self) -> &Agent {
        &self.agent
    }

    /// Lets somebody put in a word while a run is under way.
    pub fn steering(&self) -> Steering {
        self.steering.clone()
    }

    /// Stops the next run, or the one that is under way. The history stays valid, and the
    /// conversation can be gone on with; each run needs a token of its own.
    pub fn cancellation(&self) -> CancellationToken {
        self.cancel.clone()
    }

    /// A conversation that goes its own way from here. Nothing it does reaches this one.
    pub fn fork(&self) -> Self {
        self.forked(self.conversation.fork())
    }

    /// The same, which can call what is loaded but load nothing more.
    pub fn fork_without_loading(&self) -> Self {
        self.forked(self.conversation.fork_without_loading())
    }

    /// The same conversation with another agent: another model, other settings. It keeps its
    /// strategy, its history, what it has loaded and what it was permitted; what the other agent
    /// does not have is reported.
    pub async fn moved_to(&self, agent: &Agent) -> Result<(Self, ResumeReport), ResumeError> {
        let (session, history) = (self.conversation.session(), self.history.clone());
        let (chat, report) = match session.strategy() {
            Some(strategy) => {
                let saved = Saved::Snapshot(Box::new(session.snapshot()));
                agent.resume(saved, strategy, history).await?
            }
            // Nothing has been asked yet, so there is nothing to keep.
            None => (Self { history, ..agent.chat() }, ResumeReport::default()),
        };
        Ok((Self { remembered: self.remembered.fork(), ..chat }, report))
    }

    fn forked(&self, conversation: Conversation) -> Self {
        let mut history = self.history.clone();
        mend(&mut history);
        let remembered = self.remembered.fork();
        Self { remembered, ..Self::new(self.agent.clone(), conversation, history) }
    }
}

/// What is said to begin a run: text, messages, or nothing, to let the model go on.
pub struct Input(pub(crate) Vec<Message>);

impl Input {
    /// Nothing: the model answers to the history as it is.
    pub fn none() -> Self {
        Self(Vec::new())
    }
}

impl From<&str> for Input {
    fn from(text: &str) -> Self {
        Self(vec![Message::user(text)])
    }
}

impl From<String> for Input {
    fn from(text: String) -> Self {
        Self(vec![Message::user(text)])
    }
}

impl From<Message> for Input {
    fn from(message: Message) -> Self {
        Self(vec![message])
    }
}

impl From<Vec<Message>> for Input {
    fn from(messages: Vec<Message>) -> Self {
        Self(messages)
    }
}

/// Puts in a word while a run is under way: the model reads it after the calls it has made, or
/// goes on because of it when it would have ended.
#[derive(Clone, Debug, Default)]
pub struct Steering(Arc<Mutex<VecDeque<Message>>>);

impl Steering {
    /// Says something.
    pub fn say(&self, message: impl Into<Input>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(message.into().0);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
    }

    pub(crate) fn take(&self) -> Vec<Message> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).drain(..).collect()
    }
}

/// What happens during a run, ending with [`Event::RunFinished`].
#[must_use = "a run goes only as far as its events are read"]
pub struct Events<'a> {
    run: Option<BoxFuture<'a, ()>>,
    receiver: UnboundedReceiver<Event>,
}

impl Stream for Events<'_> {
    type Item = Event;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Event>> {
        // What has happened is handed out before more is let happen.
        let mut next = self.receiver.poll_next_unpin(context);
        if next.is_pending()
            && let Some(run) = &mut self.run
        {
            if run.poll_unpin(context).is_ready() {
                self.run = None;
            }
            next = self.receiver.poll_next_unpin(context);
        }
        // Nothing comes after the answer, whatever a tool still has to say.
        if let Poll::Ready(Some(Event::RunFinished(_))) = &next {
            self.run = None;
            self.receiver.close();
        }
        match next {
            Poll::Pending if self.run.is_none() => Poll::Ready(None),
            next => next,
        }
    }
}
