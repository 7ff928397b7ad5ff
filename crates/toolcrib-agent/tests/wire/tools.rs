//! The tools of the scenario: two servers with fourteen tools each, and some of the host's.

use std::sync::{Arc, Mutex};

use futures::FutureExt;
use futures::future::BoxFuture;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::sync::Notify;
use toolcrib_core::{GroupId, Mode, Settings, StrategyChoice, ToolName, ToolSpec};
use toolcrib_runtime::{
    CallError, Crib, Function, Invocation, Listing, ToolResult, Toolset, function,
};

/// What has run: names with arguments.
pub(crate) type Log = Arc<Mutex<Vec<(String, Value)>>>;

/// Name, description, and parameters with their types.
type Row = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

const GITHUB: [Row; 14] = [
    ("create_issue", "Open an issue in a repository.", &[("title", "string"), ("body", "string")]),
    ("add_comment", "Comment on an issue.", &[("number", "integer"), ("text", "string")]),
    ("close_issue", "Close an issue.", &[("number", "integer")]),
    ("list_issues", "List the open issues of a repository.", &[("label", "string")]),
    ("create_branch", "Create a branch.", &[("name", "string")]),
    ("delete_branch", "Delete a branch.", &[("name", "string")]),
    ("merge_pull_request", "Merge a pull request.", &[("number", "integer")]),
    ("list_pull_requests", "List pull requests.", &[("state", "string")]),
    ("get_file", "Read a file of a repository.", &[("path", "string")]),
    ("search_code", "Search the code of all repositories.", &[("query", "string")]),
    ("create_release", "Publish a release.", &[("tag", "string")]),
    ("list_commits", "List the commits of a branch.", &[("branch", "string")]),
    ("star_repository", "Star a repository.", &[("name", "string")]),
    ("fork_repository", "Fork a repository.", &[("name", "string")]),
];

const CALENDAR: [Row; 14] = [
    ("list_events", "List the events of a day.", &[("day", "string")]),
    ("create_event", "Put an event into the calendar.", &[("title", "string"), ("day", "string")]),
    ("move_event", "Move an event to another day.", &[("id", "integer"), ("day", "string")]),
    ("cancel_event", "Cancel an event.", &[("id", "integer")]),
    ("invite_guest", "Invite somebody to an event.", &[("id", "integer"), ("guest", "string")]),
    ("list_guests", "List who was invited to an event.", &[("id", "integer")]),
    ("find_free_time", "Find a time when everybody is free.", &[("guests", "string")]),
    ("set_reminder", "Set a reminder.", &[("id", "integer"), ("minutes", "integer")]),
    ("list_calendars", "List all calendars.", &[]),
    ("share_calendar", "Share a calendar with somebody.", &[("guest", "string")]),
    ("book_room", "Book a meeting room.", &[("room", "string"), ("day", "string")]),
    ("list_rooms", "List the meeting rooms.", &[]),
    ("set_working_hours", "Set the hours one works.", &[("from", "string"), ("to", "string")]),
    ("get_time_zone", "Tell the time zone of somebody.", &[("guest", "string")]),
];

/// A PNG of one pixel.
const PICTURE: &str = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";

/// Defers everything.
pub(crate) fn settings(strategy: StrategyChoice) -> Settings {
    let mut settings = Settings::default();
    settings.mode = Mode::Deferred;
    settings.strategy = strategy;
    settings
}

/// A crib with both servers.
pub(crate) async fn crib(settings: Settings, log: &Log, waiting: &Arc<Notify>) -> Crib {
    Crib::builder(settings)
        .toolset(Desk { server: "github", tools: &GITHUB, log: log.clone() })
        .toolset(Desk { server: "calendar", tools: &CALENDAR, log: log.clone() })
        .function(draw_chart(log.clone()))
        .function(wait_for_deploy(log.clone(), waiting.clone()))
        .build()
        .await
        .unwrap()
}

/// A crib in which one of the servers is no more.
pub(crate) async fn crib_without_github(settings: Settings, log: &Log) -> Crib {
    let calendar = Desk { server: "calendar", tools: &CALENDAR, log: log.clone() };
    Crib::builder(settings).toolset(calendar).build().await.unwrap()
}

/// A server whose tools do nothing but say so.
struct Desk {
    server: &'static str,
    tools: &'static [Row],
    log: Log,
}

impl Toolset for Desk {
    fn id(&self) -> GroupId {
        GroupId::server(self.server)
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let spec = |(name, description, parameters): &Row| {
            let names: Vec<&str> = parameters.iter().map(|(name, _)| *name).collect();
            let properties: serde_json::Map<String, Value> = parameters
                .iter()
                .map(|(name, kind)| ((*name).to_owned(), json!({"type": kind})))
                .collect();
            let schema = json!({"type": "object", "properties": properties, "required": names});
            ToolSpec::new(ToolName::mcp(self.server, *name), schema).with_description(*description)
        };
        let listing = Listing::new(self.tools.iter().map(spec));
        async { Ok(listing) }.boxed()
    }

    fn call(&self, call: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        let name = call.tool.tool().to_owned();
        let text = format!("{name}: done, {}", call.arguments);
        self.log.lock().unwrap().push((name, call.arguments));
        async { Ok(ToolResult::text(text)) }.boxed()
    }
}

#[derive(Deserialize, JsonSchema)]
struct Chart {
    /// What the chart shows.
    title: String,
}

fn draw_chart(log: Log) -> Function {
    function("draw_chart", "Draw a chart as a picture.", move |chart: Chart| {
        log.lock().unwrap().push(("draw_chart".to_owned(), json!({"title": chart.title})));
        let result = json!({"content": [
            {"type": "text", "text": "Here it is:"},
            {"type": "image", "data": PICTURE, "mimeType": "image/png"},
        ]});
        async move { ToolResult::from_json(to_raw_value(&result).unwrap()) }
    })
}

/// Says that it has begun, and never ends.
fn wait_for_deploy(log: Log, waiting: Arc<Notify>) -> Function {
    function("wait_for_deploy", "Wait until the deployment is through.", move |(): ()| {
        log.lock().unwrap().push(("wait_for_deploy".to_owned(), json!({})));
        waiting.notify_one();
        std::future::pending::<&str>()
    })
}
