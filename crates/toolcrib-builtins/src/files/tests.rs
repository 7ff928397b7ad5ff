use std::fs;
use std::path::Path;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::builtin::{Builtin, BuiltinTools, Options};
use crate::error::Failure;
use crate::tool::Answer;

struct Place {
    folder: TempDir,
    files: BuiltinTools,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let roots = vec![folder.path().to_owned()];
        let files = Builtin::Files.open(&Options { roots, ..Options::default() }).unwrap();
        Self { folder, files }
    }

    fn with(self, files: &[(&str, &str)]) -> Self {
        for (path, content) in files {
            let path = self.folder.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        self
    }

    fn path(&self, path: &str) -> std::path::PathBuf {
        self.folder.path().join(path)
    }

    fn content(&self, path: &str) -> String {
        fs::read_to_string(self.path(path)).unwrap()
    }

    async fn text(&self, tool: &str, arguments: Value) -> String {
        match self.files.dispatch(tool, arguments).await.unwrap() {
            Answer::Text(text) => text,
            Answer::Data(data) => panic!("data: {data}"),
        }
    }

    async fn data(&self, tool: &str, arguments: Value) -> Value {
        match self.files.dispatch(tool, arguments).await.unwrap() {
            Answer::Text(text) => panic!("text: {text}"),
            Answer::Data(data) => data,
        }
    }

    async fn failure(&self, tool: &str, arguments: Value) -> Failure {
        self.files.dispatch(tool, arguments).await.unwrap_err()
    }
}

#[tokio::test]
async fn a_file_is_read_whole_or_in_part() {
    let place = Place::new().with(&[("a.txt", "one\ntwo\nthree\nfour\n")]);
    let read = |mut arguments: Value| {
        arguments["path"] = json!("a.txt");
        place.text("read_text_file", arguments)
    };
    assert_eq!(read(json!({})).await, "one\ntwo\nthree\nfour\n");
    assert_eq!(read(json!({"head": 2})).await, "one\ntwo\n");
    assert_eq!(read(json!({"tail": 1})).await, "four\n");
    assert_eq!(read(json!({"tail": 9})).await, "one\ntwo\nthree\nfour\n");
    assert_eq!(read(json!({"start_line": 2, "end_line": 3})).await, "two\nthree\n");
    assert_eq!(read(json!({"start_line": 4})).await, "four\n");
    assert_eq!(read(json!({"head": 0})).await, "");
    let failure = place.failure("read_text_file", json!({"path": "a.txt", "start_line": 9})).await;
    assert!(failure.to_string().contains("fewer than 9 lines"), "{failure}");
    let both = json!({"path": "a.txt", "head": 1, "tail": 1});
    assert!(place.failure("read_text_file", both).await.to_string().contains("one of"));
}

#[tokio::test]
async fn a_huge_file_is_refused_whole_and_read_in_parts() {
    let line = format!("{}\n", "x".repeat(999));
    let place =
        Place::new().with(&[("big.txt", &line.repeat(2_000)), ("line.txt", &"y".repeat(600_000))]);
    let failure = place.failure("read_text_file", json!({"path": "big.txt"})).await;
    assert!(matches!(failure, Failure::TooLarge { size: 2_000_000, .. }), "{failure}");
    assert!(failure.to_string().contains("head"), "{failure}");
    let tail = place.text("read_text_file", json!({"path": "big.txt", "tail": 2})).await;
    assert_eq!(tail, line.repeat(2));
    let middle = json!({"path": "big.txt", "start_line": 1500, "end_line": 1501});
    assert_eq!(place.text("read_text_file", middle).await, line.repeat(2));
    let rest = place.text("read_text_file", json!({"path": "big.txt", "start_line": 2})).await;
    assert!(
        rest.len() < 300_000 && rest.ends_with("go on with start_line 264.]"),
        "{}",
        rest.len()
    );
    let line = place.text("read_text_file", json!({"path": "line.txt", "head": 1})).await;
    assert!(line.len() < 300_000 && line.contains("[Cut at"), "{}", line.len());
}

#[tokio::test]
async fn what_is_no_text_is_not_read_as_text() {
    let place = Place::new().with(&[("a.bin", "a\0b")]);
    let failure = place.failure("read_text_file", json!({"path": "a.bin"})).await;
    assert!(failure.to_string().contains("not a text file"), "{failure}");
    let failure = place.failure("read_text_file", json!({"path": "."})).await;
    assert!(failure.to_string().contains("is a folder"), "{failure}");
}

#[cfg(unix)]
#[tokio::test]
async fn a_pipe_is_refused_and_not_waited_for() {
    let place = Place::new();
    let made = std::process::Command::new("mkfifo").arg(place.path("pipe")).status().unwrap();
    assert!(made.success());
    let failure = place.failure("read_text_file", json!({"path": "pipe"})).await;
    assert!(failure.to_string().contains("not a regular file"), "{failure}");
    let failure = place.failure("write_file", json!({"path": "pipe", "content": ""})).await;
    assert!(failure.to_string().contains("not a regular file"), "{failure}");
}

#[tokio::test]
async fn several_files_come_with_what_went_wrong_among_them() {
    let place = Place::new().with(&[("a.txt", "A\n"), ("b.txt", "B")]);
    let paths = json!({"paths": ["a.txt", "none.txt", "../x", "b.txt"]});
    let text = place.text("read_many_files", paths).await;
    assert!(text.starts_with("==> a.txt <==\nA\n\n==> none.txt <==\n[`none.txt` does not exist.]"));
    assert!(text.contains("outside the folders") && text.ends_with("==> b.txt <==\nB"), "{text}");
}

#[tokio::test]
async fn writing_makes_folders_keeps_permissions_and_leaves_nothing_behind() {
    let place = Place::new();
    let made = place.data("write_file", json!({"path": "x/y.txt", "content": "one"})).await;
    assert_eq!(made, json!({"path": "x/y.txt", "bytes": 3, "created": true}));
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(place.path("x/y.txt"), fs::Permissions::from_mode(0o750)).unwrap();
    }
    place.data("write_file", json!({"path": "x/y.txt", "content": "two"})).await;
    assert_eq!(place.content("x/y.txt"), "two");
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt as _;
        let mode = fs::metadata(place.path("x/y.txt")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o750);
    }
    let careful = json!({"path": "x/y.txt", "content": "three", "overwrite": false});
    assert!(place.failure("write_file", careful).await.to_string().contains("already there"));
    assert_eq!(fs::read_dir(place.path("x")).unwrap().count(), 1);
}

#[tokio::test]
async fn an_edit_applies_whole_or_not_at_all() {
    let place = Place::new().with(&[("a.rs", "let a = 1;\nlet b = 1;\n")]);
    let edit = |old: &str, new: &str| json!({"old_text": old, "new_text": new});
    let edits = |edits: Value| json!({"path": "a.rs", "edits": edits});
    let twice = place.failure("edit_file", edits(json!([edit("= 1", "= 2")]))).await;
    assert!(twice.to_string().contains("occurs 2 times"), "{twice}");
    let half = edits(json!([edit("let a", "let c"), edit("nowhere", "")]));
    assert!(place.failure("edit_file", half).await.to_string().contains("edit 2 does not occur"));
    assert!(
        place
            .failure("edit_file", edits(json!([edit("", "x")])))
            .await
            .to_string()
            .contains("edit 1")
    );
    assert_eq!(place.content("a.rs"), "let a = 1;\nlet b = 1;\n");

    let mut dry = edits(json!([edit("let a = 1", "let a = 3")]));
    dry["dry_run"] = json!(true);
    let answer = place.data("edit_file", dry).await;
    assert!(answer["diff"].as_str().unwrap().contains("-let a = 1;\n+let a = 3;"), "{answer}");
    assert_eq!(place.content("a.rs"), "let a = 1;\nlet b = 1;\n");

    let all = edits(json!([{"old_text": "= 1", "new_text": "= 2", "replace_all": true}]));
    assert_eq!(place.data("edit_file", all).await, json!({"path": "a.rs", "replacements": 2}));
    assert_eq!(place.content("a.rs"), "let a = 2;\nlet b = 2;\n");
}

#[tokio::test]
async fn edits_can_not_blow_a_file_up() {
    let place = Place::new().with(&[("a.txt", &"a".repeat(100_000))]);
    let blow = json!({"old_text": "a", "new_text": "a".repeat(1_000), "replace_all": true});
    let failure = place.failure("edit_file", json!({"path": "a.txt", "edits": [blow]})).await;
    assert!(matches!(failure, Failure::InputTooLarge { .. }), "{failure}");
}

#[tokio::test]
async fn folders_are_listed_and_drawn_as_trees() {
    let files = [
        ("b.txt", "12345"),
        ("src/main.rs", ""),
        ("src/deep/er/x.rs", ""),
        (".hidden", ""),
        (".gitignore", "target/\n"),
        ("target/out", ""),
    ];
    let place = Place::new().with(&files);
    let list = place.data("list_directory", json!({"path": "src"})).await;
    let entries =
        json!([{"name": "deep", "kind": "folder"}, {"name": "main.rs", "kind": "file", "size": 0}]);
    assert_eq!(list, json!({"path": "src", "entries": entries}));
    let tree = place.text("directory_tree", json!({"depth": 2})).await;
    assert_eq!(tree, "./\n  b.txt\n  src/\n    deep/\n    main.rs\n");
    let all = place.text("directory_tree", json!({"include_ignored": true})).await;
    assert!(all.contains(".hidden") && all.contains("out") && all.contains("er/"), "{all}");
}

#[tokio::test]
async fn files_are_found_by_name() {
    let place =
        Place::new().with(&[("a.rs", ""), ("src/b.rs", ""), ("src/x/c.rs", ""), ("src/c.txt", "")]);
    let find = |pattern: &str| place.data("search_files", json!({"pattern": pattern}));
    assert_eq!(find("*.rs").await["files"], json!(["a.rs", "src/b.rs", "src/x/c.rs"]));
    assert_eq!(find("src/*.rs").await["files"], json!(["src/b.rs"]));
    assert_eq!(find("src/**/*.rs").await["files"], json!(["src/b.rs", "src/x/c.rs"]));
    let few = place.data("search_files", json!({"pattern": "*.rs", "max_results": 2})).await;
    assert_eq!(few, json!({"files": ["a.rs", "src/b.rs"], "truncated": true}));
    assert!(
        place.failure("search_files", json!({"pattern": "[a"})).await.to_string().contains("glob")
    );
}

#[tokio::test]
async fn contents_are_searched_line_by_line() {
    let files = [
        ("a.rs", "fn one() {}\nlet x = 1;\nfn Two() {}\n"),
        ("b.md", "fn three\n"),
        ("c.bin", "fn\0"),
    ];
    let place = Place::new().with(&files);
    let found = place.text("grep_files", json!({"pattern": "^fn [a-z]+"})).await;
    assert_eq!(found, "a.rs:1: fn one() {}\nb.md:1: fn three\n");
    let found = place
        .text("grep_files", json!({"pattern": "TWO", "ignore_case": true, "context": 1}))
        .await;
    assert_eq!(found, "a.rs-2- let x = 1;\na.rs:3: fn Two() {}\n");
    let found = place.text("grep_files", json!({"pattern": "fn", "glob": "*.md"})).await;
    assert_eq!(found, "b.md:1: fn three\n");
    let found = place.text("grep_files", json!({"pattern": "fn", "max_matches": 1})).await;
    assert!(found.starts_with("a.rs:1:") && found.contains("There may be more"), "{found}");
    assert_eq!(
        place.text("grep_files", json!({"pattern": "nix", "path": "a.rs"})).await,
        "Nothing matches.\n"
    );
    assert!(
        place
            .failure("grep_files", json!({"pattern": "("}))
            .await
            .to_string()
            .contains("not usable")
    );
}

#[tokio::test]
async fn things_are_moved_deleted_and_described() {
    let place = Place::new().with(&[("a.txt", "1234"), ("b.txt", "")]);
    let info = place.data("file_info", json!({"path": "a.txt"})).await;
    assert_eq!((&info["kind"], &info["size"]), (&json!("file"), &json!(4)));
    let taken = json!({"from": "a.txt", "to": "b.txt"});
    assert!(place.failure("move_file", taken).await.to_string().contains("already there"));
    place.data("create_directory", json!({"path": "x/y"})).await;
    place.data("move_file", json!({"from": "a.txt", "to": "x/y/c.txt"})).await;
    assert_eq!(place.content("x/y/c.txt"), "1234");
    assert!(!place.failure("delete_file", json!({"path": "x/y"})).await.to_string().is_empty());
    place.data("delete_file", json!({"path": "x/y/c.txt"})).await;
    place.data("delete_file", json!({"path": "x/y"})).await;
    assert!(!place.path("x/y").exists() && place.path("x").exists());
    for path in [".", "", "x/.."] {
        place.failure("delete_file", json!({"path": path})).await;
    }
    assert!(place.folder.path().exists());
}

/// Every tool with a path, tried with each way out.
#[cfg(unix)]
#[tokio::test]
async fn no_tool_leads_out_of_the_roots() {
    let place = Place::new().with(&[("a.txt", "mine")]);
    let outside = Place::new().with(&[("secret.txt", "secret")]);
    std::os::unix::fs::symlink(outside.folder.path(), place.path("link")).unwrap();
    let up = format!("../{}", outside.folder.path().file_name().unwrap().to_str().unwrap());
    let absolute = outside.folder.path().to_str().unwrap().to_owned();
    for base in ["link", &up, &absolute] {
        let secret = format!("{base}/secret.txt");
        let edit = json!([{"old_text": "secret", "new_text": "x"}]);
        let tries = [
            ("read_text_file", json!({"path": secret})),
            ("list_directory", json!({"path": base})),
            ("directory_tree", json!({"path": base})),
            ("search_files", json!({"path": base, "pattern": "*"})),
            ("grep_files", json!({"path": base, "pattern": "."})),
            ("grep_files", json!({"path": secret, "pattern": "."})),
            ("file_info", json!({"path": secret})),
            ("write_file", json!({"path": secret, "content": "x"})),
            ("write_file", json!({"path": format!("{base}/new.txt"), "content": "x"})),
            ("edit_file", json!({"path": secret, "edits": edit})),
            ("create_directory", json!({"path": format!("{base}/new")})),
            ("move_file", json!({"from": secret, "to": "taken.txt"})),
            ("move_file", json!({"from": "a.txt", "to": format!("{base}/a.txt")})),
            ("delete_file", json!({"path": secret})),
        ];
        for (tool, arguments) in tries {
            let failure = place.failure(tool, arguments).await;
            assert!(matches!(failure, Failure::OutsideRoots { .. }), "{tool} {base}: {failure}");
        }
    }
    // A walk does not follow the link either.
    let found = place.text("grep_files", json!({"pattern": "secret|mine"})).await;
    assert_eq!(found, "a.txt:1: mine\n");
    assert_eq!(outside.content("secret.txt"), "secret");
    let names = |folder: &Path| fs::read_dir(folder).unwrap().count();
    assert_eq!((names(outside.folder.path()), names(place.folder.path())), (1, 2));
    // Deleting a link deletes the link.
    place.data("delete_file", json!({"path": "link"})).await;
    assert_eq!(outside.content("secret.txt"), "secret");
}

#[tokio::test]
async fn no_tool_writes_what_git_would_run() {
    let place = Place::new().with(&[(".git/config", "[core]\n"), ("evil", "[core]\n")]);
    let tries = [
        ("write_file", json!({"path": ".git/config", "content": "x"})),
        ("write_file", json!({"path": "sub/.git/config", "content": "x"})),
        (
            "edit_file",
            json!({"path": ".git/config", "edits": [{"old_text": "core", "new_text": "x"}]}),
        ),
        ("move_file", json!({"from": "evil", "to": ".git/config", "overwrite": true})),
        ("move_file", json!({"from": "evil", "to": "new/.GIT"})),
        ("move_file", json!({"from": ".git", "to": "git"})),
        ("delete_file", json!({"path": ".git/config"})),
        ("create_directory", json!({"path": "x/.git"})),
    ];
    for (tool, arguments) in tries {
        let failure = place.failure(tool, arguments.clone()).await;
        assert!(failure.to_string().contains("not changed here"), "{tool} {arguments}: {failure}");
    }
    assert_eq!(place.content(".git/config"), "[core]\n");
}

#[tokio::test]
async fn wrong_arguments_are_told() {
    let place = Place::new();
    let failure = place.failure("read_text_file", json!({"file": "a.txt"})).await;
    assert!(matches!(failure, Failure::Arguments(_)), "{failure}");
    assert!(place.data("list_directory", Value::Null).await["entries"].is_array());
}
