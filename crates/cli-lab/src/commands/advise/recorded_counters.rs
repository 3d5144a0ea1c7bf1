//! The counters of recordings that advice rests on, sample by sample, and what makes a recording
//! unfit for it.

use std::collections::HashMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use anyhow::Result;
use ramslice_cli::exit::UsageError;
use ramslice_record::tables::{Meminfo, Sample, Vmstat, Zone};
use ramslice_record::{LocatedRow, Recording, RecordingInfo};
use ramslice_types::Bytes;
use thiserror::Error;

use crate::recordings::unreplayable_error;

/// The counter whose absence says that a kernel does not count what is needed.
pub(super) const LOOKUPS: &str = "ramslice_lookup_read";
/// Beginnings of the names of lines that are kept.
const KEPT: [&str; 10] = [
    "ramslice_",
    "pressure_",
    "cpu_",
    "recorder_",
    "pgsteal_anon",
    "pgsteal_file",
    "pgactivate",
    "workingset_activate_",
    "pswpin",
    "nr_",
];
/// Of those that begin with `nr_`.
const LISTS: [&str; 4] =
    ["nr_inactive_anon", "nr_active_anon", "nr_inactive_file", "nr_active_file"];
/// What pages are if a recording without slices does not say it.
const PAGE: Bytes = Bytes(4096);

/// A recording that advice cannot rest on.
#[derive(Debug, Error)]
pub(crate) enum UnfitRecording {
    /// Something is missing in it.
    #[error(
        "{path} has gaps: {samples} samples and {parts} parts of tables are missing; record again",
        path = .path.display()
    )]
    Gaps {
        /// The recording.
        path: PathBuf,
        /// Samples that are missing.
        samples: u64,
        /// Parts that are missing.
        parts: u64,
    },
    /// It has no counters.
    #[error(
        "{path} has no {LOOKUPS}: it was recorded on a kernel that does not count look-ups of \
         page cache, or without statistics; record on a kernel with ramslice, and not with --from",
        path = .path.display()
    )]
    NoCounters {
        /// The recording.
        path: PathBuf,
    },
    /// Two recordings that do not belong together.
    #[error(
        "{path} is of another boot than {other}: counters begin again with each; advise on one \
         boot at a time",
        path = .path.display(),
        other = .other.display()
    )]
    OtherBoot {
        /// The recording.
        path: PathBuf,
        /// The first one.
        other: PathBuf,
    },
    /// Two recordings of the same time.
    #[error(
        "{path} and {other} were recorded at the same time: name one of them",
        path = .path.display(),
        other = .other.display()
    )]
    Overlap {
        /// The recording.
        path: PathBuf,
        /// The one before it.
        other: PathBuf,
    },
    /// Too little was recorded.
    #[error("{have} samples are too few: {wanted} are wanted, {why}")]
    TooFew {
        /// Samples that there are.
        have: usize,
        /// Samples that are needed.
        wanted: usize,
        /// For what.
        why: &'static str,
    },
    /// Pages were looked at too rarely.
    #[error(
        "the interval of --reuse is too long: the sampled pages were looked at {scans} times in \
         {seconds} s, and {wanted} stretches of time with a look are wanted; record with a shorter \
         one, or for longer"
    )]
    RareScans {
        /// Looks in the time that counts.
        scans: u64,
        /// That time.
        seconds: u64,
        /// Stretches that are needed.
        wanted: usize,
    },
}

/// Counters and sizes at one sample.
#[derive(Debug, Clone)]
pub(super) struct CounterSample {
    pub(super) boottime_us: i64,
    /// Memory that is on, and what is free of it, in pages.
    pub(super) memory_pages: f64,
    pub(super) free_pages: f64,
    /// What the kernel keeps free; 0 if that is not recorded.
    pub(super) reserve_pages: f64,
    pub(super) swap: bool,
    values: HashMap<String, i64>,
}

impl CounterSample {
    /// A counter; nothing if it is not recorded.
    pub(super) fn get(&self, name: &str) -> Option<f64> {
        self.values.get(name).map(|value| *value as f64)
    }

    /// The same, or 0.
    pub(super) fn or_zero(&self, name: &str) -> f64 {
        self.get(name).unwrap_or_default()
    }

    /// Counters whose names begin so, with the rest of their names.
    pub(super) fn beginning<'a>(
        &'a self,
        prefix: &'a str,
    ) -> impl Iterator<Item = (&'a str, f64)> + 'a {
        let rest = move |(name, value): (&'a String, &i64)| {
            Some((name.strip_prefix(prefix)?, *value as f64))
        };
        self.values.iter().filter_map(rest)
    }
}

/// The samples of recordings of one boot, in order of time.
#[derive(Debug, Clone)]
pub(super) struct RecordedCounters {
    pub(super) samples: Vec<CounterSample>,
    /// Numbers of samples that do not go on where the one before ended: the recorder was not there.
    pub(super) breaks: Vec<usize>,
    /// The recordings, and the number of the first sample of each.
    begins: Vec<(PathBuf, usize)>,
    pub(super) page: Bytes,
    /// The size of a slice; nothing without slices.
    pub(super) slice: Option<Bytes>,
}

impl RecordedCounters {
    /// Reads recordings, in whatever order they are named.
    ///
    /// # Errors
    /// [`UnfitRecording`], and what cannot be read, by file and row.
    pub(super) fn read(dirs: &[PathBuf]) -> Result<Self> {
        let Some(first) = dirs.first() else {
            return Err(UsageError("name a recording".to_owned()).into());
        };
        let mut parts = Vec::new();
        let mut boot: Option<RecordingInfo> = None;
        for dir in dirs {
            let recording = Recording::open(dir).map_err(unreplayable_error)?;
            let about = recording.info().clone();
            if boot.as_ref().is_some_and(|boot| boot.boot_id != about.boot_id) {
                let (path, other) = (dir.clone(), first.clone());
                return Err(UnfitRecording::OtherBoot { path, other }.into());
            }
            let samples = read(&recording)?;
            parts.extend(
                samples
                    .first()
                    .map(|sample| sample.boottime_us)
                    .map(|begin| (begin, dir.clone(), samples)),
            );
            boot.get_or_insert(about);
        }
        parts.sort_by_key(|(begin, ..)| *begin);
        for pair in parts.windows(2) {
            let end = pair[0].2.last().map_or(0, |sample| sample.boottime_us);
            if pair[1].0 <= end {
                let (path, other) = (pair[1].1.clone(), pair[0].1.clone());
                return Err(UnfitRecording::Overlap { path, other }.into());
            }
        }
        let interval_us = boot.as_ref().map_or(0, |about| about.interval_us);
        let page = boot.as_ref().map_or(PAGE, page_of);
        let geometry = boot.and_then(|about| about.geometry);
        let mut found = Self {
            samples: Vec::new(),
            breaks: Vec::new(),
            begins: Vec::new(),
            page,
            slice: geometry.map(|geometry| geometry.slice_bytes),
        };
        for (begin, dir, samples) in parts {
            if let Some(last) = found.samples.last()
                && u64::try_from(begin - last.boottime_us).is_ok_and(|gap| gap > 2 * interval_us)
            {
                found.breaks.push(found.samples.len());
            }
            found.begins.push((dir, found.samples.len()));
            found.samples.extend(samples);
        }
        Ok(found)
    }

    /// The recordings in order of time, with the numbers of their samples.
    pub(super) fn recordings(&self) -> impl Iterator<Item = (&Path, Range<usize>)> {
        let ends = self.begins.iter().skip(1).map(|(_, begin)| *begin);
        let ends = ends.chain([self.samples.len()]);
        self.begins.iter().zip(ends).map(|((path, begin), end)| (path.as_path(), *begin..end))
    }
}

/// The size of the recorded machine's pages.
fn page_of(about: &RecordingInfo) -> Bytes {
    about.geometry.as_ref().map_or(PAGE, |geometry| geometry.page_bytes)
}

/// The samples of one recording.
fn read(recording: &Recording) -> Result<Vec<CounterSample>> {
    let path = || recording.dir().to_owned();
    let page = page_of(recording.info());
    let findings = recording.check().map_err(unreplayable_error)?;
    if findings.missing_samples > 0 || findings.missing_parts > 0 {
        let (samples, parts) = (findings.missing_samples, findings.missing_parts);
        return Err(UnfitRecording::Gaps { path: path(), samples, parts }.into());
    }
    let mut values = grouped(recording.rows::<Vmstat>(), |row| {
        let kept = KEPT.iter().any(|prefix| row.name.starts_with(prefix))
            && (!row.name.starts_with("nr_") || LISTS.contains(&row.name.as_ref()));
        (row.sample, kept.then(|| (row.name.to_string(), row.value)))
    })?;
    let meminfo = grouped(recording.rows::<Meminfo>(), |row| {
        let kept = ["MemTotal", "MemFree", "SwapTotal"].contains(&row.name.as_ref());
        (row.sample, kept.then(|| (row.name.to_string(), row.value)))
    })?;
    let reserves = grouped(recording.rows::<Zone>(), |row| {
        (row.sample, Some((row.zone_index.to_string(), row.low_wmark_pages)))
    })?;
    let mut found = Vec::new();
    for located in recording.rows::<Sample>() {
        let row = located.map_err(unreplayable_error)?.row;
        let Some(values) = values.remove(&row.sample) else {
            return Err(UnfitRecording::NoCounters { path: path() }.into());
        };
        if !values.contains_key(LOOKUPS) {
            return Err(UnfitRecording::NoCounters { path: path() }.into());
        }
        let line = |name: &str| {
            let lines = meminfo.get(&row.sample)?;
            lines.get(name).copied()
        };
        let pages = |bytes: Option<i64>| bytes.map(|bytes| bytes / page.0.max(1).cast_signed());
        let memory = row.managed_pages.map(|pages| pages - row.offline_pages.unwrap_or(0));
        let reserve: i64 = reserves.get(&row.sample).into_iter().flat_map(HashMap::values).sum();
        found.push(CounterSample {
            boottime_us: row.boottime_us,
            memory_pages: memory.or(pages(line("MemTotal"))).unwrap_or(0) as f64,
            free_pages: row.free_pages.or(pages(line("MemFree"))).unwrap_or(0) as f64,
            reserve_pages: reserve as f64,
            swap: line("SwapTotal").is_some_and(|bytes| bytes > 0),
            values,
        });
    }
    Ok(found)
}

/// Names and values of a table's rows by sample.
fn grouped<R>(
    rows: impl Iterator<Item = Result<LocatedRow<R>, ramslice_record::ReadError>>,
    of: impl Fn(&R) -> (i64, Option<(String, i64)>),
) -> Result<HashMap<i64, HashMap<String, i64>>> {
    let mut found: HashMap<i64, HashMap<String, i64>> = HashMap::new();
    for located in rows {
        let (sample, kept) = of(&located.map_err(unreplayable_error)?.row);
        found.entry(sample).or_default().extend(kept);
    }
    Ok(found)
}

/// The recordings as a text that names them.
pub(super) fn names(dirs: &[PathBuf]) -> String {
    dirs.iter().map(|dir: &PathBuf| Path::display(dir).to_string()).collect::<Vec<_>>().join(", ")
}
