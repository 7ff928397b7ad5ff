//! Clients of both eras in front of servers of both, over both transports on either side: what
//! MCP can do has to work on every way. `e2e/eras/run` prints the table.

#![allow(clippy::print_stdout, reason = "the table is what people want to see")]

mod apart;
mod client;
mod rows;
mod site;
mod stopped;
mod tried;

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use tokio::time::timeout;

use client::Outcome;
use rows::ROWS;
use site::{Site, Way};

/// How many ways are tried at once, and how long one may take.
const AT_ONCE: usize = 6;
const MOST: Duration = Duration::from_secs(60);

/// What came of each row on each way.
struct Table(BTreeMap<(usize, usize), Outcome>);

impl Table {
    async fn of(ways: &[Way]) -> Self {
        let cells = (0..ROWS.len()).flat_map(|row| (0..ways.len()).map(move |way| (row, way)));
        let tried = stream::iter(cells)
            .map(|(row, way)| async move { ((row, way), cell(row, ways[way]).await) });
        Self(tried.buffer_unordered(AT_ONCE).collect().await)
    }

    /// The table as people read it: a line for each way, a column for each row.
    fn print(&self, title: &str, ways: &[Way]) -> String {
        let mut out = format!("\n{title:28}");
        for (row, _) in ROWS {
            let _ = write!(out, "{row:14}");
        }
        for (at, way) in ways.iter().enumerate() {
            let _ = write!(out, "\n{:28}", way.to_string());
            for row in 0..ROWS.len() {
                let cell = if self.0[&(row, at)].is_ok() { "yes" } else { "NO" };
                let _ = write!(out, "{cell:14}");
            }
        }
        out
    }

    /// Fails unless every cell works.
    fn has_to_work(self, ways: &[Way]) {
        let name = |row: usize, way: usize| format!("{}: {}", ROWS[row].0, ways[way]);
        tried::all_work(self.0.into_iter().map(|((row, way), it)| (name(row, way), it)));
    }
}

async fn cell(row: usize, way: Way) -> Outcome {
    let trying = async {
        let site = Site::open(way).await?;
        let mut client = site.client().await?;
        let outcome = (ROWS[row].1)(&site, &mut client).await;
        drop(client);
        site.close().await;
        outcome
    };
    timeout(MOST, trying).await.unwrap_or_else(|_| Err("it never ended".to_owned()))
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_straight_at_the_fixture() {
    let ways = Way::direct();
    let table = Table::of(&ways).await;
    println!("{}", table.print("straight at the fixture", &ways));
    table.has_to_work(&ways);
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_works_on_every_way_through_the_gateway() {
    let ways = Way::through();
    let table = Table::of(&ways).await;
    println!("{}", table.print("client > upstream", &ways));
    assert_eq!(table.0.len(), 128, "8 rows on 16 ways");
    table.has_to_work(&ways);
}
