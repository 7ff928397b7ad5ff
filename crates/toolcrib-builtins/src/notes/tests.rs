use serde_json::{Value, json};
use tempfile::TempDir;

use crate::builtin::{Builtin, BuiltinTools, Options};
use crate::error::Failure;
use crate::tool::Answer;

struct Place {
    folder: TempDir,
    notes: BuiltinTools,
}

fn open(folder: &TempDir) -> BuiltinTools {
    let data_dir = Some(folder.path().join("data"));
    Builtin::Notes.open(&Options { data_dir, ..Options::default() }).unwrap()
}

impl Place {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let notes = open(&folder);
        let place = Self { folder, notes };
        assert!(!place.folder.path().join("data").exists(), "opening wrote something");
        for (title, body, tags) in [
            ("Bread", "Knead the dough, then let it rise twice.", json!(["recipe", "#Baking"])),
            ("Meeting", "Decided to ship on Friday. Ann bakes a cake.", json!(["work"])),
            ("Garden", "Water the tomatoes.", json!([])),
        ] {
            place.data("add_note", json!({"title": title, "body": body, "tags": tags})).await;
        }
        place
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<Value, Failure> {
        match self.notes.dispatch(tool, arguments).await? {
            Answer::Data(data) => Ok(data),
            Answer::Text(text) => panic!("text: {text}"),
        }
    }

    async fn data(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.unwrap()
    }

    async fn found(&self, arguments: Value) -> Vec<String> {
        let found = self.data("search_notes", arguments).await;
        let notes = found["notes"].as_array().unwrap().iter();
        notes.map(|note| note["title"].as_str().unwrap().to_owned()).collect()
    }
}

#[tokio::test]
async fn notes_are_kept_and_found_again() {
    let place = Place::new().await;
    let note = place.data("get_note", json!({"id": 1})).await;
    assert_eq!(note["tags"], json!(["baking", "recipe"]));
    assert_eq!(note["body"], "Knead the dough, then let it rise twice.");
    let found = place.data("search_notes", json!({"query": "rising dough"})).await;
    assert_eq!(found["notes"][0]["snippet"], "Knead the **dough**, then let it **rise** twice.");
    assert_eq!(place.found(json!({"query": "tomato"})).await, ["Garden"]);
    // The same folder, opened anew.
    let again = Place { notes: open(&place.folder), folder: place.folder };
    assert_eq!(again.found(json!({"query": "ship friday"})).await, ["Meeting"]);
}

#[tokio::test]
async fn search_prefers_titles_and_all_words_and_obeys_tags() {
    let place = Place::new().await;
    assert_eq!(place.found(json!({"query": "baking"})).await, ["Bread", "Meeting"]);
    assert_eq!(place.found(json!({"query": "baking", "tag": "Work"})).await, ["Meeting"]);
    assert_eq!(place.found(json!({"query": "garden spaceship"})).await, ["Garden"]);
    assert_eq!(place.found(json!({"query": "spaceship"})).await, Vec::<String>::new());
}

#[tokio::test]
async fn a_query_is_words_and_never_syntax() {
    let place = Place::new().await;
    for query in [
        "\"dough",
        "dough OR",
        "NOT",
        "title:dough",
        "dough*(",
        "NEAR(dough",
        "'; DROP TABLE notes; --",
        "dough ^ -x",
    ] {
        place.call("search_notes", json!({"query": query})).await.unwrap();
    }
    assert!(place.call("search_notes", json!({"query": "?!"})).await.is_err());
    assert_eq!(place.data("list_notes", json!({})).await["total"], 3);
}

#[tokio::test]
async fn notes_are_changed_in_part_and_the_search_follows() {
    let place = Place::new().await;
    let changes = json!({"id": 3, "append": "Feed the roses.", "tags": ["outside"]});
    place.data("update_note", changes).await;
    let note = place.data("get_note", json!({"id": 3})).await;
    assert_eq!(note["body"], "Water the tomatoes.\nFeed the roses.");
    assert_eq!(note["title"], "Garden");
    assert_eq!(place.found(json!({"query": "outside"})).await, ["Garden"]);
    place.data("update_note", json!({"id": 3, "body": "Nothing."})).await;
    assert_eq!(place.found(json!({"query": "roses"})).await, Vec::<String>::new());
    let listed = place.data("list_notes", json!({"limit": 1})).await;
    assert_eq!((&listed["notes"][0]["title"], &listed["total"]), (&json!("Garden"), &json!(3)));
    let tags = place.data("list_tags", json!({})).await;
    assert_eq!(tags["tags"].as_array().unwrap().len(), 4);
}

#[tokio::test]
async fn a_deleted_note_is_gone_everywhere() {
    let place = Place::new().await;
    place.data("delete_note", json!({"id": 1})).await;
    assert!(
        place
            .call("get_note", json!({"id": 1}))
            .await
            .unwrap_err()
            .to_string()
            .contains("no note 1")
    );
    assert!(place.call("delete_note", json!({"id": 1})).await.is_err());
    assert!(place.call("update_note", json!({"id": 1, "title": "x"})).await.is_err());
    assert_eq!(place.found(json!({"query": "dough"})).await, Vec::<String>::new());
    assert_eq!(
        place.data("list_tags", json!({})).await,
        json!({"tags": [{"tag": "work", "notes": 1}]})
    );
    // Its id is not given to another.
    let next = place.data("add_note", json!({"title": "New"})).await;
    assert_eq!(next["id"], 4);
}

#[tokio::test]
async fn what_is_too_long_or_empty_is_refused() {
    let place = Place::new().await;
    for note in [json!({"title": "  "}), json!({"title": "x", "body": "y".repeat(300_000)})] {
        assert!(place.call("add_note", note).await.is_err());
    }
    let grown = json!({"id": 1, "append": "y".repeat(262_140)});
    assert!(matches!(place.call("update_note", grown).await, Err(Failure::InputTooLarge { .. })));
    let note = place.data("get_note", json!({"id": 1})).await;
    assert_eq!(note["body"], "Knead the dough, then let it rise twice.");
}

#[tokio::test]
async fn two_servers_share_one_file() {
    let place = Place::new().await;
    let other = Place { notes: open(&place.folder), folder: tempfile::tempdir().unwrap() };
    let add =
        |place: &Place, title: String| place.notes.dispatch("add_note", json!({"title": title}));
    let adding = (0..20).flat_map(|n| [add(&place, format!("a{n}")), add(&other, format!("b{n}"))]);
    for added in futures::future::join_all(adding).await {
        added.unwrap();
    }
    assert_eq!(other.data("list_notes", json!({})).await["total"], 43);
}
