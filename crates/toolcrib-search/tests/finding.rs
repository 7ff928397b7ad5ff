//! What people and models ask for in words that are not the tool's own.

mod support;

use support::{first, index, keys, segment, tool, tool_of, words};
use toolcrib_search::{Document, Index, Query, Ranking};

fn servers() -> Vec<Document<'static>> {
    vec![
        tool_of("github", "create_issue", "Opens an issue in a repository."),
        tool_of("github", "list_issues", "Lists the issues of a repository."),
        tool_of("github", "create_pull_request", "Proposes changes of a branch."),
        tool_of("github", "add_issue_comment", "Writes a comment below an issue."),
        tool_of("gitlab", "create_issue", "Opens an issue in a project."),
        tool_of("linear", "create_issue", "Opens an issue for a team."),
        tool_of("slack", "post_message", "Writes into a channel."),
        tool_of("slack", "list_channels", "Lists the channels of a workspace."),
        tool_of("discord", "send_message", "Writes into a channel of a guild."),
        tool_of("files", "delete_file", "Takes a file off the disk."),
        tool_of("files", "read_file", "Returns the text of a file."),
        tool_of("calendar", "list_events", "What is planned between two days."),
    ]
}

#[track_caller]
fn check_first(index: &Index, query: &str, expected: &str) {
    for ranking in [Ranking::Lexical, Ranking::Hybrid] {
        let query = Query::new(query).ranked_by(ranking);
        assert_eq!(first(index, &query), expected, "{ranking}: {query:?}");
    }
}

#[test]
fn a_verb_finds_the_tool_that_uses_another_for_it() {
    let verbs = index(&[
        tool("add_label", "x"),
        tool("remove_label", "x"),
        tool("edit_label", "x"),
        tool("fetch_label", "x"),
        tool("enumerate_label", "x"),
    ]);
    for (query, expected) in [
        ("create label", "add_label"),
        ("new label", "add_label"),
        ("delete label", "remove_label"),
        ("destroy the labels", "remove_label"),
        ("update label", "edit_label"),
        ("get label", "fetch_label"),
        ("read label", "fetch_label"),
        ("list labels", "enumerate_label"),
    ] {
        assert_eq!(first(&verbs, &words(query)), expected, "{query}");
    }
}

#[test]
fn a_synonym_alone_finds_and_the_word_itself_finds_better() {
    let index = index(&[tool("create_label", "x"), tool("add_label", "x"), tool("sum", "y")]);
    assert_eq!(keys(&index, &words("create")), ["create_label", "add_label"]);
    assert_eq!(keys(&index, &words("add")), ["add_label", "create_label"]);
    assert_eq!(keys(&index, &words("insert")), ["add_label", "create_label"]);
}

#[test]
fn an_abbreviation_finds_what_it_stands_for() {
    let index = index(&[
        tool("list_pull_requests", "x"),
        tool("list_database_tables", "x"),
        tool("list_repository_branches", "x"),
    ]);
    for (query, expected) in [
        ("open PRs pr", "list_pull_requests"),
        ("db tables", "list_database_tables"),
        ("repo", "list_repository_branches"),
    ] {
        assert_eq!(first(&index, &words(query)), expected, "{query}");
    }
}

/// The names are of no language, so no table of words knows them or their misspellings.
#[test]
fn a_misspelt_name_is_found() {
    let index = index(&[
        tool("zorblatt_start", "x"),
        tool("quondrex_start", "x"),
        tool("miffelnaut_start", "x"),
    ]);
    for (what, query) in [
        ("a letter missing", "zorblat"),
        ("the first letter missing", "orblatt"),
        ("a letter too many", "zorbllatt"),
        ("a letter too many at the end", "zorblattq"),
        ("two letters swapped", "zobrlatt"),
        ("the first two swapped", "ozrblatt"),
        ("a letter changed", "zorblett"),
        ("the last letter changed", "zorblatz"),
    ] {
        assert_eq!(keys(&index, &words(query)), ["zorblatt_start"], "{what}");
    }
    assert_eq!(keys(&index, &words("zrblat")), [""; 0], "two letters are too many");
    assert_eq!(first(&index, &words("start a miffelnuat")), "miffelnaut_start");
}

#[test]
fn only_a_word_that_nothing_has_is_taken_for_a_misspelt_one() {
    let names = [tool("zorblatt", "x"), tool("other", "about a zorblett"), tool("third", "y")];
    assert_eq!(keys(&index(&names), &words("zorblett")), ["other"]);
    assert_eq!(keys(&index(&names), &words("zorblutt")), ["zorblatt"]);
    let apart = names.map(|document| segment(&[document])).to_vec();
    let apart = Index::new(&support::TUNING, apart);
    assert_eq!(keys(&apart, &words("zorblett")), ["other"], "known in another segment");
}

#[test]
fn a_misspelling_is_looked_for_in_names_and_not_in_descriptions() {
    let index = index(&[tool("start", "The zorblatt."), tool("stop", "The quondrex.")]);
    assert_eq!(keys(&index, &words("zorblett")), [""; 0]);
}

#[test]
fn a_name_with_a_slip_is_worth_less_than_the_name() {
    let index = index(&[tool("zorblatt", "x"), tool("zorblett", "x")]);
    let score = |query| index.search(&words(query), 1).hits[0].score;
    assert!(score("zorblutt") < score("zorblatt"));
}

#[test]
fn every_sentence_of_a_request_finds_its_tool() {
    let index = index(&servers());
    let request = "Look into the calendar and list the events of Monday. \
        Post a message about it in the slack channel. \
        Then delete the file of last week from the disk.";
    for ranking in [Ranking::Lexical, Ranking::Hybrid] {
        let found = keys(&index, &Query::new(request).ranked_by(ranking));
        for expected in ["calendar/list_events", "slack/post_message", "files/delete_file"] {
            assert!(found[..5].iter().any(|key| key == expected), "{ranking}: {found:?}");
        }
    }
}

#[test]
fn words_of_another_sentence_take_less_from_a_tool_than_words_of_its_own() {
    let index = index(&[tool("pay_invoice", "x"), tool("send_parcel", "x")]);
    let score = |query: &str, doc: usize| index.score(&words(query)).of(doc);
    for doc in [0, 1] {
        let apart = score("pay the invoice. send the parcel.", doc);
        assert!(apart > score("pay the invoice, send the parcel", doc), "{doc}");
    }
}

#[test]
fn scripts_without_spaces_are_found_by_their_pairs() {
    let index = index(&[
        tool("天気予報", "東京の天気予報を調べる"),
        tool("发送邮件", "给联系人发送电子邮件"),
        tool("파일_삭제", "디스크에서 파일을 지웁니다"),
        tool("カレンダー", "予定を表示します"),
        tool("weather", "The weather of a city."),
    ]);
    for (query, expected) in [
        ("天気を教えて", "天気予報"),
        ("东京的天気", "天気予報"),
        ("帮我发送一封邮件", "发送邮件"),
        ("电子邮件", "发送邮件"),
        ("파일 삭제", "파일_삭제"),
        ("ｶﾚﾝﾀﾞｰの予定", "カレンダー"),
    ] {
        assert_eq!(first(&index, &words(query)), expected, "{query}");
    }
    assert_eq!(keys(&index, &words("気天")), [""; 0], "the order of characters counts");
}

#[test]
fn accents_and_width_and_case_make_no_difference() {
    let index = index(&[
        tool("crear_publicación", "Crea una publicación nueva."),
        tool("löschen", "Entfernt die Datei."),
        tool("найти", "Поиск файлов по имени"),
    ]);
    for (query, expected) in [
        ("publicacion", "crear_publicación"),
        ("PUBLICACIÓN", "crear_publicación"),
        ("publicacio\u{301}n", "crear_publicación"),
        ("loschen", "löschen"),
        ("ＬÖＳＣＨＥＮ", "löschen"),
        ("ПОИСК", "найти"),
    ] {
        assert_eq!(keys(&index, &words(query)), [expected], "{query}");
    }
}

#[test]
fn an_imagined_name_lands_on_the_tool_that_was_meant() {
    let index = index(&servers());
    for (query, expected) in [
        ("slack.postMessage", "slack/post_message"),
        ("slack_send_message", "slack/post_message"),
        ("githubCreateIssue", "github/create_issue"),
        ("github-create-issue", "github/create_issue"),
        ("gitlab.issues.create", "gitlab/create_issue"),
        ("mcp__linear__add_issue", "linear/create_issue"),
        ("github:commentOnIssue", "github/add_issue_comment"),
        ("github/createPR", "github/create_pull_request"),
        ("discord.post_message", "discord/send_message"),
        ("files.removeFile", "files/delete_file"),
        ("GITHUB_LIST_ISSUES", "github/list_issues"),
    ] {
        check_first(&index, query, expected);
    }
}

#[test]
fn an_imagined_verb_lands_on_the_tool_of_the_right_server() {
    let mut servers = servers();
    servers.retain(|document| &*document.key != "github/add_issue_comment");
    check_first(&index(&servers), "mcp__github__new_issue", "github/create_issue");
}

#[test]
fn the_own_name_of_a_tool_comes_before_similar_ones() {
    let servers = servers();
    let index = index(&servers);
    for document in &servers {
        let query = format!("{} {}", document.fields[2], document.fields[0]);
        check_first(&index, &query, &document.key);
    }
}

/// Nearness in meaning never brings in what lacks a required word.
#[test]
fn required_words_hold_in_every_ranking() {
    let index = index(&servers());
    for ranking in support::RANKINGS {
        let required = |text: &str, words: &[&str]| {
            keys(&index, &Query::with_required(text, words).ranked_by(ranking))
        };
        for key in required("create an issue and post a message", &["github"]) {
            assert!(key.starts_with("github/"), "{ranking}: {key}");
        }
        for key in required("open a ticket. write a reply to it.", &["issue", "comments"]) {
            assert_eq!(key, "github/add_issue_comment", "{ranking}");
        }
        assert_eq!(required("create issue", &["zorblatt"]), [""; 0], "{ranking}");
        assert_eq!(required("create issue", &["githib"]), [""; 0], "a slip is not the word");
        assert_eq!(required("create issue", &["ticket"]), [""; 0], "nor is a synonym");
    }
    let hybrid = Query::with_required("open an issue", &["github"]);
    assert_eq!(keys(&index, &hybrid).len(), 4, "all that have it are found by it");
}
