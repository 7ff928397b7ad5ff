//! What is tried on each way, in the words of the client's era.

use futures::future::BoxFuture;
use serde_json::{Value, json};
use toolcrib_wire::Era;

use crate::client::{Client, Outcome, check};
use crate::site::Site;

type Run = for<'a> fn(&'a Site, &'a mut Client) -> BoxFuture<'a, Outcome>;

/// The rows of the table.
pub(crate) const ROWS: [(&str, Run); 8] = [
    ("plain call", |site, client| Box::pin(plain_call(site, client))),
    ("progress", |site, client| Box::pin(progress(site, client))),
    ("cancellation", |site, client| Box::pin(cancellation(site, client))),
    ("elicitation", |site, client| Box::pin(elicitation(site, client))),
    ("sampling", |site, client| Box::pin(sampling(site, client))),
    ("list change", |site, client| Box::pin(list_change(site, client))),
    ("resources", |site, client| Box::pin(resources(site, client))),
    ("prompts", |site, client| Box::pin(prompts(site, client))),
];

pub(crate) fn call(name: &str, arguments: Value) -> Value {
    json!({"name": name, "arguments": arguments})
}

pub(crate) fn text(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_default()
}

fn names<'a>(list: &'a Value, key: &str) -> Vec<&'a str> {
    list.as_array().into_iter().flatten().filter_map(|it| it[key].as_str()).collect()
}

async fn plain_call(_: &Site, client: &mut Client) -> Outcome {
    let listed = client.ask("tools/list", json!({})).await?;
    check(names(&listed["tools"], "name").contains(&"test_simple_text"), &listed)?;
    let result = client.ask("tools/call", call("test_simple_text", json!({}))).await?;
    check(text(&result) == "This is a simple text response for testing.", &result)?;
    let kind = result.get("resultType");
    match client.era {
        Era::Sessions => check(kind.is_none(), &result)?,
        Era::Stateless => check(kind == Some(&json!("complete")), &result)?,
    }
    let failed = client.ask("tools/call", call("test_error_handling", json!({}))).await?;
    check(failed["isError"] == true, &failed)?;
    let image = client.ask("tools/call", call("test_image_content", json!({}))).await?;
    check(image["content"][0]["mimeType"] == "image/png", &image)
}

async fn progress(_: &Site, client: &mut Client) -> Outcome {
    for token in [json!("a token"), json!(7)] {
        let mut params = call("test_tool_with_progress", json!({}));
        params["_meta"] = json!({"progressToken": token});
        let id = client.send("tools/call", params).await?;
        for at in [0, 50, 100] {
            let told = client.told("notifications/progress").await?;
            let params = json!({"progressToken": token, "progress": at, "total": 100});
            check(told["params"] == params, &told)?;
        }
        let answer = client.answer(id).await?;
        check(text(&answer["result"]) == "Done, with progress.", &answer)?;
    }
    // Who gives no token is told nothing.
    client.ask("tools/call", call("test_tool_with_progress", json!({}))).await?;
    let is_told = client.has(|message| message["method"] == "notifications/progress");
    check(!is_told, &json!("progress without a token"))
}

async fn cancellation(site: &Site, client: &mut Client) -> Outcome {
    let slow = call("test_slow", json!({"ms": 60_000, "marker": "slow"}));
    let id = client.send("tools/call", slow).await?;
    site.noted("began", "slow").await?;
    client.cancel(id).await?;
    site.noted("stopped", "slow").await?;
    let result = client.ask("tools/call", call("test_simple_text", json!({}))).await?;
    check(result["isError"] != true, &result)?;
    check(!client.has(|message| message["id"] == id), &json!("a cancelled call was answered"))
}

/// A person who says who they are.
pub(crate) fn person(name: &str) -> Value {
    json!({"action": "accept", "content": {"username": name, "email": "a@example.com"}})
}

async fn elicitation(_: &Site, client: &mut Client) -> Outcome {
    let params = call("test_elicitation", json!({"message": "Who is there?"}));
    let mut asked = Vec::new();
    let result = client
        .converse("tools/call", params.clone(), |method, params| {
            asked.push(json!([method, params["message"], params["requestedSchema"]["required"]]));
            person("Ada")
        })
        .await?;
    let question = json!(["elicitation/create", "Who is there?", ["username", "email"]]);
    check(asked == [question], &Value::from(asked))?;
    let said = text(&result);
    check(said.starts_with("User response: action=accept") && said.contains("Ada"), &result)?;

    let declined = |_: &str, _: &Value| json!({"action": "decline"});
    let result = client.converse("tools/call", params, declined).await?;
    check(text(&result).contains("action=decline"), &result)?;

    let twice = call("test_input_required_result_multi_round", json!({}));
    let content = json!({"name": "Ada", "color": "blue"});
    let say = |_: &str, _: &Value| json!({"action": "accept", "content": content});
    let result = client.converse("tools/call", twice, say).await?;
    check(text(&result) == r#""Ada" likes "blue""#, &result)?;

    let three = call("test_input_required_result_multiple_inputs", json!({}));
    let result = client.converse("tools/call", three, |method, _| anything(method)).await?;
    check(text(&result).contains("file:///work"), &result)
}

/// What a person, a model and a workspace would say.
fn anything(method: &str) -> Value {
    match method {
        "elicitation/create" => json!({"action": "accept", "content": {"name": "Ada"}}),
        "sampling/createMessage" => model("Paris"),
        _ => json!({"roots": [{"uri": "file:///work", "name": "work"}]}),
    }
}

fn model(text: &str) -> Value {
    let content = json!({"type": "text", "text": text});
    json!({"role": "assistant", "content": content, "model": "none", "stopReason": "endTurn"})
}

async fn sampling(_: &Site, client: &mut Client) -> Outcome {
    let params = call("test_sampling", json!({"prompt": "What is the capital?"}));
    let mut asked = Vec::new();
    let result = client
        .converse("tools/call", params, |method, params| {
            asked.push(json!([
                method,
                params["messages"][0]["content"]["text"],
                params["maxTokens"]
            ]));
            model("Paris, said the model")
        })
        .await?;
    let question = json!(["sampling/createMessage", "What is the capital?", 100]);
    check(asked == [question], &Value::from(asked))?;
    check(text(&result).contains("Paris, said the model"), &result)?;

    let params = call("test_input_required_result_list_roots", json!({}));
    let result = client.converse("tools/call", params, |method, _| anything(method)).await?;
    check(text(&result).contains("file:///work"), &result)
}

/// Listens to changes: of all lists, and of some resources.
async fn listen(client: &mut Client, uris: &[&str]) -> Outcome<Option<u64>> {
    if client.era == Era::Sessions {
        for uri in uris {
            client.ask("resources/subscribe", json!({"uri": uri})).await?;
        }
        return Ok(None);
    }
    let filter = json!({
        "toolsListChanged": true,
        "promptsListChanged": true,
        "resourcesListChanged": true,
        "resourceSubscriptions": uris,
    });
    let id = client.send("subscriptions/listen", json!({"notifications": filter})).await?;
    let agreed = client.told("notifications/subscriptions/acknowledged").await?;
    let agreed = &agreed["params"];
    check(agreed["notifications"]["toolsListChanged"] == true, agreed)?;
    check(agreed["_meta"]["io.modelcontextprotocol/subscriptionId"] == id, agreed)?;
    Ok(Some(id))
}

/// The next notice, which has to say what subscription it belongs to, where there is one.
async fn notice(client: &mut Client, method: &str, listening: Option<u64>) -> Outcome<Value> {
    let told = client.told(method).await?;
    let subscription = &told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"];
    check(*subscription == json!(listening), &told)?;
    Ok(told)
}

async fn list_change(_: &Site, client: &mut Client) -> Outcome {
    let listening = listen(client, &[]).await?;
    let listed = client.ask("tools/list", json!({})).await?;
    check(!names(&listed["tools"], "name").contains(&"test_new_tool"), &json!("there already"))?;
    client.ask("tools/call", call("test_trigger_tool_change", json!({}))).await?;
    notice(client, "notifications/tools/list_changed", listening).await?;
    let listed = client.ask("tools/list", json!({})).await?;
    check(names(&listed["tools"], "name").contains(&"test_new_tool"), &json!("no new tool"))?;
    let result = client.ask("tools/call", call("test_new_tool", json!({}))).await?;
    check(text(&result) == "Here for now.", &result)?;

    client.ask("tools/call", call("test_trigger_prompt_change", json!({}))).await?;
    notice(client, "notifications/prompts/list_changed", listening).await?;
    let listed = client.ask("prompts/list", json!({})).await?;
    check(names(&listed["prompts"], "name").contains(&"test_new_prompt"), &listed)
}

async fn resources(_: &Site, client: &mut Client) -> Outcome {
    let listed = client.ask("resources/list", json!({})).await?;
    let uris = names(&listed["resources"], "uri");
    let all = ["test://static-text", "test://static-binary", "test://watched-resource"];
    check(uris == all, &listed)?;
    let is_stateless = client.era == Era::Stateless;
    check(listed.get("ttlMs").is_some() || !is_stateless, &listed)?;
    let listed = client.ask("resources/templates/list", json!({})).await?;
    let templates = names(&listed["resourceTemplates"], "uriTemplate");
    check(templates == ["test://template/{id}/data"], &listed)?;

    let read = client.ask("resources/read", json!({"uri": "test://static-text"})).await?;
    let content = &read["contents"][0];
    check(content["text"] == "This is the content of the static text.", &read)?;
    check(content["uri"] == "test://static-text", &read)?;
    let read = client.ask("resources/read", json!({"uri": "test://template/7/data"})).await?;
    check(read["contents"][0]["text"].as_str().is_some_and(|it| it.contains("ID: 7")), &read)?;
    let code = client.refused("resources/read", json!({"uri": "test://nowhere"})).await?;
    check(code == if is_stateless { -32602 } else { -32002 }, &json!(code))?;

    let listening = listen(client, &["test://watched-resource"]).await?;
    client.ask("tools/call", call("test_trigger_resource_change", json!({}))).await?;
    let told = notice(client, "notifications/resources/updated", listening).await?;
    check(told["params"]["uri"] == "test://watched-resource", &told)?;
    client.ask("tools/call", call("test_trigger_resource_list_change", json!({}))).await?;
    notice(client, "notifications/resources/list_changed", listening).await?;
    let listed = client.ask("resources/list", json!({})).await?;
    check(names(&listed["resources"], "uri").contains(&"test://new-resource"), &listed)?;
    // What is between the client and the server is nobody's business.
    let of_others = |it: &Value| it["method"] == "notifications/subscriptions/acknowledged";
    check(!client.has(of_others), &json!("told of a subscription it does not have"))
}

async fn prompts(_: &Site, client: &mut Client) -> Outcome {
    let listed = client.ask("prompts/list", json!({})).await?;
    check(names(&listed["prompts"], "name").contains(&"test_simple_prompt"), &listed)?;
    let said =
        |got: &Value| got["messages"][0]["content"]["text"].as_str().unwrap_or_default().to_owned();
    let arguments = json!({"arg1": "one", "arg2": "two"});
    let got = client.ask("prompts/get", call("test_prompt_with_arguments", arguments)).await?;
    check(said(&got) == "Prompt with arguments: arg1='one', arg2='two'", &got)?;
    let code = client.refused("prompts/get", call("test_no_prompt", json!({}))).await?;
    check(code == -32602, &json!(code))?;
    let about = json!({
        "ref": {"type": "ref/prompt", "name": "test_prompt_with_arguments"},
        "argument": {"name": "arg1", "value": "par"},
    });
    let completed = client.ask("completion/complete", about).await?;
    check(completed["completion"]["values"] == json!(["paris", "park", "party"]), &completed)?;

    let asking = json!({"name": "test_input_required_result_prompt"});
    let content = json!({"action": "accept", "content": {"context": "the sea"}});
    let got = client.converse("prompts/get", asking, |_, _| content.clone()).await?;
    check(said(&got).contains("the sea"), &got)
}
