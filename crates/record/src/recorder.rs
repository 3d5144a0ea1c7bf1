//! The recorder: reads the machine on schedule, and hands rows to the thread that writes.

use std::fs::{self, File};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ramslice_types::{
    Backend, BackendInfo, MachineState, PriceParameter, SliceId, SliceSnapshot, SliceState,
};

use crate::added_rows;
use crate::cache_use;
use crate::census_rows::{self, CensusSchedule};
use crate::clock::ClockReading;
use crate::daemon_watermarks::DaemonWatermarks;
use crate::error::WriteError;
use crate::filesystem_usage;
use crate::part;
use crate::proc_statistics;
use crate::recording_dir;
use crate::recording_info::{RecordingEnd, RecordingInfo};
use crate::reuse::{ReuseOptions, ReuseSampler};
use crate::schema::ColumnText;
use crate::snapshot_rows::{fill_machine, fill_work, slice_row, zone_row};
use crate::tables::{Event, Meminfo, Sample, Vmstat};
use crate::trace::SliceEvents;
use crate::trace_instance::{self, TraceError};
use crate::writer::{PartWriter, RowBatch};

/// How long rows may wait before they are written: they are to be a synced part within half a
/// minute, and the disk takes some of that.
pub const MOST_PART_AGE: Duration = Duration::from_secs(25);
/// While every page is looked at, trace events are collected this often, lest their buffer
/// overflow.
const BETWEEN: Duration = Duration::from_millis(200);

/// What is known of each page, below the root.
const KPAGEFLAGS: &str = "proc/kpageflags";

/// What to record, and how.
#[derive(Debug, Clone)]
pub struct RecorderOptions {
    /// Where the recording goes; made if missing.
    pub dir: PathBuf,
    /// How often a sample is due.
    pub every: Duration,
    /// How often every page is looked at, with a sample; with the first and the last one in any
    /// case.
    pub census: Option<Duration>,
    /// How old rows may become before they are written; at most [`MOST_PART_AGE`].
    pub part_age: Duration,
    /// Continue a recording of the same boot.
    pub append: bool,
    /// The command whose run is recorded, for the description.
    pub command: Vec<String>,
    /// What is looked at, for the description.
    pub source: String,
    /// Also `/proc/meminfo` and `/proc/vmstat`; of a saved machine they would be another's.
    pub statistics: bool,
    /// Also how page cache was used, of every page that is awake: 8 bytes of `/proc/kpageflags` for
    /// each. Root only.
    pub cache_use: bool,
    /// How a sample of pages is looked at for the time since each was last used, beside the
    /// statistics. Root only.
    pub reuse: Option<ReuseOptions>,
}

/// Where the kernel's files are; elsewhere in tests.
#[derive(Debug, Clone)]
pub struct KernelPaths {
    /// The root that `proc` and `sys` are below.
    pub root: PathBuf,
    /// tracefs; `None` if it is not mounted, or not to trace.
    pub tracefs: Option<PathBuf>,
}

impl KernelPaths {
    /// Those of the running system; tracefs where it is mounted.
    pub fn system() -> Self {
        let mounts = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"].map(PathBuf::from);
        Self { root: "/".into(), tracefs: trace_instance::mounted(mounts) }
    }
}

/// Where events come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EventsSource {
    /// The kernel's trace events: all of them, with cause and outcome.
    Trace,
    /// Comparing states whenever the kernel says that one changed: states in between may be missed.
    Poll,
    /// There are no slices.
    None,
}

impl EventsSource {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Poll => "poll",
            Self::None => "none",
        }
    }
}

/// Totals of a recording.
#[derive(Debug, Clone)]
pub struct RecordingSummary {
    /// How it ended.
    pub ended: RecordingEnd,
    /// Parts of each table.
    pub parts: u32,
    /// Where events came from.
    pub events_source: EventsSource,
}

/// A recording under way.
pub struct Recorder<'a> {
    backend: Option<&'a dyn Backend>,
    options: RecorderOptions,
    root: PathBuf,
    trace: Option<SliceEvents>,
    trace_failure: Option<TraceError>,
    events_source: EventsSource,
    writer: PartWriter,
    states: Vec<(SliceId, SliceState)>,
    /// Number of the next sample and of the next event.
    next: (i64, i64),
    next_sample: Instant,
    census: Option<CensusSchedule>,
    reuse: Option<ReuseSampler>,
    missed_since: i64,
    missed_samples: i64,
    lost_events: i64,
    watermarks: DaemonWatermarks,
    /// Locked until the end, so that no other recorder writes there.
    _lock: File,
}

impl<'a> Recorder<'a> {
    /// Begins: makes the directory, cleans what a kill left there, and starts to trace.
    ///
    /// Without a backend there are no slices to record, nor pages, only the statistics.
    ///
    /// # Errors
    /// Before anything is written, if there is to be a census, or the use of cache is to be
    /// counted, and pages cannot be looked at, or if reuse times are to be sampled and cannot be;
    /// if the directory is not for a recording, or cannot be written.
    pub fn start(
        options: RecorderOptions,
        sources: &KernelPaths,
        backend: Option<&'a dyn Backend>,
    ) -> Result<Self, WriteError> {
        let census = options.census.filter(|_| backend.is_some());
        if let (Some(_), Some(backend)) = (census, backend) {
            census_rows::probe(backend)?;
        }
        let reuse = options.reuse.filter(|_| options.statistics);
        let reuse = reuse.map(|reuse| ReuseSampler::start(&sources.root, reuse)).transpose()?;
        if options.cache_use && backend.is_some() {
            cache_use::probe(&sources.root.join(KPAGEFLAGS))?;
        }
        let lock = recording_dir::lock_directory(&options.dir, options.append)?;
        let mut about = RecordingInfo::of_system(&sources.root);
        let (number, next) =
            recording_dir::next_numbers(&options.dir, options.append, &about.boot_id)?;
        recording_dir::make_tables(&options.dir, census.is_some())?;
        recording_dir::remove_temporaries(&options.dir)?;
        let trace = backend.map(|_| SliceEvents::start(sources.tracefs.as_deref())).transpose();
        let (trace, trace_failure) = match trace {
            Ok(trace) => (trace, None),
            Err(error) => (None, Some(error)),
        };
        let events_source = match (&trace, backend) {
            (Some(_), _) => EventsSource::Trace,
            (None, Some(_)) => EventsSource::Poll,
            (None, None) => EventsSource::None,
        };
        about.source.clone_from(&options.source);
        about.command.clone_from(&options.command);
        about.interval_us = whole_us(options.every);
        about.census_interval_us = census.map(whole_us);
        events_source.name().clone_into(&mut about.events_source);
        let mut states = Vec::new();
        if let Some(backend) = backend {
            about.geometry = Some(backend.info()?);
            about.price_parameters_100cycles = PriceParameter::ALL
                .into_iter()
                .filter_map(|parameter| Some((parameter, backend.price_parameter(parameter).ok()?)))
                .collect();
            states = states_of(&backend.snapshot()?);
        }
        part::write_json(
            &options.dir.join(part::MANIFEST),
            &serde_json::json!({ "about": about, "ended": null }),
        )?;
        let age = options.part_age.min(MOST_PART_AGE);
        let writer = PartWriter::start(options.dir.clone(), number, age, about);
        let root = sources.root.clone();
        let due = Instant::now();
        let mut recorder = Self {
            backend,
            options,
            root,
            trace,
            trace_failure,
            events_source,
            writer,
            states,
            next,
            next_sample: due,
            census: census.map(CensusSchedule::new),
            reuse,
            missed_since: 0,
            missed_samples: 0,
            lost_events: 0,
            watermarks: DaemonWatermarks::default(),
            _lock: lock,
        };
        recorder.note("recording began")?;
        Ok(recorder)
    }

    /// Where events come from.
    pub fn events_source(&self) -> EventsSource {
        self.events_source
    }

    /// Why states are compared instead of tracing events; nothing if they are not.
    pub fn trace_failure(&self) -> Option<&TraceError> {
        self.trace_failure.as_ref()
    }

    /// Samples and events so far.
    pub fn counts(&self) -> (i64, i64) {
        self.next
    }

    /// Collects events, and takes a sample if one is due, or a census, which needs one; says how
    /// long to wait for the next.
    pub fn tick(&mut self) -> Result<Duration, WriteError> {
        let now = Instant::now();
        let count = self.census.as_ref().is_some_and(|due| now >= due.at());
        if now >= self.next_sample {
            self.read_machine(count)?;
            // Whole intervals that passed meanwhile are not made up for: their moments are gone.
            self.next_sample += self.options.every;
            let now = Instant::now();
            while self.next_sample + self.options.every <= now {
                self.next_sample += self.options.every;
                self.missed_since += 1;
            }
        } else if count {
            self.read_machine(true)?;
        } else if self.trace.is_some() {
            self.drain_trace()?;
        }
        let next = self
            .census
            .as_ref()
            .map_or(self.next_sample, |census| census.at().min(self.next_sample));
        Ok(next.saturating_duration_since(Instant::now()))
    }

    /// Records what states changed since the last time, for a machine that cannot trace.
    pub fn changed(&mut self) -> Result<(), WriteError> {
        let (Some(backend), EventsSource::Poll) = (self.backend, self.events_source) else {
            return Ok(());
        };
        let snapshot = backend.snapshot()?;
        self.compare_states(&snapshot)
    }

    /// Adds a remark of the recorder's own.
    pub fn note(&mut self, text: impl Into<ColumnText>) -> Result<(), WriteError> {
        // In order: what the kernel has said came before.
        self.drain_trace()?;
        self.note_now(text)
    }

    fn note_now(&mut self, text: impl Into<ColumnText>) -> Result<(), WriteError> {
        let now = ClockReading::now();
        let (boottime_us, realtime_us) = (now.boottime_us, now.realtime);
        let (source, kind, text) = ("recorder".into(), "note".into(), Some(text.into()));
        self.events(vec![Event {
            boottime_us,
            realtime_us,
            source,
            kind,
            text,
            ..Event::default()
        }])
    }

    /// Takes a last sample and ends.
    pub fn finish(
        mut self,
        reason: &str,
        command_status: Option<i32>,
    ) -> Result<RecordingSummary, WriteError> {
        let mut result = self.read_machine(self.census.is_some());
        if result.is_ok() {
            result = self.note(format!("recording ended: {reason}"));
        }
        self.trace = None;
        // The recorded rows are written in any case; the first error is the one to report.
        let parts = self.writer.finish();
        if let Err(error) = result
            && !matches!(error, WriteError::Ended)
        {
            return Err(error);
        }
        let parts = parts?;
        let ended = RecordingEnd {
            boottime_us: ClockReading::now().boottime_us,
            reason: reason.to_owned(),
            command_status,
            samples: self.next.0,
            missed_samples: self.missed_samples,
            events: self.next.1,
            lost_events: self.lost_events,
        };
        let path = self.options.dir.join(part::MANIFEST);
        let mut manifest: serde_json::Value = fs::read_to_string(&path)
            .map_err(|source| WriteError::io("reading", &path, source))
            .and_then(|text| {
                serde_json::from_str(&text).map_err(|e| WriteError::io("reading", &path, e.into()))
            })?;
        manifest["ended"] = serde_json::json!(ended);
        part::write_json(&path, &manifest)?;
        Ok(RecordingSummary { ended, parts, events_source: self.events_source })
    }

    /// Takes a sample now: for those whose samples are due when something is done, not when time
    /// has passed.
    ///
    /// # Errors
    /// If the machine cannot be looked at, or nothing can be written any more.
    pub fn sample(&mut self) -> Result<(), WriteError> {
        self.read_machine(false)
    }

    /// Takes a sample, with a census if `count`.
    fn read_machine(&mut self, count: bool) -> Result<(), WriteError> {
        self.drain_trace()?;
        let begun = Instant::now();
        let now = ClockReading::now();
        let mut batch = RowBatch { made: Some(begun), ..RowBatch::default() };
        let (sample, boottime_us, realtime_us) = (self.next.0, now.boottime_us, now.realtime);
        let mut row = Sample { sample, boottime_us, realtime_us, ..Sample::default() };
        let mut seen = None;
        if let Some(backend) = self.backend {
            let (snapshot, info) = stable_snapshot(backend)?;
            let zones = backend.zones()?;
            batch.zones = zones.iter().map(|zone| zone_row(zone, &row)).collect();
            batch.slices = snapshot.slices.iter().map(|slice| slice_row(slice, &row)).collect();
            fill_machine(&mut row, &snapshot, &info);
            // Next to the snapshot. Only root may read them: without, the columns stay null.
            if let Ok(work) = backend.work() {
                fill_work(&mut row, &work);
            }
            if self.options.cache_use {
                let path = self.root.join(KPAGEFLAGS);
                let (once, busy) = cache_use::count(&path, &snapshot, &info)?;
                (row.referenced_cache_pages, row.busy_cache_pages) = (Some(once), Some(busy));
            }
            if self.events_source == EventsSource::Poll {
                self.compare_states(&snapshot)?;
            }
            seen = count.then(|| (backend, machine(info, zones, snapshot)));
        }
        if self.options.statistics {
            batch.meminfo =
                Meminfo::of(proc_statistics::meminfo(&self.root.join("proc/meminfo"))?, &row);
            let mut figures = proc_statistics::vmstat(&self.root.join("proc/vmstat"))?;
            let (marks, moves) = self.watermarks.read(&self.root, now.realtime.0 as f64 / 1e6);
            figures.extend(marks);
            figures.extend(added_rows::lines(&self.root));
            if let Some(reuse) = &self.reuse {
                figures.extend(reuse.lines());
            }
            batch.vmstat = Vmstat::of(figures, &row);
            for why in moves {
                self.note(why)?;
            }
            row.stored_bytes = filesystem_usage::bytes(&self.root);
        }
        row.sampling_us = i64::try_from(begun.elapsed().as_micros()).unwrap_or(i64::MAX);
        row.missed_samples = std::mem::take(&mut self.missed_since);
        self.missed_samples += row.missed_samples;
        if let Some((backend, machine)) = seen {
            let mut drained = Instant::now();
            census_rows::take(backend, &machine, &mut batch, &mut row, || {
                if drained.elapsed() >= BETWEEN {
                    drained = Instant::now();
                    self.drain_trace()?;
                }
                Ok(())
            })?;
            if let Some(due) = &mut self.census {
                due.advance(Instant::now());
            }
        }
        batch.samples.push(row);
        self.next.0 += 1;
        self.writer.send(batch)?;
        match self.reuse.as_ref().and_then(ReuseSampler::failure) {
            Some(failure) => self.note_now(format!("sampling of reuse times ended: {failure}")),
            None => Ok(()),
        }
    }

    fn drain_trace(&mut self) -> Result<(), WriteError> {
        let Some(trace) = &mut self.trace else { return Ok(()) };
        let events = trace.drain(&ClockReading::now());
        self.lost_events += events.iter().filter_map(|event| event.lost_events).sum::<i64>();
        self.events(events)
    }

    fn events(&mut self, mut events: Vec<Event>) -> Result<(), WriteError> {
        if events.is_empty() {
            return Ok(());
        }
        for event in &mut events {
            event.event = self.next.1;
            self.next.1 += 1;
        }
        self.writer.send(RowBatch { events, made: Some(Instant::now()), ..RowBatch::default() })
    }

    /// Events of what differs from the states last seen.
    fn compare_states(&mut self, snapshot: &SliceSnapshot) -> Result<(), WriteError> {
        let states = states_of(snapshot);
        let before = std::mem::replace(&mut self.states, states);
        let now = ClockReading::now();
        let changed = |&(id, to): &(SliceId, SliceState)| {
            let at = before.binary_search_by_key(&id, |&(id, _)| id).ok()?;
            let from = before[at].1;
            (from != to).then(|| Event {
                boottime_us: now.boottime_us,
                realtime_us: now.realtime,
                source: "poll".into(),
                kind: "state".into(),
                slice_id: Some(id.0.into()),
                from_state: Some(from.name().into()),
                to_state: Some(to.name().into()),
                ..Event::default()
            })
        };
        let events = self.states.iter().filter_map(changed).collect();
        self.events(events)
    }
}

/// A snapshot and the slice size that it has: one may change between two calls.
fn stable_snapshot(backend: &dyn Backend) -> Result<(SliceSnapshot, BackendInfo), WriteError> {
    let mut info = backend.info()?;
    loop {
        let snapshot = backend.snapshot()?;
        let after = backend.info()?;
        if after.slice_bytes == info.slice_bytes {
            return Ok((snapshot, after));
        }
        info = after;
    }
}

/// The machine that was read, for the census of its pages.
fn machine(
    info: BackendInfo,
    zones: Vec<ramslice_types::Zone>,
    snapshot: SliceSnapshot,
) -> MachineState {
    MachineState {
        schema_version: ramslice_types::SCHEMA_VERSION,
        info,
        zones,
        snapshot,
        price_parameters: std::collections::BTreeMap::new(),
        contents: Vec::new(),
    }
}

fn states_of(snapshot: &SliceSnapshot) -> Vec<(SliceId, SliceState)> {
    snapshot.slices.iter().map(|slice| (slice.id, slice.state)).collect()
}

fn whole_us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}
