//! One run: a machine, a load and a policy, step by step.

use std::time::Duration;

use ramslice_policy::{AnyPolicy, Needs, Observation, Policy, Row, Totals};
use ramslice_types::{Op, Request, Work};
use serde::Serialize;

use crate::load::Step;
use crate::machine::{Machine, Stats};

/// Who decides.
#[derive(Debug, Clone)]
pub enum Decider {
    /// A policy.
    Policy(AnyPolicy),
    /// One who knew all demand in advance: how many slices are to be on after each step.
    Schedule(Vec<u32>),
}

impl Decider {
    fn decide(&mut self, step: usize, machine: &mut Machine, rows: &mut Vec<Row>) -> Vec<Request> {
        let totals = machine.totals();
        match self {
            Self::Policy(policy) => {
                let events = machine.take_events();
                if policy.needs() == Needs::Rows {
                    machine.rows(rows);
                }
                policy.step(&Observation { time: machine.time(), totals, rows, events: &events }).requests
            }
            Self::Schedule(on) => {
                machine.take_events();
                let (now, wanted) = (totals.nr_slices - totals.nr_offline, on.get(step).copied());
                let wanted = wanted.unwrap_or(now);
                if wanted < now {
                    let request = Request { max_slices: Some(now - wanted), ..Request::new(Op::Compact) };
                    return vec![request];
                }
                Vec::new()
            }
        }
    }
}

/// What came of a run. Sums are those from its start to its end.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Run {
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
    pub stats: Stats,
    /// What was done.
    pub work: Work,
    /// Slices that were on and held something, on average over the steps.
    pub mean_nonempty: f64,
    /// Slices that were off, on average over the steps.
    pub mean_offline: f64,
    /// Memory in use, cache included, as a share of all, on average over the steps.
    pub mean_used_share: f64,
}

impl Run {
    /// The 99.9th percentile of how long an allocation of 2 MiB waits for a slice to wake, if waking takes this long.
    ///
    /// An allocation waits or it does not: the percentile is one or the other.
    pub fn wake_wait_p999_ns(&self, wake_latency_ns: f64) -> f64 {
        let waited = self.stats.demand_wakes as f64;
        if waited > 0.001 * self.stats.allocations.max(1) as f64 { wake_latency_ns } else { 0.0 }
    }
}

/// Slices that must be on for what cannot be dropped and the awake reserve.
pub fn needed_slices(totals: &Totals) -> u32 {
    let pages = totals.needed() + totals.awake_reserve;
    let slices = pages.0.div_ceil(totals.slice_pages.0.max(1)) as u32;
    slices.max(totals.nr_fixed).min(totals.nr_slices)
}

/// Runs a load to its end. `watch` sees the machine after each step.
///
/// In each step time passes first, then the load changes memory, then the decider acts.
pub fn run(
    machine: &mut Machine,
    load: impl IntoIterator<Item = Step>,
    decider: &mut Decider,
    mut watch: impl FnMut(&Machine),
) -> Run {
    let mut run = Run { slices: machine.totals().nr_slices, ..Run::default() };
    let (start, mut rows) = (machine.time(), Vec::new());
    let (mut nonempty, mut offline, mut used) = (0.0, 0.0, 0.0);
    for (number, step) in load.into_iter().enumerate() {
        machine.advance((start + step.time).saturating_sub(machine.time()));
        for change in step.changes {
            machine.apply(change);
        }
        for request in decider.decide(number, machine, &mut rows) {
            machine.request_by_policy(&request);
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
