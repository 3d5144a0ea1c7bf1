//! How much idle memory may move to a node for what is rarely used, how much may come back, and how
//! finely accesses are sampled: from what is free there and what the monitor costs.

use std::time::Duration;

use ramslice_types::{Bytes, Ratio};

/// The coarsest sampling: intervals times 2 to this power, and a 2nd to this power of the regions.
const COARSEST: u32 = 3;
/// Samples in an aggregation, unless the next limit is shorter.
const SAMPLES: u32 = 20;
/// The longest aggregation: commands to the monitor wait for its end.
const LONGEST_AGGREGATION: Duration = Duration::from_secs(4);
const AGGREGATION: [Duration; 2] = [Duration::from_millis(100), Duration::from_secs(2)];
/// The most regions at the finest sampling.
const MOST_REGIONS: u32 = 400;
/// This part of a cold node stays free.
const KEPT_FREE: u64 = 32;
/// With less than this part free beyond that, less than the full rate goes there.
const SLOWER_BELOW: u64 = 4;
/// Rates are multiples of this part of the limit, so that they change rarely.
const RATE_STEPS: u64 = 16;
/// The least by which the rate is divided for the monitor's CPU time.
const LEAST_THROTTLE: f64 = 1.0 / RATE_STEPS as f64;
/// How long the monitor stays off if even the coarsest sampling takes too much CPU time.
const STOPPED: Duration = Duration::from_mins(10);
/// The most by which idle times are multiplied because pages come back too early.
const MOST_PATIENCE: u32 = 64;
/// So much must have come back until that counts.
const COUNTS: f64 = (1 << 20) as f64;

/// What the operator allows.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ColdLimits {
    /// Memory moves that was not accessed for at least this long.
    pub idle: Duration,
    /// Memory comes back that was accessed in at least this share of samples, above 0.
    pub in_use: Ratio,
    /// The most that moves in a second, in each direction of each node.
    pub rate: Bytes,
    /// The most of one CPU that the monitor may take.
    pub cpu_share: Ratio,
}

/// A node with CPUs and its cold node, since the last decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ColdPairView {
    /// What the cold node has.
    pub cold_size: Bytes,
    /// What is free there and may be used: no slice wakes for it that should stay off.
    pub room: Bytes,
    /// The same of the node with CPUs.
    pub room_back: Bytes,
    /// What moved to the cold node.
    pub went: Bytes,
    /// What moved back.
    pub returned: Bytes,
}

/// What a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct ColdView<'a> {
    /// Since the last decision.
    pub elapsed: Duration,
    /// Until the next one, at most.
    pub horizon: Duration,
    /// The share of a CPU that the monitor took; none while it is being measured.
    pub cpu_share: Option<Ratio>,
    /// How long a page must stay until moving it there and back has paid, if a profile says.
    pub break_even: Option<Duration>,
    /// The nodes.
    pub pairs: &'a [ColdPairView],
}

/// Bytes per second for a pair of nodes; nothing moves without.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ColdRates {
    /// To the cold node.
    pub to_cold: Option<Bytes>,
    /// Back.
    pub back: Option<Bytes>,
}

/// Why nothing moves to cold nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdPause {
    /// They have no room.
    Full,
    /// The monitor takes too much CPU time; nothing comes back either.
    Cpu,
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ColdPlan {
    /// How long memory must have been idle.
    pub idle: Duration,
    /// Between two samples.
    pub sample: Duration,
    /// Samples are summed up over this time.
    pub aggregation: Duration,
    /// The most regions of each node.
    pub max_regions: u32,
    /// For each pair of nodes.
    pub rates: Vec<ColdRates>,
    /// Why nothing moves, if so.
    pub pause: Option<ColdPause>,
    /// The monitor is to be off.
    pub stopped: bool,
}

impl ColdPlan {
    /// Samples in an aggregation.
    pub fn samples(&self) -> u32 {
        let samples = self.aggregation.as_micros() / self.sample.as_micros().max(1);
        u32::try_from(samples).unwrap_or(u32::MAX).max(1)
    }

    /// The fewest accesses in an aggregation that count as in use.
    pub fn accesses_in_use(&self, in_use: Ratio) -> u32 {
        let samples = self.samples();
        ((f64::from(samples) * in_use.0).ceil() as u32).clamp(1, samples)
    }

    /// The most accesses in an aggregation of a region that counts as idle: one in twenty samples.
    /// Pages in it that were accessed themselves are left out one by one.
    pub fn accesses_idle(&self) -> u32 {
        self.samples() / SAMPLES
    }

    /// The idle time in aggregations, rounded up.
    pub fn idle_age(&self) -> u32 {
        let age = self.idle.as_micros().div_ceil(self.aggregation.as_micros().max(1));
        u32::try_from(age).unwrap_or(u32::MAX).max(1)
    }
}

/// Decides, and remembers what that needs.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdSteering {
    coarseness: u32,
    throttle: f64,
    cpu_is_over: bool,
    stopped_for: Duration,
    /// Idle times are multiplied by this.
    patience: u32,
    /// Since the patience changed.
    patience_age: Duration,
    /// What was moved and is still there, by all that is known.
    there: f64,
    /// The same times seconds, and what came back, both fading.
    held: f64,
    came_back: f64,
}

impl Default for ColdSteering {
    fn default() -> Self {
        Self {
            coarseness: 0,
            throttle: 1.0,
            cpu_is_over: false,
            stopped_for: Duration::ZERO,
            patience: 1,
            patience_age: Duration::ZERO,
            there: 0.0,
            held: 0.0,
            came_back: 0.0,
        }
    }
}

impl ColdSteering {
    /// What is to happen until the next decision.
    pub fn decide(&mut self, limits: &ColdLimits, view: &ColdView<'_>) -> ColdPlan {
        self.heed_cpu(limits, view);
        self.heed_returns(limits, view);
        let base = limits.idle.max(view.break_even.unwrap_or(Duration::ZERO));
        let idle = base.saturating_mul(self.patience);
        let [least, most] = AGGREGATION;
        let sample = (limits.idle / 8).clamp(least, most) / SAMPLES * (1 << self.coarseness);
        let aggregation = (sample * SAMPLES).min(LONGEST_AGGREGATION);
        let stopped = !self.stopped_for.is_zero();
        let rates: Vec<ColdRates> = view
            .pairs
            .iter()
            .map(|pair| {
                if self.cpu_is_over { ColdRates::default() } else { self.rates(limits, view, pair) }
            })
            .collect();
        let pause = if self.cpu_is_over {
            Some(ColdPause::Cpu)
        } else {
            rates.iter().all(|rates| rates.to_cold.is_none()).then_some(ColdPause::Full)
        };
        let max_regions = MOST_REGIONS >> self.coarseness;
        ColdPlan { idle, sample, aggregation, max_regions, rates, pause, stopped }
    }

    /// Above the limit, nothing moves until a measurement is below it; sampling gets coarser and
    /// the rate halves. Far below, these are taken back, the rate first.
    fn heed_cpu(&mut self, limits: &ColdLimits, view: &ColdView<'_>) {
        if !self.stopped_for.is_zero() {
            self.stopped_for = self.stopped_for.saturating_sub(view.elapsed);
            self.cpu_is_over = !self.stopped_for.is_zero();
            return;
        }
        let Some(share) = view.cpu_share else { return };
        self.cpu_is_over = share.0 >= limits.cpu_share.0;
        if self.cpu_is_over {
            self.throttle = (self.throttle / 2.0).max(LEAST_THROTTLE);
            if self.coarseness < COARSEST {
                self.coarseness += 1;
            } else {
                self.stopped_for = STOPPED;
            }
        } else if share.0 < limits.cpu_share.0 / 5.0 {
            if self.throttle < 1.0 {
                self.throttle = (self.throttle * 2.0).min(1.0);
            } else {
                self.coarseness = self.coarseness.saturating_sub(1);
            }
        }
    }

    /// Pages that come back before their move has paid make the idle time longer. By Little's law
    /// they stay as long as what is there times seconds, over what comes back.
    fn heed_returns(&mut self, limits: &ColdLimits, view: &ColdView<'_>) {
        let Some(break_even) = view.break_even else {
            self.patience = 1;
            return;
        };
        let seconds = view.elapsed.as_secs_f64();
        let fading = 0.5f64.powf(seconds / (4.0 * break_even.as_secs_f64()).max(1.0));
        let sum =
            |of: fn(&ColdPairView) -> Bytes| view.pairs.iter().map(of).sum::<Bytes>().0 as f64;
        let returned = sum(|pair| pair.returned);
        self.there = (self.there + sum(|pair| pair.went) - returned).max(0.0);
        self.held = self.held * fading + self.there * seconds;
        self.came_back = self.came_back * fading + returned;
        self.patience_age = self.patience_age.saturating_add(view.elapsed);
        if self.patience_age < limits.idle.max(break_even).saturating_mul(self.patience) {
            return;
        }
        let pays = self.came_back * break_even.as_secs_f64();
        let patience = if self.came_back >= COUNTS && self.held < pays {
            (self.patience * 2).min(MOST_PATIENCE)
        } else if self.held > 2.0 * pays {
            (self.patience / 2).max(1)
        } else {
            return;
        };
        if patience != self.patience {
            (self.patience, self.patience_age) = (patience, Duration::ZERO);
        }
    }

    fn rates(&self, limits: &ColdLimits, view: &ColdView<'_>, pair: &ColdPairView) -> ColdRates {
        let step = (limits.rate.0 / RATE_STEPS).max(1);
        // As much in each second that the room lasts until the next decision, whatever others take.
        let horizon = view.horizon.as_secs_f64().max(1.0);
        let rounded = |wanted: f64, room: Bytes| {
            let rate = wanted.min(room.0 as f64 / horizon) as u64;
            Some(Bytes(rate / step * step)).filter(|rate| *rate > Bytes::ZERO)
        };
        let full = limits.rate.0 as f64 * self.throttle;
        let spare = pair.room.saturating_sub(Bytes(pair.cold_size.0 / KEPT_FREE));
        let slower_below = (pair.cold_size.0 / SLOWER_BELOW).max(1);
        let part = (spare.0 as f64 / slower_below as f64).min(1.0);
        ColdRates { to_cold: rounded(full * part, spare), back: rounded(full, pair.room_back) }
    }
}
