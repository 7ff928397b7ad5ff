//! Many clients at once, each asked for something only it knows.

use futures::future::join_all;
use serde_json::{Value, json};

use crate::client::{Client, Outcome, check};
use crate::rows::{call, person, text};
use crate::site::{Site, Way};
use crate::tried;

const CLIENTS: usize = 8;
const CALLS: usize = 3;

#[tokio::test(flavor = "multi_thread")]
async fn clients_asked_at_once_are_asked_only_their_own() {
    tried::all_work(tried::each(all).await);
}

async fn all(way: Way) -> Outcome {
    let site = Site::open(way).await?;
    let clients = join_all((0..CLIENTS).map(|_| site.client())).await;
    let clients = clients.into_iter().collect::<Outcome<Vec<Client>>>()?;
    let each = clients.into_iter().enumerate().map(|(at, client)| one(at, client));
    let outcomes = join_all(each).await;
    site.close().await;
    outcomes.into_iter().collect()
}

async fn one(at: usize, mut client: Client) -> Outcome {
    for turn in 0..CALLS {
        let (question, answer) = (format!("question {at}.{turn}"), format!("answer {at}.{turn}"));
        let mut asked = Vec::new();
        let params = call("test_elicitation", json!({"message": question}));
        let result = client
            .converse("tools/call", params, |_, params| {
                asked.push(params["message"].clone());
                person(&answer)
            })
            .await?;
        check(asked == [json!(question)], &Value::from(asked))?;
        check(text(&result).contains(&answer), &result)?;
    }
    Ok(())
}
