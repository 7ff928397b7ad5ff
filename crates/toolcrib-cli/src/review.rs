//! `toolcrib review`: tools whose definitions are not those that were approved, and approving them.

use std::fmt::Write as _;
use std::time::Duration;

use anyhow::anyhow;
use clap::builder::styling::Style;
use serde::Serialize;
use serde_json::Value;
use similar::TextDiff;
use toolcrib::mcp::Upstream;
use toolcrib::{
    Annotations, Definitions, Fingerprint, Flag, Naming, PinChange, PinChangeKind, PinStore, Pins,
    ToolName, Toolset, Wording, flags,
};

use crate::args::Context;
use crate::fleet::{self, Fleet, ask_each};
use crate::output::{
    self, BOLD, DIM, GREEN, Misuse, RED, Told, YELLOW, counted, one_line, undisguised,
};

/// The longest diff that is printed; --json has all of it.
const MOST_LINES: usize = 120;

/// The most tools that are named for what their text looks like, of those that have not changed.
const MOST_FLAGGED: usize = 20;

/// How long a diff may be worked on before it gets coarser.
const DIFF_LIMIT: Duration = Duration::from_millis(500);

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  toolcrib review                              what has changed since it was approved
  toolcrib review github                       of one server
  toolcrib review github --approve create_issue
                                               show one tool, ask, and approve what was shown
  toolcrib review --all                        the same with everything
  toolcrib review --all --yes                  the same without asking
  toolcrib review --json                       with fingerprints, for scripts:
  toolcrib review --approve git/push@c0ffee…   approve that one, if it is still the same

What a server offers when it is first seen is approved. `definitions` in toolcrib.toml says what
becomes of later changes: \"tell\" uses them and shows them here, \"hold\" leaves such tools out until
they are approved, \"follow\" approves them as they come. A gateway that runs notices an approval
within seconds.")]
pub(crate) struct ReviewArgs {
    /// Only this server
    server: Option<String>,
    /// Approve these tools: TOOL or SERVER/TOOL, or with @ and the fingerprint that was seen
    #[arg(long, value_name = "TOOL", num_args = 1.., conflicts_with = "all")]
    approve: Vec<String>,
    /// Approve everything that has changed
    #[arg(long)]
    all: bool,
    /// Approve what is shown without asking
    #[arg(long, short)]
    yes: bool,
    /// Go by what servers listed last, and start none
    #[arg(long)]
    offline: bool,
}

pub(crate) fn run(args: &ReviewArgs, context: &Context) -> anyhow::Result<()> {
    let reports = fleet::with(context, async |fleet| review(args, context, fleet).await)?;
    if context.json {
        output::json(&Answer { servers: &reports })?;
    } else {
        output::text(&describe(&reports))?;
    }
    // What was to be approved and was not is told by now.
    if reports.iter().all(|report| report.missed.is_empty()) { Ok(()) } else { Err(Told.into()) }
}

#[derive(Serialize)]
struct Answer<'a> {
    servers: &'a [Report],
}

/// What there is to say of one server.
#[derive(Serialize)]
struct Report {
    server: String,
    definitions: Definitions,
    /// Tools that are approved by this, as they were shown.
    approved: Vec<Row>,
    /// Tools that were to be approved and have changed since they were shown.
    missed: Vec<String>,
    changes: Vec<Row>,
    /// Tools that were approved and are gone.
    gone: Vec<String>,
    /// Tools that have not changed and have text a person should look at.
    flagged: Vec<Flagged>,
}

/// A tool that is not what was approved.
#[derive(Serialize)]
struct Row {
    tool: String,
    /// Of what it is now.
    fingerprint: Fingerprint,
    #[serde(flatten)]
    kind: PinChangeKind,
    /// What it says about its effects, if that has changed: before and now.
    #[serde(skip_serializing_if = "Option::is_none")]
    effects: Option<(&'static str, &'static str)>,
    diff: String,
    flags: Vec<Flag>,
}

#[derive(Serialize)]
struct Flagged {
    tool: String,
    flags: Vec<Flag>,
}

async fn review(
    args: &ReviewArgs,
    context: &Context,
    fleet: &Fleet,
) -> anyhow::Result<Vec<Report>> {
    fleet.warn(context);
    let named =
        |server: &&Upstream| args.server.as_ref().is_none_or(|it| *it == server.config().name);
    let meant: Vec<Upstream> = fleet.servers.iter().filter(named).cloned().collect();
    if let (Some(name), true) = (&args.server, meant.is_empty()) {
        let hint = output::suggest(name, fleet.names()).unwrap_or_default();
        return Err(Misuse::new(format!("there is no MCP server `{name}`{hint}")).into());
    }
    // What they offer now is taken note of; it decides nothing yet.
    let list = |server: Upstream| {
        let pinned = fleet.pinned(&server);
        let is_due = !args.offline;
        async move {
            let started = if is_due { server.check().await } else { Ok(()) };
            pinned.list().await.map_err(|error| error.to_string())?;
            started
        }
    };
    for (server, listed) in ask_each(&meant, context, list).await {
        if let Err(reason) = listed {
            let name = &server.config().name;
            context.warn(&format!("server `{name}` can't be asked what it has now: {reason}"));
        }
    }
    let mut known = Vec::new();
    for server in &meant {
        let name = server.config().name.as_str();
        let Some(pinning) = fleet.pinning.get(name) else { continue };
        if let Some((pins, _)) = fleet.pins.edit(&pinning.key, Box::new(|_| None)).await? {
            known.push((name, pinning, pins));
        }
    }
    let mut wanted = wanted(args, &known)?;
    if !is_agreed(args, context, &known, &wanted).await? {
        wanted.iter_mut().for_each(Vec::clear);
        context.note("Nothing was approved.");
    }
    let mut reports = Vec::new();
    for ((name, pinning, pins), chosen) in known.into_iter().zip(wanted) {
        let changes = pins.changes().into_iter();
        let shown: Vec<PinChange> =
            changes.filter(|change| chosen.iter().any(|it| it.is(change))).collect();
        let mut pins = pins;
        if !chosen.is_empty()
            && let Some(kept) = approve(&*fleet.pins, &pinning.key, chosen).await?
        {
            pins = kept;
        }
        // By this, or by somebody else meanwhile.
        let (approved, missed): (Vec<PinChange>, Vec<PinChange>) =
            shown.into_iter().partition(|change| is_approved(&pins, change));
        let mut report = Report::new(name, pinning.definitions, &pins);
        report.approved = approved.into_iter().map(Row::new).collect();
        report.missed = missed.into_iter().map(|change| change.tool).collect();
        reports.push(report);
    }
    Ok(reports)
}

/// A definition that is to be approved.
#[derive(Clone)]
struct Chosen {
    tool: String,
    fingerprint: Fingerprint,
    /// Whether it was named by its fingerprint.
    is_named: bool,
}

impl Chosen {
    fn is(&self, change: &PinChange) -> bool {
        self.tool == change.tool && self.fingerprint == change.after.fingerprint()
    }
}

/// Shows what is to be approved, and finds out whether it may be.
async fn is_agreed(
    args: &ReviewArgs,
    context: &Context,
    known: &[Known<'_>],
    wanted: &[Vec<Chosen>],
) -> anyhow::Result<bool> {
    let count = wanted.iter().flatten().count();
    // Whoever names a fingerprint has seen what it stands for.
    if wanted.iter().flatten().all(|chosen| chosen.is_named) {
        return Ok(true);
    }
    if !context.json {
        let mut text = String::new();
        for ((server, pinning, pins), chosen) in known.iter().zip(wanted) {
            let changes = pins.changes().into_iter();
            for change in changes.filter(|change| chosen.iter().any(|it| it.is(change))) {
                let row = Row::new(change);
                describe_row(&mut text, &one_line(server), &row, pinning.definitions, usize::MAX);
            }
        }
        output::text(&text)?;
    }
    if args.yes {
        return Ok(true);
    }
    if context.json || !output::is_attended() {
        return Err(Misuse::new(
            "there is nobody to ask: say --yes to approve what is shown, or name what was seen as \
             TOOL@FINGERPRINT (`toolcrib review --json` has the fingerprints)",
        )
        .into());
    }
    let what = if count == 1 { "this definition" } else { "these definitions" };
    let question = format!("Approve {what}, as shown above?");
    // On a thread of its own, so that an interrupt is heard meanwhile.
    tokio::task::spawn_blocking(move || output::confirm(&question)).await?
}

/// Approves what was shown, as far as it is still the same. Returns what is kept then.
async fn approve(
    store: &dyn PinStore,
    key: &str,
    chosen: Vec<Chosen>,
) -> anyhow::Result<Option<Pins>> {
    let edit = move |kept: Option<Pins>| {
        let mut pins = kept?;
        let is_meant = |tool: &str, now: &Wording| {
            chosen.iter().any(|it| it.tool == tool && it.fingerprint == now.fingerprint())
        };
        pins.approve(is_meant);
        Some((pins, None))
    };
    let kept = store.edit(key, Box::new(edit)).await?;
    Ok(kept.map(|(pins, _)| pins))
}

/// Whether a tool is what a change made of it, and approved as that.
fn is_approved(pins: &Pins, change: &PinChange) -> bool {
    let fingerprint = change.after.fingerprint();
    let mut offered = pins.offered();
    offered.any(|(tool, now)| tool == change.tool && now.fingerprint() == fingerprint)
        && pins.changes().iter().all(|it| it.tool != change.tool)
}

/// A server with what is kept of it.
type Known<'a> = (&'a str, &'a fleet::Pinning, Pins);

/// The definitions to approve, server by server.
fn wanted(args: &ReviewArgs, known: &[Known<'_>]) -> anyhow::Result<Vec<Vec<Chosen>>> {
    let choose = |change: PinChange| Chosen {
        fingerprint: change.after.fingerprint(),
        tool: change.tool,
        is_named: false,
    };
    let changes: Vec<Vec<Chosen>> =
        known.iter().map(|(_, _, pins)| pins.changes().into_iter().map(choose).collect()).collect();
    if args.all {
        return Ok(changes);
    }
    let mut wanted = vec![Vec::new(); known.len()];
    for text in &args.approve {
        let find = |name: &str| {
            let mut found = Vec::new();
            for (at, ((server, ..), tools)) in known.iter().zip(&changes).enumerate() {
                let is_meant = |it: &&Chosen| {
                    ToolName::mcp(*server, it.tool.as_str()).answers_to(name, Naming::Gateway)
                };
                found.extend(tools.iter().filter(is_meant).map(|chosen| (at, chosen)));
            }
            found
        };
        let mut seen = None;
        let mut found = find(text);
        if let (true, Some((name, print))) = (found.is_empty(), text.rsplit_once('@')) {
            (seen, found) = (Some(print), find(name));
        }
        match found.as_slice() {
            [(at, chosen)] => {
                let is_seen = |print: &str| chosen.fingerprint.to_string() == print;
                if let Some(print) = seen.filter(|print| !is_seen(print)) {
                    let tool = ToolName::mcp(known[*at].0, chosen.tool.as_str());
                    return Err(anyhow!(
                        "{tool} is not what {print} stands for: nothing was approved; `toolcrib \
                         review` shows what it is now"
                    ));
                }
                wanted[*at].push(Chosen { is_named: seen.is_some(), ..(*chosen).clone() });
            }
            [] => {
                let names = changes.iter().flatten().map(|it| it.tool.as_str());
                let hint = output::suggest(text, names).unwrap_or_default();
                let text = format!("there is nothing to approve about `{text}`{hint}");
                return Err(Misuse::new(text).into());
            }
            several => {
                let names: Vec<String> = several
                    .iter()
                    .map(|(at, it)| ToolName::mcp(known[*at].0, it.tool.as_str()).to_string())
                    .collect();
                let names = names.join(", ");
                return Err(Misuse::new(format!("`{text}` may be any of these: {names}")).into());
            }
        }
    }
    Ok(wanted)
}

impl Report {
    fn new(server: &str, definitions: Definitions, pins: &Pins) -> Self {
        let changes: Vec<PinChange> = pins.changes();
        let is_changed = |tool: &str| changes.iter().any(|change| change.tool == tool);
        let is_renamed = |tool: &str| {
            let is_from = |kind: &PinChangeKind| matches!(kind, PinChangeKind::Renamed { from } if from == tool);
            changes.iter().any(|change| is_from(&change.kind))
        };
        let flagged = pins.offered().filter(|(tool, _)| !is_changed(tool)).filter_map(|it| {
            let flags = flags_of(it.1);
            (!flags.is_empty()).then(|| Flagged { tool: it.0.to_owned(), flags })
        });
        Self {
            server: server.to_owned(),
            definitions,
            approved: Vec::new(),
            missed: Vec::new(),
            flagged: flagged.collect(),
            gone: pins.gone().filter(|tool| !is_renamed(tool)).map(str::to_owned).collect(),
            changes: changes.into_iter().map(Row::new).collect(),
        }
    }
}

impl Row {
    fn new(change: PinChange) -> Self {
        let before = change.before.as_ref().map_or("", Wording::text);
        let diff = TextDiff::configure()
            .timeout(DIFF_LIMIT)
            .diff_lines(before, change.after.text())
            .unified_diff()
            .header("approved", "now")
            .missing_newline_hint(false)
            .to_string();
        let effects = change.before.as_ref().map(|it| (effect(it), effect(&change.after)));
        Self {
            tool: change.tool,
            fingerprint: change.after.fingerprint(),
            kind: change.kind,
            effects: effects.filter(|(before, now)| before != now),
            diff,
            flags: flags_of(&change.after),
        }
    }
}

fn flags_of(wording: &Wording) -> Vec<Flag> {
    serde_json::from_str::<Value>(wording.text()).map(|it| flags(&it)).unwrap_or_default()
}

/// What a tool says about its effects, in words.
fn effect(wording: &Wording) -> &'static str {
    let whole: Value = serde_json::from_str(wording.text()).unwrap_or_default();
    let says = whole.get("annotations").cloned().unwrap_or_default();
    let says: Annotations = serde_json::from_value(says).unwrap_or_default();
    match (says.is_read_only(), says.is_destructive()) {
        (true, _) => "changes nothing",
        (_, true) => "may destroy something",
        (_, false) => "changes something",
    }
}

fn describe(reports: &[Report]) -> String {
    let mut text = String::new();
    for report in reports {
        let server = one_line(&report.server);
        for row in &report.approved {
            let tool = one_line(&row.tool);
            let _ = writeln!(text, "{GREEN}{server}/{tool} is approved as shown{GREEN:#}");
        }
        for tool in &report.missed {
            let tool = one_line(tool);
            let _ = writeln!(
                text,
                "{RED}{server}/{tool} has changed since it was shown, and is not approved{RED:#}"
            );
        }
        for row in &report.changes {
            describe_row(&mut text, &server, row, report.definitions, MOST_LINES);
        }
    }
    let flagged: Vec<String> = reports
        .iter()
        .flat_map(|it| it.flagged.iter().map(|tool| (one_line(&it.server), tool)))
        .flat_map(|(server, it)| it.flags.iter().map(move |flag| tell(&server, &it.tool, flag)))
        .collect();
    for line in flagged.iter().take(MOST_FLAGGED) {
        let _ = writeln!(text, "{line}");
    }
    if let Some(more @ 1..) = flagged.len().checked_sub(MOST_FLAGGED) {
        let _ = writeln!(text, "and {more} more; --json has them all");
    }
    let waiting: usize = reports.iter().map(|report| report.changes.len()).sum();
    let tools: usize = reports.iter().map(|report| report.gone.len()).sum();
    let gone = if tools > 0 { format!("; {} gone", counted(tools, "tool")) } else { String::new() };
    let servers = counted(reports.len(), "server");
    if waiting == 0 {
        let _ = writeln!(text, "Every tool of {servers} is as it was approved{gone}.");
    } else {
        let _ = writeln!(
            text,
            "{} of {servers} not as approved{gone}. `toolcrib review --approve SERVER/TOOL` shows one \
             and asks, `--all` does so with everything.",
            counted(waiting, "tool"),
        );
    }
    text
}

fn describe_row(
    text: &mut String,
    server: &str,
    row: &Row,
    definitions: Definitions,
    most_lines: usize,
) {
    let how = match &row.kind {
        PinChangeKind::New => "is new".to_owned(),
        PinChangeKind::Changed => "has changed".to_owned(),
        PinChangeKind::Renamed { from } if row.diff.is_empty() => {
            format!("was `{}` and is otherwise the same", one_line(from))
        }
        PinChangeKind::Renamed { from } => format!("was `{}`, and has changed", one_line(from)),
        PinChangeKind::Taken { from } => format!("is now what `{}` was", one_line(from)),
    };
    let held = if definitions == Definitions::Hold { "; held back" } else { "" };
    let _ = writeln!(text, "{BOLD}{server}/{} {how}{held}{BOLD:#}", one_line(&row.tool));
    if let Some((before, now)) = row.effects {
        let _ = writeln!(text, "  {RED}says that it {now}{RED:#}; said that it {before}");
    }
    for flag in &row.flags {
        let _ = writeln!(text, "  {}", tell_flag(flag));
    }
    // What is new is all new: the rest of it is in --json.
    for line in row.diff.lines().take(most_lines) {
        let style = match line.as_bytes().first() {
            Some(b'+') => GREEN,
            Some(b'-') => RED,
            Some(b'@') => DIM,
            _ => Style::new(),
        };
        let _ = writeln!(text, "  {style}{}{style:#}", undisguised(line));
    }
    if let Some(more @ 1..) = row.diff.lines().count().checked_sub(most_lines) {
        let _ = writeln!(text, "  and {more} more lines; --json has them all");
    }
    let _ = writeln!(text, "  {DIM}fingerprint {}{DIM:#}\n", row.fingerprint);
}

fn tell(server: &str, tool: &str, flag: &Flag) -> String {
    format!("{server}/{}: {}", one_line(tool), tell_flag(flag))
}

fn tell_flag(flag: &Flag) -> String {
    let (at, says) = (one_line(&flag.at), flag.kind.says());
    format!("{YELLOW}{at} {says}{YELLOW:#}: {}", one_line(&flag.excerpt))
}
