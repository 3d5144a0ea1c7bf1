//! The cost model in one dimension, on which the clairvoyant optimum is defined: how many slices
//! must be online at each step.
//!
//! Time goes in steps of equal length. In step `t`, in this order,
//!
//! 1. `needed[t]` slices must be online. If fewer are, the difference wakes on demand, and each
//!    costs `waking`.
//! 2. The policy switches slices off, never below what is needed, or wakes some. A slice that was
//!    not used since it went online costs `empty` to switch off, any other `emptying`; waking costs
//!    `waking`.
//! 3. Each slice that is offline until the end of the step earns `saving`.
//!
//! At the start all slices are online; the first `used_at_start` of them hold something, or those
//! needed in the first step if these are more. At the end nothing is woken.
//!
//! Slices are interchangeable, so a schedule is a number for each step, and "slice j" stands for
//! the j-th level: needed whenever `needed[t] >= j`. A level that is online and was needed since it
//! went online is used.

use serde::{Deserialize, Serialize};

/// Joules of one slice in one step, and of switching it.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct SliceCosts {
    /// Earned by a slice that is off for one step.
    pub saving: f64,
    /// To empty a used slice and switch it off.
    pub emptying: f64,
    /// To switch off a slice that was not used since it went online.
    pub empty: f64,
    /// To wake a slice, on demand or ahead.
    pub waking: f64,
}

impl SliceCosts {
    /// Of a machine, for steps of this many seconds.
    pub fn new(economics: &crate::SliceEconomics, step_seconds: f64) -> Self {
        Self {
            saving: economics.saving.0 * step_seconds,
            emptying: economics.emptying.0,
            empty: economics.empty.0,
            waking: economics.waking.0,
        }
    }
}

/// Demand over time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DemandSeries {
    /// Slices that must be online in each step; at most `slices`.
    pub needed: Vec<u32>,
    /// Slices that there are.
    pub slices: u32,
    /// Slices that hold something at the start.
    pub used_at_start: u32,
}

/// Where the joules of a schedule went.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct JouleAccount {
    /// Earned by slices that were off.
    pub saved: f64,
    /// Spent on switching slices off.
    pub offlining: f64,
    /// Spent on waking them.
    pub waking: f64,
    /// Slices that were used and had to be emptied.
    pub emptied: u64,
    /// Slices that were empty when they went off.
    pub empty: u64,
    /// Slices that woke on demand.
    pub demand_wakes: u64,
    /// Slices that the policy woke.
    pub other_wakes: u64,
}

impl JouleAccount {
    /// Earned less spent.
    pub fn net(&self) -> f64 {
        self.saved - self.offlining - self.waking
    }
}

/// A machine of the model under way.
#[derive(Debug, Clone)]
pub struct ModelState {
    costs: SliceCosts,
    slices: u32,
    /// Slices that are on.
    on: u32,
    /// Of these used since they went on.
    used: u32,
    account: JouleAccount,
}

impl ModelState {
    /// At the start of a series.
    pub fn new(series: &DemandSeries, costs: SliceCosts) -> Self {
        let used = series.used_at_start.min(series.slices);
        Self {
            costs,
            slices: series.slices,
            on: series.slices,
            used,
            account: JouleAccount::default(),
        }
    }

    /// Slices that are on.
    pub fn on(&self) -> u32 {
        self.on
    }

    /// Slices that are off.
    pub fn off(&self) -> u32 {
        self.slices - self.on
    }

    /// Slices that are on and unused.
    pub fn empty(&self) -> u32 {
        self.on - self.used
    }

    /// What would have been earned if everything woke now.
    pub fn worst(&self) -> f64 {
        self.account.net() - f64::from(self.off()) * self.costs.waking
    }

    /// The account so far.
    pub fn account(&self) -> &JouleAccount {
        &self.account
    }

    /// Begins a step: wakes needed offline slices, and returns how many.
    pub fn demand(&mut self, needed: u32) -> u32 {
        let needed = needed.min(self.slices);
        let woken = needed.saturating_sub(self.on);
        self.account.demand_wakes += u64::from(woken);
        self.account.waking += f64::from(woken) * self.costs.waking;
        self.on += woken;
        self.used = self.used.max(needed);
        woken
    }

    /// Switches slices off, unused ones first, down to `on`. Returns how many unused and used ones
    /// went offline.
    pub fn switch_off(&mut self, on: u32) -> (u32, u32) {
        let all = self.on.saturating_sub(on);
        let empty = all.min(self.empty());
        let used = all - empty;
        self.on -= all;
        self.used -= used;
        self.account.empty += u64::from(empty);
        self.account.emptied += u64::from(used);
        self.account.offlining +=
            f64::from(empty) * self.costs.empty + f64::from(used) * self.costs.emptying;
        (empty, used)
    }

    /// Wakes slices up to `on`.
    pub fn wake(&mut self, on: u32) {
        let woken = on.min(self.slices).saturating_sub(self.on);
        self.account.other_wakes += u64::from(woken);
        self.account.waking += f64::from(woken) * self.costs.waking;
        self.on += woken;
    }

    /// Ends a step: slices that are off earn.
    pub fn add_savings(&mut self) {
        self.account.saved += f64::from(self.off()) * self.costs.saving;
    }
}

/// What a schedule earns with `on[t]` slices online in step `t`, or as many as are needed if these
/// are more.
pub fn account(
    series: &DemandSeries,
    costs: SliceCosts,
    on: impl IntoIterator<Item = u32>,
) -> JouleAccount {
    let mut state = ModelState::new(series, costs);
    for (&needed, on) in series.needed.iter().zip(on) {
        state.demand(needed);
        state.switch_off(on.max(needed));
        state.wake(on);
        state.add_savings();
    }
    *state.account()
}
