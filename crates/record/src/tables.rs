//! The tables: a struct for each, whose fields are the columns.
//!
//! Quantities are signed 64-bit numbers although none is negative: queries subtract them.
//! Prices above `i64::MAX` are kept as `i64::MAX`.

use std::fmt;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::Field;
use serde::Serialize;
use std::sync::Arc;

use crate::proc_statistics::StatisticLine;
use crate::schema::{ColumnText, ColumnValue, TableRow, WallTime, field, schema};

/// The tables of a recording, in the order in which a flush writes them.
///
/// Samples come last: where there is a row of that table, there are the rows that belong to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RecordingTable {
    /// [`Slice`]: one row per slice and sample.
    Snapshots,
    /// [`Zone`]: one row per zone and sample.
    Zones,
    /// [`Event`]: what happened between samples.
    Events,
    /// [`Meminfo`]: `/proc/meminfo` at each sample.
    Meminfo,
    /// [`Vmstat`]: `/proc/vmstat` at each sample.
    Vmstat,
    /// [`Census`]: one row per slice and sample with a census; only where one was asked for.
    Census,
    /// [`Sample`]: one row per sample.
    Samples,
}

impl RecordingTable {
    /// All of them, in the order in which a flush writes them.
    pub const ALL: [Self; 7] = [
        Self::Snapshots,
        Self::Zones,
        Self::Events,
        Self::Meminfo,
        Self::Vmstat,
        Self::Census,
        Self::Samples,
    ];

    /// Whether recordings may lack it: it is written on request only, and older recordings have
    /// none.
    pub fn is_optional(self) -> bool {
        self == Self::Census
    }

    /// The name of its directory.
    pub fn name(self) -> &'static str {
        match self {
            Self::Snapshots => "snapshots",
            Self::Zones => "zones",
            Self::Events => "events",
            Self::Meminfo => "meminfo",
            Self::Vmstat => "vmstat",
            Self::Census => "census",
            Self::Samples => "samples",
        }
    }

    /// Its columns.
    pub fn fields(self) -> Vec<Field> {
        match self {
            Self::Snapshots => Slice::fields(),
            Self::Zones => Zone::fields(),
            Self::Events => Event::fields(),
            Self::Meminfo => Meminfo::fields(),
            Self::Vmstat => Vmstat::fields(),
            Self::Census => Census::fields(),
            Self::Samples => Sample::fields(),
        }
    }
}

impl fmt::Display for RecordingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

macro_rules! table {
    (
        $(#[$doc:meta])*
        $row:ident in $table:ident, key $key:expr, wrong $wrong:expr;
        $($(#[$about:meta])* $name:ident: $ty:ty,)+
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
        pub struct $row {
            $($(#[$about])* pub $name: $ty,)+
        }

        impl TableRow for $row {
            const TABLE: RecordingTable = RecordingTable::$table;

            fn fields() -> Vec<Field> {
                vec![$(field::<$ty>(stringify!($name))),+]
            }

            fn batch(rows: &[Self]) -> RecordBatch {
                let columns: Vec<ArrayRef> =
                    vec![$(<$ty as ColumnValue>::column(rows.iter().map(|row| &row.$name))),+];
                // Columns of one length and of the schema's types: both come from the same fields.
                RecordBatch::try_new(Arc::clone(&schema::<Self>()), columns)
                    .expect("columns match their schema")
            }

            fn get(batch: &RecordBatch, at: usize) -> Self {
                let mut columns = batch.columns().iter();
                let mut next = || columns.next().expect("as many columns as fields");
                Self { $($name: <$ty as ColumnValue>::cell(next(), at)),+ }
            }

            fn key(&self) -> (i64, i64) {
                let key: fn(&Self) -> (i64, i64) = $key;
                key(self)
            }

            fn boottime_us(&self) -> i64 {
                self.boottime_us
            }

            fn wrong(&self) -> Option<String> {
                let wrong: fn(&Self) -> Option<String> = $wrong;
                wrong(self)
            }
        }
    };
}

fn negative(values: &[(&str, i64)]) -> Option<String> {
    values
        .iter()
        .find(|(_, value)| *value < 0)
        .map(|(name, value)| format!("{name} is {value}: below zero"))
}

table! {
    /// One look at the machine. Columns of the kernel's slices are null on a kernel without
    /// ramslice.
    Sample in Samples, key |row| (row.sample, 0), wrong
        |row| negative(&[("sampling_us", row.sampling_us)]);
    /// Its number, from 0 on.
    sample: i64,
    /// When it was begun, on the clock that goes on during suspend.
    boottime_us: i64,
    /// The same moment by the calendar.
    realtime_us: WallTime,
    /// When the kernel took the snapshot, on its monotonic clock.
    monotonic_us: Option<i64>,
    /// How long it took.
    sampling_us: i64,
    /// Samples that were due since the last one and came too late.
    missed_samples: i64,
    /// State changes of slices since boot.
    event_seq: Option<i64>,
    /// The size of a slice, which may change.
    slice_bytes: Option<i64>,
    /// Rows of the table of snapshots that belong to it.
    nr_slices: Option<i64>,
    /// Pages of all zones.
    managed_pages: Option<i64>,
    /// Free and online.
    free_pages: Option<i64>,
    /// Free, but in slices that are off.
    offline_pages: Option<i64>,
    /// Lost to slices that failed to wake.
    quarantined_pages: Option<i64>,
    /// Slices whose emptying was tried, since boot; null, as the next ones, where the kernel does
    /// not report it.
    tried_slices: Option<i64>,
    /// Of these emptied and switched off.
    emptied_slices: Option<i64>,
    /// Slices woken, on request or on demand.
    woken_slices: Option<i64>,
    /// Pages moved to other slices.
    migrated_pages: Option<i64>,
    /// Clean cache dropped, in sources and destinations.
    dropped_pages: Option<i64>,
    /// Destinations taken from free memory.
    target_free_pages: Option<i64>,
    /// Destinations gained by dropping cache.
    target_cache_pages: Option<i64>,
    /// Sum of the prices of the slices tried, by the kernel's parameters.
    price_predicted_100cycles: Option<i64>,
    /// CPU time of emptying, on the kernel's own clock.
    price_measured_100cycles: Option<i64>,
    /// Page faults of all processes.
    page_faults: Option<i64>,
    /// Pages taken from the allocator.
    allocated_pages: Option<i64>,
    /// The space used on block devices' file systems: it shows what was deleted, cached or not.
    /// Null without statistics.
    stored_bytes: Option<i64>,
    /// Page cache that was used once and is not active yet. Null, as the next one, unless it was
    /// requested.
    referenced_cache_pages: Option<i64>,
    /// Page cache that is active and was used since it became that: three times at least.
    busy_cache_pages: Option<i64>,
    /// Rows of the table of the census that belong to it; null if none was taken.
    census_slices: Option<i64>,
    /// How long it took to look at every page, after the sample itself.
    census_us: Option<i64>,
    /// In slices that are held off.
    held_pages: Option<i64>,
}

/// Columns of [`Sample`], [`Zone`] and [`Slice`] that recordings made before there were any do not
/// have: they read as null.
const LATER_COLUMNS: [&str; 25] = [
    "tried_slices",
    "emptied_slices",
    "woken_slices",
    "migrated_pages",
    "dropped_pages",
    "target_free_pages",
    "target_cache_pages",
    "price_predicted_100cycles",
    "price_measured_100cycles",
    "page_faults",
    "allocated_pages",
    "stored_bytes",
    "referenced_cache_pages",
    "busy_cache_pages",
    "census_slices",
    "census_us",
    "sections",
    "removable_sections",
    "staying_slices",
    "least_staying_slices",
    "staying_pages",
    "offline_bound_pages",
    "held_pages",
    "nr_held",
    "held",
];

/// A number as Parquet has it.
pub(crate) fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Whether older recordings lack a column of a table.
pub(crate) fn is_later(table: RecordingTable, column: &str) -> bool {
    matches!(table, RecordingTable::Samples | RecordingTable::Zones | RecordingTable::Snapshots)
        && LATER_COLUMNS.contains(&column)
}

table! {
    /// One zone at one sample.
    Zone in Zones, key |row| (row.sample, row.zone_index.into()), wrong |row| {
        negative(&[("managed_pages", row.managed_pages), ("free_pages", row.free_pages)])
    };
    /// The sample it belongs to.
    sample: i64,
    /// When, as in the sample.
    boottime_us: i64,
    /// When, as in the sample.
    realtime_us: WallTime,
    /// Its position among all zones.
    zone_index: i32,
    /// Its NUMA node.
    node: i32,
    /// Its number within the node.
    zone: i32,
    /// Its name, as in `Normal`.
    name: ColumnText,
    /// Slices that belong to it.
    nr_slices: i32,
    /// Of these online and wholly free.
    nr_empty: i32,
    /// Of these off.
    nr_offline: i32,
    /// Of these quarantined.
    nr_quarantined: i32,
    /// Pages the allocator manages, online or offline.
    managed_pages: i64,
    /// Free and online.
    free_pages: i64,
    /// Free, but off.
    offline_pages: i64,
    /// What is never switched off.
    awake_reserve_pages: i64,
    /// Below this, allocations wake slices themselves.
    low_wmark_pages: i64,
    /// Slices woken by allocations since boot.
    woken_by_demand: i64,
    /// Memory sections of 128 MiB that have memory; null, as the next ones, without a census. One
    /// that two zones share is counted with the lower.
    sections: Option<i64>,
    /// Of these, sections without a page that stays: hotplug could remove them.
    removable_sections: Option<i64>,
    /// Slices that hold a page that stays, or can never be switched off.
    staying_slices: Option<i64>,
    /// The fewest slices that could hold them.
    least_staying_slices: Option<i64>,
    /// Pages that can neither be moved nor dropped.
    staying_pages: Option<i64>,
    /// The most that could be off with as much in use; the bound of c is its part of `free_pages`
    /// and `offline_pages`.
    offline_bound_pages: Option<i64>,
    /// Slices that are held off.
    nr_held: Option<i32>,
}

table! {
    /// One slice at one sample; the columns are those of `ramslice slices --json`.
    Slice in Snapshots, key |row| (row.sample, row.slice_id), wrong |row| {
        // Pages are read without a lock: only what cannot be at any moment is wrong.
        negative(&[("slice_id", row.slice_id), ("present_pages", row.present_pages),
            ("free_pages", row.free_pages), ("price_100cycles", row.price_100cycles)])
    };
    /// The sample it belongs to.
    sample: i64,
    /// When, as in the sample.
    boottime_us: i64,
    /// When, as in the sample.
    realtime_us: WallTime,
    /// Its physical address divided by the slice size.
    slice_id: i64,
    /// online, emptying, offline, waking or quarantined.
    state: ColumnText,
    /// Why it cannot be emptied, or `none`.
    reason: ColumnText,
    /// It can never be emptied.
    unreclaimable: bool,
    /// It failed lately and is left alone.
    backoff: bool,
    /// It holds pages that can be neither dropped nor moved.
    unmovable: bool,
    /// Its NUMA node.
    node: i32,
    /// Its zone within the node.
    zone: i32,
    /// Page frames with memory.
    present_pages: i64,
    /// What emptying it is expected to cost; if one of the flags is set, a place in an order only.
    price_100cycles: i64,
    /// Time until it is tried again, if `backoff`.
    retry_ms: i64,
    /// In the buddy allocator's lists.
    free_pages: i64,
    /// On the anonymous LRU lists, with tmpfs.
    lru_anon_pages: i64,
    /// On the file LRU lists.
    lru_file_pages: i64,
    /// Anonymous, mapped at least once.
    anon_mapped_pages: i64,
    /// File or tmpfs, mapped at least once.
    file_mapped_pages: i64,
    /// All page cache, with tmpfs.
    file_pages: i64,
    /// tmpfs and shared memory.
    shmem_pages: i64,
    /// Waiting to be written.
    dirty_pages: i64,
    /// Being written.
    writeback_pages: i64,
    /// Of those on the LRU lists, in folios of a pageblock.
    huge_pages: i64,
    /// Held: it stays offline until a request wakes it by name.
    held: Option<bool>,
}

table! {
    /// One slice at one sample with a census: every page of it by what it is used for, as in
    /// `ramslice census --json`. Pages from `free_pages` to `off_pages` do not overlap and add up
    /// to the slice.
    Census in Census, key |row| (row.sample, row.slice_id), wrong |row| negative(&row.pages());
    /// The sample it belongs to.
    sample: i64,
    /// When, as in the sample; the pages were looked at within `census_us` from then on.
    boottime_us: i64,
    /// When, as in the sample.
    realtime_us: WallTime,
    /// Its physical address divided by the slice size.
    slice_id: i64,
    /// Its state when its pages were looked at.
    state: ColumnText,
    /// The position of its zone among all zones.
    zone_index: i32,
    /// Free, or in transit.
    free_pages: i64,
    /// Anonymous memory of processes.
    anonymous_pages: i64,
    /// Page cache of files.
    cache_pages: i64,
    /// tmpfs and shared memory.
    shmem_pages: i64,
    /// In the swap cache alone.
    swap_cache_pages: i64,
    /// Page cache of block devices.
    buffer_pages: i64,
    /// zsmalloc, balloon, hugetlb pool.
    other_movable_pages: i64,
    /// Objects of the kernel.
    slab_pages: i64,
    /// Page tables.
    page_table_pages: i64,
    /// Any other that is not a program's.
    other_unmovable_pages: i64,
    /// In an offline slice, or no memory.
    off_pages: i64,
    /// Of all these, on the LRU lists.
    lru_pages: i64,
    /// Of all these, those that can neither be moved nor dropped, of whatever kind.
    staying_pages: i64,
}

impl Census {
    /// The pages by column: the kinds, those on the LRU lists, and those that stay.
    pub(crate) fn pages(&self) -> [(&'static str, i64); 13] {
        [
            ("free_pages", self.free_pages),
            ("anonymous_pages", self.anonymous_pages),
            ("cache_pages", self.cache_pages),
            ("shmem_pages", self.shmem_pages),
            ("swap_cache_pages", self.swap_cache_pages),
            ("buffer_pages", self.buffer_pages),
            ("other_movable_pages", self.other_movable_pages),
            ("slab_pages", self.slab_pages),
            ("page_table_pages", self.page_table_pages),
            ("other_unmovable_pages", self.other_unmovable_pages),
            ("off_pages", self.off_pages),
            ("lru_pages", self.lru_pages),
            ("staying_pages", self.staying_pages),
        ]
    }
}

table! {
    /// Something that happened. Columns that do not belong to its kind are null.
    ///
    /// `state`: a slice changed from one state to another. `wake`: a chunk of a slice was given to
    /// the allocator, `by_demand` or on request. `price`: a slice came up, with its price and what
    /// the request had left. `offline`: an attempt to empty a slice ended, with its errno and what
    /// it moved. `refuse`: a slice was refused, with the reason. `request`: a request ended, with
    /// what it asked for and its outcome. `lost`: events that could not be recorded; `lost_events`
    /// says how many. `note`: the recorder's own, in `text`.
    Event in Events, key |row| (row.event, 0), wrong |row| {
        (!EVENT_KINDS.contains(&row.kind.as_ref()))
            .then(|| format!("`{}` is not a kind of event", row.kind))
    };
    /// Its number, from 0 on, in the order of recording. Times of two CPUs may be out of that
    /// order.
    event: i64,
    /// When, on the clock that goes on during suspend.
    boottime_us: i64,
    /// When, by the calendar.
    realtime_us: WallTime,
    /// trace: the kernel said so; poll: seen by comparing states; recorder: its own.
    source: ColumnText,
    /// What kind of event.
    kind: ColumnText,
    /// The slice.
    slice_id: Option<i64>,
    /// state: before.
    from_state: Option<ColumnText>,
    /// state: after.
    to_state: Option<ColumnText>,
    /// offline, refuse: why; request: why it ended.
    reason: Option<ColumnText>,
    /// wake: because memory was wanted, rather than on request.
    by_demand: Option<bool>,
    /// wake: the size of the chunk.
    nr_pages: Option<i64>,
    /// offline, request: pages moved.
    migrated_pages: Option<i64>,
    /// offline, request: pages dropped; price: pages to drop.
    dropped_pages: Option<i64>,
    /// price: pages to move.
    movable_pages: Option<i64>,
    /// price: mappings of these.
    mappings: Option<i64>,
    /// price, request: what emptying is expected to cost.
    price_100cycles: Option<i64>,
    /// price: what the request had left; request: what it could spend; null without a limit.
    budget_100cycles: Option<i64>,
    /// offline, request: 0, or what stopped it.
    error_errno: Option<i32>,
    /// request: offline, online, compact, offline-free or online-all.
    op: Option<ColumnText>,
    /// request: slices that changed as asked.
    done_slices: Option<i64>,
    /// request: slices that were tried and stayed online.
    failed_slices: Option<i64>,
    /// request: CPU time spent on emptying.
    measured_100cycles: Option<i64>,
    /// request: wall-clock time.
    elapsed_us: Option<i64>,
    /// wake, refuse: the first or the offending page frame.
    pfn: Option<i64>,
    /// The thread during which it happened: who made a request, or who wanted memory; mostly the
    /// kernel's own, which wakes ahead of need.
    pid: Option<i64>,
    /// That thread's name.
    task: Option<ColumnText>,
    /// lost: how many.
    lost_events: Option<i64>,
    /// note: what the recorder has to say.
    text: Option<ColumnText>,
}

/// The kinds of [`Event`].
pub const EVENT_KINDS: [&str; 8] =
    ["state", "wake", "price", "offline", "refuse", "request", "lost", "note"];

/// A table of the lines of a file of names and numbers.
macro_rules! lines {
    ($(#[$doc:meta])* $row:ident) => {
        table! {
            $(#[$doc])*
            $row in $row, key |row| (row.sample, row.line.into()), wrong |_| None;
            /// The sample it belongs to.
            sample: i64,
            /// When, as in the sample.
            boottime_us: i64,
            /// When, as in the sample.
            realtime_us: WallTime,
            /// The line's position in the file.
            line: i32,
            /// The kernel's name.
            name: ColumnText,
            /// In `unit`.
            value: i64,
            /// bytes, us, or count: events, or pages where the name begins with `nr_`.
            unit: ColumnText,
        }

        impl $row {
            /// The lines of the file at a sample.
            pub(crate) fn of(figures: Vec<StatisticLine>, at: &Sample) -> Vec<Self> {
                let (sample, boottime_us, realtime_us) = (at.sample, at.boottime_us,
                    at.realtime_us);
                let row = |(line, figure): (i32, StatisticLine)| {
                    let (name, value, unit) = (figure.name.into(), figure.value,
                        figure.unit.into());
                    Self { sample, boottime_us, realtime_us, line, name, value, unit }
                };
                (0..).zip(figures).map(row).collect()
            }
        }
    };
}

lines! {
    /// One line of `/proc/meminfo` at one sample.
    Meminfo
}

lines! {
    /// One line of `/proc/vmstat` at one sample; and lines that the recorder adds from elsewhere.
    Vmstat
}
