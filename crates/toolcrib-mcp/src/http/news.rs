//! The stream on which a server tells that its tools have changed.

use std::sync::Arc;
use std::time::Duration;

use reqwest::header::{ACCEPT, HeaderValue};
use serde_json::json;
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
    pub(super) async fn listen(self: Arc<Self>) {
        // A server that ends the stream again and again is asked less and less often.
        let mut pause = PAUSE;
        let mut is_first = true;
        while self.board.is_open() {
            let began = Instant::now();
            if !self.hear_news(is_first).await {
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
    async fn hear_news(&self, is_first: bool) -> bool {
        let request = if self.era() == Some(Era::Stateless) {
            let method = "subscriptions/listen";
            let params = json!({
                "notifications": {"toolsListChanged": true},
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
        match request.send().await {
            Ok(response) if response.status().is_success() && is_stream(&response) => {
                if !is_first {
                    // What happened meanwhile was told to nobody.
                    self.board.suspect();
                }
                let _ = self.read_stream(response, None, &mut Place::default()).await;
                true
            }
            Ok(response) => response.status().is_server_error(),
            Err(_) => true,
        }
    }
}
