//! What a server tells without being asked, for whoever it may concern.

use std::sync::Arc;

use tokio::sync::Notify;
use tokio::sync::broadcast::{Receiver, error::RecvError};
use tokio::time::{Duration, sleep, timeout};
use toolcrib_runtime::News;
use toolcrib_wire::Fields;

use super::Inner;
use super::lanes::LaneKey;
use super::watch::{MOST_SETTLING, SETTLING};
use crate::board::Noticed;
use crate::connection::Connection;
use crate::list;

impl Inner {
    /// Passes on what a connection tells, until it ends.
    pub(super) async fn pass_on(
        &self,
        key: LaneKey,
        mut noticed: Receiver<Noticed>,
        rest_changed: &Notify,
    ) {
        loop {
            let Noticed { method, params } = match noticed.recv().await {
                Ok(noticed) => noticed,
                Err(RecvError::Lagged(_)) => {
                    // Anything may have been among what was missed.
                    rest_changed.notify_one();
                    self.tell_all_updated(key.into());
                    continue;
                }
                // The connection goes, and this with it.
                Err(RecvError::Closed) => return std::future::pending().await,
            };
            match (&*method, key) {
                (
                    "notifications/prompts/list_changed" | "notifications/resources/list_changed",
                    _,
                ) => {
                    rest_changed.notify_one();
                }
                ("notifications/resources/updated", _) => {
                    let fields = params.as_ref().and_then(|raw| Fields::parse(raw.get()));
                    let uri = fields.and_then(|fields| fields.read::<String>("uri"));
                    match uri {
                        Some(uri) => self.tell_changed(key.into(), &uri),
                        // It is not said which.
                        None => self.tell_all_updated(key.into()),
                    }
                }
                (_, LaneKey::Own(party)) => {
                    self.tell_news(Some(News::For { party, method, params }));
                }
                // Nobody knows whom it is for.
                _ => tracing::trace!(method = &*method, "not passed on"),
            }
        }
    }

    pub(super) fn tell_news(&self, news: Option<News>) {
        if let Some(news) = news {
            // Nobody may be there to hear.
            let _ = self.news.send(news);
        }
    }

    /// Keeps what is offered beside tools, whenever it may have changed.
    pub(super) async fn keep_rest(&self, connection: &Arc<Connection>, changed: &Notify) {
        let mut settling = Duration::ZERO;
        loop {
            changed.notified().await;
            sleep(settling).await;
            let greeting =
                self.lock().running(connection).map(|(_, running)| running.greeting.clone());
            // The connection goes, and this with it.
            let Some(greeting) = greeting else { return std::future::pending().await };
            let rest = list::rest(connection, &greeting, &self.config.name, &self.secrets);
            let rest = timeout(self.config.start_limit, rest).await;
            let is_news = rest.is_ok_and(|rest| self.keep_offers(rest));
            let longer = (settling * 2).clamp(SETTLING, MOST_SETTLING);
            settling = if is_news { SETTLING } else { longer };
        }
    }
}
