//! Many clients of both eras for long, while servers are killed at random.

use std::collections::BTreeMap;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use rustix::process::{Signal, kill_process};
use serde_json::json;
use tokio::time::{Instant, sleep};
use toolcrib_wire::Era;

use crate::client::{Answer, Client, Way, era_of};
use crate::gateway::{Entry, Gateway, pid};
use crate::say;

/// Servers that echo, and servers that ask; those of which the name begins so are killed.
const ECHOING: [&str; 4] = ["mortal1", "mortal2", "steady1", "steady2"];
const ASKING: [&str; 2] = ["mortal3", "steady3"];
const MORTAL: &str = "mortal";

/// What a call of a server that was killed may be answered.
const TRUE_REASON: &str = r"^Server `mortal\d` (did not answer|can't be called)";

/// How long what belongs to clients that have left may stay.
const SETTLING: Duration = Duration::from_secs(90);

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Calls in all
    #[arg(long, default_value_t = 100_000)]
    calls: u64,
    /// Clients at once: half of either era, half at either endpoint
    #[arg(long, default_value_t = 64)]
    clients: usize,
    /// What the random choices follow
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Leave the servers alive
    #[arg(long)]
    no_kills: bool,
}

#[derive(Default)]
struct Tally {
    served: AtomicU64,
    failed: AtomicU64,
    asked: AtomicU64,
    kills: AtomicU64,
    over: AtomicBool,
}

pub(crate) async fn run(bin: &Path, args: Args) -> anyhow::Result<bool> {
    let folder = tempfile::tempdir()?;
    // Names of their own, to tell the processes apart by.
    let program = |name: &str, of: &str| -> anyhow::Result<PathBuf> {
        let link = folder.path().join(name);
        symlink(std::path::absolute(bin.join(of))?, &link)?;
        Ok(link)
    };
    let mut servers = Vec::new();
    for name in ECHOING {
        servers.push(Entry::new(name, program(name, "toolcrib-hostile")?));
    }
    for name in ASKING {
        servers.push(Entry::new(name, program(name, "toolcrib-fixture")?));
    }
    let gateway = Arc::new(Gateway::start(&bin.join("toolcrib"), &servers).await?);
    greet(&gateway).await?;
    let before = Traces::of(&gateway);

    let tally = Arc::new(Tally::default());
    let killer =
        (!args.no_kills).then(|| tokio::spawn(kill(gateway.clone(), tally.clone(), args.seed)));
    let began = Instant::now();
    let clients: Vec<_> = (0..args.clients)
        .map(|number| {
            tokio::spawn(client(
                gateway.address,
                number,
                share(&args, number),
                args.seed,
                tally.clone(),
            ))
        })
        .collect();
    let have_ended = || clients.iter().all(|client| client.is_finished());
    let middle = watch(&gateway, &tally, args.calls, have_ended).await;
    let mut problems = Vec::new();
    for client in clients {
        problems.extend(client.await??);
    }
    let took = began.elapsed();
    let end = gateway.memory();
    tally.over.store(true, Ordering::Relaxed);
    if let Some(killer) = killer {
        killer.await??;
    }

    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    say(&format!(
        "{} calls served, {} of them with a question in between; {} failed for a true reason; {} kills; {:.0} calls/s",
        count(&tally.served),
        count(&tally.asked),
        count(&tally.failed),
        count(&tally.kills),
        args.calls as f64 / took.as_secs_f64(),
    ));
    let after = settle(&gateway, &before).await;
    say(&format!("before: {before}\nafter:  {after}"));
    let mib = |bytes: u64| bytes as f64 / (1 << 20) as f64;
    let share = end as f64 / middle.max(1) as f64;
    say(&format!(
        "memory: {:.1} MiB in the middle, {:.1} MiB at the end ({share:.2} x)",
        mib(middle),
        mib(end)
    ));

    if share > 1.1 {
        problems.push(format!("memory grew to {share:.2} of what it was"));
    }
    if after.processes > before.processes || after.descriptors > before.descriptors {
        problems.push("something is left of clients that have gone".to_owned());
    }
    if args.calls > 1_000 && !args.no_kills && count(&tally.kills) == 0 {
        problems.push("nothing was killed".to_owned());
    }
    let gateway = Arc::try_unwrap(gateway).ok().context("the gateway is still in use")?;
    let left = gateway.stop().await?;
    if !left.is_empty() {
        problems.push(format!("processes are left: {}", left.join(", ")));
    }
    for problem in problems.iter().take(20) {
        say(&format!("! {problem}"));
    }
    say(if problems.is_empty() { "no wrong result, nothing left behind" } else { "failed" });
    Ok(problems.is_empty())
}

/// How many of all calls one client makes.
fn share(args: &Args, number: usize) -> u64 {
    let (clients, number) = (args.clients.max(1) as u64, number as u64);
    args.calls / clients + u64::from(number < args.calls % clients)
}

/// One call to each server in either era, so that all run as they do for whoever comes.
async fn greet(gateway: &Gateway) -> anyhow::Result<()> {
    for era in [Era::Sessions, Era::Stateless] {
        let name = "first".to_owned();
        let mut client = Client::connect(gateway.address, era, Way::Verbs, name, false).await?;
        for server in ECHOING {
            client.call(server, "echo", json!({"text": "hello"})).await?;
        }
        for server in ASKING {
            client.call(server, "test_simple_text", json!({})).await?;
        }
        client.leave().await?;
    }
    Ok(())
}

/// One client's share of the calls: what was wrong.
async fn client(
    address: std::net::SocketAddr,
    number: usize,
    calls: u64,
    seed: u64,
    tally: Arc<Tally>,
) -> anyhow::Result<Vec<String>> {
    let mut dice = fastrand::Rng::with_seed(seed ^ (number as u64) << 20);
    let era = era_of(number);
    let way = if number % 4 < 2 { Way::Verbs } else { Way::Full };
    let can_be_asked = number % 8 < 2;
    let name = format!("client-{number:03}");
    let mut client = Client::connect(address, era, way, name.clone(), can_be_asked).await?;
    let reason = regex::Regex::new(TRUE_REASON)?;
    let mut wrong = Vec::new();
    for call in 0..calls {
        let asks = can_be_asked && dice.u8(..10) == 0;
        let (server, tool, arguments, marker) = if asks {
            let marker = format!("\"username\":\"{name}\"");
            (
                ASKING[dice.usize(..ASKING.len())],
                "test_elicitation",
                json!({"message": "Who?"}),
                marker,
            )
        } else {
            let marker = format!("{name}, call {call}");
            (ECHOING[dice.usize(..ECHOING.len())], "echo", json!({"text": marker}), marker)
        };
        match client.call(server, tool, arguments).await {
            Ok(Answer::Said(text)) if text == marker || asks && text.contains(&marker) => {
                tally.served.fetch_add(1, Ordering::Relaxed);
                tally.asked.fetch_add(u64::from(asks), Ordering::Relaxed);
            }
            Ok(Answer::Failed(text)) if server.starts_with(MORTAL) && reason.is_match(&text) => {
                tally.failed.fetch_add(1, Ordering::Relaxed);
            }
            other => {
                tally.failed.fetch_add(1, Ordering::Relaxed);
                wrong.push(format!("{name} ({era:?}, {way:?}), {server}__{tool}: {other:?}"));
            }
        }
        if wrong.len() > 100 {
            break;
        }
    }
    client.leave().await?;
    Ok(wrong)
}

/// Kills a process of a server that may be killed, now and then.
async fn kill(gateway: Arc<Gateway>, tally: Arc<Tally>, seed: u64) -> anyhow::Result<()> {
    let mut dice = fastrand::Rng::with_seed(seed);
    while !tally.over.load(Ordering::Relaxed) {
        sleep(Duration::from_millis(dice.u64(500..2_000))).await;
        let mut mortal = gateway.descendants();
        mortal.retain(|(_, command)| command.contains(&format!("/{MORTAL}")));
        if let Some(victim) = dice.choice(&mortal).and_then(|(victim, _)| pid(*victim)) {
            // It may have ended by itself.
            if kill_process(victim, Signal::KILL).is_ok() {
                tally.kills.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}

/// Tells how it goes until all is done or all clients have ended, some of them before their time;
/// returns the memory when half of the calls were done.
async fn watch(gateway: &Gateway, tally: &Tally, calls: u64, have_ended: impl Fn() -> bool) -> u64 {
    let (mut middle, mut told) = (0, 0);
    loop {
        let done = tally.served.load(Ordering::Relaxed) + tally.failed.load(Ordering::Relaxed);
        if middle == 0 && done >= calls / 2 {
            middle = gateway.memory();
        }
        if done >= calls || have_ended() {
            return middle;
        }
        if done * 10 / calls.max(1) > told {
            told = done * 10 / calls.max(1);
            say(&format!("{done} calls, {} MiB, {}", gateway.memory() >> 20, Traces::of(gateway)));
        }
        sleep(Duration::from_millis(20)).await;
    }
}

/// What a gateway holds on to.
struct Traces {
    processes: usize,
    descriptors: usize,
    by_name: BTreeMap<String, usize>,
}

impl Traces {
    fn of(gateway: &Gateway) -> Self {
        let processes = gateway.descendants();
        let mut by_name = BTreeMap::new();
        for (_, command) in &processes {
            let program = command.split(' ').next().unwrap_or_default();
            let name = program.rsplit('/').next().unwrap_or_default();
            *by_name.entry(name.to_owned()).or_default() += 1;
        }
        Self { processes: processes.len(), descriptors: gateway.descriptors(), by_name }
    }
}

impl std::fmt::Display for Traces {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} processes, {} descriptors", self.processes, self.descriptors)?;
        self.by_name.iter().try_for_each(|(name, count)| write!(f, ", {name}: {count}"))
    }
}

/// Waits until nothing is left of the clients, or long enough.
async fn settle(gateway: &Gateway, before: &Traces) -> Traces {
    let ends = Instant::now() + SETTLING;
    loop {
        let now = Traces::of(gateway);
        let is_settled = now.processes <= before.processes && now.descriptors <= before.descriptors;
        if is_settled || Instant::now() >= ends {
            return now;
        }
        sleep(Duration::from_millis(500)).await;
    }
}
