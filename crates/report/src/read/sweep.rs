//! Reads a sweep over budgets, as `lab/case NAME --sweep` writes it: joules that the simulator
//! predicts, by what requests may spend. Figures of them are headed as simulated.

use serde::Deserialize;

use super::results::JouleRange;
use crate::{GainVerdict, RunBudget, RunEnergy};

/// The document, as far as figures need it.
#[derive(Deserialize)]
pub(super) struct BudgetSweep {
    case: String,
    profile: String,
    time_factor: JouleRange,
    budgets: Vec<BudgetRow>,
}

/// What came of one budget, over several recordings and seeds.
#[derive(Deserialize)]
pub(super) struct BudgetRow {
    start: String,
    policy: String,
    /// Null: no limit, or a policy that decides by itself.
    budget_100cycles: Option<u64>,
    /// Whether the budget is for each slice; null where that makes no difference.
    per_slice: Option<bool>,
    /// Plays.
    n: u64,
    slices_off: f64,
    attainable_slices_off: Option<f64>,
    saved_joules: JouleRange,
    invested_joules: JouleRange,
    /// From the least to the most of all plays.
    net_range_joules: JouleRange,
}

impl BudgetRow {
    fn budget(&self) -> RunBudget {
        match self.budget_100cycles {
            _ if self.policy != "periodic" => RunBudget::Policy(self.policy.clone()),
            None => RunBudget::Unlimited,
            Some(0) => RunBudget::None,
            Some(budget) => RunBudget::Cycles(budget as f64 * 100.0),
        }
    }

    fn energy(&self, sweep: String, basis: String) -> Result<RunEnergy, String> {
        let net = self.net_range_joules.range()?;
        let saved = self.saved_joules.range()?;
        let budget = self.budget();
        let limit = self.attainable_slices_off.filter(|_| self.slices_off > 0.0);
        Ok(RunEnergy {
            name: budget.to_string(),
            sweep: Some(sweep),
            budget,
            saved,
            attainable: limit.map(|limit| saved.times(limit / self.slices_off)),
            invested: self.invested_joules.range()?,
            net,
            verdict: match (net.low, net.high) {
                (low, _) if low > 0.0 => GainVerdict::Gain,
                (_, high) if high < 0.0 => GainVerdict::Loss,
                _ => GainVerdict::Undecided,
            },
            uncounted: Vec::new(),
            basis,
        })
    }
}

impl BudgetSweep {
    /// What figures draw, each start with budgets for all slices and for each, and what it is.
    pub(super) fn into_energy(self) -> Result<(Vec<RunEnergy>, String), String> {
        let mut starts: Vec<&str> = Vec::new();
        for row in &self.budgets {
            if !starts.contains(&row.start.as_str()) {
                starts.push(&row.start);
            }
        }
        let mut found = Vec::new();
        for start in &starts {
            for (per_slice, what) in
                [(false, "budget for all slices"), (true, "budget for each slice")]
            {
                let of = |row: &&BudgetRow| {
                    row.start == *start && row.per_slice.is_none_or(|each| each == per_slice)
                };
                for row in self.budgets.iter().filter(of) {
                    let basis = format!(
                        "Simulated, not measured: recordings of runs that emptied nothing, played \
                         {} times for each budget; net is from the least to the most of these. By \
                         the profile {}; emulated seconds divided by {:.2} to {:.2}.",
                        row.n, self.profile, self.time_factor.low, self.time_factor.high
                    );
                    let heading = format!("{}, {start}, {what}, simulated", self.case);
                    let one = row.energy(heading, basis);
                    found.push(one.map_err(|why| format!("{start}, {what}: {why}"))?);
                }
            }
        }
        Ok((
            found,
            format!("case study {}, simulated for {} budgets", self.case, self.budgets.len()),
        ))
    }
}
