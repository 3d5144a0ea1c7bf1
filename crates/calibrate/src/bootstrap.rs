//! Intervals by resampling.

use serde::{Deserialize, Serialize};

/// The middle 95% of what resampling gave.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct BootstrapInterval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
}

/// From the 2.5th to the 97.5th percentile.
pub(crate) fn interval(values: &mut [f64]) -> BootstrapInterval {
    values.sort_by(f64::total_cmp);
    let at = |share: f64| {
        let last = values.len().saturating_sub(1);
        values.get((share * last as f64).round() as usize).copied().unwrap_or(0.0)
    };
    BootstrapInterval { low: at(0.025), high: at(0.975) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_holds_the_middle() {
        let mut values: Vec<f64> = (0..=1000).map(f64::from).collect();
        assert_eq!(interval(&mut values), BootstrapInterval { low: 25.0, high: 975.0 });
    }
}
