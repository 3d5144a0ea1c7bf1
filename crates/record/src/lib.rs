//! Recordings: what a machine's slices, allocator and statistics did over time, as Parquet files.
//!
//! A recording is a directory with one directory for each [`RecordingTable`], which holds parts:
//! `DIR/snapshots/part-000000.parquet` and so on. A flush writes one part of every table under
//! the same number, each to a temporary name, synced and then renamed, so that a kill at any
//! moment loses what was not flushed yet and nothing else. `DIR/recording.json` says what was
//! recorded and, once it is over, how it ended.
//!
//! [`Recorder`] writes, [`Recording`] reads and checks. Column names carry their unit; the
//! columns of each table are the fields of its row type in [`tables`].

mod added_rows;
mod cache_use;
mod census_rows;
mod clock;
mod daemon_watermarks;
mod error;
mod filesystem_usage;
mod page_cache;
mod part;
mod proc_statistics;
mod reader;
mod recorder;
mod recording_dir;
mod recording_info;
mod recording_part;
mod replay;
mod reuse;
mod schema;
mod snapshot_rows;
mod table_rows;
pub mod tables;
mod trace;
mod trace_instance;
mod writer;

pub use clock::ClockReading;
pub use daemon_watermarks::MOVE_NOTE;
pub use error::{ReadError, WriteError};
pub use page_cache::{PageCacheSample, PageCacheSamples};
pub use reader::{CheckFindings, Recording};
pub use recorder::{
    EventsSource, KernelPaths, MOST_PART_AGE, Recorder, RecorderOptions, RecordingSummary,
};
pub use recording_info::{PlatformInfo, RecordingEnd, RecordingInfo};
pub use replay::RecordedMachines;
pub use reuse::{ReuseError, ReuseOptions};
pub use schema::{TableRow, WallTime};
pub use table_rows::{LocatedRow, TableRows};
pub use tables::RecordingTable;
pub use trace_instance::{TraceError, TraceInstance, TraceLine, lost_events};
pub use writer::RowBatch;

/// Version of the tables. Raised when a column goes or changes its meaning; readers skip columns
/// that they do not know.
pub const SCHEMA_VERSION: u32 = 1;
