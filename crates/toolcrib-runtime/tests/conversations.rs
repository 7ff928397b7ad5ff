//! The driver, end to end over real toolsets.

#![allow(clippy::unwrap_used)]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};
use toolcrib_core::{
    Call, Group, GroupId, Mode, Policy, PolicyRules, Preset, Saved, Schema, Session, Settings,
    Strategy, ToolName, ToolSpec,
};
use toolcrib_runtime::{
    AuditEvent, AuditKey, AuditSink, CallError, Crib, Function, HostTools, Invocation, Listing,
    Metrics, Outcome, ToolResult, Toolset, ToolsetExt, Verdict, function,
};

#[derive(Deserialize, JsonSchema)]
struct Issue {
    /// What it is about.
    title: String,
    #[serde(default)]
    labels: Vec<String>,
}

fn create_issue() -> Function {
    function("create_issue", "Open an issue.", |issue: Issue| async move {
        format!("opened {} {:?}", issue.title, issue.labels)
    })
}

fn search_repos() -> Function {
    function("search_repos", "Search public repositories.", |(): ()| async { json!({"hits": 3}) })
}

fn deferred(preset: Preset) -> Settings {
    let mut settings = Settings::preset(preset);
    settings.mode = Mode::Deferred;
    settings
}

fn text(outcome: &Outcome) -> String {
    outcome.result.to_text()
}

fn parsed(outcome: &Outcome) -> Value {
    serde_json::from_str(&text(outcome)).unwrap()
}

/// A group that counts how often its loader runs and fails as long as it is told to.
struct Counted {
    runs: Arc<AtomicUsize>,
    failures: usize,
    delay: Duration,
}

impl Counted {
    async fn crib(self, settings: Settings, limit: Duration) -> Crib {
        let group = Group::new("github").with_tool_names(["create_issue", "search_repos"]);
        let loader = move || {
            let run = self.runs.fetch_add(1, Ordering::SeqCst);
            let (failures, delay) = (self.failures, self.delay);
            async move {
                sleep(delay).await;
                if run < failures {
                    return Err("no network");
                }
                Ok(HostTools::new("github").with(create_issue()).with(search_repos()))
            }
        };
        Crib::builder(settings).group(group, loader).load_limit(limit).build().await.unwrap()
    }
}

fn counted(failures: usize, delay: Duration) -> (Counted, Arc<AtomicUsize>) {
    let runs = Arc::new(AtomicUsize::new(0));
    (Counted { runs: runs.clone(), failures, delay }, runs)
}

fn load_github() -> Call {
    Call::new("load_tools", json!({"group_id": "github"}))
}

#[tokio::test]
async fn a_function_is_found_loaded_and_called() {
    let crib =
        Crib::builder(deferred(Preset::Crib)).function(create_issue()).build().await.unwrap();
    let chat = crib.conversation();
    chat.begin_turn();
    let names: Vec<String> =
        chat.prepare().unwrap().tools.iter().map(|tool| tool.name().to_string()).collect();
    assert_eq!(names, ["tool_search", "load_tools", "call_tool"]);
    let found =
        chat.call(Call::new("tool_search", json!({"query": "open an issue"}))).await.unwrap();
    assert_eq!(parsed(&found)["tools"][0]["name"], "create_issue");
    let call = json!({"tool_name": "create_issue", "arguments": {"title": "x", "labels": "bug"}});
    let outcome = chat.call(Call::new("call_tool", call)).await.unwrap();
    assert_eq!(outcome.tool, Some(ToolName::host("create_issue")));
    assert_eq!(text(&outcome), "opened x [\"bug\"]");
}

#[tokio::test]
async fn a_search_and_the_tool_it_finds_work_in_one_batch_in_either_order() {
    let crib =
        Crib::builder(deferred(Preset::Crib)).function(create_issue()).build().await.unwrap();
    let search = Call::new("tool_search", json!({"query": "issue"}));
    let open = Call::new("create_issue", json!({"title": "x"}));
    for batch in [vec![search.clone(), open.clone()], vec![open, search]] {
        let outcomes = crib.conversation().call_all(batch).await;
        assert!(outcomes.iter().all(|outcome| !outcome.as_ref().unwrap().result.is_error()));
    }
}

#[tokio::test]
async fn calls_run_together_unless_a_tool_is_sequential_also_through_the_dispatcher() {
    let slow = |name: &str| {
        function(name, "Waits.", |(): ()| async { sleep(Duration::from_millis(100)).await })
    };
    let sequential = slow("alone").map_spec(ToolSpec::into_sequential);
    let crib = Crib::builder(deferred(Preset::Crib))
        .function(slow("a"))
        .function(slow("b"))
        .function(sequential)
        .build()
        .await
        .unwrap();
    tokio::time::pause();
    let direct = |name: &str| Call::new(name, json!({}));
    let dispatched =
        |name: &str| Call::new("call_tool", json!({"tool_name": name, "arguments": {}}));
    let time = |batch: Vec<Call>| {
        let chat = crib.conversation();
        async move {
            let started = Instant::now();
            chat.call_all(batch).await;
            started.elapsed()
        }
    };
    let together = Duration::from_millis(150);
    assert!(time(vec![direct("a"), direct("b")]).await < together);
    assert!(time(vec![dispatched("a"), dispatched("b")]).await < together);
    assert!(time(vec![direct("a"), direct("alone")]).await > together);
    assert!(time(vec![dispatched("a"), dispatched("alone")]).await > together);
}

#[tokio::test]
async fn a_loader_runs_once_for_concurrent_requests() {
    let (counted, runs) = counted(0, Duration::from_millis(30));
    let crib = counted.crib(deferred(Preset::Groups), Duration::from_secs(5)).await;
    let chat = crib.conversation();
    let blind = json!({"tool_name": "create_issue", "arguments": {"title": "x"}});
    let calls = (0..8).map(|n| {
        let (chat, blind) = (chat.clone(), blind.clone());
        async move {
            let call =
                if n % 2 == 0 { load_github() } else { Call::new("deferred_tool_call", blind) };
            chat.call(call).await.unwrap().result.is_error()
        }
    });
    let failed = futures::future::join_all(calls).await;
    assert_eq!(failed, [false; 8]);
    assert_eq!(runs.load(Ordering::SeqCst), 1);
    // Another conversation has loads of its own.
    crib.conversation().call(load_github()).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_failed_loader_is_reported_and_tried_again() {
    let (counted, runs) = counted(1, Duration::ZERO);
    let crib = counted.crib(deferred(Preset::Groups), Duration::from_secs(5)).await;
    let chat = crib.conversation();
    let failed = chat.call(load_github()).await.unwrap();
    assert!(failed.result.is_error());
    assert_eq!(
        parsed(&failed),
        json!({"group_id": "github", "expanded": false, "error": "Loader failed: no network", "remaining": 2})
    );
    let loaded = chat.call(load_github()).await.unwrap();
    assert_eq!(parsed(&loaded)["tool_names"], json!(["create_issue", "search_repos"]));
    assert_eq!(runs.load(Ordering::SeqCst), 2);
}

#[tokio::test(start_paused = true)]
async fn a_slow_loader_is_given_up_for_all_who_wait() {
    let (counted, _) = counted(0, Duration::from_secs(60));
    let crib = counted.crib(deferred(Preset::Groups), Duration::from_secs(2)).await;
    let chat = crib.conversation();
    let outcomes = chat.call_all(vec![load_github(), load_github()]).await;
    for outcome in outcomes {
        let outcome = outcome.unwrap();
        assert!(text(&outcome).contains("it took longer than 2s"), "{}", text(&outcome));
    }
}

#[tokio::test]
async fn a_loader_that_panics_is_a_failure_like_any_other() {
    let loader = || async {
        if true {
            panic!("boom");
        }
        Ok::<_, String>(HostTools::new("g"))
    };
    let crib = Crib::builder(deferred(Preset::Groups))
        .group(Group::new("g"), loader)
        .build()
        .await
        .unwrap();
    let outcome = crib.conversation().call(Call::new("load_tools", json!({"group_id": "g"}))).await;
    assert!(text(&outcome.unwrap()).contains("the loader panicked"));
}

#[tokio::test]
async fn an_unknown_group_is_known_once_loaded() {
    let loader = || async { Ok::<_, String>(HostTools::new("gh").with(create_issue())) };
    let crib = Crib::builder(deferred(Preset::Groups))
        .group(Group::new("gh").with_description("Issues"), loader)
        .build()
        .await
        .unwrap();
    let chat = crib.conversation();
    assert!(chat.prepare().unwrap().system_section.contains("load it to see its tools"));
    chat.call(Call::new("load_tools", json!({"group_id": "gh"}))).await.unwrap();
    let outcome = chat.call(Call::new("create_issue", json!({"title": "x"}))).await.unwrap();
    assert_eq!(text(&outcome), "opened x []");
}

#[tokio::test]
async fn a_mistake_in_the_arguments_runs_nothing_and_shows_the_schema() {
    let crib = Crib::builder(Settings::default()).function(create_issue()).build().await.unwrap();
    let outcome = crib.conversation().call(Call::new("create_issue", json!({}))).await.unwrap();
    assert!(outcome.result.is_error() && outcome.tool.is_none());
    assert_eq!(parsed(&outcome)["tool"]["parameters"]["required"], json!(["title"]));
}

#[tokio::test]
async fn rewritten_arguments_are_checked_again() {
    use toolcrib_runtime::Resolved;
    let crib = Crib::builder(Settings::default()).function(create_issue()).build().await.unwrap();
    let chat = crib.conversation();
    let Resolved::Ready(ready) =
        chat.resolve(Call::new("create_issue", json!({"title": "x"}))).await
    else {
        panic!("it should be ready");
    };
    let Resolved::Ready(mended) = chat.rewrite(ready.clone(), &json!({"title": "y"})) else {
        panic!("it should still be ready");
    };
    assert_eq!(text(&chat.run(mended).await.unwrap()), "opened y []");
    assert!(matches!(chat.rewrite(ready, &json!({"title": {}})), Resolved::Done(_)));
}

/// A toolset whose tools misbehave on purpose.
struct Odd;

impl Toolset for Odd {
    fn id(&self) -> GroupId {
        "odd".into()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let names = ["panics", "hangs", "stops", "fails"];
        let specs = names.map(|name| ToolSpec::new(ToolName::host(name), Schema::empty()));
        Box::pin(async { Ok(Listing::new(specs)) })
    }

    fn call(&self, invocation: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        Box::pin(async move {
            match invocation.tool.tool() {
                "panics" => panic!("boom"),
                "hangs" => futures::future::pending().await,
                "stops" => Err(CallError::Stop("out of disk".to_owned())),
                _ => Ok(ToolResult::error("no such file")),
            }
        })
    }
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_misbehaves_costs_its_own_call_only() {
    let metrics = Metrics::default();
    let odd = Odd.time_limit(Duration::from_secs(1)).metered(&metrics);
    let crib = Crib::builder(Settings::default()).toolset(odd).build().await.unwrap();
    let chat = crib.conversation();
    let calls = ["panics", "hangs", "stops", "fails"].map(|name| Call::new(name, json!({})));
    let mut outcomes = chat.call_all(calls.to_vec()).await.into_iter();
    let mut told = || text(&outcomes.next().unwrap().unwrap());
    assert_eq!(told(), "`panics` broke while it ran.");
    assert!(told().starts_with("`hangs` did not answer within 1s."));
    assert_eq!(outcomes.next().unwrap().unwrap_err(), CallError::Stop("out of disk".to_owned()));
    assert!(outcomes.next().unwrap().unwrap().result.is_error());
    let counts = metrics.snapshot();
    assert_eq!(counts[&ToolName::host("fails")].errors, 1);
    // Time given up on by the limit inside is counted by the meter outside.
    assert_eq!(counts[&ToolName::host("hangs")].errors, 1);
}

#[tokio::test]
async fn the_audit_log_has_what_the_model_is_not_told() {
    let events: Arc<Mutex<Vec<AuditEvent>>> = Arc::default();
    let sink: AuditSink = {
        let events = events.clone();
        Arc::new(move |event| events.lock().unwrap().push(event))
    };
    let tools = HostTools::new("work").with(create_issue()).with(search_repos()).audited(&sink);
    let tools = tools.keyed(AuditKey::new([7; 32]));
    let crib = Crib::builder(Settings::default()).toolset(tools).audit(sink).build().await.unwrap();
    let rules = PolicyRules { deny_tools: vec!["create_*".into()], ..Default::default() };
    let chat = crib.converse(Session::new(), Policy::new(rules).unwrap());
    let denied = chat.call(Call::new("create_issue", json!({"title": "x"}))).await.unwrap();
    assert!(text(&denied).contains("Unknown tool"));
    chat.call(Call::new("search_repos", json!({}))).await.unwrap();
    let events = events.lock().unwrap();
    let told = |event: &AuditEvent| {
        (event.tool.to_string(), event.decision, event.ending.map(|ending| ending.is_error))
    };
    assert_eq!(
        [told(&events[0]), told(&events[1])],
        [
            ("create_issue".to_owned(), Verdict::Denied, None),
            ("search_repos".to_owned(), Verdict::Allowed, Some(false)),
        ]
    );
    assert_eq!(events[1].arguments, Some(AuditKey::new([7; 32]).digest(&json!({}))));
}

#[tokio::test]
async fn a_function_registered_while_deferring_is_there_at_the_next_turn() {
    let settings = deferred(Preset::Regex);
    let crib = Crib::builder(settings).function(create_issue()).build().await.unwrap();
    let chat = crib.conversation();
    chat.begin_turn();
    assert_eq!(chat.prepare().unwrap().tools.len(), 1);
    crib.register(search_repos()).unwrap();
    let report = chat.begin_turn();
    assert_eq!(report.preloaded, ["search_repos".into()]);
    let shown = chat.prepare().unwrap();
    assert_eq!(&**shown.tools[1].name(), "search_repos");
}

#[tokio::test]
async fn a_toolset_that_changes_is_listed_again() {
    let tools = HostTools::new("work").with(create_issue());
    let crib = Crib::builder(Settings::default()).toolset(tools.clone()).build().await.unwrap();
    assert_eq!(crib.catalog().len(), 1);
    tools.insert(search_repos());
    for _ in 0..100 {
        if crib.catalog().len() == 2 {
            return;
        }
        sleep(Duration::from_millis(20)).await;
    }
    panic!("the change was not noticed");
}

#[tokio::test]
async fn one_toolset_that_can_not_be_listed_does_not_stop_the_rest() {
    struct Dead;
    impl Toolset for Dead {
        fn id(&self) -> GroupId {
            GroupId::server("dead")
        }
        fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
            Box::pin(async { Err(CallError::Tell("connection refused".to_owned())) })
        }
        fn call(&self, _: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
            Box::pin(async { Err(CallError::Tell("connection refused".to_owned())) })
        }
    }
    let crib = Crib::builder(deferred(Preset::Crib))
        .toolset(Dead)
        .function(create_issue())
        .build()
        .await
        .unwrap();
    let search = Call::new("tool_search", json!({"query": "zeppelin"}));
    let outcome = crib.conversation().call(search).await.unwrap();
    assert!(
        parsed(&outcome)["hint"]
            .as_str()
            .unwrap()
            .contains("`dead` does not answer (connection refused)")
    );
}

#[tokio::test]
async fn loads_are_announced_to_the_host() {
    let crib =
        Crib::builder(deferred(Preset::Crib)).function(create_issue()).build().await.unwrap();
    let chat = crib.conversation();
    let seen: Arc<Mutex<Vec<ToolName>>> = Arc::default();
    let log = seen.clone();
    chat.on_tools_expanded(move |tools| log.lock().unwrap().extend_from_slice(tools));
    let search = || Call::new("tool_search", json!({"query": "issue"}));
    chat.call(search()).await.unwrap();
    chat.call(search()).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [ToolName::host("create_issue")]);
}

#[tokio::test]
async fn a_fork_calls_what_its_parent_loaded_and_changes_nothing_there() {
    let (counted, runs) = counted(0, Duration::ZERO);
    let crib = counted.crib(deferred(Preset::Groups), Duration::from_secs(5)).await;
    let parent = crib.conversation();
    let names = json!({"group_id": "github", "tool_names": ["create_issue"]});
    parent.call(Call::new("load_tools", names)).await.unwrap();
    let before = serde_json::to_string(&parent.snapshot()).unwrap();
    let bytes = parent.prepare().unwrap().fingerprint();

    let fork = parent.fork_without_loading();
    assert_eq!(fork.prepare().unwrap().fingerprint(), bytes);
    let call = json!({"tool_name": "create_issue", "arguments": {"title": "x"}});
    let outcome = fork.call(Call::new("deferred_tool_call", call)).await.unwrap();
    assert_eq!(text(&outcome), "opened x []");
    assert!(text(&fork.call(load_github()).await.unwrap()).contains("not available in a forked"));

    let free = parent.fork();
    free.call(load_github()).await.unwrap();
    assert_eq!(runs.load(Ordering::SeqCst), 1, "a fork has the loader's result already");
    parent.prepare().unwrap();
    let after: Value = serde_json::to_value(parent.snapshot()).unwrap();
    assert_eq!(
        after["expanded_groups"],
        serde_json::from_str::<Value>(&before).unwrap()["expanded_groups"]
    );
}

#[tokio::test]
async fn a_conversation_comes_back_and_its_tools_can_be_called() {
    let (counted, runs) = counted(0, Duration::ZERO);
    let crib = counted.crib(deferred(Preset::Groups), Duration::from_secs(5)).await;
    let chat = crib.conversation();
    chat.call(load_github()).await.unwrap();
    let bytes = chat.prepare().unwrap().fingerprint();
    let text_form = serde_json::to_string(&chat.snapshot()).unwrap();
    drop(chat);

    let saved = Saved::from_json(&text_form).unwrap();
    let (chat, report) =
        crib.resume(saved.clone(), Strategy::Dispatch, Policy::default()).await.unwrap();
    assert_eq!(report.restored, ["create_issue".into(), "search_repos".into()]);
    assert_eq!(chat.prepare().unwrap().fingerprint(), bytes);
    let call = json!({"tool_name": "search_repos", "arguments": {}});
    let outcome = chat.call(Call::new("deferred_tool_call", call)).await.unwrap();
    assert_eq!(outcome.result.structured(), Some(json!({"hits": 3})));
    assert_eq!(runs.load(Ordering::SeqCst), 2, "the schemas were saved, the toolset was not");
    assert!(crib.resume(saved, Strategy::Inject, Policy::default()).await.is_err());
}

#[tokio::test]
async fn a_resume_survives_a_loader_that_fails() {
    let good = || async { Ok::<_, String>(HostTools::new("good").with(create_issue())) };
    let bad = || async { Err::<HostTools, _>("no network") };
    let crib = Crib::builder(deferred(Preset::Groups))
        .group(Group::new("good").with_tool_names(["create_issue"]), good)
        .group(Group::new("bad").with_tool_names(["other"]), bad)
        .build()
        .await
        .unwrap();
    let saved = Saved::from_json(r#"{"good": null, "bad": ["other"], "gone": null}"#).unwrap();
    let (chat, report) = crib.resume(saved, Strategy::Dispatch, Policy::default()).await.unwrap();
    assert_eq!(report.restored, ["create_issue".into()]);
    assert_eq!(
        report.missing,
        [
            ("bad".to_owned(), "its loader failed: no network".to_owned()),
            ("gone".to_owned(), "it is not registered".to_owned()),
        ]
    );
    let snapshot: Value = serde_json::to_value(chat.snapshot()).unwrap();
    assert_eq!(snapshot["expanded_groups"], json!({"good": null}));
}
