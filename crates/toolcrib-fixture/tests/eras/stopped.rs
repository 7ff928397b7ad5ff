//! A call that asks, and a client that has changed its mind or gone.

use serde_json::json;
use tokio::time::{Duration, sleep};
use toolcrib_wire::Era;

use crate::client::{Client, Outcome, check};
use crate::rows::{call, person, text};
use crate::site::{Over, Site, Way};
use crate::tried;

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_asks_can_be_stopped_on_every_way() {
    let mut outcomes = Vec::new();
    let mut add = |what: &str, tried: Vec<(String, Outcome)>| {
        outcomes.extend(tried.into_iter().map(|(way, it)| (format!("{what}: {way}"), it)));
    };
    add("cancelled while asked", tried::each(while_asked).await);
    add("cancelled once answered", tried::each(once_answered).await);
    add("gone while asked", tried::each(gone).await);
    tried::all_work(outcomes);
}

/// Whether a call that asks goes on to run at the fixture until it is answered.
fn keeps_running(way: Way) -> bool {
    way.upstream.unwrap_or(way.client).era == Era::Sessions
}

/// In the era without sessions there is nothing to cancel: the client just never comes back.
async fn while_asked(way: Way) -> Outcome {
    let site = Site::open(way).await?;
    let mut client = site.client().await?;
    let params = call("test_elicitation", json!({"message": "Who?", "marker": "first"}));
    let id = client.send("tools/call", params.clone()).await?;
    if way.client.era == Era::Sessions {
        client.told("elicitation/create").await?;
        client.cancel(id).await?;
        if keeps_running(way) {
            site.noted("over", "first").await?;
        }
    } else {
        let answer = client.answer(id).await?;
        check(answer["result"]["resultType"] == "input_required", &answer)?;
    }
    works(&mut client).await?;
    check(site.begun("first") == 1, &json!("it was called again"))?;
    let late = way.client.era == Era::Sessions && client.has(|message| message["id"] == id);
    site.close().await;
    check(!late, &json!("a cancelled call was answered"))
}

async fn once_answered(way: Way) -> Outcome {
    let site = Site::open(way).await?;
    let mut client = site.client().await?;
    let params = call("test_elicitation_then_slow", json!({"ms": 60_000, "marker": "slow"}));
    let open = client.pose("tools/call", params.clone()).await?.open()?;
    let answers = open.answers(|_, _| json!({"action": "accept", "content": {"name": "Ada"}}));
    let id = client.give("tools/call", &params, open, answers).await?;
    // The answer has to arrive before the call is taken back.
    if !keeps_running(way) {
        for _ in 0..500 {
            if site.begun("slow") > 1 {
                break;
            }
            sleep(Duration::from_millis(10)).await;
        }
    }
    sleep(Duration::from_millis(200)).await;
    client.cancel(id).await?;
    site.noted("stopped", "slow").await?;
    let works = works(&mut client).await;
    site.close().await;
    works
}

async fn gone(way: Way) -> Outcome {
    let site = Site::open(way).await?;
    let (mut client, mut other) = (site.client().await?, site.client().await?);
    let params = call("test_elicitation", json!({"message": "Who?", "marker": "left"}));
    client.pose("tools/call", params).await?.open()?;
    client.leave().await;
    // Without sessions and over HTTP nobody can tell that a client has gone.
    let is_known = way.client.era == Era::Sessions || way.client.over == Over::Stdio;
    if is_known && keeps_running(way) {
        site.noted("over", "left").await?;
    }
    let works = works(&mut other).await;
    site.close().await;
    works
}

/// Asks go on to work.
async fn works(client: &mut Client) -> Outcome {
    let params = call("test_elicitation", json!({"message": "And now?"}));
    let result = client.converse("tools/call", params, |_, _| person("Grace")).await?;
    check(text(&result).contains("Grace"), &result)
}
