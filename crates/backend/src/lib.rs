//! The sole reader and writer of ramslice's kernel files.
//!
//! [`PatchedBackend`] speaks to `/dev/ramslice` and `/sys/kernel/mm/ramslice`; [`HotplugBackend`] does the same on a
//! kernel without ramslice, by memory hotplug; [`ReplayBackend`] answers from a file saved by `ramslice status --json`.
//! All implement [`ramslice_types::Backend`]. The layout of the kernel's structures is in [`uapi`], which a
//! test compares with the C header; unsafe code is confined to [`sys`].

mod error;
mod hotplug;
mod open_backend;
mod patched;
mod readers;
mod replay;
pub mod sys;

pub use error::{Access, Error, ReplayError};
#[cfg(any(test, feature = "fake"))]
pub use hotplug::Fake;
pub use hotplug::{
    Guard, HotplugBackend, Loss, Margins, Pressure, Room, STALL_FLOORS, Size, WokenBy,
    keeps_reserves,
};
pub use open_backend::{BackendKind, open_backend};
pub use patched::{PatchedBackend, uapi};
pub use readers::{Paths, PowerDomain, Processor, power_domains};
pub use replay::ReplayBackend;
