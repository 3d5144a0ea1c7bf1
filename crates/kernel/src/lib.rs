//! The sole reader and writer of ramslice's kernel files.
//!
//! [`KernelBackend`] speaks to `/dev/ramslice` and `/sys/kernel/mm/ramslice`;
//! [`ReplayBackend`] answers from a file saved by `ramslice status --json`. Both implement
//! [`ramslice_types::Backend`]. The layout of the kernel's structures is in [`uapi`], which a
//! test compares with the C header; unsafe code is confined to [`sys`].

mod backend;
mod contents;
mod convert;
mod device;
mod error;
mod names;
mod page_owner;
mod paths;
mod replay;
pub mod sys;
mod sysfs;
pub mod uapi;

pub use backend::KernelBackend;
pub use error::{Access, Error, ReplayError};
pub use paths::Paths;
pub use replay::ReplayBackend;
