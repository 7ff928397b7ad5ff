//! Taking in connections, and letting them go.

use std::sync::Arc;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::{Http, router};
use crate::held::CONNECTION;
use crate::oauth::OAuth;
use crate::options::HttpOptions;
use crate::{Gateway, GatewayError};

/// Bytes of a request's head, at most.
const MOST_HEAD: usize = 64 << 10;

/// Headers of a request, at most.
const MOST_HEADERS: usize = 100;

impl Gateway {
    /// Serves clients over HTTP until `shutdown` is ready. Requests that run by then may finish
    /// for a while.
    ///
    /// An address that other machines can reach is refused unless callers need a token.
    pub async fn serve_http(
        &self,
        listener: TcpListener,
        mut options: HttpOptions,
        shutdown: impl Future<Output = ()>,
    ) -> Result<(), GatewayError> {
        let address = listener.local_addr().map_err(GatewayError::io("can't listen"))?;
        options.loopback = address.ip().to_canonical().is_loopback();
        if !options.loopback && options.tokens.is_empty() && options.oauth.is_none() {
            return Err(GatewayError::Unguarded { address });
        }
        if let Some((field, reason)) = options.oauth.as_ref().and_then(OAuth::fault) {
            return Err(GatewayError::OAuth { field, reason });
        }
        let room = Arc::new(Semaphore::new(options.connections.clamp(1, Semaphore::MAX_PERMITS)));
        let mut protocol = http1::Builder::new();
        protocol
            .timer(TokioTimer::new())
            .header_read_timeout(options.head_limit)
            .max_buf_size(MOST_HEAD)
            .max_headers(MOST_HEADERS)
            // Answers are not copied: the room they take is counted until they are written.
            .writev(true);
        let http = Arc::new(Http::new(self.clone(), options));
        let service = TowerToHyperService::new(router(http.clone()));
        let graceful = GracefulShutdown::new();
        let mut connections = JoinSet::new();
        tokio::pin!(shutdown);
        loop {
            let accept = async {
                let permit = room.clone().acquire_owned().await;
                (listener.accept().await, permit)
            };
            let (accepted, permit) = tokio::select! {
                accepted = accept => accepted,
                Some(_) = connections.join_next() => continue,
                () = &mut shutdown => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Too many files are open, say: others will be closed.
                    tracing::warn!(%error, "can't accept a connection");
                    sleep(std::time::Duration::from_millis(50)).await;
                    continue;
                }
            };
            // An answer in two small packets would otherwise wait for the first to be
            // acknowledged, which takes forty milliseconds.
            let _ = stream.set_nodelay(true);
            let connection = protocol.serve_connection(TokioIo::new(stream), service.clone());
            let connection = graceful.watch(connection);
            connections.spawn(async move {
                let end = Arc::new(Notify::new());
                tokio::select! {
                    served = CONNECTION.scope(end.clone(), connection) => {
                        if let Err(error) = served {
                            tracing::debug!(%error, "connection ended");
                        }
                    }
                    () = end.notified() => {
                        let reason = "its client is slow to read, and others need the room";
                        tracing::warn!(reason, "connection ended");
                    }
                }
                drop(permit);
            });
        }
        drop(listener);
        let _ = http.closing.send(true);
        let _ = timeout(self.options().drain, graceful.shutdown()).await;
        http.sessions.end_all();
        self.parking().clear();
        connections.shutdown().await;
        Ok(())
    }
}
