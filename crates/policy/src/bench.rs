//! Drives a policy over a series of the cost model, as a machine would.
//!
//! The policy sees pages and slices: each slice has 512 pages, and the last of those needed is half
//! full. Prices are those of the model. [`ObservationNeeds::Rows`] is served with rows by level:
//! used ones first, then unused ones, then those off.

use std::time::Duration;

use ramslice_types::{
    Bytes, Pages, Price, Reason, Request, RequestOp, RequestOutcome, SliceId, SliceState,
};

use crate::decision::{Policy, PolicyDecision};
use crate::economics::SliceEconomics;
use crate::model::{DemandSeries, JouleAccount, ModelState, SliceCosts};
use crate::observation::{
    MachineTotals, Observation, ObservationNeeds, PolicyEvent, SliceRow, WakeCause,
};

/// Pages of a slice.
pub const SLICE_PAGES: Pages = Pages(512);
/// The size of a page.
pub const PAGE_BYTES: Bytes = Bytes(4096);
/// The size of a slice in this bench. What it costs and saves is up to the [`SliceEconomics`].
pub const SLICE_BYTES: Bytes = Bytes(512 * 4096);
/// Pages that are never switched off.
const RESERVE: Pages = Pages(64);

/// The result of a policy on a series.
#[derive(Debug, Clone)]
pub struct ModelRun {
    /// Where what was earned went.
    pub account: JouleAccount,
    /// Slices on in each step.
    pub on: Vec<u32>,
    /// What was needed.
    pub series: DemandSeries,
}

/// Runs `policy` over `series` in steps of `step`; see [`drive`].
pub fn run(
    policy: &mut dyn Policy,
    series: &DemandSeries,
    economics: &SliceEconomics,
    step: Duration,
    watch: impl FnMut(usize, &PolicyDecision, &ModelState),
) -> ModelRun {
    let mut demand = series.needed.iter().copied();
    drive(policy, series.slices, series.used_at_start, economics, step, |_| demand.next(), watch)
}

/// Runs `policy` on `slices` slices, of which `used` hold something at the start, in steps of
/// `step`.
///
/// `demand` returns how many slices a step needs, or `None` after the last; it may read what the
/// policy has done. `watch` is called after each step with its number, the decision, and the
/// machine.
pub fn drive(
    policy: &mut dyn Policy,
    slices: u32,
    used: u32,
    economics: &SliceEconomics,
    step: Duration,
    mut demand: impl FnMut(&ModelState) -> Option<u32>,
    mut watch: impl FnMut(usize, &PolicyDecision, &ModelState),
) -> ModelRun {
    let costs = SliceCosts::new(economics, step.as_secs_f64());
    let mut series = DemandSeries { needed: Vec::new(), slices, used_at_start: used };
    let mut state = ModelState::new(&series, costs);
    let (mut on, mut events, mut rows) = (Vec::new(), Vec::new(), Vec::new());
    while let Some(needed) = demand(&state) {
        let (index, needed) = (series.needed.len(), needed.min(slices));
        let time = step * u32::try_from(index).unwrap_or(u32::MAX);
        let woken = state.demand(needed);
        if woken > 0 {
            events.push(PolicyEvent::Woken { time, slices: woken, cause: WakeCause::Demand });
        }
        rows.clear();
        if policy.needs() == ObservationNeeds::Rows {
            rows.extend((0..slices).map(|id| row(&state, economics, id)));
        }
        let seen = Observation {
            time,
            totals: totals(&state, needed, slices),
            rows: &rows,
            events: &events,
        };
        let decision = policy.step(&seen);
        events.clear();
        for request in &decision.requests {
            let outcome = carry_out(&mut state, request, needed, economics);
            events.push(PolicyEvent::Finished {
                op: request.op,
                outcome,
                max_slices: request.max_slices,
            });
        }
        state.add_savings();
        series.needed.push(needed);
        on.push(state.on());
        watch(index, &decision, &state);
    }
    ModelRun { account: *state.account(), on, series }
}

fn totals(state: &ModelState, needed: u32, slices: u32) -> MachineTotals {
    let pages = |slices: u32| SLICE_PAGES * u64::from(slices);
    let used = pages(needed) - Pages(SLICE_PAGES.0 / 2) - RESERVE;
    MachineTotals {
        slice_pages: SLICE_PAGES,
        managed: pages(slices),
        free: pages(state.on()) - used,
        offline: pages(state.off()),
        freeable: Pages::ZERO,
        cache: Pages::ZERO,
        awake_reserve: RESERVE,
        nr_slices: slices,
        nr_empty: state.empty(),
        nr_offline: state.off(),
        nr_fixed: 0,
    }
}

fn row(state: &ModelState, economics: &SliceEconomics, id: u32) -> SliceRow {
    let (on, used) = (id < state.on(), id < state.on() - state.empty());
    let cost = if used { economics.emptying } else { economics.empty };
    SliceRow {
        id: SliceId(id),
        state: if on { SliceState::Online } else { SliceState::Offline },
        price: on.then(|| economics.price(cost)),
        present: SLICE_PAGES,
        free: if used { Pages(SLICE_PAGES.0 / 2) } else { SLICE_PAGES },
        freeable: Pages::ZERO,
    }
}

fn carry_out(
    state: &mut ModelState,
    request: &Request,
    needed: u32,
    economics: &SliceEconomics,
) -> RequestOutcome {
    let before = *state.account();
    let most = request.max_slices.unwrap_or(u32::MAX);
    let spare = state.on() - needed;
    match request.op {
        RequestOp::OfflineFree => {
            let count = most.min(state.empty()).min(spare);
            state.switch_off(state.on() - count);
        }
        RequestOp::Compact => {
            let dearest = economics.price(economics.emptying);
            let mut budget = request.budget.raw();
            let mut count = 0;
            while count < most.min(spare) {
                let price =
                    if count < state.empty() { economics.price(economics.empty) } else { dearest };
                if price.0 > budget {
                    break;
                }
                budget = if request.per_slice { budget } else { budget - price.0 };
                count += 1;
            }
            state.switch_off(state.on() - count);
        }
        // Slices differ only in what they hold: the bench takes one that holds as much.
        RequestOp::Offline(_) if spare > 0 => {
            state.switch_off(state.on() - 1);
        }
        RequestOp::Offline(_) => {}
        RequestOp::Online(_) => state.wake(state.on() + 1),
        RequestOp::OnlineAll => state.wake(u32::MAX),
    }
    let after = state.account();
    let off = (after.emptied + after.empty) - (before.emptied + before.empty);
    let done = off + (after.other_wakes - before.other_wakes);
    let price: Price = economics.price(ramslice_types::Worth(after.offlining - before.offlining));
    let reason = if done == 0 { Reason::NoRoom } else { Reason::None };
    RequestOutcome {
        reason,
        slices_done: u32::try_from(done).unwrap_or(u32::MAX),
        price_predicted: price,
        price_measured: price,
        ..RequestOutcome::default()
    }
}
