//! Which settings of a policy are tried.

use ramslice_policy::settings::{BudgetLimit, CandidateRule};
use ramslice_policy::{PolicyConfig, PolicyKind};
use ramslice_types::{Budget, Bytes};

/// A policy, and the settings that it may choose the best of on each input.
#[derive(Debug, Clone, PartialEq)]
pub struct PolicyCandidate {
    /// The policy.
    pub kind: PolicyKind,
    /// Its settings; the first are its defaults.
    pub settings: Vec<PolicyConfig>,
}

impl PolicyCandidate {
    /// With its defaults only.
    pub fn defaults(kind: PolicyKind) -> Self {
        Self { kind, settings: vec![PolicyConfig::new(kind)] }
    }

    /// With its settings from a file.
    pub fn of(config: PolicyConfig) -> Self {
        Self { kind: config.policy, settings: vec![config] }
    }
}

/// Budgets of the thesis' figures 4.7 to 4.11, in units of 100 cycles; and no limit.
const BUDGETS: [Option<u64>; 8] = [
    Some(1_000_000),
    Some(2_000_000),
    Some(4_000_000),
    Some(8_000_000),
    Some(16_000_000),
    Some(32_000_000),
    Some(64_000_000),
    None,
];
const PERIODS_S: [f64; 3] = [30.0, 120.0, 600.0];
/// Free memory below which a slice wakes, and the distance to where one goes off, in slices.
const FREE_LOW: [f64; 4] = [0.5, 1.0, 2.0, 4.0];
const DISTANCE: [f64; 3] = [2.0, 4.0, 8.0];
const THRESHOLDS: [(f64, f64); 5] =
    [(0.5, 0.7), (0.6, 0.8), (0.7, 0.85), (0.75, 0.9), (0.85, 0.95)];
const MOST_SLICES: [u32; 2] = [2, 16];

/// A policy with a sweep over its settings, for slices of this size. What has nothing to tune has
/// its defaults.
pub fn sweep(kind: PolicyKind, slice: Bytes) -> PolicyCandidate {
    let mut contestant = PolicyCandidate::defaults(kind);
    let defaults = PolicyConfig::new(kind);
    let size = slice.0 as f64 / Bytes::MIB.0 as f64;
    match kind {
        PolicyKind::Periodic => {
            for period in PERIODS_S {
                for budget in BUDGETS {
                    let mut config = defaults.clone();
                    (config.periodic.period_seconds, config.periodic.budget) =
                        (period, BudgetLimit(budget));
                    contestant.settings.push(config);
                }
            }
        }
        PolicyKind::Watermarks => {
            for low in FREE_LOW {
                for distance in DISTANCE {
                    let mut config = defaults.clone();
                    let marks = &mut config.watermarks;
                    marks.free_low_mib = Some(low * size);
                    marks.free_high_mib = Some((low + distance) * size);
                    marks.cache_free_low_mib = Some((low + 1.0) * size);
                    marks.cache_free_high_mib = Some((low + 1.0 + distance) * size);
                    contestant.settings.push(config);
                }
            }
        }
        PolicyKind::Threshold => {
            for (low, high) in THRESHOLDS {
                for most in MOST_SLICES {
                    let mut config = defaults.clone();
                    (config.threshold.low, config.threshold.high) = (low, high);
                    config.threshold.max_slices = most;
                    contestant.settings.push(config);
                }
            }
        }
        PolicyKind::Repair => {
            for candidates in [CandidateRule::Price, CandidateRule::Paper] {
                for period in PERIODS_S {
                    let mut config = defaults.clone();
                    (config.repair.candidates, config.repair.period_seconds) = (candidates, period);
                    contestant.settings.push(config);
                }
            }
        }
        PolicyKind::Never | PolicyKind::Governor => {}
    }
    // Defaults may be part of the sweep: each setting once.
    let mut seen: Vec<PolicyConfig> = Vec::new();
    contestant.settings.retain(|config| {
        let new = !seen.contains(config);
        seen.push(config.clone());
        new
    });
    contestant
}

/// Settings in a few words.
pub(super) fn words(config: &PolicyConfig) -> String {
    match config.policy {
        PolicyKind::Never | PolicyKind::Governor => "defaults".to_owned(),
        PolicyKind::Periodic => {
            let budget: Budget = config.periodic.budget.into();
            format!("every {} s, budget {budget}", config.periodic.period_seconds)
        }
        PolicyKind::Watermarks => {
            match (config.watermarks.free_low_mib, config.watermarks.free_high_mib) {
                (Some(low), Some(high)) => format!("free {low} to {high} MiB"),
                _ => "defaults".to_owned(),
            }
        }
        PolicyKind::Threshold => format!(
            "{} to {}, {} slices at a time",
            config.threshold.low, config.threshold.high, config.threshold.max_slices
        ),
        PolicyKind::Repair => {
            let rule = match config.repair.candidates {
                CandidateRule::Price => "price",
                CandidateRule::Paper => "paper",
            };
            format!("by {rule}, every {} s", config.repair.period_seconds)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_are_as_many_settings_as_the_page_says() {
        let counts = PolicyKind::ALL.map(|kind| sweep(kind, Bytes(1 << 30)).settings.len());
        let page = include_str!("../../../../docs/how-to/simulate.md");
        for (kind, count) in PolicyKind::ALL.into_iter().zip(counts).filter(|(_, n)| *n > 1) {
            let words = page.split_whitespace().collect::<Vec<_>>().join(" ");
            let told = format!("{count} of `{kind}`");
            assert!(words.contains(&told), "{told} is not in docs/how-to/simulate.md");
        }
    }

    #[test]
    fn every_setting_of_a_sweep_is_allowed_and_there_once() {
        for slice in [Bytes(64 << 20), Bytes(1 << 30)] {
            for kind in PolicyKind::ALL {
                let contestant = sweep(kind, slice);
                assert_eq!(contestant.settings[0], PolicyConfig::new(kind));
                for (at, config) in contestant.settings.iter().enumerate() {
                    assert_eq!(config.check(slice), Ok(()));
                    assert!(!contestant.settings[..at].contains(config), "{config:?}");
                }
            }
        }
    }
}
