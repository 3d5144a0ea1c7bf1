//! A census in a recording: taken on request, read back whole or not at all, and not required.

#[path = "common/parts.rs"]
mod parts;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parts::{all, column, complaint, full_part, rewrite, rewrite_all, set};
use ramslice_backend::ReplayBackend;
use ramslice_record::tables::{Census, Sample, Zone};
use ramslice_record::{
    KernelPaths, Recorder, RecorderOptions, Recording, RecordingTable, WriteError,
};
use ramslice_types::{
    Backend, BackendError, BackendErrorKind, BackendInfo, Bytes, ContentsDetail, PageCensus, Price,
    PriceParameter, Request, RequestOutcome, SliceContents, SliceId, SliceSnapshot, SliceState,
    Zone as ZoneOf,
};
use tempfile::TempDir;

/// A saved machine with the pages of all slices but one.
fn backend() -> ReplayBackend {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data/guest-pages.json");
    ReplayBackend::open(&path).unwrap()
}

fn options(dir: &Path) -> RecorderOptions {
    RecorderOptions {
        dir: dir.to_owned(),
        every: Duration::from_millis(1),
        census: None,
        part_age: Duration::from_millis(1),
        append: false,
        command: Vec::new(),
        source: "test".into(),
        statistics: false,
        cache_use: false,
        reuse: None,
    }
}

fn sources() -> KernelPaths {
    KernelPaths { tracefs: None, ..KernelPaths::system() }
}

const HOUR: Duration = Duration::from_hours(1);

/// Two samples, each with a census if `every` is given: the first one and the last one have one.
fn recorded(every: Option<Duration>) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    let backend = backend();
    let mut recorder = Recorder::start(
        RecorderOptions { census: every, ..options(&dir) },
        &sources(),
        Some(&backend),
    )
    .unwrap();
    recorder.tick().unwrap();
    recorder.finish("signal", None).unwrap();
    (home, dir)
}

fn censuses(recording: &Recording) -> (Vec<Option<PageCensus>>, u64) {
    let (mut machines, mut found) = (recording.machines(), Vec::new());
    while let Some(machine) = machines.next() {
        machine.unwrap();
        found.push(machines.census().unwrap());
    }
    (found, machines.cut())
}

#[test]
fn a_slice_that_is_lost_keeps_no_page_and_has_no_room() {
    let backend = backend();
    let mut machine = backend.machine().unwrap();
    let census = PageCensus::take(&backend, &machine, || Ok::<(), BackendError>(())).unwrap();
    let before = census.totals(&machine);
    let stuck = census.slices.iter().find(|slice| slice.pages.staying.0 > 0).unwrap();
    let at = machine.snapshot.slices.iter().position(|slice| slice.id == stuck.slice).unwrap();
    machine.snapshot.slices[at].state = SliceState::Quarantined;
    let after = census.totals(&machine);
    assert_eq!(after.slices_staying, before.slices_staying - 1);
    assert_eq!(after.staying_pages, before.staying_pages - stuck.pages.staying);
}

#[test]
fn a_census_is_read_back_as_it_was_taken() {
    let (_home, dir) = recorded(Some(HOUR));
    let backend = backend();
    let machine = backend.machine().unwrap();
    let taken = PageCensus::take(&backend, &machine, || Ok::<(), BackendError>(())).unwrap();
    assert!(taken.slices.len() > 3 && taken.slices.len() < machine.snapshot.slices.len());

    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.info().census_interval_us, Some(3_600_000_000));
    let (found, cut) = censuses(&recording);
    assert_eq!((found, cut), (vec![Some(taken.clone()), Some(taken.clone())], 0));
    let (last, census) = recording.last_census().unwrap().unwrap();
    assert_eq!((last.snapshot.slices.len(), &census), (machine.snapshot.slices.len(), &taken));
    assert_eq!(census.totals(&last), taken.totals(&machine));

    let findings = recording.check().unwrap();
    assert_eq!(findings.rows["census"], 2 * taken.slices.len() as u64);
    assert_eq!((findings.incomplete_censuses, findings.missing_parts), (0, 0));
    // The kinds of a slice add up to it, for programs that read columns.
    for row in all::<Census>(&recording) {
        let sum = row.free_pages
            + row.anonymous_pages
            + row.cache_pages
            + row.shmem_pages
            + row.swap_cache_pages
            + row.buffer_pages
            + row.other_movable_pages
            + row.slab_pages
            + row.page_table_pages
            + row.other_unmovable_pages
            + row.off_pages;
        assert_eq!(Some(sum), i64::try_from(machine.info.slice_pages().0).ok(), "{row:?}");
    }
    let zones: Vec<Zone> = all(&recording);
    let staying: i64 =
        zones.iter().filter(|row| row.sample == 0).map(|row| row.staying_slices.unwrap()).sum();
    assert_eq!(staying.unsigned_abs(), taken.totals(&machine).slices_staying);
}

#[test]
fn a_census_comes_at_its_own_interval_between_samples_or_seldom() {
    let take = |every: u64, census: u64| {
        let home = tempfile::tempdir().unwrap();
        let dir = home.path().join("recording");
        let backend = backend();
        let census = Some(Duration::from_millis(census));
        let options =
            RecorderOptions { every: Duration::from_millis(every), census, ..options(&dir) };
        let mut recorder = Recorder::start(options, &sources(), Some(&backend)).unwrap();
        while recorder.counts().0 < 6 {
            let wait = recorder.tick().unwrap();
            std::thread::sleep(wait.min(Duration::from_millis(20)));
        }
        recorder.finish("signal", None).unwrap();
        let samples: Vec<Sample> = all(&Recording::open(&dir).unwrap());
        samples.iter().map(|sample| sample.census_slices.is_some()).collect::<Vec<_>>()
    };
    // Samples would come once an hour: a census brings its own.
    assert_eq!(take(3_600_000, 1), [true; 7]);
    assert_eq!(take(1, 3_600_000), [true, false, false, false, false, false, true]);
}

#[test]
fn who_asks_for_none_has_none() {
    let (_home, dir) = recorded(None);
    assert!(!dir.join("census").exists());
    let recording = Recording::open(&dir).unwrap();
    assert!(!recording.has_census() && recording.last_census().unwrap().is_none());
    assert_eq!(recording.info().census_interval_us, None);
    assert_eq!(censuses(&recording), (vec![None, None], 0));
    let findings = recording.check().unwrap();
    assert!(!findings.rows.contains_key("census"));
    assert_eq!((findings.missing_parts, findings.incomplete_censuses), (0, 0));
}

#[test]
fn recordings_made_before_there_was_a_census_are_read() {
    let (_home, dir) = recorded(None);
    // What they lack: the columns in two tables, and a word in every description.
    rewrite_all(&dir, |table, columns, keys| {
        let before = columns.len();
        columns.retain(|(field, _)| {
            let name = field.name();
            !(name.starts_with("census_")
                || name.ends_with("sections")
                || name.contains("staying_")
                || name == "offline_bound_pages")
        });
        let lost = match table {
            RecordingTable::Samples => 2,
            RecordingTable::Zones => 6,
            _ => 0,
        };
        assert_eq!(before - columns.len(), lost, "{table}");
        keys.remove("ramslice.census_interval_us").unwrap();
    });
    let recording = Recording::open(&dir).unwrap();
    recording.check().unwrap();
    assert_eq!(recording.info().census_interval_us, None);
    assert_eq!(censuses(&recording), (vec![None, None], 0));
    recording.last_machine().unwrap();
}

#[test]
fn a_census_cut_short_is_an_error_by_file_or_a_counted_skip() {
    let (_home, dir) = recorded(Some(HOUR));
    let part = full_part(&dir, RecordingTable::Census);
    let bytes = fs::read(&part).unwrap();
    fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    assert!(complaint(&dir, &part).contains("is not a whole Parquet file"));
    let recording = Recording::open_skipping_broken(&dir).unwrap();
    let findings = recording.check().unwrap();
    assert_eq!(findings.broken_parts, 1);
    // The machines are all there; only what was counted with them is not.
    let (found, cut) = censuses(&recording);
    assert_eq!((found.len() as u64, cut), (findings.rows["samples"], findings.incomplete_censuses));
    assert!(cut > 0 && found.iter().filter(|census| census.is_none()).count() as u64 == cut);
}

#[test]
fn a_census_that_lacks_slices_is_passed_over_and_counted() {
    let (_home, dir) = recorded(Some(HOUR));
    let part = full_part(&dir, RecordingTable::Census);
    rewrite(&part, |columns, _| {
        for (_, array) in columns {
            *array = array.slice(0, array.len() - 1);
        }
    });
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.check().unwrap().incomplete_censuses, 1);
    assert_eq!(censuses(&recording).1, 1);
    // Without any of it: the samples say that there was one.
    fs::remove_dir_all(dir.join("census")).unwrap();
    let recording = Recording::open(&dir).unwrap();
    assert_eq!(recording.check().unwrap().incomplete_censuses, 2);
    assert!(recording.last_census().unwrap().is_none());
}

#[test]
fn what_cannot_be_in_a_census_is_named_by_row() {
    let (_home, dir) = recorded(Some(HOUR));
    let part = full_part(&dir, RecordingTable::Census);
    rewrite(&part, |columns, _| set(columns, "slab_pages", 2, Some(-1)));
    assert!(complaint(&dir, &part).contains("row 2: slab_pages is -1: below zero"));

    let (_home, dir) = recorded(Some(HOUR));
    let part = full_part(&dir, RecordingTable::Census);
    rewrite(&part, |columns, _| {
        let (field, _) = column(columns, "cache_pages");
        *field = field.clone().with_name("cache_bytes");
    });
    // No older version writes this table without it.
    assert!(
        complaint(&dir, &part).contains("no column `cache_pages`; `cache_bytes` is not the same")
    );
}

#[test]
fn a_census_may_begin_when_a_recording_goes_on_and_goes_on_with_it() {
    let (_home, dir) = recorded(None);
    let backend = backend();
    for (round, census) in [Some(HOUR), None].into_iter().enumerate() {
        let options = RecorderOptions { append: true, census, ..options(&dir) };
        let mut recorder = Recorder::start(options, &sources(), Some(&backend)).unwrap();
        recorder.tick().unwrap();
        recorder.finish("signal", None).unwrap();
        let recording = Recording::open(&dir).unwrap();
        let findings = recording.check().unwrap();
        assert_eq!((findings.missing_parts, findings.incomplete_censuses), (0, 0), "{round}");
        let found = censuses(&recording).0;
        let there: Vec<bool> = found.iter().map(Option::is_some).collect();
        assert_eq!(there, [&[false, false, true, true][..], &vec![false; 2 * round]].concat());
    }
    assert!(Recording::open(&dir).unwrap().last_census().unwrap().is_some());
}

/// A system that does not show its pages.
struct HiddenPages(ReplayBackend);

impl Backend for HiddenPages {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        self.0.info()
    }
    fn zones(&self) -> Result<Vec<ZoneOf>, BackendError> {
        self.0.zones()
    }
    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        self.0.snapshot()
    }
    fn contents(&self, _: SliceId, _: ContentsDetail) -> Result<SliceContents, BackendError> {
        Err(BackendError::new(BackendErrorKind::Permission, "only root may look at pages"))
    }
    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        self.0.request(request)
    }
    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        self.0.wait_event(timeout)
    }
    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        self.0.slice_bytes()
    }
    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        self.0.set_slice_bytes(size)
    }
    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        self.0.price_parameter(parameter)
    }
    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        self.0.set_price_parameter(parameter, value)
    }
}

#[test]
fn a_missing_permission_is_reported_before_anything_is_written() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    let closed = HiddenPages(backend());
    let start = |census| {
        Recorder::start(RecorderOptions { census, ..options(&dir) }, &sources(), Some(&closed))
    };
    let error = start(Some(HOUR)).err().unwrap();
    assert!(matches!(error, WriteError::Backend(_)), "{error}");
    assert!(error.to_string().contains("only root") && !dir.exists());
    // Without a census, pages are not read.
    start(None).unwrap().finish("signal", None).unwrap();
}
