//! Approval: what reads runs, what writes is asked about, by its real name and arguments, however
//! it was called.

#![allow(clippy::print_stdout)]

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::json;
use toolcrib::agent::{Agent, Approval, Approver, PendingCall, Permissions, Scripted, Turn};
use toolcrib::{Annotations, Crib, Mode, Settings, function};

/// Stands in for a person who lets one thing pass.
struct Person;

impl Approver for Person {
    fn ask<'a>(&'a self, call: &'a PendingCall) -> BoxFuture<'a, Approval> {
        async move {
            let approval = match &*call.name {
                "restart" => Approval::Once,
                _ => Approval::No(Some("not on a Friday".into())),
            };
            println!("may `{}` run? {approval:?}", call.name);
            approval
        }
        .boxed()
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    let reads = Annotations { read_only: Some(true), ..Annotations::default() };
    let crib = Crib::builder(settings)
        .function(
            function("read_log", "Read the log.", |(): ()| async { "all quiet" })
                .map_spec(|spec| spec.with_annotations(reads)),
        )
        .function(function("restart", "Restart the server.", |(): ()| async { "restarted" }))
        .function(function("wipe", "Wipe the disk.", |(): ()| async { "gone" }))
        .build()
        .await?;

    let dispatched =
        |name: &str| Turn::call("call_tool", json!({"tool_name": name, "arguments": {}}));
    let model = Scripted::new([
        dispatched("read_log"),
        dispatched("restart"),
        dispatched("wipe"),
        Turn::text("The server was restarted; the disk was not wiped."),
    ]);
    let agent =
        Agent::builder(model, "any", crib).permissions(Permissions::ask()).approver(Person).build();
    let answer = agent.chat().send("Read the log, restart, wipe.").await;
    for call in &answer.calls {
        println!("{}: {}", call.name, if call.is_error { "did not run" } else { "ran" });
    }
    println!("{}", answer.text);
    Ok(())
}
