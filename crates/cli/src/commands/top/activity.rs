//! What was done for slices between two looks.

use std::time::Duration;

use ramslice_types::{MachineState, Pages, Price, SliceState, WorkCounters};
use serde::Serialize;

use super::state_changes::StateChange;

/// A machine at one moment, with the counters of what was done so far.
#[derive(Debug, Clone)]
pub(super) struct MachineSample {
    pub(super) machine: MachineState,
    /// Absent where they cannot be read.
    pub(super) work: Option<WorkCounters>,
}

impl MachineSample {
    /// Slices woken by allocations since boot.
    fn woken_by_demand(&self) -> u64 {
        self.machine.zones.iter().map(|zone| zone.woken_by_demand).sum()
    }
}

/// What was done within a time. Sums, so that flows that follow each other can be added.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub(super) struct SliceActivity {
    /// The time, on the machine's clock.
    #[serde(rename = "elapsed_us", with = "ramslice_types::duration_us")]
    pub(super) elapsed: Duration,
    /// Slices switched off.
    pub(super) slices_off: u64,
    /// Slices woken, whatever the cause.
    pub(super) slices_woken: u64,
    /// Of these by allocations.
    pub(super) woken_by_demand: u64,
    /// What only the counters show.
    #[serde(flatten)]
    pub(super) work: Option<WorkDone>,
}

/// What only the counters of the kernel show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub(super) struct WorkDone {
    /// Pages moved to other slices.
    #[serde(rename = "migrated_pages")]
    pub(super) migrated: Pages,
    /// Clean cache dropped.
    #[serde(rename = "dropped_pages")]
    pub(super) dropped: Pages,
    /// CPU time of emptying.
    #[serde(rename = "price_measured_100cycles")]
    pub(super) cpu: Price,
}

impl SliceActivity {
    /// From `before` to `now`. Without counters, from the state changes that were seen: those that
    /// came and went between two looks are missing.
    pub(super) fn between(
        before: &MachineSample,
        now: &MachineSample,
        changes: &[StateChange],
    ) -> Self {
        let time = now.machine.snapshot.time.saturating_sub(before.machine.snapshot.time);
        let woken_by_demand = now.woken_by_demand().saturating_sub(before.woken_by_demand());
        let work = now.work.zip(before.work).and_then(|(now, before)| now.since(&before));
        let seen = |change: &dyn Fn(&StateChange) -> bool| {
            changes.iter().filter(|one| change(one)).count() as u64
        };
        let went_off = |change: &StateChange| change.to == SliceState::Offline;
        let woke = |change: &StateChange| change.from == SliceState::Offline;
        Self {
            elapsed: time,
            slices_off: work.map_or_else(|| seen(&went_off), |work| work.emptied_slices),
            slices_woken: work
                .map_or_else(|| seen(&woke), |work| work.woken_slices)
                .max(woken_by_demand),
            woken_by_demand,
            work: work.map(|work| WorkDone {
                migrated: work.migrated_pages,
                dropped: work.dropped_pages,
                cpu: work.price_measured,
            }),
        }
    }

    /// This and what follows it. Counters are known only if they were known all the time.
    pub(super) fn plus(&self, next: &Self) -> Self {
        if self.elapsed.is_zero() {
            return *next;
        }
        Self {
            elapsed: self.elapsed + next.elapsed,
            slices_off: self.slices_off + next.slices_off,
            slices_woken: self.slices_woken + next.slices_woken,
            woken_by_demand: self.woken_by_demand + next.woken_by_demand,
            work: self.work.zip(next.work).map(|(one, other)| WorkDone {
                migrated: one.migrated + other.migrated,
                dropped: one.dropped + other.dropped,
                cpu: one.cpu + other.cpu,
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::{SliceId, SliceSnapshot};

    fn sample(seconds: u64, demand: u64, work: Option<WorkCounters>) -> MachineSample {
        let file = crate::commands::top::background_backend::test_file("guest-8g.json");
        let mut machine: MachineState =
            serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
        machine.snapshot = SliceSnapshot { time: Duration::from_secs(seconds), ..machine.snapshot };
        machine.zones[0].woken_by_demand = demand;
        MachineSample { machine, work }
    }

    fn work(emptied: u64, woken: u64, moved: u64) -> WorkCounters {
        WorkCounters {
            emptied_slices: emptied,
            woken_slices: woken,
            migrated_pages: Pages(moved),
            ..WorkCounters::default()
        }
    }

    #[test]
    fn counters_show_more_than_the_changes_that_were_seen() {
        let flow = SliceActivity::between(
            &sample(10, 1, Some(work(3, 1, 100))),
            &sample(12, 2, Some(work(8, 4, 600))),
            &[],
        );
        assert_eq!(flow.elapsed, Duration::from_secs(2));
        assert_eq!((flow.slices_off, flow.slices_woken, flow.woken_by_demand), (5, 3, 1));
        assert_eq!(flow.work.unwrap().migrated, Pages(500));
    }

    #[test]
    fn without_counters_the_changes_count_and_pages_are_unknown() {
        let change = |from, to| StateChange { slice: SliceId(1), from, to };
        let changes = [
            change(SliceState::Online, SliceState::Offline),
            change(SliceState::Offline, SliceState::Waking),
            change(SliceState::Waking, SliceState::Online),
        ];
        let flow = SliceActivity::between(&sample(1, 0, None), &sample(2, 0, None), &changes);
        assert_eq!((flow.slices_off, flow.slices_woken, flow.work), (1, 1, None));
    }

    #[test]
    fn counters_that_went_back_are_not_a_rate() {
        let (before, now) = (sample(1, 5, Some(work(9, 9, 9))), sample(2, 3, Some(work(1, 1, 1))));
        let flow = SliceActivity::between(&before, &now, &[]);
        assert_eq!((flow.woken_by_demand, flow.work), (0, None));
    }

    #[test]
    fn flows_add_up_and_the_first_one_begins_the_sum() {
        let flow = SliceActivity::between(
            &sample(1, 0, Some(work(0, 0, 0))),
            &sample(2, 0, Some(work(1, 0, 7))),
            &[],
        );
        let sum = SliceActivity::default().plus(&flow).plus(&flow);
        assert_eq!((sum.slices_off, sum.work.unwrap().migrated), (2, Pages(14)));
        let unknown = SliceActivity { work: None, ..flow };
        assert_eq!(sum.plus(&unknown).work, None, "a sum with a gap is not a sum");
    }
}
