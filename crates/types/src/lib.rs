//! The words of ramslice as types: what a slice is, what the kernel says of it, what can be asked.
//!
//! This crate does no I/O. Everything that reads a kernel, replays a file or simulates a
//! machine implements [`Backend`]; everything that decides or draws works on the plain data
//! here. The same types, serialised, are the JSON that `ramslice --json` prints: field names
//! carry their unit (`_bytes`, `_pages`, `_us`, `_100cycles`).

mod allocation_site;
mod backend;
mod contents;
mod contents_summary;
mod counters;
mod machine_state;
mod page_census;
mod parse;
mod physical;
mod price;
mod random;
mod reason;
mod request;
mod slice;
mod slice_totals;
mod units;
mod work_counters;

pub use allocation_site::{Allocation, Site, SiteProcess};
pub use backend::{Backend, BackendError, ErrorKind, Headroom};
pub use contents::{
    CgroupName, Contents, Detail, DeviceNumber, Fate, FileId, FileName, PageClass, PageFlag,
    PageFlags, PageRun,
};
pub use contents_summary::{Group, Holding, Holdings};
pub use counters::{Composition, Counters, Kind};
pub use machine_state::{Info, Machine, SCHEMA_VERSION, Snapshot, Zone};
pub use page_census::{
    CensusTotals, CountedSlice, PageCensus, PageCounts, SECTION_BYTES, ZoneCensus,
};
pub use parse::{ParseError, SliceRanges, parse_bytes, parse_duration};
pub use physical::{
    Cycles, GibSeconds, Gibibytes, Hertz, Joules, JoulesPerCycle, Quantity, Ratio, Seconds, Times,
    Watts, WattsPerGib,
};
pub use price::{Budget, PriceParameter};
pub use random::Random;
pub use reason::Reason;
pub use request::{CacheChoice, Op, Outcome, Request};
pub use slice::{Slice, SliceState};
pub use slice_totals::{Census, StateCount};
pub use units::{Bytes, NodeId, Pages, Pfn, Price, SliceId, ZoneIndex, ZoneNumber, duration_us};
pub use work_counters::Work;
