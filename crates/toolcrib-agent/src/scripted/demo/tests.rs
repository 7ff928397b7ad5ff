//! Conversations with the demo, over a real engine.

use std::sync::Arc;

use toolcrib_core::{
    Call, Engine, Mode, Preset, Registry, ServerTools, Session, Settings, Step, StrategyChoice,
    ToolName, ToolSpec, View,
};

use super::*;

/// A registry with a tool that needs nothing and one that needs something.
fn view() -> View {
    let registry = Registry::default();
    let spec = |name: &str, about: &str, schema: Value| {
        ToolSpec::new(ToolName::mcp("weather", name), schema).with_description(about)
    };
    let none = json!({"type": "object", "properties": {}});
    let city = json!({"type": "object", "properties": {"city": {"type": "string"}},
        "required": ["city"]});
    registry.replace_server(ServerTools::new(
        "weather",
        [
            spec("list_stations", "Lists all stations that measure rain.", none),
            spec("forecast", "The forecast for a city.", city),
        ],
    ));
    registry.catalog().view_all()
}

/// A conversation with the demo; tools answer with `{tool} {arguments}`.
struct Chat {
    engine: Engine,
    view: View,
    session: Session,
    messages: Vec<Arc<Message>>,
}

impl Chat {
    fn new(preset: &str, strategy: &str) -> Self {
        let mut settings = Settings::default();
        settings.mode = Mode::Deferred;
        settings.preset = preset.parse::<Preset>().unwrap();
        settings.strategy = strategy.parse::<StrategyChoice>().unwrap();
        let engine = Engine::new(settings).unwrap();
        Self { engine, view: view(), session: Session::new(), messages: Vec::new() }
    }

    /// Says something, and runs calls until there are no more. Gives the calls, and the last text.
    fn say(&mut self, text: &str) -> (Vec<String>, String) {
        self.engine.begin_turn(&mut self.session, &self.view);
        self.messages.push(Arc::new(Message::user(text)));
        let mut told = Vec::new();
        for _ in 0..10 {
            let tools = self.engine.prepare(&mut self.session, &self.view).unwrap().tools;
            let said = said(answer(&request(tools.to_vec(), self.messages.clone())));
            let calls: Vec<ToolCall> = said.calls().cloned().collect();
            self.messages.push(Arc::new(Message::Assistant(said.clone())));
            if calls.is_empty() {
                return (told, said.text());
            }
            let results = calls.iter().map(|call| {
                told.push(format!("{} {}", call.name, call.arguments));
                self.run(call)
            });
            let results = results.collect();
            self.messages.push(Arc::new(Message::Tool { results }));
        }
        panic!("it never stops: {told:?}")
    }

    fn run(&mut self, call: &ToolCall) -> CallResult {
        let arguments = serde_json::from_str(&call.arguments).unwrap();
        let step =
            self.engine.resolve(&mut self.session, &self.view, &Call::new(&call.name, arguments));
        let (text, is_error) = match step {
            Step::Run(run) => (format!("{} {}", run.tool.exposed(), run.arguments), false),
            Step::Answer(answer) => (answer.content, answer.is_error),
            other => panic!("{other:?}"),
        };
        let (call_id, name) = (call.id.clone(), call.name.clone());
        let content = vec![Part::text(text)];
        CallResult { call_id, name, content, is_error, ..CallResult::default() }
    }
}

fn request(tools: Vec<Definition>, messages: Vec<Arc<Message>>) -> Request {
    Request { tools, messages, sees_images: false, ..Request::new("scripted", []) }
}

/// What a turn says, with ids as the loop gives them.
fn said(turn: Turn) -> Assistant {
    let (told, _) = turn.play(Default::default());
    let Some(Ok(crate::Delta::Finished(reply))) = told.into_iter().next_back() else { panic!() };
    let mut content = reply.content;
    for (at, piece) in content.iter_mut().enumerate() {
        if let Said::Call(call) = piece {
            call.id = format!("call_{at}");
        }
    }
    Assistant { content }
}

#[test]
fn lines_are_read_as_commands_if_the_first_is_one() {
    let call = |name, arguments| Command::Call { name, arguments };
    assert_eq!(
        commands("\n search  rain today \nwhat?\ncall a__b {\"x\": 1}\nCALL c\n"),
        [Command::Search("rain today"), call("a__b", "{\"x\": 1}"), call("c", "")]
    );
    assert_eq!(commands("please\nsearch rain"), []);
    assert_eq!(commands("search"), []);
    assert_eq!(commands("searching for rain"), []);
}

#[test]
fn without_tools_it_says_what_it_is() {
    for asked in ["Hello!", "", "search rain"] {
        let turn = answer(&request(Vec::new(), vec![Arc::new(Message::user(asked))]));
        let text = said(turn).text();
        let expected = if asked.starts_with("search") { "Nothing fits" } else { "not a model" };
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn a_search_and_calls_are_made_in_one_batch() {
    let mut chat = Chat::new("crib", "dispatch");
    let (calls, text) = chat
        .say("search forecast city\ncall mcp__weather__forecast {\"city\": \"Oslo\"}\ncall nope");
    assert_eq!(
        calls,
        [
            r#"tool_search {"query":"forecast city"}"#,
            r#"call_tool {"tool_name":"mcp__weather__forecast","arguments":{"city":"Oslo"}}"#,
            r#"call_tool {"tool_name":"nope","arguments":{}}"#,
        ]
    );
    assert!(text.starts_with("**`tool_search`** found"), "{text}");
    assert!(
        text.contains(
            "**`mcp__weather__forecast`** answered:\n\n> mcp__weather__forecast {\"city\":\"Oslo\"}"
        ),
        "{text}"
    );
    assert!(text.contains("**`nope`** failed:\n\n> "), "{text}");
}

#[test]
fn under_inject_a_tool_is_called_by_its_own_name() {
    let mut chat = Chat::new("crib", "inject");
    let (calls, _) = chat.say("call mcp__weather__list_stations");
    assert_eq!(calls, ["mcp__weather__list_stations {}"]);
}

#[test]
fn for_anything_else_it_finds_a_tool_and_calls_it_if_it_can() {
    for (preset, strategy, first) in [
        ("crib", "dispatch", r#"tool_search {"query":"Which stations measure rain?"}"#),
        ("crib", "inject", r#"tool_search {"query":"Which stations measure rain?"}"#),
        ("stubs", "inject", r#"tool_search {"query":"Which stations measure rain?"}"#),
        ("lazy", "inject", r#"tool_search {"query":"Which stations measure rain?"}"#),
        ("regex", "inject", r#"tool_search_regex {"pattern":"stations|measure|rain"}"#),
        ("groups", "dispatch", r#"load_tools {"group_id":"Which stations measure rain?"}"#),
    ] {
        let (calls, text) = Chat::new(preset, strategy).say("Which stations measure rain?");
        let what = format!("{preset}, {strategy}: {calls:?}\n{text}");
        assert_eq!(calls[0], first, "{what}");
        assert!(calls.last().unwrap().contains("mcp__weather__list_stations"), "{what}");
        assert!(text.contains("**`mcp__weather__list_stations`** answered:"), "{what}");
    }
}

#[test]
fn a_tool_that_needs_arguments_is_not_called() {
    let (calls, text) = Chat::new("crib", "dispatch").say("forecast for my city");
    assert_eq!(calls, [r#"tool_search {"query":"forecast for my city"}"#]);
    assert!(text.contains("`mcp__weather__forecast` needs `city`"), "{text}");
    assert!(text.contains("call mcp__weather__forecast {\"city\":\"…\"}"), "{text}");
}

#[test]
fn a_second_question_is_answered_like_the_first() {
    let mut chat = Chat::new("crib", "dispatch");
    let (_, first) = chat.say("Which stations measure rain?");
    let (_, second) = chat.say("Which stations measure rain?");
    assert_eq!(first, second);
}
