//! A fixture, the gateway in front of it or not, and a way for clients to connect.

use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};
use tokio::time::{Duration, Instant, sleep};
use toolcrib_core::{Naming, Settings};
use toolcrib_gateway::{Endpoint, Gateway, HttpOptions, Options};
use toolcrib_mcp::{Era, ServerConfig, Upstreams};
use toolcrib_runtime::Crib;

use crate::client::{Client, Outcome, PATIENCE, Place};

const FIXTURE: &str = env!("CARGO_BIN_EXE_toolcrib-fixture");

/// One leg of a way.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Leg {
    pub(crate) era: Era,
    pub(crate) over: Over,
}

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Over {
    Stdio,
    Http,
}

/// How a client gets to the fixture: through the gateway, unless there is no second leg.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Way {
    pub(crate) client: Leg,
    pub(crate) upstream: Option<Leg>,
}

impl Leg {
    pub(crate) fn all() -> [Self; 4] {
        let leg = |era, over| Self { era, over };
        [
            leg(Era::Sessions, Over::Stdio),
            leg(Era::Sessions, Over::Http),
            leg(Era::Stateless, Over::Stdio),
            leg(Era::Stateless, Over::Http),
        ]
    }
}

impl Way {
    /// Clients of each kind, straight at the fixture.
    pub(crate) fn direct() -> Vec<Self> {
        Leg::all().map(|client| Self { client, upstream: None }).into()
    }

    /// Clients of each kind, in front of upstreams of each kind.
    pub(crate) fn through() -> Vec<Self> {
        let legs = Leg::all();
        let pairs = legs.iter().flat_map(|client| legs.iter().map(move |up| (*client, *up)));
        pairs.map(|(client, up)| Self { client, upstream: Some(up) }).collect()
    }
}

impl fmt::Display for Leg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let over = match self.over {
            Over::Stdio => "stdio",
            Over::Http => "http",
        };
        write!(f, "{} {over}", &self.era.newest()[..4])
    }
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.upstream {
            None => write!(f, "{} direct", self.client),
            Some(up) => write!(f, "{} > {up}", self.client),
        }
    }
}

pub(crate) struct Site {
    way: Way,
    folder: TempDir,
    /// The fixture that listens, where one does.
    fixture: Option<(Child, String)>,
    gateway: Option<Front>,
}

struct Front {
    gateway: Gateway,
    upstreams: Upstreams,
    url: Option<String>,
}

impl Site {
    pub(crate) async fn open(way: Way) -> Outcome<Self> {
        let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
        let mut site = Self { way, folder, fixture: None, gateway: None };
        let last = way.upstream.unwrap_or(way.client);
        if last.over == Over::Http {
            site.fixture = Some(listening(&site.arguments(last.era)).await?);
        }
        if let Some(upstream) = way.upstream {
            site.gateway = Some(site.front(upstream).await?);
        }
        Ok(site)
    }

    async fn front(&self, upstream: Leg) -> Outcome<Front> {
        let config = match &self.fixture {
            Some((_, url)) => ServerConfig::http("fixture", url),
            None => ServerConfig::command("fixture", FIXTURE, self.arguments(upstream.era)),
        };
        let crib = Crib::builder(Settings::default()).naming(Naming::Gateway).build().await;
        let crib = crib.map_err(|error| error.to_string())?;
        let upstreams = Upstreams::default();
        crib.add(upstreams.open(config)).await;
        let gateway = Gateway::new(crib, Options::default()).map_err(|error| error.to_string())?;
        let mut url = None;
        if self.way.client.over == Over::Http {
            let listener = TcpListener::bind("127.0.0.1:0").await.map_err(|it| it.to_string())?;
            let address = listener.local_addr().map_err(|it| it.to_string())?;
            url = Some(format!("http://{address}/mcp/s/fixture"));
            let gateway = gateway.clone();
            tokio::spawn(async move {
                let never = std::future::pending();
                let _ = gateway.serve_http(listener, HttpOptions::default(), never).await;
            });
        }
        Ok(Front { gateway, upstreams, url })
    }

    fn arguments(&self, era: Era) -> Vec<String> {
        let era = match era {
            Era::Sessions => "sessions",
            Era::Stateless => "stateless",
        };
        let journal = self.journal().display().to_string();
        ["--era", era, "--journal", &journal].map(str::to_owned).into()
    }

    fn journal(&self) -> PathBuf {
        self.folder.path().join("journal")
    }

    /// One more client.
    pub(crate) async fn client(&self) -> Outcome<Client> {
        let era = self.way.client.era;
        let place = match (&self.gateway, &self.fixture) {
            (Some(Front { url: Some(url), .. }), _) => Place::Url(url.clone()),
            (Some(front), _) => front.pipes(),
            (None, Some((_, url))) => Place::Url(url.clone()),
            (None, None) => pipes(&self.arguments(era))?,
        };
        Client::open(place, era).await
    }

    /// Waits until the fixture has noted that of a call with this marker among its arguments.
    pub(crate) async fn noted(&self, what: &str, marker: &str) -> Outcome {
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            if self.notes(marker).iter().any(|note| is(note, what)) {
                return Ok(());
            }
            sleep(Duration::from_millis(10)).await;
        }
        Err(format!("no call {what}: {:?}", self.notes(marker)))
    }

    fn notes(&self, marker: &str) -> Vec<Value> {
        let text = std::fs::read_to_string(self.journal()).unwrap_or_default();
        let notes = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        notes.filter(|note: &Value| note["arguments"]["marker"] == marker).collect()
    }

    /// How many calls with this marker came to the fixture.
    pub(crate) fn begun(&self, marker: &str) -> usize {
        self.notes(marker).iter().filter(|note| note["what"] == "began").count()
    }

    pub(crate) async fn close(self) {
        if let Some(front) = self.gateway {
            front.upstreams.shut_down().await;
        }
    }
}

/// A call is stopped as well when its process has gone; it is over when it was stopped, or has
/// ended since its question was refused.
fn is(note: &Value, what: &str) -> bool {
    let gone = |pid: &Value| !Path::new(&format!("/proc/{pid}")).exists();
    match what {
        "began" => note["what"] == "began",
        "over" => note["what"] != "began" || gone(&note["pid"]),
        _ => note["what"] == "stopped" || gone(&note["pid"]),
    }
}

impl Front {
    fn pipes(&self) -> Place {
        let (to, their_input) = tokio::io::duplex(1 << 20);
        let (their_output, from) = tokio::io::duplex(1 << 20);
        let gateway = self.gateway.clone();
        tokio::spawn(async move {
            let never = std::future::pending();
            let endpoint = Endpoint::Server("fixture".to_owned());
            let _ = gateway.serve_on(their_input, their_output, endpoint, never).await;
        });
        Place::Pipes(Box::new(to), Box::new(from))
    }
}

fn command(arguments: &[String]) -> Command {
    let mut command = Command::new(FIXTURE);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
    command
}

async fn listening(arguments: &[String]) -> Outcome<(Child, String)> {
    let mut command = command(arguments);
    let child = command.args(["--http", "127.0.0.1:0"]).spawn();
    let mut child = child.map_err(|error| error.to_string())?;
    let stdout = child.stdout.take().ok_or("no output")?;
    let url = BufReader::new(stdout).lines().next_line().await.ok().flatten();
    Ok((child, url.ok_or("the fixture did not say where it listens")?))
}

fn pipes(arguments: &[String]) -> Outcome<Place> {
    let mut child = command(arguments).spawn().map_err(|error| error.to_string())?;
    let (to, from) = (child.stdin.take(), child.stdout.take());
    // It ends with its input.
    tokio::spawn(async move { child.wait().await });
    Ok(Place::Pipes(Box::new(to.ok_or("no input")?), Box::new(from.ok_or("no output")?)))
}
