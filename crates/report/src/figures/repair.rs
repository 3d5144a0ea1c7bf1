//! What emptying slices took: Figure 9 of Adaptive-Buddy, for each recording in which slices were
//! emptied.

use std::rc::Rc;

use ramslice_types::{Bytes, Pages};

use super::naming::{heading, id};
use super::time;
use super::utilisation::ByteUnit;
use crate::chart::{ChartAxis, ChartPanel, LegendEntry, LegendMark, Medium};
use crate::csv::{CsvRows, CsvTable};
use crate::figure::ReportFigure;
use crate::report_data::{
    EmptyingAttempt, EmptyingTotals, MachineMoment, RecordingData, ReportData,
};
use crate::scale::ceiling;

const FREE: &str = "Nearly free slices, and slices off";
const MOVED: &str = "Memory moved, and memory switched off for it";
const SHARE: &str = "How much of a slice had to be moved";

/// Three for each recording with attempts; nothing stands in the place of those without.
pub(crate) fn repair(runs: &ReportData) -> Vec<ReportFigure> {
    let all = runs.recorded.len();
    let with = runs.recorded.iter().enumerate().filter(|(_, one)| !one.attempts.is_empty());
    with.flat_map(|(at, recorded)| {
        let names =
            |base: &str, title: &str| (id(base, at, all), heading(title, &recorded.name, all));
        [
            free(names("repair-free", FREE), recorded),
            moved(names("repair-moved", MOVED), recorded),
            share(names("repair-share", SHARE), recorded),
        ]
    })
    .collect()
}

fn stripes(panel: &mut ChartPanel, recorded: &RecordingData) {
    for (from, to) in &recorded.compactions {
        panel.stripe("compaction", *from, *to, "");
    }
}

/// Figure 9a: slices that hardly anything keeps on, and what becomes of them.
fn free((id, title): (String, String), recorded: &Rc<RecordingData>) -> ReportFigure {
    let caption = "Slices that are on and more than 90% free: what a pass should empty first. \
                   They grow more when memory is given back, and go as slices are emptied. \
                   Stripes: slices were being emptied.";
    let mut csv = CsvTable::new(&["time_s", "nearly_free_slices", "offline_slices"]);
    for moment in &recorded.moments {
        let (nearly, off) = (moment.nearly_free_slices, moment.offline_slices);
        csv.row(&[format!("{:.3}", moment.seconds), nearly.to_string(), off.to_string()]);
    }
    let (recorded, name) = (Rc::clone(recorded), title.clone());
    ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
        draw_free(&id, &name, &recorded, look)
    })
}

fn draw_free(id: &str, title: &str, recorded: &RecordingData, look: Medium) -> String {
    let keys = [
        LegendEntry::new("fit s1", LegendMark::Line, "slices off"),
        LegendEntry::new("fit s3", LegendMark::Line, "on, and more than 90% free"),
        LegendEntry::new("compaction", LegendMark::Area, "emptying"),
    ];
    // Of the moments of a column the one with most nearly free slices, so that no peak is lost.
    let mut moments: Vec<&MachineMoment> = Vec::new();
    let columns = look.columns() as f64 / time::span(recorded);
    for moment in &recorded.moments {
        match moments.last_mut() {
            Some(last) if (last.seconds * columns) as u64 == (moment.seconds * columns) as u64 => {
                if moment.nearly_free_slices > last.nearly_free_slices {
                    *last = moment;
                }
            }
            _ => moments.push(moment),
        }
    }
    let top = moments
        .iter()
        .map(|moment| moment.nearly_free_slices.max(moment.offline_slices))
        .max()
        .unwrap_or(0);
    let x = time::axis(time::span(recorded), recorded.emulated);
    let y =
        ChartAxis::new((0.0, ceiling(top as f64)), format!("slices of {}", recorded.slice_bytes));
    let mut panel = ChartPanel::new(look, title, 220.0, &keys, &x, &y);
    stripes(&mut panel, recorded);
    let of = |value: &dyn Fn(&MachineMoment) -> u64| -> Vec<(f64, f64)> {
        moments.iter().map(|moment| (moment.seconds, value(moment) as f64)).collect()
    };
    panel.curve("fit s1", &of(&|moment| moment.offline_slices));
    panel.curve("fit s3", &of(&|moment| moment.nearly_free_slices));
    let width = time::span(recorded) / moments.len().max(1) as f64;
    let words = |moment: &MachineMoment| {
        format!(
            "{:.1} s: {} nearly free, {} off",
            moment.seconds, moment.nearly_free_slices, moment.offline_slices
        )
    };
    for moment in &moments {
        panel.hit(moment.seconds, width, &words(moment));
    }
    let ends = [moments.first(), moments.last()].into_iter().flatten().map(|moment| words(moment));
    panel.finish(id, title, &format!("{}.", ends.collect::<Vec<_>>().join(". ")))
}

/// Bytes moved and switched off so far, after each attempt.
fn sums(recorded: &RecordingData) -> impl Iterator<Item = (f64, Bytes, Bytes)> + '_ {
    let (mut moved, mut off) = (Bytes::ZERO, Bytes::ZERO);
    let sum = move |one: &EmptyingAttempt| {
        moved += one.migrated.bytes(recorded.page_bytes);
        off += if one.freed { recorded.slice_bytes } else { Bytes::ZERO };
        (one.seconds, moved, off)
    };
    recorded.attempts.iter().map(sum)
}

/// Figure 9b: what was moved over time, and what came of it.
fn moved((id, title): (String, String), recorded: &Rc<RecordingData>) -> ReportFigure {
    let (_, moved, off) = sums(recorded).last().unwrap_or_default();
    let caption = format!(
        "Sums since the beginning; slices that went off, woke and went off again count each time, \
         pages of attempts that failed count as moved. {moved} were moved and {off} switched off."
    );
    let shown = Rc::clone(recorded);
    let csv = CsvRows::new(&["time_s", "migrated_bytes", "switched_off_bytes"], move |csv| {
        for (seconds, moved, off) in sums(&shown) {
            csv.row(&[format!("{seconds:.3}"), moved.0.to_string(), off.0.to_string()])?;
        }
        Ok(())
    });
    let (recorded, name) = (Rc::clone(recorded), title.clone());
    ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
        draw_moved(&id, &name, &recorded, look)
    })
}

fn draw_moved(id: &str, title: &str, recorded: &RecordingData, look: Medium) -> String {
    let keys = [
        LegendEntry::new("fit s1", LegendMark::Line, "switched off"),
        LegendEntry::new("fit s3", LegendMark::Line, "moved for that"),
    ];
    let last = sums(recorded).last().unwrap_or_default();
    let unit = ByteUnit::of(last.1.0.max(last.2.0) as f64);
    let value = |bytes: Bytes| bytes.0 as f64 / unit.bytes;
    let end = time::span(recorded).max(last.0);
    let x = time::axis(end, recorded.emulated);
    let top = ceiling(value(last.1).max(value(last.2)));
    let y = ChartAxis::new((0.0, top), format!("memory, {}", unit.name));
    let mut panel = ChartPanel::new(look, title, 220.0, &keys, &x, &y);
    // The last of each column.
    let columns = look.columns() as f64 / end;
    let mut shown = vec![(0.0, Bytes::ZERO, Bytes::ZERO)];
    for sum in sums(recorded) {
        match shown.last_mut() {
            Some(kept) if (kept.0 * columns) as u64 == (sum.0 * columns) as u64 && sum.0 > 0.0 => {
                *kept = sum;
            }
            _ => shown.push(sum),
        }
    }
    shown.push((end, last.1, last.2));
    let of = |which: &dyn Fn(&(f64, Bytes, Bytes)) -> Bytes| -> Vec<(f64, f64)> {
        // A sum holds until the next attempt.
        let mut stairs = Vec::with_capacity(2 * shown.len());
        for (at, sum) in shown.iter().enumerate() {
            if let Some(before) = at.checked_sub(1) {
                stairs.push((sum.0, value(which(&shown[before]))));
            }
            stairs.push((sum.0, value(which(sum))));
        }
        stairs
    };
    panel.curve("fit s1", &of(&|sum| sum.2));
    panel.curve("fit s3", &of(&|sum| sum.1));
    let width = end / shown.len() as f64;
    for (seconds, moved, off) in &shown {
        panel.hit(*seconds, width, &format!("{seconds:.1} s: {moved} moved, {off} switched off"));
    }
    panel.finish(id, title, &format!("{} moved, {} switched off.", last.1, last.2))
}

/// Figure 9c: of each slice that was emptied, what had to be moved.
fn share((id, title): (String, String), recorded: &Rc<RecordingData>) -> ReportFigure {
    let columns = &[
        "time_s",
        "slice_id",
        "freed",
        "migrated_pages",
        "dropped_pages",
        "migrated_ratio",
        "used_ratio",
    ];
    let shown = Rc::clone(recorded);
    let csv = CsvRows::new(columns, move |csv| {
        let frames = shown.frames();
        for one in &shown.attempts {
            csv.row(&[
                format!("{:.3}", one.seconds),
                one.slice.to_string(),
                one.freed.to_string(),
                one.migrated.to_string(),
                one.dropped.to_string(),
                format!("{:.6}", one.migrated.share_of(frames)),
                format!("{:.6}", (one.migrated + one.dropped).share_of(frames)),
            ])?;
        }
        Ok(())
    });
    let caption = caption(&recorded.emptying());
    let (recorded, name) = (Rc::clone(recorded), title.clone());
    ReportFigure::drawn(id.clone(), title, caption, csv, move |look| {
        draw_share(&id, &name, &recorded, look)
    })
}

fn count(slices: u64, one: &str, many: &str) -> String {
    if slices == 1 { format!("1 {one}") } else { format!("{slices} {many}") }
}

fn caption(sums: &EmptyingTotals) -> String {
    let percent = |share: f64| (share * 100.0).round();
    let mut text = "A dot is a slice that was emptied, or the mean of those of a moment, with the \
                    least and the most. What had not to be moved was free, or clean cache that \
                    was dropped."
        .to_owned();
    if sums.emptied > 0 {
        text += &format!(
            " {}; on average {}% of such a slice had to be moved, and {}% was in use.",
            count(sums.emptied, "slice was emptied", "slices were emptied"),
            percent(sums.migrated_share),
            percent(sums.used_share)
        );
    }
    if sums.empty > 0 {
        text += &format!(" {} empty already.", count(sums.empty, "more was", "more were"));
    }
    if sums.failed > 0 {
        text += &format!(" {} failed.", count(sums.failed, "attempt", "attempts"));
    }
    text
}

/// Slices that were emptied within one column.
struct EmptyingBin {
    from: f64,
    until: f64,
    count: u64,
    sum: f64,
    low: f64,
    high: f64,
}

fn bins(recorded: &RecordingData, columns: usize) -> Vec<EmptyingBin> {
    let width = time::span(recorded) / columns as f64;
    let mut bins: Vec<(u64, EmptyingBin)> = Vec::new();
    let emptied = |one: &&EmptyingAttempt| one.freed && one.migrated + one.dropped > Pages::ZERO;
    for one in recorded.attempts.iter().filter(emptied) {
        let (share, column) =
            (one.migrated.share_of(recorded.frames()).min(1.0), (one.seconds / width) as u64);
        match bins.last_mut() {
            Some((last, bin)) if *last == column => {
                bin.until = one.seconds;
                bin.count += 1;
                bin.sum += share;
                (bin.low, bin.high) = (bin.low.min(share), bin.high.max(share));
            }
            _ => {
                let (from, until) = (one.seconds, one.seconds);
                bins.push((
                    column,
                    EmptyingBin { from, until, count: 1, sum: share, low: share, high: share },
                ));
            }
        }
    }
    bins.into_iter().map(|(_, bin)| bin).collect()
}

fn draw_share(id: &str, title: &str, recorded: &RecordingData, look: Medium) -> String {
    let keys =
        [LegendEntry::new("series s3", LegendMark::Dot, "moved out of a slice that went off")];
    let bins = bins(recorded, look.columns());
    let end = time::span(recorded).max(bins.last().map_or(0.0, |bin| bin.until));
    let x = time::axis(end, recorded.emulated);
    let mut panel = ChartPanel::new(
        look,
        title,
        220.0,
        &keys,
        &x,
        &ChartAxis::new((0.0, 1.0), "share of the slice"),
    );
    for bin in &bins {
        let (at, mean) = (f64::midpoint(bin.from, bin.until), bin.sum / bin.count as f64);
        if bin.high > bin.low {
            panel.whisker(at, bin.low, bin.high);
        }
        let words = match bin.count {
            1 => format!("{at:.1} s: {:.0}%", mean * 100.0),
            many => format!(
                "{at:.1} s: {:.0}% of {many} slices, {:.0}% to {:.0}%",
                mean * 100.0,
                bin.low * 100.0,
                bin.high * 100.0
            ),
        };
        let point = panel.at(at, mean);
        panel.svg.circle("series s3", point, 3.0, &words);
    }
    let sums = recorded.emptying();
    let about = format!(
        "{} emptied, {:.0}% moved on average.",
        count(sums.emptied, "slice", "slices"),
        sums.migrated_share * 100.0
    );
    panel.finish(id, title, &about)
}
