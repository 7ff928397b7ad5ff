//! Large results through the gateway, many at once, within the room there is for them.

#![allow(clippy::unwrap_used)]

use std::time::Duration;

use futures::future::join_all;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, sleep};
use toolcrib_core::{Naming, Settings};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options};
use toolcrib_mcp::{ServerConfig, Upstreams};
use toolcrib_runtime::{Budget, Crib};

const MB: usize = 1 << 20;

/// A gateway before so many servers, each a process, whose results share a budget.
struct Place {
    gateway: Gateway,
    upstreams: Upstreams,
    budget: Budget,
    url: String,
    client: reqwest::Client,
}

impl Place {
    async fn open(servers: usize, bytes: usize) -> Self {
        Self::within(servers, Budget::new(bytes)).await
    }

    async fn within(servers: usize, budget: Budget) -> Self {
        let crib =
            Crib::builder(Settings::default()).naming(Naming::Gateway).build().await.unwrap();
        let upstreams = Upstreams::default();
        upstreams.use_budget(budget.clone());
        for number in 0..servers {
            let program = env!("CARGO_BIN_EXE_toolcrib-fixture");
            let config = ServerConfig::command(format!("s{number}"), program, [""; 0]);
            crib.add(upstreams.open(config)).await;
        }
        let mut options = Options::default();
        options.results = Some(budget.clone());
        let gateway = Gateway::new(crib, options).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let served = gateway.clone();
        tokio::spawn(async move {
            let _ =
                served.serve_http(listener, HttpOptions::default(), std::future::pending()).await;
        });
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        Self { gateway, upstreams, budget, url, client }
    }

    /// A call that is answered twice with what it is given.
    fn call(&self, server: usize, mark: &str, bytes: usize) -> reqwest::RequestBuilder {
        self.client
            .post(format!("{}/mcp/full", self.url))
            .header("content-type", "application/json")
            .header("accept", "application/json, text/event-stream")
            .header("mcp-protocol-version", "2026-07-28")
            .header("mcp-method", "tools/call")
            .header("mcp-name", format!("s{server}__test_structured_content"))
            .body(call(server, mark, bytes))
    }

    /// Sends the same, and never reads what comes back.
    async fn call_and_stall(&self, mark: &str, bytes: usize) -> TcpStream {
        let address = self.url.strip_prefix("http://").unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(16 << 10).unwrap();
        let mut stream = socket.connect(address.parse().unwrap()).await.unwrap();
        let body = call(0, mark, bytes);
        let head = format!(
            "POST /mcp/full HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\n\
             accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
             mcp-method: tools/call\r\nmcp-name: s0__test_structured_content\r\n\
             content-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body.as_bytes()).await.unwrap();
        stream
    }

    async fn is_empty(&self) {
        let end = Instant::now() + Duration::from_secs(30);
        while self.budget.used() > 0 {
            assert!(Instant::now() < end, "{} bytes are never given back", self.budget.used());
            sleep(Duration::from_millis(10)).await;
        }
    }
}

fn call(server: usize, mark: &str, bytes: usize) -> String {
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "0"},
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let params = json!({
        "name": format!("s{server}__test_structured_content"),
        "arguments": {"mark": mark, "fill": "x".repeat(bytes)},
        "_meta": meta,
    });
    json!({"jsonrpc": "2.0", "id": mark, "method": "tools/call", "params": params}).to_string()
}

/// Fails unless this answers that call, whole.
fn check(answer: &Value, mark: &str, bytes: usize) {
    let given = &answer["result"]["structuredContent"];
    assert_eq!((answer["id"].as_str(), given["mark"].as_str()), (Some(mark), Some(mark)));
    assert_eq!(given["fill"].as_str().unwrap().len(), bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_large_results_at_once_stay_within_the_room_and_none_is_lost() {
    let (place, bytes) = (Place::open(4, 4 * MB).await, 600 << 10);
    let calls = (0..40).map(|number| {
        let mark = format!("mark-{number}");
        let request = place.call(number % 4, &mark, bytes);
        tokio::spawn(async move {
            let response = request.send().await.unwrap();
            // It reads when it gets to it.
            sleep(Duration::from_millis(20)).await;
            let answer = serde_json::from_slice(&response.bytes().await.unwrap()).unwrap();
            check(&answer, &mark, bytes);
        })
    });
    for call in join_all(calls).await {
        call.unwrap();
    }
    let (peak, total) = (place.budget.peak(), place.budget.total());
    assert!(peak <= total && peak > 3 * MB / 2, "{peak}");
    place.is_empty().await;
    let metrics = place.gateway.metrics_text();
    for line in [
        "toolcrib_result_bytes 0",
        "toolcrib_result_bytes_limit 4194304",
        "toolcrib_results_refused_total 0",
        "toolcrib_upstream_breaker{server=\"s0\"} 0",
        "toolcrib_upstream_calls_running{server=\"s0\"} 0",
        "toolcrib_upstream_calls_waiting{server=\"s0\"} 0",
        "toolcrib_upstream_connections{server=\"s0\"} ",
    ] {
        assert!(metrics.contains(line), "{line} in {metrics}");
    }
    place.upstreams.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn one_larger_than_there_is_room_for_is_refused_with_the_reason() {
    let place = Place::open(1, 2 * MB).await;
    let (large, small) = (place.call(0, "large", MB), place.call(0, "small", 100 << 10));
    let (large, small) = tokio::join!(large.send(), small.send());
    let large: Value = serde_json::from_slice(&large.unwrap().bytes().await.unwrap()).unwrap();
    assert_eq!(large["result"]["isError"], true, "{large}");
    let reason = large["result"]["content"][0]["text"].as_str().unwrap();
    assert!(reason.contains("Server `s0` answered, but its answer was not taken"), "{reason}");
    assert!(reason.contains("it is larger than 1048576 bytes"), "{reason}");
    let small = serde_json::from_slice(&small.unwrap().bytes().await.unwrap()).unwrap();
    check(&small, "small", 100 << 10);
    place.is_empty().await;
    assert_eq!(place.budget.refused(), 1);
    place.upstreams.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn over_stdio_and_for_clients_that_leave_room_is_given_back_too() {
    let place = Place::open(2, 16 * MB).await;
    let (mut to, input) = tokio::io::duplex(64 << 10);
    let (output, from) = tokio::io::duplex(64 << 10);
    let gateway = place.gateway.clone();
    let serving = tokio::spawn(async move {
        gateway.serve_on(input, output, Endpoint::Full, std::future::pending()).await
    });
    let sending = tokio::spawn(async move {
        for number in 0..10 {
            let line = call(number % 2, &format!("mark-{number}"), MB) + "\n";
            to.write_all(line.as_bytes()).await.unwrap();
        }
        to
    });
    let mut lines = BufReader::new(from).lines();
    for _ in 0..10 {
        let answer: Value =
            serde_json::from_str(&lines.next_line().await.unwrap().unwrap()).unwrap();
        let mark = answer["id"].as_str().unwrap().to_owned();
        check(&answer, &mark, MB);
    }
    place.is_empty().await;
    assert!(place.budget.peak() > 2 * MB && place.budget.peak() <= place.budget.total());
    // One that asks and reads no answer takes its room until it leaves.
    let mut to = sending.await.unwrap();
    for number in 0..3 {
        let line = call(0, &format!("left-{number}"), MB) + "\n";
        to.write_all(line.as_bytes()).await.unwrap();
    }
    let end = Instant::now() + Duration::from_secs(30);
    // Each has twice what was sent; what came last of it is not counted.
    while place.budget.used() < 5 * MB {
        assert!(Instant::now() < end, "{}", place.budget.used());
        sleep(Duration::from_millis(10)).await;
    }
    drop((to, lines));
    serving.await.unwrap().unwrap();
    place.is_empty().await;
    place.upstreams.shut_down().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn clients_that_do_not_read_keep_no_room_from_others() {
    // More than a socket takes by itself.
    let bytes = 3_700_000;
    let place = Place::within(2, Budget::patient(30 * MB, Duration::from_secs(12))).await;
    let mut stalled = Vec::new();
    for number in 0..4 {
        stalled.push(place.call_and_stall(&format!("stalled-{number}"), bytes).await);
    }
    let end = Instant::now() + Duration::from_secs(60);
    // What comes with an answer's end takes none.
    while place.budget.used() < 4 * 2 * bytes - MB {
        assert!(Instant::now() < end, "{}", place.budget.used());
        sleep(Duration::from_millis(10)).await;
    }
    for number in 0..2 {
        let mark = format!("other-{number}");
        let response = place.call(1, &mark, bytes).send().await.unwrap();
        check(&serde_json::from_slice(&response.bytes().await.unwrap()).unwrap(), &mark, bytes);
    }
    assert_eq!(place.budget.refused(), 0);
    // Only as many were cut off as it took.
    assert!(place.budget.used() >= 2 * 2 * bytes - MB, "{}", place.budget.used());
    drop(stalled);
    place.is_empty().await;
    place.upstreams.shut_down().await;
}
