//! Finds watermarks for a machine from observations of it (Kanpur report, section 4: the most
//! suitable amount of memory).

use std::time::Duration;

use ramslice_types::{Bytes, Pages};
use serde::Serialize;

use crate::economics::SliceEconomics;
use crate::observation::MachineTotals;
use crate::watermarks_config::WatermarksConfig;

/// The share of time-outs in which free memory above `FREE_LOW` outlasts what demand grows by.
const CERTAIN: f64 = 0.99;
/// The share of switched-off slices that should not be needed again before they have paid.
const LIKELY: f64 = 0.9;
/// The share of the time in which the suitable amount of memory suffices.
const SUITABLE: f64 = 0.999;

/// Watermarks, and what they rest on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TunedWatermarks {
    /// The four watermarks and the time-out.
    pub watermarks: WatermarksConfig,
    /// Memory that would have sufficed for 99.9 % of the time, with `FREE_LOW` and the cache that
    /// was always there.
    pub suitable_mib: f64,
    /// Looks at the machine that this rests on.
    pub samples: usize,
    /// The time that they span, in seconds.
    pub seconds: f64,
    /// Growth of demand within a time-out, or within all that was seen if that is shorter: its 99th
    /// percentile.
    pub growth_timeout_mib: f64,
    /// Growth of demand within the break-even time, or within all that was seen if that is shorter:
    /// its 90th percentile.
    pub growth_break_even_mib: f64,
    /// Cache that was there 95 % of the time.
    pub steady_cache_mib: f64,
}

impl TunedWatermarks {
    /// The same with this much memory as the suitable one: the watermarks with cache leave on what
    /// of it is not needed otherwise, and at least `FREE_LOW`.
    #[must_use]
    pub fn with_memory(mut self, mib: f64) -> Self {
        let marks = &mut self.watermarks;
        if let (Some(free_low), Some(low), Some(high)) =
            (marks.free_low_mib, marks.cache_free_low_mib, marks.cache_free_high_mib)
        {
            let needed = self.suitable_mib - low;
            let cache_low = (mib - needed).max(free_low);
            marks.cache_free_low_mib = Some(cache_low);
            marks.cache_free_high_mib = Some(cache_low + (high - low));
        }
        self.suitable_mib = mib;
        self
    }
}

/// Finds watermarks from observations of a machine in order of time; `None` from fewer than two.
///
/// `FREE_LOW` lasts for a time-out in 99 of 100 cases. `FREE_HIGH` lies above it by a slice, for
/// the hysteresis rule, and by what demand grows within the break-even time in 90 of 100 cases, so
/// that a slice is not switched off only to be needed again before it has paid. The watermarks with
/// cache lie above these by the cache that was always there.
pub fn tune(
    seen: &[(Duration, MachineTotals)],
    timeout: Duration,
    economics: &SliceEconomics,
    slice: Bytes,
    page: Bytes,
) -> Option<TunedWatermarks> {
    let (first, last) = (seen.first()?, seen.last()?);
    if seen.len() < 2 {
        return None;
    }
    let mib = |pages: Pages| pages.bytes(page).0 as f64 / Bytes::MIB.0 as f64;
    let break_even = Duration::try_from_secs_f64(economics.break_even_of_emptying().0).ok()?;
    let reserve = seen.iter().map(|(_, totals)| totals.awake_reserve).max()?;
    let growth_timeout = quantile(growth(seen, timeout), CERTAIN);
    let growth_break_even = quantile(growth(seen, break_even), LIKELY);
    let steady_cache = quantile(seen.iter().map(|(_, totals)| totals.cache).collect(), 0.05);
    let most_needed = quantile(seen.iter().map(|(_, totals)| totals.needed()).collect(), SUITABLE);
    let free_low = mib(growth_timeout + reserve);
    // Above the rule's least by a page.
    let width = mib(slice.pages(page) + growth_break_even + Pages(1));
    let cache_free_low = free_low + mib(steady_cache);
    Some(TunedWatermarks {
        watermarks: WatermarksConfig {
            free_low_mib: Some(free_low),
            free_high_mib: Some(free_low + width),
            cache_free_low_mib: Some(cache_free_low),
            cache_free_high_mib: Some(cache_free_low + width),
            timeout_seconds: Some(timeout.as_secs_f64()),
            ..WatermarksConfig::default()
        },
        suitable_mib: mib(most_needed) + cache_free_low,
        samples: seen.len(),
        seconds: last.0.saturating_sub(first.0).as_secs_f64(),
        growth_timeout_mib: mib(growth_timeout),
        growth_break_even_mib: mib(growth_break_even),
        steady_cache_mib: mib(steady_cache),
    })
}

/// From each observation on: the most that demand rises above it within `horizon`, at least until
/// the next observation.
fn growth(seen: &[(Duration, MachineTotals)], horizon: Duration) -> Vec<Pages> {
    // The observations within the horizon whose demand no later one of them exceeds, the highest
    // first; from the end backwards.
    let mut ahead: std::collections::VecDeque<usize> = std::collections::VecDeque::new();
    let need = |index: usize| seen[index].1.needed();
    let mut found = Vec::with_capacity(seen.len());
    for index in (0..seen.len()).rev() {
        while ahead
            .front()
            .is_some_and(|&far| far > index + 1 && seen[far].0 > seen[index].0 + horizon)
        {
            ahead.pop_front();
        }
        found.push(ahead.front().map_or(Pages::ZERO, |&highest| need(highest) - need(index)));
        while ahead.back().is_some_and(|&near| need(near) <= need(index)) {
            ahead.pop_back();
        }
        ahead.push_back(index);
    }
    found
}

fn quantile(mut values: Vec<Pages>, share: f64) -> Pages {
    values.sort_unstable();
    let place = (share * values.len() as f64).ceil() as usize;
    values.get(place.saturating_sub(1)).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{PolicyConfig, PolicyKind};
    use crate::economics::tests::thesis;

    fn look(at: u64, needed: u64, cache: u64) -> (Duration, MachineTotals) {
        let totals = MachineTotals {
            slice_pages: Pages(8192),
            managed: Pages(1 << 20),
            free: Pages((1 << 20) - needed - cache),
            freeable: Pages(cache),
            cache: Pages(cache),
            awake_reserve: Pages(256),
            nr_slices: 128,
            ..MachineTotals::default()
        };
        (Duration::from_secs(at), totals)
    }

    #[test]
    fn growth_is_the_most_that_demand_rises_within_the_horizon() {
        let seen = [look(0, 10, 0), look(30, 50, 0), look(60, 20, 0), look(90, 90, 0)];
        let growth = |seconds| {
            let mut all = growth(&seen, Duration::from_secs(seconds));
            all.reverse();
            all
        };
        assert_eq!(growth(30), [Pages(40), Pages(0), Pages(70), Pages(0)]);
        assert_eq!(growth(90), [Pages(80), Pages(40), Pages(70), Pages(0)]);
        // Observations further apart than the horizon: the next one counts.
        assert_eq!(growth(1), [Pages(40), Pages(0), Pages(70), Pages(0)]);
    }

    #[test]
    fn tuned_watermarks_keep_the_hysteresis_rule() {
        let slice = Bytes(32 << 20);
        let seen: Vec<_> =
            (0..500).map(|at| look(at * 30, 100_000 + (at % 17) * 3000, 5000 + at)).collect();
        let tuned =
            tune(&seen, Duration::from_secs(30), &thesis(slice), slice, Bytes(4096)).unwrap();
        let mut config = PolicyConfig::new(PolicyKind::Watermarks);
        config.watermarks = tuned.watermarks.clone();
        config.check(slice).unwrap();
        // Demand grows by 3000 pages in a time-out, and 256 are the kernel's.
        assert!(
            (tuned.watermarks.free_low_mib.unwrap() - 3256.0 / 256.0).abs() < 1e-9,
            "{tuned:?}"
        );
        assert!(
            tuned.suitable_mib > 148_000.0 / 256.0 && tuned.suitable_mib < 170_000.0 / 256.0,
            "{tuned:?}"
        );
        // With less memory the cache goes first, and free memory never.
        let [some, none] = [700.0, 1.0].map(|mib| tuned.clone().with_memory(mib));
        let low = |tuned: &TunedWatermarks| tuned.watermarks.cache_free_low_mib.unwrap();
        assert!((tuned.suitable_mib - low(&tuned) - (700.0 - low(&some))).abs() < 1e-9);
        assert!((low(&none) - none.watermarks.free_low_mib.unwrap()).abs() < 1e-9);
        for config_of in [some, none] {
            config.watermarks = config_of.watermarks;
            config.check(slice).unwrap();
        }
        assert_eq!(
            tune(&seen[..1], Duration::from_secs(30), &thesis(slice), slice, Bytes(4096)),
            None
        );
    }
}
