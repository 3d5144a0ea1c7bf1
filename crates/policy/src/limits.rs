//! Limits of a tenant, which hold whatever pays: a floor, a burst reserve, a stall target.
//!
//! - At least the *floor* stays on.
//! - The *burst reserve* is memory that is on and free, beyond the kernel's awake reserve. If it is
//!   used up, slices wake until it is there again.
//! - While tasks wait for memory for longer than the *stall target* (`some` of the kernel's
//!   `/proc/pressure/memory`), nothing goes off, and slices wake where little is free.

use std::time::Duration;

use ramslice_energy::WorthUnit;
use ramslice_types::{Bytes, Pages, Ratio, SliceState};
use serde::{Deserialize, Serialize};

use crate::decision::{PolicyDecision, online};
use crate::decision_reason::DecisionReason;
use crate::observation::{MachineTotals, Observation, PolicyEvent};

/// The stall target where none is set, in ms of each second: that of Meta's TMO, 0.1 %.
const USUAL_STALL_MS: f64 = 1.0;
/// After a stall, nothing goes off for this long.
const REST: Duration = Duration::from_secs(30);
/// The most slices that wake at one step.
const MOST_WOKEN: u32 = 1024;

/// Settings of the limits.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LimitsConfig {
    /// Memory that stays on at least, in MiB.
    pub floor_mib: f64,
    /// Memory that is kept awake and free, in MiB.
    pub burst_reserve_mib: f64,
    /// How long tasks may wait for memory, in ms of each second. Left out, it is 1, or with a
    /// profile of DRAM, no target.
    pub stall_ms_per_second: Option<f64>,
}

impl LimitsConfig {
    /// The part of it that a zone with this share of the memory has to hold.
    #[must_use]
    pub fn share(&self, share: Ratio) -> Self {
        Self {
            floor_mib: self.floor_mib * share.0,
            burst_reserve_mib: self.burst_reserve_mib * share.0,
            ..*self
        }
    }
}

/// The limits of a machine or a zone, and what is known of its stalls.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
pub struct TenantLimits {
    floor: Pages,
    burst_reserve: Pages,
    /// The most of the time in which some task may wait.
    stall_target: Option<Ratio>,
    /// Slices that the next stall wakes; 0 stands for 1.
    next_wakes: u32,
    /// Nothing goes off before.
    rest_until: Duration,
}

impl TenantLimits {
    /// With pages of this size, for a policy that counts in this unit.
    pub fn new(config: &LimitsConfig, unit: WorthUnit, page: Bytes) -> Self {
        let pages = |mib: f64| Bytes((mib * Bytes::MIB.0 as f64) as u64).pages(page);
        let usual = (!unit.is_joule()).then_some(USUAL_STALL_MS);
        let stall_ms = config.stall_ms_per_second.or(usual);
        Self {
            floor: pages(config.floor_mib),
            burst_reserve: pages(config.burst_reserve_mib),
            stall_target: stall_ms.map(|ms| Ratio(ms / 1e3)),
            ..Self::default()
        }
    }

    /// Takes other limits; what is known of stalls stays.
    pub(crate) fn set(&mut self, other: &Self) {
        let Self { next_wakes, rest_until, .. } = *self;
        *self = Self { next_wakes, rest_until, ..other.clone() };
    }

    /// Slices that must be on for `pages` in use and these limits.
    pub(crate) fn slices(&self, totals: &MachineTotals, pages: Pages) -> u32 {
        let slices = u64::from(totals.nr_slices);
        let per_slice = totals.managed.0.checked_div(slices).unwrap_or(0).max(1);
        let pages = (pages + self.burst_reserve).max(self.floor);
        u32::try_from(pages.0.div_ceil(per_slice))
            .unwrap_or(u32::MAX)
            .max(totals.nr_fixed)
            .min(totals.nr_slices)
    }

    /// What the limits ask for now; nothing if slices may go off.
    pub(crate) fn step(&mut self, seen: &Observation<'_>) -> Option<PolicyDecision> {
        let (totals, now) = (&seen.totals, seen.time);
        let room = self.burst_reserve + totals.awake_reserve + totals.slice_pages;
        if let (Some(target), Some(stall)) = (self.stall_target, stall(seen.events))
            && stall > target
        {
            self.rest_until = now + REST;
            let most = self.next_wakes.max(1);
            // Where much is free, tasks wait for something else than memory that is off.
            let most = if totals.free < room { most } else { 0 };
            self.next_wakes = most.saturating_mul(2).min(MOST_WOKEN);
            return Some(Self::wake(seen, most, |wakes| DecisionReason::Stalled {
                stall,
                target,
                wakes,
            }));
        }
        // What the kernel keeps awake is no part of the burst reserve.
        let free = totals.free.saturating_sub(totals.awake_reserve);
        let missing = self.burst_reserve.saturating_sub(free);
        if missing > Pages::ZERO && totals.nr_offline > 0 {
            let slices = missing.0.div_ceil(totals.slice_pages.0.max(1));
            let most = u32::try_from(slices).unwrap_or(MOST_WOKEN).min(MOST_WOKEN);
            let reserve = self.burst_reserve;
            return Some(Self::wake(seen, most, |wakes| DecisionReason::RestoresReserve {
                free,
                reserve,
                wakes,
            }));
        }
        if now < self.rest_until {
            let wait = self.rest_until.saturating_sub(now);
            return Some(PolicyDecision::rest(DecisionReason::RestsAfterStall { wait }));
        }
        self.next_wakes = 0;
        None
    }

    /// Wakes at most so many slices, the lowest first.
    fn wake(
        seen: &Observation<'_>,
        most: u32,
        why: impl Fn(u32) -> DecisionReason,
    ) -> PolicyDecision {
        let off = seen.rows.iter().filter(|row| row.state == SliceState::Offline);
        let requests: Vec<_> = off.take(most as usize).map(|row| online(row.id)).collect();
        let wakes = u32::try_from(requests.len()).unwrap_or(u32::MAX);
        PolicyDecision { requests, why: why(wakes), ..PolicyDecision::default() }
    }
}

/// The share of the time since the last observation in which some task waited for memory.
fn stall(events: &[PolicyEvent]) -> Option<Ratio> {
    let (mut waited, mut within) = (Duration::ZERO, Duration::ZERO);
    for event in events {
        if let PolicyEvent::Stalled { waited: more, within: time } = event {
            waited += *more;
            within += *time;
        }
    }
    (!within.is_zero()).then(|| Ratio(waited.as_secs_f64() / within.as_secs_f64()))
}
