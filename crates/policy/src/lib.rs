//! Policies: decide from observations of a machine which slices to switch off and which to wake.
//!
//! A [`Policy`] takes an [`Observation`] and gives a [`PolicyDecision`]: requests, and why. This
//! crate is pure: no clock, no I/O, and the same observations give the same decisions. The same
//! policies drive a kernel, a simulator and a replay.
//!
//! [`model`] is the cost model in one dimension by which policies are judged, [`clairvoyant`] the
//! most that any policy could earn in it, and [`bench`] runs a policy there.

mod any_policy;
pub mod bench;
pub mod clairvoyant;
mod cold_steering;
mod config;
mod decision;
mod decision_reason;
mod economics;
mod governor;
mod hit_ratio;
mod idle_cache;
mod limits;
mod limits_policy;
mod memory_takers;
pub mod model;
mod never;
mod observation;
mod periodic;
mod repair;
mod request_backoff;
mod rest_economics;
mod threshold;
mod toml_text;
mod tuning;
mod watermarks;
mod watermarks_config;

pub use any_policy::{AnyPolicy, RestoreError, STATE_VERSION, SavedPolicy};
pub use cold_steering::{
    ColdLimits, ColdPairView, ColdPause, ColdPlan, ColdRates, ColdSteering, ColdView,
};
pub use config::{PolicyConfig, PolicyConfigError, PolicyKind, UnknownPolicy};
pub use decision::{CacheMarks, DemandForecast, MarkMove, Policy, PolicyDecision, RequestSequence};
pub use decision_reason::DecisionReason;
pub use economics::{EconomicsError, GranuleLayout, SliceEconomics};
pub use governor::GovernorPolicy;
pub use idle_cache::{CacheCounts, IdleCacheConfig, IdleCachePolicy, IdleCacheReason, TaskLoad};
pub use limits::TenantLimits;
pub use limits_policy::LimitsPolicy;
pub use memory_takers::{
    HugePageWish, OfflineTaker, PoolAction, PoolBook, PoolDecision, TakerReason, TakerValues,
    TakersConfig, TakersObservation,
};
pub use never::NeverPolicy;
pub use observation::{
    MachineTotals, Observation, ObservationNeeds, PolicyEvent, SliceRow, WakeCause,
};
pub use periodic::PeriodicPolicy;
pub use repair::RepairPolicy;
pub use rest_economics::RestEconomics;
pub use threshold::ThresholdPolicy;
pub use tuning::{TunedWatermarks, tune};
pub use watermarks::WatermarksPolicy;

/// Settings of each policy.
pub mod settings {
    pub use crate::config::{
        BudgetLimit, CandidateRule, CostBasis, GovernorConfig, PeriodicConfig, RepairConfig,
        ThresholdConfig,
    };
    pub use crate::limits::LimitsConfig;
    pub use crate::toml_text::{allowed, explain, spans, utf8};
    pub use crate::watermarks_config::WatermarksConfig;
}
