//! Settings of the policy `watermarks`, and the hysteresis rule.

use std::time::Duration;

use ramslice_types::{Bytes, Pages, Ratio};
use serde::{Deserialize, Serialize};

use crate::config::seconds;

/// Settings of [`PolicyKind::Watermarks`](crate::PolicyKind), in MiB. What is left out follows from
/// the size of a slice.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WatermarksConfig {
    /// `FREE_LOW`: below it, and below `cache_free_low_mib`, a slice wakes.
    pub free_low_mib: Option<f64>,
    /// `FREE_HIGH`: above it a slice goes offline.
    pub free_high_mib: Option<f64>,
    /// `CACHE_FREE_LOW`, for free memory and page cache together.
    pub cache_free_low_mib: Option<f64>,
    /// `CACHE_FREE_HIGH`: above it a slice goes offline.
    pub cache_free_high_mib: Option<f64>,
    /// Time between two observations, in seconds; 30 if left out.
    pub timeout_seconds: Option<f64>,
    /// The share of look-ups that the page cache is to have; the two watermarks with cache follow
    /// it. Left out, they stay.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hit_ratio: Option<f64>,
    /// With `hit_ratio`: `CACHE_FREE_LOW` sinks no further; `free_low_mib` if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_free_low_least_mib: Option<f64>,
    /// With `hit_ratio`: `CACHE_FREE_HIGH` rises no further; all memory if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache_free_high_most_mib: Option<f64>,
    /// With `hit_ratio`: no ratio of fewer look-ups that count is judged; 10000 if left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub least_lookups: Option<u64>,
    /// With `hit_ratio`: the watermarks sink after the ratio was kept for so many time-outs; 20 if
    /// left out.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lower_after_timeouts: Option<u32>,
}

/// Look-ups without which no ratio is judged: chance moves a ratio of 0.97 of so many by 0.002.
const LEAST_LOOKUPS: u64 = 10_000;
/// Time-outs for which the ratio is kept before the watermarks sink.
const CALM_TIMEOUTS: u32 = 20;

/// The four watermarks as numbers, in MiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WatermarkLevels {
    pub(crate) free_low: f64,
    pub(crate) free_high: f64,
    pub(crate) cache_free_low: f64,
    pub(crate) cache_free_high: f64,
}

/// How the watermarks with cache follow the hit ratio.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub(crate) struct HitRatioLevels {
    pub(crate) target: Ratio,
    /// By which they move: a slice.
    pub(crate) step: Pages,
    pub(crate) least_low: Pages,
    /// All memory if absent.
    pub(crate) most_high: Option<Pages>,
    pub(crate) least_lookups: Pages,
    pub(crate) calm_timeouts: u32,
}

impl WatermarksConfig {
    /// With defaults filled in: at least one slice stays free, two more before one goes offline,
    /// and a slice of cache.
    pub(crate) fn levels(&self, slice: Bytes) -> WatermarkLevels {
        let size = slice.0 as f64 / Bytes::MIB.0 as f64;
        let free_low = self.free_low_mib.unwrap_or(size);
        let cache_free_low = self.cache_free_low_mib.unwrap_or(free_low + size);
        WatermarkLevels {
            free_low,
            free_high: self.free_high_mib.unwrap_or(free_low + 2.0 * size),
            cache_free_low,
            cache_free_high: self.cache_free_high_mib.unwrap_or(cache_free_low + 2.0 * size),
        }
    }

    /// How they follow the hit ratio; nothing if they do not.
    pub(crate) fn hit_ratio_levels(&self, slice: Bytes, page: Bytes) -> Option<HitRatioLevels> {
        let least = self.cache_free_low_least_mib.unwrap_or(self.levels(slice).free_low);
        Some(HitRatioLevels {
            target: Ratio(self.hit_ratio?),
            step: slice.pages(page),
            least_low: pages(least, page),
            most_high: self.cache_free_high_most_mib.map(|most| pages(most, page)),
            least_lookups: Pages(self.least_lookups.unwrap_or(LEAST_LOOKUPS)),
            calm_timeouts: self.lower_after_timeouts.unwrap_or(CALM_TIMEOUTS),
        })
    }

    /// Checks what no size of slices would make right.
    ///
    /// # Errors
    /// The setting, and what is wrong with it.
    pub(crate) fn check(&self) -> Result<(), (&'static str, String)> {
        // The least that the hysteresis rule asks for, whatever the size of slices. What is left
        // out lies above the low watermark before it.
        let cache_low = self.cache_free_low_mib.map(|low| ("cache_free_low_mib", low));
        let free_low = self.free_low_mib.map(|low| ("free_low_mib", low));
        for (low, high_name, high) in [
            (free_low, "free_high_mib", self.free_high_mib),
            (cache_low.or(free_low), "cache_free_high_mib", self.cache_free_high_mib),
        ] {
            if let (Some((low_name, low)), Some(high)) = (low, high)
                && high <= low
            {
                let message = format!(
                    "{high_name} is {high} and {low_name} {low}: {high_name} \
                     must be above {low_name} plus the size of a slice"
                );
                return Err((high_name, message));
            }
        }
        if let Some(ratio) = self.hit_ratio
            && !(ratio > 0.0 && ratio <= 1.0)
        {
            let message = format!(
                "hit_ratio is {ratio}: it is a share of look-ups, and must be above 0 and at most 1"
            );
            return Err(("hit_ratio", message));
        }
        for (field, value) in [
            ("cache_free_low_least_mib", self.cache_free_low_least_mib.is_some()),
            ("cache_free_high_most_mib", self.cache_free_high_most_mib.is_some()),
            ("least_lookups", self.least_lookups.is_some()),
            ("lower_after_timeouts", self.lower_after_timeouts.is_some()),
        ] {
            if value && self.hit_ratio.is_none() {
                let message =
                    format!("{field} is set without hit_ratio, by which the watermarks would move");
                return Err((field, message));
            }
        }
        for (field, value) in [
            ("least_lookups", self.least_lookups),
            ("lower_after_timeouts", self.lower_after_timeouts.map(u64::from)),
        ] {
            if value == Some(0) {
                return Err((field, format!("{field} is 0: it must be at least 1")));
            }
        }
        Ok(())
    }

    /// Checks the hysteresis rule for slices of this size.
    ///
    /// # Errors
    /// The setting, and what is wrong with it.
    pub(crate) fn check_hysteresis(&self, slice: Bytes) -> Result<(), (&'static str, String)> {
        let marks = self.levels(slice);
        let size = slice.0 as f64 / Bytes::MIB.0 as f64;
        for (low_name, low, high_name, high) in [
            ("free_low_mib", marks.free_low, "free_high_mib", marks.free_high),
            (
                "cache_free_low_mib",
                marks.cache_free_low,
                "cache_free_high_mib",
                marks.cache_free_high,
            ),
        ] {
            if high <= low + size {
                let message = format!(
                    "{high_name} is {high} and {low_name} {low}: {high_name} \
                     must be above {low_name} plus the size of a slice ({size} MiB), or waking a \
                     slice would at once be a reason to switch one off"
                );
                return Err((high_name, message));
            }
        }
        if let Some(least) = self.cache_free_low_least_mib
            && least > marks.cache_free_low
        {
            let message = format!(
                "cache_free_low_least_mib is {least}: CACHE_FREE_LOW begins at {} MiB, and the \
                 least must not be above it",
                marks.cache_free_low
            );
            return Err(("cache_free_low_least_mib", message));
        }
        if let Some(most) = self.cache_free_high_most_mib
            && most < marks.cache_free_high
        {
            let message = format!(
                "cache_free_high_most_mib is {most}: CACHE_FREE_HIGH begins at {} MiB, and the \
                 most must not be below it",
                marks.cache_free_high
            );
            return Err(("cache_free_high_most_mib", message));
        }
        Ok(())
    }

    /// Time between two looks.
    pub fn timeout(&self) -> Duration {
        seconds(self.timeout_seconds.unwrap_or(30.0))
    }
}

/// MiB of a setting in pages.
pub(crate) fn pages(mib: f64, page: Bytes) -> Pages {
    Pages((mib * Bytes::MIB.0 as f64 / page.0 as f64) as u64)
}
