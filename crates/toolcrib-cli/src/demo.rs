//! `toolcrib demo`: a client, the gateway and the built-in servers, at work.
//!
//! The calls are those a model would make; everything they bring is what the processes answer.

mod client;
mod report;
mod stage;

use std::collections::HashSet;
use std::time::Instant;

use indexmap::IndexSet;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use toolcrib::ToolResult;
use toolcrib::builtins::Builtin;
use toolcrib::tokens::Tokenizer;

use crate::args::Global;
use crate::output::{self, Interrupted, saved};
use crate::serve;
use client::Client;
use report::{Bill, Report, Step, Totals, What};

const SALES: &str = "CREATE TABLE sales AS SELECT column1 AS product, column2 AS units FROM \
    (VALUES ('kettle', 41), ('lamp', 17), ('kettle', 28), ('mug', 60), ('lamp', 9))";
const BEST: &str = "SELECT product, SUM(units) AS units FROM sales GROUP BY product \
    ORDER BY units DESC LIMIT 1";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib demo
  toolcrib demo --json | jq .totals

It starts a gateway over the built-in servers in a temporary folder, talks to it as a client
would, and leaves nothing behind. It needs no key, no network and no configuration.")]
pub(crate) struct DemoArgs {}

pub(crate) fn run(_: &DemoArgs, global: &Global) -> anyhow::Result<()> {
    let folder = stage::build()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(async {
        let ended = serve::ended();
        let mut demo = Demo {
            folder: folder.path(),
            gateway: None,
            report: Report::default(),
            aloud: !global.json,
        };
        let played = tokio::select! {
            played = demo.play() => played,
            () = ended => Err(Interrupted.into()),
        };
        if let Some(gateway) = demo.gateway.take() {
            gateway.end().await;
        }
        played.map(|()| demo.report)
    });
    runtime.shutdown_background();
    folder.close()?;
    let report = done?;
    if global.json { output::json(&report) } else { Ok(()) }
}

struct Demo<'a> {
    folder: &'a std::path::Path,
    gateway: Option<Client>,
    report: Report,
    aloud: bool,
}

/// A tool as a client gets it; what a model is shown of it is these three.
#[derive(Deserialize)]
struct Listed {
    name: String,
    #[serde(default)]
    description: String,
    #[serde(rename = "inputSchema")]
    input_schema: Box<RawValue>,
}

impl Listed {
    fn tokens(&self) -> u64 {
        #[derive(Serialize)]
        struct Definition<'a> {
            name: &'a str,
            description: &'a str,
            input_schema: &'a RawValue,
        }
        let Self { name, description, input_schema } = self;
        let shown = serde_json::to_string(&Definition { name, description, input_schema });
        count(&shown.unwrap_or_default())
    }
}

fn count(text: &str) -> u64 {
    Tokenizer::O200K.count(text).tokens
}

impl Demo<'_> {
    async fn play(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        self.say(&report::opening(Builtin::ALL.len()))?;
        self.full_bill().await?;
        self.deferred_bill().await?;

        let search = json!({"query": "query a SQL database", "limit": 2});
        self.ask(What::Search, "tool_search", search).await?;
        let load = json!({"group_id": "mcp:notes", "tool_names": ["add_note", "search_notes"]});
        self.ask(What::Load, "load_tools", load).await?;

        let guess = json!({"filename": "hello.md", "text": "Hello from a blind call.\n"});
        let refused = self.call(What::BlindCall, "files__write_file", &guess).await?;
        let repaired = repaired(&guess, &refused);
        self.call(What::RepairedCall, "files__write_file", &repaired).await?;

        let make = json!({"database": "shop.db", "sql": SALES, "create": true});
        self.call(What::Call, "sqlite__execute", &make).await?;
        let ask = json!({"database": "shop.db", "sql": BEST});
        let best = self.call(What::Call, "sqlite__query", &ask).await?;
        let best: Value = serde_json::from_str(&best).unwrap_or_default();
        let best = &best["rows"][0];
        let body = format!("{}: {} sold", best[0].as_str().unwrap_or_default(), best[1]);
        let note = json!({"title": "Best seller", "body": body, "tags": ["shop"]});
        self.call(What::Call, "notes__add_note", &note).await?;
        self.call(What::Call, "notes__search_notes", &json!({"query": "best seller"})).await?;

        let Report { full, deferred, steps, .. } = &self.report;
        let sent = deferred.tokens + steps.iter().map(|step| step.tokens).sum::<u64>();
        self.report.totals = Totals {
            full: full.tokens,
            sent,
            saved: (saved(sent, full.tokens) * 10.0).round() / 10.0,
            calls: steps.len(),
            ms: begin.elapsed().as_millis() as u64,
        };
        self.say(&self.report.totals.describe())
    }

    /// What a client is sent that gets everything.
    async fn full_bill(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        let gateway = self.gateway.insert(Client::start(self.folder, "full")?);
        let instructions = count(&gateway.initialize().await?);
        // Servers are listed as they come up.
        let (tools, servers) = loop {
            let tools = list(gateway).await?;
            let servers: HashSet<&str> =
                tools.iter().filter_map(|tool| tool.name.split("__").next()).collect();
            let servers = servers.len();
            if servers >= Builtin::ALL.len() {
                break (tools, servers);
            }
            gateway.list_changed().await?;
        };
        let ms = begin.elapsed().as_millis() as u64;
        let definitions = tools.iter().map(Listed::tokens).sum();
        let tools = tools.len();
        let tokens = definitions + instructions;
        self.report.full = Bill { servers, tools, definitions, instructions, tokens, ms };
        if let Some(gateway) = self.gateway.take() {
            gateway.end().await;
        }
        self.say(&report::full_bill(&self.report.full))
    }

    /// What a client is sent that finds, loads and calls. The gateway has seen the servers before.
    async fn deferred_bill(&mut self) -> anyhow::Result<()> {
        let begin = Instant::now();
        let gateway = self.gateway.insert(Client::start(self.folder, "meta")?);
        let instructions = count(&gateway.initialize().await?);
        let tools = list(gateway).await?;
        let ms = begin.elapsed().as_millis() as u64;
        let definitions = tools.iter().map(Listed::tokens).sum();
        let tokens = definitions + instructions;
        let servers = self.report.full.servers;
        let verbs: Vec<String> = tools.into_iter().map(|tool| tool.name).collect();
        let bill = Bill { servers, tools: verbs.len(), definitions, instructions, tokens, ms };
        self.report.deferred = bill;
        self.say(&report::deferred_bill(&bill, &self.report.full, &verbs))
    }

    /// Uses a verb whose result tells of tools.
    async fn ask(&mut self, what: What, verb: &'static str, params: Value) -> anyhow::Result<()> {
        let (result, ms) = self.request(verb, &params).await?;
        let text = result.to_text();
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        let names = answer["tools"].as_array().into_iter().flatten().map(|tool| &tool["name"]);
        let names = names.chain(answer["tool_names"].as_array().into_iter().flatten());
        let names: IndexSet<&str> = names.filter_map(Value::as_str).collect();
        let names = names.into_iter().collect::<Vec<&str>>().join(", ");
        let shown = if names.is_empty() { text.clone() } else { names };
        let is_error = result.is_error();
        let arguments = object(params);
        let tokens = count(&text);
        let step =
            Step { what, verb, tool: None, arguments, result: text, is_error, tokens, ms, shown };
        self.done(step)
    }

    /// Calls a tool through the gateway; says what it answers.
    async fn call(
        &mut self,
        what: What,
        tool: &'static str,
        arguments: &Value,
    ) -> anyhow::Result<String> {
        let verb = "call_tool";
        let params = json!({"tool_name": tool, "arguments": arguments});
        let (result, ms) = self.request(verb, &params).await?;
        let (text, is_error) = (result.to_text(), result.is_error());
        let answer: Value = serde_json::from_str(&text).unwrap_or_default();
        // The definition in it is for the model to read.
        let problems = answer["problems"].as_array().into_iter().flatten();
        let lines = std::iter::once(&answer["error"]).chain(problems.map(|it| &it["message"]));
        let lines: Vec<&str> = lines.filter_map(Value::as_str).collect();
        let shown = if lines.is_empty() { text.clone() } else { lines.join("\n") };
        let tokens = if lines.is_empty() { 0 } else { count(&text) };
        let arguments = object(arguments.clone());
        let step = Step {
            what,
            verb,
            tool: Some(tool),
            arguments,
            result: text.clone(),
            is_error,
            tokens,
            ms,
            shown,
        };
        self.done(step)?;
        Ok(text)
    }

    async fn request(
        &mut self,
        verb: &str,
        arguments: &Value,
    ) -> anyhow::Result<(ToolResult, u64)> {
        let begin = Instant::now();
        let Some(gateway) = &mut self.gateway else { anyhow::bail!("the gateway has ended") };
        let params = json!({"name": verb, "arguments": arguments});
        let result = gateway.request("tools/call", params).await?;
        Ok((ToolResult::from_json(result), begin.elapsed().as_millis() as u64))
    }

    fn done(&mut self, step: Step) -> anyhow::Result<()> {
        let before = self.report.steps.last().map(|step| step.what);
        self.say(&step.describe(before))?;
        let is_meant = step.is_error == (step.what == What::BlindCall);
        anyhow::ensure!(is_meant, "that should have gone otherwise: {}", step.result);
        self.report.steps.push(step);
        Ok(())
    }

    fn say(&self, text: &str) -> anyhow::Result<()> {
        if self.aloud { output::text(text) } else { Ok(()) }
    }
}

async fn list(gateway: &mut Client) -> anyhow::Result<Vec<Listed>> {
    #[derive(Deserialize)]
    struct List {
        tools: Vec<Listed>,
    }
    let listed = gateway.request("tools/list", json!({})).await?;
    Ok(serde_json::from_str::<List>(listed.get())?.tools)
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        _ => Map::new(),
    }
}

/// The arguments as the error says they should be: those of a name that the tool does not know
/// take the names of those that it requires and did not get.
fn repaired(arguments: &Value, error: &str) -> Value {
    let error: Value = serde_json::from_str(error).unwrap_or_default();
    let schema = &error["tool"]["parameters"];
    let given = object(arguments.clone());
    let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let mut missing = required.filter(|name| !given.contains_key(*name));
    let mut fitting = Map::new();
    for (name, value) in &given {
        let is_known = !schema["properties"][name].is_null();
        let name = if is_known { name } else { missing.next().unwrap_or(name) };
        fitting.insert(name.to_owned(), value.clone());
    }
    Value::Object(fitting)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_repaired_from_its_error() {
        let error = json!({"tool": {"parameters": {
            "properties": {"path": {}, "content": {}, "overwrite": {}},
            "required": ["path", "content"],
        }}});
        let wrong = json!({"filename": "a", "overwrite": true, "text": "b"});
        let fitting = json!({"path": "a", "overwrite": true, "content": "b"});
        assert_eq!(repaired(&wrong, &error.to_string()), fitting);
        assert_eq!(repaired(&wrong, "no JSON"), wrong);
    }
}
