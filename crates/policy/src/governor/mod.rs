//! `governor`: switches a slice off when that should pay, and never risks more than a stake.
//!
//! At each step it
//!
//! 1. computes how many slices must be online: memory in use that cannot be dropped, the margin,
//!    and the part of the cache that is expected to be read again;
//! 2. checks for each further online slice, cheapest first, whether the highest level has been idle
//!    for as long as the best expert of that level waits ([`experts`]), in break-even times of this
//!    slice's price;
//! 3. spends on those no more than the risk account allows ([`risk_account`]).
//!
//! Where the hardware switches several slices as one, it does this with whole granules of them, at
//! what all of a granule's slices cost and save ([`granules`]); demand is still counted in slices.
//!
//! The kernel wakes ahead of need and on demand, within its awake reserve. The governor itself
//! wakes slices only for the tenant's limits ([`crate::limits`]), which go before all that pays.

mod cache_rereads;
mod daily_season;
mod demand_history;
mod experts;
mod forecast_errors;
mod granule_steps;
mod granules;
mod offline_candidate;
mod offline_prices;
mod risk_account;

use std::collections::VecDeque;
use std::time::Duration;

use ramslice_types::{
    Budget, CacheChoice, Pages, Price, Reason, Request, RequestOp, RequestOutcome, Worth,
};
use serde::{Deserialize, Serialize};

use crate::config::{CostBasis, GovernorConfig, PolicyKind};
use crate::decision::{Policy, PolicyDecision, compact, offline_empty};
use crate::decision_reason::DecisionReason;
use crate::economics::SliceEconomics;
use crate::limits::TenantLimits;
use crate::observation::{
    MachineTotals, Observation, ObservationNeeds, PolicyEvent, SliceRow, WakeCause,
};
use crate::request_backoff::RequestBackoff;

use cache_rereads::CacheRereads;
use daily_season::DailySeason;
use demand_history::DemandHistory;
use experts::{CostFigures, ExpertPanel, LONGEST_GAP};
use forecast_errors::ForecastErrors;
use granules::{GranuleRecords, GranuleView};
use offline_candidate::OfflineCandidate;
use offline_prices::{OfflinePrices, PRICE_ROOM, PriceMarkup};
use risk_account::{RiskAccount, STAKE, WINDOW};

/// Weight of the last emptying in the mean of what emptying costs.
const LEARNING: f64 = 0.1;
/// Memory of the cache, in windows.
const MEMORY: f64 = 4.0;

/// The break-even governor.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct GovernorPolicy {
    settings: GovernorConfig,
    economics: SliceEconomics,
    /// What emptying a slice has cost on average.
    emptying: f64,
    /// The state that it learns from observations; `None` before the first step.
    mind: Option<GovernorState>,
    #[serde(default)]
    pub(crate) limits: TenantLimits,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
struct GovernorState {
    /// The last step, in seconds.
    time: f64,
    /// Offline slices after the last step, as far as known; granules, where these go off together.
    off: u32,
    recent: DemandHistory,
    season: DailySeason,
    experts: ExpertPanel,
    cache: CacheRereads,
    wallet: RiskAccount,
    outlook: ForecastErrors,
    /// Slices that went offline and have not paid yet: when, how many, what each cost.
    unpaid: VecDeque<(f64, u32, f64)>,
    /// Exact prices over those by counters.
    markup: PriceMarkup,
    /// The backoff of used slices, and its reason.
    pause: RequestBackoff,
    /// The same for empty slices: only the kernel's awake reserve keeps those online.
    reserve_pause: RequestBackoff,
    /// Where slices go off together.
    #[serde(default, skip_serializing_if = "GranuleRecords::is_empty")]
    granules: GranuleRecords,
}

/// Slices whose switching should pay, and the reason that keeps the next one online.
#[derive(Debug, Default)]
struct OfflinePlan {
    empty: u32,
    used: u32,
    /// What is spent on them at most.
    cost: f64,
    /// The dearest of the used ones.
    dearest: f64,
    /// By counters, the cost of each used one.
    prices: Vec<f64>,
    /// Where slices go off together, the numbers of their granules.
    granules: Vec<u32>,
    stopped: Option<DecisionReason>,
}

impl GovernorPolicy {
    /// A governor with these settings, on a machine with these figures.
    pub fn new(settings: GovernorConfig, economics: SliceEconomics) -> Self {
        Self {
            settings,
            economics,
            emptying: economics.emptying.0,
            mind: None,
            limits: TenantLimits::default(),
        }
    }

    /// The same within a tenant's limits.
    #[must_use]
    pub fn within(self, limits: TenantLimits) -> Self {
        Self { limits, ..self }
    }

    /// The most that it can have lost after a time, on any input: two slice-emptyings for each
    /// backoff window; where slices go off together, those of so many.
    ///
    /// A slice-emptying is that of a slice full of movable pages, and waking it. This holds as far
    /// as prices hold: an operation may cost more than its budget by the error of the price model.
    /// The cost of a refault is not known in advance; refaults of cache that was dropped within one
    /// step come on top.
    pub fn loss_cap(economics: &SliceEconomics, elapsed: Duration) -> Worth {
        Self::loss_cap_of(economics, Self::windows_within(economics, elapsed))
    }

    /// The most windows that it can have opened after a time.
    pub fn windows_within(economics: &SliceEconomics, elapsed: Duration) -> u64 {
        let window = Self::window(economics).as_secs_f64();
        1 + (elapsed.as_secs_f64() / window).floor() as u64
    }

    /// The same after so many windows were opened; see [`Self::windows`].
    pub fn loss_cap_of(economics: &SliceEconomics, windows: u64) -> Worth {
        Worth(windows as f64 * STAKE * dearest_granule(economics))
    }

    /// Windows opened since it began or settled, by the time of its observations.
    pub fn windows(&self) -> u64 {
        self.mind.as_ref().map_or(0, |mind| mind.wallet.windows())
    }

    /// The least length of a back-off window; it doubles after losses.
    pub fn window(economics: &SliceEconomics) -> Duration {
        Duration::try_from_secs_f64(WINDOW * economics.break_even_of_emptying().0)
            .unwrap_or(Duration::MAX)
    }

    /// Keeps what was learned about demand, and forgets what was earned, what was spent, what was
    /// dropped and which slices are offline.
    ///
    /// For the change from simulated requests to real ones: what was earned in simulation must not
    /// be put at risk for real, and what was dropped there cannot come back.
    pub fn settle(&mut self) {
        let dearest = dearest_granule(&self.economics);
        let break_even = self.economics.break_even_of_emptying().0;
        if let Some(mind) = &mut self.mind {
            mind.wallet = RiskAccount::new(mind.time, dearest, break_even);
            mind.unpaid.clear();
            mind.granules = GranuleRecords::default();
            mind.cache.reset();
            mind.off = 0;
            mind.pause = RequestBackoff::none(mind.time);
            mind.reserve_pause = RequestBackoff::none(mind.time);
        }
    }

    /// The machine has started again, without any cache: none that was dropped is expected back.
    pub fn forget_dropped(&mut self) {
        if let Some(mind) = &mut self.mind {
            mind.cache.forget_dropped();
        }
    }

    /// Pages that it had dropped regardless and that may still come back.
    pub fn untraced_pages(&self) -> f64 {
        self.mind.as_ref().map_or(0.0, |mind| mind.cache.untraced_pages())
    }

    /// Whether it is backing off because slices woke too early or dropped cache came back.
    pub fn is_backing_off(&self) -> bool {
        self.mind.as_ref().is_some_and(|mind| mind.wallet.is_backing_off())
    }

    /// Slices that must be online, with the margin and the needed cache.
    fn need(&self, totals: &MachineTotals, cache_share: f64) -> u32 {
        let cache = (totals.freeable.0 as f64 * cache_share) as u64;
        self.limits.slices(totals, totals.needed() + Pages(cache) + margin(totals))
    }

    fn figures(&self) -> CostFigures {
        CostFigures {
            saving: self.economics.saving.0,
            emptying: self.emptying,
            waking: self.economics.waking.0,
        }
    }

    fn cost(&self, outcome: &RequestOutcome) -> f64 {
        let price = match self.settings.costs {
            CostBasis::Measured if outcome.price_measured > Price::ZERO => outcome.price_measured,
            _ => outcome.price_predicted,
        };
        self.economics.cost(price).0
    }

    /// Takes in what happened.
    fn learn(&mut self, mind: &mut GovernorState, seen: &Observation<'_>) {
        let waking = self.economics.waking.0;
        let together = self.economics.granule_slices() > 1;
        let mut in_vain = (false, false);
        for event in seen.events {
            match event {
                PolicyEvent::Woken { time, slices, cause } => {
                    mind.wallet.spend(f64::from(*slices) * waking);
                    if *cause != WakeCause::Request && !together {
                        mind.woken_early(
                            time.as_secs_f64(),
                            *slices,
                            self.economics.saving.0,
                            waking,
                        );
                    }
                }
                PolicyEvent::Refaulted { pages } => {
                    let own = mind.cache.refault(pages.0);
                    mind.wallet.refault(own, pages.0, self.economics.refault.0);
                }
                PolicyEvent::LookedUp { lookups, brought, returned, .. } => {
                    let cached = seen.totals.cache;
                    let own = mind.cache.read_from_disk(*lookups, cached, *brought, *returned);
                    mind.wallet.refault(own, own, self.economics.refault.0);
                }
                // The limits take stalls in, and a step what is not counted.
                PolicyEvent::Stalled { .. }
                | PolicyEvent::Worked { .. }
                | PolicyEvent::Uncounted { .. } => {}
                PolicyEvent::Finished { op, outcome, .. } if op.wakes() => {
                    mind.wallet.spend(f64::from(outcome.slices_done) * waking);
                    if !together {
                        mind.off = mind.off.saturating_sub(outcome.slices_done);
                    }
                }
                PolicyEvent::Finished { op: RequestOp::Offline(slice), outcome, .. }
                    if together =>
                {
                    let (used, empty) = self.learn_of_slice(mind, *slice, outcome);
                    in_vain = (in_vain.0 | used, in_vain.1 | empty);
                }
                PolicyEvent::Finished { op, outcome, .. } => {
                    let cost = self.cost(outcome);
                    mind.wallet.spend(cost);
                    mind.cache.drop(outcome.dropped.0);
                    let done = outcome.slices_done;
                    let emptied = matches!(op, RequestOp::Compact | RequestOp::Offline(_));
                    if done > 0 {
                        mind.off += done;
                        mind.unpaid.push_back((mind.time, done, cost / f64::from(done)));
                    }
                    let raised = emptied
                        && done == 0
                        && outcome.reason == Reason::OverBudget
                        && mind.markup.raise_if_too_low(dearest(&self.economics));
                    if emptied && done > 0 {
                        mind.pause.reset_length();
                        mind.markup.learn(done, self.economics.cost(outcome.price_predicted).0);
                        // Each slice counts: many at once teach more than one.
                        let weight = 1.0 - (1.0 - LEARNING).powf(f64::from(done));
                        self.emptying += weight * (cost / f64::from(done) - self.emptying);
                    } else if emptied && !raised {
                        mind.pause.lengthen_backoff(mind.time, mind.recent.need(), &seen.totals);
                    }
                    match op {
                        RequestOp::OfflineFree if done > 0 => mind.reserve_pause.reset_length(),
                        RequestOp::OfflineFree => {
                            mind.reserve_pause.lengthen_backoff(
                                mind.time,
                                mind.recent.need(),
                                &seen.totals,
                            );
                        }
                        _ => {}
                    }
                }
            }
        }
        let need = mind.recent.need();
        if in_vain.0 {
            mind.pause.lengthen_backoff(mind.time, need, &seen.totals);
        }
        if in_vain.1 {
            mind.reserve_pause.lengthen_backoff(mind.time, need, &seen.totals);
        }
    }

    /// The slices that should pay, within the limit of the risk account.
    fn plan(
        &self,
        mind: &GovernorState,
        totals: &MachineTotals,
        rows: &[SliceRow],
        need: u32,
    ) -> OfflinePlan {
        let mut plan = OfflinePlan::default();
        let (figures, now, room) = (self.figures(), mind.time, mind.wallet.room());
        let on = totals.nr_slices.saturating_sub(totals.nr_offline);
        if on <= need {
            plan.stopped = Some(DecisionReason::AllNeeded { need });
            return plan;
        }
        // Empty slices that the awake reserve keeps on are none to spare, but block no used one.
        let reserve_wait = mind.reserve_pause.wait(now);
        let kept = if reserve_wait > 0.0 { totals.nr_empty } else { 0 };
        let need = need.saturating_add(kept);
        if on <= need {
            plan.stopped = Some(DecisionReason::DidNothing { wait: seconds(reserve_wait) });
            return plan;
        }
        let empty = totals.nr_empty - kept;
        let mut prices = OfflinePrices::new(&self.economics, self.emptying, empty, rows);
        for level in (need + 1..=on).rev() {
            let Some((counted, empty)) = prices.next() else {
                plan.stopped = Some(DecisionReason::NoCandidate { spare: level - need });
                break;
            };
            let price =
                if empty { counted } else { mind.markup.of(counted).min(dearest(&self.economics)) };
            let break_even = (price + figures.waking) / figures.saving;
            let candidate = OfflineCandidate { level, spare: level - need, empty, break_even };
            if let Some(why) = mind.objection(candidate) {
                plan.stopped = Some(why);
                break;
            }
            let most = if empty { price } else { price * PRICE_ROOM } + figures.waking;
            if plan.cost + most > room {
                plan.stopped = Some(DecisionReason::AtRisk {
                    spare: level - need,
                    wait: seconds(mind.wallet.wait(now)),
                });
                break;
            }
            plan.cost += most;
            if empty {
                plan.empty += 1;
            } else {
                plan.used += 1;
                plan.dearest = plan.dearest.max(price);
                plan.prices.push(counted);
            }
        }
        plan
    }

    /// The most that it can cost if a request drops all cache and all of that is read again.
    fn drop_risk(&self, plan: &OfflinePlan, totals: &MachineTotals) -> f64 {
        let pages = (totals.slice_pages * u64::from(plan.used)).min(totals.freeable);
        pages.0 as f64 * self.economics.refault.0
    }

    fn requests(&self, plan: &OfflinePlan, cache: CacheChoice) -> Vec<Request> {
        let mut requests = Vec::new();
        if plan.empty > 0 {
            requests.push(offline_empty(Some(plan.empty)));
        }
        if plan.used > 0 {
            let budget = self.economics.price(Worth(plan.dearest * PRICE_ROOM)) + Price(1);
            let request = compact(Some(plan.used), Budget::Limited(budget), true);
            requests.push(Request { cache, ..request });
        }
        requests
    }
}

/// Pages that stay free and online, at least: twice the kernel's reserve, so that the kernel does
/// not wake at once what was just switched off.
pub(crate) fn margin(totals: &MachineTotals) -> Pages {
    totals.awake_reserve * 2
}

/// The same for all slices that go off together.
fn dearest_granule(economics: &SliceEconomics) -> f64 {
    dearest(economics) * f64::from(economics.granule_slices())
}

/// Emptying and waking a slice that is full of movable pages.
fn dearest(economics: &SliceEconomics) -> f64 {
    // The typical slice is half full.
    2.0 * economics.emptying.0 + economics.waking.0
}

fn seconds(value: f64) -> Duration {
    Duration::try_from_secs_f64(value.max(0.0)).unwrap_or(Duration::MAX)
}

impl GovernorState {
    fn new(now: f64, totals: &MachineTotals, governor: &GovernorPolicy) -> Self {
        let (settings, economics) = (&governor.settings, &governor.economics);
        let break_even = economics.break_even_of_emptying().0;
        let fade = MEMORY * WINDOW * break_even;
        Self {
            time: now,
            off: if economics.granule_slices() > 1 { 0 } else { totals.nr_offline },
            recent: DemandHistory::default(),
            season: DailySeason::new(now, settings.day_seconds),
            experts: ExpertPanel::new(totals.nr_slices, &governor.figures()),
            cache: CacheRereads::new(
                totals.slice_pages.0 as f64,
                economics.break_even_of_refault(totals.slice_pages).0,
                fade,
            ),
            wallet: RiskAccount::new(now, dearest_granule(economics), break_even),
            outlook: ForecastErrors::default(),
            unpaid: VecDeque::new(),
            markup: PriceMarkup::default(),
            pause: RequestBackoff::none(now),
            reserve_pause: RequestBackoff::none(now),
            granules: GranuleRecords::default(),
        }
    }

    /// Slices woke on demand: taken to be those that went offline last, because the kernel does not
    /// say which. What they had not earned is lost.
    fn woken_early(&mut self, time: f64, mut slices: u32, saving: f64, waking: f64) {
        while slices > 0 {
            let Some((since, count, cost)) = self.unpaid.back_mut() else { return };
            let some = slices.min(*count);
            let missing = *cost + waking - saving * (time - *since).max(0.0);
            if missing > 0.0 {
                self.wallet.woke_early(some, missing * f64::from(some));
            }
            *count -= some;
            slices -= some;
            if *count == 0 {
                self.unpaid.pop_back();
            }
        }
    }
}

fn uncounted_seconds(event: &PolicyEvent) -> f64 {
    if let PolicyEvent::Uncounted { time } = event { time.as_secs_f64() } else { 0.0 }
}

impl Policy for GovernorPolicy {
    fn kind(&self) -> PolicyKind {
        PolicyKind::Governor
    }

    fn needs(&self) -> ObservationNeeds {
        ObservationNeeds::Rows
    }

    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision {
        let (totals, now) = (&seen.totals, seen.time.as_secs_f64());
        let mut mind = match self.mind.take() {
            Some(mind) => mind,
            None => GovernorState::new(now, totals, self),
        };
        let elapsed = (now - mind.time).max(0.0);
        let uncounted: f64 = seen.events.iter().map(uncounted_seconds).sum();
        self.learn(&mut mind, seen);
        let held = self.limits.step(seen);
        let view = GranuleView::of(&self.economics, &mind.markup, seen.rows);
        if let Some(view) = &view {
            self.learn_of_granules(&mut mind, view, seen);
        }
        mind.time = mind.time.max(now);
        let now = mind.time;
        let saving = self.economics.saving.0;
        let counted = (elapsed - uncounted).max(0.0);
        let off = view.as_ref().map_or(totals.nr_offline, GranuleView::nr_complete);
        let earning = mind.off.min(off) * self.economics.granule_slices();
        mind.wallet.save(saving * counted * f64::from(earning));
        mind.off = off;
        let reread = mind.cache.untraced_pages() * self.economics.refault.0;
        mind.wallet.set_owed(f64::from(totals.nr_offline) * self.economics.waking.0 + reread);
        let waking = self.economics.waking.0;
        while mind
            .unpaid
            .front()
            .is_some_and(|&(since, _, cost)| (now - since) * saving > cost + waking)
        {
            mind.unpaid.pop_front();
        }
        mind.wallet.start_window_if_due(now);
        mind.cache.step(elapsed);
        let figures = self.figures();
        let break_even = figures.break_even();
        // In other units a refault's cost is known within a factor of 30 only.
        mind.cache.choose(self.economics.worth_unit.is_joule());
        let cache_share = mind.cache.needed_share();
        let need = self.need(totals, cache_share);
        // Demand between two observations shows in what it woke.
        let woken = seen
            .events
            .iter()
            .any(|event| matches!(event, PolicyEvent::Woken { cause: WakeCause::Demand, .. }));
        let on = totals.nr_slices.saturating_sub(totals.nr_offline);
        let peak = if woken { need.max(on) } else { need };
        if mind.experts.slices() != totals.nr_slices {
            mind.experts = mind.experts.resized(totals.nr_slices, &figures);
        }
        mind.experts.step(&figures, now, peak, &mind.recent);
        mind.season.push(now, peak);
        // Without a season everything is expected.
        let expected = mind.season.expects(now, break_even).unwrap_or(u32::MAX);
        mind.recent.push(now, peak, expected, 2.0 * LONGEST_GAP * break_even);
        mind.pause.observe(now, need, on);
        mind.reserve_pause.observe(now, need, on);
        let mut plan = match &view {
            Some(view) => self.plan_granules(&mind, totals, view, need),
            None => self.plan(&mind, totals, seen.rows, need),
        };
        let expected = on.saturating_sub(plan.empty + plan.used);
        let forecast = mind.outlook.step(now, peak, expected, break_even);
        let is_held = held.is_some();
        let mut decision = if let Some(held) = held {
            let wakes = view.as_ref().map(|view| view.wake(held.requests.len()));
            PolicyDecision { requests: wakes.unwrap_or(held.requests), ..held }
        } else if self.economics.unit_slices > 1 && view.is_none() {
            PolicyDecision::rest(DecisionReason::TooSmall { slices: self.economics.unit_slices })
        } else if mind.wallet.is_backing_off() {
            let (early, refaults) = (mind.wallet.early, mind.wallet.refaults);
            PolicyDecision::rest(DecisionReason::BackingOff {
                wait: seconds(mind.wallet.wait(now)),
                early,
                refaults,
            })
        } else if plan.empty + plan.used > 0 {
            mind.markup.expect(std::mem::take(&mut plan.prices));
            let why = DecisionReason::Pays {
                empty: plan.empty,
                used: plan.used,
                at_risk: Worth(plan.cost),
                unit: self.economics.worth_unit,
            };
            let fits = plan.cost + self.drop_risk(&plan, totals) <= mind.wallet.room() / 2.0;
            let cache = mind.cache.request(fits);
            let (requests, groups) = match &view {
                Some(view) => mind.granules.requests(view, &plan.granules, cache),
                None => (self.requests(&plan, cache), Vec::new()),
            };
            PolicyDecision { requests, groups, why, ..PolicyDecision::default() }
        } else {
            PolicyDecision::rest(plan.stopped.unwrap_or(DecisionReason::AllNeeded { need }))
        };
        if let Some(view) = view.filter(|_| !is_held) {
            mind.granules.give_back(&view, &mut decision);
        }
        decision.forecast = Some(forecast);
        self.mind = Some(mind);
        decision
    }
}
