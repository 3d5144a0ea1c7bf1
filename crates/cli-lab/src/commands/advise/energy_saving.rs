//! What memory that is not needed saves, by a profile.

use anyhow::Result;
use ramslice_cli::profile_files;
use ramslice_energy::{Interval, WorthProfile, range};
use ramslice_types::{Bytes, GibSeconds, Gibibytes, PhysicalQuantity, Watts};
use serde::Serialize;

use super::usage;

const SECONDS_PER_HOUR: f64 = 3600.0;
const BYTES_PER_GIB: f64 = (1u64 << 30) as f64;

/// What is saved while it is off.
#[derive(Debug, Serialize)]
pub(super) struct EnergySaving {
    /// The profile's name.
    pub(super) profile: String,
    /// As text, with its unit.
    pub(super) saved: String,
    /// The power; nothing of a profile in another unit.
    watts: Option<Interval<Watts>>,
}

/// A profile of either kind.
pub(super) struct SavingProfile(WorthProfile);

/// The profile of this name.
///
/// # Errors
/// If there is none, if it is wrong, or says nothing of what a GiB saves.
pub(super) fn load(name: &str) -> Result<SavingProfile> {
    let profile = SavingProfile(profile_files::load_any(name)?);
    if profile.saving(Bytes(1 << 30)).is_none() {
        let text = format!(
            "{name} does not say what a GiB saves: name another of `ramslice-lab profiles`"
        );
        return Err(usage(text).into());
    }
    Ok(profile)
}

impl SavingProfile {
    /// What so much memory saves.
    pub(super) fn saving(&self, saved: Bytes) -> Option<EnergySaving> {
        let gib = Gibibytes(saved.0 as f64 / BYTES_PER_GIB);
        match &self.0 {
            WorthProfile::Power(profile) => {
                let state = profile_files::state(profile, None).ok()?;
                let watts = state.saving_by_packing()?.times(Interval::exactly(gib));
                Some(EnergySaving {
                    profile: profile.name.clone(),
                    saved: range(watts),
                    watts: Some(watts),
                })
            }
            WorthProfile::Giveback(profile) => {
                let hour = GibSeconds(gib.0 * SECONDS_PER_HOUR);
                let worth = profile.memory.value?.times(Interval::exactly(hour));
                let (low, high) = (worth.low().get(), worth.high().get());
                let number = if (high - low).abs() < f64::EPSILON {
                    format!("{low:.4}")
                } else {
                    format!("{low:.4}..{high:.4}")
                };
                Some(EnergySaving {
                    profile: profile.name.clone(),
                    saved: format!("{number} {} an hour", profile.unit),
                    watts: None,
                })
            }
        }
    }
}
