//! The data model of ramslice: slices, what the kernel reports about them, and requests.
//!
//! This crate does no I/O. Everything that reads a kernel, replays a file or simulates a
//! machine implements [`Backend`]; everything that decides or draws works on the plain data
//! here. The same types, serialised, are the JSON that `ramslice --json` prints: field names
//! carry their unit (`_bytes`, `_pages`, `_us`, `_100cycles`).

mod allocation_site;
mod backend;
mod cache_lookups;
mod contents;
mod contents_summary;
mod counters;
mod interleave;
mod machine_state;
mod memory_takers;
mod page_census;
mod parse;
mod physical;
mod price;
mod random;
mod reason;
mod request;
mod segments;
mod slice;
mod slice_totals;
mod units;
mod work_counters;

pub use allocation_site::{AllocationSite, PageAllocation, SiteProcess};
pub use backend::{Backend, BackendError, BackendErrorKind, MemoryHeadroom, zones_are_short};
pub use cache_lookups::{
    CacheLookups, CacheRatios, LookupWindow, MIN_LOOKUPS, RatioUnknown, RefaultDistances,
};
pub use contents::{
    CgroupName, ContentsDetail, DeviceNumber, FileId, FileName, PageClass, PageFate, PageFlag,
    PageFlags, PageRun, SliceContents,
};
pub use contents_summary::{ContentsSummary, OwnerPages, PageGroup};
pub use counters::{PageComposition, PageKind, SliceCounters};
pub use interleave::{Interleave, SliceExtents};
pub use machine_state::{BackendInfo, MachineState, SCHEMA_VERSION, SliceSnapshot, Zone};
pub use memory_takers::{BufferBooks, HugePageNode, HugePagePool};
pub use page_census::{
    CensusTotals, PageCensus, PageCounts, SECTION_BYTES, SliceCensus, ZoneCensus,
};
pub use parse::{ParseError, SliceRanges, parse_bytes, parse_duration};
pub use physical::{
    Cycles, GibSeconds, Gibibytes, Hertz, Joules, JoulesPerCycle, PhysicalQuantity, Ratio, Seconds,
    UnitProduct, Watts, WattsPerGib, Worth, WorthPerGib, WorthPerGibSecond, WorthPerSecond,
};
pub use price::{Budget, PriceParameter};
pub use random::SplitMix64;
pub use reason::Reason;
pub use request::{CacheChoice, Request, RequestOp, RequestOutcome};
pub use segments::{Segment, SliceSizes};
pub use slice::{Slice, SliceState};
pub use slice_totals::{SliceTotals, StateCount};
pub use units::{Bytes, NodeId, Pages, Pfn, Price, SliceId, ZoneIndex, ZoneNumber, duration_us};
pub use work_counters::WorkCounters;
