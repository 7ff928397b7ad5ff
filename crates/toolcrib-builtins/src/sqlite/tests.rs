use std::fs;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::builtin::{Builtin, BuiltinTools, Options};
use crate::error::Failure;
use crate::tool::Answer;

struct Place {
    folder: TempDir,
    sqlite: BuiltinTools,
}

impl Place {
    /// A root with the database `shop.db`.
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let roots = vec![folder.path().to_owned()];
        let sqlite = Builtin::Sqlite.open(&Options { roots, ..Options::default() }).unwrap();
        let place = Self { folder, sqlite };
        let table = "CREATE TABLE items (id INTEGER PRIMARY KEY, name TEXT NOT NULL, price REAL, photo BLOB)";
        place.data("execute", json!({"sql": table, "create": true})).await;
        place.data("execute", json!({"sql": "CREATE UNIQUE INDEX by_name ON items(name)"})).await;
        for (name, price) in [("tea", 2.5), ("cake", 4.0)] {
            let sql = "INSERT INTO items (name, price) VALUES (?, ?)";
            place.data("execute", json!({"sql": sql, "parameters": [name, price]})).await;
        }
        place
    }

    async fn call(&self, tool: &str, mut arguments: Value) -> Result<Value, Failure> {
        if arguments.get("database").is_none() {
            arguments["database"] = json!("shop.db");
        }
        match self.sqlite.dispatch(tool, arguments).await? {
            Answer::Data(data) => Ok(data),
            Answer::Text(text) => panic!("text: {text}"),
        }
    }

    async fn data(&self, tool: &str, arguments: Value) -> Value {
        self.call(tool, arguments).await.unwrap()
    }

    async fn count(&self) -> Value {
        self.data("query", json!({"sql": "SELECT count(*) FROM items"})).await["rows"][0][0].clone()
    }
}

#[tokio::test]
async fn rows_come_with_their_types() {
    let place = Place::new().await;
    let sql = "SELECT id, name, price, photo, x'00ff' FROM items WHERE price > ? ORDER BY id";
    let answer = place.data("query", json!({"sql": sql, "parameters": [1]})).await;
    let rows = json!([
        [1, "tea", 2.5, null, "x'00ff' [2 bytes]"],
        [2, "cake", 4.0, null, "x'00ff' [2 bytes]"]
    ]);
    assert_eq!(answer["rows"], rows);
    assert_eq!(answer["columns"], json!(["id", "name", "price", "photo", "x'00ff'"]));
}

#[tokio::test]
async fn tables_are_listed_and_described() {
    let place = Place::new().await;
    let tables = place.data("list_tables", json!({})).await;
    let items = json!({"name": "items", "kind": "table", "columns": "id, name, price, photo"});
    assert_eq!(tables, json!({"tables": [items]}));
    let about = place.data("describe_table", json!({"table": "items"})).await;
    assert_eq!(about["row_count"], 2);
    assert_eq!(about["columns"][0]["primary_key"], true);
    assert_eq!(about["columns"][1]["not_null"], true);
    assert_eq!(about["indexes"], json!([{"name": "by_name", "unique": true, "columns": "name"}]));
    let failure = place.call("describe_table", json!({"table": "x\"; DROP TABLE items"})).await;
    assert!(failure.unwrap_err().to_string().contains("no table"));
}

#[tokio::test]
async fn changes_are_counted() {
    let place = Place::new().await;
    let all = place.data("execute", json!({"sql": "UPDATE items SET price = price * 2"})).await;
    assert_eq!(all["rows_changed"], 2);
    let none = place.data("execute", json!({"sql": "CREATE TABLE other (x)"})).await;
    assert_eq!(none, json!({"rows_changed": 0}));
    let sql = "DELETE FROM items WHERE name = 'tea' RETURNING id";
    assert_eq!(place.data("execute", json!({"sql": sql})).await["rows"], json!([[1]]));
    assert_eq!(place.count().await, 1);
}

#[tokio::test]
async fn a_query_can_not_change_anything() {
    let place = Place::new().await;
    let tries = [
        "DELETE FROM items",
        "INSERT INTO items (name) VALUES ('x') RETURNING id",
        "WITH x AS (SELECT 1) DELETE FROM items",
        "DROP TABLE items",
        "PRAGMA user_version = 5",
        "SELECT 1; DELETE FROM items",
        "PRAGMA journal_mode = DELETE; DELETE FROM items",
        "BEGIN; DELETE FROM items; COMMIT",
    ];
    for sql in tries {
        assert!(place.call("query", json!({"sql": sql})).await.is_err(), "{sql}");
    }
    assert_eq!(place.count().await, 2);
    let version = place.data("query", json!({"sql": "PRAGMA user_version"})).await;
    assert_eq!(version["rows"], json!([[0]]));
}

#[tokio::test]
async fn no_statement_reaches_another_file() {
    let place = Place::new().await;
    let outside = Place::new().await;
    let secret = outside.folder.path().join("shop.db").display().to_string();
    let written = outside.folder.path().join("copy.db").display().to_string();
    for tool in ["query", "execute"] {
        for sql in [
            format!("ATTACH '{secret}' AS other"),
            format!("ATTACH 'file:{secret}?mode=ro' AS other"),
            format!("VACUUM INTO '{written}'"),
            "SELECT load_extension('x')".to_owned(),
            "PRAGMA Temp_Store_Directory = '/tmp'".to_owned(),
            format!("SELECT readfile('{secret}')"),
            format!("SELECT writefile('{written}', 'x')"),
        ] {
            assert!(place.call(tool, json!({"sql": sql})).await.is_err(), "{tool}: {sql}");
        }
        for database in ["../x.db", &secret, "file:shop.db?mode=rw", ":memory:"] {
            let arguments = json!({"database": database, "sql": "SELECT 1"});
            assert!(place.call(tool, arguments).await.is_err(), "{tool}: {database}");
        }
    }
    assert_eq!(fs::read_dir(outside.folder.path()).unwrap().count(), 1);
}

#[cfg(unix)]
#[tokio::test]
async fn a_link_does_not_lead_to_another_database() {
    let place = Place::new().await;
    let outside = Place::new().await;
    let link = |from: &str, to: &str| {
        let to = place.folder.path().join(to);
        std::os::unix::fs::symlink(outside.folder.path().join(from), to).unwrap();
    };
    link("shop.db", "link.db");
    link("new.db", "broken.db");
    for database in ["link.db", "broken.db"] {
        let arguments = json!({"database": database, "sql": "CREATE TABLE x (y)", "create": true});
        assert!(place.call("execute", arguments).await.is_err(), "{database}");
    }
    assert!(!outside.folder.path().join("new.db").exists());
}

#[tokio::test]
async fn rows_and_bytes_are_limited() {
    let place = Place::new().await;
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n";
    let answer = place.data("query", json!({"sql": endless, "max_rows": 7})).await;
    assert_eq!((&answer["row_count"], answer["note"].is_string()), (&json!(7), true));
    let wide = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
                SELECT hex(zeroblob(100000)) FROM n";
    let answer = place.data("query", json!({"sql": wide, "max_rows": 5000})).await;
    assert!(answer.to_string().len() < 400_000, "{}", answer.to_string().len());
    let huge = place.call("query", json!({"sql": "SELECT zeroblob(1000000000)"})).await;
    assert!(huge.unwrap_err().to_string().contains("too big"));
}

#[tokio::test]
async fn an_endless_statement_stops_when_its_caller_goes() {
    let place = Place::new().await;
    let sql = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)
               INSERT INTO items (name) SELECT 'x' || i FROM n";
    let call = place.call("execute", json!({"sql": sql}));
    let gone = tokio::time::timeout(std::time::Duration::from_millis(300), call).await;
    assert!(gone.is_err(), "it ended by itself");
    // The write lock is free again long before the time limit, and nothing is left.
    let begun = std::time::Instant::now();
    place.data("execute", json!({"sql": "UPDATE items SET price = 1"})).await;
    assert!(begun.elapsed().as_secs() < 10);
    assert_eq!(place.count().await, 2);
}

#[tokio::test]
async fn what_is_no_database_is_told() {
    let place = Place::new().await;
    fs::write(place.folder.path().join("a.txt"), "no database, but long enough to look at")
        .unwrap();
    let failure = place.call("list_tables", json!({"database": "a.txt"})).await.unwrap_err();
    assert!(failure.to_string().contains("not a database"), "{failure}");
    let failure = place.call("query", json!({"database": "none.db", "sql": "SELECT 1"})).await;
    assert!(matches!(failure.unwrap_err(), Failure::Missing(_)));
    let failure = place.call("execute", json!({"database": "none.db", "sql": "SELECT 1"})).await;
    assert!(matches!(failure.unwrap_err(), Failure::Missing(_)));
    assert!(!place.folder.path().join("none.db").exists());
}
