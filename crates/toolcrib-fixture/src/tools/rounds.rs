//! Tools made for the rounds of 2026-07-28. In a session they ask as any other does.

use super::{Call, Outcome, Tool, text};
use crate::ask::Ask;

pub(super) fn tools() -> Vec<Tool> {
    vec![
        Tool::new("test_input_required_result_elicitation", "Asks for a name", |call| {
            Box::pin(elicitation(call))
        }),
        Tool::new("test_input_required_result_sampling", "Asks the client's model", |call| {
            Box::pin(sampling(call))
        }),
        Tool::new("test_input_required_result_list_roots", "Asks for folders", |call| {
            Box::pin(roots(call))
        }),
        Tool::new("test_input_required_result_request_state", "Asks, with a state", |call| {
            Box::pin(state(call))
        }),
        Tool::new("test_input_required_result_tampered_state", "Guards its state", |call| {
            Box::pin(state(call))
        }),
        Tool::new("test_input_required_result_multiple_inputs", "Asks three things", |call| {
            Box::pin(three(call))
        }),
        Tool::new("test_input_required_result_multi_round", "Asks twice", |call| {
            Box::pin(twice(call))
        }),
        Tool::new("test_input_required_result_capabilities", "Asks what can be asked", |call| {
            Box::pin(what_can_be(call))
        }),
    ]
}

fn name() -> Ask {
    Ask::text("user_name", "What is your name?", "name")
}

async fn elicitation(call: Call) -> Outcome {
    let answers = call.caller.ask(&[name()]).await?;
    let name = answers[0]["content"]["name"].as_str().unwrap_or("nobody");
    Ok(text(format!("Hello, {name}!")))
}

async fn sampling(call: Call) -> Outcome {
    let ask = Ask::model("capital_question", "What is the capital of France?", 100);
    let answers = call.caller.ask(&[ask]).await?;
    Ok(text(format!("The model says: {}", answers[0]["content"]["text"])))
}

async fn roots(call: Call) -> Outcome {
    let answers = call.caller.ask(&[Ask::roots("client_roots")]).await?;
    Ok(text(format!("Folders: {}", answers[0]["roots"])))
}

async fn state(call: Call) -> Outcome {
    let ask = Ask::yes("confirm", "Please confirm", "ok");
    call.caller.ask_sealed(&call.server.seal, &[ask]).await?;
    Ok(text("state-ok"))
}

async fn three(call: Call) -> Outcome {
    let asks =
        [name(), Ask::model("greeting", "Generate a greeting", 50), Ask::roots("client_roots")];
    let answers = call.caller.ask_sealed(&call.server.seal, &asks).await?;
    Ok(text(format!("Answers: {} {} {}", answers[0], answers[1], answers[2])))
}

async fn twice(call: Call) -> Outcome {
    let seal = &call.server.seal;
    let first = Ask::text("step1", "Step 1: What is your name?", "name");
    let first = call.caller.ask_sealed(seal, &[first]).await?;
    let second = Ask::text("step2", "Step 2: What is your favorite color?", "color");
    let second = call.caller.ask_sealed(seal, &[second]).await?;
    Ok(text(format!("{} likes {}", first[0]["content"]["name"], second[0]["content"]["color"])))
}

async fn what_can_be(call: Call) -> Outcome {
    let all =
        [name(), Ask::model("greeting", "Generate a greeting", 50), Ask::roots("client_roots")];
    let asks: Vec<_> = all.into_iter().filter(|ask| call.caller.can(ask.capability())).collect();
    let answers = call.caller.ask(&asks).await?;
    Ok(text(format!("Answered: {}", answers.len())))
}
