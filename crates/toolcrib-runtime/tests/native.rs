//! A driver's choices: the strategy, going on without native, tools offered in advance.

#![allow(clippy::unwrap_used)]

use std::sync::{Arc, Mutex};

use serde_json::json;
use toolcrib_core::{Call, Mode, Saved, Settings, Strategy, StrategyChoice};
use toolcrib_runtime::{AuditEvent, AuditSink, Crib, Function, HostTools, function};

fn send_letter() -> Function {
    function("send_letter", "Sends a letter to a person.", |(): ()| async { "sent" })
}

fn list_files() -> Function {
    function("list_files", "Lists the files of a folder.", |(): ()| async { "none" })
}

fn settings() -> Settings {
    let mut settings = Settings::default();
    (settings.mode, settings.strategy) = (Mode::Deferred, StrategyChoice::Native);
    settings
}

async fn crib() -> Crib {
    let tools = HostTools::new("desk").with(send_letter()).with(list_files());
    Crib::builder(settings()).toolset(tools).build().await.unwrap()
}

#[tokio::test]
async fn a_driver_chooses_native_and_goes_on_without() {
    let crib = crib().await;
    let silent = crib.conversation();
    silent.prepare().unwrap();
    assert_eq!(silent.session().strategy(), Some(Strategy::Dispatch));

    let chat = crib.conversation();
    chat.choose(Strategy::Native);
    chat.prepare().unwrap();
    let search = Call::new("tool_search", json!({"query": "select:send_letter"}));
    let outcome = chat.call(search).await.unwrap();
    assert_eq!(outcome.result.to_text(), "");
    assert_eq!(&**outcome.effects.revealed[0].tool.name(), "send_letter");
    let sent = chat.call(Call::new("send_letter", json!({}))).await.unwrap();
    assert_eq!(sent.result.to_text(), "sent");

    let text = serde_json::to_string(&chat.snapshot()).unwrap();
    let saved = Saved::from_json(&text).unwrap();
    let (resumed, _) = crib.resume(saved, Strategy::Native, Default::default()).await.unwrap();
    assert_eq!(resumed.prepare().unwrap().deferred, chat.prepare().unwrap().deferred);

    chat.without_native();
    let shown = chat.prepare().unwrap();
    assert_eq!(&**shown.tools.last().unwrap().name(), "call_tool");
    let call = json!({"tool_name": "send_letter", "arguments": {}});
    let sent = chat.call(Call::new("call_tool", call)).await.unwrap();
    assert_eq!((sent.result.to_text(), sent.effects.loaded.len()), ("sent".to_owned(), 0));
}

#[tokio::test]
async fn what_a_text_suggests_is_offered_after_the_first_request_and_nobody_is_told() {
    let told: Arc<Mutex<Vec<AuditEvent>>> = Arc::default();
    let heard = told.clone();
    let sink: AuditSink = Arc::new(move |event| heard.lock().unwrap().push(event));
    let tools = HostTools::new("desk").with(send_letter()).with(list_files());
    let crib = Crib::builder(settings()).toolset(tools).audit(sink).build().await.unwrap();
    let chat = crib.conversation();
    chat.on_tools_expanded(|tools| panic!("no call loaded {tools:?}"));
    let text = "Write and send a letter to Ann";
    assert_eq!(chat.predict(text, 1).await, [] as [Arc<str>; 0]);
    let first = chat.prepare().unwrap();
    assert_eq!(chat.predict(text, 1).await, ["send_letter".into()]);
    let second = chat.prepare().unwrap();
    assert_eq!(second.fingerprint(), first.fingerprint());
    assert!(second.announcements[0].contains("\"send_letter\""), "{second:?}");
    assert_eq!(told.lock().unwrap().len(), 0);
}
