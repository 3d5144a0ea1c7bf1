//! Inputs that are not as they should be: an error with file and row, or a counted skip. Never a
//! panic, never a zero.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use flate2::Compression;
use flate2::write::GzEncoder;
use ramslice_sim::load::{
    FleetAverages, InputError, SyntheticUsage, UsageFile, UsageLoad, UsageOptions, UsageSeries,
    recorded,
};
use ramslice_sim::{MemoryChange, OwnerId};

/// Reads all machines of a file with this text.
fn read(text: &str) -> Result<Vec<UsageSeries>, InputError> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("usage.csv");
    fs::write(&path, text).unwrap();
    UsageFile::open(&path)?.collect()
}

fn refused(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

fn row(machine: &str, time: u64, percent: &str) -> String {
    format!("{machine},{time},30,{percent},,,,,\n")
}

#[test]
fn good_rows_become_series_by_machine() {
    let text = row("m_1", 0, "40") + &row("m_1", 300, "50") + &row("m_2", 0, "60");
    let series = read(&text).unwrap();
    assert_eq!(series.len(), 2);
    assert_eq!(
        (series[0].machine.as_str(), series[0].seconds.as_slice()),
        ("m_1", [0, 300].as_slice())
    );
    assert!((series[1].used[0] - 0.6).abs() < 1e-6);
    assert!(series[0].notes.sentences().is_empty());
}

#[test]
fn wrong_columns_are_an_error_with_the_line() {
    let error = refused(&(row("m_1", 0, "40") + "m_1,300,30,40\n"));
    assert!(error.contains("usage.csv:2:") && error.contains("4 columns instead of 9"), "{error}");
    let header = "machine_id,time_stamp,cpu_util_percent,mem_util_percent,mem_gps,mkpi,net_in,\
                  net_out,disk_io\n";
    let error = refused(header);
    assert!(error.contains("usage.csv:1:") && error.contains("no header"), "{error}");
    let error = refused(&row("m_1", 0, "forty"));
    assert!(error.contains("`forty`"), "{error}");
    let error = refused(&row("", 0, "40"));
    assert!(error.contains("machine_id is empty"), "{error}");
    let error = refused("m_1,,30,40,,,,,\n");
    assert!(error.contains("time_stamp is empty"), "{error}");
}

#[test]
fn a_file_cut_off_in_its_last_row_is_an_error() {
    let whole = row("m_1", 0, "40") + &row("m_1", 300, "50");
    let error = refused(&whole[..whole.len() - 4]);
    assert!(error.contains(":2:") && error.contains("half-written"), "{error}");
}

#[test]
fn times_running_backwards_are_an_error_with_the_line() {
    let error = refused(&(row("m_1", 600, "40") + &row("m_1", 300, "50")));
    assert!(error.contains(":2:") && error.contains("backwards, from 600 s to 300 s"), "{error}");
}

#[test]
fn a_machine_that_comes_back_is_an_error() {
    let error = refused(&(row("m_1", 0, "40") + &row("m_2", 0, "50") + &row("m_1", 300, "50")));
    assert!(error.contains(":3:") && error.contains("m_1 was there before"), "{error}");
}

#[test]
fn duplicates_are_counted_if_alike_and_an_error_if_not() {
    let twice =
        read(&(row("m_1", 0, "40") + &row("m_1", 0, "40") + &row("m_1", 300, "41"))).unwrap();
    assert_eq!((twice[0].notes.repeated, twice[0].seconds.len()), (1, 2));
    let error = refused(&(row("m_1", 0, "40") + &row("m_1", 0, "41")));
    assert!(error.contains(":2:") && error.contains("second, different row"), "{error}");
}

#[test]
fn rows_without_a_value_are_counted_not_zero() {
    let text = row("m_1", 0, "40")
        + &row("m_1", 300, "")
        + &row("m_1", 600, "-1")
        + &row("m_1", 900, "101");
    let series = &read(&text).unwrap()[0];
    assert_eq!((series.notes.without_value, series.used.len()), (3, 1));
    assert!((series.used[0] - 0.4).abs() < 1e-6);
    let error = refused(&(row("m_1", 0, "") + &row("m_1", 300, "")));
    assert!(error.contains("none of the 2 rows of machine m_1"), "{error}");
}

#[test]
fn other_units_are_an_error() {
    for percent in ["150", "-2", "nan", "inf"] {
        assert!(refused(&row("m_1", 0, percent)).contains("mem_util_percent is"), "{percent}");
    }
    let shares: String = (0..30).map(|at| row("m_1", at * 300, "0.4")).collect();
    let error = refused(&shares);
    assert!(error.contains("in per cent, not a share"), "{error}");
    let error = refused(&row("m_1", 1_514_764_800_000, "40"));
    assert!(error.contains("milliseconds"), "{error}");
}

#[test]
fn milliseconds_are_recognised_by_the_usual_distance_of_rows_also_in_a_short_file() {
    // An hour, every ten seconds; some rows have no value.
    let rows = |unit: u64| {
        (0..360).fold(String::new(), |text, at| {
            text + &row("m_1", at * 10 * unit, if at % 3 == 0 { "40" } else { "" })
        })
    };
    let error = refused(&(row("m_0", 0, "40") + &rows(1000)));
    assert!(error.contains("usage.csv:2:") && error.contains("10000 s apart"), "{error}");
    assert!(error.contains("milliseconds") && error.contains("--sparse"), "{error}");
    read(&rows(1)).unwrap();
    // Rows an hour apart are accepted, and rows further apart if the caller allows it.
    let every = |seconds: u64| {
        (0..4_u64).fold(String::new(), |text, at| text + &row("m_1", at * seconds, "40"))
    };
    read(&every(3600)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("usage.csv");
    fs::write(&path, every(3601)).unwrap();
    let file = || UsageFile::open(&path).unwrap();
    assert!(file().next().unwrap().is_err());
    assert_eq!(file().sparse(true).next().unwrap().unwrap().seconds, [0, 3601, 7202, 10_803]);
}

#[test]
fn gaps_are_counted_and_what_was_before_goes_on() {
    let text: String = [0, 300, 600, 4200, 4500]
        .into_iter()
        .zip(["10", "20", "30", "40", "50"])
        .fold(String::new(), |text, (time, percent)| text + &row("m_1", time, percent));
    let series = &read(&text).unwrap()[0];
    assert_eq!((series.notes.gaps, series.notes.gap_time), (1, Duration::from_hours(1)));
    assert!(series.notes.sentences()[0].starts_with("1 gaps of 1.0 h in all"));
    let steps: Vec<_> = UsageLoad::new(series, UsageOptions::default(), 1000, 0).collect();
    assert_eq!(steps.len(), 16);
    assert_eq!(steps[15].time, Duration::from_mins(75));
    let anon = |step: usize| match steps[step].changes[0] {
        MemoryChange::Level { owner: OwnerId(0), pages, .. } => pages,
        other => panic!("{other:?}"),
    };
    assert_eq!((anon(2), anon(10), anon(15)), (240, 240, 400));
}

#[test]
fn irregular_times_are_no_gaps() {
    // Most rows a minute apart, some up to seven, one after six hours.
    let mut time = 0;
    let text = (0..200).fold(String::new(), |text, number| {
        time += match number {
            100 => 6 * 3600,
            _ if number % 5 == 0 => 420,
            _ => 60,
        };
        text + &row("m_1", time, "40")
    });
    let notes = &read(&text).unwrap()[0].notes;
    assert_eq!((notes.gaps, notes.gap_time), (1, Duration::from_hours(6)));
}

#[test]
fn a_byte_order_mark_is_no_part_of_a_name() {
    let rows = row("m_1", 0, "40") + &row("m_1", 60, "50");
    assert_eq!(read(&format!("\u{feff}{rows}")).unwrap(), read(&rows).unwrap());
}

#[test]
fn a_compressed_file_is_read_and_a_damaged_one_named() {
    let rows = row("m_1", 0, "40") + &row("m_1", 60, "50");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("usage.csv.gz");
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(rows.as_bytes()).unwrap();
    let mut packed = packed.finish().unwrap();
    fs::write(&path, &packed).unwrap();
    let found: Result<Vec<_>, _> = UsageFile::open(&path).unwrap().collect();
    assert_eq!(found.unwrap(), read(&rows).unwrap());
    packed.truncate(packed.len() / 2);
    fs::write(&path, &packed).unwrap();
    let found: Result<Vec<_>, _> = UsageFile::open(&path).unwrap().collect();
    let error = found.unwrap_err().to_string();
    assert!(error.contains("usage.csv.gz"), "{error}");
}

#[test]
fn empty_missing_and_binary_files_are_errors() {
    assert!(refused("").contains("no rows"));
    let error = UsageFile::open(Path::new("/nonexistent/usage.csv")).unwrap_err().to_string();
    assert!(error.contains("/nonexistent/usage.csv"), "{error}");
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("usage.csv");
    fs::write(&path, [0xff, 0xfe, 0, b',', 1, b'\n', 0x80]).unwrap();
    let found: Result<Vec<_>, _> = UsageFile::open(&path).unwrap().collect();
    assert!(found.is_err());
}

#[test]
fn a_synthetic_file_reads_as_what_was_made_up() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("synthetic.csv");
    let made_up = || SyntheticUsage::new(FleetAverages::default(), 3, 86_400, 300, 7);
    assert_eq!(made_up().write(&path).unwrap(), 3 * 288);
    let read: Vec<UsageSeries> = UsageFile::open(&path).unwrap().map(Result::unwrap).collect();
    let made: Vec<UsageSeries> = made_up().collect();
    assert_eq!(read, made);
    assert!(made[0] != made[1]);
    let text = fs::read_to_string(&path).unwrap();
    assert!(text.lines().all(|line| line.split(',').count() == 9));
}

#[test]
fn averages_of_many_made_up_machines_are_those_asked_for() {
    let averages = FleetAverages { memory_percent: 50.0, ..FleetAverages::default() };
    let (mut sum, mut count) = (0.0, 0.0);
    for series in SyntheticUsage::new(averages, 200, 86_400, 900, 3) {
        sum += series.used.iter().map(|&used| f64::from(used)).sum::<f64>();
        count += series.used.len() as f64;
    }
    // The mean of 200 machines with a deviation of 5 points is off by 0.35 points: 4 of these.
    assert!((sum / count - 0.5).abs() < 0.015, "{}", sum / count);
}

/// A recording of a saved machine, made by the recorder itself.
fn recording(dir: &Path) -> PathBuf {
    recording_in_parts(dir, 0)
}

/// One that has so many parts at least.
fn recording_in_parts(dir: &Path, least: usize) -> PathBuf {
    let machine = Path::new(env!("CARGO_MANIFEST_DIR")).join("../cli/tests/data/guest-8g.json");
    let backend = ramslice_backend::ReplayBackend::open(&machine).unwrap();
    let options = ramslice_record::RecorderOptions {
        dir: dir.join("recording"),
        every: Duration::from_millis(1),
        census: None,
        part_age: Duration::from_millis(1),
        append: false,
        command: Vec::new(),
        source: "a test".to_owned(),
        statistics: false,
        cache_use: false,
        reuse: None,
    };
    let sources =
        ramslice_record::KernelPaths { tracefs: None, ..ramslice_record::KernelPaths::system() };
    let mut recorder = ramslice_record::Recorder::start(options, &sources, Some(&backend)).unwrap();
    let mut ticks = 0;
    while ticks < 5 || parts(&dir.join("recording"), "samples").len() < least {
        recorder.tick().unwrap();
        std::thread::sleep(Duration::from_millis(2));
        ticks += 1;
        assert!(ticks < 10_000, "the parts do not get old");
    }
    recorder.finish("end", None).unwrap();
    dir.join("recording")
}

fn parts(dir: &Path, table: &str) -> Vec<PathBuf> {
    let mut parts: Vec<PathBuf> =
        fs::read_dir(dir.join(table)).unwrap().map(|entry| entry.unwrap().path()).collect();
    parts.sort();
    parts
}

#[test]
fn a_recording_becomes_a_machine_and_its_load() {
    let home = tempfile::tempdir().unwrap();
    let load = recorded(&recording(home.path())).unwrap();
    assert!(!load.steps.is_empty() && load.nonempty.len() == load.steps.len());
    assert_eq!(load.config.memory().0 % load.config.slice_bytes.0, 0);
    // It begins as the recorded one was, and nothing has happened then.
    let machine = load.machine(load.config.clone()).unwrap();
    machine.check_books().unwrap();
    assert_eq!(machine.nonempty(), load.nonempty[0]);
    assert!(load.steps[0].changes.is_empty());
    let seen: u64 = load.moments[0].1.pages.iter().sum();
    assert_eq!(machine.totals().used().0, seen);
}

#[test]
fn half_written_and_foreign_recordings_are_errors_with_the_file() {
    let home = tempfile::tempdir().unwrap();
    let dir = recording(home.path());
    let error = recorded(home.path()).unwrap_err().to_string();
    assert!(error.contains(home.path().to_str().unwrap()), "{error}");
    let part = parts(&dir, "snapshots").pop().unwrap();
    let whole = fs::read(&part).unwrap();
    fs::write(&part, &whole[..whole.len() / 2]).unwrap();
    let error = recorded(&dir).unwrap_err().to_string();
    assert!(error.contains(part.file_name().unwrap().to_str().unwrap()), "{error}");
    let mut damaged = whole.clone();
    damaged[whole.len() / 2] ^= 0xff;
    fs::write(&part, damaged).unwrap();
    let error = recorded(&dir).unwrap_err().to_string();
    assert!(error.contains(part.file_name().unwrap().to_str().unwrap()), "{error}");
}

#[test]
fn missing_parts_of_every_table_of_a_recording_are_counted() {
    let home = tempfile::tempdir().unwrap();
    let dir = recording_in_parts(home.path(), 4);
    assert_eq!(recorded(&dir).unwrap().notes.missing_parts.tables().count(), 0);
    for (table, which) in [
        ("snapshots", 1),
        ("zones", 1),
        ("events", 0),
        ("meminfo", 1),
        ("vmstat", 1),
        // The last one, too: other tables have its number.
        ("samples", parts(&dir, "samples").len() - 1),
    ] {
        let part = parts(&dir, table).swap_remove(which);
        let whole = fs::read(&part).unwrap();
        fs::remove_file(&part).unwrap();
        let notes = recorded(&dir).unwrap().notes;
        let note_text = format!("1 parts of the table {table} are missing");
        assert!(
            notes.sentences().iter().any(|note| note.contains(&note_text)),
            "{table}: {notes:?}"
        );
        let document = serde_json::to_value(notes).unwrap();
        assert_eq!(document["missing_parts"], serde_json::json!({ table: 1 }));
        fs::write(&part, whole).unwrap();
    }
}

#[test]
fn a_recording_without_whole_samples_is_no_load() {
    let home = tempfile::tempdir().unwrap();
    let dir = recording(home.path());
    for part in parts(&dir, "snapshots").into_iter().skip(1) {
        fs::remove_file(part).unwrap();
    }
    let error = recorded(&dir).unwrap_err().to_string();
    assert!(error.contains("no sample with all its slices"), "{error}");
}
