//! What is put comes back.

use std::path::Path;
use std::thread;
use std::time::{Duration, UNIX_EPOCH};

use toolcrib_runtime::ManifestStore;
use toolcrib_store::SqliteStore;

use crate::support::{age, manifest, raw, text};

fn keys(store: &SqliteStore) -> Vec<String> {
    store.manifests().unwrap().into_iter().map(|kept| kept.key).collect()
}

#[test]
fn a_manifest_comes_back_byte_for_byte_in_the_next_run() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let deep = format!("{}1{}", "[".repeat(5000), "]".repeat(5000));
    let odd = [
        r#"{"name":"a",  "b":1.0e+2, "big":123456789012345678901234567890 }"#,
        "{\"z\":1,\r\n\t\"a\":2,\"a\":3}",
        r#"{"escaped":"\u00e9\/\u0000\ud83d\ude00","plain":"é/😀 — ' \" -- ;"}"#,
        &deep,
    ];
    let mut wanted = manifest("weather", 3);
    wanted.server_info = Some(raw(odd[1]));
    wanted.capabilities = Some(raw(odd[0]));
    wanted.tools.extend(odd.map(raw));

    let store = SqliteStore::open(&path).unwrap();
    store.put("k", wanted.clone());
    drop(store);

    let found = SqliteStore::open(&path).unwrap().get("k").unwrap();
    let tools: Vec<&str> = found.tools[3..].iter().map(|tool| tool.get()).collect();
    assert_eq!(tools, odd);
    assert_eq!(text(&found), text(&wanted));
    assert_eq!(found.listed_at, wanted.listed_at);
}

#[test]
fn what_is_absent_comes_back_absent() {
    let store = SqliteStore::open_in_memory().unwrap();
    let mut bare = manifest("bare", 0);
    (bare.server_info, bare.capabilities, bare.instructions) = (None, None, None);
    (bare.holds_for, bare.start_took) = (None, None);
    store.put("k", bare.clone());
    store.flush().unwrap();
    assert_eq!(text(&store.get("k").unwrap()), text(&bare));
}

#[test]
fn a_put_is_seen_at_once_and_replaces_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("t.db")).unwrap();
    for n in 0..200 {
        store.put("k", manifest("s", n));
        assert_eq!(store.get("k").unwrap().tools.len(), n);
        assert_eq!(store.manifests().unwrap()[0].tools, n as u64);
    }
    store.flush().unwrap();
    assert_eq!(store.get("k").unwrap().tools.len(), 199);
}

#[test]
fn what_is_forgotten_is_gone_at_once_and_for_good() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    store.put("a", manifest("a", 1));
    store.put("b", manifest("b", 1));
    store.flush().unwrap();
    store.forget("a");
    store.forget("never there");
    assert!(store.get("a").is_none());
    assert_eq!(keys(&store), ["b"]);
    drop(store);
    assert_eq!(keys(&SqliteStore::open(&path).unwrap()), ["b"]);
}

#[test]
fn a_list_tells_what_is_kept_whether_written_or_not() {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("t.db")).unwrap();
    store.put("k2", manifest("zeta", 2));
    store.put("k1", manifest("alpha", 5));
    let before = store.manifests().unwrap();
    store.flush().unwrap();
    assert_eq!(store.manifests().unwrap(), before);

    let [first, second] = before.as_slice() else { panic!("{before:?}") };
    assert_eq!((first.key.as_str(), first.server.as_str()), ("k1", "alpha"));
    assert_eq!(first.tools, 5);
    assert_eq!(first.listed_at, UNIX_EPOCH + Duration::from_millis(1_790_000_000_123));
    assert_eq!(first.bytes, text(&manifest("alpha", 5)).len() as u64);
    assert_eq!(second.server, "zeta");
}

#[test]
fn a_manifest_that_is_too_large_is_not_kept_and_the_old_one_goes() {
    let store = SqliteStore::open_in_memory().unwrap();
    store.put("k", manifest("s", 1));
    let mut large = manifest("s", 0);
    large.instructions = Some("x".repeat(33 << 20));
    store.put("k", large);
    assert!(store.get("k").is_none());
    store.flush().unwrap();
    assert!(store.get("k").is_none());
}

#[test]
fn a_time_that_can_not_be_written_keeps_nothing_and_harms_nothing() {
    let store = SqliteStore::open_in_memory().unwrap();
    let mut early = manifest("s", 1);
    early.listed_at = UNIX_EPOCH - Duration::from_secs(1);
    store.put("k", early);
    assert!(store.get("k").is_none());
    store.flush().unwrap();
}

#[test]
fn what_was_not_used_for_ninety_days_is_gone_at_the_next_open() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let fill = || SqliteStore::open(&path).unwrap().put("k", manifest("s", 1));
    fill();
    age(&path, 91);
    assert!(SqliteStore::open(&path).unwrap().get("k").is_none());

    fill();
    age(&path, 89);
    assert!(SqliteStore::open(&path).unwrap().get("k").is_some(), "this counts as a use");
    let store = SqliteStore::open(&path).unwrap();
    let used = store.manifests().unwrap()[0].used_at;
    assert!(used.elapsed().unwrap() < Duration::from_secs(3600), "{used:?}");
}

#[test]
fn stores_of_one_file_see_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let gateway = SqliteStore::open(&path).unwrap();
    let command = SqliteStore::open(&path).unwrap();
    command.put("k", manifest("s", 4));
    command.flush().unwrap();
    assert_eq!(gateway.get("k").unwrap().tools.len(), 4);
    gateway.forget("k");
    gateway.flush().unwrap();
    assert!(command.get("k").is_none());
}

#[test]
fn many_may_make_the_file_at_once() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("new/t.db");
    thread::scope(|scope| {
        for n in 0..8 {
            let path = &path;
            scope.spawn(move || {
                let store = SqliteStore::open_or_recover(path).unwrap();
                store.put(&n.to_string(), manifest("s", n));
                store.flush().unwrap();
            });
        }
    });
    let store = SqliteStore::open(&path).unwrap();
    assert_eq!(keys(&store), ["0", "1", "2", "3", "4", "5", "6", "7"]);
    assert!(!folder.path().join("new/t.db.corrupt-1").exists());
}

#[test]
fn clones_are_one_store_and_the_last_one_writes_everything() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t.db");
    let store = SqliteStore::open(&path).unwrap();
    let clones: Vec<_> = (0..4).map(|n| (n, store.clone())).collect();
    drop(store);
    thread::scope(|scope| {
        for (n, clone) in clones {
            scope.spawn(move || {
                for m in 0..25 {
                    clone.put(&format!("{n}-{m}"), manifest("s", 1));
                }
            });
        }
    });
    assert!(!path.with_file_name("t.db-wal").exists(), "the log is written back");
    assert_eq!(SqliteStore::open(&path).unwrap().manifests().unwrap().len(), 100);
}

#[cfg(unix)]
#[test]
fn only_the_owner_may_read_what_is_made() {
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a/b/t.db");
    let store = SqliteStore::open(&path).unwrap();
    store.put("k", manifest("s", 1));
    store.flush().unwrap();
    assert_eq!(mode(&folder.path().join("a")), 0o700);
    assert_eq!(mode(&folder.path().join("a/b")), 0o700);
    for name in ["t.db", "t.db-wal", "t.db-shm", "t.db-lock"] {
        assert_eq!(mode(&path.with_file_name(name)), 0o600, "{name}");
    }
}

#[test]
fn a_name_is_a_file_name_whatever_sqlite_makes_of_it() {
    let folder = tempfile::tempdir().unwrap();
    for name in [":memory:", "file:x?mode=memory", "ü 😀 %20#.db"] {
        let path = folder.path().join(name);
        SqliteStore::open(&path).unwrap().put("k", manifest("s", 1));
        assert!(path.metadata().unwrap().len() > 0, "{name}");
        assert!(SqliteStore::open(&path).unwrap().get("k").is_some(), "{name}");
    }
}
