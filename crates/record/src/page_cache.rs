//! What the table `vmstat` says of the page cache at each sample: look-ups, and watermarks that
//! follow the hit ratio.

use std::collections::BTreeMap;
use std::iter::Peekable;

use ramslice_types::{Bytes, CacheLookups};

use crate::daemon_watermarks::is_watermark;
use crate::error::ReadError;
use crate::reader::Recording;
use crate::table_rows::TableRows;
use crate::tables::Vmstat;

/// The page cache at a sample.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageCacheSample {
    /// When, on the clock that goes on during suspend.
    pub boottime_us: i64,
    /// Look-ups since boot; nothing if the kernel does not count them.
    pub lookups: Option<CacheLookups>,
    /// Watermarks of a daemon, by their names in the table.
    pub watermarks: BTreeMap<String, Bytes>,
}

/// The samples of a recording that have statistics, by time.
pub struct PageCacheSamples {
    rows: Peekable<TableRows<Vmstat>>,
    /// Read ahead for [`Self::at`].
    next: Option<PageCacheSample>,
}

impl PageCacheSamples {
    /// Of a recording.
    pub fn of(recording: &Recording) -> Self {
        Self { rows: recording.rows().peekable(), next: None }
    }

    /// The sample of this time; nothing if it has no statistics. Times must rise.
    ///
    /// # Errors
    /// By file and row, if a value cannot be.
    pub fn at(&mut self, boottime_us: i64) -> Result<Option<PageCacheSample>, ReadError> {
        loop {
            let sample = match self.next.take() {
                Some(sample) => sample,
                None => match self.read() {
                    Some(sample) => sample?,
                    None => return Ok(None),
                },
            };
            if sample.boottime_us == boottime_us {
                return Ok(Some(sample));
            }
            if sample.boottime_us > boottime_us {
                self.next = Some(sample);
                return Ok(None);
            }
        }
    }

    fn read(&mut self) -> Option<Result<PageCacheSample, ReadError>> {
        let (number, boottime_us) = match self.rows.peek()? {
            Ok(first) => (first.row.sample, first.row.boottime_us),
            Err(_) => return self.rows.next().and_then(Result::err).map(Err),
        };
        let (mut values, mut watermarks) = (BTreeMap::new(), BTreeMap::new());
        while let Some(row) =
            self.rows.next_if(|row| row.as_ref().map_or(true, |row| row.row.sample == number))
        {
            let row = match row {
                Ok(row) => row.row,
                Err(error) => return Some(Err(error)),
            };
            let value = u64::try_from(row.value).unwrap_or(0);
            if let Some(name) = CacheLookups::NAMES.into_iter().find(|name| *name == row.name) {
                values.insert(name, value);
            } else if is_watermark(&row.name) {
                watermarks.insert(row.name.to_string(), Bytes(value));
            }
        }
        let lookups = CacheLookups::of(|name| values.get(name).copied()).ok();
        Some(Ok(PageCacheSample { boottime_us, lookups, watermarks }))
    }
}

impl Iterator for PageCacheSamples {
    type Item = Result<PageCacheSample, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.next.take().map(Ok).or_else(|| self.read())
    }
}
