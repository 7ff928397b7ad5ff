//! Faults over HTTP.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use serde_json::json;
use toolcrib_wire::Era;

use crate::raw::{BOTH, LONG, SHORT, ended};
use crate::web::{End, Web};

#[test]
fn without_a_flag_it_behaves_in_both_eras() {
    for era in BOTH {
        let mut web = Web::greeted(era, &[]);
        assert_eq!(web.session.is_some(), era == Era::Sessions);
        let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        assert_eq!(web.post(&initialized, LONG).status, 202);
        let list = web.ask("tools/list", json!({}), LONG).json();
        assert_eq!(list["result"]["tools"].as_array().unwrap().len(), 4);
        web.echoes();
        assert_eq!(web.send("POST", "what?", LONG).status, 400);
        assert_eq!(web.send("PUT", "", LONG).status, 405);
        if era == Era::Sessions {
            let news = web.send("GET", "", SHORT);
            assert_eq!((news.status, news.end), (200, End::Open));
            assert_eq!(web.send("DELETE", "", LONG).status, 204);
            assert_eq!(web.call(LONG).status, 404);
            web.session = None;
        }
        let news = web.ask("subscriptions/listen", json!({}), SHORT);
        assert_eq!(news.events()[0]["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(news.end, End::Open);
        assert_eq!(web.send("GET", "", LONG).status, 404);
    }
    let events = Web::greeted(Era::Stateless, &["--events"]).call(LONG).events();
    assert_eq!(events[0]["result"]["content"][0]["text"], "hello");
}

#[test]
fn every_step_can_hang() {
    for era in BOTH {
        let flag = if era == Era::Sessions { "--hang-at-initialize" } else { "--hang-at-discover" };
        assert_eq!(Web::start(era, &[flag]).greet(SHORT).status, 0);
        let web = Web::greeted(era, &["--hang-at-list", "--times", "1"]);
        let reply = web.ask("tools/list", json!({}), SHORT);
        assert_eq!((reply.status, reply.end), (0, End::Open));
        assert_eq!(web.ask("tools/list", json!({}), LONG).status, 200);
        let web = Web::greeted(era, &["--hang-at-call", "--times", "1"]);
        assert_eq!(web.call(SHORT).status, 0);
        web.echoes();
    }
    let web = Web::greeted(Era::Sessions, &["--hang-at-initialized", "--times", "2"]);
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    assert_eq!(web.post(&initialized, SHORT).status, 0);
    assert_eq!(web.call(SHORT).status, 0);
    web.echoes();
    let web = Web::greeted(Era::Sessions, &["--hang-at-shutdown"]);
    assert_eq!(web.send("DELETE", "", SHORT).status, 0);
}

#[test]
fn the_process_ends() {
    for era in BOTH {
        let mut web = Web::greeted(era, &["--exit-after-handshake", "3"]);
        assert_eq!(ended(&mut web.child).code(), Some(3));
        let mut web = Web::greeted(era, &["--killed-at-call"]);
        assert_ne!(web.call(LONG).end, End::Whole);
        assert_eq!(ended(&mut web.child).signal(), Some(9));
        let mut web = Web::greeted(era, &["--die-mid-answer"]);
        let reply = web.call(LONG);
        assert!(reply.end == End::Broken && reply.text().starts_with(r#"{"jsonrpc""#), "{reply:?}");
        assert_eq!(ended(&mut web.child).signal(), Some(9));
    }
}

#[test]
fn the_body_is_garbage_or_has_megabytes() {
    for era in BOTH {
        let reply = Web::greeted(era, &["--garbage"]).call(LONG);
        assert_eq!((reply.status, reply.end), (200, End::Whole));
        assert_eq!(reply.header("content-type"), "application/json");
        assert!(serde_json::from_slice::<serde_json::Value>(&reply.body).is_err());
        let reply = Web::greeted(era, &["--flood", "3"]).call(LONG);
        assert!(reply.body.len() > 3 << 20);
        let reply = Web::greeted(era, &["--huge-result", "3"]).call(LONG).json();
        assert_eq!(reply["result"]["content"][0]["text"].as_str().unwrap().len(), 3 << 20);
    }
}

#[test]
fn answers_and_events_drip() {
    for era in BOTH {
        for args in [&["--drip", "3"][..], &["--drip", "3", "--events"]] {
            let web = Web::greeted(era, args);
            let began = Instant::now();
            let reply = web.call(LONG);
            assert!(began.elapsed() >= Duration::from_millis(3) * reply.body.len() as u32);
            assert!(reply.text().contains("hello"));
            assert_eq!(reply.header("content-type") == "text/event-stream", args.len() == 3);
        }
    }
}

#[test]
fn events_have_no_end() {
    for era in BOTH {
        let web = Web::greeted(era, &["--endless-output", "2000", "--times", "1"]);
        let reply = web.call(Duration::from_secs(1));
        let events = reply.events();
        assert!(events.len() > 100 && reply.end == End::Open, "{}", events.len());
        assert!(events.iter().all(|event| event["method"] == "notifications/message"));
        web.echoes();
    }
}

#[test]
fn what_was_not_asked_for_comes_as_events() {
    for (era, flag) in [
        (Era::Sessions, "--ask-roots"),
        (Era::Sessions, "--unknown-progress"),
        (Era::Stateless, "--unknown-progress"),
    ] {
        let web = Web::greeted(era, &[flag]);
        let events = web.call(LONG).events();
        assert!(events[0]["method"].is_string());
        assert_eq!(events.last().unwrap()["result"]["content"][0]["text"], "hello");
        let answer = json!({"jsonrpc": "2.0", "id": events[0]["id"], "result": {"roots": []}});
        assert_eq!(web.post(&answer, LONG).status, 202);
    }
    let events = Web::greeted(Era::Stateless, &["--duplicate-answers", "3"]).call(LONG).events();
    assert_eq!(events.len(), 3);
}

#[test]
fn a_storm_reaches_those_who_listen() {
    let args = ["--list-changed-storm", "3000"];
    let reply = Web::greeted(Era::Sessions, &args).send("GET", "", Duration::from_secs(1));
    assert!(reply.events().len() > 100, "{reply:?}");
    let web = Web::greeted(Era::Stateless, &args);
    let events = web.ask("subscriptions/listen", json!({}), Duration::from_secs(1)).events();
    assert!(events.len() > 100);
    assert_eq!(events[1]["method"], "notifications/tools/list_changed");
    web.echoes();
}

#[test]
fn a_status_tells_of_failure() {
    for era in BOTH {
        let web = Web::greeted(era, &["--http-status", "--times", "2"]);
        assert_eq!((web.call(LONG).status, web.call(LONG).status), (500, 500));
        web.echoes();
        assert_eq!(Web::greeted(era, &["--http-status", "429"]).call(LONG).status, 429);
        let mut web = Web::start(era, &["--http-status", "--at", "handshake"]);
        assert_eq!(web.greet(LONG).status, 500);
    }
}

#[test]
fn a_redirect_leads_round_in_circles_or_elsewhere() {
    for era in BOTH {
        let reply = Web::greeted(era, &["--http-redirect"]).call(LONG);
        assert_eq!((reply.status, reply.header("location")), (307, "/mcp"));
        let to = "http://127.0.0.1:9/elsewhere";
        let reply = Web::greeted(era, &["--http-redirect", to]).call(LONG);
        assert_eq!((reply.status, reply.header("location")), (307, to));
    }
}

#[test]
fn the_content_type_is_wrong() {
    for era in BOTH {
        let reply = Web::greeted(era, &["--http-wrong-type"]).call(LONG);
        assert_eq!(reply.header("content-type"), "text/html");
        assert_eq!(reply.json()["result"]["content"][0]["text"], "hello");
    }
}

#[test]
fn the_connection_drops_or_stalls_halfway() {
    for era in BOTH {
        for args in [&["--http-drop", "--times", "1"][..], &["--http-drop", "--events"]] {
            let web = Web::greeted(era, args);
            let reply = web.call(LONG);
            assert_eq!((reply.status, reply.end), (200, End::Broken));
            assert!(reply.text().contains("jsonrpc") && !reply.text().contains("hello"));
            if args.len() == 3 {
                web.echoes();
            }
        }
        let web = Web::greeted(era, &["--http-stall", "--times", "1"]);
        let reply = web.call(SHORT);
        assert_eq!((reply.status, reply.end), (200, End::Open));
        assert!(reply.text().contains("jsonrpc"));
        web.echoes();
    }
}

#[test]
fn a_session_is_forgotten() {
    let mut web = Web::greeted(Era::Sessions, &["--http-forget-session", "--times", "1"]);
    let before = web.session.clone();
    assert_eq!((web.call(LONG).status, web.call(LONG).status), (404, 404));
    web.session = None;
    web.greet(LONG);
    assert!(web.session.is_some() && web.session != before);
    web.echoes();
}
