//! When a fault strikes.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::Error;
use crate::catalog::Fault;
use crate::server::Step;

/// What keeps faults from striking always.
#[derive(Debug)]
pub(crate) struct Limits {
    /// Only so many times.
    pub(crate) times: Option<u64>,
    /// Not before so many calls.
    pub(crate) after: u64,
    /// Only as long as this exists.
    pub(crate) until: Option<PathBuf>,
    /// So often of a hundred times.
    pub(crate) chance: u64,
    /// Where faults in answers strike.
    pub(crate) at: Vec<Step>,
    /// Where to write down what happens.
    pub(crate) record: Option<PathBuf>,
}

/// How a call is written down.
const CALL: &str = "call";

/// Counts calls and faults, and decides on the next one.
pub(crate) struct Ledger {
    limits: Limits,
    state: Mutex<State>,
}

struct State {
    /// How often each thing has happened, by what it is called in the record.
    counts: BTreeMap<String, u64>,
    record: Option<File>,
    random: Random,
}

impl Ledger {
    /// Goes on where the record, if there is one, ends.
    pub(crate) fn open(limits: Limits, seed: u64) -> Result<Self, Error> {
        let mut counts = BTreeMap::new();
        let mut record = None;
        if let Some(path) = &limits.record {
            for line in std::fs::read_to_string(path).unwrap_or_default().lines() {
                *counts.entry(line.to_owned()).or_default() += 1;
            }
            let opened = OpenOptions::new().create(true).append(true).open(path);
            record =
                Some(opened.map_err(|source| Error::Record {
                    path: path.display().to_string(),
                    source,
                })?);
        }
        let state = Mutex::new(State { counts, record, random: Random(seed) });
        Ok(Self { limits, state })
    }

    /// Whether the fault strikes now; if so, how often it has before.
    pub(crate) fn strike(&self, fault: &Fault) -> Option<u64> {
        let mut state = self.lock();
        let before = state.count(fault.name);
        let is_due = self.lasts()
            && self.limits.times.is_none_or(|times| before < times)
            && state.count(CALL) >= self.limits.after
            && state.random.below(100) < self.limits.chance;
        is_due.then(|| {
            state.note(fault.name);
            before
        })
    }

    /// Whether faults may still strike, as far as `--until` says.
    pub(crate) fn lasts(&self) -> bool {
        self.limits.until.as_ref().is_none_or(|file| file.exists())
    }

    pub(crate) fn count_call(&self) {
        self.lock().note(CALL);
    }

    pub(crate) fn at(&self) -> &[Step] {
        &self.limits.at
    }

    /// A number below `end`, the same for the same seed.
    pub(crate) fn random(&self, end: u64) -> u64 {
        self.lock().random.below(end)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn count(&self, what: &str) -> u64 {
        self.counts.get(what).copied().unwrap_or_default()
    }

    fn note(&mut self, what: &str) {
        *self.counts.entry(what.to_owned()).or_default() += 1;
        if let Some(record) = &mut self.record {
            // In one go, so that two processes don't mix their lines.
            let _ = record.write_all(format!("{what}\n").as_bytes());
        }
    }
}

/// Numbers that look random: splitmix64.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % end.max(1)
    }
}
