//! Any of the policies, chosen by settings, with state that can be saved and restored.

use ramslice_energy::WorthUnit;
use ramslice_types::Bytes;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{PolicyConfig, PolicyConfigError, PolicyKind};
use crate::decision::{Policy, PolicyDecision};
use crate::economics::SliceEconomics;
use crate::governor::GovernorPolicy;
use crate::limits::TenantLimits;
use crate::limits_policy::LimitsPolicy;
use crate::never::NeverPolicy;
use crate::observation::{Observation, ObservationNeeds};
use crate::periodic::PeriodicPolicy;
use crate::repair::RepairPolicy;
use crate::threshold::ThresholdPolicy;
use crate::watermarks::WatermarksPolicy;

/// The version of saved states. Raised whenever a state's fields change their meaning or go; other
/// versions are refused. A field that is added has a default.
pub const STATE_VERSION: u32 = 4;

/// One of the policies with its state.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", tag = "policy", content = "state")]
pub enum AnyPolicy {
    /// [`PolicyKind::Never`].
    Never(NeverPolicy),
    /// [`PolicyKind::Periodic`].
    Periodic(PeriodicPolicy),
    /// [`PolicyKind::Watermarks`].
    Watermarks(WatermarksPolicy),
    /// [`PolicyKind::Threshold`].
    Threshold(ThresholdPolicy),
    /// [`PolicyKind::Repair`].
    Repair(RepairPolicy),
    /// [`PolicyKind::Governor`].
    Governor(Box<GovernorPolicy>),
    /// [`PolicyKind::Governor`] without a profile.
    Limits(LimitsPolicy),
}

impl AnyPolicy {
    /// The policy of `config`, on a machine with slices and pages of these sizes. Without
    /// economics, the governor goes by the tenant's limits alone.
    ///
    /// # Errors
    /// If the settings are wrong, also for this size of slices.
    pub fn new<'a>(
        config: &PolicyConfig,
        economics: impl Into<Option<&'a SliceEconomics>>,
        slice: Bytes,
        page: Bytes,
    ) -> Result<Self, PolicyConfigError> {
        config.check(slice)?;
        Ok(match config.policy {
            PolicyKind::Never => Self::Never(NeverPolicy),
            PolicyKind::Periodic => Self::Periodic(PeriodicPolicy::new(config.periodic.clone())),
            PolicyKind::Watermarks => {
                Self::Watermarks(WatermarksPolicy::new(&config.watermarks, slice, page))
            }
            PolicyKind::Threshold => {
                Self::Threshold(ThresholdPolicy::new(config.threshold.clone()))
            }
            PolicyKind::Repair => Self::Repair(RepairPolicy::new(config.repair.clone())),
            PolicyKind::Governor => match economics.into() {
                Some(economics) => {
                    let limits = TenantLimits::new(&config.limits, economics.worth_unit, page);
                    let governor = GovernorPolicy::new(config.governor.clone(), *economics);
                    Self::Governor(Box::new(governor.within(limits)))
                }
                None => {
                    let limits = TenantLimits::new(&config.limits, WorthUnit::GibHour, page);
                    Self::Limits(LimitsPolicy::new(limits))
                }
            },
        })
    }

    /// Its state, to be written to a file and restored in a later run.
    pub fn save(&self) -> SavedPolicy {
        SavedPolicy { state_version: STATE_VERSION, policy: self.clone() }
    }

    /// Keeps what was learned about demand, and forgets what was earned and spent; see
    /// [`GovernorPolicy::settle`].
    pub fn settle(&mut self) {
        if let Self::Governor(governor) = self {
            governor.settle();
        }
    }

    /// See [`GovernorPolicy::forget_dropped`]; other policies expect nothing back.
    pub fn forget_dropped(&mut self) {
        if let Self::Governor(governor) = self {
            governor.forget_dropped();
        }
    }

    /// Pages of cache that may come back unnoticed, of a policy that expects that: it compares
    /// look-ups with them and with the cache of its zone, and wants the zone's share of look-ups.
    pub fn untraced_pages(&self) -> Option<f64> {
        if let Self::Governor(governor) = self { Some(governor.untraced_pages()) } else { None }
    }

    /// See [`GovernorPolicy::windows`]; 0 for other policies, which put nothing at risk that is
    /// limited.
    pub fn risk_windows(&self) -> u64 {
        if let Self::Governor(governor) = self { governor.windows() } else { 0 }
    }

    /// Takes the limits of another, which may have been changed since this one was saved: limits
    /// are set, not learned.
    pub fn take_limits(&mut self, other: &Self) {
        match (self, other) {
            (Self::Governor(to), Self::Governor(from)) => to.limits.set(&from.limits),
            (Self::Limits(to), Self::Limits(from)) => to.limits.set(&from.limits),
            _ => {}
        }
    }

    fn inner(&self) -> &dyn Policy {
        match self {
            Self::Never(policy) => policy,
            Self::Periodic(policy) => policy,
            Self::Watermarks(policy) => policy,
            Self::Threshold(policy) => policy,
            Self::Repair(policy) => policy,
            Self::Governor(policy) => policy.as_ref(),
            Self::Limits(policy) => policy,
        }
    }
}

impl Policy for AnyPolicy {
    fn kind(&self) -> PolicyKind {
        self.inner().kind()
    }

    fn needs(&self) -> ObservationNeeds {
        self.inner().needs()
    }

    fn step(&mut self, seen: &Observation<'_>) -> PolicyDecision {
        match self {
            Self::Never(policy) => policy.step(seen),
            Self::Periodic(policy) => policy.step(seen),
            Self::Watermarks(policy) => policy.step(seen),
            Self::Threshold(policy) => policy.step(seen),
            Self::Repair(policy) => policy.step(seen),
            Self::Governor(policy) => policy.step(seen),
            Self::Limits(policy) => policy.step(seen),
        }
    }
}

/// A policy's state, versioned. Times in it are those of the observations, so the clock must go on
/// where it was.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SavedPolicy {
    state_version: u32,
    #[serde(flatten)]
    policy: AnyPolicy,
}

/// What every version has.
#[derive(Deserialize)]
struct SavedHeader {
    state_version: u32,
}

/// A saved state that cannot be restored.
#[derive(Debug, Error)]
pub enum RestoreError {
    /// Not what was written.
    #[error("the saved state cannot be read: {0}; remove it, and the policy learns again")]
    Damaged(#[from] serde_json::Error),
    /// Of another version.
    #[error(
        "the saved state has version {found}, these tools know {STATE_VERSION}: remove it, and \
         the policy learns again"
    )]
    Version {
        /// The version that it has.
        found: u32,
    },
    /// Of another policy.
    #[error(
        "the saved state is of the policy {found}, not {expected}: remove it, or choose that policy"
    )]
    Kind {
        /// The policy that it is of.
        found: PolicyKind,
        /// The policy that was chosen.
        expected: PolicyKind,
    },
}

impl SavedPolicy {
    /// As text, one line of JSON.
    pub fn to_text(&self) -> String {
        serde_json::to_string(self).expect("names are text and numbers are finite")
    }

    /// Reads what [`Self::to_text`] wrote: the policy as it was, if it is of this kind.
    ///
    /// # Errors
    /// If it is damaged, or of another version or policy.
    pub fn restore(text: &str, expected: PolicyKind) -> Result<AnyPolicy, RestoreError> {
        // Another version may have other fields: naming the version says more than naming a missing
        // field.
        let SavedHeader { state_version: found } = serde_json::from_str(text)?;
        if found != STATE_VERSION {
            return Err(RestoreError::Version { found });
        }
        let Self { policy, .. } = serde_json::from_str(text)?;
        match policy.kind() {
            found if found != expected => Err(RestoreError::Kind { found, expected }),
            _ => Ok(policy),
        }
    }
}
