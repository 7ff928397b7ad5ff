//! What providers' prompt caches make of a conversation: forty answers of a model over three
//! hundred tools, twelve of which load some. The prompts are taken from the bodies that our
//! providers send, and run past each provider's rules. `cargo bench -p toolcrib-agent --bench
//! costs` prints what comes of it.

#![allow(clippy::unwrap_used)]

mod cache;
mod endpoint;
mod prompt;
mod replay;
mod story;
mod tools;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, ready};
use serde_json::{Value, json};
use toolcrib_agent::Hooks;
use toolcrib_core::ToolSpec;
use toolcrib_tokens::{Model, Tokenizer, Usage};

use cache::{bill, changed, forgettable, forgotten};
use endpoint::{Api, Reply};
use prompt::{ABOUT_WAITING, Prompt};
use replay::{Replay, Way, model, play};
use tools::{Desk, desks};

/// Each API with models whose caches have different rules.
const MODELS: [(Api, &[&str]); 4] = [
    (Api::Anthropic, &["claude-opus-5.5", "claude-opus-5"]),
    (Api::OpenAiResponses, &["gpt-6.1-sol", "gpt-5.4"]),
    (Api::OpenAiChat, &["gpt-4.1"]),
    (Api::Ollama, &["gpt-oss:20b"]),
];

/// How a provider would bill what was sent.
fn billed(api: Api, model: &Model, replay: &Replay) -> Vec<Usage> {
    bill(api, model, &replay.prompts, &replay.replies)
}

fn models(api: Api) -> Vec<Model> {
    let of_api = MODELS.iter().filter(|(of, _)| *of == api);
    of_api.flat_map(|(_, names)| *names).map(|name| model(name)).collect()
}

/// Nothing is lost: every prompt goes on from the one before, and all of that is read. Gives the
/// last prompt.
async fn keeps_its_cache(api: Api, way: Way, requests: usize) -> String {
    let models = models(api);
    let replay = play(api, &models[0], way, None::<Restless>).await;
    assert_eq!(replay.prompts.len(), requests);
    assert_eq!(changed(&replay.prompts), [0; 0]);
    for model in &models {
        let name = &model.name;
        assert!(Way::all(api, model).contains(&way), "{name}");
        let usages = billed(api, model, &replay);
        assert_eq!(forgotten(&model.cache, &usages), [0; 0], "{name}: {usages:?}");
        let read: u64 = usages.iter().map(|usage| usage.read).sum();
        let all: u64 = usages.iter().map(Usage::prompt).sum();
        assert!(read * 10 > all * 8, "{name}: {read} of {all}");
    }
    replay.prompts.last().unwrap().text()
}

/// Loads change the tools at the front, and everything behind them is paid for again. Nothing
/// else is.
async fn loses_its_cache_with_each_load(api: Api) {
    let models = models(api);
    let replay = play(api, &models[0], Way::Inject, None::<Restless>).await;
    assert_eq!((replay.prompts.len(), replay.after_loads.len()), (40, 12));
    assert_eq!(changed(&replay.prompts), replay.after_loads);
    for model in &models {
        let name = &model.name;
        let usages = billed(api, model, &replay);
        let lost = forgettable(&model.cache, &usages, &replay.after_loads);
        assert_eq!(forgotten(&model.cache, &usages), lost, "{name}: {usages:?}");
        assert!(lost.len() >= 10, "{name}: {lost:?}");
    }
}

#[tokio::test]
async fn anthropic_native_keeps_its_cache() {
    let prompt = keeps_its_cache(Api::Anthropic, Way::Native, 40).await;
    assert!(prompt.matches(r#""type":"tool_reference""#).count() >= 12);
}

#[tokio::test]
async fn openai_responses_native_keeps_its_cache() {
    let prompt = keeps_its_cache(Api::OpenAiResponses, Way::Native, 40).await;
    assert_eq!(prompt.matches(r#""type":"tool_search_output""#).count(), 10);
    assert_eq!(prompt.matches(r#""type":"additional_tools""#).count(), 2);
}

#[test]
fn there_are_three_hundred_tools_of_the_sizes_that_real_ones_have() {
    let tokens = |spec: ToolSpec| {
        let text = format!("{}{}{}", spec.name(), spec.description(), spec.input_schema().get());
        Tokenizer::O200K.count(&text).tokens
    };
    let desks: Vec<Desk> = desks(&Arc::default()).collect();
    assert_eq!(desks.len(), 20);
    let specs = desks.into_iter().flat_map(|desk| desk.specs);
    let mut sizes: Vec<u64> = specs.map(tokens).collect();
    sizes.sort_unstable();
    let (median, mean) = (sizes[sizes.len() / 2], sizes.iter().sum::<u64>() / 300);
    assert_eq!(sizes.len(), 300);
    assert!((150..250).contains(&median) && (250..350).contains(&mean), "{median}, {mean}");
    assert!((50..100).contains(&sizes[0]) && (900..1200).contains(&sizes[299]), "{sizes:?}");
}

macro_rules! each {
    ($($name:ident: $api:ident;)+) => {
        $(mod $name {
            use super::*;

            #[tokio::test]
            async fn full_keeps_its_cache() {
                keeps_its_cache(Api::$api, Way::Full, 28).await;
            }

            #[tokio::test]
            async fn dispatch_keeps_its_cache() {
                keeps_its_cache(Api::$api, Way::Dispatch, 40).await;
            }

            #[tokio::test]
            async fn inject_loses_its_cache_with_each_load() {
                loses_its_cache_with_each_load(Api::$api).await;
            }
        })+
    };
}

each! {
    anthropic: Anthropic;
    openai_responses: OpenAiResponses;
    openai_chat: OpenAiChat;
    ollama: Ollama;
}

/// Tells the model something else at the start of each request.
struct Restless(AtomicUsize);

impl Hooks for Restless {
    fn transform_system_prompt(&self, prompt: String) -> BoxFuture<'_, String> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        ready(format!("This is request {number}.\n\n{prompt}")).boxed()
    }
}

#[tokio::test]
async fn a_system_prompt_that_changes_is_noticed_each_time() {
    for (api, models) in MODELS {
        let model = model(models[0]);
        let hooks = Restless(AtomicUsize::new(0));
        let replay = play(api, &model, Way::Dispatch, Some(hooks)).await;
        let all: Vec<usize> = (1..40).collect();
        assert_eq!(changed(&replay.prompts), all, "{api:?}");
        let usages = billed(api, &model, &replay);
        let lost = forgettable(&model.cache, &usages, &all);
        assert_eq!(forgotten(&model.cache, &usages), lost, "{api:?}: {usages:?}");
        assert!(lost.len() >= 35, "{api:?}: {lost:?}");
    }
}

#[tokio::test]
async fn a_batch_of_calls_needs_the_mark_where_the_request_before_ended() {
    let model = model("claude-opus-5");
    let mut replay = play(Api::Anthropic, &model, Way::Dispatch, None::<Restless>).await;
    let lengths: Vec<usize> = replay.prompts.iter().map(|prompt| prompt.blocks.len()).collect();
    let batch = lengths.windows(2).position(|pair| pair[1] > pair[0] + 40).unwrap() + 1;
    for prompt in &mut replay.prompts {
        let marks = prompt.blocks.iter_mut().filter(|block| block.mark);
        let (mut marks, last): (Vec<_>, usize) = (marks.collect(), 3);
        // Tools, system, the end before, the end.
        if marks.len() > last {
            marks[last - 1].mark = false;
        }
    }
    assert_eq!(changed(&replay.prompts), [0; 0]);
    let usages = billed(Api::Anthropic, &model, &replay);
    assert_eq!(forgotten(&model.cache, &usages), [batch]);
}

fn asked(body: Value) -> Prompt {
    Prompt::read(Api::Anthropic, &model("claude-opus-5"), &body.to_string())
}

#[test]
fn a_tool_that_waits_is_read_where_it_is_referred_to() {
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object"}});
    let waits = |name: &str| {
        let mut tool = tool(name);
        tool["defer_loading"] = true.into();
        tool
    };
    let result = json!({"type": "tool_result", "tool_use_id": "1",
        "content": [{"type": "tool_reference", "tool_name": "b"}]});
    let addition = json!({"type": "tool_addition",
        "tool": {"type": "tool_reference", "name": "c"}});
    let messages =
        json!([{"role": "user", "content": [result]}, {"role": "system", "content": [addition]}]);
    let first = asked(json!({"tools": [tool("a")], "messages": []}));
    let mut body = json!({"tools": [tool("a"), waits("b"), waits("c"), waits("d")],
        "messages": messages});
    let second = asked(body.clone());
    let expected = [
        format!("{ABOUT_WAITING}{}", tool("a")),
        format!("user{result}{}", tool("b")),
        format!("system{addition}{}", tool("c")),
    ];
    let texts: Vec<&str> = second.blocks.iter().map(|block| block.text.as_str()).collect();
    assert_eq!(texts, expected);
    // The first that waits is a change. Another definition of what nothing refers to is none, and
    // of what something does is one.
    body["tools"][3]["description"] = "Another.".into();
    let third = asked(body.clone());
    body["tools"][1]["description"] = "Another.".into();
    assert_eq!(changed(&[first, second, third, asked(body)]), [1, 3]);
}

#[test]
#[should_panic(expected = "`b` is not declared")]
fn a_reference_to_a_tool_that_is_not_declared_is_refused() {
    let reference = json!({"type": "tool_reference", "tool_name": "b"});
    let result = json!({"type": "tool_result", "tool_use_id": "1", "content": [reference]});
    asked(json!({"messages": [{"role": "user", "content": [result]}]}));
}

#[test]
#[should_panic(expected = "the provider takes four")]
fn a_fifth_mark_is_refused() {
    let mark = json!({"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}});
    let content = vec![mark; 5];
    let prompt = asked(json!({"messages": [{"role": "user", "content": content}]}));
    bill(Api::Anthropic, &model("claude-opus-5"), &[prompt], &[Reply::default()]);
}
