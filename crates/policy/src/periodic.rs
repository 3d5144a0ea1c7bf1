//! `periodic`: compacts with a budget, again and again (thesis, sections 3.2.6 and 4.3). Where
//! memory is worth having back soon, as a hypervisor would, what stays empty goes off between.

use std::collections::VecDeque;
use std::time::Duration;

use ramslice_types::{Budget, Pages, Price, Reason, Request, RequestOp};
use serde::{Deserialize, Serialize};

use crate::config::{PeriodicConfig, PolicyKind};
use crate::decision::{Policy, PolicyDecision, compact, not_due, offline_empty};
use crate::decision_reason::DecisionReason;
use crate::observation::{MachineTotals, Observation, PolicyEvent};

/// More than this part of memory, taken since the last look, is much.
const MUCH: u64 = 64;
/// Processors that work for more than this part of a period are busy. Work that waits for a disk in
/// between is work.
const BUSY: u32 = 4;

/// `offline_batch` every so often; if asked for, what stays empty goes off between.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PeriodicPolicy {
    config: PeriodicConfig,
    /// When it may act again.
    due: Option<Duration>,
    /// Since when a compaction that is due waits.
    #[serde(default)]
    held: Option<Duration>,
    #[serde(default)]
    looks: RecentLooks,
}

impl PeriodicPolicy {
    /// With these settings.
    pub fn new(config: PeriodicConfig) -> Self {
        Self { config, due: None, held: None, looks: RecentLooks::default() }
    }

    /// Why a compaction that is due waits, if it does. The first one has not been due for any time:
    /// it waits for nothing.
    fn waits(&mut self, seen: &Observation<'_>, taken: Pages) -> Option<PolicyDecision> {
        let config = &self.config;
        self.due?;
        // Not since it was due: meanwhile the machine may have been suspended.
        let waited = seen.time.saturating_sub(*self.held.get_or_insert(seen.time));
        let growing = taken > much(&seen.totals);
        if config.wait_while_growing && growing && waited < config.period() {
            return Some(PolicyDecision::rest(DecisionReason::Growing { pages: taken }));
        }
        let (busy, within) = self.looks.worked();
        (busy > within / BUSY && waited < config.busy_time())
            .then(|| PolicyDecision::rest(DecisionReason::Busy { busy, within }))
    }
}

impl Policy for PeriodicPolicy {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Periodic
    }

    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision {
        let taken = self.looks.taken(&seen.totals);
        self.looks.note_work(seen, self.config.period());
        let growing = taken > much(&seen.totals);
        let empty = self
            .config
            .empty_time()
            .map(|time| (time, self.looks.empty_throughout(time, seen)))
            .filter(|&(time, slices)| slices > 0 && (!growing || time.is_zero()));
        if let Some(rest) = not_due(self.due, seen.time).or_else(|| self.waits(seen, taken)) {
            let Some((time, slices)) = empty else { return rest };
            let most = self.config.max_slices;
            self.looks.asked = most.map_or(slices, |most| slices.min(most));
            // Without a time, also those that are empty once the processors' lists are: after a
            // program has ended, pages on them keep most slices from being seen as empty
            let most = if time.is_zero() { most } else { Some(self.looks.asked) };
            return PolicyDecision::send(
                offline_empty(most),
                DecisionReason::EmptyForLong { slices, time },
            );
        }
        self.due = Some(seen.time + self.config.period());
        self.held = None;
        let (slices, budget) = (self.config.max_slices, self.config.budget.into());
        let request = match budget {
            // The thesis' baseline: slices that are empty by themselves go offline, whatever that
            // costs.
            Budget::Limited(Price::ZERO) => {
                let empty = seen.totals.nr_empty;
                self.looks.asked = slices.map_or(empty, |most| empty.min(most));
                offline_empty(slices)
            }
            _ => Request {
                cache: self.config.cache,
                ..compact(slices, budget, self.config.per_slice)
            },
        };
        PolicyDecision::send(
            request,
            DecisionReason::Due { budget, per_slice: self.config.per_slice },
        )
    }
}

/// More pages than this, taken since the last look, are much: a part of memory, at least a slice.
fn much(totals: &MachineTotals) -> Pages {
    Pages(totals.managed.0 / MUCH).max(totals.slice_pages)
}

/// What the last looks saw.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
struct RecentLooks {
    /// Pages in use at the last one.
    used: Option<Pages>,
    /// When, and how many slices were empty, by time; those that are needed to say how many were
    /// throughout.
    empty: VecDeque<(Duration, u32)>,
    /// When, for how long the processors had worked, and of how much time: since the look before,
    /// for those of one period.
    #[serde(default)]
    work: VecDeque<(Duration, Duration, Duration)>,
    /// So many empty slices were last asked to go.
    #[serde(default)]
    asked: u32,
    /// Those of them that did not: the kernel keeps them as
    /// its reserve, and would again. One that is used is no longer kept.
    #[serde(default)]
    kept: u32,
}

impl RecentLooks {
    /// Pages that were taken since the last look.
    fn taken(&mut self, totals: &MachineTotals) -> Pages {
        let used = totals.used();
        Pages(self.used.replace(used).map_or(0, |before| used.0.saturating_sub(before.0)))
    }

    /// Takes up how long the processors worked, and forgets what is older than a period.
    fn note_work(&mut self, seen: &Observation<'_>, period: Duration) {
        for event in seen.events {
            if let &PolicyEvent::Worked { busy, within } = event {
                self.work.push_back((seen.time, busy, within));
            }
        }
        while self.work.front().is_some_and(|&(when, ..)| when + period <= seen.time) {
            self.work.pop_front();
        }
    }

    /// How long the processors worked in the last period, and of how much time, as sums over them.
    fn worked(&self) -> (Duration, Duration) {
        (self.work.iter().map(|look| look.1).sum(), self.work.iter().map(|look| look.2).sum())
    }

    /// Slices that were empty at every look of this time, at least; none until it is over, and if
    /// they are no more than the kernel keeps.
    fn empty_throughout(&mut self, time: Duration, seen: &Observation<'_>) -> u32 {
        for event in seen.events {
            if let &PolicyEvent::Finished { op: RequestOp::OfflineFree, ref outcome, max_slices } =
                event
            {
                let tried = match outcome.reason {
                    Reason::AwakeReserve => self.asked,
                    // Where fewer were allowed than it asked for, nothing is known of the others
                    Reason::None => max_slices.map_or(self.asked, |most| most.min(self.asked)),
                    // An error, or memory that runs short, says nothing of the others
                    _ => 0,
                };
                self.kept = tried.saturating_sub(outcome.slices_done);
            }
        }
        let now = seen.totals.nr_empty;
        self.kept = self.kept.min(now);
        self.empty.push_back((seen.time, now));
        let Some(since) = seen.time.checked_sub(time) else { return 0 };
        while self.empty.get(1).is_some_and(|&(when, _)| when <= since) {
            self.empty.pop_front();
        }
        match self.empty.front() {
            Some(&(when, _)) if when <= since => {
                let empty = self.empty.iter().map(|&(_, slices)| slices).min().unwrap_or(0);
                if empty > self.kept { empty } else { 0 }
            }
            _ => 0,
        }
    }
}
