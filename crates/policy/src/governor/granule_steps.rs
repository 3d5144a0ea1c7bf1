//! The governor's steps where the hardware switches several slices as one.

use ramslice_types::{Reason, RequestOutcome, SliceId};

use super::granules::GranuleView;
use super::{
    GovernorPolicy, GovernorState, LEARNING, OfflineCandidate, OfflinePlan, dearest,
    dearest_granule, seconds,
};
use crate::decision_reason::DecisionReason;
use crate::observation::{MachineTotals, Observation, PolicyEvent, WakeCause};

impl GovernorPolicy {
    /// Takes in how the request for a slice went. Returns whether a used or an empty slice had no
    /// room to go off.
    pub(super) fn learn_of_slice(
        &self,
        mind: &mut GovernorState,
        slice: SliceId,
        outcome: &RequestOutcome,
    ) -> (bool, bool) {
        let cost = self.cost(outcome);
        mind.wallet.spend(cost);
        mind.cache.drop(outcome.dropped.0);
        let Some(asked) = mind.granules.finished(slice, cost) else { return (false, false) };
        if asked.used {
            mind.markup.expect(vec![asked.counted]);
        }
        if outcome.slices_done > 0 {
            if asked.used {
                mind.markup.learn(1, self.economics.cost(outcome.price_predicted).0);
            }
            return (false, false);
        }
        let over_budget = outcome.reason == Reason::OverBudget;
        if over_budget && asked.used && mind.markup.raise_if_too_low(dearest(&self.economics)) {
            return (false, false);
        }
        mind.granules.failed(&asked, mind.time);
        (asked.used, !asked.used && !over_budget)
    }

    /// Takes in which granules were completed since the last step, and which woke.
    pub(super) fn learn_of_granules(
        &mut self,
        mind: &mut GovernorState,
        view: &GranuleView<'_>,
        seen: &Observation<'_>,
    ) {
        let mut woken = (seen.time.as_secs_f64(), 0_u32);
        for event in seen.events {
            if let PolicyEvent::Woken { time, slices, cause } = event
                && *cause != WakeCause::Request
            {
                woken = (time.as_secs_f64(), woken.1.saturating_add(*slices));
            }
        }
        let changes = mind.granules.update(view, mind.time, woken);
        let slices = self.economics.granule_slices();
        for (spent, used) in changes.completed {
            mind.off += 1;
            mind.reserve_pause.reset_length();
            if used {
                mind.pause.reset_length();
                let weight = 1.0 - (1.0 - LEARNING).powf(f64::from(slices));
                self.emptying += weight * (spent / f64::from(slices) - self.emptying);
            }
        }
        for (slices, missing) in changes.early {
            mind.wallet.woke_early(slices, missing);
        }
    }

    /// The granules that should pay, within the limit of the risk account.
    ///
    /// Demand is counted in slices: the lowest level that a granule takes must have been idle for
    /// as long as the granule has to wait, and has been for the shortest time.
    pub(super) fn plan_granules(
        &self,
        mind: &GovernorState,
        totals: &MachineTotals,
        view: &GranuleView<'_>,
        need: u32,
    ) -> OfflinePlan {
        let mut plan = OfflinePlan::default();
        let (now, room, slices) = (mind.time, mind.wallet.room(), self.economics.granule_slices());
        let on = totals.nr_slices.saturating_sub(totals.nr_offline);
        if on <= need {
            plan.stopped = Some(DecisionReason::AllNeeded { need });
            return plan;
        }
        let candidates = view.candidates(&mind.granules, now);
        // As where slices go off alone: what the awake reserve keeps on is not to spare.
        let reserve_wait = mind.reserve_pause.wait(now);
        let kept = if reserve_wait > 0.0 {
            candidates.iter().filter(|one| one.used == 0).map(|one| one.empty).sum()
        } else {
            0
        };
        let need = need.saturating_add(kept);
        if on <= need {
            plan.stopped = Some(DecisionReason::DidNothing { wait: seconds(reserve_wait) });
            return plan;
        }
        let (mut left, mut stopped) = (on, None);
        for granule in candidates {
            let (takes, empty) = (granule.takes(), granule.used == 0);
            if left < need + takes || empty && reserve_wait > 0.0 {
                continue;
            }
            let level = left - takes + 1;
            let spare = left - need;
            let all = f64::from(slices);
            let break_even =
                (granule.price + self.economics.waking.0 * all) / (self.economics.saving.0 * all);
            let candidate = OfflineCandidate { level, spare, empty, break_even };
            if let Some(why) = mind.objection(candidate) {
                stopped = stopped.or(Some(why));
                continue;
            }
            if plan.cost + granule.most > room {
                let wait = seconds(mind.wallet.wait(now));
                stopped = stopped.or(Some(DecisionReason::AtRisk { spare, wait }));
                continue;
            }
            debug_assert!(granule.price <= dearest_granule(&self.economics), "{granule:?}");
            left -= takes;
            plan.cost += granule.most;
            plan.empty += granule.empty;
            plan.used += granule.used;
            plan.granules.push(granule.number);
        }
        plan.stopped = stopped.or(Some(DecisionReason::NoGranule { spare: left - need, slices }));
        plan
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use ramslice_types::{Bytes, Pages, Price, RequestOp, SliceState};

    use super::*;
    use crate::config::GovernorConfig;
    use crate::decision::Policy as _;
    use crate::economics::GranuleLayout;
    use crate::economics::tests::thesis;
    use crate::observation::SliceRow;

    const PAGES: Pages = Pages(1000);

    /// A step at this second on four used slices, of which some are off.
    fn step(governor: &mut GovernorPolicy, second: u64, off: &[u32], events: &[PolicyEvent]) {
        let row = |id| SliceRow {
            id: SliceId(id),
            state: if off.contains(&id) { SliceState::Offline } else { SliceState::Online },
            price: Some(Price(1_000_000)),
            present: PAGES,
            free: Pages(10),
            freeable: Pages::ZERO,
        };
        let (rows, nr_offline) = ((0..4).map(row).collect::<Vec<_>>(), off.len() as u32);
        let totals = MachineTotals {
            slice_pages: PAGES,
            managed: PAGES * 4,
            free: PAGES * u64::from(3 - nr_offline),
            offline: PAGES * u64::from(nr_offline),
            nr_slices: 4,
            nr_offline,
            ..MachineTotals::default()
        };
        let time = Duration::from_secs(second);
        governor.step(&Observation { time, totals, rows: &rows, events });
    }

    #[test]
    fn all_of_a_granule_is_earned_and_lost_together_and_its_cost_is_learned() {
        let slice = Bytes(1 << 30);
        let unit = Some(Bytes(2 << 30));
        let economics = thesis(slice).switched_as_one(unit, slice, GranuleLayout::Neighbours);
        let mut governor = GovernorPolicy::new(GovernorConfig::default(), economics);
        let saved = |governor: &GovernorPolicy| governor.mind.as_ref().unwrap().wallet.saved;
        // Used ones go when they were idle for so long that it would have paid.
        let asks = |governor: &GovernorPolicy| {
            governor.mind.as_ref().is_some_and(|mind| !mind.granules.is_empty())
        };
        let mut second = 0;
        while !asks(&governor) {
            second += 60;
            step(&mut governor, second, &[], &[]);
        }
        let done = |id| PolicyEvent::Finished {
            op: RequestOp::Offline(SliceId(id)),
            outcome: RequestOutcome {
                slices_done: 1,
                price_predicted: Price(20_000_000),
                ..RequestOutcome::default()
            },
            max_slices: None,
        };
        let emptying = governor.emptying;
        step(&mut governor, second + 100, &[2, 3], &[done(3), done(2)]);
        let both = economics.saving.0 * 2.0 * 100.0;
        assert!((saved(&governor) - both).abs() < 1e-9, "{} J", saved(&governor));
        let cost = economics.cost(Price(20_000_000)).0;
        let spent = governor.mind.as_ref().unwrap().wallet.spent;
        assert!((spent - 2.0 * cost).abs() < 1e-9, "{spent} J");
        let learned = emptying + (1.0 - 0.9_f64 * 0.9) * (cost - emptying);
        assert!((governor.emptying - learned).abs() < 1e-9, "{} {learned}", governor.emptying);
        // One of them wakes: the other saves nothing.
        let time = Duration::from_secs(second + 200);
        let woke = [PolicyEvent::Woken { time, slices: 1, cause: WakeCause::Demand }];
        step(&mut governor, second + 200, &[2], &woke);
        assert_eq!(governor.mind.as_ref().unwrap().wallet.early, 1, "it had not paid");
        step(&mut governor, second + 300, &[2], &[]);
        assert!((saved(&governor) - both).abs() < 1e-9, "{} J", saved(&governor));
    }
}
