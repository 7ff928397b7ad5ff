//! Three hundred tools of twenty servers, as real ones are: most definitions take one to four
//! hundred tokens, some take far more.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::BoxFuture;
use serde_json::{Map, Value, json};
use toolcrib_core::{GroupId, ToolName, ToolSpec};
use toolcrib_runtime::{CallError, Invocation, Listing, ToolResult, Toolset};

/// Each server, with what it keeps.
const SERVERS: [(&str, [&str; 3]); 20] = [
    ("billing", ["invoice", "payment", "subscription"]),
    ("calendar", ["event", "room", "reminder"]),
    ("chat", ["message", "channel", "poll"]),
    ("code", ["branch", "commit", "review"]),
    ("contacts", ["person", "company", "address"]),
    ("crm", ["lead", "deal", "campaign"]),
    ("deploy", ["release", "environment", "rollback"]),
    ("docs", ["page", "footnote", "template"]),
    ("files", ["folder", "upload", "share"]),
    ("hr", ["employee", "absence", "payslip"]),
    ("issues", ["issue", "milestone", "label"]),
    ("logs", ["trace", "alert", "dashboard"]),
    ("mail", ["draft", "thread", "signature"]),
    ("maps", ["route", "place", "region"]),
    ("metrics", ["counter", "report", "budget"]),
    ("orders", ["order", "voucher", "basket"]),
    ("stock", ["product", "warehouse", "shipment"]),
    ("storage", ["bucket", "snapshot", "policy"]),
    ("support", ["ticket", "macro", "survey"]),
    ("travel", ["flight", "hotel", "expense"]),
];

const VERBS: [&str; 5] = ["create", "get", "list", "update", "delete"];

const REMARKS: [&str; 6] = [
    "Answers with the id and the state after the change.",
    "Takes effect at once and is seen by everybody in the workspace.",
    "Needs the right to write; without it the call is refused and nothing is changed.",
    "What is left out stays as it is.",
    "Look the id up first if it is not known: names may be shared.",
    "Sends no mail unless it is told to.",
];

/// A member of a schema: its name, its type, and what it is for.
const FIELDS: [(&str, Kind, &str); 16] = [
    ("title", Kind::Text, "Short name of the {}, as people see it in lists."),
    ("owner", Kind::Text, "Who looks after the {}: an e-mail address or the id of an account."),
    ("status", Kind::Status, "Where the {} stands. A new one is open unless told."),
    ("description", Kind::Text, "What the {} is about, in Markdown, links to others included."),
    ("labels", Kind::Texts, "Words to find the {} by. Those that don't exist are made."),
    ("due", Kind::Time, "When the {} is due, with its time zone."),
    ("priority", Kind::Number, "How urgent the {} is, from 0 (not at all) to 5."),
    ("recurrence", Kind::Recurrence, "How often the {} comes again, if it does."),
    ("watchers", Kind::Texts, "Who is told of every change of the {}, besides its owner."),
    ("parent_id", Kind::Text, "The id of what the {} belongs to. It must be open."),
    ("notify", Kind::Flag, "Whether owner and watchers of the {} are told by mail."),
    ("location", Kind::Location, "Where the {} is, as precisely as it is known."),
    ("amount", Kind::Amount, "What the {} is worth, before tax."),
    ("visibility", Kind::Visibility, "Who can see the {}. Members of the team always can."),
    ("external_id", Kind::Text, "The id that the {} has in another system, to keep both in step."),
    ("attributes", Kind::Attributes, "Pairs of your own, kept with the {} and never read."),
];

#[derive(Clone, Copy)]
enum Kind {
    Text,
    Texts,
    Time,
    Number,
    Flag,
    Status,
    Visibility,
    Amount,
    Recurrence,
    Location,
    Attributes,
}

impl Kind {
    fn schema(self, description: &str) -> Value {
        let mut schema = match self {
            Self::Text => json!({"type": "string"}),
            Self::Texts => {
                json!({"type": "array", "items": {"type": "string"}, "uniqueItems": true})
            }
            Self::Time => json!({"type": "string", "format": "date-time"}),
            Self::Number => json!({"type": "integer", "minimum": 0, "maximum": 5}),
            Self::Flag => json!({"type": "boolean", "default": false}),
            Self::Status => {
                json!({"type": "string", "enum": ["open", "waiting", "done", "archived"]})
            }
            Self::Visibility => json!({"type": "string", "enum": ["private", "team", "everybody"]}),
            Self::Amount => json!({"type": "object", "properties": {
                "value": {"type": "string", "description": "In the smallest unit, as digits."},
                "currency": {"type": "string", "minLength": 3, "maxLength": 3}
            }, "required": ["value", "currency"]}),
            Self::Recurrence => json!({"type": "object", "properties": {
                "every": {"type": "integer", "minimum": 1},
                "unit": {"type": "string", "enum": ["day", "week", "month", "year"]},
                "until": {"type": "string", "format": "date-time",
                    "description": "After this none is made. Without it there is no end."},
                "except": {"type": "array", "items": {"type": "string", "format": "date"},
                    "description": "Days that are left out."}
            }, "required": ["every", "unit"]}),
            Self::Location => json!({"type": "object", "properties": {
                "street": {"type": "string"},
                "city": {"type": "string"},
                "country": {"type": "string", "description": "Two letters, as in addresses."},
                "latitude": {"type": "number", "minimum": -90, "maximum": 90},
                "longitude": {"type": "number", "minimum": -180, "maximum": 180}
            }}),
            Self::Attributes => json!({"type": "object",
                "additionalProperties": {"type": ["string", "number", "boolean"]},
                "maxProperties": 50}),
        };
        schema["description"] = description.into();
        schema
    }
}

/// A server whose tools answer with as much as they are asked for.
pub(crate) struct Desk {
    server: &'static str,
    pub(crate) specs: Vec<ToolSpec>,
    run: Arc<AtomicUsize>,
}

/// All servers; what their tools have run is counted in `run`.
pub(crate) fn desks(run: &Arc<AtomicUsize>) -> impl Iterator<Item = Desk> {
    SERVERS.iter().enumerate().map(|(at, (server, nouns))| {
        let names = nouns.iter().flat_map(|noun| VERBS.map(|verb| (*noun, verb)));
        let specs = names.enumerate().map(|(of_server, (noun, verb))| {
            spec(server, noun, verb, at * nouns.len() * VERBS.len() + of_server)
        });
        Desk { server, specs: specs.collect(), run: run.clone() }
    })
}

fn spec(server: &str, noun: &str, verb: &str, number: usize) -> ToolSpec {
    // How much an object has to it differs from one to the next.
    let extent = 3 + number / VERBS.len() * 5 % (FIELDS.len() - 2);
    let fields = || FIELDS.iter().take(extent);
    let field = |(name, kind, about): &(&str, Kind, &str)| {
        ((*name).to_owned(), kind.schema(&about.replace("{}", noun)))
    };
    let id = json!({"type": "string", "description": format!("The id of the {noun}.")});
    // Large ones have parts, which are objects themselves.
    let parts = (extent > 10).then(|| {
        let properties: Map<String, Value> = fields().take(extent / 2).map(field).collect();
        let about = format!("What the {noun} is made of, in order.");
        let item = json!({"type": "object", "properties": properties, "required": ["title"]});
        ("parts".to_owned(), json!({"type": "array", "description": about, "items": item}))
    });
    let mut properties = Map::new();
    let (what, required) = match verb {
        "create" => {
            properties.extend(fields().map(field).chain(parts));
            (format!("Create a new {noun} and give it to its owner."), vec!["title"])
        }
        "get" => {
            properties.insert("id".to_owned(), id);
            let include: Vec<&str> = fields().map(|(name, ..)| *name).collect();
            properties.insert(
                "include".to_owned(),
                json!({"type": "array", "description":
                "Only these members.", "items": {"type": "string", "enum": include}}),
            );
            (format!("Read one {noun} with all that is known of it."), vec!["id"])
        }
        "list" => {
            properties.extend([
                (
                    "query".to_owned(),
                    json!({"type": "string", "description":
                    format!("Words that must occur in the {noun}; in quotes, as a phrase.")}),
                ),
                ("since".to_owned(), Kind::Time.schema("Only what was changed after this.")),
                (
                    "limit".to_owned(),
                    json!({"type": "integer", "minimum": 1, "maximum": 100,
                    "description": "How many to answer with.", "default": 20}),
                ),
                ("cursor".to_owned(), Kind::Text.schema("Where the page before ended.")),
            ]);
            properties.extend(fields().skip(1).take(extent / 3).map(field));
            (format!("List and search every {noun} that you may see, newest first."), vec![])
        }
        "update" => {
            properties.insert("id".to_owned(), id);
            properties.extend(fields().map(field).chain(parts));
            (format!("Change an existing {noun}."), vec!["id"])
        }
        _ => {
            properties.extend([
                ("id".to_owned(), id),
                ("reason".to_owned(), Kind::Text.schema("Why, for the records.")),
            ]);
            (format!("Delete a {noun} for good."), vec!["id"])
        }
    };
    let schema = json!({"type": "object", "properties": properties, "required": required,
        "additionalProperties": false});
    let remarks = (0..1 + number % 3).map(|at| REMARKS[(number + at) % REMARKS.len()]);
    let description = [what.as_str()].into_iter().chain(remarks).collect::<Vec<&str>>().join(" ");
    let name = match verb {
        "list" => format!("list_{noun}s"),
        _ => format!("{verb}_{noun}"),
    };
    ToolSpec::new(ToolName::mcp(server, name), schema).with_description(description)
}

impl Toolset for Desk {
    fn id(&self) -> GroupId {
        GroupId::server(self.server)
    }

    fn list(&self) -> BoxFuture<'_, Result<Listing, CallError>> {
        let listing = Listing::new(self.specs.clone());
        async { Ok(listing) }.boxed()
    }

    fn call(&self, call: Invocation) -> BoxFuture<'_, Result<ToolResult, CallError>> {
        self.run.fetch_add(1, Ordering::Relaxed);
        let tool = call.tool.tool();
        let text = match (tool.split_once('_'), call.arguments["limit"].as_u64()) {
            (Some(("list", _)), limit) => {
                let rows = (1..=limit.unwrap_or(20)).map(|number| row(tool, number));
                json!({"items": rows.collect::<Vec<Value>>(), "next": null}).to_string()
            }
            (Some(("get", _)), _) => {
                let mut one = row(tool, 1);
                one["id"] = call.arguments["id"].clone();
                one["history"] = (2..6).map(|number| row(tool, number)).collect();
                one.to_string()
            }
            _ => json!({"done": tool, "with": call.arguments}).to_string(),
        };
        async { Ok(ToolResult::text(text)) }.boxed()
    }
}

fn row(tool: &str, number: u64) -> Value {
    let day = 1 + number * 11 % 28;
    json!({"id": format!("{}-{}", &tool[..3], 4000 + number * 37), "owner": "ada@example.com",
        "title": format!("Number {number} of what {tool} answers with"), "status": "open",
        "changed": format!("2026-09-{day:02}T08:30:00Z")})
}
