//! What a policy hides can't be told from what does not exist: two gateways, one where it is
//! denied and one where it is not there, answer everything in the same bytes.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};
use toolcrib_core::{GroupId, Naming, Policy, PolicyRules, Settings};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options, TokenHash};
use toolcrib_runtime::{AuditEvent, AuditLog, Crib, Verdict};

use support::{Client, Served, Shelf, rpc};

/// What was denied, by name.
#[derive(Clone, Debug, Default)]
struct Written(Arc<Mutex<Vec<String>>>);

impl AuditLog for Written {
    fn digest(&self, _: &Value) -> String {
        String::new()
    }

    fn begin<'a>(&'a self, _: &'a AuditEvent) -> BoxFuture<'a, Result<(), String>> {
        Box::pin(async { Ok(()) })
    }

    fn record(&self, event: AuditEvent) {
        if event.decision == Verdict::Denied {
            self.0.lock().unwrap().push(event.tool.to_string());
        }
    }
}

/// What is to be kept secret, and how.
struct Secret {
    name: &'static str,
    /// What there is.
    all: fn() -> Vec<Shelf>,
    /// What is left when the secret is not there.
    rest: fn() -> Vec<Shelf>,
    rules: fn() -> PolicyRules,
    /// What its tools are called, in every way that one may try.
    tools: &'static [&'static str],
    servers: &'static [&'static str],
}

const OFFICE: &[&str] = &["read_mail", "send_mail", "archive", "purge_mailbox"];
const NOTES: &[&str] = &["write_note", "read_note", "archive"];
const VAULT: &[&str] = &["open_vault", "close_vault"];
/// So many of a kind that its words would be common ones.
const DEPOT: &[&str] = &[
    "read_note",
    "note_mail",
    "note_1",
    "note_2",
    "note_3",
    "note_4",
    "note_5",
    "note_6",
    "note_7",
    "send_note_8",
    "send_note_9",
];

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn secrets() -> Vec<Secret> {
    let vault = Secret {
        name: "a server",
        all: || vec![Shelf::new("office", OFFICE), Shelf::new("vault", VAULT)],
        rest: || vec![Shelf::new("office", OFFICE)],
        rules: || PolicyRules { deny_servers: names(&["vault"]), ..Default::default() },
        tools: &["open_vault", "vault__open_vault", "vault/open_vault", "vault.open_vault"],
        servers: &["vault"],
    };
    let tools = Secret {
        name: "tools",
        all: || vec![Shelf::new("office", OFFICE), Shelf::new("notes", NOTES)],
        rest: || {
            let left = ["read_mail", "send_mail"];
            // Its instructions may be about what is hidden, and are hidden as well.
            vec![Shelf::new("office", &left).terse(), Shelf::new("notes", NOTES)]
        },
        rules: || {
            let deny_tools = names(&["purge_mailbox", "office__archive"]);
            PolicyRules { deny_tools, ..Default::default() }
        },
        tools: &[
            "purge_mailbox",
            "office__purge_mailbox",
            "office/purge_mailbox",
            "office.purge_mailbox",
            "office__archive",
        ],
        servers: &[],
    };
    let depot = Secret {
        name: "a large server",
        all: || {
            let [office, notes] = [Shelf::new("office", OFFICE), Shelf::new("notes", NOTES)];
            vec![office, notes, Shelf::new("depot", DEPOT)]
        },
        rest: || vec![Shelf::new("office", OFFICE), Shelf::new("notes", NOTES)],
        rules: || PolicyRules { deny_servers: names(&["depot"]), ..Default::default() },
        tools: &["note_1", "depot__note_1", "depot/note_mail", "depot.note_mail"],
        servers: &["depot"],
    };
    vec![
        tools,
        depot,
        Secret {
            name: "every tool of a server",
            rules: || PolicyRules { deny_tools: names(&["vault__*"]), ..Default::default() },
            ..secret(&vault)
        },
        Secret {
            name: "servers that are not allowed",
            rules: || PolicyRules { allow_servers: Some(names(&["office"])), ..Default::default() },
            ..secret(&vault)
        },
        vault,
    ]
}

/// The same secret, to be kept in another way.
fn secret(of: &Secret) -> Secret {
    Secret { ..*of }
}

/// A gateway, what it wrote down, and a place where it is served.
struct Twin {
    gateway: Gateway,
    crib: Crib,
    served: Served,
    denied: Written,
    /// Who asks, where the secret is kept from one caller only.
    token: Option<&'static str>,
}

impl Twin {
    /// One whose secret is kept from everybody.
    async fn new(shelves: Vec<Shelf>, rules: PolicyRules) -> Self {
        Self::with(shelves, Vec::new(), rules).await
    }

    /// The same, with servers that can't be reached yet.
    async fn with(shelves: Vec<Shelf>, unlisted: Vec<Shelf>, rules: PolicyRules) -> Self {
        let mut options = Options::default();
        options.policy = Policy::new(rules).unwrap();
        Self::serving(shelves, unlisted, options, HttpOptions::default()).await
    }

    /// One whose secret is kept from a caller, while another knows all and has made use of it.
    async fn seated(shelves: Vec<Shelf>, rules: PolicyRules, secret: &Secret) -> Self {
        let mut http = HttpOptions::default();
        http.tokens =
            vec![TokenHash::of("all"), TokenHash::of("some").narrowed(Policy::new(rules).unwrap())];
        let mut twin = Self::serving(shelves, Vec::new(), Options::default(), http).await;
        twin.token = Some("all");
        twin.stateless(secret, "", &mut Vec::new()).await;
        twin.session_over_http(secret, "/inject", &mut Vec::new()).await;
        twin.token = Some("some");
        twin
    }

    async fn serving(
        shelves: Vec<Shelf>,
        unlisted: Vec<Shelf>,
        mut options: Options,
        http: HttpOptions,
    ) -> Self {
        let denied = Written::default();
        let crib = Crib::builder(Settings::default()).naming(Naming::Gateway);
        let crib = crib.build().await.unwrap();
        for shelf in shelves {
            crib.add(shelf).await;
        }
        for shelf in unlisted {
            // Those that fail have done so by then.
            let listed = crib.add_soon(shelf);
            let _ = tokio::time::timeout(Duration::from_millis(50), listed).await;
        }
        options.audit = Some(Arc::new(denied.clone()));
        let gateway = Gateway::new(crib.clone(), options).unwrap();
        let served = Served::start(&gateway, http).await;
        Self { gateway, crib, served, denied, token: None }
    }

    async fn send(&self, request: RequestBuilder) -> Response {
        let request = match self.token {
            Some(token) => request.bearer_auth(token),
            None => request,
        };
        request.send().await.unwrap()
    }

    /// Everything that is answered, by what was asked; and what was written down meanwhile.
    async fn answers(&self, secret: &Secret) -> Vec<Answered> {
        let mut out = Vec::new();
        let endpoints = ["", "/full", "/inject", "/s/office"]
            .map(str::to_owned)
            .into_iter()
            .chain(secret.servers.iter().map(|server| format!("/s/{server}")));
        for endpoint in endpoints {
            self.stateless(secret, &endpoint, &mut out).await;
            match self.token {
                Some(_) => self.session_over_http(secret, &endpoint, &mut out).await,
                None => self.session(secret, &endpoint, &mut out).await,
            }
        }
        for path in ["/readyz", "/healthz", "/servers", "/metrics"] {
            let response = self.send(self.served.other(reqwest::Method::GET, path)).await;
            let (status, body) = (response.status(), response.text().await.unwrap());
            // How long something took is nobody's secret, and numbers come in any order.
            let mut told: Vec<_> = body.lines().filter(|it| !it.contains("call_seconds")).collect();
            told.sort_unstable();
            let said = format!("{status} {}", told.join("\n"));
            out.push(self.answered(format!("GET {path}"), said));
        }
        out
    }

    fn answered(&self, asked: String, said: String) -> Answered {
        Answered { asked, said, denied: mem::take(&mut self.denied.0.lock().unwrap()) }
    }

    /// Asks over HTTP, each request by itself.
    async fn stateless(&self, secret: &Secret, endpoint: &str, out: &mut Vec<Answered>) {
        let path = format!("/mcp{endpoint}");
        for (method, params) in probes(secret) {
            let asked = format!("2026 {path} {method} {params}");
            let request = self.served.modern(&path, method, params.clone());
            let response = self.send(request).await;
            let kind = response.headers().get("content-type").cloned();
            let (status, body) = (response.status(), response.text().await.unwrap());
            // Both would be refused alike, and nothing would have been asked.
            assert!(!body.contains("Header mismatch"), "{asked}: {body}");
            out.push(self.answered(asked, format!("{status} {kind:?} {body}")));
        }
    }

    /// Asks over HTTP, in a session.
    async fn session_over_http(&self, secret: &Secret, endpoint: &str, out: &mut Vec<Answered>) {
        let path = format!("/mcp{endpoint}");
        let greeting = rpc(0, "initialize", json!({"protocolVersion": "2025-11-25"}));
        let response = self.send(self.served.post(&path).body(greeting)).await;
        let session = response.headers().get("mcp-session-id").cloned();
        let said = format!("{} {}", response.status(), response.text().await.unwrap());
        out.push(self.answered(format!("2025 {path} initialize"), said));
        let Some(session) = session else { return };
        for (method, params) in probes(secret) {
            let asked = format!("2025 {path} {method} {params}");
            let request =
                self.served.within(&path, session.to_str().unwrap(), method, params.clone());
            let response = self.send(request).await;
            let (status, body) = (response.status(), response.text().await.unwrap());
            // An event is known by a number of its session.
            let told: Vec<_> = body.lines().filter(|line| !line.starts_with("id:")).collect();
            out.push(self.answered(asked, format!("{status} {}", told.join("\n"))));
        }
    }

    /// Asks over pipes, in a session.
    async fn session(&self, secret: &Secret, endpoint: &str, out: &mut Vec<Answered>) {
        let at = match endpoint {
            "" => Endpoint::Meta,
            "/full" => Endpoint::Full,
            "/inject" => Endpoint::Inject,
            other => Endpoint::Server(other.trim_start_matches("/s/").to_owned()),
        };
        let mut client = Client::connect(&self.gateway, at);
        tokio::task::yield_now().await;
        let greeting = json!({"protocolVersion": "2025-11-25"});
        let asked = format!("2025 /mcp{endpoint} initialize");
        if secret.servers.iter().any(|server| endpoint.ends_with(server)) {
            let ended = client.serving.await.unwrap();
            out.push(self.answered(asked, format!("{ended:?}")));
            return;
        }
        let said = client.request("initialize", greeting).await;
        out.push(self.answered(asked, said.to_string()));
        for (method, params) in probes(secret) {
            let asked = format!("2025 /mcp{endpoint} {method} {params}");
            let id = client.send(method, params).await;
            let said = loop {
                let said = client.read_line().await.unwrap();
                if serde_json::from_str::<Value>(&said).unwrap()["id"] == id {
                    break said;
                }
            };
            out.push(self.answered(asked, said));
        }
    }
}

struct Answered {
    asked: String,
    said: String,
    denied: Vec<String>,
}

/// Everything one may try. None of it says anything before its answer.
fn probes(secret: &Secret) -> Vec<(&'static str, Value)> {
    let call = |name: &str, arguments: Value| {
        ("tools/call", json!({"name": name, "arguments": arguments}))
    };
    let search = |query: &str| call("tool_search", json!({"query": query, "limit": 20}));
    let mut probes = vec![
        ("tools/list", json!({})),
        ("resources/list", json!({})),
        ("resources/templates/list", json!({})),
        ("prompts/list", json!({})),
        ("server/discover", json!({})),
        search("mail"),
        search("vault"),
        search("archive"),
        search("obliterate everything"),
        search("+obliterate"),
        search("/.*/"),
        search("/vault|purge/"),
        search("open"),
        search("mail note"),
        search("read a note, then send the mail. Archive what is left"),
        search("write archive"),
        search("oblitrate evrything"),
        search("opne vualt"),
        search("purgd malbox"),
        search("snd_note"),
        call("tool_search", json!({"query": "note mail archive", "limit": 1})),
        call("call_tool", json!({"name": "archive", "arguments": {}})),
        call("call_tool", json!({"name": "purge", "arguments": {}})),
        call("call_tool", json!({"name": "purge_mailbx", "arguments": {}})),
        call("call_tool", json!({"name": "opn_vault", "arguments": {}})),
        call("call_tool", json!({"name": "office__archve", "arguments": {}})),
        call("call_tool", json!({"name": "mailbox", "arguments": {}})),
        call("call_tool", json!({"name": "_vault", "arguments": {}})),
        call("call_tool", json!({"name": "functions.read_note", "arguments": {}})),
        call("load_tools", json!({"names": ["note", "mailbx", "vault_open", "ARCHIVE"]})),
    ];
    for group in ["office", "vault", "notes", "nothing", "mcp:vault"] {
        probes.push(call("load_tools", json!({"group": group})));
        probes.push(call("load_tools", json!({"group": group, "names": names(secret.tools)})));
        probes.push(search(group));
    }
    for tool in secret.tools {
        probes.push(search(tool));
        probes.push(search(&format!("select:{tool}")));
        probes.push(search(&format!("select:read_mail,{tool}")));
        probes.push(search(&format!("/^{tool}$/")));
        probes.push(search(&format!("{tool} please")));
        let tail = &tool[2..];
        probes.push(search(tail));
        probes.push(call("call_tool", json!({"name": tail, "arguments": {}})));
        for other in [format!("functions.{tool}"), format!("mcp__{tool}"), format!("`{tool}`")] {
            probes.push(call("call_tool", json!({"name": other, "arguments": {}})));
            probes.push(search(&format!("select:{other}")));
        }
        probes.push(call("call_tool", json!({"name": tool, "arguments": {}})));
        probes.push(call("call_tool", json!({"name": tool, "arguments": {"wrong": 1}})));
        probes.push(call("call_read_tool", json!({"name": tool, "arguments": {}})));
        probes.push(call("call_destructive_tool", json!({"name": tool, "arguments": {}})));
        probes.push(call("load_tools", json!({"names": [tool]})));
        probes.push(call(tool, json!({})));
        let about = json!({"type": "ref/tool", "name": tool});
        let argument = json!({"name": "what", "value": "a"});
        probes.push(("completion/complete", json!({"ref": about, "argument": argument})));
    }
    for server in ["office", "vault"] {
        for name in ["about", &format!("{server}__about"), &format!("{server}/about")] {
            probes.push(("prompts/get", json!({"name": name})));
            let about = json!({"type": "ref/prompt", "name": name});
            let argument = json!({"name": "what", "value": "a"});
            probes.push(("completion/complete", json!({"ref": about, "argument": argument})));
        }
        for uri in
            [format!("shelf://{server}/door"), format!("crib://{server}/shelf://{server}/door")]
        {
            probes.push(("resources/read", json!({"uri": uri})));
            let about = json!({"type": "ref/resource", "uri": uri});
            let argument = json!({"name": "what", "value": "a"});
            probes.push(("completion/complete", json!({"ref": about, "argument": argument})));
        }
        probes.push(("tasks/get", json!({"taskId": format!("{server}:1")})));
    }
    probes
}

fn qualified(name: &str) -> bool {
    name.contains("__") || name.contains(['/', '.'])
}

/// Whether a request names a tool of the secret's as one may there, so that somebody should know.
fn reaches(asked: &str, secret: &Secret) -> bool {
    let [era, path, "tools/call", params] = asked.splitn(4, ' ').collect::<Vec<_>>()[..] else {
        return false;
    };
    let params: Value = serde_json::from_str(params).unwrap();
    let (name, arguments) = (params["name"].as_str().unwrap(), &params["arguments"]);
    let is_one = |name: &str| secret.tools.contains(&name);
    match (path, name) {
        // That one is for sessions only, and tools are called by their names there.
        ("/mcp/inject", name) if era == "2026" || name == "call_tool" => false,
        ("/mcp", "call_tool") => is_one(arguments["name"].as_str().unwrap()),
        ("/mcp" | "/mcp/inject", "load_tools") => {
            let given = arguments["names"].as_array().is_some_and(|names| names.len() > 1);
            given && arguments["group"] == secret.tools[1].split("__").next().unwrap()
        }
        ("/mcp" | "/mcp/inject", "tool_search") => {
            let query = arguments["query"].as_str().unwrap();
            let selected = query.strip_prefix("select:");
            selected.is_some_and(|names| names.split(',').any(is_one))
        }
        ("/mcp" | "/mcp/inject", name) => is_one(name),
        ("/mcp/full", name) => name.contains("__") && is_one(name),
        // There a tool has its own name, and a server that is denied is not there at all.
        ("/mcp/s/office", name) => is_one(name) && secret.servers.is_empty() && !qualified(name),
        _ => false,
    }
}

/// Answers that differ where they must not.
fn differing(name: &str, ours: &[Answered], theirs: &[Answered]) -> Vec<String> {
    assert_eq!(ours.len(), theirs.len());
    let mut wrong = Vec::new();
    for (ours, theirs) in ours.iter().zip(theirs) {
        assert_eq!(ours.asked, theirs.asked);
        assert!(theirs.denied.is_empty(), "{}", theirs.asked);
        if ours.said != theirs.said {
            let said = [&ours.said, &theirs.said].map(|said| shortened(said));
            wrong.push(format!("{name}: {}\n  {}\n  {}", ours.asked, said[0], said[1]));
        }
    }
    wrong
}

/// Requests that reached for the secret, of which nothing was written down.
fn untraced(secret: &Secret, answers: &[Answered]) -> Vec<String> {
    let untraced = answers.iter().filter(|it| reaches(&it.asked, secret) && it.denied.is_empty());
    untraced.map(|answered| format!("{}: {}", secret.name, answered.asked)).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_answers_like_what_does_not_exist_and_is_written_down() {
    let (mut wrong, mut silent) = (Vec::new(), Vec::new());
    for secret in secrets() {
        let denied = Twin::new((secret.all)(), (secret.rules)()).await;
        let absent = Twin::new((secret.rest)(), PolicyRules::default()).await;
        let (ours, theirs) = (denied.answers(&secret).await, absent.answers(&secret).await);
        wrong.extend(differing(secret.name, &ours, &theirs));
        silent.extend(untraced(&secret, &ours));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(silent.is_empty(), "{} left no trace:\n{}", silent.len(), silent.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_to_one_caller_is_so_whatever_another_does_with_it() {
    let (mut wrong, mut silent) = (Vec::new(), Vec::new());
    for secret in secrets().into_iter().take(2) {
        let denied = Twin::seated((secret.all)(), (secret.rules)(), &secret).await;
        let absent = Twin::seated((secret.rest)(), (secret.rules)(), &secret).await;
        let (ours, theirs) = (denied.answers(&secret).await, absent.answers(&secret).await);
        wrong.extend(differing(secret.name, &ours, &theirs));
        silent.extend(untraced(&secret, &ours));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    assert!(silent.is_empty(), "{} left no trace:\n{}", silent.len(), silent.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_only_remembered_is_hidden_likewise_and_from_every_verb() {
    let split = async |shelves: Vec<Shelf>, rules: PolicyRules| {
        let mut options = Options::default();
        options.policy = Policy::new(rules).unwrap();
        options.settings.split_calls = true;
        let shelves = shelves.into_iter().map(Shelf::remembered).collect();
        Twin::serving(shelves, Vec::new(), options, HttpOptions::default()).await
    };
    let mut wrong = Vec::new();
    for secret in secrets().into_iter().take(2) {
        let denied = split((secret.all)(), (secret.rules)()).await;
        let absent = split((secret.rest)(), PolicyRules::default()).await;
        let (ours, theirs) = (denied.answers(&secret).await, absent.answers(&secret).await);
        wrong.extend(differing(secret.name, &ours, &theirs));
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_hidden_by_its_tools_before_it_is_reached() {
    let rules: [fn() -> PolicyRules; 3] = [
        || PolicyRules { deny_tools: names(&["vault__*"]), ..Default::default() },
        || PolicyRules { allow_tools: Some(names(&["office/*"])), ..Default::default() },
        || PolicyRules { deny_tools: names(&["vault/*"]), ..Default::default() },
    ];
    let secret = Secret { rules: rules[0], ..secret(&secrets()[2]) };
    let absent = Twin::new((secret.rest)(), PolicyRules::default()).await;
    let theirs = absent.answers(&secret).await;
    for (at, rules) in rules.into_iter().enumerate() {
        let remembered = Shelf::new("vault", VAULT).remembered();
        for unlisted in [Shelf::starting("vault"), Shelf::down("vault"), remembered] {
            let denied = Twin::with((secret.rest)(), vec![unlisted.clone()], rules()).await;
            assert_eq!(denied.crib.catalog().unready().count(), 1);
            let ours = denied.answers(&secret).await;
            let wrong = differing(&format!("{at}"), &ours, &theirs);
            assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
            assert_eq!(unlisted.asked(), 0, "it is asked nothing");
        }
        // Where it may be seen, it is.
        let open = Twin::with((secret.rest)(), vec![Shelf::starting("vault")], Default::default());
        assert_eq!(open.await.gateway.starting(), ["vault"]);
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(600).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_policy_every_surface_would_tell() {
    let secret = secrets().remove(0);
    let open = Twin::new((secret.all)(), PolicyRules::default()).await;
    let absent = Twin::new((secret.rest)(), PolicyRules::default()).await;
    let (ours, theirs) = (open.answers(&secret).await, absent.answers(&secret).await);
    let differing = ours.iter().zip(&theirs).filter(|(ours, theirs)| ours.said != theirs.said);
    let surface = |asked: &str| {
        let verbs = ["tool_search", "call_tool", "load_tools"];
        let verb = verbs.iter().find(|verb| asked.contains(*verb)).copied();
        let words: Vec<_> = asked.split(' ').take(3).collect();
        format!("{} {}", words.join(" "), verb.unwrap_or_default())
    };
    let told: BTreeSet<_> = differing.map(|(ours, _)| surface(&ours.asked)).collect();
    for era in ["2025", "2026"] {
        for endpoint in ["/mcp/full", "/mcp/s/office"] {
            assert!(told.contains(&format!("{era} {endpoint} tools/list ")), "{told:#?}");
            assert!(told.contains(&format!("{era} {endpoint} tools/call ")), "{told:#?}");
        }
        for verb in ["tool_search", "call_tool", "load_tools"] {
            assert!(told.contains(&format!("{era} /mcp tools/call {verb}")), "{told:#?}");
        }
    }
    for path in ["/metrics", "/servers"] {
        assert!(told.contains(&format!("GET {path} ")), "{told:#?}");
    }
}

#[tokio::test]
async fn nobody_is_told_that_something_hidden_has_changed() {
    let secret = secrets().remove(0);
    let shelves = (secret.all)();
    let office = shelves[0].clone();
    let twin = Twin::new(shelves, (secret.rules)()).await;
    let mut client = Client::open(&twin.gateway, Endpoint::Full).await;
    client.tools().await;
    let id = GroupId::server("office");
    office.say("purge_mailbox", "Something else entirely");
    twin.crib.refresh(&id).await;
    tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    // The answer comes first, so nothing was told before.
    client.request("ping", json!({})).await;
    office.say("read_mail", "Reads mail, at last");
    twin.crib.refresh(&id).await;
    let told = client.read().await;
    assert_eq!(told["method"], "notifications/tools/list_changed");
}
