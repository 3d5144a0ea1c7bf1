//! The patched kernel: `/dev/ramslice`, its structures, and the counters it keeps of its work.

mod backend;
mod contents;
mod convert;
mod device;
pub mod uapi;
mod uapi_bindings;
mod work_counters;

pub use backend::PatchedBackend;
