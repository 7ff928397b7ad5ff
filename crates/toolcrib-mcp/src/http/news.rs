//! The stream on which a server tells what has changed.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderValue};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use toolcrib_wire::version::meta;
use toolcrib_wire::{Era, Id};

use super::Wire;
use super::exchange::{Place, is_stream};

/// How long to wait before the stream is asked for again, at first and at most.
const PAUSE: Duration = Duration::from_secs(1);
const MOST_PAUSE: Duration = Duration::from_secs(300);

/// A stream that lasted this long was a good one.
const GOOD: Duration = Duration::from_secs(60);

impl Wire {
    /// Listens as long as the server has something to listen to.
    ///
    /// What is given as `until_heard` is dropped when the server has answered.
    pub(super) async fn listen(self: Arc<Self>, filter: Value, until_heard: impl Send) {
        // A server that ends the stream again and again is asked less and less often.
        let mut pause = PAUSE;
        let mut is_first = true;
        let mut until_heard = Some(until_heard);
        while self.board.is_open() {
            let began = Instant::now();
            if !self.hear_news(&filter, is_first, until_heard.take()).await {
                return;
            }
            is_first = false;
            if began.elapsed() >= GOOD {
                pause = PAUSE;
            }
            sleep(pause).await;
            pause = (pause * 2).min(MOST_PAUSE);
        }
    }

    /// Reads one stream of news; says whether it is worth asking again.
    async fn hear_news(
        self: &Arc<Self>,
        filter: &Value,
        is_first: bool,
        until_heard: Option<impl Send>,
    ) -> bool {
        let request = if self.era() == Some(Era::Stateless) {
            let method = "subscriptions/listen";
            let params = json!({
                "notifications": filter,
                "_meta": {
                    (meta::PROTOCOL_VERSION): Era::Stateless.newest(),
                    (meta::CLIENT_INFO): crate::handshake::client_info(),
                    (meta::CLIENT_CAPABILITIES): {},
                },
            });
            let id = Id::Text("news".to_owned());
            let body = toolcrib_wire::request(&id, method, Some(&params));
            self.client.post(&self.url).headers(self.headers_for(method, None)).body(body)
        } else {
            let mut headers = self.headers();
            headers.insert(ACCEPT, HeaderValue::from_static("text/event-stream"));
            self.client.get(&self.url).headers(headers)
        };
        let response = self.send_as_is(request).await;
        drop(until_heard);
        self.has_news.send_replace(true);
        match response {
            Ok(response) if response.status().is_success() && is_stream(&response) => {
                if !is_first {
                    // What happened meanwhile was told to nobody.
                    self.board.suspect_all();
                }
                let _ = self.read_stream(response, None, &mut Place::default()).await;
                true
            }
            // These may pass.
            Ok(response) => {
                let status = response.status();
                status.is_server_error() || [401, 408, 429].contains(&status.as_u16())
            }
            Err(_) => true,
        }
    }
}
