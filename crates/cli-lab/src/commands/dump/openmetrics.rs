//! `OpenMetrics` text with times, by the specification 1.0.0.
//!
//! Not with prometheus-client, as the daemon's metrics are: that library writes what is now, and no
//! times.

use std::io::Write;

use anyhow::Result;
use ramslice_cli::exit::UsageError;
use ramslice_record::{Recording, RecordingTable, TableRow as _};

use super::metric_families::{
    LineMetrics, MetricFamily, MetricKind, PageBytes, SampleMetrics, SeriesLabel, TableMetrics,
    ZoneMetrics, slices_by_state,
};
use super::page_cache_metrics::PageCacheMetrics;
use super::point_table::{FamilySeries, MOST_POINTS, PointTable, SeriesPoint};
use super::slice_states;
use super::time_span::{RecordingTimes, TimeSpan};

/// The tables that have figures over time, in the order in which they are written.
const TABLES: [RecordingTable; 5] = [
    RecordingTable::Samples,
    RecordingTable::Zones,
    RecordingTable::Snapshots,
    RecordingTable::Meminfo,
    RecordingTable::Vmstat,
];

/// Writes the figures of one table, or of all that have some.
pub(super) fn write(
    recording: &Recording,
    table: Option<RecordingTable>,
    labels: &[SeriesLabel],
    times: &RecordingTimes,
    span: TimeSpan,
    out: &mut dyn Write,
) -> Result<()> {
    if let Some(table) = table
        && !TABLES.contains(&table)
    {
        let message = format!(
            "--table {table} has no figures over time: write it with -O csv, or as openmetrics \
             one of {}",
            TABLES.map(RecordingTable::name).join(", ")
        );
        return Err(UsageError(message).into());
    }
    let geometry = recording.info().geometry.as_ref();
    let page_bytes: PageBytes = geometry.map(|geometry| geometry.page_bytes.0 as f64);
    let mut writer = MetricsWriter { recording, labels, times, span, out };
    for each in TABLES.into_iter().filter(|each| table.is_none_or(|table| table == *each)) {
        match each {
            RecordingTable::Samples => writer.table(&mut SampleMetrics(page_bytes))?,
            RecordingTable::Zones => writer.table(&mut ZoneMetrics(page_bytes))?,
            RecordingTable::Snapshots => writer.slice_states()?,
            RecordingTable::Meminfo => writer.table(&mut LineMetrics::meminfo())?,
            RecordingTable::Vmstat => {
                writer.table(&mut LineMetrics::vmstat())?;
                writer.table(&mut PageCacheMetrics::default())?;
            }
            RecordingTable::Census | RecordingTable::Events => {}
        }
    }
    writeln!(out, "# EOF")?;
    Ok(())
}

struct MetricsWriter<'a> {
    recording: &'a Recording,
    /// Of every series.
    labels: &'a [SeriesLabel],
    times: &'a RecordingTimes,
    span: TimeSpan,
    out: &'a mut dyn Write,
}

impl MetricsWriter<'_> {
    fn table<M: TableMetrics>(&mut self, metrics: &mut M) -> Result<()> {
        let mut next = Some(0);
        while let Some(first) = next {
            let mut points = PointTable::new(first, MOST_POINTS);
            for row in self.span.rows::<M::Row>(self.recording) {
                let row = row?;
                let time_ms = self.times.calendar_ms(row.boottime_us());
                metrics.figures(&row, &mut |family, labels, value| {
                    points.add(family, labels, SeriesPoint { time_ms, value });
                });
            }
            let (families, another) = points.into_families();
            for (number, series) in families {
                self.write_family(metrics.family(number), &series)?;
            }
            next = another;
        }
        Ok(())
    }

    fn slice_states(&mut self) -> Result<()> {
        let (series, skipped) = slice_states::series(self.recording, self.times, self.span)?;
        if skipped > 0 {
            tracing::warn!(
                "{skipped} samples are not whole and were passed over: see `ramslice-lab record \
                 --check`"
            );
        }
        if series.is_empty() {
            return Ok(());
        }
        self.write_family(&slices_by_state(), &series)
    }

    fn write_family(&mut self, family: &MetricFamily, series: &FamilySeries) -> Result<()> {
        let MetricFamily { name, help, kind, unit } = family;
        let (word, end) = match kind {
            MetricKind::Gauge => ("gauge", ""),
            MetricKind::Counter => ("counter", "_total"),
            MetricKind::Unknown => ("unknown", ""),
        };
        writeln!(self.out, "# HELP {name} {help}")?;
        writeln!(self.out, "# TYPE {name} {word}")?;
        if !unit.is_empty() {
            writeln!(self.out, "# UNIT {name} {unit}")?;
        }
        for (labels, points) in series {
            let own = (!labels.is_empty()).then(|| labels.clone());
            let all: Vec<String> = self.labels.iter().map(SeriesLabel::text).chain(own).collect();
            let labels =
                if all.is_empty() { String::new() } else { format!("{{{}}}", all.join(",")) };
            for SeriesPoint { time_ms, value } in points {
                let (seconds, ms) = (time_ms.div_euclid(1000), time_ms.rem_euclid(1000));
                writeln!(self.out, "{name}{end}{labels} {value} {seconds}.{ms:03}")?;
            }
        }
        Ok(())
    }
}
