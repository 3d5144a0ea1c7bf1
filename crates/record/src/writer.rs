//! The thread that writes: it gathers rows and writes a part of every table before they grow old.
//!
//! Sampling does not wait for the disk. When the disk is slower than the recording for long, the
//! queue is full and sampling does wait; the samples missed meanwhile are counted.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::error::WriteError;
use crate::part;
use crate::recording_info::{RecordingEnd, RecordingInfo};
use crate::tables::{Census, Event, Meminfo, RecordingTable, Sample, Slice, Vmstat, Zone};

/// Rows that wait to be written.
#[derive(Debug, Default)]
pub struct RowBatch {
    /// Samples.
    pub samples: Vec<Sample>,
    /// Zones of these.
    pub zones: Vec<Zone>,
    /// Slices of these.
    pub slices: Vec<Slice>,
    /// Events.
    pub events: Vec<Event>,
    /// Lines of `/proc/meminfo`.
    pub meminfo: Vec<Meminfo>,
    /// Lines of `/proc/vmstat`.
    pub vmstat: Vec<Vmstat>,
    /// Slices of a census.
    pub census: Vec<Census>,
    /// When the first of these rows was made; their age counts from then, not from when the thread
    /// has them.
    pub made: Option<Instant>,
}

impl RowBatch {
    /// Writes rows that are all at hand as a recording of one part, which ended as `ended` says.
    ///
    /// For programs that have rows from elsewhere than a machine: simulations, and tests. The
    /// directory must not exist.
    pub fn write_recording(
        &self,
        dir: &Path,
        about: &RecordingInfo,
        ended: &RecordingEnd,
    ) -> Result<(), WriteError> {
        let tables = RecordingTable::ALL
            .into_iter()
            .filter(|table| !table.is_optional() || !self.census.is_empty());
        for path in
            std::iter::once(dir.to_owned()).chain(tables.map(|table| dir.join(table.name())))
        {
            fs::create_dir(&path).map_err(|source| WriteError::io("creating", &path, source))?;
        }
        self.write(dir, 0, about)?;
        part::write_json(
            &dir.join(part::MANIFEST),
            &serde_json::json!({ "about": about, "ended": ended }),
        )
    }

    fn rows(&self) -> usize {
        self.samples.len()
            + self.zones.len()
            + self.slices.len()
            + self.events.len()
            + self.meminfo.len()
            + self.vmstat.len()
            + self.census.len()
    }

    fn append(&mut self, mut other: Self) {
        if other.rows() == 0 {
            return;
        }
        self.samples.append(&mut other.samples);
        self.zones.append(&mut other.zones);
        self.slices.append(&mut other.slices);
        self.events.append(&mut other.events);
        self.meminfo.append(&mut other.meminfo);
        self.vmstat.append(&mut other.vmstat);
        self.census.append(&mut other.census);
        self.made = [self.made, other.made].into_iter().flatten().min();
    }

    /// One part of every table that the recording has, samples last: see
    /// [`crate::tables::RecordingTable`].
    fn write(&self, dir: &Path, number: u32, about: &RecordingInfo) -> Result<(), WriteError> {
        part::write(dir, number, about, &self.slices)?;
        part::write(dir, number, about, &self.zones)?;
        part::write(dir, number, about, &self.events)?;
        part::write(dir, number, about, &self.meminfo)?;
        part::write(dir, number, about, &self.vmstat)?;
        if dir.join(RecordingTable::Census.name()).is_dir() {
            part::write(dir, number, about, &self.census)?;
        }
        part::write(dir, number, about, &self.samples)
    }
}

/// Batches that may wait while the disk is busy.
const QUEUE: usize = 16;
/// A part is written at this many rows, however young: about 200 MiB while it is encoded.
const MOST_ROWS: usize = 1 << 20;

/// The thread's other end.
pub(crate) struct PartWriter {
    batches: SyncSender<RowBatch>,
    thread: JoinHandle<Result<u32, WriteError>>,
}

impl PartWriter {
    /// Begins with part `number`; rows become at most `age` old before they are written.
    pub(crate) fn start(dir: PathBuf, number: u32, age: Duration, about: RecordingInfo) -> Self {
        let (batches, queue) = sync_channel(QUEUE);
        let thread = std::thread::spawn(move || work(&dir, number, age, &about, &queue));
        Self { batches, thread }
    }

    /// Hands rows over; fails if the thread has ended with an error, which [`finish`](Self::finish)
    /// returns.
    pub(crate) fn send(&self, batch: RowBatch) -> Result<(), WriteError> {
        self.batches.send(batch).map_err(|_| WriteError::Ended)
    }

    /// Writes what is left; the number of parts there are then.
    pub(crate) fn finish(self) -> Result<u32, WriteError> {
        drop(self.batches);
        self.thread.join().unwrap_or(Err(WriteError::Ended))
    }
}

fn work(
    dir: &Path,
    mut number: u32,
    age: Duration,
    about: &RecordingInfo,
    queue: &Receiver<RowBatch>,
) -> Result<u32, WriteError> {
    // Empty parts first: a reader that opens the recording at once finds every table.
    RowBatch::default().write(dir, number, about)?;
    number += 1;
    let mut waiting = RowBatch::default();
    loop {
        let due = waiting.made.map(|made| made + age);
        let patience = due.map_or(age, |due| due.saturating_duration_since(Instant::now()));
        let over = match queue.recv_timeout(patience) {
            Ok(batch) => {
                waiting.append(batch);
                false
            }
            Err(RecvTimeoutError::Timeout) => false,
            Err(RecvTimeoutError::Disconnected) => true,
        };
        // A disk that was slow once would fall further behind if each batch, old by now, became a
        // part of its own.
        while waiting.rows() < MOST_ROWS
            && let Ok(batch) = queue.try_recv()
        {
            waiting.append(batch);
        }
        let old = waiting.made.is_some_and(|made| made.elapsed() >= age);
        if waiting.rows() > 0 && (over || old || waiting.rows() >= MOST_ROWS) {
            std::mem::take(&mut waiting).write(dir, number, about)?;
            number += 1;
        }
        if over {
            return Ok(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_age_from_when_they_were_made_not_from_when_the_writer_has_them() {
        let home = tempfile::tempdir().unwrap();
        let age = Duration::from_mins(1);
        let batch = |made: Instant| RowBatch {
            samples: vec![Sample::default()],
            made: Some(made),
            ..RowBatch::default()
        };
        for table in RecordingTable::ALL {
            fs::create_dir(home.path().join(table.name())).unwrap();
        }
        let writer = PartWriter::start(
            home.path().to_owned(),
            0,
            age,
            RecordingInfo::of_system(home.path()),
        );
        // As of a census that took so long, or with a disk so slow: due at once, where this thread
        // would wait for `age`.
        let begun = Instant::now();
        writer.send(batch(begun.checked_sub(age).unwrap())).unwrap();
        let part = home.path().join("samples/part-000001.parquet");
        while !part.exists() && begun.elapsed() < age {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(begun.elapsed() < age, "written when the writer has had it for {age:?}");
        writer.finish().unwrap();
    }
}
