//! Recordings from outside: what is written is read back, and a fault is reported by file and row.

#[path = "common/parts.rs"]
mod parts;

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arrow_array::{ArrayRef, Int32Array};
use arrow_schema::Field;
use parts::{all, builder, column, complaint, full_part, rewrite, rewrite_all, set};
use ramslice_backend::ReplayBackend;
use ramslice_record::tables::{Event, Meminfo, Sample, Slice, Vmstat};
use ramslice_record::{
    KernelPaths, ReadError, Recorder, RecorderOptions, Recording, RecordingTable, WriteError,
};
use ramslice_types::{Backend, Pages, Request, RequestOp, SliceId, SliceState, WorkCounters};
use tempfile::TempDir;

fn backend() -> ReplayBackend {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data/guest-8g.json");
    ReplayBackend::open(&path).unwrap()
}

fn options(dir: &Path) -> RecorderOptions {
    RecorderOptions {
        dir: dir.to_owned(),
        every: Duration::from_millis(1),
        census: None,
        part_age: Duration::from_millis(30),
        append: false,
        command: vec!["make".into(), "-j2".into()],
        source: "test".into(),
        statistics: true,
        cache_use: false,
        reuse: None,
    }
}

fn sources() -> KernelPaths {
    KernelPaths { tracefs: None, ..KernelPaths::system() }
}

/// Samples that are written so far.
fn written(dir: &Path) -> usize {
    Recording::open(dir).map_or(0, |recording| all::<Sample>(&recording).len())
}

/// Takes `samples` samples, each in a part of its own or all in one.
fn record(dir: &Path, backend: &dyn Backend, samples: i64, apart: bool) {
    let part_age = if apart { Duration::from_millis(30) } else { Duration::from_hours(1) };
    let options = RecorderOptions { part_age, ..options(dir) };
    let mut recorder = Recorder::start(options, &sources(), Some(backend)).unwrap();
    // The last one is taken by finish().
    while recorder.counts().0 < samples - 1 {
        recorder.tick().unwrap();
        while apart && written(dir) < recorder.counts().0 as usize {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    recorder.finish("signal", None).unwrap();
}

fn recorded(samples: i64, apart: bool) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    record(&dir, &backend(), samples, apart);
    (home, dir)
}

#[test]
fn what_is_recorded_is_read_back() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    let backend = backend();
    let mut recorder = Recorder::start(options(&dir), &sources(), Some(&backend)).unwrap();
    let mut machines = Vec::new();
    for id in [24, 10, 3] {
        recorder.tick().unwrap();
        machines.push(backend.machine().unwrap());
        backend
            .request(&Request {
                ignore_backoff: true,
                ..Request::new(RequestOp::Offline(SliceId(id)))
            })
            .unwrap();
        std::thread::sleep(Duration::from_millis(40));
    }
    recorder.finish("signal", None).unwrap();
    machines.push(backend.machine().unwrap());
    assert_ne!(machines[0], machines[3]);

    let recording = Recording::open(&dir).unwrap();
    let read: Vec<_> = recording.machines().map(Result::unwrap).collect();
    assert_eq!(read, machines);
    assert_eq!(recording.last_machine().unwrap(), (machines[3].clone(), None));

    let about = recording.info();
    assert_eq!(about.command, ["make", "-j2"]);
    assert_eq!(about.geometry.as_ref().unwrap().slice_bytes, machines[0].info.slice_bytes);
    assert_eq!(
        about.boot_id,
        fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim()
    );
    assert_eq!((about.events_source.as_str(), about.source.as_str()), ("poll", "test"));

    let findings = recording.check().unwrap();
    assert_eq!(findings.rows["samples"], 4);
    assert_eq!(findings.rows["snapshots"], 4 * machines[0].snapshot.slices.len() as u64);
    assert_eq!(
        (findings.missing_parts, findings.missing_samples, findings.incomplete_samples),
        (0, 0, 0)
    );
    let ended = recording.end().unwrap();
    assert_eq!((ended.samples, ended.reason.as_str()), (4, "signal"));
}

#[test]
fn statistics_are_those_of_the_files() {
    let home = tempfile::tempdir().unwrap();
    let root = home.path().join("root");
    fs::create_dir_all(root.join("proc")).unwrap();
    fs::write(root.join("proc/meminfo"), "MemTotal:  100 kB\nHugePages_Total: 4\n").unwrap();
    fs::write(root.join("proc/vmstat"), "nr_free_pages 9\npgfault 77\n").unwrap();
    let dir = home.path().join("recording");
    let sources = KernelPaths { root: root.clone(), tracefs: None };
    let mut recorder = Recorder::start(options(&dir), &sources, None).unwrap();
    recorder.tick().unwrap();
    fs::write(root.join("proc/vmstat"), "nr_free_pages 8\npgfault 78\n").unwrap();
    recorder.finish("time", None).unwrap();

    let recording = Recording::open(&dir).unwrap();
    let meminfo: Vec<Meminfo> = all(&recording);
    let values: Vec<_> =
        meminfo.iter().map(|r| (r.sample, r.name.as_ref(), r.value, r.unit.as_ref())).collect();
    assert_eq!(
        values[..2],
        [(0, "MemTotal", 102_400, "bytes"), (0, "HugePages_Total", 4, "count")]
    );
    let vmstat: Vec<Vmstat> = all(&recording);
    let values: Vec<_> = vmstat.iter().map(|row| (row.sample, row.value)).collect();
    assert_eq!(values, [(0, 9), (0, 77), (1, 8), (1, 78)]);
    // A kernel without slices has samples all the same, and nothing to replay.
    let samples: Vec<Sample> = all(&recording);
    assert_eq!(samples.iter().map(|row| row.nr_slices).collect::<Vec<_>>(), [None, None]);
    assert!(matches!(recording.last_machine(), Err(ReadError::Empty { .. })));
}

#[test]
fn changes_of_state_are_events_also_without_tracing() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    let backend = backend();
    let mut recorder = Recorder::start(options(&dir), &sources(), Some(&backend)).unwrap();
    backend.request(&Request::new(RequestOp::Offline(SliceId(24)))).unwrap();
    recorder.changed().unwrap();
    recorder.changed().unwrap();
    recorder.finish("signal", None).unwrap();
    let events: Vec<Event> = all(&Recording::open(&dir).unwrap());
    let changes: Vec<_> = events.iter().filter(|event| event.kind == "state").collect();
    assert_eq!(changes.len(), 1);
    assert_eq!((changes[0].slice_id, changes[0].source.as_ref()), (Some(24), "poll"));
    assert_eq!(changes[0].from_state.as_deref(), Some("online"));
    assert_eq!(changes[0].to_state.as_deref(), Some("offline"));
}

#[test]
fn rows_become_parts_while_the_recording_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    let backend = backend();
    let mut recorder = Recorder::start(options(&dir), &sources(), Some(&backend)).unwrap();
    recorder.tick().unwrap();
    // Nothing more is handed over; the age alone brings the part about.
    let mut found = 0;
    for _ in 0..500 {
        std::thread::sleep(Duration::from_millis(10));
        found = written(&dir);
        if found == 1 {
            break;
        }
    }
    assert_eq!(found, 1);
    assert!(Recording::open(&dir).unwrap().end().is_none());
    recorder.finish("signal", None).unwrap();
}

#[test]
fn a_recording_goes_on_after_a_kill_and_is_cleaned() {
    let (_home, dir) = recorded(3, true);
    // A kill between two parts of a flush: slices without their sample, a temporary file, no end.
    fs::remove_file(full_part(&dir, RecordingTable::Samples)).unwrap();
    let temporary = dir.join("zones/.part-000009.parquet.tmp");
    fs::write(&temporary, "half").unwrap();
    let findings = Recording::open(&dir).unwrap().check().unwrap();
    assert_eq!((findings.temporary_files, findings.missing_parts), (1, 1));
    assert!(findings.incomplete_samples > 0);

    let backend = backend();
    let refused = Recorder::start(options(&dir), &sources(), Some(&backend)).err().unwrap();
    assert!(
        matches!(refused, WriteError::Exists { .. }) && refused.to_string().contains("--append")
    );
    let mut again = Recorder::start(
        RecorderOptions { append: true, ..options(&dir) },
        &sources(),
        Some(&backend),
    )
    .unwrap();
    again.tick().unwrap();
    let other = Recorder::start(
        RecorderOptions { append: true, ..options(&dir) },
        &sources(),
        Some(&backend),
    )
    .err();
    assert!(matches!(other, Some(WriteError::InUse { .. })), "{other:?}");
    again.finish("signal", None).unwrap();
    assert!(!temporary.exists());

    let recording = Recording::open(&dir).unwrap();
    let samples: Vec<i64> = all::<Sample>(&recording).iter().map(|row| row.sample).collect();
    assert_eq!(samples.last(), Some(&4), "{samples:?}");
    assert_eq!(recording.machines().map(Result::unwrap).count(), samples.len());
}

#[test]
fn a_flush_under_way_leaves_no_gaps_and_what_it_wrote_is_not_overwritten() {
    let (_home, dir) = recorded(3, true);
    let manifest = dir.join("recording.json");
    let mut about: serde_json::Value =
        serde_json::from_str(&fs::read_to_string(&manifest).unwrap()).unwrap();
    about["ended"] = serde_json::Value::Null;
    fs::write(&manifest, about.to_string()).unwrap();
    let parts = fs::read_dir(dir.join("samples")).unwrap().map(|entry| entry.unwrap().path());
    let last = parts.max().unwrap();
    fs::remove_file(&last).unwrap();
    let findings = Recording::open(&dir).unwrap().check().unwrap();
    assert_eq!(
        (findings.missing_parts, findings.missing_samples, findings.incomplete_samples),
        (0, 0, 0)
    );
    assert_eq!(findings.last_sample, 1);

    let append = RecorderOptions { append: true, ..options(&dir) };
    let backend = backend();
    Recorder::start(append, &sources(), Some(&backend)).unwrap().finish("signal", None).unwrap();
    assert!(!last.exists());
    let samples: Vec<i64> =
        all::<Sample>(&Recording::open(&dir).unwrap()).iter().map(|row| row.sample).collect();
    assert_eq!(samples, [0, 1, 3]);
}

#[test]
fn a_directory_with_other_files_is_left_alone() {
    let home = tempfile::tempdir().unwrap();
    fs::write(home.path().join("thesis.tex"), "x").unwrap();
    let error = Recorder::start(options(home.path()), &sources(), None).err().unwrap();
    assert!(matches!(error, WriteError::Foreign { .. }), "{error}");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
    let error = Recording::open(home.path()).unwrap_err().to_string();
    assert!(error.contains("is not a recording"), "{error}");
}

#[test]
fn a_start_that_is_refused_leaves_nothing_behind() {
    let (home, dir) = recorded(1, false);
    let backend = backend();
    let start = |options| Recorder::start(options, &sources(), Some(&backend)).err().unwrap();
    for locked in [true, false] {
        let census = RecorderOptions { census: Some(Duration::from_secs(1)), ..options(&dir) };
        assert!(matches!(start(census), WriteError::Exists { .. }));
        assert!(!dir.join("census").exists());
        assert_eq!(dir.join(".lock").exists(), locked);
        let _ = fs::remove_file(dir.join(".lock"));
    }
    let bare = home.path().join("bare");
    let sources = KernelPaths { root: home.path().join("nowhere"), tracefs: None };
    let options = RecorderOptions { cache_use: true, statistics: false, ..options(&bare) };
    let error = Recorder::start(options, &sources, Some(&backend)).err().unwrap();
    assert!(error.to_string().contains("kpageflags"), "{error}");
    assert!(!bare.exists());
}

#[test]
fn a_recording_of_another_boot_is_not_continued() {
    let (home, dir) = recorded(1, false);
    let root = home.path().join("root");
    fs::create_dir_all(root.join("proc/sys/kernel/random")).unwrap();
    fs::write(root.join("proc/sys/kernel/random/boot_id"), "another\n").unwrap();
    let sources = KernelPaths { root, tracefs: None };
    let error = Recorder::start(RecorderOptions { append: true, ..options(&dir) }, &sources, None)
        .err()
        .unwrap();
    assert!(matches!(error, WriteError::OtherBoot { .. }), "{error}");
}

#[test]
fn a_part_cut_short_is_an_error_or_a_counted_skip() {
    let (_home, dir) = recorded(3, true);
    let part = full_part(&dir, RecordingTable::Zones);
    let bytes = fs::read(&part).unwrap();
    for length in [bytes.len() / 2, 0, 7] {
        fs::write(&part, &bytes[..length]).unwrap();
        assert!(complaint(&dir, &part).contains("is not a whole Parquet file"));
    }
    let recording = Recording::open_skipping_broken(&dir).unwrap();
    let findings = recording.check().unwrap();
    assert_eq!((findings.broken_parts, findings.missing_parts), (1, 0));
    // The samples whose zones are gone are passed over, the others given back.
    let mut machines = recording.machines();
    let given = machines.by_ref().map(Result::unwrap).count() as u64;
    assert!(machines.skipped() > 0 && given + machines.skipped() == findings.rows["samples"]);
}

#[test]
fn another_version_is_refused() {
    let (_home, dir) = recorded(1, false);
    let part = full_part(&dir, RecordingTable::Snapshots);
    rewrite(&part, |_, keys| _ = keys.insert("ramslice.schema_version".into(), "7".into()));
    assert!(complaint(&dir, &part).contains("schema_version 7, these tools know 1"));
}

#[test]
fn a_file_of_another_program_is_refused() {
    let (_home, dir) = recorded(1, false);
    let part = full_part(&dir, RecordingTable::Snapshots);
    rewrite(&part, |_, keys| keys.clear());
    assert!(complaint(&dir, &part).contains("ramslice.schema_version is missing"));
}

#[test]
fn a_description_without_its_boot_is_refused() {
    let (_home, dir) = recorded(1, false);
    let part = full_part(&dir, RecordingTable::Snapshots);
    rewrite(&part, |_, keys| _ = keys.remove("ramslice.boot_id"));
    assert!(complaint(&dir, &part).contains("ramslice.boot_id is missing"));
}

#[test]
fn a_part_in_the_place_of_another_is_refused() {
    let (_home, dir) = recorded(1, false);
    let part = dir.join("zones/part-000002.parquet");
    fs::copy(full_part(&dir, RecordingTable::Snapshots), &part).unwrap();
    assert!(complaint(&dir, &part).contains("says that it is part 1 of snapshots"));
}

#[test]
fn a_missing_column_is_named_with_the_one_that_looks_like_it() {
    let (_home, dir) = recorded(1, false);
    let part = full_part(&dir, RecordingTable::Snapshots);
    rewrite(&part, |columns, _| {
        let (field, _) = column(columns, "price_100cycles");
        *field = field.clone().with_name("price_joules");
    });
    let text = complaint(&dir, &part);
    assert!(text.contains("no column `price_100cycles`; `price_joules` is not the same"), "{text}");
}

#[test]
fn another_type_or_unit_is_refused() {
    let (_home, dir) = recorded(1, false);
    let part = full_part(&dir, RecordingTable::Samples);
    rewrite(&part, |columns, _| {
        let (field, array) = column(columns, "sampling_us");
        *array = Arc::new(Int32Array::from(vec![1; array.len()]));
        *field = Field::new("sampling_us", array.data_type().clone(), false);
    });
    assert!(complaint(&dir, &part).contains("`sampling_us` is Int32, expected Int64"));

    let (_home, dir) = recorded(1, false);
    let part = full_part(&dir, RecordingTable::Samples);
    rewrite(&part, |columns, _| {
        let (field, _) = column(columns, "boottime_us");
        *field = field.clone().with_metadata([("unit", "ns")]);
    });
    assert!(complaint(&dir, &part).contains("`boottime_us` is in ns, expected us"));
}

#[test]
fn columns_of_newer_versions_and_another_order_do_not_matter() {
    let (_home, dir) = recorded(2, false);
    let before = Recording::open(&dir).unwrap().last_machine().unwrap();
    let part = full_part(&dir, RecordingTable::Snapshots);
    rewrite(&part, |columns, _| {
        let rows = columns[0].1.len();
        let array: ArrayRef = Arc::new(Int32Array::from(vec![5; rows]));
        columns.insert(0, (Field::new("newer", array.data_type().clone(), false), array));
        columns.reverse();
    });
    let recording = Recording::open(&dir).unwrap();
    recording.check().unwrap();
    assert_eq!(recording.last_machine().unwrap(), before);
}

#[test]
fn impossible_values_are_named_by_row() {
    let change = |name: &'static str, at, value, expected: &str| {
        let (_home, dir) = recorded(1, false);
        let part = full_part(&dir, RecordingTable::Snapshots);
        rewrite(&part, |columns, _| set(columns, name, at, value));
        let text = complaint(&dir, &part);
        assert!(text.contains(expected), "{text}");
    };
    change("slice_id", 5, Some(4), "row 5: slice 4 of sample 0 is there twice");
    change("slice_id", 5, Some(2), "row 5: slice 2 of sample 0 comes after slice 4 of sample 0");
    change("free_pages", 7, Some(-1), "row 7: free_pages is -1: below zero");
    change("free_pages", 9, None, "row 9: `free_pages` has no value");
    change("boottime_us", 3, Some(12), "row 3: boottime_us runs backwards, by ");
}

#[test]
fn an_unknown_state_is_named_by_row_when_it_is_replayed() {
    let (_home, dir) = recorded(1, false);
    let part = full_part(&dir, RecordingTable::Snapshots);
    rewrite(&part, |columns, _| {
        let (_, array) = column(columns, "state");
        let mut states = vec!["online"; array.len()];
        states[6] = "asleep";
        *array = Arc::new(arrow_array::StringArray::from(states));
    });
    let recording = Recording::open(&dir).unwrap();
    let error = recording.machines().find_map(Result::err).unwrap().to_string();
    assert!(error.contains("row 6: state: `asleep` is not a state"), "{error}");
}

#[test]
fn missing_samples_are_counted() {
    let (_home, dir) = recorded(5, true);
    let samples: Vec<Sample> = all(&Recording::open(&dir).unwrap());
    assert!(samples.len() >= 5);
    // The second part with rows: in the middle, so that the gap is seen.
    let rows = |path: &PathBuf| builder(path).metadata().file_metadata().num_rows() as u64;
    let parts = fs::read_dir(dir.join("samples")).unwrap().map(|entry| entry.unwrap().path());
    let mut parts: Vec<_> = parts.filter(|path| rows(path) > 0).collect();
    parts.sort();
    assert!(parts.len() > 2, "{parts:?}");
    let lost = rows(&parts[1]);
    let tables: Vec<RecordingTable> =
        RecordingTable::ALL.into_iter().filter(|table| !table.is_optional()).collect();
    for table in &tables {
        fs::remove_file(dir.join(table.name()).join(parts[1].file_name().unwrap())).unwrap();
    }
    let findings = Recording::open(&dir).unwrap().check().unwrap();
    assert_eq!(findings.missing_parts, tables.len() as u64);
    assert_eq!((findings.missing_samples, findings.incomplete_samples), (lost, 0));
}

#[test]
fn the_columns_are_described_by_name_and_unit() {
    for table in RecordingTable::ALL {
        for field in table.fields() {
            let unit = field.metadata().get("unit");
            let name = field.name();
            assert!(unit.is_none_or(|unit| name.ends_with(unit.as_str())), "{table}.{name}");
        }
    }
    let slices: Vec<Slice> = all(&Recording::open(&recorded(1, false).1).unwrap());
    assert!(slices.iter().any(|slice| slice.state == "offline"));
}

#[test]
fn damage_is_an_error_wherever_it_is() {
    let (_home, dir) = recorded(1, false);
    let part = full_part(&dir, RecordingTable::Snapshots);
    let bytes = fs::read(&part).unwrap();
    for at in (0..bytes.len()).step_by(41) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        fs::write(&part, damaged).unwrap();
        assert!(Recording::open(&dir).is_err(), "{at}");
    }
    assert!(complaint(&dir, &part).contains("checksum"));
    let recording = Recording::open_skipping_broken(&dir).unwrap();
    assert_eq!(recording.check().unwrap().broken_parts, 1);
    fs::write(&part, bytes).unwrap();
    assert_eq!(Recording::open(&dir).unwrap().check().unwrap().broken_parts, 0);
}

/// A machine that counts what is done to it, from what it had done when it was saved.
fn working() -> (ReplayBackend, WorkCounters) {
    let before =
        WorkCounters { page_faults: 7, allocated_pages: Pages(9), ..WorkCounters::default() };
    (ReplayBackend::with_work(backend().machine().unwrap(), Some(before)), before)
}

#[test]
fn what_was_done_is_recorded_with_each_sample() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    let (backend, before) = working();
    let mut recorder = Recorder::start(options(&dir), &sources(), Some(&backend)).unwrap();
    recorder.tick().unwrap();
    let request = Request { ignore_backoff: true, ..Request::new(RequestOp::Offline(SliceId(24))) };
    let outcome = backend.request(&request).unwrap();
    recorder.finish("signal", None).unwrap();

    let recording = Recording::open(&dir).unwrap();
    let mut machines = recording.machines();
    machines.next().unwrap().unwrap();
    assert_eq!(machines.work().unwrap(), before);
    machines.next().unwrap().unwrap();
    let work = machines.work().unwrap();
    assert_eq!((work.tried_slices, work.emptied_slices), (1, 1));
    assert_eq!(
        (work.migrated_pages, work.price_measured),
        (outcome.migrated, outcome.price_measured)
    );
    assert_eq!(recording.last_machine().unwrap().1, Some(work));
}

#[test]
fn recordings_made_before_work_was_recorded_are_read_without_it() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    record(&dir, &working().0, 1, false);
    let part = full_part(&dir, RecordingTable::Samples);
    for path in fs::read_dir(dir.join("samples")).unwrap().map(|entry| entry.unwrap().path()) {
        if builder(&path).metadata().file_metadata().num_rows() > 0 {
            rewrite(&path, |columns, _| {
                columns.retain(|(field, _)| field.name() != "emptied_slices");
            });
        }
    }
    let recording = Recording::open(&dir).unwrap();
    recording.check().unwrap();
    assert_eq!(recording.last_machine().unwrap().1, None);
    let mut machines = recording.machines();
    machines.next().unwrap().unwrap();
    let text = machines.work().unwrap_err().to_string();
    let place = format!("{}, row 0: `emptied_slices` has no value", part.display());
    assert!(text.starts_with(&place) && text.contains("older version"), "{text}");
}

#[test]
fn what_is_held_and_the_clock_of_prices_are_read_back_and_older_recordings_without() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    let mut machine = backend().machine().unwrap();
    let off = machine
        .snapshot
        .slices
        .iter_mut()
        .find(|slice| slice.state == SliceState::Offline)
        .unwrap();
    off.held = true;
    let (held, pages) = (off.id, off.present);
    (machine.zones[1].nr_held, machine.info.held_pages) = (1, pages);
    machine.info.clock_khz = Some(2_095_078);
    record(&dir, &ReplayBackend::new(machine), 1, false);

    let read = || {
        let recording = Recording::open(&dir).unwrap();
        recording.check().unwrap();
        let machine = recording.last_machine().unwrap().0;
        let held = machine.snapshot.slices.iter().filter(|slice| slice.held).map(|slice| slice.id);
        let nr_held: Vec<u32> = machine.zones.iter().map(|zone| zone.nr_held).collect();
        (held.collect::<Vec<_>>(), nr_held, machine.info.held_pages, machine.info.clock_khz)
    };
    assert_eq!(read(), (vec![held], vec![0, 1, 0], pages, Some(2_095_078)));
    rewrite_all(&dir, |_, columns, keys| {
        columns.retain(|(field, _)| {
            !["held", "nr_held", "held_pages"].contains(&field.name().as_str())
        });
        let geometry = keys.get_mut("ramslice.geometry").unwrap();
        let shorter = geometry.replace(",\"clock_khz\":2095078", "");
        assert_ne!(*geometry, shorter);
        *geometry = shorter;
    });
    assert_eq!(read(), (vec![], vec![0, 0, 0], Pages(0), None));
}
