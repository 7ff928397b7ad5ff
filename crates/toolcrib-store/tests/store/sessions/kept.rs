//! What is written comes back, and can be found, copied, taken along and deleted.

use std::collections::BTreeMap;
use std::fs;
use std::slice;
use std::thread;
use std::time::Duration;

use futures::future::join_all;
use toolcrib_runtime::{
    Access, Extent, JournalChange, JournalError, KeptCall, SessionError, SessionStore,
};
use toolcrib_store::SqliteStore;

use super::{create, mark, read, said, user, write};

#[tokio::test]
async fn a_session_comes_back_byte_for_byte_in_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let odd = [
        user("Wie wird das\\n  Wetter?"),
        r#" {"role":"assistant",  "big":123456789012345678901234567890, "x":"\u00e9\/é😀" }"#
            .into(),
        "[1.0e+2]".into(),
        format!("{}1{}", "[".repeat(5000), "]".repeat(5000)),
    ];
    let labels = BTreeMap::from([("model".to_owned(), "m".to_owned())]);
    let store = SqliteStore::open(&path).unwrap();
    let journal = store.create(labels.clone()).await.unwrap();
    for (seq, message) in odd.iter().enumerate() {
        journal.append(seq as u64, message.clone()).await.unwrap();
    }
    journal.ledger(r#"{"n": 1}"#.into()).await.unwrap();
    journal.ledger(r#"{"n":  2}"#.into()).await.unwrap();
    let id = journal.id().to_owned();
    drop((journal, store));

    let store = SqliteStore::open(&path).unwrap();
    let (opened, journal) = write(&store, &id).await;
    assert_eq!(opened.messages, odd);
    assert_eq!(opened.ledger.as_deref(), Some(r#"{"n":  2}"#));
    assert_eq!((opened.calls, opened.meta.messages), (vec![], 4));
    assert_eq!(opened.meta.title.as_deref(), Some("Wie wird das Wetter?"));
    assert_eq!((opened.meta.id, opened.meta.labels), (id.clone(), labels));
    assert_eq!(opened.meta.in_use_by, Some(std::process::id()));
    journal.append(4, user("more")).await.unwrap();
    assert_eq!(read(&store, &id).await.messages.len(), 5);
}

#[tokio::test]
async fn a_message_that_does_not_follow_is_refused_and_changes_nothing() {
    let store = SqliteStore::open_in_memory().unwrap();
    let journal = create(&store).await;
    journal.append(0, user("a")).await.unwrap();
    for seq in [0, 2, u64::MAX] {
        let error = journal.append(seq, user("x")).await.unwrap_err();
        assert!(
            matches!(error, JournalError::OutOfStep { kept: 1, given } if given == seq),
            "{error:?}"
        );
    }
    assert!(matches!(journal.cut(2).await, Err(JournalError::OutOfStep { kept: 1, given: 2 })));
    journal.append(1, user("b")).await.unwrap();
    assert_eq!(read(&store, journal.id()).await.messages, [user("a"), user("b")]);
}

#[tokio::test]
async fn changes_of_one_write_are_made_all_or_none() {
    let store = SqliteStore::open_in_memory().unwrap();
    let journal = create(&store).await;
    let append = |seq, text| JournalChange::Append { seq, message: user(text) };
    let ledger = |n: u8| JournalChange::Ledger { snapshot: n.to_string() };
    journal.write(vec![ledger(1), append(0, "a"), append(1, "b")]).await.unwrap();
    let error = journal.write(vec![ledger(2), append(2, "c"), append(9, "d")]).await.unwrap_err();
    assert!(matches!(error, JournalError::OutOfStep { kept: 3, given: 9 }), "{error:?}");
    let no_json = JournalChange::Append { seq: 3, message: "Dear diary".into() };
    let error = journal.write(vec![ledger(3), no_json]).await.unwrap_err();
    assert!(matches!(error, JournalError::NotJson { .. }), "{error:?}");

    let opened = read(&store, journal.id()).await;
    assert_eq!(opened.messages, [user("a"), user("b")]);
    assert_eq!(opened.ledger.as_deref(), Some("1"));
}

#[tokio::test]
async fn what_is_handed_over_is_written_in_order_whether_or_not_anybody_waits() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("t.db")).unwrap();
    let journal = create(&store).await;
    for seq in 0..10 {
        drop(journal.append(seq, user("x")));
    }
    let all = join_all((10..500).map(|seq| journal.append(seq, user("x")))).await;
    assert!(all.iter().all(Result::is_ok), "{all:?}");
    drop(journal.append(500, user("last")));
    let id = journal.id().to_owned();
    drop(journal);
    // The next to open it comes after all of that.
    let (opened, _journal) = write(&store, &id).await;
    assert_eq!(opened.messages.len(), 501);
    assert_eq!(opened.messages[500], user("last"));
}

#[tokio::test]
async fn calls_are_known_to_have_begun_until_a_message_follows() {
    let store = SqliteStore::open_in_memory().unwrap();
    let journal = create(&store).await;
    journal.append(0, user("do it")).await.unwrap();
    for call in ["b", "a", "c"] {
        journal.began(mark(call)).await.unwrap();
    }
    journal.finished("a".into(), r#"{"ok": true}"#.into()).await.unwrap();
    let error = journal.finished("d".into(), "1".into()).await.unwrap_err();
    assert!(matches!(&error, JournalError::NotBegun { call_id } if call_id == "d"), "{error:?}");
    assert!(matches!(
        journal.finished("b".into(), "no".into()).await,
        Err(JournalError::NotJson { .. })
    ));

    let begun = |call: &str| KeptCall { mark: mark(call), result: None };
    let finished = KeptCall { mark: mark("a"), result: Some(r#"{"ok": true}"#.into()) };
    let id = journal.id().to_owned();
    assert_eq!(read(&store, &id).await.calls, [begun("b"), finished, begun("c")]);
    journal.append(1, user("done")).await.unwrap();
    assert_eq!(read(&store, &id).await.calls, []);
    assert!(matches!(
        journal.finished("b".into(), "1".into()).await,
        Err(JournalError::NotBegun { .. })
    ));

    // Where the message goes again, the calls may still have run.
    journal.cut(1).await.unwrap();
    assert_eq!(read(&store, &id).await.calls, [begun("b"), begun("a"), begun("c")]);
    journal.cut(0).await.unwrap();
    assert_eq!(read(&store, &id).await.calls, []);
}

#[tokio::test]
async fn a_history_can_be_replaced_from_any_message_on() {
    let store = SqliteStore::open_in_memory().unwrap();
    let id = said(&store, &["a", "b", "c", "d"]).await;
    let (_, journal) = write(&store, &id).await;
    let append = |seq, text| JournalChange::Append { seq, message: user(text) };
    let changes = vec![JournalChange::Cut { seq: 1 }, append(1, "summary"), append(2, "d")];
    journal.write(changes).await.unwrap();
    let opened = read(&store, &id).await;
    assert_eq!(opened.messages, [user("a"), user("summary"), user("d")]);
    journal.write(vec![JournalChange::Cut { seq: 0 }, append(0, "anew")]).await.unwrap();
    let opened = read(&store, &id).await;
    assert_eq!(opened.messages, [user("anew")]);
    assert_eq!(opened.meta.title.as_deref(), Some("a"), "it is still the same session");
}

#[tokio::test]
async fn sessions_are_listed_and_found() {
    let store = SqliteStore::open_in_memory().unwrap();
    let weather = said(&store, &["Das WETTER in Åre", "und morgen?"]).await;
    let music = said(&store, &["play some music"]).await;
    // So that they don't change in the same millisecond.
    thread::sleep(Duration::from_millis(2));
    let (_, journal) = write(&store, &weather).await;
    let answer = r#"{"role":"assistant","content":[{"type":"text","text":"Snow."}]}"#;
    let result = r#"{"role":"tool","results":[{"call_id":"1","content":"blizzard"}]}"#;
    journal.append(2, answer.into()).await.unwrap();
    journal.append(3, result.into()).await.unwrap();

    let list = async |filter: &str, limit| {
        let found = store.list(filter, limit).await.unwrap();
        found.into_iter().map(|meta| meta.id).collect::<Vec<String>>()
    };
    assert_eq!(list("", 10).await, [weather.clone(), music.clone()], "the last that changed first");
    assert_eq!(list("", 1).await, slice::from_ref(&weather));
    assert_eq!(list("", 0).await, [""; 0]);
    for filter in ["wetter in åre", " Morgen", "snow", &weather] {
        assert_eq!(list(filter, 10).await, slice::from_ref(&weather), "{filter}");
    }
    // What only the form or a tool says is not what was said.
    for filter in ["role", "text", "blizzard", "%", "w_tter"] {
        assert_eq!(list(filter, 10).await, [""; 0], "{filter}");
    }
    let metas = store.list("", 10).await.unwrap();
    assert_eq!((metas[0].in_use_by, metas[1].in_use_by), (Some(std::process::id()), None));
    assert!(metas[1].changed_at.elapsed().unwrap().as_secs() < 60);

    store.rename(&music, "  Ö\nnote\u{1b}[31m ").await.unwrap();
    assert_eq!(store.list("ö note", 10).await.unwrap()[0].title.as_deref(), Some("Ö note [31m"));
    store.rename(&music, "").await.unwrap();
    assert_eq!(store.list(&music, 1).await.unwrap()[0].title.as_deref(), Some("play some music"));
}

#[tokio::test]
async fn the_beginning_of_an_id_will_do() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let (first, second) = (said(&store, &["a"]).await, said(&store, &["b"]).await);
    super::meddle(&path, &format!("UPDATE sessions SET id = '1abcde000000' WHERE id = '{first}'"));
    super::meddle(&path, &format!("UPDATE sessions SET id = '1abcdf000000' WHERE id = '{second}'"));
    for asked in ["1abcde", " 1ABCDE ", "1abcde000000"] {
        assert_eq!(read(&store, asked).await.messages, [user("a")]);
    }
    let error = store.open("1abcd", Access::Read).await.unwrap_err();
    assert_eq!(error.to_string(), "`1abcd` may be 1abcde000000, 1abcdf000000; give more of the id");
    for asked in ["", "  ", "2", "1abcde0000000", "%", "1_bcde"] {
        for error in [
            store.open(asked, Access::Write).await.map(drop).unwrap_err(),
            store.rename(asked, "x").await.unwrap_err(),
            store.fork(asked, Extent::Whole).await.map(drop).unwrap_err(),
            store.delete(asked).await.unwrap_err(),
            store.export(asked).await.map(drop).unwrap_err(),
        ] {
            assert!(matches!(error, SessionError::NotFound { .. }), "{asked}: {error:?}");
        }
    }
}

#[tokio::test]
async fn a_copy_goes_its_own_way() {
    let store = SqliteStore::open_in_memory().unwrap();
    let id = said(&store, &["a", "b"]).await;
    let (_, original) = write(&store, &id).await;
    original.ledger("[1]".into()).await.unwrap();
    original.began(mark("1")).await.unwrap();
    original.finished("1".into(), "7".into()).await.unwrap();

    // Also of one in use, and with what is known of its calls: they are not to run twice.
    let copy = store.fork(&id, Extent::Whole).await.unwrap();
    let (opened, journal) = write(&store, &copy).await;
    assert_eq!(opened.messages, [user("a"), user("b")]);
    assert_eq!(opened.ledger.as_deref(), Some("[1]"));
    assert_eq!(opened.calls, [KeptCall { mark: mark("1"), result: Some("7".into()) }]);
    assert_eq!(opened.meta.forked_from.as_deref(), Some(id.as_str()));
    assert_eq!(opened.meta.title.as_deref(), Some("a"));
    original.append(2, user("c")).await.unwrap();
    journal.append(2, user("C")).await.unwrap();
    assert_eq!(read(&store, &id).await.messages[2], user("c"));
    assert_eq!(read(&store, &copy).await.messages[2], user("C"));

    // A copy that ends where calls were made knows that they have begun.
    let early = store.fork(&id, Extent::First(2)).await.unwrap();
    assert_eq!(read(&store, &early).await.calls, [KeptCall { mark: mark("1"), result: None }]);
    let start = store.fork(&id, Extent::First(1)).await.unwrap();
    let start = read(&store, &start).await;
    assert_eq!((start.messages, start.calls), (vec![user("a")], vec![]));
    let more = store.fork(&id, Extent::First(u64::MAX)).await.unwrap();
    assert_eq!(read(&store, &more).await.messages.len(), 3);
}

#[tokio::test]
async fn how_much_of_a_session_is_copied_is_known() {
    let store = SqliteStore::open_in_memory().unwrap();
    let id = said(&store, &["a", "b", "c", "d"]).await;
    let append = |seq, text| JournalChange::Append { seq, message: user(text) };
    let copied = async |id: &str| {
        let opened = read(&store, id).await.meta;
        let listed = store.list(id, 1).await.unwrap().remove(0);
        assert_eq!((listed.copied, listed.messages), (opened.copied, opened.messages));
        (opened.copied, opened.messages)
    };
    assert_eq!(copied(&id).await, (0, 4));
    let whole = store.fork(&id, Extent::Whole).await.unwrap();
    let most = store.fork(&id, Extent::First(9)).await.unwrap();
    let part = store.fork(&id, Extent::First(3)).await.unwrap();
    assert_eq!(copied(&whole).await, (4, 4));
    assert_eq!(copied(&most).await, (4, 4));
    assert_eq!(copied(&part).await, (3, 3));
    assert_eq!(copied(&id).await, (0, 4), "the original is none");

    let (_, journal) = write(&store, &part).await;
    journal.append(3, user("own")).await.unwrap();
    journal.ledger("[1]".into()).await.unwrap();
    journal.began(mark("1")).await.unwrap();
    assert_eq!(copied(&part).await, (3, 4));
    journal.cut(3).await.unwrap();
    assert_eq!(copied(&part).await, (3, 3), "only what is its own went");
    journal.append(3, user("own")).await.unwrap();
    // What takes the place of a copy is none, also within one write.
    let changes = vec![JournalChange::Cut { seq: 1 }, append(1, "B"), append(2, "C")];
    journal.write(changes).await.unwrap();
    assert_eq!(copied(&part).await, (1, 3));
    let back = vec![JournalChange::Cut { seq: 2 }, append(2, "c"), append(3, "d")];
    journal.write(back).await.unwrap();
    assert_eq!(copied(&part).await, (1, 4), "a later cut behind it makes no copies");
    let refused = vec![JournalChange::Cut { seq: 0 }, append(7, "x")];
    journal.write(refused).await.unwrap_err();
    assert_eq!(copied(&part).await, (1, 4));
    // Of a copy, all is copied, whoever said it.
    let again = store.fork(&part, Extent::Whole).await.unwrap();
    assert_eq!(copied(&again).await, (4, 4));
    journal.cut(0).await.unwrap();
    assert_eq!(copied(&part).await, (0, 0));

    let exported = store.export(&id).await.unwrap();
    let imported = store.import(&exported).await.unwrap();
    assert_eq!(copied(&imported).await, (4, 4));
}

#[tokio::test]
async fn what_is_deleted_is_gone_from_the_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let journal = create(&store).await;
    let neighbour = create(&store).await;
    for seq in 0..300 {
        let large = (seq as usize * 37) % 900;
        journal.append(seq, user(&"telling words ".repeat(large))).await.unwrap();
        journal.append(seq + 1, user(&format!("telling words {seq}"))).await.unwrap();
        journal.cut(seq + 1).await.unwrap();
        neighbour.append(seq, user("stays")).await.unwrap();
        journal.ledger(format!(r#""{}""#, "telling words ".repeat(large))).await.unwrap();
        journal.began(mark(&format!("telling words {seq}"))).await.unwrap();
    }
    let id = journal.id().to_owned();
    let error = store.delete(&id).await.unwrap_err();
    assert!(matches!(error, SessionError::InUse { .. }), "{error:?}");
    let other = neighbour.id().to_owned();
    drop((journal, neighbour));
    store.delete(&id).await.unwrap();
    let error = store.open(&id, Access::Read).await.unwrap_err();
    assert!(matches!(error, SessionError::NotFound { .. }), "{error:?}");
    drop(store);
    let bytes = fs::read(&path).unwrap();
    assert!(!bytes.windows(13).any(|part| part == b"telling words"));
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(read(&store, &other).await.messages, vec![user("stays"); 300]);
}

#[tokio::test]
async fn a_session_can_be_taken_along() {
    let store = SqliteStore::open_in_memory().unwrap();
    let labels = BTreeMap::from([("model".to_owned(), "m".to_owned())]);
    let journal = store.create(labels.clone()).await.unwrap();
    let odd = r#"{"role":"assistant",  "big":123456789012345678901234567890}"#;
    journal.append(0, user("first")).await.unwrap();
    journal.append(1, odd.into()).await.unwrap();
    journal.ledger(r#"{"n":  2}"#.into()).await.unwrap();
    journal.began(mark("1")).await.unwrap();
    journal.began(mark("2")).await.unwrap();
    journal.finished("2".into(), "{ }".into()).await.unwrap();
    let id = journal.id().to_owned();
    store.rename(&id, "its name").await.unwrap();
    let exported = store.export(&id).await.unwrap();
    let value: serde_json::Value = serde_json::from_str(&exported).unwrap();
    assert_eq!((&value["toolcrib_session"], &value["name"]), (&1.into(), &"its name".into()));

    let elsewhere = SqliteStore::open_in_memory().unwrap();
    assert_eq!(elsewhere.import(&exported).await.unwrap(), id);
    let again = elsewhere.import(&exported).await.unwrap();
    assert_ne!(again, id);
    for id in [&id, &again] {
        let (here, there) = (read(&store, journal.id()).await, read(&elsewhere, id).await);
        assert_eq!(there.messages, [&user("first"), odd]);
        assert_eq!((there.ledger, there.calls), (here.ledger, here.calls));
        assert_eq!(there.meta.title.as_deref(), Some("its name"));
        assert_eq!((&there.meta.labels, there.meta.in_use_by), (&labels, None));
        assert_eq!(there.meta.created_at, here.meta.created_at);
    }
    assert_eq!(elsewhere.list("first", 9).await.unwrap().len(), 2, "it can be searched");
    assert_eq!(elsewhere.export(&id).await.unwrap(), exported);
}

#[tokio::test]
async fn what_is_no_session_is_not_taken_in() {
    let store = SqliteStore::open_in_memory().unwrap();
    let minimal = r#"{"toolcrib_session":1,"id":"../x","created_at":0,"messages":[]}"#;
    let id = store.import(minimal).await.unwrap();
    assert_ne!(id, "../x");
    for (text, part) in [
        ("", "EOF"),
        ("Dear diary", "expected value"),
        ("[]", "no exported session"),
        (r#"{"messages":[]}"#, "toolcrib_session"),
        (r#"{"toolcrib_session":0}"#, "format is 0"),
        (r#"{"toolcrib_session":1,"id":"x"}"#, "missing field"),
        (r#"{"toolcrib_session":1,"id":"x","created_at":0,"messages":7}"#, "expected a sequence"),
        (r#"{"toolcrib_session":2,"messages":{}}"#, "newer version"),
    ] {
        let error = store.import(text).await.unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
    assert_eq!(store.list("", 9).await.unwrap().len(), 1);
}
