//! Why a plan comes out as it does, and where it would come out otherwise.

use toolcrib_tokens::{Model, TokenCount};

use super::{
    Approach, Footprints, Plan, PlanRow, Scenario, TurningPoint, Varied, cheapest_fitting, rows,
};
use crate::Strategy;

const INJECT: Approach = Approach::Deferred(Strategy::Inject);
const DISPATCH: Approach = Approach::Deferred(Strategy::Dispatch);
const NATIVE: Approach = Approach::Deferred(Strategy::Native);

/// Turning points are sought up to ten times the turns, and no further than this.
const MOST_TURNS: u32 = 10_000;

/// The nearest numbers of loads and of turns, below and above, at which another approach is the
/// cheapest.
pub(super) fn turning_points(
    footprints: &Footprints,
    scenario: &Scenario,
    model: &Model,
    now: Approach,
) -> Vec<TurningPoint> {
    let Scenario { loads, turns, .. } = *scenario;
    let varied = |varied: Varied, number: u32| match varied {
        Varied::Loads => Scenario { loads: number, ..*scenario },
        Varied::Turns => Scenario { turns: number, ..*scenario },
    };
    let most_loads = footprints.most_loads(scenario);
    let most_turns = turns.saturating_mul(10).min(MOST_TURNS).max(turns);
    let directions = [
        (Varied::Loads, loads, 0),
        (Varied::Loads, loads, most_loads),
        (Varied::Turns, turns, turns.min(1)),
        (Varied::Turns, turns, most_turns),
    ];
    let point = |(quantity, from, to)| {
        let cheapest = |number| {
            let rows = rows(footprints, &varied(quantity, number), model);
            cheapest_fitting(&rows).filter(|approach| *approach != now)
        };
        let at = nearest(from, to, |number| cheapest(number).is_some())?;
        Some(TurningPoint { varied: quantity, at, cheapest: cheapest(at)? })
    };
    directions.into_iter().filter_map(point).collect()
}

/// The number nearest to `from`, going towards `to`, that is different: steps are doubled until
/// one is, and the last of them halved down to it.
fn nearest(from: u32, to: u32, is_different: impl Fn(u32) -> bool) -> Option<u32> {
    let most = from.abs_diff(to);
    let number = |distance: u32| if to < from { from - distance } else { from + distance };
    let (mut same, mut different) = (0, most.min(1));
    while !is_different(number(different)) {
        if different == most {
            return None;
        }
        (same, different) = (different, different.saturating_mul(2).min(most));
    }
    while different - same > 1 {
        let middle = same + (different - same) / 2;
        *(if is_different(number(middle)) { &mut different } else { &mut same }) = middle;
    }
    Some(number(different))
}

pub(super) fn explain(plan: &Plan, model: &Model) -> String {
    let Some(best) = plan.row(plan.cheapest) else { return String::new() };
    let words = Words { plan, model, best };
    let sentences = words.misfits().into_iter().chain([words.reason()]).chain(words.turns());
    sentences.collect::<Vec<_>>().join(" ")
}

struct Words<'a> {
    plan: &'a Plan,
    model: &'a Model,
    best: &'a PlanRow,
}

impl Words<'_> {
    /// What does not fit the window.
    fn misfits(&self) -> Vec<String> {
        let Some(window) = self.model.context else { return Vec::new() };
        let window = TokenCount { tokens: window, exact: true };
        let too_long: Vec<&PlanRow> = self.plan.rows.iter().filter(|row| !row.fits).collect();
        if too_long.len() == self.plan.rows.len() {
            let text = "No approach fits the window of";
            return vec![format!("{text} {window} tokens, so this goes by cost alone.")];
        }
        let misfit = |row: &&PlanRow| {
            let (approach, peak) = (row.approach, self.tokens(row.peak));
            format!("{approach} does not fit: prompts of {peak} tokens in a window of {window}.")
        };
        too_long.iter().map(misfit).collect()
    }

    fn reason(&self) -> String {
        let others = self.plan.rows.iter().filter(|row| row.approach != self.plan.cheapest);
        let mut others: Vec<&PlanRow> = others.collect();
        others.sort_by(|a, b| a.price().total_cmp(&b.price()));
        let others: Vec<String> = others.into_iter().map(|row| self.against(row)).collect();
        format!("{} is cheapest: {}.", self.plan.cheapest, others.join("; "))
    }

    fn against(&self, row: &PlanRow) -> String {
        let approach = row.approach;
        let times = row.price() / self.best.price();
        let costs = match times {
            _ if row.price() == self.best.price() => return format!("{approach} costs the same"),
            _ if times < 1.0 => return format!("{approach} would cost less if it fitted"),
            _ if times < 1.005 => "costs hardly more".to_owned(),
            _ if times < 2.0 => format!("costs {:.0} % more", (times - 1.0) * 100.0),
            _ if times.is_finite() => format!("costs {times:.1} times as much"),
            _ => "costs more".to_owned(),
        };
        format!("{approach} {costs}, since it {}", self.because(row))
    }

    /// What makes an approach dearer than the cheapest.
    fn because(&self, row: &PlanRow) -> String {
        let more = |of: fn(&PlanRow) -> u64| self.tokens(of(row).saturating_sub(of(self.best)));
        let calls = row.calls.saturating_sub(self.best.calls);
        let misses = row.again > self.best.again && self.model.cache.read < self.model.cache.write;
        match (self.plan.cheapest, row.approach) {
            (_, Approach::Full) => {
                let base = self.tokens(self.plan.footprints.full.base);
                format!("sends {base} tokens of definitions with every call")
            }
            (_, INJECT) if misses => {
                let again = self.tokens(row.again);
                format!(
                    "changes the tools array at each load and has {again} tokens processed again"
                )
            }
            (Approach::Full, _) if calls > 0 => {
                let calls = count(calls, "more call");
                format!("takes {calls} to find tools, each with the whole prompt")
            }
            (INJECT, DISPATCH | NATIVE) if self.plan.scenario.loads == 0 => {
                format!("has {} tokens more of verbs and text in front", more(|row| row.peak))
            }
            _ if misses && row.usage.prompt() <= self.best.usage.prompt() => {
                let again = self.tokens(row.again);
                format!(
                    "is too short to be kept in the cache at first, and has {again} tokens \
                     processed again"
                )
            }
            _ => format!("sends {} tokens more", more(|row| row.usage.prompt())),
        }
    }

    fn turns(&self) -> Option<String> {
        let point = |point: &TurningPoint| {
            let (now, noun) = match point.varied {
                Varied::Loads => (self.plan.scenario.loads, "load"),
                Varied::Turns => (self.plan.scenario.turns, "turn"),
            };
            let at = count(point.at, noun);
            let cheapest = point.cheapest;
            match point.at {
                0 => format!("{cheapest} without any {noun}"),
                _ if point.at > now => format!("{cheapest} from {at} on"),
                1 => format!("{cheapest} with {at}"),
                _ => format!("{cheapest} with {at} or fewer"),
            }
        };
        let points: Vec<String> = self.plan.turning_points.iter().map(point).collect();
        let points = match points.split_last()? {
            (only, []) => only.clone(),
            (last, rest) => format!("{}, and {last}", rest.join(", ")),
        };
        Some(format!("The cheapest would be {points}."))
    }

    fn tokens(&self, tokens: u64) -> TokenCount {
        TokenCount { tokens, exact: self.model.tokenizer.is_exact() }
    }
}

fn count(number: u32, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_is_found_wherever_it_lies() {
        for at in 21..=100 {
            assert_eq!(nearest(20, 100, |number| number >= at), Some(at));
        }
        for at in 0..20 {
            assert_eq!(nearest(20, 0, |number| number <= at), Some(at));
        }
        assert_eq!(nearest(20, 100, |_| false), None);
        assert_eq!(nearest(20, 0, |_| false), None);
        assert_eq!(nearest(20, 20, |_| false), None);
        assert_eq!(nearest(0, u32::MAX, |number| number == u32::MAX), Some(u32::MAX));
    }
}
