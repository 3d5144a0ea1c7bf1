//! Policies: what to switch off and what to wake, from what is seen of a machine.
//!
//! A [`Policy`] takes an [`Observation`] and gives a [`Decision`]: requests, and why. This crate is pure: no clock, no
//! I/O, and the same observations give the same decisions. The same policies drive a kernel, a simulator and a replay.
//!
//! [`model`] is the cost model in one dimension by which policies are judged, [`clairvoyant`] the most that anybody
//! could earn in it, and [`bench`] runs a policy there.

mod any_policy;
pub mod bench;
pub mod clairvoyant;
mod config;
mod decision;
mod decision_reason;
mod economics;
mod governor;
pub mod model;
mod never;
mod observation;
mod periodic;
mod repair;
mod threshold;
mod toml_text;
mod tuning;
mod watermarks;

pub use any_policy::{AnyPolicy, RestoreError, STATE_VERSION, Saved};
pub use config::{Config, ConfigError, PolicyKind, UnknownPolicy};
pub use decision::{Decision, Forecast, Policy};
pub use decision_reason::Why;
pub use economics::{Economics, EconomicsError};
pub use governor::Governor;
pub use never::Never;
pub use observation::{Event, Needs, Observation, Row, Totals, WakeCause};
pub use periodic::Periodic;
pub use repair::Repair;
pub use threshold::Threshold;
pub use tuning::{Tuned, tune};
pub use watermarks::Watermarks;

/// Settings of each policy.
pub mod settings {
    pub use crate::config::{
        Candidates, CostBasis, Governor, Limit, Periodic, Repair, Threshold, Watermarks,
    };
    pub use crate::toml_text::{allowed, explain, spans, utf8};
}
