//! Where a run asks whether a tool may run, and where it is answered.

use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::{mpsc, oneshot};
use toolcrib::agent::{Approval, Approver, PendingCall};

/// Where an agent asks. It is answered where the run is followed, so that nothing is asked about
/// before what led to it is shown.
#[derive(Clone)]
pub(crate) struct Desk(mpsc::UnboundedSender<Question>);

/// The other side of the desk.
pub(crate) struct Counter(mpsc::UnboundedReceiver<Question>);

/// Whether a tool may run.
pub(super) struct Question {
    pub(super) call: PendingCall,
    answer: oneshot::Sender<Approval>,
}

impl Desk {
    /// Both sides of a new desk.
    pub(crate) fn open() -> (Self, Counter) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), Counter(receiver))
    }
}

impl Approver for Desk {
    fn ask<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Approval> {
        let (answer, answered) = oneshot::channel();
        let asked = self.0.send(Question { call: call.clone(), answer });
        async move {
            match asked {
                Ok(()) => answered.await.unwrap_or(Approval::No(None)),
                Err(_) => Approval::No(None),
            }
        }
        .boxed()
    }
}

impl Counter {
    /// The next question that somebody still waits for.
    pub(super) async fn next(&mut self) -> Question {
        loop {
            match self.0.recv().await {
                Some(question) if question.answer.is_closed() => {}
                Some(question) => return question,
                None => std::future::pending().await,
            }
        }
    }
}

impl Question {
    pub(super) fn answer(self, approval: Approval) {
        // Whoever asked may have given up meanwhile.
        let _ = self.answer.send(approval);
    }
}
