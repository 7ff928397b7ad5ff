//! Toolsets that come, change, misbehave and go.

#![allow(clippy::unwrap_used)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use toolcrib_core::{
    Availability, Call, Group, GroupId, RegisterError, Schema, Settings, Strategy, ToolName,
    ToolSpec,
};
use toolcrib_runtime::{
    AuditEvent, AuditSink, CallError, Crib, CribError, Function, HostTools, Invocation, Listing,
    Metrics, ToolResult, Toolset, ToolsetExt, function,
};

fn hello(name: &str) -> Function {
    function(name, "Says hello.", |(): ()| async { "hello" })
}

async fn empty() -> Crib {
    Crib::builder(Settings::default()).build().await.unwrap()
}

fn names(crib: &Crib) -> Vec<String> {
    crib.catalog().view_all().tools().map(|tool| tool.exposed().to_string()).collect()
}

/// A toolset whose answers are laid out in advance: after how long, which tools. Then it hangs.
struct Scripted {
    lists: Mutex<VecDeque<(Duration, Vec<&'static str>)>>,
    changes: Option<watch::Receiver<u64>>,
}

impl Scripted {
    fn new<const N: usize>(lists: [(u64, Vec<&'static str>); N]) -> Self {
        let lists = lists.map(|(after, names)| (Duration::from_millis(after), names));
        Self { lists: Mutex::new(lists.into()), changes: None }
    }
}

impl Toolset for Scripted {
    fn id(&self) -> GroupId {
        "scripted".into()
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let next = self.lists.lock().unwrap().pop_front();
        Box::pin(async move {
            let Some((after, names)) = next else { return std::future::pending().await };
            sleep(after).await;
            let spec = |name| ToolSpec::new(ToolName::host(name), Schema::empty());
            Ok(Listing::new(names.into_iter().map(spec)))
        })
    }

    fn call(&self, _: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        panic!("before there is a future");
    }

    fn changes(&self) -> Option<watch::Receiver<u64>> {
        self.changes.clone()
    }
}

#[tokio::test]
async fn a_function_that_can_not_be_registered_is_an_error_and_is_not_kept() {
    let tools = HostTools::new("work").with(hello("greet"));
    let crib = Crib::builder(Settings::default()).toolset(tools).build().await.unwrap();
    for name in ["greet", "tool_search"] {
        let refused = crib.register(hello(name)).unwrap_err();
        assert!(matches!(&refused, CribError::Function { tool, .. } if tool.tool() == name));
    }
    let change = crib.register(hello("wave")).unwrap();
    assert_eq!(change.rejected, [], "what was refused is not tried again");
    assert_eq!(names(&crib), ["wave", "greet"]);

    let reserved = Crib::builder(Settings::default()).function(hello("call_tool")).build().await;
    let error = reserved.err().unwrap().to_string();
    assert!(error.starts_with("function `call_tool` can't be registered"), "{error}");
}

#[tokio::test]
async fn functions_that_were_removed_do_not_come_back_with_the_next() {
    let crib = Crib::builder(Settings::default()).function(hello("old")).build().await.unwrap();
    crib.remove(&GroupId::host());
    crib.register(hello("new")).unwrap();
    assert_eq!(names(&crib), ["new"]);
}

#[tokio::test]
async fn two_toolsets_of_one_id_are_refused() {
    let own = || HostTools::default().with(hello("own"));
    let exists = Some(CribError::Register(RegisterError::GroupExists(GroupId::host())));
    let builder = || Crib::builder(Settings::default()).toolset(own());
    assert_eq!(builder().function(hello("greet")).build().await.err(), exists);
    assert_eq!(builder().toolset(own()).build().await.err(), exists);
    let crib = builder().build().await.unwrap();
    assert_eq!(crib.register(hello("greet")).err(), exists);
    assert_eq!(names(&crib), ["own"]);
}

#[tokio::test(start_paused = true)]
async fn of_two_tools_of_one_name_the_first_toolsets_is_served_whichever_answers_first() {
    let crib = Crib::builder(Settings::default())
        .toolset(Scripted::new([(50, vec!["greet", "slow"])]))
        .toolset(HostTools::new("quick").with(hello("greet")).with(hello("wave")))
        .build()
        .await
        .unwrap();
    assert_eq!(names(&crib), ["wave", "greet", "slow"]);
    assert_eq!(crib.catalog().view_all().tools().next().unwrap().group().as_str(), "quick");
}

#[tokio::test(start_paused = true)]
async fn a_toolset_that_hangs_or_panics_while_it_lists_does_not_stop_the_rest() {
    struct Broken;
    impl Toolset for Broken {
        fn id(&self) -> GroupId {
            "broken".into()
        }
        fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
            panic!("before there is a future");
        }
        fn call(&self, _: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
            unreachable!("it has no tools")
        }
    }
    let crib = Crib::builder(Settings::default())
        .toolset(Scripted::new([]))
        .toolset(Broken)
        .function(hello("greet"))
        .load_limit(Duration::from_secs(2))
        .build()
        .await
        .unwrap();
    assert_eq!(names(&crib), ["greet"]);
    for (id, why) in [("scripted", "within 2s"), ("broken", "it broke")] {
        let Availability::Down(reason) = crib.catalog().availability(&id.into()) else {
            panic!("{id} should be down");
        };
        assert!(reason.contains(why), "{reason}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_toolset_removed_while_it_lists_stays_removed() {
    let crib = empty().await;
    let adding = {
        let crib = crib.clone();
        tokio::spawn(async move { crib.add(Scripted::new([(50, vec!["late"])])).await })
    };
    sleep(Duration::from_millis(10)).await;
    crib.remove(&"scripted".into());
    assert!(adding.await.unwrap().diff.is_empty());
    assert!(crib.catalog().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_list_that_comes_late_does_not_replace_a_newer_one() {
    let crib = empty().await;
    crib.add(Scripted::new([(0, vec!["a"]), (50, vec!["a", "b"]), (10, vec!["c"])])).await;
    let id = GroupId::from("scripted");
    tokio::join!(crib.refresh(&id), crib.refresh(&id));
    assert_eq!(names(&crib), ["c"]);
}

#[tokio::test]
async fn a_toolset_that_is_gone_is_no_longer_watched() {
    let (sender, changes) = watch::channel(0);
    let scripted = Scripted { changes: Some(changes), ..Scripted::new([(0, vec!["a"])]) };
    let crib = empty().await;
    crib.add(scripted).await;
    crib.remove(&"scripted".into());
    timeout(Duration::from_secs(5), sender.closed()).await.expect("nobody listens");
}

#[tokio::test]
async fn a_tool_that_panics_at_once_costs_its_own_call_only() {
    let crib = empty().await;
    crib.add(Scripted::new([(0, vec!["a"])])).await;
    let outcome = crib.conversation().call(Call::new("a", json!({}))).await.unwrap();
    assert_eq!(outcome.result.to_text(), "`a` broke while it ran.");
}

#[tokio::test(start_paused = true)]
async fn a_load_goes_on_when_the_call_that_began_it_is_given_up() {
    let runs = Arc::new(AtomicUsize::new(0));
    let counted = runs.clone();
    let loader = move || {
        counted.fetch_add(1, Ordering::SeqCst);
        async {
            for _ in 0..2 {
                sleep(Duration::from_secs(3)).await;
            }
            Ok::<_, String>(HostTools::new("slow").with(hello("greet")))
        }
    };
    let crib = Crib::builder(Settings::default())
        .group(Group::new("slow").with_tool_names(["greet"]), loader)
        .load_limit(Duration::from_secs(10))
        .build()
        .await
        .unwrap();
    let chat = crib.conversation();
    let greet = || chat.call(Call::new("greet", json!({})));
    assert!(timeout(Duration::from_secs(1), greet()).await.is_err());
    sleep(Duration::from_secs(60)).await;
    assert_eq!(greet().await.unwrap().result.to_text(), "hello");
    assert_eq!(runs.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn calls_that_panic_or_are_given_up_are_counted_and_recorded() {
    let hangs = function("hangs", "", |(): ()| std::future::pending::<()>());
    let panics = function("panics", "", |(): ()| async {
        if true {
            panic!("boom");
        }
    });
    let (metrics, events) = (Metrics::default(), Arc::<Mutex<Vec<AuditEvent>>>::default());
    let log = events.clone();
    let sink: AuditSink = Arc::new(move |event| log.lock().unwrap().push(event));
    let tools = HostTools::new("odd").with(hangs).with(panics);
    let crib = empty().await;
    crib.add(tools.metered(&metrics).audited(&sink).time_limit(Duration::from_secs(1))).await;
    for name in ["hangs", "panics"] {
        crib.conversation().call(Call::new(name, json!({}))).await.unwrap();
        let count = metrics.snapshot()[&ToolName::host(name)];
        assert_eq!((count.calls, count.errors), (1, 1), "{name}");
    }
    let events = events.lock().unwrap();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|it| it.ending.is_some_and(|ending| ending.is_error)));
    assert!(events.iter().all(|it| it.arguments.is_none()), "without a key they could be guessed");
}

#[tokio::test]
async fn a_function_of_something_optional_gets_it() {
    #[derive(Deserialize, JsonSchema)]
    struct City {
        city: String,
    }
    let weather = function("weather", "", |at: Option<City>| async move {
        at.map_or_else(|| "nowhere".to_owned(), |at| at.city)
    });
    let crib = Crib::builder(Settings::default()).function(weather).build().await.unwrap();
    let outcome = crib.conversation().call(Call::new("weather", json!({"city": "Oslo"}))).await;
    assert_eq!(outcome.unwrap().result.to_text(), "Oslo");
}

#[tokio::test]
async fn names_to_preload_may_come_from_the_conversation_itself() {
    let crib = Crib::builder(Settings::default()).function(hello("greet")).build().await.unwrap();
    let chat = crib.conversation();
    let known = ["greet", "none"]
        .into_iter()
        .filter(|name| chat.stats().unwrap().tool_names.iter().any(|known| **known == **name));
    assert!(chat.preload(known).is_empty());
    assert_eq!(chat.session().strategy(), Some(Strategy::Dispatch));
}

#[tokio::test]
async fn a_toolset_removed_while_it_is_added_is_not_starting_for_ever() {
    /// Somebody removes it at the worst moment.
    struct Unwanted(Crib);
    impl Toolset for Unwanted {
        fn id(&self) -> GroupId {
            "unwanted".into()
        }
        fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
            Box::pin(async { Ok(Listing::default()) })
        }
        fn call(&self, _: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
            unreachable!("it has no tools")
        }
        fn changes(&self) -> Option<watch::Receiver<u64>> {
            self.0.remove(&self.id());
            None
        }
    }
    let crib = empty().await;
    crib.add_soon(Unwanted(crib.clone())).await.unwrap();
    assert_eq!(crib.catalog().unready().count(), 0);
}
