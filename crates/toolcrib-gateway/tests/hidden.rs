//! What a policy hides can't be told from what does not exist: two gateways, one where it is
//! denied and one where it is not there, answer everything in the same bytes.

#![allow(clippy::unwrap_used, reason = "these are tests")]

mod support;

use std::collections::BTreeSet;
use std::mem;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use serde_json::{Value, json};
use toolcrib_core::{GroupId, Naming, Policy, PolicyRules, Settings};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options};
use toolcrib_runtime::{AuditEvent, AuditLog, Crib, Verdict};

use support::{Client, Served, Shelf};

/// Parts of requests whose answers still tell, and why. The list only shrinks.
const TELLING: &[(&str, &str)] = &[(
    "office__archve",
    "how rare a word is counts hidden tools too, and with it the order of hits",
)];

/// Ways to reach for a tool that leave no trace yet. The list only shrinks.
const UNTRACED: &[(&str, &str)] = &[];

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
    vec![
        tools,
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
}

impl Twin {
    async fn new(shelves: Vec<Shelf>, rules: PolicyRules) -> Self {
        Self::with(shelves, Vec::new(), rules).await
    }

    /// The same, with servers of which nothing is known yet.
    async fn with(shelves: Vec<Shelf>, unlisted: Vec<Shelf>, rules: PolicyRules) -> Self {
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
        let mut options = Options::default();
        options.policy = Policy::new(rules).unwrap();
        options.audit = Some(Arc::new(denied.clone()));
        let gateway = Gateway::new(crib.clone(), options).unwrap();
        let served = Served::start(&gateway, HttpOptions::default()).await;
        Self { gateway, crib, served, denied }
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
            self.session(secret, &endpoint, &mut out).await;
        }
        for path in ["/readyz", "/healthz", "/servers", "/metrics"] {
            let response = self.served.other(reqwest::Method::GET, path).send().await.unwrap();
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
            let response = request.send().await.unwrap();
            let kind = response.headers().get("content-type").cloned();
            let (status, body) = (response.status(), response.text().await.unwrap());
            // Both would be refused alike, and nothing would have been asked.
            assert!(!body.contains("Header mismatch"), "{asked}: {body}");
            out.push(self.answered(asked, format!("{status} {kind:?} {body}")));
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
        call("call_tool", json!({"name": "archive", "arguments": {}})),
        call("call_tool", json!({"name": "purge", "arguments": {}})),
        call("call_tool", json!({"name": "purge_mailbx", "arguments": {}})),
        call("call_tool", json!({"name": "opn_vault", "arguments": {}})),
        call("call_tool", json!({"name": "office__archve", "arguments": {}})),
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
        probes.push(call("call_tool", json!({"name": tool, "arguments": {}})));
        probes.push(call("call_tool", json!({"name": tool, "arguments": {"wrong": 1}})));
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

#[tokio::test(flavor = "multi_thread")]
async fn what_is_denied_answers_like_what_does_not_exist() {
    let (mut wrong, mut telling) = (Vec::new(), BTreeSet::new());
    for secret in secrets() {
        let denied = Twin::new((secret.all)(), (secret.rules)()).await;
        let absent = Twin::new((secret.rest)(), PolicyRules::default()).await;
        let (ours, theirs) = (denied.answers(&secret).await, absent.answers(&secret).await);
        assert_eq!(ours.len(), theirs.len());
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours.asked, theirs.asked);
            assert!(theirs.denied.is_empty(), "{}", theirs.asked);
            if ours.said == theirs.said {
                continue;
            }
            match TELLING.iter().find(|(part, _)| ours.asked.contains(part)) {
                Some((part, _)) => {
                    telling.insert(*part);
                }
                None => {
                    let said = [&ours.said, &theirs.said].map(|said| shortened(said));
                    let asked = format!("{}: {}", secret.name, ours.asked);
                    wrong.push(format!("{asked}\n  {}\n  {}", said[0], said[1]));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
    let listed: BTreeSet<_> = TELLING.iter().map(|(part, _)| *part).collect();
    assert_eq!(telling, listed, "what tells no more is to be taken off the list");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_hidden_by_its_tools_before_they_are_known() {
    let rules: [fn() -> PolicyRules; 3] = [
        || PolicyRules { deny_tools: names(&["vault__*"]), ..Default::default() },
        || PolicyRules { allow_tools: Some(names(&["office/*"])), ..Default::default() },
        || PolicyRules { deny_tools: names(&["vault/*"]), ..Default::default() },
    ];
    let secret = Secret { rules: rules[0], ..secret(&secrets()[1]) };
    let absent = Twin::new((secret.rest)(), PolicyRules::default()).await;
    let theirs = absent.answers(&secret).await;
    let telling = |asked: &str| TELLING.iter().any(|(part, _)| asked.contains(part));
    for (at, rules) in rules.into_iter().enumerate() {
        for unlisted in [Shelf::starting("vault"), Shelf::down("vault")] {
            let denied = Twin::with((secret.rest)(), vec![unlisted.clone()], rules()).await;
            assert_eq!(denied.crib.catalog().unready().count(), 1);
            let ours = denied.answers(&secret).await;
            assert_eq!(ours.len(), theirs.len());
            for (ours, theirs) in ours.iter().zip(&theirs).filter(|(it, _)| !telling(&it.asked)) {
                assert_eq!(ours.said, theirs.said, "{at} {}", ours.asked);
            }
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
    assert!(told.contains("GET /metrics "), "{told:#?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_reaches_for_what_is_denied_is_written_down() {
    let (mut wrong, mut untraced) = (Vec::new(), BTreeSet::new());
    for secret in secrets() {
        let denied = Twin::new((secret.all)(), (secret.rules)()).await;
        for answered in denied.answers(&secret).await {
            if !reaches(&answered.asked, &secret) || !answered.denied.is_empty() {
                continue;
            }
            let words: Vec<_> = answered.asked.splitn(4, ' ').collect();
            let fits = |(path, verb): &&(&str, &str)| {
                let is_at =
                    words[1] == *path || (path.ends_with('/') && words[1].starts_with(path));
                is_at && words[3].contains(verb)
            };
            match UNTRACED.iter().find(fits) {
                Some(way) => {
                    untraced.insert(*way);
                }
                None => wrong.push(format!("{}: {}", secret.name, answered.asked)),
            }
        }
    }
    assert!(wrong.is_empty(), "{} left no trace:\n{}", wrong.len(), wrong.join("\n"));
    let listed: BTreeSet<_> = UNTRACED.iter().copied().collect();
    assert_eq!(untraced, listed, "what leaves a trace is to be taken off the list");
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
