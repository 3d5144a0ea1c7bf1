//! The governor's cap, where cache that it dropped comes back and no trace of it shows.

mod machine;

use std::time::Duration;

use machine::{economics, machine};
use proptest::prelude::*;
use ramslice_policy::{GovernorPolicy, Observation, Policy, PolicyEvent, settings};
use ramslice_types::{CacheChoice, Pages, Price, RequestOp, RequestOutcome};

/// What a run came to.
struct CapRun {
    /// Requests that dropped all cache of a slice.
    drops: u32,
    /// The step, the balance if all returned now, and the cap, where the balance was below it.
    broken: Option<(u64, f64, f64)>,
}

/// 400 steps in which all that was dropped regardless is read again every `back` of them.
fn cap_run(free: u64, back: u64, seconds: u64) -> CapRun {
    let economics = economics();
    let mut governor = GovernorPolicy::new(settings::GovernorConfig::default(), economics);
    let (mut balance, mut off, mut dropped) = (0.0, 0u32, 0u64);
    let mut run = CapRun { drops: 0, broken: None };
    let mut events = Vec::new();
    for step in 0..400 {
        let time = Duration::from_secs(seconds * step);
        let used = (64 - free).saturating_sub(u64::from(off));
        let (totals, rows) = machine(used, used.min(30), off);
        balance += economics.saving.0 * seconds as f64 * f64::from(off);
        let returned = if step % back == back - 1 { std::mem::take(&mut dropped) } else { 0 };
        balance -= returned as f64 * economics.refault.0;
        events.push(PolicyEvent::LookedUp {
            lookups: Pages(1 << 30),
            absent: Pages(returned),
            brought: Pages(returned),
            returned: Pages::ZERO,
            distances: None,
        });
        let decision = governor.step(&Observation { time, totals, rows: &rows, events: &events });
        events.clear();
        for request in decision.requests.iter().filter(|one| one.op == RequestOp::Compact) {
            let slices = request.max_slices.unwrap().min(64 - off);
            let drops = request.cache == CacheChoice::Drop;
            run.drops += u32::from(drops);
            let held = (200_000 * u64::from(slices)).min(totals.freeable.0);
            let pages = if drops { held } else { 0 };
            let outcome = RequestOutcome {
                slices_done: slices,
                dropped: Pages(pages),
                price_predicted: Price(8_000_000 * u64::from(slices)),
                ..RequestOutcome::default()
            };
            balance -= economics.cost(outcome.price_predicted).0;
            (dropped, off) = (dropped + pages, off + slices);
            events.push(PolicyEvent::Finished {
                op: request.op,
                outcome,
                max_slices: request.max_slices,
            });
        }
        let owed = dropped as f64 * economics.refault.0 + f64::from(off) * economics.waking.0;
        let cap = GovernorPolicy::loss_cap(&economics, time).0;
        if balance - owed < -cap - 1e-3 {
            run.broken = run.broken.or(Some((step, balance - owed, -cap)));
        }
    }
    run
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn cache_that_returns_without_a_trace_costs_no_more_than_the_cap(
        free in 1u64..30, back in 1u64..40, seconds in 10u64..600,
    ) {
        prop_assert_eq!(cap_run(free, back, seconds).broken, None);
    }
}

#[test]
fn all_cache_of_a_slice_goes_where_it_stays_away_and_not_where_it_returns_at_once() {
    let (away, at_once) = (cap_run(8, 500, 60).drops, cap_run(8, 1, 60).drops);
    assert!(away > 0 && at_once <= away, "{away} {at_once}");
}
