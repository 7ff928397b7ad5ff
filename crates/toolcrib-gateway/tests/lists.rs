//! What clients list: few tokens, the same bytes.

mod support;

use serde_json::{Value, json};
use support::{Client, Odd, crib, names, text};
use toolcrib_core::{EagerRules, Policy, PolicyRules};
use toolcrib_gateway::{Endpoint, Gateway, Options};
use toolcrib_tokens::Tokenizer;

/// Names that a machine full of servers might have.
const SERVERS: [&str; 20] = [
    "github",
    "gitlab",
    "slack",
    "linear",
    "notion",
    "postgres",
    "filesystem",
    "playwright",
    "sentry",
    "stripe",
    "figma",
    "jira",
    "confluence",
    "salesforce",
    "kubernetes",
    "terraform",
    "elasticsearch",
    "google-drive",
    "home-assistant",
    "weather",
];

async fn gateway_over(servers: impl Iterator<Item = &'static str>, options: Options) -> Gateway {
    let crib = crib().await;
    for name in servers {
        let mut odd = Odd::new(name);
        odd.extra_tools = 100;
        crib.add(odd).await;
    }
    Gateway::new(crib, options).expect("settings that work")
}

async fn line(gateway: &Gateway, endpoint: Endpoint, method: &str) -> String {
    let mut client = Client::connect(gateway, endpoint);
    client.send(method, json!({})).await;
    client.read_line().await.expect("an answer")
}

#[tokio::test]
async fn the_verbs_take_few_tokens_however_many_tools_there_are() {
    let gateway = gateway_over(SERVERS.into_iter(), Options::default()).await;
    let line = line(&gateway, Endpoint::Meta, "tools/list").await;
    let answer: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(names(&answer["result"]["tools"]), ["tool_search", "load_tools", "call_tool"]);
    let tokens = Tokenizer::O200K.count(&answer["result"]["tools"].to_string()).tokens;
    assert!(tokens <= 450, "{tokens} tokens: {line}");
}

#[tokio::test]
async fn the_same_tools_give_the_same_bytes_in_whatever_order_they_come() {
    let one = gateway_over(SERVERS.into_iter(), Options::default()).await;
    let two = gateway_over(SERVERS.into_iter().rev(), Options::default()).await;
    for endpoint in ["meta", "full", "inject", "s/slack"] {
        for method in ["tools/list", "initialize"] {
            let endpoint: Endpoint = endpoint.parse().unwrap();
            let left = line(&one, endpoint.clone(), method).await;
            assert_eq!(left, line(&two, endpoint.clone(), method).await, "{endpoint} {method}");
            assert_eq!(left, line(&one, endpoint, method).await);
        }
    }
}

#[tokio::test]
async fn instructions_fit_where_clients_cut_them() {
    for count in [1, 5, 20] {
        let gateway = gateway_over(SERVERS.into_iter().take(count), Options::default()).await;
        let line = line(&gateway, Endpoint::Meta, "initialize").await;
        let answer: Value = serde_json::from_str(&line).unwrap();
        let instructions = answer["result"]["instructions"].as_str().unwrap();
        assert!(instructions.len() < 1_800 && instructions.contains("github"), "{instructions}");
    }
}

#[tokio::test]
async fn eager_tools_follow_the_verbs_in_full() {
    let mut options = Options::default();
    options.settings.eager =
        EagerRules { always: vec!["slack/rich".into()], ..EagerRules::default() };
    let gateway = gateway_over(SERVERS.into_iter(), options).await;
    let answer: Value =
        serde_json::from_str(&line(&gateway, Endpoint::Meta, "tools/list").await).unwrap();
    let tools = &answer["result"]["tools"];
    assert_eq!(names(tools), ["tool_search", "load_tools", "call_tool", "slack__rich"]);
    assert_eq!(tools[3]["title"], "Rich");
}

#[tokio::test]
async fn what_a_policy_hides_is_nowhere() {
    let rules = PolicyRules {
        deny_servers: vec!["slack".into()],
        deny_tools: vec!["sentry/*".into(), "block".into()],
        ..Default::default()
    };
    let mut options = Options::default();
    options.policy = Policy::new(rules).unwrap();
    let gateway = gateway_over(["slack", "sentry", "github"].into_iter(), options).await;
    for endpoint in ["meta", "full", "inject"] {
        for method in ["tools/list", "initialize", "server/discover"] {
            let line = line(&gateway, endpoint.parse().unwrap(), method).await;
            for hidden in ["slack", "sentry", "block"] {
                assert!(!line.contains(hidden), "{hidden} in {endpoint} {method}: {line}");
            }
        }
    }
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    for name in ["slack__echo", "sentry__echo", "github__block"] {
        assert_eq!(client.call(name, json!({})).await["error"]["code"], -32602, "{name}");
    }
    let refused = gateway
        .serve_on(
            tokio::io::empty(),
            tokio::io::sink(),
            Endpoint::Server("slack".into()),
            std::future::pending(),
        )
        .await;
    assert!(refused.is_err());
}

#[tokio::test]
async fn lists_have_one_page() {
    let gateway = gateway_over(["github"].into_iter(), Options::default()).await;
    let mut client = Client::open(&gateway, Endpoint::Full).await;
    let refused = client.request("tools/list", json!({"cursor": "x"})).await;
    assert_eq!(refused["error"]["code"], -32602);
    let found = client.call("github__extra_00099", json!({})).await;
    assert_eq!(text(&found), "extra");
}
