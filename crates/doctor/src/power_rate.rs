//! The power that powering down saves: a figure per GiB, times the memory.

use std::str::FromStr;

use ramslice_types::Bytes;
use serde::Serialize;
use thiserror::Error;

/// Power saved per GiB that is powered down, from one figure to another.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct MwPerGib {
    low_mw_per_gib: f64,
    high_mw_per_gib: f64,
}

/// Text that is no such interval.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{0}` is no interval of mW per GiB: expected LOW-HIGH as in 0-9.19, neither negative, LOW at \
     most HIGH"
)]
pub struct MwPerGibError(String);

impl MwPerGib {
    /// `None` for figures that are negative, inverted or not finite.
    pub fn new(low: f64, high: f64) -> Option<Self> {
        (low.is_finite() && high.is_finite() && 0.0 <= low && low <= high)
            .then_some(Self { low_mw_per_gib: low, high_mw_per_gib: high })
    }
}

impl FromStr for MwPerGib {
    type Err = MwPerGibError;

    /// `LOW-HIGH`, or one figure that is both.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // No minus sign and no exponent: 1e-3 would be taken for an interval.
        let figure = |text: &str| {
            let text = text.trim();
            let plain =
                !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
            plain.then(|| text.parse::<f64>().ok()).flatten()
        };
        let (low, high) = text.split_once('-').unwrap_or((text, text));
        figure(low)
            .zip(figure(high))
            .and_then(|(low, high)| Self::new(low, high))
            .ok_or_else(|| MwPerGibError(text.to_owned()))
    }
}

/// Power saved, from one figure to another.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct PowerSaving {
    /// At least.
    pub low_mw: f64,
    /// At most.
    pub high_mw: f64,
    /// Where the figures come from.
    pub source: &'static str,
}

impl PowerSaving {
    /// Memory times a figure.
    pub fn at(rate: MwPerGib, low: Bytes, high: Bytes) -> Self {
        let gib = |bytes: Bytes| bytes.0 as f64 / (1u64 << 30) as f64;
        Self {
            low_mw: gib(low) * rate.low_mw_per_gib,
            high_mw: gib(high) * rate.high_mw_per_gib,
            source: "the given figure per GiB",
        }
    }

    /// By the firmware's own figures. They are relative to average power under load; unused memory
    /// draws less already, so they are the high end only.
    pub fn of_firmware(high_mw: u64) -> Self {
        Self {
            low_mw: 0.0,
            high_mw: high_mw as f64,
            source: "firmware (ACPI MPST), against average power at work",
        }
    }

    /// Joules an hour, low and high.
    pub fn joules_per_hour(&self) -> (f64, f64) {
        // 1 mW for 3600 s.
        (self.low_mw * 3.6, self.high_mw * 3.6)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_read_and_nonsense_is_refused() {
        assert_eq!("0-9.19".parse(), Ok(MwPerGib { low_mw_per_gib: 0.0, high_mw_per_gib: 9.19 }));
        assert_eq!("16".parse(), Ok(MwPerGib { low_mw_per_gib: 16.0, high_mw_per_gib: 16.0 }));
        for text in ["", "-", "9-", "-9", "9-3", "a-b", "1e-3", "inf", "0-nan", "1-2-3", "1.2.3"] {
            assert!(text.parse::<MwPerGib>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_saving_is_memory_times_the_figure() {
        let saving = PowerSaving::at("2-4".parse().unwrap(), Bytes(1 << 30), Bytes(3 << 29));
        assert!(
            (saving.low_mw - 2.0).abs() < 1e-9 && (saving.high_mw - 6.0).abs() < 1e-9,
            "{saving:?}"
        );
        assert!((saving.joules_per_hour().1 - 21.6).abs() < 1e-9);
    }
}
