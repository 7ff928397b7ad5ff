//! A conversation with an agent.

use std::collections::{BTreeMap, VecDeque};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender, unbounded};
use futures::future::BoxFuture;
use futures::{FutureExt, Stream, StreamExt};
use tokio_util::sync::CancellationToken;
use toolcrib_core::{ResumeError, ResumeReport, Saved};
use toolcrib_runtime::{Conversation, SessionStore};
use toolcrib_tokens::Usage;

use crate::agent::Agent;
use crate::event::{Answer, Compaction, End, Event};
use crate::history::mend;
use crate::keeping::{Keeper, Unfinished};
use crate::message::Message;
use crate::permission::Remembered;
use crate::reopen::answer_known;
use crate::run::{Emitter, Run};
use crate::spending::{Meter, Spent};

/// A conversation with an [`Agent`]: its history and what it has loaded.
pub struct Chat {
    agent: Agent,
    conversation: Conversation,
    history: Vec<Arc<Message>>,
    remembered: Remembered,
    steering: Steering,
    cancel: CancellationToken,
    /// Keeps it, if it is kept.
    keeper: Option<Keeper>,
    meter: Meter,
    /// What the last answer took, and how many messages there were before it.
    last: Option<(Usage, usize)>,
    unfinished: Unfinished,
    /// What was added to the history and could not be kept, so that nobody was told.
    untold: Vec<Arc<Message>>,
    /// What its requests have in common.
    key: Option<Arc<str>>,
}

impl Chat {
    pub(crate) fn new(
        agent: Agent,
        conversation: Conversation,
        history: Vec<Arc<Message>>,
    ) -> Self {
        let meter = agent.meter(Spent::default());
        Self {
            agent,
            conversation,
            history,
            remembered: Remembered::default(),
            steering: Steering::default(),
            cancel: CancellationToken::new(),
            keeper: None,
            unfinished: Unfinished::default(),
            untold: Vec::new(),
            key: None,
            meter,
            last: None,
        }
    }

    /// The same conversation, kept in a session of its own: each message, each load and each
    /// result when it is there, so that a program that is killed loses at most the call that was
    /// running. The session begins with the next run, with all that was said so far; `labels` are
    /// what a list tells of it. [`Agent::reopen`] brings it back.
    pub fn kept_in(self, store: Arc<dyn SessionStore>, labels: BTreeMap<String, String>) -> Self {
        // What the session that it was in has open is that one's to make.
        let unfinished = Unfinished::new(self.unfinished.calls(), false);
        Self { keeper: Some(Keeper::new(store, labels)), unfinished, ..self }
    }

    /// Goes on where another program ended.
    pub(crate) fn take_up(&mut self, keeper: Keeper, unfinished: Unfinished, spent: Spent) {
        self.keeper = Some(keeper);
        self.unfinished = unfinished;
        self.meter = self.agent.meter(spent);
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
        Events { run: Some(self.run(sender).drive(input).boxed()), receiver }
    }

    fn run(&mut self, sender: UnboundedSender<Event>) -> Run<'_> {
        Run {
            agent: &self.agent.0,
            conversation: &self.conversation,
            history: &mut self.history,
            remembered: &self.remembered,
            steering: &self.steering,
            cancel: std::mem::take(&mut self.cancel),
            emit: Emitter(sender),
            key: &mut self.key,
            keeper: self.keeper.as_mut(),
            unfinished: &mut self.unfinished,
            untold: &mut self.untold,
            unkept: None,
            may_compact: true,
            meter: &mut self.meter,
            last: &mut self.last,
        }
    }

    /// Puts a summary by the model in place of the older part of the conversation, which a run
    /// does by itself when the window fills up. `None` if there is nothing to be summarised.
    pub async fn compact(&mut self) -> Result<Option<Compaction>, End> {
        let (sender, mut receiver) = unbounded();
        let done = self.run(sender).compact_only().await;
        receiver.close();
        while let Some(event) = receiver.next().await {
            if let Event::Compacted(compaction) = event {
                return done.map(|()| Some(compaction));
            }
        }
        done.map(|()| None)
    }

    /// Everything said so far. After a run that was dropped it may end in calls without results;
    /// the next run mends that, and so does [`mend`].
    pub fn history(&self) -> &[Arc<Message>] {
        &self.history
    }

    /// The session it is kept in, from its first message on.
    pub fn session_id(&self) -> Option<&str> {
        self.keeper.as_ref()?.id()
    }

    /// What it has cost so far, and what it would have cost with every schema sent.
    pub fn spent(&self) -> &Spent {
        self.meter.spent()
    }

    /// Whether it ends in something that the model has not answered.
    pub fn is_unanswered(&self) -> bool {
        match self.history.last().map(|message| &**message) {
            None => false,
            Some(Message::Assistant(said)) => said.calls().next().is_some(),
            Some(_) => true,
        }
    }

    /// Puts another history in place of this one: a shorter one, for instance. What is loaded
    /// stays loaded. A conversation that is kept keeps it from its next run on.
    pub fn set_history(&mut self, history: Vec<Arc<Message>>) {
        let before = std::mem::replace(&mut self.history, history);
        answer_known(&mut self.history, &self.unfinished.calls());
        mend(&mut self.history);
        self.unfinished = Unfinished::default();
        self.untold.clear();
        (self.last, self.key) = (None, None);
        if let Some(keeper) = &mut self.keeper {
            keeper.differs_from(in_common(&before, &self.history));
        }
    }

    /// Adds to the history without asking the model.
    pub fn push(&mut self, message: Message) {
        answer_known(&mut self.history, &self.unfinished.calls());
        self.unfinished = Unfinished::default();
        self.history.push(Arc::new(message));
    }

    /// Keeps what has changed besides runs, if the conversation is kept: what its host has loaded
    /// or added to the history. A run does so by itself.
    pub async fn save(&mut self) -> Result<(), End> {
        let (sender, _receiver) = unbounded();
        self.run(sender).save_only().await
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

    /// Goes on with another agent: another model, other settings. The conversation has its
    /// history, what is loaded and what was permitted as before; what the other agent does not
    /// have is reported. If it can't be, it stays with the agent it is with.
    pub async fn move_to(&mut self, agent: &Agent) -> Result<ResumeReport, ResumeError> {
        let snapshot = self.conversation.snapshot();
        let (conversation, report) = match snapshot.strategy() {
            Some(strategy) => {
                let (snapshot, strategy, note) = agent.can_go_on(snapshot, strategy);
                let saved = Saved::Snapshot(Box::new(snapshot));
                let policy = agent.policy().clone();
                let (conversation, mut report) =
                    agent.crib().resume(saved, strategy, policy).await?;
                report.notes.extend(note);
                (conversation, report)
            }
            // Nothing has been asked yet, so there is nothing to bring along.
            None => {
                let session = self.conversation.session();
                let conversation = agent.crib().converse(session, agent.policy().clone());
                (conversation, ResumeReport::default())
            }
        };
        self.agent = agent.clone();
        self.conversation = conversation;
        self.key = None;
        self.meter = agent.meter(self.meter.spent().clone());
        Ok(report)
    }

    fn forked(&self, conversation: Conversation) -> Self {
        let mut history = self.history.clone();
        answer_known(&mut history, &self.unfinished.calls());
        mend(&mut history);
        let remembered = self.remembered.fork();
        Self { remembered, ..Self::new(self.agent.clone(), conversation, history) }
    }
}

/// How many messages two histories have in common, from the front.
pub(crate) fn in_common(one: &[Arc<Message>], other: &[Arc<Message>]) -> usize {
    one.iter().zip(other).take_while(|(one, other)| Arc::ptr_eq(one, other)).count()
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
