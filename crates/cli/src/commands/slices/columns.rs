//! The columns of `ramslice slices`: an entry of [`COLUMNS`] is all that a column needs.

use std::str::FromStr;
use std::time::Duration;

use ramslice_backend::{MemOffline, SlicePower};
use ramslice_types::{
    Bytes, MachineState, PageComposition, Pages, Price, Reason, Slice, SliceState,
};

use super::mib;
use crate::render::ColumnAlign;

/// A slice, and what its columns are derived from.
pub(super) struct SliceRow<'a> {
    machine: &'a MachineState,
    slice: &'a Slice,
    composition: PageComposition,
    /// What a vendor's driver knows of it.
    power: SlicePower,
}

impl<'a> SliceRow<'a> {
    /// The row of a slice of this machine.
    pub(super) fn new(
        machine: &'a MachineState,
        slice: &'a Slice,
        driver: Option<&MemOffline>,
    ) -> Self {
        let info = &machine.info;
        // Of a stock kernel, a chunk is a block of memory.
        let each = info.slice_bytes.0 / info.chunk_bytes.0.max(1);
        let first = u64::from(slice.id.0) * each;
        Self {
            machine,
            slice,
            composition: slice.composition(info.slice_pages()),
            power: driver.and_then(|driver| driver.slice(first..first + each)).unwrap_or_default(),
        }
    }

    /// Pages of a kind; nothing of a slice that is not read.
    fn counted(&self, pages: Pages) -> Option<Pages> {
        matches!(self.slice.state, SliceState::Online | SliceState::Emptying).then_some(pages)
    }
}

/// A column.
#[derive(Debug)]
pub(super) struct SliceColumn {
    /// For --output, and the header with --raw.
    name: &'static str,
    /// Above the table.
    header: &'static str,
    /// What it says, in at most a line.
    about: &'static str,
    /// Whether it is there without --output.
    is_default: bool,
    value: ColumnValue,
}

/// How a row gives the value. Decides unit and alignment.
#[derive(Debug)]
enum ColumnValue {
    /// A word without blanks.
    Word(fn(&SliceRow) -> String),
    /// Words for people, and a single one for programs, if there is one.
    Remark { text: fn(&SliceRow) -> String, word: fn(&SliceRow) -> Option<String> },
    /// `yes` or `no`.
    Flag(fn(&SliceRow) -> bool),
    /// A number without a unit.
    Number(fn(&SliceRow) -> i64),
    /// In MiB, or in bytes.
    Size(fn(&SliceRow) -> Option<Pages>),
    /// In seconds.
    Time(fn(&SliceRow) -> Option<Duration>),
    /// In milliseconds.
    ShortTime(fn(&SliceRow) -> Option<Duration>),
    /// In percent.
    Percent(fn(&SliceRow) -> Option<u8>),
    /// In units of 100 cycles.
    Price(fn(&SliceRow) -> SlicePrice),
}

use ColumnValue::{
    Flag, Number, Percent, Price as PriceValue, Remark, ShortTime, Size, Time, Word,
};

/// What emptying a slice is expected to cost.
enum SlicePrice {
    /// It is not online.
    None,
    /// It cannot be emptied.
    Infinite,
    Finite(Price),
}

const fn shown(
    name: &'static str,
    header: &'static str,
    about: &'static str,
    value: ColumnValue,
) -> SliceColumn {
    SliceColumn { name, header, about, is_default: true, value }
}

const fn on_request(name: &'static str, about: &'static str, value: ColumnValue) -> SliceColumn {
    SliceColumn { name, header: name, about, is_default: false, value }
}

/// All columns, those that are shown by default first.
const COLUMNS: &[SliceColumn] = &[
    shown("slice", "slice", "Its number", Number(|row| row.slice.id.0.into())),
    shown(
        "address",
        "physical address",
        "First and last physical address, hexadecimal",
        Word(|row| row.machine.info.extents(row.slice.id).to_string()),
    ),
    shown("node", "node", "NUMA node", Number(|row| row.slice.node.0.into())),
    shown("zone", "zone", "Zone of the memory", Word(|row| row.machine.zone_name(row.slice))),
    shown(
        "state",
        "state",
        "online, emptying, offline, waking or quarantined",
        Word(|row| row.slice.state.to_string()),
    ),
    shown("price", "price", "What emptying it is expected to cost", PriceValue(price)),
    shown("free", "free", "Free memory", Size(|row| row.counted(row.composition.free))),
    shown(
        "freeable",
        "freeable",
        "Clean page cache that no process maps",
        Size(|row| row.counted(row.composition.freeable)),
    ),
    shown(
        "movable",
        "movable",
        "What can be migrated to another slice",
        Size(|row| row.counted(row.composition.movable)),
    ),
    shown(
        "unmovable",
        "unmovable",
        "What keeps the slice on",
        Size(|row| row.counted(row.composition.unmovable)),
    ),
    shown(
        "reason",
        "reason",
        "Why it cannot be emptied; a single word with --raw",
        Remark { text: reason, word: reason_code },
    ),
    on_request("present", "Memory without holes", Size(|row| Some(row.slice.present))),
    on_request(
        "anon",
        "Memory of processes, and tmpfs",
        Size(|row| row.counted(row.slice.counters.lru_anon)),
    ),
    on_request("file", "Page cache, with tmpfs", Size(|row| row.counted(row.slice.counters.file))),
    on_request(
        "shmem",
        "tmpfs and shared memory",
        Size(|row| row.counted(row.slice.counters.shmem)),
    ),
    on_request(
        "mapped",
        "What processes map",
        Size(|row| {
            let counters = &row.slice.counters;
            row.counted(counters.anon_mapped + counters.file_mapped)
        }),
    ),
    on_request(
        "dirty",
        "Waiting to be written to storage",
        Size(|row| row.counted(row.slice.counters.dirty)),
    ),
    on_request(
        "writeback",
        "Being written to storage",
        Size(|row| row.counted(row.slice.counters.writeback)),
    ),
    on_request(
        "huge",
        "In folios of a pageblock",
        Size(|row| row.counted(row.slice.counters.huge)),
    ),
    on_request(
        "retry",
        "Time until it is tried again after a failure",
        Time(|row| row.slice.backoff.then(|| Duration::from_millis(u64::from(row.slice.retry_ms)))),
    ),
    on_request("stuck", "Whether it can never be emptied", Flag(|row| row.slice.unreclaimable)),
    on_request(
        "held",
        "Whether it stays offline until a request wakes it by name",
        Flag(|row| row.slice.held),
    ),
    on_request(
        "off",
        "mem-offline: time offline, at most",
        Percent(|row| row.power.offline_percent),
    ),
    on_request("on-best", "mem-offline: on, shortest", ShortTime(|row| row.power.online.best)),
    on_request("on-mean", "mem-offline: on, average", ShortTime(|row| row.power.online.average)),
    on_request("on-worst", "mem-offline: on, longest", ShortTime(|row| row.power.online.worst)),
    on_request("off-best", "mem-offline: off, shortest", ShortTime(|row| row.power.offline.best)),
    on_request("off-mean", "mem-offline: off, average", ShortTime(|row| row.power.offline.average)),
    on_request("off-worst", "mem-offline: off, longest", ShortTime(|row| row.power.offline.worst)),
];

/// How values are written.
#[derive(Debug, Clone, Copy)]
pub(super) struct ValueStyle {
    /// Sizes in bytes rather than MiB.
    pub(super) bytes: bool,
    /// One word for each value, and all digits.
    pub(super) raw: bool,
    /// The sign for infinity can be shown.
    pub(super) unicode: bool,
}

impl SliceColumn {
    /// The title of the column.
    pub(super) fn title(&self, style: ValueStyle) -> &'static str {
        if style.raw { self.name } else { self.header }
    }

    /// Numbers keep to the right.
    pub(super) fn align(&self) -> ColumnAlign {
        match self.value {
            Word(_) | Remark { .. } | Flag(_) => ColumnAlign::Left,
            Number(_) | Size(_) | Time(_) | ShortTime(_) | Percent(_) | PriceValue(_) => {
                ColumnAlign::Right
            }
        }
    }

    /// The unit without --bytes; empty for what has none.
    fn unit(&self) -> &'static str {
        match self.value {
            Word(_) | Remark { .. } | Flag(_) | Number(_) => "",
            Size(_) => "MiB",
            Time(_) => "s",
            ShortTime(_) => "ms",
            Percent(_) => "%",
            PriceValue(_) => "100 cycles",
        }
    }

    /// The value of a row, as text.
    pub(super) fn cell(&self, row: &SliceRow, style: ValueStyle) -> String {
        let page_bytes = row.machine.info.page_bytes;
        let text = match &self.value {
            Word(word) => Some(word(row)),
            Remark { text, .. } if !style.raw => Some(text(row)),
            Remark { word, .. } => word(row),
            Flag(holds) => Some(if holds(row) { "yes" } else { "no" }.to_owned()),
            Number(number) => Some(number(row).to_string()),
            Size(pages) => pages(row).map(|pages| match pages.bytes(page_bytes) {
                bytes if style.bytes => bytes.0.to_string(),
                // Shortest text that is this number and no other.
                bytes if style.raw => (bytes.0 as f64 / Bytes::MIB.0 as f64).to_string(),
                _ => mib(pages, page_bytes),
            }),
            Time(time) => time(row).map(|time| match time.as_secs_f64() {
                seconds if style.raw => seconds.to_string(),
                seconds => format!("{seconds:.1}"),
            }),
            ShortTime(time) => time(row).map(|time| match time.as_secs_f64() * 1000.0 {
                milliseconds if style.raw => milliseconds.to_string(),
                milliseconds => format!("{milliseconds:.1}"),
            }),
            Percent(percent) => percent(row).map(|percent| percent.to_string()),
            PriceValue(price) => match price(row) {
                SlicePrice::None => None,
                SlicePrice::Infinite if style.unicode && !style.raw => Some("∞".to_owned()),
                SlicePrice::Infinite => Some("inf".to_owned()),
                SlicePrice::Finite(price) => Some(price.to_string()),
            },
        };
        text.unwrap_or_else(|| "-".to_owned())
    }
}

fn price(row: &SliceRow) -> SlicePrice {
    match row.slice.finite_price() {
        _ if row.slice.state != SliceState::Online => SlicePrice::None,
        Some(price) => SlicePrice::Finite(price),
        None => SlicePrice::Infinite,
    }
}

fn reason_code(row: &SliceRow) -> Option<String> {
    (row.slice.reason != Reason::None).then(|| row.slice.reason.code())
}

fn reason(row: &SliceRow) -> String {
    let (slice, code) = (row.slice, reason_code(row).unwrap_or_default());
    if slice.backoff {
        return format!("{code}, retry in {} s", slice.retry_ms.div_ceil(1000));
    }
    if slice.unreclaimable && !code.is_empty() { format!("{code}, for good") } else { code }
}

/// The columns to show, in order.
#[derive(Debug, Clone)]
pub(super) struct ColumnList(pub(super) Vec<&'static SliceColumn>);

impl Default for ColumnList {
    fn default() -> Self {
        Self(COLUMNS.iter().filter(|column| column.is_default).collect())
    }
}

impl FromStr for ColumnList {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (mut columns, names) = match text.strip_prefix('+') {
            Some(more) => (Self::default().0, more),
            None => (Vec::new(), text),
        };
        for (at, name) in (1..).zip(names.split(',')) {
            let found = COLUMNS.iter().find(|column| column.name.eq_ignore_ascii_case(name));
            columns.push(found.ok_or_else(|| unknown_column(at, name))?);
        }
        Ok(Self(columns))
    }
}

fn unknown_column(at: usize, name: &str) -> String {
    if name.starts_with('+') {
        return format!("`+` of column {at}, `{name}`, goes before the whole list");
    }
    let known: Vec<_> = COLUMNS.iter().map(|column| column.name).collect();
    let what = if name.is_empty() { "is empty".to_owned() } else { format!("`{name}` is unknown") };
    format!("column {at} {what}: the columns are {}", known.join(", "))
}

/// The help of --output.
pub(super) fn output_help() -> String {
    let mut text = "\
Columns to print, by name and separated by commas. A list that begins with + is added to the \
default. The columns are, with their unit (--bytes makes MiB bytes), and * for the default:\n"
        .to_owned();
    for column in COLUMNS {
        let mark = if column.is_default { '*' } else { ' ' };
        let (name, unit, about) = (column.name, column.unit(), column.about);
        text.push_str(&format!("\n {mark} {name:<9}  {unit:<10}  {about}"));
    }
    text.push_str(
        "\n\nColumns of mem-offline are `-` without Qualcomm's driver of that name: neither the \
         patched kernel nor memory hotplug records for how long a slice was off, or how long it \
         took to switch it.",
    );
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(text: &str) -> Vec<&'static str> {
        text.parse::<ColumnList>().unwrap().0.iter().map(|column| column.name).collect()
    }

    #[test]
    fn a_list_is_taken_as_it_is_and_a_plus_adds_to_the_default() {
        assert_eq!(names("state,SLICE,state"), ["state", "slice", "state"]);
        let default: Vec<_> = ColumnList::default().0.iter().map(|column| column.name).collect();
        assert_eq!(names("+held,retry"), [&default[..], &["held", "retry"]].concat());
    }

    #[test]
    fn what_is_no_column_is_named_with_its_position() {
        let refused = |text: &str| text.parse::<ColumnList>().unwrap_err();
        assert!(
            refused("slice,fre").starts_with("column 2 `fre` is unknown: the columns are slice, ")
        );
        assert!(refused("+held,").starts_with("column 2 is empty"));
        assert!(refused("").starts_with("column 1 is empty"));
        assert!(refused("slice, free").contains("column 2 ` free` is unknown"));
        assert_eq!(refused("slice,+held"), "`+` of column 2, `+held`, goes before the whole list");
    }

    #[test]
    fn every_column_has_a_name_of_its_own_that_a_list_can_have() {
        for (at, column) in COLUMNS.iter().enumerate() {
            assert!(!column.name.contains([',', '+', ' ']), "{}", column.name);
            assert!(COLUMNS[..at].iter().all(|other| other.name != column.name), "{}", column.name);
            assert!(!column.about.is_empty() && column.about.len() <= 60, "{}", column.about);
        }
    }
}
