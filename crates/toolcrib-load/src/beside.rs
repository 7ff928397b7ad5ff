//! Nine good servers under load, with and without a tenth that misbehaves.
//!
//! Two gateways take turns: one over the nine alone, one with the tenth as well. Sixteen clients
//! call the nine as fast as they are answered, so the machine is busy in both; the tenth is called
//! now and then. A pause that holds all of them up is few calls and hardly seen in a percentile of
//! them, so how many calls there were and the longest one are judged as well.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use futures::future::try_join_all;
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior, interval, interval_at, sleep, timeout};
use toolcrib_hostile::{Eras, FAULTS, Fault, Transports};
use toolcrib_wire::Era;

use crate::client::{Answer, Client, Way, era_of};
use crate::gateway::{Entry, Gateway, Launch};
use crate::reasons::{Expect, expected};
use crate::say;

const GOOD: usize = 9;
const CLIENTS: usize = 16;

/// Callers of the server that misbehaves.
const VICTIMS: usize = 2;

/// How often each of them calls. The machine is not what they are to take from the others.
const VICTIMS_PACE: Duration = Duration::from_millis(500);

/// The most memory the gateway may need, in bytes.
const MOST_MEMORY: u64 = 512 << 20;

/// How much slower the hundredth call may be, and how many times fewer calls there may be.
const MOST_SHARE: f64 = 1.5;

/// How long any one call may take.
const LONGEST: Duration = Duration::from_millis(250);

/// Characters of an answer that are kept to be shown.
const MOST_SHOWN: usize = 300;

const SLOW: &str = "calls of the good servers take longer";

/// How long the server may take to be of use once the fault has ended.
const RECOVERY: Duration = Duration::from_secs(45);

/// How often a fault is measured again if calls were slow: two equal runs differ too.
const AGAIN: usize = 2;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Only these faults [default: all of them]
    #[arg(value_name = "FAULT")]
    only: Vec<String>,
    /// Calls of each of the sixteen clients in a second [default: as many as are answered]
    #[arg(long, value_name = "CALLS")]
    rate: Option<u32>,
    /// How long each measurement takes, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 2.0)]
    seconds: f64,
    /// Judge no times: for builds that are not optimised, on machines that are busy
    #[arg(long)]
    untimed: bool,
}

/// What a run of one fault showed.
struct Seen {
    calm: Times,
    disturbed: Times,
    memory: u64,
    recovered: Option<Duration>,
    said: Vec<Result<(), String>>,
    wrong: Vec<String>,
}

pub(crate) async fn run(bin: &Path, args: Args) -> anyhow::Result<bool> {
    let stand = Stand::new(bin, &args).await?;
    let is_wanted =
        |fault: &&Fault| args.only.is_empty() || args.only.iter().any(|it| it == fault.name);
    let wanted: Vec<&Fault> = FAULTS.iter().filter(is_wanted).collect();
    anyhow::ensure!(!wanted.is_empty(), "no such fault; `toolcrib-hostile --list` names them");
    say(&format!(
        "{:<24} {:>9} {:>9} {:>6} {:>6} {:>9} {:>9} {:>10} {:>6}  callers of the faulty one",
        "fault",
        "p99 alone",
        "p99 with",
        "share",
        "calls",
        "longest",
        "memory",
        "recovered",
        "faulty",
    ));
    let mut failed = Vec::new();
    for fault in &wanted {
        let mut problems = Vec::new();
        for _ in 0..=AGAIN {
            let seen = stand.fault(fault).await.with_context(|| format!("--{}", fault.name))?;
            problems = judge(fault, &seen);
            show(fault, &seen);
            for problem in &problems {
                say(&format!("  ! {}", problem.chars().take(MOST_SHOWN).collect::<String>()));
            }
            if problems != [SLOW] {
                break;
            }
        }
        if !problems.is_empty() {
            failed.push(fault.name);
        }
    }
    let passed = wanted.len() - failed.len();
    say(&format!("\n{passed} of {} faults leave the nine good servers as they were", wanted.len()));
    if !failed.is_empty() {
        say(&format!("failed: {}", failed.join(", ")));
    }
    Ok(failed.is_empty())
}

fn ms(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1e3)
}

/// What is wrong with what was seen.
fn judge(fault: &Fault, seen: &Seen) -> Vec<String> {
    let mut problems: Vec<String> = seen.wrong.clone();
    if seen.memory > MOST_MEMORY {
        problems.push(format!("memory: {} MiB", seen.memory >> 20));
    }
    if seen.recovered.is_none() {
        problems.push(format!("it is of no use {RECOVERY:?} after the fault has ended"));
    }
    problems.extend(reasons(fault, &seen.said));
    let (calm, with) = (&seen.calm, &seen.disturbed);
    // Not known where times are not judged.
    if calm.calls > 0 {
        let is_slow = with.p99 > calm.p99.mul_f64(MOST_SHARE) || with.longest > LONGEST;
        if is_slow || with.calls as f64 * MOST_SHARE < calm.calls as f64 {
            problems.push(SLOW.to_owned());
        }
    }
    problems
}

/// What is wrong with what the callers of the faulty server were told.
fn reasons(fault: &Fault, said: &[Result<(), String>]) -> Option<String> {
    let odd = |why: &Result<(), String>| match (expected(fault.name), why) {
        (None, _) => Some("nobody has written down what its callers should be told".to_owned()),
        (Some(Expect::Works), Err(reason)) => Some(format!("a call should work: {reason}")),
        (Some(Expect::Reason(pattern) | Expect::Either(pattern)), Err(reason)) => {
            let is_true = regex::Regex::new(pattern).is_ok_and(|it| it.is_match(reason));
            (!is_true).then(|| format!("not the reason: {reason}"))
        }
        (Some(Expect::Reason(_)), Ok(())) => Some("a call worked that should not".to_owned()),
        (Some(Expect::Works | Expect::Either(_)), Ok(())) => None,
    };
    if said.is_empty() {
        return Some("its callers were told nothing".to_owned());
    }
    said.iter().find_map(odd)
}

fn show(fault: &Fault, seen: &Seen) {
    let (calm, with) = (&seen.calm, &seen.disturbed);
    let (mut p99, mut calls) = ("–".to_owned(), "–".to_owned());
    if calm.calls > 0 {
        p99 = format!("{:.2}", with.p99.as_secs_f64() / calm.p99.as_secs_f64());
        calls = format!("{:.2}", with.calls as f64 / calm.calls as f64);
    }
    let recovered =
        seen.recovered.map_or("never".to_owned(), |time| format!("{:.1} s", time.as_secs_f64()));
    let failure = seen.said.iter().find_map(|said| said.as_ref().err());
    let told = failure.map_or("served", String::as_str).replace('\n', " ");
    let told: String = told.chars().take(110).collect();
    say(&format!(
        "{:<24} {:>9} {:>9} {p99:>6} {calls:>6} {:>9} {:>5} MiB {recovered:>10} {:>6}  {told}",
        fault.name,
        ms(calm.p99),
        ms(with.p99),
        ms(with.longest),
        seen.memory >> 20,
        seen.said.len(),
    ));
}

/// What all faults are measured against.
struct Stand {
    toolcrib: PathBuf,
    hostile: PathBuf,
    /// Kept: it ends when dropped.
    _calm: Gateway,
    clients: tokio::sync::Mutex<Vec<Client>>,
    /// From one call of a client to its next, if not as soon as that can be.
    pace: Option<Duration>,
    takes: Duration,
    untimed: bool,
}

impl Stand {
    async fn new(bin: &Path, args: &Args) -> anyhow::Result<Self> {
        let (toolcrib, hostile) = (bin.join("toolcrib"), bin.join("toolcrib-hostile"));
        let calm = Gateway::start(&toolcrib, &good(&hostile)).await?;
        let clients = tokio::sync::Mutex::new(connect(&calm).await?);
        let pace = args.rate.map(|rate| Duration::from_secs(1) / rate.max(1));
        let takes = Duration::from_secs_f64(args.seconds.max(0.1));
        let untimed = args.untimed;
        let stand = Self { toolcrib, hostile, _calm: calm, clients, pace, takes, untimed };
        stand.calm().await?;
        Ok(stand)
    }

    async fn fault(&self, fault: &Fault) -> anyhow::Result<Seen> {
        let folder = tempfile::tempdir()?;
        let until = folder.path().join("until");
        std::fs::write(&until, "")?;
        let before = self.calm().await?;
        let server = Server::start(&self.hostile, fault, &folder).await?;
        let mut servers = good(&self.hostile);
        servers.push(server.entry());
        let gateway = Gateway::start(&self.toolcrib, &servers).await?;
        let mut clients = connect(&gateway).await?;
        let (over, memory) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let victims: Vec<_> = (0..VICTIMS)
            .map(|number| {
                let (address, over) = (gateway.address, over.clone());
                apart(move || victim(address, number, over))
            })
            .collect();
        // What the gateway does about a server that it meets for the first time is not the matter.
        sleep(Duration::from_millis(300)).await;
        let disturbed = async {
            let disturbed = self.load(&mut clients).await;
            over.store(true, Ordering::Relaxed);
            disturbed
        };
        let watched = async {
            while !over.load(Ordering::Relaxed) {
                memory.fetch_max(gateway.memory(), Ordering::Relaxed);
                sleep(Duration::from_millis(50)).await;
            }
        };
        let (disturbed, ()) = tokio::join!(disturbed, watched);
        let disturbed = disturbed?;
        let mut said = Vec::new();
        for victim in victims {
            said.extend(victim.await.context("a caller of the faulty server is gone")??);
        }
        std::fs::remove_file(&until)?;
        let recovered = recovery(&gateway).await?;
        let mut wrong: Vec<String> = disturbed.wrong;
        let left = gateway.stop().await?;
        server.stop().await;
        if !left.is_empty() {
            wrong.push(format!("processes are left: {}", left.join(", ")));
        }
        let after = self.calm().await?;
        Ok(Seen {
            calm: Times::of(&[before, after]),
            disturbed: Times::of(&[disturbed.times]),
            memory: memory.load(Ordering::Relaxed),
            recovered,
            said,
            wrong,
        })
    }

    /// How long calls take where nothing is wrong.
    async fn calm(&self) -> anyhow::Result<Vec<Duration>> {
        if self.untimed {
            return Ok(Vec::new());
        }
        let load = self.load(&mut self.clients.lock().await).await?;
        anyhow::ensure!(load.wrong.is_empty(), "without any fault: {}", load.wrong[0]);
        Ok(load.times)
    }

    /// Calls good servers for a while, every client at its pace or as soon as it has its answer.
    async fn load(&self, clients: &mut [Client]) -> anyhow::Result<Load> {
        let ends = Instant::now() + self.takes;
        let runs = clients.iter_mut().enumerate().map(|(number, client)| async move {
            let mut load = Load::default();
            // The clients' beats are spread over the time between two calls.
            let spread = |pace: Duration| pace.mul_f64(number as f64 / CLIENTS as f64);
            let mut beat = self.pace.map(|pace| {
                let mut beat = interval_at(Instant::now() + spread(pace), pace);
                beat.set_missed_tick_behavior(MissedTickBehavior::Skip);
                beat
            });
            for turn in number.. {
                if let Some(beat) = &mut beat {
                    beat.tick().await;
                }
                if Instant::now() >= ends {
                    break;
                }
                let marker = format!("client {number}, call {turn}");
                let began = Instant::now();
                let server = format!("good{}", turn % GOOD);
                let answer = client.call(&server, "echo", json!({"text": marker})).await;
                load.times.push(began.elapsed());
                match answer {
                    Ok(Answer::Said(text)) if text == marker => {}
                    other => {
                        load.wrong.push(format!("{server} answered {other:?} to {marker}"));
                        break;
                    }
                }
            }
            anyhow::Ok(load)
        });
        let mut all = Load::default();
        for load in try_join_all(runs).await? {
            all.times.extend(load.times);
            all.wrong.extend(load.wrong);
        }
        Ok(all)
    }
}

#[derive(Default)]
struct Load {
    times: Vec<Duration>,
    wrong: Vec<String>,
}

/// What calls took.
struct Times {
    p99: Duration,
    longest: Duration,
    /// How many there were in one run.
    calls: usize,
}

impl Times {
    fn of(runs: &[Vec<Duration>]) -> Self {
        let mut all = runs.concat();
        all.sort_unstable();
        let p99 = all.get(all.len() * 99 / 100).copied().unwrap_or_default();
        let longest = all.last().copied().unwrap_or_default();
        Self { p99, longest, calls: all.len() / runs.len().max(1) }
    }
}

fn good(hostile: &Path) -> Vec<Entry> {
    (0..GOOD).map(|number| Entry::new(format!("good{number}"), hostile.to_owned())).collect()
}

/// Sixteen clients, of either era, to whom every good server has answered.
async fn connect(gateway: &Gateway) -> anyhow::Result<Vec<Client>> {
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let name = format!("client {number}");
        let mut client =
            Client::connect(gateway.address, era_of(number), Way::Verbs, name, false).await?;
        for server in 0..GOOD {
            let server = format!("good{server}");
            let call = client.call(&server, "echo", json!({"text": "hello"}));
            call.await.with_context(|| server.clone())?;
        }
        clients.push(client);
    }
    Ok(clients)
}

/// Runs on a thread of its own, after all others: it stands for a program on another machine, and
/// takes as little as it can from what is measured here.
fn apart<T, F>(work: impl FnOnce() -> F + Send + 'static) -> oneshot::Receiver<anyhow::Result<T>>
where
    T: Send + 'static,
    F: Future<Output = anyhow::Result<T>>,
{
    let (done, when_done) = oneshot::channel();
    std::thread::spawn(move || {
        // On Linux it is the thread that is nice, not the program.
        let _ = rustix::process::nice(19);
        let own = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let _ = done.send(own.map_err(Into::into).and_then(|own| own.block_on(work())));
    });
    when_done
}

/// Calls the faulty server until it is over: what came of each call.
async fn victim(
    address: std::net::SocketAddr,
    number: usize,
    over: Arc<AtomicBool>,
) -> anyhow::Result<Vec<Result<(), String>>> {
    let mut client =
        Client::connect(address, era_of(number), Way::Verbs, format!("victim {number}"), false)
            .await?;
    let mut said = Vec::new();
    // They take turns, so that what is large comes once at a time.
    sleep(VICTIMS_PACE.mul_f64(number as f64 / VICTIMS as f64)).await;
    let mut beat = interval(VICTIMS_PACE);
    beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
    // At least one call, however long it takes.
    while said.is_empty() || !over.load(Ordering::Relaxed) {
        beat.tick().await;
        said.push(match client.call("bad", "echo", json!({"text": "a word"})).await {
            Ok(Answer::Said(text)) if text.contains("a word") => Ok(()),
            Ok(Answer::Said(text)) => Err(format!(
                "another result: {}",
                text.chars().take(MOST_SHOWN).collect::<String>()
            )),
            Ok(Answer::Failed(reason)) => Err(reason),
            Err(error) => Err(format!("no answer at all: {error:#}")),
        });
    }
    Ok(said)
}

/// How long it takes until the server that misbehaved is of use.
async fn recovery(gateway: &Gateway) -> anyhow::Result<Option<Duration>> {
    let name = "visitor".to_owned();
    let mut client =
        Client::connect(gateway.address, Era::Sessions, Way::Verbs, name, false).await?;
    let began = Instant::now();
    while began.elapsed() < RECOVERY {
        let call = client.call("bad", "echo", json!({"text": "again"}));
        match timeout(RECOVERY, call).await {
            Ok(Ok(Answer::Said(text))) if text == "again" => return Ok(Some(began.elapsed())),
            _ => sleep(Duration::from_millis(100)).await,
        }
    }
    Ok(None)
}

/// The server that misbehaves: started by the gateway, or over HTTP by us, again and again.
enum Server {
    Command(PathBuf, Vec<String>),
    Web { url: String, keeper: tokio::task::JoinHandle<()> },
}

impl Server {
    async fn start(hostile: &Path, fault: &Fault, folder: &TempDir) -> anyhow::Result<Self> {
        let until = folder.path().join("until").to_string_lossy().into_owned();
        let mut args = vec![format!("--{}", fault.name), "--until".to_owned(), until];
        if fault.eras == Eras::Stateless {
            args.extend(["--era".to_owned(), "stateless".to_owned()]);
        }
        if fault.transports != Transports::Http {
            return Ok(Self::Command(hostile.to_owned(), args));
        }
        let (child, url) = web(hostile, &args, 0).await?;
        let port: u16 =
            url.rsplit(':').next().and_then(|it| it.split('/').next()).unwrap_or("0").parse()?;
        let (hostile, mut child) = (hostile.to_owned(), child);
        let keeper = tokio::spawn(async move {
            loop {
                let _ = child.wait().await;
                sleep(Duration::from_millis(200)).await;
                match web(&hostile, &args, port).await {
                    Ok((again, _)) => child = again,
                    Err(_) => return,
                }
            }
        });
        Ok(Self::Web { url, keeper })
    }

    fn entry(&self) -> Entry {
        let launch = match self {
            Self::Command(program, args) => Launch::Command(program.clone(), args.clone()),
            Self::Web { url, .. } => Launch::Url(url.clone()),
        };
        // Short, so that a test does not wait for minutes; long enough for ten megabytes.
        let more = "start_limit = 5\ncall_limit = 3".to_owned();
        Entry { name: "bad".to_owned(), launch, more }
    }

    async fn stop(self) {
        if let Self::Web { keeper, .. } = self {
            keeper.abort();
            // The process is killed with the task that holds it.
            let _ = keeper.await;
        }
    }
}

/// Starts it over HTTP; says at which address.
async fn web(hostile: &Path, args: &[String], port: u16) -> anyhow::Result<(Child, String)> {
    let mut command = Command::new(hostile);
    command.args(args).args(["--http", &port.to_string()]).kill_on_drop(true);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn()?;
    let output = child.stdout.take().context("it has no output")?;
    let mut lines = BufReader::new(output).lines();
    let url = lines.next_line().await?.context("it does not say where it listens")?;
    Ok((child, url))
}
