//! What a conversation costs by strategy and provider: forty answers of a model over three hundred
//! tools, twelve of which load some. The requests are those that our providers send to a server on
//! this machine; their prompts are run past each provider's cache rules and priced by the table of
//! models.
//!
//! `cargo bench -p toolcrib-agent --bench costs` prints a table. Ends with an error if the
//! cache is lost anywhere but after a load under `inject`.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

#[path = "../tests/cache/cache.rs"]
mod cache;
#[path = "../tests/cache/endpoint.rs"]
mod endpoint;
#[path = "../tests/cache/prompt.rs"]
mod prompt;
#[path = "../tests/cache/replay.rs"]
mod replay;
#[path = "../tests/cache/story.rs"]
mod story;
#[path = "../tests/cache/tools.rs"]
mod tools;

use std::process::ExitCode;

use toolcrib_agent::Hooks;
use toolcrib_tokens::{Cost, Usage};

use cache::{bill, changed, forgettable, forgotten};
use endpoint::Api;
use replay::{Way, model, play};

const MODELS: [(&str, Api); 6] = [
    ("claude-opus-5.5", Api::Anthropic),
    ("claude-haiku-4.5", Api::Anthropic),
    ("gpt-6.1-sol", Api::OpenAiResponses),
    ("gpt-5.4", Api::OpenAiResponses),
    ("gpt-4.1", Api::OpenAiChat),
    ("gpt-oss:20b", Api::Ollama),
];

/// Nobody takes part.
struct Nobody;

impl Hooks for Nobody {}

#[tokio::main]
async fn main() -> ExitCode {
    println!(
        "| model, API | strategy | requests | prompt tokens | read | written | uncached | output | cost \
         | of full |"
    );
    println!("|---|---|--:|--:|--:|--:|--:|--:|--:|--:|");
    let mut lost = false;
    for (name, api) in MODELS {
        let model = model(name);
        let mut full: Option<Cost> = None;
        for way in Way::all(api, &model) {
            let replay = play(api, &model, way, None::<Nobody>).await;
            let usages = bill(api, &model, &replay.prompts, &replay.replies);
            let loads = if way == Way::Inject { &replay.after_loads[..] } else { &[] };
            lost |= changed(&replay.prompts) != loads;
            lost |= forgotten(&model.cache, &usages) != forgettable(&model.cache, &usages, loads);
            let cost: Cost = usages.iter().map(|usage| usage.cost(&model)).sum();
            let against = *full.get_or_insert(cost);
            let requests = usages.len();
            let sum = |of: fn(&Usage) -> u64| grouped(usages.iter().map(of).sum());
            println!(
                "| {name}, {api} | {way} | {requests} | {} | {} | {} | {} | {} | {} | {} |",
                sum(Usage::prompt),
                sum(|usage| usage.read),
                sum(|usage| usage.written),
                sum(|usage| usage.uncached),
                sum(|usage| usage.output),
                cost.dollars.map_or("–".to_owned(), |dollars| format!("${dollars:.2}")),
                share(cost, against),
            );
        }
    }
    if lost { ExitCode::FAILURE } else { ExitCode::SUCCESS }
}

/// In dollars, or where nothing is billed in tokens that had to be worked through.
fn share(cost: Cost, full: Cost) -> String {
    let share = match (cost.dollars, full.dollars) {
        (Some(dollars), Some(full)) => dollars / full,
        _ => cost.input_equivalents / full.input_equivalents,
    };
    format!("{:.0} %", share * 100.0)
}

fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}
