//! `ramslice-lab advise` from outside, on recordings of an invented machine whose need is known: a
//! loop over 160 000 pages that takes ten seconds, sampled through a sixteenth of all frames.

mod common;
#[path = "../../record/tests/common/made_up.rs"]
mod made_up;

use std::fs;
use std::path::{Path, PathBuf};

use common::command;
use ramslice_record::tables::{Sample, Slice, Vmstat, Zone};
use ramslice_record::{Recording, RecordingInfo, RowBatch, TableRow};
use serde_json::Value;
use tempfile::TempDir;

const MEMORY_PAGES: i64 = 64 * 8192;
const FREE_PAGES: i64 = 200_000;
const FILE_PAGES: i64 = 250_000;
const FIXED_PAGES: i64 = MEMORY_PAGES - FREE_PAGES - FILE_PAGES;
const LOOP_PAGES: i64 = 160_000;
const SLICE_PAGES: i64 = 8192;
const SCANS_PER_SECOND: i64 = 10;
const LOOP_SECONDS: i64 = 10;
/// Frames for each one in the sample.
const SAMPLED: i64 = 16;
/// Pages read from the disk in a second, those of them that no look-up wants, and the time that
/// each takes.
const READ_PAGES: i64 = 40;
const UNUSED_PAGES: i64 = 8;
const READ_US: i64 = 50;

fn rows<R: TableRow>(recording: &Recording) -> Vec<R> {
    recording.rows().map(|row| row.unwrap().row).collect()
}

/// The counters after so many seconds; `sampler` says whether reuse times were sampled.
fn counters(second: i64, sampler: bool) -> Vec<(String, i64)> {
    let looked_up = LOOP_PAGES / LOOP_SECONDS;
    let mut found: Vec<(String, i64)> = [
        ("nr_inactive_file", FILE_PAGES / 2),
        ("nr_active_file", FILE_PAGES / 2),
        ("nr_inactive_anon", 0),
        ("pswpin", 0),
        ("ramslice_lookup_read", second * looked_up),
        ("ramslice_lookup_fault", 0),
        ("ramslice_readahead", second * READ_PAGES),
        ("ramslice_readahead_unused", second * UNUSED_PAGES),
        ("ramslice_refault_file_order_0", 0),
        ("pressure_io_some_us", second * READ_PAGES * READ_US),
        ("pressure_memory_some_us", 0),
    ]
    .map(|(name, value)| (name.to_owned(), value))
    .into();
    if sampler {
        found.extend(sampled(second, 0));
    }
    found
}

/// The same with a scan only after each so many seconds, on the same loop.
fn rarely_sampled(second: i64, apart: i64) -> Vec<(String, i64)> {
    let mut found = counters(second, false);
    let (scanned, round) = (second / apart * apart, LOOP_SECONDS.div_euclid(apart).max(1));
    let mut reuse = sampled(scanned, 0);
    for (name, value) in &mut reuse {
        match name.as_str() {
            "ramslice_reuse_scans" => *value = second / apart,
            "ramslice_reuse_file_active_scans_100" => {
                *name = format!("ramslice_reuse_file_active_scans_{round}");
            }
            _ => {}
        }
    }
    found.extend(reuse);
    found
}

/// The counters of a sampler that began after so many seconds.
fn sampled(second: i64, begin: i64) -> Vec<(String, i64)> {
    let since = second - begin;
    let used = since * (LOOP_PAGES / LOOP_SECONDS) / SAMPLED;
    let first_round = used.min(LOOP_PAGES / SAMPLED);
    let age = LOOP_SECONDS * SCANS_PER_SECOND;
    let names = [
        ("started_us", 5 + begin),
        ("scans", since * SCANS_PER_SECOND),
        ("sampled_frames", MEMORY_PAGES / SAMPLED),
        ("all_frames", MEMORY_PAGES),
        ("file_resident", FILE_PAGES / SAMPLED),
        ("file_arrived", since * READ_PAGES / SAMPLED),
        ("file_active_unseen", first_round),
    ];
    let mut found: Vec<(String, i64)> =
        names.map(|(name, value)| (format!("ramslice_reuse_{name}"), value)).into();
    found.push((format!("ramslice_reuse_file_active_scans_{age}"), used - first_round));
    found
}

/// Rows of the invented machine, with these counters.
fn batch(counters: impl Fn(i64) -> Vec<(String, i64)>) -> (RowBatch, Recording, TempDir) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("machine");
    made_up::write(&dir, Some(0), false).unwrap();
    let recording = Recording::open(&dir).unwrap();
    let mut samples: Vec<Sample> = rows(&recording);
    let mut vmstat = Vec::new();
    for row in &mut samples {
        row.managed_pages = Some(MEMORY_PAGES);
        (row.free_pages, row.offline_pages) = (Some(FREE_PAGES), Some(0));
        for (line, (name, value)) in (0..).zip(counters(row.sample)) {
            let (sample, boottime_us, realtime_us) = (row.sample, row.boottime_us, row.realtime_us);
            let (name, unit) = (name.into(), "count".into());
            vmstat.push(Vmstat { sample, boottime_us, realtime_us, line, name, value, unit });
        }
    }
    let (zones, slices) = (rows::<Zone>(&recording), rows::<Slice>(&recording));
    (RowBatch { samples, zones, slices, vmstat, ..RowBatch::default() }, recording, home)
}

/// Writes the samples of the batch that `keep` takes.
fn write(batch: &RowBatch, of: &Recording, dir: &Path, keep: impl Fn(i64) -> bool) {
    write_as(batch, of, of.info(), dir, keep);
}

fn write_as(
    batch: &RowBatch,
    of: &Recording,
    about: &RecordingInfo,
    dir: &Path,
    keep: impl Fn(i64) -> bool,
) {
    let part = RowBatch {
        samples: batch.samples.iter().filter(|row| keep(row.sample)).cloned().collect(),
        zones: batch.zones.iter().filter(|row| keep(row.sample)).cloned().collect(),
        slices: batch.slices.iter().filter(|row| keep(row.sample)).cloned().collect(),
        vmstat: batch.vmstat.iter().filter(|row| keep(row.sample)).cloned().collect(),
        ..RowBatch::default()
    };
    part.write_recording(dir, about, of.end().unwrap()).unwrap();
}

/// A recording of the loop, in a directory that goes with the first value.
fn looping(sampler: bool) -> (TempDir, PathBuf) {
    let (batch, recording, home) = batch(|second| counters(second, sampler));
    let dir = home.path().join("work");
    write(&batch, &recording, &dir, |_| true);
    (home, dir)
}

fn advise(dirs: &[&Path], more: &[&str]) -> std::process::Output {
    command(&["advise"]).args(dirs).args(more).output().unwrap()
}

fn text(dirs: &[&Path], more: &[&str]) -> String {
    let output = advise(dirs, more);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(dirs: &[&Path], more: &[&str]) -> Value {
    serde_json::from_str(&text(dirs, &[more, &["--json"]].concat())).unwrap()
}

/// The error, after a check of the exit status.
fn refused(dirs: &[&Path], more: &[&str], status: i32) -> String {
    let output = advise(dirs, more);
    let error = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(status), "{error}");
    error
}

/// A recording of which all counters of `looping`, and rows that rise by so much each second.
fn looping_with(rows: &'static [(&str, i64)]) -> (TempDir, PathBuf) {
    let (batch, recording, home) = batch(|second| {
        let mut found = counters(second, true);
        found.extend(rows.iter().map(|&(name, each)| (name.to_owned(), each * second)));
        found
    });
    let dir = home.path().join("work");
    write(&batch, &recording, &dir, |_| true);
    (home, dir)
}

/// Checks the cost of a page and its interval, as multiples of `READ_US`.
fn check_cost(found: &Value, wanted: [(&str, f64); 3]) {
    for (name, wanted) in wanted {
        let cost = found["miss_cost_us"][name].as_f64().unwrap() / READ_US as f64;
        assert!((cost - wanted).abs() < 0.06 * wanted, "{name}: {cost} is not {wanted}");
    }
}

#[test]
fn on_one_processor_that_is_never_idle_others_make_up_for_every_wait() {
    // Some task waited for 2 ms of each second, all for half of that. The processor went on: for
    // 1 ms in the kernel, and for 0.5 ms with the recorder, which might have been idle time.
    let (_home, dir) = looping_with(&[
        ("pressure_io_full_us", READ_PAGES * READ_US / 2),
        ("pressure_memory_full_us", 0),
        ("cpu_user_us", 998_500),
        ("cpu_kernel_us", 1500),
        ("cpu_idle_us", 0),
        ("recorder_cpu_us", 500),
        ("recorder_private_bytes", 0),
    ]);
    check_cost(&json(&[&dir], &[]), [("value", 0.375), ("low", 0.065), ("high", 0.69)]);
}

#[test]
fn what_a_page_costs_is_between_what_all_waited_and_what_the_kernel_did_as_well() {
    // All tasks waited for half of the 2 ms a second that some did. The recorder took 0.4 s of the
    // one processor and of each second, mostly in the kernel, which was to do with pages for 1 ms.
    let (_home, dir) = looping_with(&[
        ("pressure_io_full_us", READ_PAGES * READ_US / 2),
        ("pressure_memory_full_us", 0),
        ("cpu_user_us", 598_000),
        ("cpu_kernel_us", 401_000),
        ("cpu_idle_us", 1000),
        ("recorder_cpu_us", 400_000),
        ("recorder_private_bytes", 0),
    ]);
    let found = json(&[&dir], &[]);
    check_cost(&found, [("value", 0.75 + 0.25), ("low", 0.6), ("high", 1.4)]);
    // Without the recorder, the same work would have been done in less than two thirds of the time:
    // so a page costs a larger share.
    let (_plain, plain) = looping(true);
    let most = |found: &Value| found["sizes"][0]["slowdown"]["value"].as_f64().unwrap();
    let shares = most(&found) / most(&json(&[&plain], &[]));
    assert!((shares - 1.0 / 0.6004).abs() < 0.02, "{shares}");
}

#[test]
fn the_advised_memory_holds_the_loop_and_little_more() {
    let (_home, dir) = looping(true);
    let found = json(&[&dir], &["--profile", "thesis-parc"]);
    let least = found["least_bytes"].as_i64().unwrap() / 4096;
    let needed = FIXED_PAGES + LOOP_PAGES;
    // The kernel's reserve, 3 % for the sample, and a slice.
    assert!(least >= needed && least < needed + 4096 + 4800 + SLICE_PAGES, "{least} of {needed}");
    assert_eq!(found["miss_cost_source"], "first_reads");
    assert!((found["miss_cost_us"]["value"].as_f64().unwrap() - READ_US as f64).abs() < 1e-6);
    let saved = found["saved_bytes"].as_i64().unwrap() / 4096;
    assert_eq!(saved, MEMORY_PAGES - least);
    assert!(found["saving"]["watts"]["low"].as_f64().unwrap() > 0.0, "{found}");
    let sizes = found["sizes"].as_array().unwrap();
    let at = |pages: i64| {
        let near = |size: &&Value| size["memory_bytes"].as_i64().unwrap() / 4096 >= pages;
        sizes.iter().find(near).unwrap()
    };
    // Half of the loop keeps nothing of it, all memory everything but first reads.
    let half = at(FIXED_PAGES + LOOP_PAGES / 2);
    assert!(half["hit_ratio"]["value"].as_f64().unwrap() < 0.01, "{half}");
    assert!(half["slowdown"]["low"].as_f64().unwrap() > 0.7, "{half}");
    let all = at(MEMORY_PAGES);
    let ratio = 1.0 - (READ_PAGES - UNUSED_PAGES) as f64 / (LOOP_PAGES / LOOP_SECONDS) as f64;
    assert!((all["hit_ratio"]["value"].as_f64().unwrap() - ratio).abs() < 1e-6, "{all}");
    assert!((all["faults_per_second"]["value"].as_f64().unwrap() - 40.0).abs() < 0.1, "{all}");

    let printed = text(&[&dir], &["--profile", "thesis-parc"]);
    for expected in ["Least memory that keeps the slowdown at 5 %", "by thesis-parc", "SLOWDOWN"] {
        assert!(printed.contains(expected), "{expected}: {printed}");
    }
    // 0.07 times 100 is not quite 7.
    let printed_seven = text(&[&dir], &["--slowdown", "7%"]);
    assert!(printed_seven.contains("keeps the slowdown at 7 %,"), "{printed_seven}");
    let marks = printed.split_once("\n[watermarks]\n").unwrap().1;
    assert_eq!(marks.lines().count(), 5, "{marks}");
    let policy = format!("schema_version = 1\npolicy = \"watermarks\"\n[watermarks]\n{marks}");
    let file = dir.with_extension("toml");
    fs::write(&file, policy).unwrap();
    let run = command(&["sim", "run", "batch", "--memory", "2G", "--slice", "32M", "--policy"])
        .arg(&file)
        .args(["--granularity", "slice", "--for", "1h"])
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

#[test]
fn two_recordings_joined_say_the_same_as_one() {
    let (batch, recording, home) = batch(|second| counters(second, true));
    let [all, first, second] = ["all", "first", "second"].map(|name| home.path().join(name));
    write(&batch, &recording, &all, |_| true);
    write(&batch, &recording, &first, |sample| sample < 70);
    write(&batch, &recording, &second, |sample| sample >= 70);
    let without_names = |mut found: Value| {
        found["recordings"] = Value::Null;
        found
    };
    let whole = without_names(json(&[&all], &[]));
    assert!(whole["least_bytes"].is_i64());
    // In whatever order.
    for order in [[&first, &second], [&second, &first]] {
        let joined = without_names(json(&[order[0].as_path(), order[1]], &[]));
        assert_eq!(joined, whole);
    }
}

#[test]
fn a_shorter_recording_with_a_sampler_of_its_own_counts_and_one_that_adds_nothing_is_named() {
    let (batch, recording, home) = batch(|second| {
        let mut found = counters(second, false);
        match second {
            97..=117 => found.extend(sampled(second, 97)),
            118.. => {}
            _ => found.extend(sampled(second, 0)),
        }
        found
    });
    let [long, short, bare] = ["long", "short", "bare"].map(|name| home.path().join(name));
    write(&batch, &recording, &long, |sample| sample < 97);
    write(&batch, &recording, &short, |sample| (97..118).contains(&sample));
    write(&batch, &recording, &bare, |sample| sample >= 118);
    let alone = json(&[&long], &[]);
    let joined = json(&[&long, &short, &bare], &[]);
    // Of each, but for the quarter that only watches: 72 s of 96, and 15 of 20.
    for (found, seconds) in [(alone, 72.0), (joined.clone(), 87.0)] {
        assert!((found["seconds"].as_f64().unwrap() - seconds).abs() < 0.1, "{found}");
    }
    let notes = joined["notes"].to_string();
    assert!(notes.contains("bare adds nothing: it was recorded without --reuse"), "{notes}");
    assert!(!notes.contains("short adds") && !notes.contains("long adds"), "{notes}");
}

#[test]
fn a_stretch_is_of_one_sampler_whose_sample_may_be_another() {
    // Of the same machine, a sampler that sees half as many frames.
    let (batch, recording, home) = batch(|second| {
        let mut found = counters(second, false);
        let mut reuse = sampled(second, if second < 60 { 0 } else { 60 });
        for (name, value) in &mut reuse {
            let scans = ["scans", "started_us", "all_frames"];
            if second >= 60 && !scans.iter().any(|kept| name.ends_with(&format!("reuse_{kept}"))) {
                *value /= 2;
            }
        }
        found.extend(reuse);
        found
    });
    let dir = home.path().join("work");
    write(&batch, &recording, &dir, |_| true);
    let found = json(&[&dir], &[]);
    // 44 and 45 intervals, of 5 each at least.
    assert_eq!(found["stretches"], 16);
    let least = found["least_bytes"].as_i64().unwrap() / 4096;
    let needed = FIXED_PAGES + LOOP_PAGES;
    assert!(least >= needed && least < needed + 4096 + 6400 + SLICE_PAGES, "{least} of {needed}");
}

#[test]
fn stretches_without_a_scan_are_joined_and_too_few_with_one_are_refused() {
    let rare = |apart: i64| {
        let (batch, recording, home) = batch(|second| rarely_sampled(second, apart));
        let dir = home.path().join("work");
        write(&batch, &recording, &dir, |_| true);
        (home, dir)
    };
    // Shorter stretches than 10 s would have no scan.
    let (_home, dir) = rare(10);
    let found = json(&[&dir], &[]);
    assert_eq!(found["stretches"], 9);
    let least = found["sizes"][0]["memory_bytes"].as_i64().unwrap() / 4096;
    // Below what was in use.
    assert!(least < MEMORY_PAGES - FREE_PAGES, "{found}");
    let (_home, dir) = rare(25);
    let error = refused(&[&dir], &[], 1);
    assert!(error.contains("the interval of --reuse is too long"), "{error}");
}

#[test]
fn unfit_recordings_are_named_with_what_is_wrong() {
    let (batch, recording, home) = batch(|second| counters(second, true));
    let dir = |name: &str| home.path().join(name);
    let (good, few, gap, other, bare) =
        (dir("good"), dir("few"), dir("gap"), dir("other"), dir("bare"));
    write(&batch, &recording, &good, |_| true);
    write(&batch, &recording, &few, |sample| sample < 3);
    let error = refused(&[&few], &[], 1);
    assert!(error.contains("3 samples are too few: 42 are wanted"), "{error}");
    write(&batch, &recording, &gap, |sample| sample != 50);
    let error = refused(&[&gap], &[], 1);
    assert!(error.contains("gap has gaps: 1 samples"), "{error}");
    let about = RecordingInfo { boot_id: "another".to_owned(), ..recording.info().clone() };
    write_as(&batch, &recording, &about, &other, |_| true);
    let error = refused(&[&good, &other], &[], 1);
    assert!(error.contains("other is of another boot than"), "{error}");
    let error = refused(&[&good, &good], &[], 1);
    assert!(error.contains("at the same time"), "{error}");
    made_up::write(&bare, None, false).unwrap();
    let error = refused(&[&bare], &[], 1);
    assert!(error.contains("bare has no ramslice_lookup_read"), "{error}");
    for slowdown in ["--slowdown=0%", "--slowdown=101%"] {
        let error = refused(&[&good], &[slowdown], 2);
        assert!(error.contains("above 0% and at most 100%"), "{error}");
    }
    let error = refused(&[&good], &["--profile", "nothing"], 2);
    assert!(error.contains("there is no profile `nothing`"), "{error}");
    refused(&[&dir("nowhere")], &[], 2);
}

#[test]
fn without_a_cost_hit_ratios_alone_are_advised_and_a_given_one_counts() {
    let (batch, recording, home) = batch(|second| {
        let mut found = counters(second, true);
        found.retain(|(name, _)| !name.starts_with("pressure_"));
        found
    });
    let dir = home.path().join("work");
    write(&batch, &recording, &dir, |_| true);
    let printed = text(&[&dir], &[]);
    assert!(printed.contains("cost unknown") && !printed.contains("[watermarks]"), "{printed}");
    let found = json(&[&dir], &[]);
    assert!(found["least_bytes"].is_null() && found["sizes"][0]["hit_ratio"].is_object());
    let found = json(&[&dir], &["--miss-cost", "50us"]);
    assert_eq!(found["miss_cost_source"], "given");
    assert!(found["least_bytes"].is_i64(), "{found}");
    // 40 a second would have taken longer than the work did.
    let error = refused(&[&dir], &["--miss-cost", "30ms"], 1);
    assert!(error.contains("a miss cannot have cost 30ms"), "{error}");
}

#[test]
fn without_reuse_times_nothing_is_said_of_less_memory_and_refaults_say_what_more_would_do() {
    let (batch, recording, home) = batch(|second| {
        let mut found = counters(second, false);
        for (name, value) in &mut found {
            match name.as_str() {
                "ramslice_readahead" => *value = second * 1000,
                "pressure_io_some_us" => *value = second * 1000 * READ_US,
                "nr_active_file" => *value = FILE_PAGES / 2 + FREE_PAGES,
                _ => {}
            }
        }
        found.push(("ramslice_refault_file_order_15".to_owned(), second * 900));
        found
    });
    let (mut batch, dir) = (batch, home.path().join("work"));
    for sample in &mut batch.samples {
        sample.free_pages = Some(0);
    }
    write(&batch, &recording, &dir, |_| true);
    let found = json(&[&dir], &["--slowdown", "1%"]);
    assert_eq!(found["miss_cost_source"], "refaults");
    let sizes = found["sizes"].as_array().unwrap();
    let pages = |size: &Value| size["memory_bytes"].as_i64().unwrap() / 4096;
    assert_eq!(pages(&sizes[0]), MEMORY_PAGES);
    assert_eq!(pages(sizes.last().unwrap()), MEMORY_PAGES + (1 << 16));
    assert!(found["least_bytes"].as_i64().unwrap() / 4096 > MEMORY_PAGES + (1 << 15), "{found}");
    let printed = text(&[&dir], &["--slowdown", "1%"]);
    assert!(printed.contains("without --reuse") && printed.contains("more than the"), "{printed}");
}

#[test]
fn the_suitable_memory_of_tune_is_the_advised_one_where_that_is_known() {
    let (home, dir) = looping(true);
    let tune = |dir: &Path| -> Value {
        let output = command(&["--json", "sim", "tune", "--granularity", "slice"])
            .args(["--time-factor", "15"])
            .arg(dir)
            .output()
            .unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    };
    let (tuned, advised) = (tune(&dir), json(&[&dir], &[]));
    assert_eq!(tuned["suitable_by"], "advice");
    let mib = advised["least_bytes"].as_f64().unwrap() / f64::from(1 << 20);
    assert!((tuned["suitable_mib"].as_f64().unwrap() - mib).abs() < 1e-6, "{tuned}");
    let bare = home.path().join("bare");
    made_up::write(&bare, None, false).unwrap();
    let tuned = tune(&bare);
    assert_eq!(tuned["suitable_by"], "demand");
    let said = tuned["assumptions"].to_string();
    assert!(said.contains("memory by demand") && said.contains("ramslice_lookup_read"), "{said}");
}
