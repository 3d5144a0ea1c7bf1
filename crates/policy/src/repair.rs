//! `repair`: empties fragmented slices in the background, a few in each pass.
//!
//! By the rule [`CandidateRule::Paper`] as in Adaptive-Buddy (`IISc`), section IV.E: a thread of
//! its own, one zone at a time, reads the counters of all slices without kernel pages, and computes
//! which of them can be freed in this pass. Those are emptied: every page in use is moved, page
//! cache too.
//!
//! The text that we have ends there. It leaves open, and this policy decides: that the least
//! occupied come first (section IV.B says so of migration in general); that slices can be freed as
//! long as their pages fit into the free ones of the other slices of that pool; how often a pass
//! comes, and what it may cost; what happens after a failure. Slices that two zones share are left
//! to the kernel, which never offers them.
//!
//! By the rule [`CandidateRule::Price`] the cheapest come first, of which no more than a share of
//! the pages is to be moved; pages may go wherever there is room in the zone; and the kernel
//! chooses which cache is worth moving. Prices by counters assume that cache is dropped, by the
//! paper's rule, too: there a slice full of cache may be refused as too expensive.
//!
//! Both rules: empty slices go offline first. The requests of a pass fit into its budget, and leave
//! free memory online. A slice that failed rests for two periods, twice as long each time. A pass
//! without a result doubles the time to the next. After slices woke on demand, the next pass is at
//! least a period away: it must not add to memory pressure.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use ramslice_types::{
    Budget, CacheChoice, Pages, Price, Reason, Request, RequestOp, RequestOutcome, SliceId,
    SliceState,
};
use serde::{Deserialize, Serialize};

use crate::config::{CandidateRule, PolicyKind, RepairConfig};
use crate::decision::{Policy, PolicyDecision, not_due, offline, offline_empty};
use crate::decision_reason::DecisionReason;
use crate::observation::{Observation, ObservationNeeds, PolicyEvent, SliceRow, WakeCause};

/// A slice that failed rests for at most two to the power of this many periods.
const MOST_REST: u32 = 6;
/// Passes are at most two to the power of this many periods apart.
const MOST_DISTANCE: u32 = 4;
/// Prices by counters are slightly below the cost of emptying: this much more is allowed.
const OVER_SHARE: f64 = 1.1;

/// Passes over the slices of a zone, and what is remembered between them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RepairPolicy {
    config: RepairConfig,
    /// When the next pass may begin.
    due: Option<Duration>,
    /// Slices that failed, by ascending id: a list, because keys of maps do not survive being
    /// restored.
    failed: Vec<FailedSlice>,
    /// The result of the last pass, until the next step reads it.
    pass: RepairPass,
    /// Passes in a row of which nothing came.
    barren: u32,
}

/// A slice that could not be emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct FailedSlice {
    slice: SliceId,
    /// In a row.
    times: u32,
    /// It is left alone until then.
    until: Duration,
}

/// How requests of a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
struct RepairPass {
    done: u32,
    failed: u32,
}

/// What a pass would do.
#[derive(Debug, Default)]
struct RepairPlan {
    empty: u32,
    /// Slices, with the expected and the highest cost of each.
    chosen_slices: Vec<(SliceId, Price, Option<Price>)>,
    moved_pages: Pages,
    spent_price: Price,
    /// Slices in use that hold nothing unmovable; of these at rest; of these too full.
    slices: u32,
    resting: u32,
    full: u32,
}

impl RepairPolicy {
    /// With these settings.
    pub fn new(config: RepairConfig) -> Self {
        Self { config, due: None, failed: Vec::new(), pass: RepairPass::default(), barren: 0 }
    }

    fn periods(&self, power: u32) -> Duration {
        self.config.period().saturating_mul(1 << power)
    }

    /// Takes note of what happened.
    fn learn(&mut self, seen: &Observation<'_>) {
        let mut disturbed = false;
        for event in seen.events {
            match event {
                PolicyEvent::Finished { op: RequestOp::Offline(id), outcome, .. } => {
                    self.record_failure(*id, outcome, seen.time);
                }
                PolicyEvent::Finished { op: RequestOp::OfflineFree, outcome, .. } => {
                    self.pass.done += outcome.slices_done;
                }
                PolicyEvent::Woken {
                    cause: WakeCause::Demand | WakeCause::Ahead,
                    slices: 1..,
                    ..
                } => {
                    disturbed = true;
                }
                _ => {}
            }
        }
        if disturbed {
            let later = seen.time.saturating_add(self.config.period());
            self.due = Some(self.due.map_or(later, |due| due.max(later)));
        }
    }

    fn record_failure(&mut self, slice: SliceId, outcome: &RequestOutcome, now: Duration) {
        self.pass.done += outcome.slices_done;
        if outcome.slices_done > 0 {
            self.failed.retain(|failed| failed.slice != slice);
            return;
        }
        // A request that could not be tried, or a slice that another program had changed before,
        // says nothing about the slice.
        if matches!(outcome.reason, Reason::None | Reason::State) {
            return;
        }
        self.pass.failed += 1;
        let place = self.failed.binary_search_by_key(&slice, |failed| failed.slice);
        let times = place.map_or(0, |at| self.failed[at].times).saturating_add(1);
        let until = now.saturating_add(self.periods(times.min(MOST_REST)));
        let failed = FailedSlice { slice, times, until };
        match place {
            Ok(at) => self.failed[at] = failed,
            Err(at) => self.failed.insert(at, failed),
        }
    }

    /// Failed, and is left alone for a while.
    fn is_resting(&self, slice: SliceId, now: Duration) -> bool {
        let place = self.failed.binary_search_by_key(&slice, |failed| failed.slice);
        place.is_ok_and(|at| self.failed[at].until > now)
    }

    /// The time to the next pass, by the result of the last one.
    fn next(&mut self, now: Duration) {
        let pass = std::mem::take(&mut self.pass);
        if pass.done > 0 {
            self.barren = 0;
        } else if pass.failed > 0 {
            self.barren = (self.barren + 1).min(MOST_DISTANCE);
        }
        self.due = Some(now.saturating_add(self.periods(self.barren)));
    }

    /// Pages that emptying a slice moves, as far as known.
    fn pages_to_move(&self, row: &SliceRow) -> Pages {
        match self.config.candidates {
            CandidateRule::Paper => row.present - row.free,
            CandidateRule::Price => row.present - row.free - row.freeable,
        }
    }

    fn plan(&self, seen: &Observation<'_>) -> RepairPlan {
        let mut plan = RepairPlan::default();
        let (totals, budget) = (&seen.totals, Budget::from(self.config.budget).raw());
        let kept = totals.slice_pages * u64::from(self.config.keep_free_slices);
        let floor = totals.awake_reserve + kept;
        let mut free = totals.free;
        for row in seen.rows.iter().filter(|row| row.is_empty()) {
            let price = row.price.unwrap_or_default();
            if free >= floor + row.present && plan.spent_price.0.saturating_add(price.0) <= budget {
                (free, plan.empty) = (free - row.present, plan.empty + 1);
                plan.spent_price += price;
            }
        }
        let pool =
            |row: &&SliceRow| row.can_go_off() && !row.is_empty() && row.present > Pages::ZERO;
        let mut candidates: Vec<&SliceRow> = seen.rows.iter().filter(pool).collect();
        plan.slices = candidates.len() as u32;
        // Destinations for pages of the least occupied slices: by the paper, slices without kernel
        // pages.
        let mut room: Pages = candidates.iter().map(|row| row.free).sum();
        candidates.retain(|row| {
            let rests = self.is_resting(row.id, seen.time);
            plan.resting += u32::from(rests);
            !rests
        });
        if self.config.candidates == CandidateRule::Price {
            candidates.retain(|row| {
                let full = self.pages_to_move(row).share_of(row.present) > self.config.max_share;
                plan.full += u32::from(full);
                !full
            });
        }
        // Of equal ones the higher address first, as in the kernel.
        let place = |row: &&SliceRow| match self.config.candidates {
            CandidateRule::Paper => (row.present - row.free).0,
            CandidateRule::Price => row.price.map_or(u64::MAX, |price| price.0),
        };
        // Mostly a few of them are enough, so the list is not sorted.
        let places = candidates.iter().enumerate();
        let places = places.map(|(at, row)| Reverse((place(row), Reverse(row.id), at)));
        let mut places: BinaryHeap<_> = places.collect();
        while plan.chosen_slices.len() < self.config.max_slices as usize {
            let Some(Reverse((_, _, at))) = places.pop() else { break };
            let row = candidates[at];
            let (moved, price) = (self.pages_to_move(row), row.price.unwrap_or_default());
            let gained = row.present - row.free - moved;
            let fits = match self.config.candidates {
                // The next ones hold more, and there would be less room.
                CandidateRule::Paper if room < row.free + moved => break,
                _ => free + gained >= floor + row.present,
            };
            if !fits || plan.spent_price.0.saturating_add(price.0) > budget {
                continue;
            }
            room = room.saturating_sub(row.free + moved);
            free = free + gained - row.present;
            plan.spent_price += price;
            plan.moved_pages += moved;
            plan.chosen_slices.push((row.id, price, self.max_price(row, price)));
        }
        plan
    }

    /// The highest cost of emptying a slice: as if it had as many pages to move as is allowed.
    /// Pages that the previous request moved may be here, and would be moved again.
    fn max_price(&self, row: &SliceRow, price: Price) -> Option<Price> {
        let share = self.pages_to_move(row).share_of(row.present);
        let limited = self.config.candidates == CandidateRule::Price && share > 0.0;
        let room = (self.config.max_share / share).max(1.0) * OVER_SHARE;
        limited.then_some(Price((price.0 as f64 * room) as u64))
    }

    /// The requests of a plan. Each slice may cost its price and its part of the rest, so that all
    /// stay within the budget.
    fn requests(&self, plan: &RepairPlan) -> Vec<Request> {
        let mut requests = Vec::with_capacity(plan.chosen_slices.len() + 1);
        if plan.empty > 0 {
            requests.push(offline_empty(Some(plan.empty)));
        }
        let (budget, cache) = (Budget::from(self.config.budget), self.cache());
        let left = budget.raw().saturating_sub(plan.spent_price.0)
            / plan.chosen_slices.len().max(1) as u64;
        for &(id, price, most) in &plan.chosen_slices {
            let part = match budget {
                Budget::Unlimited => None,
                Budget::Limited(_) => Some(Price(price.0.saturating_add(left))),
            };
            let budget =
                part.into_iter().chain(most).min().map_or(Budget::Unlimited, Budget::Limited);
            requests.push(Request { budget, cache, ..offline(id) });
        }
        requests
    }

    fn cache(&self) -> CacheChoice {
        match self.config.candidates {
            CandidateRule::Paper => CacheChoice::Keep,
            CandidateRule::Price => CacheChoice::Auto,
        }
    }
}

impl Policy for RepairPolicy {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Repair
    }

    fn needs(&self) -> ObservationNeeds {
        ObservationNeeds::Rows
    }

    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision {
        self.learn(seen);
        if let Some(rest) = not_due(self.due, seen.time) {
            return rest;
        }
        self.next(seen.time);
        // Slices that are gone or offline are forgotten, so that the list stays bounded.
        self.failed.retain(|failed| {
            let place = seen.rows.binary_search_by_key(&failed.slice, |row| row.id);
            let row = place.ok().map(|at| &seen.rows[at]);
            row.is_some_and(|row| row.state != SliceState::Offline)
        });
        let plan = self.plan(seen);
        let requests = self.requests(&plan);
        if requests.is_empty() {
            let RepairPlan { slices, resting, full, .. } = plan;
            return PolicyDecision::rest(DecisionReason::Packed { slices, resting, full });
        }
        let slices = plan.chosen_slices.len() as u32;
        let why = DecisionReason::Repairs { empty: plan.empty, slices, pages: plan.moved_pages };
        PolicyDecision { requests, why, ..PolicyDecision::default() }
    }
}
