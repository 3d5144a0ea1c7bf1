//! The sole reader and writer of ramslice's kernel files.
//!
//! [`PatchedBackend`] speaks to `/dev/ramslice` and `/sys/kernel/mm/ramslice`; [`HotplugBackend`]
//! does the same on a kernel without ramslice, by memory hotplug; [`ReplayBackend`] answers from a
//! file saved by `ramslice status --json`; [`WhatIfBackend`] works out what requests to another one
//! would do. All implement [`ramslice_types::Backend`]. The layout of
//! the kernel's structures is in [`uapi`], which a test compares with the C header; unsafe code is
//! confined to [`sys`].

mod buffers;
mod cold_memory;
mod cold_nodes;
mod cold_preference;
mod damon;
mod error;
mod file_systems;
mod guest_memory;
mod hotplug;
mod huge_page_last_resort;
mod huge_page_making;
mod huge_page_place;
#[cfg(test)]
mod huge_page_test_backend;
mod huge_pages;
mod object_caches;
mod open_backend;
mod page_owner_fault;
mod patched;
mod process_memory;
mod readers;
mod replay;
pub mod sys;
mod whatif;

pub use cold_memory::{ColdError, ColdMemory, ColdMode, ColdNode, ColdState};
pub use cold_nodes::{ColdNodes, ColdPair, NodeMemory};
pub use cold_preference::{ColdPreference, ColdSource, PreferenceError};
pub use damon::{
    AccessSampling, ControlGroup, DamonError, DamonFiles, KdamondPlan, MigrateAction,
    MigrateScheme, SampledRegion, SchemeStats,
};
pub use error::{FileAccess, KernelError, ReplayError};
pub use file_systems::write_out_file_systems;
pub use guest_memory::{GuestMemory, GuestMemoryUse, ReclaimError, ReclaimedCache};
#[cfg(any(test, feature = "fake"))]
pub use hotplug::FakeMachine;
pub use hotplug::{FrameUse, FrameUses, GuardAction, HotplugBackend, HotplugGuard, WokenBy};
pub use huge_page_last_resort::{
    LastResortActions, LastResortReport, ShrinkRound, StayingPages, make_by_shrinking,
    ranges_kept_by_objects,
};
pub use huge_page_making::{HugePageRange, cheapest_first, huge_page_ranges, make_huge_page};
pub use huge_page_place::HugePagePlace;
pub use object_caches::{ObjectCaches, ShrinkStep, SlabPages};
pub use open_backend::{BackendKind, open_backend};
pub use page_owner_fault::page_owner_danger;
pub use patched::{PatchedBackend, uapi};
pub use process_memory::{MappedFile, ProcessMapping, ProcessMemory, ProcessMemoryError};
pub use readers::{
    BlockPower, BlockSwitches, DramSegment, KernelPaths, MemOffline, PowerDomain, ProcessorKind,
    SlicePower, SwitchTimes, VmstatCounters, file_refault_distances, mem_offline, power_domains,
};
pub use replay::ReplayBackend;
pub use whatif::{WhatIfBackend, WhatIfMemory, ZoneKey};
