//! Recordings: what a machine's slices, allocator and statistics did over time, as Parquet files.
//!
//! A recording is a directory with one directory for each [`Table`], which holds parts:
//! `DIR/snapshots/part-000000.parquet` and so on. A flush writes one part of every table under
//! the same number, each to a temporary name, synced and then renamed, so that a kill at any
//! moment loses what was not flushed yet and nothing else. `DIR/recording.json` says what was
//! recorded and, once it is over, how it ended.
//!
//! [`Recorder`] writes, [`Recording`] reads and checks. Column names carry their unit; the
//! columns of each table are the fields of its row type in [`rows`].

mod about;
mod cache_use;
mod clock;
mod counting;
mod error;
mod figures;
mod part;
mod reader;
mod recorder;
mod replay;
mod row;
pub mod rows;
mod stored;
mod trace;
mod writer;

pub use about::{About, Ended, Platform};
pub use clock::Clocks;
pub use error::{ReadError, WriteError};
pub use reader::{Findings, Located, Recording, Rows};
pub use recorder::{EventsSource, MOST_PART_AGE, Options, Recorder, Sources, Summary};
pub use replay::Machines;
pub use row::{Row, Wall};
pub use rows::Table;
pub use writer::Batch;

/// Version of the tables. Raised when a column goes or changes its meaning; readers skip columns
/// that they do not know.
pub const SCHEMA_VERSION: u32 = 1;
