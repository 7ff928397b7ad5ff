use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// A server on the loopback address that answers each path as told, and counts its requests.
struct Server {
    port: u16,
    requests: Arc<AtomicUsize>,
}

impl Server {
    async fn start(answer: fn(&str, u16) -> String) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let requests = Arc::new(AtomicUsize::new(0));
        let count = requests.clone();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut request = vec![0; 8192];
                let length = stream.read(&mut request).await.unwrap_or(0);
                count.fetch_add(1, Ordering::SeqCst);
                let request = String::from_utf8_lossy(&request[..length]).into_owned();
                let path = request.split(' ').nth(1).unwrap_or_default().to_owned();
                let _ = stream.write_all(answer(&path, port).as_bytes()).await;
                let _ = stream.shutdown().await;
            }
        });
        Self { port, requests }
    }

    fn url(&self, host: &str, path: &str) -> String {
        format!("http://{host}:{}{path}", self.port)
    }

    fn count(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }
}

fn reply(kind: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn redirect(target: &str) -> String {
    format!(
        "HTTP/1.1 302 Found\r\nLocation: {target}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    )
}

fn site(path: &str, port: u16) -> String {
    match path {
        "/" => reply(
            "text/html; charset=utf-8",
            "<title>Home</title><h1>Hi</h1><p><a href='/b'>B</a> <a href='https://x.org/'>X</a></p>",
        ),
        "/plain" => reply("text/plain", "<b>as it is</b>"),
        "/latin" => reply("text/html", "<meta charset='windows-1252'><p>&auml;"),
        "/json" => reply("application/json", "{\"a\": 1}"),
        "/image" => reply("image/png", "x"),
        "/long" => reply("text/plain", &"0123456789".repeat(1_000)),
        "/huge" => reply("text/plain", &"x".repeat(6_000_000)),
        "/near" => redirect("/plain"),
        "/loop" => redirect("/loop"),
        "/nowhere" => {
            "HTTP/1.1 302 Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned()
        }
        "/to-other" => redirect(&format!("http://127.0.0.2:{port}/")),
        "/to-decimal" => redirect(&format!("http://2130706434:{port}/")),
        "/to-six" => redirect(&format!("http://[::1]:{port}/")),
        "/to-mapped" => redirect(&format!("http://[::ffff:127.0.0.2]:{port}/")),
        "/to-metadata" => redirect("http://169.254.169.254/latest/meta-data/"),
        "/to-file" => redirect("file:///etc/passwd"),
        "/to-user" => redirect(&format!("http://ann:secret@127.0.0.1:{port}/")),
        _ => "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_owned(),
    }
}

async fn fetched(web: &Arc<Web>, arguments: serde_json::Value) -> Result<String, Failure> {
    fetch(web.clone(), serde_json::from_value(arguments).unwrap()).await
}

async fn failure(web: &Arc<Web>, url: &str) -> String {
    fetched(web, json!({"url": url})).await.unwrap_err().to_string()
}

#[tokio::test]
async fn pages_are_fetched_as_markdown_and_other_text_as_it_is() {
    let server = Server::start(site).await;
    let web = Arc::new(Web::new(Rule::any()));
    let url = server.url("127.0.0.1", "/");
    let page = fetched(&web, json!({"url": url})).await.unwrap();
    let content = format!("# Hi\n\n[B]({}) [X](https://x.org/)", server.url("127.0.0.1", "/b"));
    assert_eq!(page, format!("Title: Home\nURL: {url}\n\n{content}"));
    let raw = fetched(&web, json!({"url": url, "raw": true})).await.unwrap();
    assert!(raw.starts_with("<title>"));
    for (path, content) in
        [("/plain", "<b>as it is</b>"), ("/json", "{\"a\": 1}"), ("/latin", "\n\nä")]
    {
        let page = fetched(&web, json!({"url": server.url("localhost", path)})).await.unwrap();
        assert!(page.ends_with(content), "{path}: {page}");
    }
    assert!(failure(&web, &server.url("127.0.0.1", "/image")).await.contains("image/png"));
    assert!(failure(&web, &server.url("127.0.0.1", "/none")).await.contains("404"));
}

#[tokio::test]
async fn long_pages_come_in_parts_and_huge_ones_end() {
    let server = Server::start(site).await;
    let web = Arc::new(Web::new(Rule::any()));
    let url = server.url("127.0.0.1", "/long");
    let part =
        fetched(&web, json!({"url": url, "max_length": 4, "start_index": 9_994})).await.unwrap();
    assert_eq!(
        part,
        "4567

[Go on with start_index 9998; there are 10000 characters.]"
    );
    let rest =
        fetched(&web, json!({"url": url, "max_length": 4, "start_index": 9_998})).await.unwrap();
    assert_eq!(rest, "89");
    assert!(fetched(&web, json!({"url": url, "start_index": 10_000})).await.is_err());
    let huge = server.url("127.0.0.1", "/huge");
    let part = fetched(&web, json!({"url": huge})).await.unwrap();
    assert!(part.ends_with("there are 4194304 characters.]"), "{}", part.len());
    let end = fetched(&web, json!({"url": huge, "start_index": 4_194_300})).await.unwrap();
    assert!(
        end.starts_with(
            "xxxx
"
        ) && end.contains("only its beginning was read"),
        "{end}"
    );
}

#[tokio::test]
async fn links_are_listed() {
    let server = Server::start(site).await;
    let web = Arc::new(Web::new(Rule::any()));
    let arguments = json!({"url": server.url("127.0.0.1", "/"), "contains": "X.ORG"});
    let answer = extract_links(web, serde_json::from_value(arguments).unwrap()).await.unwrap();
    assert_eq!(answer["links"], json!([{"text": "X", "url": "https://x.org/"}]));
}

#[tokio::test]
async fn redirects_are_followed_but_not_for_ever() {
    let server = Server::start(site).await;
    let web = Arc::new(Web::new(Rule::any()));
    let page = fetched(&web, json!({"url": server.url("127.0.0.1", "/near")})).await.unwrap();
    assert_eq!(page, "<b>as it is</b>");
    assert!(
        failure(&web, &server.url("127.0.0.1", "/loop")).await.contains("more than 10 redirects")
    );
    assert!(failure(&web, &server.url("127.0.0.1", "/nowhere")).await.contains("nowhere"));
}

#[tokio::test]
async fn local_addresses_are_refused_however_they_are_written() {
    let server = Server::start(site).await;
    let web = Arc::new(Web::new(Rule::public()));
    let hosts = [
        "127.0.0.1",
        "2130706433",
        "0x7f000001",
        "0177.0.0.1",
        "127.1",
        "0",
        "0.0.0.0",
        "127.0.0.1.",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[64:ff9b::127.0.0.1]",
        "%31%32%37.0.0.1",
        "１２７.0.0.1",
        "localhost",
        "LOCALHOST",
        "10.0.0.1",
        "192.168.0.1",
        "169.254.169.254",
        "[fe80::1]",
        "[fd00::1]",
    ];
    for host in hosts {
        let told = failure(&web, &server.url(host, "/")).await;
        assert!(told.contains("private or local address"), "{host}: {told}");
    }
    assert_eq!(server.count(), 0);
}

#[tokio::test]
async fn a_redirect_is_checked_like_the_first_address() {
    let server = Server::start(site).await;
    // As if 127.0.0.1 were public and the rest of the machine were not.
    let web = Arc::new(Web::new(Rule::new(|address| address == IpAddr::from(Ipv4Addr::LOCALHOST))));
    assert!(fetched(&web, json!({"url": server.url("127.0.0.1", "/near")})).await.is_ok());
    for path in ["/to-other", "/to-decimal", "/to-six", "/to-mapped", "/to-metadata"] {
        let before = server.count();
        let told = failure(&web, &server.url("127.0.0.1", path)).await;
        assert!(told.contains("private or local address"), "{path}: {told}");
        assert_eq!(server.count(), before + 1, "{path}");
    }
    assert!(
        failure(&web, &server.url("127.0.0.1", "/to-file")).await.contains("only http and https")
    );
    let told = failure(&web, &server.url("127.0.0.1", "/to-user")).await;
    assert!(told.contains("password") && !told.contains("secret"), "{told}");
}

#[tokio::test]
async fn a_name_is_connected_only_to_addresses_that_were_checked() {
    let server = Server::start(site).await;
    // `localhost` has several addresses on many machines; none but the allowed one is used.
    let allowed =
        Arc::new(Web::new(Rule::new(|address| address == IpAddr::from(Ipv4Addr::LOCALHOST))));
    assert!(fetched(&allowed, json!({"url": server.url("localhost", "/plain")})).await.is_ok());
    let refused =
        Arc::new(Web::new(Rule::new(|address| address != IpAddr::from(Ipv4Addr::LOCALHOST))));
    assert!(!failure(&refused, &server.url("localhost", "/plain")).await.is_empty());
    assert_eq!(server.count(), 1);
}

#[tokio::test]
async fn other_schemes_and_nonsense_are_refused() {
    let web = Arc::new(Web::new(Rule::any()));
    for url in [
        "file:///etc/passwd",
        "ftp://example.org/",
        "data:text/plain,x",
        "gopher://x/",
        "javascript:x",
    ] {
        assert!(failure(&web, url).await.contains("only http and https"), "{url}");
    }
    for url in ["", "example.org", "http://", "http://[::1", "http://a b/"] {
        assert!(failure(&web, url).await.contains("not an address"), "{url}");
    }
    let told = failure(&web, "http://ann:secret@example.org/").await;
    assert!(told.contains("password") && !told.contains("secret"), "{told}");
}
