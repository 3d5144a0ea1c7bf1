//! Machine utilisation as a load: files in the column layout of the public trace of 2018,
//! `machine_usage.csv`.
//!
//! Nine columns without a header: `machine_id`, `time_stamp`, `cpu_util_percent`,
//! `mem_util_percent`, `mem_gps`, `mkpi`, `net_in`, `net_out`, `disk_io_percent`.
//! Times are seconds since the trace began. Only the first, second and fourth are used. The rows of
//! a machine follow one another in order of time, so a file of any length is read a machine at a
//! time.

use std::collections::HashSet;
use std::fmt;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::read::MultiGzDecoder;
use serde::Serialize;

use super::{InputError, InputNotes, LoadStep};
use crate::machine::{MemoryChange, OwnerClass, OwnerId};

const COLUMNS: usize = 9;
const BYTE_ORDER_MARK: char = '\u{feff}';
/// The bytes that a gzip file begins with (RFC 1952, 2.3.1).
const GZIP: [u8; 2] = [0x1f, 0x8b];
/// Longer than a year of seconds: the column holds another quantity.
const MOST_SECONDS: f64 = 3.2e7;
/// Rows that are usually further apart, in seconds, are few for a machine: the column holds
/// milliseconds.
const USUAL_MOST: u64 = 3600;
/// Percentages that never exceed 1 in so many rows are shares.
const ROWS_FOR_UNIT: u64 = 20;

/// The memory in use on one machine over time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct UsageSeries {
    /// The machine's name in the file.
    pub machine: String,
    /// Seconds since the trace began, rising.
    pub seconds: Vec<u64>,
    /// Memory in use, as a share: 0 to 1.
    pub used: Vec<f32>,
    /// What was left out.
    pub notes: InputNotes,
}

/// A file that is read a machine at a time.
#[derive(Debug)]
pub struct UsageFile {
    path: PathBuf,
    reader: UsageReader,
    /// The row under way. The layout has no quotes, so a comma is one, and a line a row.
    text: String,
    line: u64,
    /// The first row of the next machine is in `text`.
    has_next_row: bool,
    machine_names: HashSet<String>,
    at_end: bool,
    sparse: bool,
}

/// Text, or what unpacks it.
enum UsageReader {
    Plain(BufReader<File>),
    Gzip(Box<BufReader<MultiGzDecoder<BufReader<File>>>>),
}

impl UsageReader {
    fn open(path: &Path) -> io::Result<Self> {
        const BUFFER: usize = 1 << 18;
        let mut file = BufReader::with_capacity(BUFFER, File::open(path)?);
        let packed = file.fill_buf().is_ok_and(|bytes| bytes.starts_with(&GZIP));
        Ok(if packed {
            let unpacked = MultiGzDecoder::new(file);
            Self::Gzip(Box::new(BufReader::with_capacity(BUFFER, unpacked)))
        } else {
            Self::Plain(file)
        })
    }

    fn read_line(&mut self, text: &mut String) -> io::Result<usize> {
        match self {
            Self::Plain(reader) => reader.read_line(text),
            Self::Gzip(reader) => reader.read_line(text),
        }
    }
}

impl fmt::Debug for UsageReader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain(_) => "text",
            Self::Gzip(_) => "gzip",
        })
    }
}

/// A valid row.
struct UsageRow {
    second: u64,
    used: Option<f32>,
}

impl UsageFile {
    /// Opens a file, which may be compressed by gzip.
    ///
    /// # Errors
    /// If it cannot be opened.
    pub fn open(path: &Path) -> Result<Self, InputError> {
        let reader = UsageReader::open(path)
            .map_err(|source| InputError::Io { path: path.to_owned(), source })?;
        Ok(Self {
            path: path.to_owned(),
            reader,
            text: String::new(),
            line: 0,
            has_next_row: false,
            machine_names: HashSet::new(),
            at_end: false,
            sparse: false,
        })
    }

    /// Takes rows that are usually more than an hour apart, too: the times are known to be in
    /// seconds.
    #[must_use]
    pub fn sparse(self, sparse: bool) -> Self {
        Self { sparse, ..self }
    }

    fn error(&self, what: impl Into<String>) -> InputError {
        InputError::row(&self.path, self.line, what)
    }

    /// Reads the next row; false at the end. Empty lines are passed over.
    fn read(&mut self) -> Result<bool, InputError> {
        if std::mem::take(&mut self.has_next_row) {
            return Ok(true);
        }
        loop {
            self.text.clear();
            self.line += 1;
            match self.reader.read_line(&mut self.text) {
                Ok(0) => return Ok(false),
                Ok(_) => {}
                Err(error)
                    if error.kind() == io::ErrorKind::InvalidData
                        && matches!(self.reader, UsageReader::Plain(_)) =>
                {
                    return Err(self.error("the row is not text in UTF-8"));
                }
                Err(source) => return Err(InputError::Io { path: self.path.clone(), source }),
            }
            self.text.truncate(self.text.trim_end().len());
            // Some programs begin a file with a byte order mark; it is no part of a name.
            if self.line == 1 && self.text.starts_with(BYTE_ORDER_MARK) {
                self.text.drain(..BYTE_ORDER_MARK.len_utf8());
            }
            if !self.text.is_empty() {
                break;
            }
        }
        let columns = self.text.split(',').count();
        if columns != COLUMNS {
            return Err(self.error(format!(
                "{columns} columns instead of {COLUMNS}: machine_id, time_stamp, \
                 cpu_util_percent, mem_util_percent, mem_gps, mkpi, net_in, net_out, \
                 disk_io_percent; a last row that is cut off belongs to a file half-written"
            )));
        }
        Ok(true)
    }

    fn column(&self, at: usize) -> &str {
        self.text.split(',').nth(at).unwrap_or_default().trim()
    }

    fn number(&self, column: usize, name: &str) -> Result<Option<f64>, InputError> {
        let text = self.column(column);
        if text.is_empty() {
            return Ok(None);
        }
        match text.parse::<f64>() {
            Ok(number) if number.is_finite() => Ok(Some(number)),
            _ => Err(self.error(format!(
                "{name} is `{text}`, which is no number; files of this layout have no header, and \
                 `,` between columns"
            ))),
        }
    }

    fn row(&self) -> Result<UsageRow, InputError> {
        let time = self.number(1, "time_stamp")?;
        let time =
            time.ok_or_else(|| self.error("time_stamp is empty: every row needs its time"))?;
        if !(0.0..=MOST_SECONDS).contains(&time) {
            return Err(self.error(format!(
                "time_stamp is {time}: it is in seconds since the trace began, from 0 to a year; \
                 is it in milliseconds, or a date?"
            )));
        }
        let used = match self.number(3, "mem_util_percent")? {
            None => None,
            // The trace writes -1 and 101 for what is not known.
            #[allow(clippy::float_cmp)] // written so, not calculated
            Some(percent) if percent == -1.0 || percent == 101.0 => None,
            Some(percent) if (0.0..=100.0).contains(&percent) => Some((percent / 100.0) as f32),
            Some(percent) => {
                return Err(self.error(format!(
                    "mem_util_percent is {percent}: it lies between 0 and 100, or is -1 or 101 if \
                     not known"
                )));
            }
        };
        Ok(UsageRow { second: time as u64, used })
    }

    /// All rows of the next machine.
    fn machine(&mut self) -> Result<Option<UsageSeries>, InputError> {
        let (mut series, mut last) = (UsageSeries::default(), String::new());
        let (mut first_line, mut rows, mut most) = (0, 0u64, 0f32);
        // Of all rows, those without a value as well.
        let (mut distances, mut latest) = (Vec::new(), None);
        while self.read()? {
            let machine = self.column(0);
            if rows == 0 {
                if machine.is_empty() {
                    return Err(self.error("machine_id is empty"));
                }
                machine.clone_into(&mut series.machine);
                first_line = self.line;
                if !self.machine_names.insert(series.machine.clone()) {
                    return Err(self.error(format!(
                        "machine {} was there before: the rows of a machine follow one another; \
                         sort the file by machine_id and time_stamp (sort -t, -k1,1 -k2,2n)",
                        series.machine
                    )));
                }
            } else if machine != series.machine {
                self.has_next_row = true;
                break;
            }
            let row = self.row()?;
            rows += 1;
            if let Some(&before) = series.seconds.last() {
                if row.second < before {
                    let what = format!(
                        "time runs backwards, from {before} s to {} s: sort the file by \
                         machine_id and time_stamp",
                        row.second
                    );
                    return Err(self.error(what));
                }
                if row.second == before {
                    if self.text == last {
                        series.notes.repeated += 1;
                        continue;
                    }
                    let what = format!(
                        "a second, different row of machine {} at {before} s",
                        series.machine
                    );
                    return Err(self.error(what));
                }
            }
            last.clone_from(&self.text);
            distances
                .extend(latest.replace(row.second).map(|before| row.second.saturating_sub(before)));
            let Some(used) = row.used else {
                series.notes.without_value += 1;
                continue;
            };
            most = most.max(used);
            series.seconds.push(row.second);
            series.used.push(used);
        }
        if rows == 0 {
            return Ok(None);
        }
        if series.used.is_empty() {
            let what = format!(
                "none of the {rows} rows of machine {} has mem_util_percent",
                series.machine
            );
            return Err(InputError::row(&self.path, first_line, what));
        }
        if rows >= ROWS_FOR_UNIT && most > 0.0 && most <= 0.01 {
            let what = format!(
                "mem_util_percent of machine {} never exceeds 1 in {rows} rows: it is in per \
                 cent, not a share of 1",
                series.machine
            );
            return Err(InputError::row(&self.path, first_line, what));
        }
        if let Some(usual) =
            usual(&mut distances).filter(|usual| *usual > USUAL_MOST && !self.sparse)
        {
            let what = format!(
                "the rows of machine {} are usually {usual} s apart: time_stamp is in seconds; is \
                 it in milliseconds? Rows more than an hour apart are taken with --sparse",
                series.machine
            );
            return Err(InputError::row(&self.path, first_line, what));
        }
        let times = series.seconds.windows(2).map(|pair| Duration::from_secs(pair[1] - pair[0]));
        series.notes.count_gaps(times.collect());
        Ok(Some(series))
    }
}

/// The one in the middle.
fn usual(distances: &mut [u64]) -> Option<u64> {
    distances.sort_unstable();
    distances.get(distances.len() / 2).copied()
}

impl Iterator for UsageFile {
    type Item = Result<UsageSeries, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.at_end {
            return None;
        }
        let found = self.machine();
        if found.is_err() {
            self.at_end = true;
        }
        match found {
            Ok(None) if self.machine_names.is_empty() => {
                self.at_end = true;
                let what = "the file has no rows".to_owned();
                Some(Err(InputError::Empty { path: self.path.clone(), what }))
            }
            found => found.transpose(),
        }
    }
}

/// Assumptions about what utilisation does not show.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct UsageOptions {
    /// Between two steps: rows in between are passed over, and across gaps the last one holds.
    #[serde(rename = "step_us", with = "ramslice_types::duration_us")]
    pub step: Duration,
    /// The share of what is in use that is clean page cache, 0 to 1.
    pub cache_share: f64,
    /// The share of the cache that is used again in an hour.
    pub cache_reuse_per_hour: f64,
}

impl Default for UsageOptions {
    fn default() -> Self {
        Self { step: Duration::from_mins(5), cache_share: 0.2, cache_reuse_per_hour: 0.5 }
    }
}

/// A series as steps of equal length.
#[derive(Debug)]
pub struct UsageLoad<'a> {
    series: &'a UsageSeries,
    options: UsageOptions,
    pages: u64,
    /// Not to be asked for: what the kernel reserved at boot counts as in use.
    boot: u64,
    step: u64,
    next: usize,
}

impl<'a> UsageLoad<'a> {
    /// The load on a machine of `pages` pages, of which `boot` were reserved at boot.
    pub fn new(series: &'a UsageSeries, options: UsageOptions, pages: u64, boot: u64) -> Self {
        Self { series, options, pages, boot, step: 0, next: 0 }
    }
}

impl Iterator for UsageLoad<'_> {
    type Item = LoadStep;

    fn next(&mut self) -> Option<LoadStep> {
        let (first, last) = (*self.series.seconds.first()?, *self.series.seconds.last()?);
        let length = self.options.step.as_secs().max(1);
        let now = first + self.step * length;
        if now > last {
            return None;
        }
        while self.series.seconds.get(self.next + 1).is_some_and(|&second| second <= now) {
            self.next += 1;
        }
        let used = (f64::from(self.series.used[self.next]) * self.pages as f64) as u64;
        let used = used.saturating_sub(self.boot);
        let cache = (used as f64 * self.options.cache_share) as u64;
        let hours = length as f64 / 3600.0;
        let level = |owner, class, pages| MemoryChange::Level {
            owner: OwnerId(owner),
            class,
            maps: 1,
            pages,
        };
        let changes = vec![
            level(0, OwnerClass::Anon, used - cache),
            level(1, OwnerClass::File, cache),
            MemoryChange::Read {
                owner: OwnerId(1),
                pages: (cache as f64 * (self.options.cache_reuse_per_hour * hours).min(1.0)) as u64,
            },
        ];
        let step = LoadStep { time: Duration::from_secs(self.step * length), changes };
        self.step += 1;
        Some(step)
    }
}
