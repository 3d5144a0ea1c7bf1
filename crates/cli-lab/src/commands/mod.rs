//! One file or folder for each command: its arguments, its help, what it does.

pub(crate) mod advise;
pub(crate) mod calibrate;
pub(crate) mod dump;
pub(crate) mod fragment;
pub(crate) mod hit_ratio;
pub(crate) mod profile_worth;
pub(crate) mod profiles;
pub(crate) mod ramp;
pub(crate) mod record;
pub(crate) mod recorded;
pub(crate) mod report;
pub(crate) mod sim;
