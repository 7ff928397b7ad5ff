//! What a conversation has cost, by what the provider reports, and what it would have cost with
//! every schema in the tools array.
//!
//! The sums are in this file, `meter.rs` works them out turn by turn, and `deferral.rs` says what
//! in a message is there only because schemas are held back.

pub(crate) mod deferral;
mod meter;
#[cfg(test)]
mod tests;

use std::fmt;

use serde::{Deserialize, Serialize};
use toolcrib_tokens::{Cost, TokenCount, Usage};

pub(crate) use meter::{Deferred, Meter, bill, definition};

/// What a conversation has cost.
///
/// What it would have cost in mode `full` is worked out from the same figures: the same prompts
/// with every definition in them, without the section, the verbs and what was said to them, past
/// a cache that follows the model's rules. Requests that only looked for tools would not have
/// been made. As that cache never expires, the outcome is rather too low than too high.
///
/// ```
/// use toolcrib_agent::Spent;
///
/// let kept = serde_json::to_string(&Spent::default())?;
/// let spent: Spent = serde_json::from_str(&kept)?;
/// assert_eq!((spent.to_string().as_str(), spent.saving()), ("0 turns", None));
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Spent {
    /// How often the model was asked.
    pub turns: u64,
    /// How often, of these, its provider said nothing of tokens.
    pub unreported: u64,
    /// The tokens, as they were reported.
    pub usage: Usage,
    /// What they cost. It has no dollars if one of the models has no known price.
    pub cost: Cost,
    /// How often the model would have been asked in mode `full`.
    pub full_turns: u64,
    /// The tokens that would have taken.
    pub full_usage: Usage,
    /// What that would have cost.
    pub full: Cost,
    /// For how many turns `full` was worked out. The others are in it as they were reported.
    pub compared: u64,
    /// The last prompt that mode `full` would have sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    last: Option<Last>,
}

/// What is kept of a prompt of mode `full`: enough to say what the next one reads of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Last {
    /// The model it was for, which another's cache knows nothing of.
    model: String,
    /// Tokens of the tools array.
    tools: u64,
    /// Tokens of all of it.
    prompt: u64,
}

/// What one turn has cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct TurnCost {
    /// The tokens, as they were reported.
    pub usage: Usage,
    /// What they cost.
    pub cost: Cost,
    /// What the turn would have cost in mode `full`: nothing, if it only looked for tools. `None`
    /// where there is nothing to work it out from.
    pub full: Option<Cost>,
}

impl Spent {
    /// The share of mode `full`'s cost that was saved, negative if it would have been cheaper.
    /// `None` where nothing could be compared.
    pub fn saving(&self) -> Option<f64> {
        let (cost, full) = match (self.cost.dollars, self.full.dollars) {
            (Some(cost), Some(full)) => (cost, full),
            _ => (self.cost.input_equivalents, self.full.input_equivalents),
        };
        (self.compared > 0 && full > 0.0).then(|| 1.0 - cost / full)
    }

    /// Whether the price of everything is known.
    pub fn is_priced(&self) -> bool {
        self.cost.dollars.is_some()
    }

    fn add(&mut self, turn: TurnCost) {
        self.turns += 1;
        self.unreported += u64::from(turn.usage == Usage::default());
        self.usage = self.usage + turn.usage;
        self.cost = self.cost + turn.cost;
        self.full = self.full + turn.full.unwrap_or(turn.cost);
        self.compared += u64::from(turn.full.is_some());
    }
}

/// One line for people: `12 turns: 48,210 in (91 % read from cache), 3,120 out, $0.0412; sending
/// every schema would have cost ~$0.1933`.
impl fmt::Display for Spent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let turns = |number: u64| match number {
            1 => "1 turn".to_owned(),
            number => format!("{} turns", grouped(number)),
        };
        f.write_str(&turns(self.turns))?;
        if self.turns == self.unreported {
            let silence = ", of which the provider reports no tokens";
            return f.write_str(if self.turns == 0 { "" } else { silence });
        }
        let (prompt, output) = (self.usage.prompt(), self.usage.output);
        write!(f, ": {} in", grouped(prompt))?;
        if let Some(share) = self.usage.read.saturating_mul(100).checked_div(prompt) {
            write!(f, " ({share} % read from cache)")?;
        }
        write!(f, ", {} out", grouped(output))?;
        match self.cost.dollars {
            Some(_) => write!(f, ", {}", self.cost)?,
            None => f.write_str(", at a price that is not known")?,
        }
        if self.unreported > 0 {
            write!(f, "; {} reported no tokens", turns(self.unreported))?;
        }
        if self.saving().is_none() {
            return Ok(());
        }
        match self.full.dollars {
            Some(_) => write!(f, "; sending every schema would have cost ~{}", self.full),
            None => {
                let full = grouped(self.full.input_equivalents.round() as u64);
                write!(f, "; sending every schema would have cost ~{full} {EQUIVALENTS}, ")?;
                let own = grouped(self.cost.input_equivalents.round() as u64);
                write!(f, "where this cost {own}")
            }
        }
    }
}

const EQUIVALENTS: &str = "input-token equivalents";

fn grouped(number: u64) -> String {
    TokenCount { tokens: number, exact: true }.to_string()
}
