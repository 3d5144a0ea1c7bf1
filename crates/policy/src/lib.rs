//! Policies: what to switch off and what to wake, from what is seen of a machine.
//!
//! A [`Policy`] takes an [`Observation`] and gives a [`Decision`]: requests, and why. This crate is pure: no clock, no
//! I/O, and the same observations give the same decisions. The same policies drive a kernel, a simulator and a replay.

pub mod clairvoyant;
mod config;
mod decide;
mod economics;
pub mod model;
mod never;
mod observe;
mod periodic;
mod why;

pub use config::{Limit, PolicyKind};
pub use decide::{Decision, Forecast, Policy};
pub use economics::{Economics, EconomicsError};
pub use never::Never;
pub use observe::{Event, Needs, Observation, Row, Totals, WakeCause};
pub use periodic::Periodic;
pub use why::Why;

/// Settings of each policy.
pub mod settings {
    pub use crate::config::Periodic;
}
