//! What holds for any history.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::Strategy as _;
use toolcrib_core::Strategy;

use super::*;

/// One thing that happens in a conversation.
#[derive(Clone, Debug)]
enum Happens {
    Asked(usize),
    Told(usize),
    Host,
    Came,
    Said(usize),
    Paused(usize),
    Called(Vec<usize>),
}

fn happens() -> impl proptest::strategy::Strategy<Value = Happens> {
    let size = || 0..400usize;
    prop_oneof![
        3 => size().prop_map(Happens::Asked),
        1 => size().prop_map(Happens::Told),
        1 => Just(Happens::Host),
        1 => Just(Happens::Came),
        2 => size().prop_map(Happens::Said),
        1 => size().prop_map(Happens::Paused),
        4 => vec(size(), 1..4).prop_map(Happens::Called),
    ]
}

fn made(all: &[Happens]) -> History {
    let mut messages = Vec::new();
    let mut number = 0;
    for one in all {
        match one {
            Happens::Asked(size) => messages.push(user(*size)),
            Happens::Told(size) => messages.push(Message::notice(words(*size))),
            Happens::Host => messages.push(host()),
            Happens::Came => messages.push(Message::Tools(ToolChange {
                added: vec![tool("read", "Reads.")],
                removed: vec!["write".into()],
            })),
            Happens::Said(size) => messages.push(said(*size)),
            Happens::Paused(size) => messages.extend([said(1), said(*size)]),
            Happens::Called(sizes) => {
                let ids: Vec<String> = sizes
                    .iter()
                    .map(|_| {
                        number += 1;
                        number.to_string()
                    })
                    .collect();
                let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
                let texts = ids.iter().zip(sizes);
                let results = texts.map(|(id, size)| result(id, vec![Part::text(words(*size))]));
                let results = results.collect();
                messages.extend([calls(&ids), Message::Tool { results }]);
            }
        }
    }
    history(messages)
}

fn size(messages: &[Arc<Message>]) -> u64 {
    messages.iter().map(|message| tokens(message, O200K)).sum()
}

fn is_shown(message: &Message) -> bool {
    !matches!(message, Message::Host { .. })
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_compacted_history_is_valid_and_ends_as_it_did(
        all in vec(happens(), 0..24),
        keep in 0..2000u64,
        strategy in select(vec![Strategy::Dispatch, Strategy::Inject, Strategy::Native]),
    ) {
        let whole = made(&all);
        prop_assert_eq!(mend(&mut whole.clone()), 0);
        let Some(at) = split(&whole, keep, O200K) else { return Ok(()) };
        prop_assert_eq!(split(&whole, keep, O200K), Some(at));
        let (head, tail) = whole.split_at(at);
        prop_assert!(size(head) >= keep / 4);

        // It begins where a model can be asked from.
        if let Some(first) = tail.first() {
            let before = head.iter().rfind(|it| is_shown(it));
            let follows = matches!(before.map(|it| &**it), Some(Message::Assistant(_)));
            let may_begin = match **first {
                Message::User { .. } => true,
                Message::Assistant(_) => !follows,
                _ => false,
            };
            prop_assert!(may_begin);
        }

        // Nothing that waits for an answer is summarised.
        let answered = whole.iter().rposition(|it| {
            matches!(**it, Message::Assistant(_) | Message::Tool { .. })
        });
        let waits = |place: usize| matches!(*whole[place], Message::User { .. });
        let after = answered.map_or(0, |place| place + 1);
        if let Some(waiting) = (after..whole.len()).find(|place| waits(*place)) {
            prop_assert!(at <= waiting);
        } else {
            prop_assert!(size(tail) <= 2 * keep);
        }

        let tools = [tool("read", "Reads."), tool("find", "Finds.")];
        let now = compacted(&whole, at, "Summary.", &loaded(&tools, strategy));
        prop_assert_eq!(&now, &compacted(&whole, at, "Summary.", &loaded(&tools, strategy)));
        prop_assert_eq!(mend(&mut now.clone()), 0);
        prop_assert!(notice(&now[0]).contains("> Summary."));
        let kept: Vec<&Arc<Message>> =
            now.iter().filter(|it| tail.iter().any(|old| Arc::ptr_eq(it, old))).collect();
        prop_assert!(kept.iter().copied().eq(tail.iter()));
        prop_assert!(now.len() - kept.len() <= 2);

        // And the same can be done with it later.
        let later = [now, history([said(600), user(1)])].concat();
        if let Some(at) = split(&later, keep, O200K) {
            let again = compacted(&later, at, "Again.", &loaded(&tools, strategy));
            prop_assert_eq!(mend(&mut again.clone()), 0);
            prop_assert!(again.contains(&later[later.len() - 1]));
        }
    }

    #[test]
    fn a_shortened_history_is_valid_and_fits(
        all in vec(happens(), 0..24),
        room in 0..6000u64,
    ) {
        let whole = made(&all);
        let Some(short) = shortened(&whole, room, O200K) else { return Ok(()) };
        prop_assert_eq!(&shortened(&whole, room, O200K), &Some(short.clone()));
        prop_assert_eq!(mend(&mut short.clone()), 0);
        let asked = request_messages(&short, 1000);
        prop_assert_eq!(&asked[..short.len()], &short[..]);
        prop_assert!(size(&asked) <= room, "{} of {room}", size(&asked));
        if size(&whole) + 400 <= room {
            prop_assert_eq!(short, whole);
        }
    }
}
