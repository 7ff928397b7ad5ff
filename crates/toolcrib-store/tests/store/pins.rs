//! What was approved of a server's definitions.

use std::collections::BTreeMap;

use serde_json::json;
use toolcrib_core::{Fingerprint, ToolName, ToolSpec};
use toolcrib_runtime::{PinEdit, PinMark, PinStore, Pins, Wording};
use toolcrib_store::SqliteStore;

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn offered(tools: &[(&str, &str)]) -> BTreeMap<String, Wording> {
    let named = |(tool, about): &(&str, &str)| {
        let spec = ToolSpec::new(ToolName::mcp("s", *tool), json!({})).with_description(*about);
        ((*tool).to_owned(), Wording::of(&spec))
    };
    tools.iter().map(named).collect()
}

fn first(tools: &'static [(&str, &str)], whole: Option<Fingerprint>) -> PinEdit {
    Box::new(move |_| Some((Pins::first("s", offered(tools)), whole)))
}

fn read(store: &SqliteStore, key: &str) -> Option<(Pins, PinMark)> {
    block_on(PinStore::edit(store, key, Box::new(|_| None))).unwrap()
}

#[test]
fn pins_survive_and_every_change_is_seen_by_another_program() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pins.db");
    let [one, other] = [(); 2].map(|()| SqliteStore::open(&path).unwrap());
    assert_eq!(one.mark("k").unwrap(), None);
    assert!(read(&one, "k").is_none());
    let whole = Fingerprint::of([&b"list"[..]]);
    block_on(PinStore::edit(&one, "k", first(&[("a", "A.")], Some(whole)))).unwrap();
    let mark = other.mark("k").unwrap().unwrap();
    assert_eq!(mark, PinMark { revision: 1, whole: Some(whole) });
    let take_in: PinEdit = Box::new(|kept| {
        let mut pins = kept.unwrap();
        pins.take_in(offered(&[("a", "B.")]));
        Some((pins, None))
    });
    block_on(PinStore::edit(&other, "k", take_in)).unwrap();
    assert_eq!(one.mark("k").unwrap(), Some(PinMark { revision: 2, whole: None }));
    drop((one, other));
    let again = SqliteStore::open(&path).unwrap();
    let (pins, mark) = read(&again, "k").unwrap();
    assert_eq!((pins.changes().len(), mark.revision), (1, 2));
    // Reading alone changes nothing, and another key has nothing.
    assert_eq!(again.mark("k").unwrap().unwrap().revision, 2);
    assert_eq!(again.mark("l").unwrap(), None);
}

#[test]
fn two_programs_that_change_at_once_lose_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pins.db");
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let path = path.clone();
            std::thread::spawn(move || {
                let store = SqliteStore::open(path).unwrap();
                for round in 0..10 {
                    let name = format!("{writer}-{round}");
                    let add: PinEdit = Box::new(move |kept| {
                        let mut pins = kept.unwrap_or_default();
                        let own = |(tool, it): (&str, &Wording)| (tool.to_owned(), it.clone());
                        let mut all: BTreeMap<_, _> = pins.offered().map(own).collect();
                        all.extend(offered(&[(&name, "")]));
                        pins.take_in(all);
                        pins.approve(|_, _| true);
                        Some((pins, None))
                    });
                    block_on(PinStore::edit(&store, "k", add)).unwrap();
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|writer| writer.join().unwrap());
    let (pins, mark) = read(&SqliteStore::open(&path).unwrap(), "k").unwrap();
    assert_eq!((pins.offered().count(), mark.revision), (40, 40));
}

#[test]
fn pins_that_make_no_sense_are_an_error_and_not_a_first_sight() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pins.db");
    let store = SqliteStore::open(&path).unwrap();
    block_on(PinStore::edit(&store, "k", first(&[("a", "A.")], None))).unwrap();
    drop(store);
    let connection = rusqlite::Connection::open(&path).unwrap();
    connection.execute("UPDATE pins SET body = '{\"tools\": 7}'", []).unwrap();
    drop(connection);
    let store = SqliteStore::open(&path).unwrap();
    let error = block_on(PinStore::edit(&store, "k", first(&[], None))).unwrap_err();
    assert!(error.to_string().contains("remove the file"), "{error}");
}
