//! Settings of the policy `watermarks`, and the hysteresis rule.

use std::time::Duration;

use ramslice_types::Bytes;
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
}

/// The four watermarks as numbers, in MiB.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct WatermarkLevels {
    pub(crate) free_low: f64,
    pub(crate) free_high: f64,
    pub(crate) cache_free_low: f64,
    pub(crate) cache_free_high: f64,
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
                    "{high_name} is {high} and {low_name} {low}: hysteresis rule: {high_name} \
                     must be above {low_name} plus the size of a slice"
                );
                return Err((high_name, message));
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
                    "{high_name} is {high} and {low_name} {low}: hysteresis rule: {high_name} \
                     must be above {low_name} plus the size of a slice ({size} MiB), or waking a \
                     slice would at once be a reason to switch one off"
                );
                return Err((high_name, message));
            }
        }
        Ok(())
    }

    /// Time between two looks.
    pub fn timeout(&self) -> Duration {
        seconds(self.timeout_seconds.unwrap_or(30.0))
    }
}
