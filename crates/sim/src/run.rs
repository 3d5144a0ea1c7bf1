//! One run: a machine, a load and a policy, step by step.

use std::time::Duration;

use ramslice_policy::model::SliceCosts;
use ramslice_policy::{
    AnyPolicy, MachineTotals, Observation, ObservationNeeds, Policy, PolicyDecision, SliceRow,
};
use ramslice_types::{Budget, CacheChoice, Joules, Price, Request, RequestOp, WorkCounters};
use serde::Serialize;

use crate::load::LoadStep;
use crate::machine::{MachineStats, SimMachine};

/// What decides.
#[derive(Debug, Clone)]
pub enum RunDecider {
    /// A policy.
    Policy(AnyPolicy),
    /// The clairvoyant, which knows all demand in advance.
    Schedule(ClairvoyantSchedule),
}

/// The schedule of the clairvoyant, which knows all demand in advance.
#[derive(Debug, Clone, PartialEq)]
pub struct ClairvoyantSchedule {
    /// Slices that are to be on after each step. Waking is left to demand.
    pub on: Vec<u32>,
    /// What becomes of cache that is in the way.
    pub cache: CacheChoice,
    /// Joules of slices and steps.
    pub costs: SliceCosts,
    /// Joules of a unit of prices: a slice is left on whose price its time off does not pay for.
    /// Without, none is too dear.
    pub unit_joules: Option<Joules>,
}

impl ClairvoyantSchedule {
    /// What is to go off at a step: those that stay off longest first, so that they get the
    /// cheapest slices.
    fn requests(&self, step: usize, now: u32) -> Vec<Request> {
        let Some(&wanted) = self.on.get(step).filter(|&&wanted| wanted < now) else {
            return Vec::new();
        };
        // Levels that come back at the same step, the first ones first.
        let (mut groups, mut level) = (Vec::new(), wanted);
        for (at, &on) in self.on.iter().enumerate().skip(step + 1) {
            let back = on.min(now);
            if back > level {
                groups.push((back - level, at - step, self.costs.waking));
                level = back;
            }
        }
        if level < now {
            groups.push((now - level, self.on.len() - 1 - step, 0.0));
        }
        let request = |&(slices, steps, waking): &(u32, usize, f64)| {
            let worth = (steps as f64 * self.costs.saving - waking).max(0.0);
            let limit =
                self.unit_joules.map(|unit| Budget::Limited(Price((worth / unit.0) as u64)));
            let budget = limit.unwrap_or_default();
            let (max_slices, cache) = (Some(slices), self.cache);
            Request {
                max_slices,
                budget,
                per_slice: true,
                cache,
                ..Request::new(RequestOp::Compact)
            }
        };
        groups.iter().rev().map(request).collect()
    }
}

impl RunDecider {
    fn decide(
        &mut self,
        step: usize,
        machine: &mut SimMachine,
        rows: &mut Vec<SliceRow>,
    ) -> PolicyDecision {
        let totals = machine.totals();
        match self {
            Self::Policy(policy) => {
                let events = machine.take_events();
                if policy.needs() == ObservationNeeds::Rows {
                    machine.rows(rows);
                }
                policy.step(&Observation { time: machine.time(), totals, rows, events: &events })
            }
            Self::Schedule(schedule) => {
                machine.take_events();
                let requests = schedule.requests(step, totals.nr_slices - totals.nr_offline);
                PolicyDecision { requests, ..PolicyDecision::default() }
            }
        }
    }
}

/// The result of a run. Sums are from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct SimRun {
    /// From the first to the last step.
    #[serde(rename = "duration_us", with = "ramslice_types::duration_us")]
    pub duration: Duration,
    /// Steps of the load.
    pub steps: u64,
    /// Slices of the machine.
    pub slices: u32,
    /// Requests that were sent.
    pub requests: u64,
    /// What happened.
    pub stats: MachineStats,
    /// What was done.
    pub work: WorkCounters,
    /// Slices that were on and held something, on average over the steps.
    pub mean_nonempty: f64,
    /// Slices that were off, on average over the steps.
    pub mean_offline: f64,
    /// Memory in use, cache included, as a share of all, on average over the steps.
    pub mean_used_share: f64,
}

impl SimRun {
    /// The 99.9th percentile of how long an allocation of 2 MiB waits for a slice to wake, if
    /// waking takes this long.
    ///
    /// An allocation waits or it does not: the percentile is one or the other.
    pub fn wake_wait_p999_ns(&self, wake_latency_ns: f64) -> f64 {
        let waited = self.stats.demand_wakes as f64;
        if waited > 0.001 * self.stats.allocations.max(1) as f64 { wake_latency_ns } else { 0.0 }
    }
}

/// Slices that must be on for what cannot be dropped and the awake reserve.
pub fn needed_slices(totals: &MachineTotals) -> u32 {
    let pages = totals.needed() + totals.awake_reserve;
    let slices = pages.0.div_ceil(totals.slice_pages.0.max(1)) as u32;
    slices.max(totals.nr_fixed).min(totals.nr_slices)
}

/// Runs a load to its end. `watch` sees the machine after each step.
///
/// In each step time passes first, then the load changes memory, then the decider acts.
pub fn run(
    machine: &mut SimMachine,
    load: impl IntoIterator<Item = LoadStep>,
    decider: &mut RunDecider,
    mut watch: impl FnMut(&SimMachine),
) -> SimRun {
    let mut run = SimRun { slices: machine.totals().nr_slices, ..SimRun::default() };
    let (start, mut rows) = (machine.time(), Vec::new());
    let (mut nonempty, mut offline, mut used) = (0.0, 0.0, 0.0);
    for (number, step) in load.into_iter().enumerate() {
        machine.advance((start + step.time).saturating_sub(machine.time()));
        for change in step.changes {
            machine.apply(change);
        }
        let mut requests = decider.decide(number, machine, &mut rows).take_requests();
        while let Some(request) = requests.next() {
            if !machine.request_by_policy(&request) {
                requests.give_up_group();
            }
            run.requests += 1;
        }
        let totals = machine.totals();
        nonempty += f64::from(machine.nonempty());
        offline += f64::from(totals.nr_offline);
        used += totals.utilisation();
        run.steps += 1;
        watch(machine);
    }
    let steps = run.steps.max(1) as f64;
    run.mean_nonempty = nonempty / steps;
    run.mean_offline = offline / steps;
    run.mean_used_share = used / steps;
    run.duration = machine.time().saturating_sub(start);
    run.stats = machine.stats();
    run.work = machine.work();
    run
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_schedule_pays_for_each_slice_what_its_time_off_is_worth_and_the_longest_goes_first() {
        let costs = SliceCosts { saving: 10.0, emptying: 0.0, empty: 0.0, waking: 5.0 };
        let on = vec![4, 1, 1, 2, 2, 4, 3];
        let schedule = ClairvoyantSchedule {
            on,
            cache: CacheChoice::Auto,
            costs,
            unit_joules: Some(Joules(0.5)),
        };
        let asked = |step, now| -> Vec<_> {
            let requests = schedule.requests(step, now).into_iter();
            requests.map(|request| (request.max_slices.unwrap(), request.budget.raw())).collect()
        };
        // Levels 3 and 4 are back after four steps, level 2 after two; level 5 never is.
        assert_eq!(asked(1, 5), [(1, 100), (2, 70), (1, 30)]);
        assert_eq!(asked(1, 1), []);
        assert_eq!(asked(0, 4), []);
        // In the last step nothing can be earned any more.
        assert_eq!(asked(6, 4), [(1, 0)]);
    }
}
