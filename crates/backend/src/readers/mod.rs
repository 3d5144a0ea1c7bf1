//! Readers of the kernel's other files, which both backends use: sysfs, page owners, energy meters,
//! a vendor's DRAM segments, mounts, counters of `/proc/vmstat`, and the names of what pages hold.

mod mem_offline;
pub(crate) mod mounts;
pub(crate) mod numa;
pub(crate) mod page_names;
pub(crate) mod page_owner;
mod paths;
mod powercap;
mod processor;
pub(crate) mod sysfs;
mod vmstat;

pub use mem_offline::{
    BlockPower, BlockSwitches, DramSegment, MemOffline, SlicePower, SwitchTimes, mem_offline,
};
pub use paths::KernelPaths;
pub use powercap::{PowerDomain, power_domains};
pub use processor::ProcessorKind;
pub use vmstat::{VmstatCounters, file_refault_distances};
