//! Tools offered before they are asked for: at the end of the context, and nowhere else.

mod support;

use std::sync::Arc;

use serde_json::json;
use support::{Chat, deferring, registry, server};
use toolcrib_core::{
    Group, Meaning, Mode, Policy, Presentation, Preset, Registry, Session, Strategy, StrategyChoice,
};

fn shop() -> Registry {
    let registry = registry([
        server("mail", &[("send_mail", "Sends a letter to a person"), ("list_mail", "Lists mail")]),
        server("git", &[("log", "The history of a branch"), ("blame", "Who wrote a line")]),
    ]);
    let named = Group::new("post").with_tool_names(["send_letter"]);
    registry.declare(named).expect("it is new");
    registry
}

fn chat(preset: Preset, strategy: Strategy) -> Chat {
    let mut chat = Chat::unsettled(Policy::default(), deferring(preset), shop());
    chat.session.choose(strategy);
    chat.turn();
    chat.prepare();
    chat
}

fn predict(chat: &mut Chat, text: &str, most: usize) -> Vec<Arc<str>> {
    let view = chat.view();
    chat.engine.predict(&mut chat.session, &view, Meaning::default(), text, most)
}

fn added(shown: &Presentation) -> Vec<&str> {
    shown.change.added.iter().map(|it| &**it.tool.name()).collect()
}

const LETTER: &str = "Please send a letter to Ann, +1 on that";

#[test]
fn what_a_text_suggests_is_announced_under_dispatch_in_every_preset() {
    for preset in Preset::ALL {
        let mut chat = chat(preset, Strategy::Dispatch);
        let hash = chat.hash();
        // `send_letter` fits better, but only its loader could show it.
        assert_eq!(predict(&mut chat, LETTER, 2), ["mcp__mail__send_mail".into()], "{preset}");
        let shown = chat.prepare();
        let [told] = &shown.announcements[..] else { panic!("{preset}: {shown:?}") };
        assert!(told.starts_with("Now loaded:\n{\"name\":\"mcp__mail__send_mail\""), "{told}");
        assert_eq!(shown.fingerprint(), hash, "{preset}");
        // What it has been given once need not be given again.
        assert_eq!(predict(&mut chat, LETTER, 2), [] as [Arc<str>; 0]);
        assert_eq!(chat.told(), [""; 0]);
        assert_eq!(chat.asked, [], "no loader was asked");
    }
}

#[test]
fn what_a_text_suggests_is_a_change_under_native() {
    let mut chat = chat(Preset::Crib, Strategy::Native);
    let hash = chat.hash();
    let names = predict(&mut chat, LETTER, 3);
    assert_eq!(names[0], "mcp__mail__send_mail".into());
    let shown = chat.prepare();
    assert_eq!(added(&shown), names.iter().map(|name| &**name).collect::<Vec<_>>());
    assert_eq!((shown.fingerprint(), shown.announcements.len()), (hash, 0));
    assert_eq!(chat.run("mcp__mail__send_mail", json!({})).effects.loaded, []);
}

#[test]
fn nothing_is_put_into_a_prefix() {
    let mut early = Chat::unsettled(Policy::default(), deferring(Preset::Crib), shop());
    assert_eq!(predict(&mut early, LETTER, 5), [] as [Arc<str>; 0]);
    assert_eq!(early.tools(), ["tool_search", "load_tools", "call_tool"]);

    let mut injecting = chat(Preset::Crib, Strategy::Inject);
    let before = injecting.prepare();
    assert_eq!(predict(&mut injecting, LETTER, 5), [] as [Arc<str>; 0]);
    assert_eq!(injecting.prepare(), before);

    let mut settings = deferring(Preset::Crib);
    (settings.mode, settings.strategy) = (Mode::Full, StrategyChoice::Dispatch);
    let mut full = Chat::new(settings, shop());
    assert_eq!(predict(&mut full, LETTER, 5), [] as [Arc<str>; 0]);
}

#[test]
fn what_suggests_nothing_loads_nothing() {
    let mut chat = chat(Preset::Crib, Strategy::Dispatch);
    for (text, most) in [("", 5), ("?!", 5), (LETTER, 0), ("qqq xyzzy", 5)] {
        assert_eq!(predict(&mut chat, text, most), [] as [Arc<str>; 0], "{text}");
    }
    chat.session = chat.session.fork_without_loading();
    assert_eq!(predict(&mut chat, LETTER, 5), [] as [Arc<str>; 0]);
    chat.session = Session::without_mcp();
    chat.prepare();
    assert_eq!(predict(&mut chat, LETTER, 5), [] as [Arc<str>; 0]);
    assert_eq!(chat.told(), [""; 0]);
}

#[test]
fn marks_of_a_query_are_plain_text_here() {
    for text in ["select:mcp__git__log", "/log/", "the branch history +zebra"] {
        let mut chat = chat(Preset::Crib, Strategy::Dispatch);
        assert_eq!(predict(&mut chat, text, 1), ["mcp__git__log".into()], "{text}");
    }
}
