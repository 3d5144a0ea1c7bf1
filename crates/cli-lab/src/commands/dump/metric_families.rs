//! Which metrics a recording has: an entry for each figure of samples and zones, and one by name
//! for each line of the kernel's statistics.
//!
//! What ramsliced reports, too, has its name there; lines of /proc have the names of
//! `node_exporter`.

use std::borrow::Cow;
use std::collections::HashMap;
use std::str::FromStr;

use ramslice_record::TableRow;
use ramslice_record::tables::{Meminfo, Sample, Vmstat, Zone};

/// What `OpenMetrics` says of the points of a family.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    Gauge,
    /// Since boot; its points are called `NAME_total`.
    Counter,
    /// The kernel does not say.
    Unknown,
}

/// A family of series.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MetricFamily {
    /// Ends in the unit if there is one.
    pub(super) name: Cow<'static, str>,
    pub(super) help: Cow<'static, str>,
    pub(super) kind: MetricKind,
    /// Empty without one.
    pub(super) unit: &'static str,
}

/// The size of a page; nothing where the recording is of statistics alone.
pub(super) type PageBytes = Option<f64>;

/// A figure that a row has, or has not.
type FigureOf<R> = fn(&R, PageBytes) -> Option<f64>;

/// A family, and its figures in a row, each with the label `kind` unless that is empty.
struct RowFamily<R: 'static> {
    family: MetricFamily,
    figures: &'static [(&'static str, FigureOf<R>)],
}

const fn gauge<R>(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    figures: &'static [(&'static str, FigureOf<R>)],
) -> RowFamily<R> {
    row_family(MetricKind::Gauge, name, unit, help, figures)
}

const fn counter<R>(
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    figures: &'static [(&'static str, FigureOf<R>)],
) -> RowFamily<R> {
    row_family(MetricKind::Counter, name, unit, help, figures)
}

const fn row_family<R>(
    kind: MetricKind,
    name: &'static str,
    unit: &'static str,
    help: &'static str,
    figures: &'static [(&'static str, FigureOf<R>)],
) -> RowFamily<R> {
    let (name, help) = (Cow::Borrowed(name), Cow::Borrowed(help));
    RowFamily { family: MetricFamily { name, help, kind, unit }, figures }
}

fn count(number: Option<i64>) -> Option<f64> {
    number.map(|number| number as f64)
}

fn bytes(pages: Option<i64>, page_bytes: PageBytes) -> Option<f64> {
    Some(pages? as f64 * page_bytes?)
}

fn seconds(us: Option<i64>) -> Option<f64> {
    us.map(|us| us as f64 / 1e6)
}

fn cycles(hundreds: Option<i64>) -> Option<f64> {
    hundreds.map(|hundreds| hundreds as f64 * 100.0)
}

const SAMPLE_FAMILIES: &[RowFamily<Sample>] = &[
    gauge(
        "ramslice_slice_size_bytes",
        "bytes",
        "Size of a slice.",
        &[("", |row, _| count(row.slice_bytes))],
    ),
    counter(
        "ramslice_state_changes",
        "",
        "State changes of slices.",
        &[("", |row, _| count(row.event_seq))],
    ),
    counter(
        "ramslice_tried_slices",
        "slices",
        "Slices whose emptying was tried.",
        &[("", |row, _| count(row.tried_slices))],
    ),
    counter(
        "ramslice_switched_off_slices",
        "slices",
        "Slices that were switched off.",
        &[("", |row, _| count(row.emptied_slices))],
    ),
    counter(
        "ramslice_woken_slices",
        "slices",
        "Slices that woke, on request or on demand.",
        &[("", |row, _| count(row.woken_slices))],
    ),
    counter(
        "ramslice_migrated_pages",
        "pages",
        "Pages that requests moved to other slices.",
        &[("", |row, _| count(row.migrated_pages))],
    ),
    counter(
        "ramslice_dropped_pages",
        "pages",
        "Pages of clean cache that requests dropped.",
        &[("", |row, _| count(row.dropped_pages))],
    ),
    counter(
        "ramslice_target_free_pages",
        "pages",
        "Destinations of moved pages that were free.",
        &[("", |row, _| count(row.target_free_pages))],
    ),
    counter(
        "ramslice_target_cache_pages",
        "pages",
        "Destinations of moved pages that were gained by dropping cache.",
        &[("", |row, _| count(row.target_cache_pages))],
    ),
    counter(
        "ramslice_price_predicted_cycles",
        "cycles",
        "Sum of the prices of the slices that were tried.",
        &[("", |row, _| cycles(row.price_predicted_100cycles))],
    ),
    counter(
        "ramslice_price_measured_cycles",
        "cycles",
        "CPU time of emptying slices, on the kernel's own clock.",
        &[("", |row, _| cycles(row.price_measured_100cycles))],
    ),
    gauge(
        "ramslice_quarantined_bytes",
        "bytes",
        "Memory lost to slices that failed to wake.",
        &[("", |row, page| bytes(row.quarantined_pages, page))],
    ),
    gauge(
        "ramslice_held_bytes",
        "bytes",
        "Memory in slices that are held off.",
        &[("", |row, page| bytes(row.held_pages, page))],
    ),
    counter(
        "ramslice_page_faults",
        "",
        "Page faults of all processes.",
        &[("", |row, _| count(row.page_faults))],
    ),
    counter(
        "ramslice_allocated_pages",
        "pages",
        "Pages taken from the allocator.",
        &[("", |row, _| count(row.allocated_pages))],
    ),
    gauge(
        "ramslice_stored_bytes",
        "bytes",
        "What the file systems on block devices hold.",
        &[("", |row, _| count(row.stored_bytes))],
    ),
    gauge(
        "ramslice_cache_use_bytes",
        "bytes",
        "Page cache by use: referenced (once, not active), busy (active and used since).",
        &[
            ("referenced", |row, page| bytes(row.referenced_cache_pages, page)),
            ("busy", |row, page| bytes(row.busy_cache_pages, page)),
        ],
    ),
    gauge(
        "ramslice_sampling_seconds",
        "seconds",
        "How long it took to read the machine.",
        &[("", |row, _| seconds(Some(row.sampling_us)))],
    ),
    gauge(
        "ramslice_census_seconds",
        "seconds",
        "How long it took to look at every page.",
        &[("", |row, _| seconds(row.census_us))],
    ),
    gauge(
        "ramslice_missed_samples",
        "samples",
        "Samples that were due since the last one and came too late.",
        &[("", |row, _| count(Some(row.missed_samples)))],
    ),
];

/// The part of free memory; 0 when none is free, as in the daemon's metrics.
fn share_of_free(row: &Zone, pages: i64) -> f64 {
    let free = row.free_pages.saturating_add(row.offline_pages);
    if free == 0 { 0.0 } else { pages as f64 / free as f64 }
}

const ZONE_FAMILIES: &[RowFamily<Zone>] = &[
    gauge(
        "ramslice_empty_slices",
        "slices",
        "Slices that are online and wholly free.",
        &[("", |row, _| count(Some(row.nr_empty.into())))],
    ),
    gauge(
        "ramslice_held_slices",
        "slices",
        "Slices that are held off.",
        &[("", |row, _| count(row.nr_held.map(i64::from)))],
    ),
    gauge(
        "ramslice_memory_bytes",
        "bytes",
        "Memory by kind: managed, free (and awake), offline, reserve (never switched off).",
        &[
            ("managed", |row, page| bytes(Some(row.managed_pages), page)),
            ("free", |row, page| bytes(Some(row.free_pages), page)),
            ("offline", |row, page| bytes(Some(row.offline_pages), page)),
            ("reserve", |row, page| bytes(Some(row.awake_reserve_pages), page)),
        ],
    ),
    gauge(
        "ramslice_fragmentation_offline_ratio",
        "ratio",
        "c: offline / (free + offline), the part of free memory that is off.",
        &[("", |row, _| Some(share_of_free(row, row.offline_pages)))],
    ),
    gauge(
        "ramslice_fragmentation_bound_ratio",
        "ratio",
        "The most that c could be with whole slices, the awake reserve and unmovable memory.",
        &[("", |row, _| Some(share_of_free(row, row.offline_bound_pages?)))],
    ),
    gauge(
        "ramslice_low_watermark_bytes",
        "bytes",
        "Free memory below which allocations wake slices themselves.",
        &[("", |row, page| bytes(Some(row.low_wmark_pages), page))],
    ),
    counter(
        "ramslice_woken_by_demand_slices",
        "slices",
        "Slices that allocations woke.",
        &[("", |row, _| count(Some(row.woken_by_demand)))],
    ),
    gauge(
        "ramslice_staying_slices",
        "slices",
        "Slices with a page that stays (actual), and the fewest that could hold those (least).",
        &[
            ("actual", |row, _| count(row.staying_slices)),
            ("least", |row, _| count(row.least_staying_slices)),
        ],
    ),
    gauge(
        "ramslice_staying_bytes",
        "bytes",
        "Pages that can neither be moved nor dropped.",
        &[("", |row, page| bytes(row.staying_pages, page))],
    ),
    gauge(
        "ramslice_memory_sections",
        "sections",
        "Sections of 128 MiB with memory (all), and those that hotplug could remove (removable).",
        &[
            ("all", |row, _| count(row.sections)),
            ("removable", |row, _| count(row.removable_sections)),
        ],
    ),
];

/// Slices by state; ramsliced has the same.
pub(super) fn slices_by_state() -> MetricFamily {
    MetricFamily {
        name: "ramslice_slices".into(),
        help: "Slices by state.".into(),
        kind: MetricKind::Gauge,
        unit: "",
    }
}

/// A label, its value escaped.
pub(super) fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// A label that every series gets.
#[derive(Debug, Clone)]
pub(super) struct SeriesLabel {
    name: String,
    value: String,
}

/// Labels that series have already.
const OWN_LABELS: [&str; 4] = ["node", "zone", "state", "kind"];

impl SeriesLabel {
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    pub(super) fn text(&self) -> String {
        label(&self.name, &self.value)
    }
}

impl FromStr for SeriesLabel {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some((name, value)) = text.split_once('=').filter(|(_, value)| !value.is_empty())
        else {
            return Err(format!("`{text}` is not NAME=VALUE, as in instance=build"));
        };
        let letter = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
        let begins = name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_');
        if !begins || !name.chars().all(letter) || name.starts_with("__") {
            return Err(format!(
                "`{name}` is not a name for a label: it has letters, digits and _, begins with no \
                 digit, and not with __"
            ));
        }
        if OWN_LABELS.contains(&name) {
            return Err(format!("series have a label `{name}` already: choose another name"));
        }
        Ok(Self { name: name.to_owned(), value: value.to_owned() })
    }
}

/// The labels of a zone, as ramsliced has them.
pub(super) fn zone_labels(node: i32, zone: &str) -> String {
    format!("{},{}", label("node", &node.to_string()), label("zone", zone))
}

/// A figure of a row, with the number of its family and its labels.
pub(super) type AddFigure<'a> = &'a mut dyn FnMut(usize, &str, f64);

/// The metrics of a table.
pub(super) trait TableMetrics {
    type Row: TableRow;

    /// Adds each figure that a row has.
    fn figures(&mut self, row: &Self::Row, add: AddFigure<'_>);

    /// The family of this number.
    fn family(&self, number: usize) -> &MetricFamily;
}

/// Metrics of the samples.
pub(super) struct SampleMetrics(pub(super) PageBytes);

impl TableMetrics for SampleMetrics {
    type Row = Sample;

    fn figures(&mut self, row: &Sample, add: AddFigure<'_>) {
        row_figures(SAMPLE_FAMILIES, row, self.0, "", add);
    }

    fn family(&self, number: usize) -> &MetricFamily {
        &SAMPLE_FAMILIES[number].family
    }
}

/// Metrics of the zones.
pub(super) struct ZoneMetrics(pub(super) PageBytes);

impl TableMetrics for ZoneMetrics {
    type Row = Zone;

    fn figures(&mut self, row: &Zone, add: AddFigure<'_>) {
        row_figures(ZONE_FAMILIES, row, self.0, &zone_labels(row.node, &row.name), add);
    }

    fn family(&self, number: usize) -> &MetricFamily {
        &ZONE_FAMILIES[number].family
    }
}

fn row_figures<R>(
    families: &[RowFamily<R>],
    row: &R,
    page_bytes: PageBytes,
    labels: &str,
    add: AddFigure<'_>,
) {
    for (number, RowFamily { figures, .. }) in families.iter().enumerate() {
        for (kind, figure) in *figures {
            let Some(value) = figure(row, page_bytes) else { continue };
            if kind.is_empty() {
                add(number, labels, value);
            } else {
                let comma = if labels.is_empty() { "" } else { "," };
                add(number, &format!("{labels}{comma}{}", label("kind", kind)), value);
            }
        }
    }
}

/// Metrics of a file of names and numbers, numbered as the names are found.
pub(super) struct LineMetrics<R> {
    line: fn(&R) -> StatisticFigure<'_>,
    name: fn(&str) -> String,
    kind: MetricKind,
    file: &'static str,
    numbers: HashMap<String, usize>,
    families: Vec<MetricFamily>,
}

/// A line of a file of the kernel's.
struct StatisticFigure<'a> {
    name: &'a str,
    value: i64,
    is_bytes: bool,
}

impl LineMetrics<Meminfo> {
    /// `Active(anon)` becomes `node_memory_Active_anon_bytes`.
    pub(super) fn meminfo() -> Self {
        Self {
            line: |row| StatisticFigure {
                name: &row.name,
                value: row.value,
                is_bytes: row.unit == "bytes",
            },
            name: |name| format!("node_memory_{}", name.replace('(', "_").replace(')', "")),
            kind: MetricKind::Gauge,
            file: "/proc/meminfo",
            numbers: HashMap::new(),
            families: Vec::new(),
        }
    }
}

impl LineMetrics<Vmstat> {
    /// `pgfault` becomes `node_vmstat_pgfault`.
    pub(super) fn vmstat() -> Self {
        Self {
            line: |row| StatisticFigure {
                name: &row.name,
                value: row.value,
                is_bytes: row.unit == "bytes",
            },
            name: |name| format!("node_vmstat_{name}"),
            kind: MetricKind::Unknown,
            file: "/proc/vmstat",
            numbers: HashMap::new(),
            families: Vec::new(),
        }
    }
}

impl<R: TableRow> TableMetrics for LineMetrics<R> {
    type Row = R;

    fn figures(&mut self, row: &R, add: AddFigure<'_>) {
        let line = (self.line)(row);
        let number = if let Some(number) = self.numbers.get(line.name) {
            *number
        } else {
            self.numbers.insert(line.name.to_owned(), self.families.len());
            let (unit, end) = if line.is_bytes { ("bytes", "_bytes") } else { ("", "") };
            let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
            let name = (self.name)(line.name).replace(|letter| !word(letter), "_");
            self.families.push(MetricFamily {
                name: format!("{name}{end}").into(),
                help: format!("{} of {}.", line.name, self.file).into(),
                kind: self.kind,
                unit,
            });
            self.families.len() - 1
        };
        add(number, "", line.value as f64);
    }

    fn family(&self, number: usize) -> &MetricFamily {
        &self.families[number]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_end_in_their_unit_and_helps_are_a_line() {
        let samples = SAMPLE_FAMILIES.iter().map(|entry| &entry.family);
        let zones = ZONE_FAMILIES.iter().map(|entry| &entry.family);
        let all: Vec<_> = samples.chain(zones).cloned().chain([slices_by_state()]).collect();
        for (at, family) in all.iter().enumerate() {
            let MetricFamily { name, help, unit, .. } = family;
            assert!(name.starts_with("ramslice_") && !name.ends_with("_total"), "{name}");
            assert!(unit.is_empty() || name.ends_with(&format!("_{unit}")), "{name}: {unit}");
            assert!(help.ends_with('.') && !help.contains(['\n', '"', '\\']), "{help}");
            assert!(all[..at].iter().all(|other| other.name != *name), "{name} twice");
        }
    }

    #[test]
    fn lines_of_statistics_have_the_names_of_node_exporter() {
        let mut metrics = LineMetrics::meminfo();
        let mut found = Vec::new();
        for (name, unit) in [("Active(anon)", "bytes"), ("HugePages_Total", "count")] {
            let row =
                Meminfo { name: name.into(), unit: unit.into(), value: 7, ..Meminfo::default() };
            metrics.figures(&row, &mut |number, labels, value| {
                found.push((number, labels.to_owned(), value));
            });
        }
        assert_eq!(found, [(0, String::new(), 7.0), (1, String::new(), 7.0)]);
        assert_eq!(metrics.family(0).name, "node_memory_Active_anon_bytes");
        assert_eq!(metrics.family(1).name, "node_memory_HugePages_Total");
    }

    #[test]
    fn labels_are_escaped() {
        assert_eq!(label("zone", "a\\b\"c\n1"), r#"zone="a\\b\"c\n1""#);
    }
}
