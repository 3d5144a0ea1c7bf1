//! `ramslice-lab dump` from outside: what it writes is what the reader reads.
//!
//! That Prometheus takes the `OpenMetrics` text is a test of the lab, `test_dump.py`.

mod common;
#[path = "../../record/tests/common/made_up.rs"]
mod made_up;

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use common::{command, data};
use ramslice_record::tables::{Census, Event, Meminfo, Sample, Slice, Vmstat, Zone};
use ramslice_record::{Recording, RowBatch, TableRow};
use serde::Serialize;
use serde_json::Value;
use tempfile::TempDir;

/// When the invented recording begins, and how much later its first sample is.
const BEGIN: i64 = 1_700_000_000;
const FIRST_MS: i64 = 900;

fn made_up(census: bool) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    made_up::write(&dir, None, census).unwrap();
    (home, dir)
}

fn dump(dir: &Path, more: &[&str]) -> Output {
    command(&["dump"]).arg(dir).args(more).output().unwrap()
}

fn text(output: &Output) -> String {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// Names of columns, and the rows of a CSV.
fn read_csv(text: &str) -> (Vec<String>, Vec<Vec<String>>) {
    let mut reader = csv::Reader::from_reader(text.as_bytes());
    let names = reader.headers().unwrap().iter().map(str::to_owned).collect();
    let rows = reader.records().map(|row| row.unwrap().iter().map(str::to_owned).collect());
    (names, rows.collect())
}

fn rows<R: TableRow>(dir: &Path) -> Vec<R> {
    Recording::open(dir).unwrap().rows::<R>().map(|located| located.unwrap().row).collect()
}

/// The CSV of a table has each row and column that the reader has.
fn compare<R: TableRow + Serialize>(dir: &Path) -> usize {
    let (names, found) = read_csv(&text(&dump(dir, &["--table", R::TABLE.name()])));
    let columns: Vec<String> = R::fields().iter().map(|field| field.name().clone()).collect();
    assert_eq!(names, columns, "{}", R::TABLE);
    let expected: Vec<Vec<String>> = rows::<R>(dir)
        .iter()
        .map(|row| {
            let row = serde_json::to_value(row).unwrap();
            let cell = |name: &String| match &row[name] {
                Value::Null => String::new(),
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            columns.iter().map(cell).collect()
        })
        .collect();
    assert!(found == expected, "{}: rows differ", R::TABLE);
    found.len()
}

#[test]
fn csv_of_each_table_has_the_rows_that_the_reader_reads() {
    let (_home, dir) = made_up(true);
    assert_eq!(compare::<Sample>(&dir), 121);
    assert_eq!(compare::<Zone>(&dir), 121);
    assert_eq!(compare::<Slice>(&dir), 121 * 64);
    assert_eq!(compare::<Census>(&dir), 16 * 64);
    assert!(compare::<Event>(&dir) > 100);
    // Without rows there is still the line of names.
    assert_eq!((compare::<Meminfo>(&dir), compare::<Vmstat>(&dir)), (0, 0));
    assert_eq!(dump(&dir, &[]).stdout, dump(&dir, &["--table", "samples", "-O", "csv"]).stdout);
    let realtime = rows::<Sample>(&dir)[0].realtime_us.0;
    let (names, found) = read_csv(&text(&dump(&dir, &[])));
    let at = names.iter().position(|name| name == "realtime_us").unwrap();
    assert_eq!(found[0][at], realtime.to_string());
    assert_eq!(realtime, BEGIN * 1_000_000 + FIRST_MS * 1000);
}

#[test]
fn commas_quotes_and_lines_in_a_note_are_read_back_as_they_were() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    // A command that ends at once is not noted.
    let script = "echo \"a, b\" 'c'\nsleep 1";
    let mut record = command(&["record", "--every", "5ms", "--statistics-only", "-o"]);
    let output = record.arg(&dir).args(["--", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    compare::<Event>(&dir);
    assert!(compare::<Vmstat>(&dir) > 100 && compare::<Meminfo>(&dir) > 40);
    let (names, found) = read_csv(&text(&dump(&dir, &["--table", "events"])));
    let at = names.iter().position(|name| name == "text").unwrap();
    assert!(found.iter().any(|row| row[at].ends_with(script)), "{found:?}");
}

#[test]
fn limits_choose_the_rows_between_them_and_both_ends_belong_to_them() {
    let (_home, dir) = made_up(true);
    let samples = |more: &[&str]| -> Vec<i64> {
        let (_, rows) = read_csv(&text(&dump(&dir, more)));
        rows.iter().map(|row| row[0].parse().unwrap()).collect()
    };
    assert_eq!(samples(&["--begin", "2900ms", "--end", "5900ms"]), [2, 3, 4, 5]);
    assert_eq!(samples(&["--begin", "2901ms", "--end", "5899ms"]), [3, 4]);
    assert_eq!(samples(&["--begin", "2m"]), [120]);
    assert_eq!(samples(&["--begin", "0", "--end", "1"]), [0]);
    assert_eq!(samples(&["--begin", "2000ms", "--end", "2s"]), [0; 0]);
    // 22:13:20 is the begin. A date with another offset is the same moment.
    let date = |second: &str| format!("2023-11-14T22:13:{second}Z");
    assert_eq!(samples(&["--begin", &date("23"), "--end", &date("24.9")]), [3, 4]);
    assert_eq!(samples(&["--begin", "2023-11-15T00:15:20+02:00"]), [120]);
    let slices = read_csv(&text(&dump(&dir, &["--table", "snapshots", "--end", "1s"]))).1;
    assert_eq!(slices.len(), 64);
    let all = rows::<Event>(&dir);
    let limits = ["--table", "events", "--begin", "20s", "--end", "40s"];
    let events = read_csv(&text(&dump(&dir, &limits))).1;
    let since = |event: &&Event| (event.boottime_us - 500_000_000) / 1000;
    let within = all.iter().filter(|event| (20_000..=40_000).contains(&since(event))).count();
    assert!(within > 0 && within < all.len());
    assert_eq!(events.len(), within);
    let metrics = text(&dump(&dir, &["-O", "openmetrics", "--begin", "119s", "--end", "2m"]));
    let mut points = metrics.lines().filter(|line| !line.starts_with('#'));
    assert!(points.all(|line| line.ends_with(&format!(" {}.{FIRST_MS}", BEGIN + 119))));
}

/// Series by name and labels, after checking what the format asks for.
fn read_metrics(text: &str) -> BTreeMap<String, Vec<(String, f64)>> {
    assert!(text.ends_with("\n# EOF\n") && text.matches("# EOF").count() == 1);
    let (mut families, mut series) = (HashSet::new(), BTreeMap::<String, Vec<_>>::new());
    let (mut name, mut kind, mut last) = ("", "", String::new());
    for line in text.lines() {
        let words: Vec<&str> = line.splitn(4, ' ').collect();
        match words[..] {
            ["#", "HELP", family, _] => {
                assert!(families.insert(family), "{family} is in two places");
                (name, kind) = (family, "");
            }
            ["#", "TYPE", family, type_of] => {
                assert_eq!(family, name);
                kind = type_of;
            }
            ["#", "UNIT", family, unit] => assert!(family == name && name.ends_with(unit)),
            ["#", "EOF"] => {}
            [labelled, value, time] => {
                let end = if kind == "counter" { "_total" } else { "" };
                assert_eq!(labelled.split('{').next().unwrap(), format!("{name}{end}"));
                assert!(!kind.is_empty(), "{line}: no TYPE");
                let points = series.entry(labelled.to_owned()).or_default();
                assert!(points.is_empty() || last == labelled, "{labelled} is in two places");
                labelled.clone_into(&mut last);
                let time: String = time.to_owned();
                assert!(points.last().is_none_or(|(before, _)| *before < time), "{line}");
                points.push((time, value.parse().unwrap()));
            }
            _ => panic!("what is `{line}`?"),
        }
    }
    series
}

#[test]
fn openmetrics_have_the_figures_that_the_reader_reads() {
    let (_home, dir) = made_up(true);
    let found = read_metrics(&text(&dump(&dir, &["-O", "openmetrics"])));
    let expect = |series: &str, values: Vec<f64>| {
        let points = found.get(series).unwrap_or_else(|| panic!("no series {series}"));
        let times = (BEGIN..).map(|second| format!("{second}.{FIRST_MS}"));
        assert!(
            points.len() == 121 && points.iter().map(|(time, _)| time.clone()).eq(times.take(121))
        );
        assert!(points.iter().map(|(_, value)| *value).eq(values), "{series}");
    };
    let samples = rows::<Sample>(&dir);
    let of_samples =
        |figure: fn(&Sample) -> i64| samples.iter().map(|row| figure(row) as f64).collect();
    expect("ramslice_migrated_pages_total", of_samples(|row| row.migrated_pages.unwrap()));
    expect("ramslice_woken_slices_total", of_samples(|row| row.woken_slices.unwrap()));
    expect(
        "ramslice_price_measured_cycles_total",
        of_samples(|row| row.price_measured_100cycles.unwrap() * 100),
    );
    expect("ramslice_sampling_seconds", vec![0.0009; 121]);

    let zones = rows::<Zone>(&dir);
    let of_zones = |figure: fn(&Zone) -> f64| zones.iter().map(figure).collect();
    let zone = r#"node="0",zone="Normal""#;
    expect(
        &format!("ramslice_memory_bytes{{{zone},kind=\"free\"}}"),
        of_zones(|row| row.free_pages as f64 * 4096.0),
    );
    expect(&format!("ramslice_empty_slices{{{zone}}}"), of_zones(|row| f64::from(row.nr_empty)));
    expect(
        &format!("ramslice_fragmentation_offline_ratio{{{zone}}}"),
        of_zones(|row| row.offline_pages as f64 / (row.free_pages + row.offline_pages) as f64),
    );
    // Only samples with a census know the bound.
    assert_eq!(found[&format!("ramslice_fragmentation_bound_ratio{{{zone}}}")].len(), 16);

    let slices = rows::<Slice>(&dir);
    for state in ["online", "offline", "emptying"] {
        let mut counts = vec![0.0; 121];
        for slice in slices.iter().filter(|slice| slice.state == state) {
            counts[slice.sample as usize] += 1.0;
        }
        expect(&format!("ramslice_slices{{{zone},state=\"{state}\"}}"), counts);
    }
    assert!(!found.keys().any(|name| name.contains("stored") || name.contains("held_bytes")));
    let labels = ["--label", "instance=build", "--label", "job=a \"b\""];
    let labelled = text(&dump(&dir, &[&["-O", "openmetrics"], &labels[..]].concat()));
    let labels = r#"instance="build",job="a \"b\"""#;
    let removed = labelled.replace(&format!("{{{labels}}}"), "").replace(&format!("{labels},"), "");
    assert_eq!(labelled.matches(labels).count(), found.values().map(Vec::len).sum::<usize>());
    assert!(removed == text(&dump(&dir, &["-O", "openmetrics"])));
    let some = read_metrics(&text(&dump(&dir, &["-O", "openmetrics", "--table", "zones"])));
    assert!(some.len() > 8 && some.len() < found.len());
    assert!(some.iter().all(|(name, points)| found[name] == *points));
}

#[test]
fn of_samples_within_a_millisecond_the_last_one_counts() {
    let (home, dir) = made_up(false);
    let recording = Recording::open(&dir).unwrap();
    let within = |row: &i64| *row < 2;
    let mut batch = RowBatch {
        samples: rows(&dir).into_iter().filter(|row: &Sample| within(&row.sample)).collect(),
        zones: rows(&dir).into_iter().filter(|row: &Zone| within(&row.sample)).collect(),
        slices: rows(&dir).into_iter().filter(|row: &Slice| within(&row.sample)).collect(),
        ..RowBatch::default()
    };
    let at_us = batch.samples[0].boottime_us + 400;
    batch.samples[1].boottime_us = at_us;
    batch.zones[1].boottime_us = at_us;
    for slice in batch.slices.iter_mut().filter(|slice| slice.sample == 1) {
        (slice.boottime_us, slice.state) = (at_us, "waking".into());
    }
    let other = home.path().join("other");
    batch.write_recording(&other, recording.info(), recording.end().unwrap()).unwrap();
    let found = read_metrics(&text(&dump(&other, &["-O", "openmetrics"])));
    let time = format!("{BEGIN}.{FIRST_MS}");
    let zone = r#"node="0",zone="Normal""#;
    for (series, value) in [
        (format!("ramslice_slices{{{zone},state=\"waking\"}}"), 64.0),
        (format!("ramslice_slices{{{zone},state=\"online\"}}"), 0.0),
        (
            format!("ramslice_memory_bytes{{{zone},kind=\"free\"}}"),
            batch.zones[1].free_pages as f64 * 4096.0,
        ),
    ] {
        assert_eq!(found[&series], [(time.clone(), value)], "{series}");
    }
    assert!(found.values().all(|points| points.len() == 1));
    // CSV has both.
    assert_eq!(read_csv(&text(&dump(&other, &[]))).1.len(), 2);
}

#[test]
fn statistics_have_the_names_of_node_exporter() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    let mut record = command(&["record", "--every", "20ms", "--for", "1s", "--statistics-only"]);
    assert!(record.arg("-o").arg(&dir).output().unwrap().status.success());
    let found = read_metrics(&text(&dump(&dir, &["-O", "openmetrics"])));
    let info = Recording::open(&dir).unwrap().info().clone();
    // Of samples within a millisecond, as the last two may be, the last one.
    let points = |lines: Vec<(i64, i64)>| -> Vec<(String, f64)> {
        let since_begin = |boottime_us: i64| boottime_us - info.started_boottime_us;
        let ms = |boottime_us| (info.started_realtime_us + since_begin(boottime_us)) / 1000;
        let points: BTreeMap<i64, i64> =
            lines.into_iter().map(|(boottime_us, value)| (ms(boottime_us), value)).collect();
        assert!(points.len() > 2);
        let text = |ms: i64| format!("{}.{:03}", ms / 1000, ms % 1000);
        points.into_iter().map(|(ms, value)| (text(ms), value as f64)).collect()
    };
    let of_meminfo = |name: &str| {
        let lines = rows::<Meminfo>(&dir).into_iter().filter(|row| row.name == name);
        points(lines.map(|row| (row.boottime_us, row.value)).collect())
    };
    let of_vmstat = |name: &str| {
        let lines = rows::<Vmstat>(&dir).into_iter().filter(|row| row.name == name);
        points(lines.map(|row| (row.boottime_us, row.value)).collect())
    };
    assert_eq!(found["node_memory_MemTotal_bytes"], of_meminfo("MemTotal"));
    assert_eq!(found["node_memory_Active_anon_bytes"], of_meminfo("Active(anon)"));
    assert_eq!(found["node_vmstat_pgfault"], of_vmstat("pgfault"));
    assert!(!found.keys().any(|name| name.starts_with("ramslice_slices")));
}

#[test]
fn samples_that_a_kill_cut_short_are_passed_over_and_counted() {
    let (_home, dir) = made_up(false);
    fs::remove_dir_all(dir.join("samples")).unwrap();
    fs::create_dir(dir.join("samples")).unwrap();
    let output = dump(&dir, &["-O", "openmetrics", "--table", "snapshots"]);
    assert!(output.status.success());
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "# EOF\n");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("121 samples are not whole and were passed over"), "{said}");
}

#[test]
fn wrong_limits_tables_and_recordings_are_named() {
    let (home, dir) = made_up(false);
    let (begin, end) = ("2023-11-14T22:13:20.000Z", "2023-11-14T22:15:20.900Z");
    let lasts = format!("outside the recording, which lasts 120.9 s, from {begin} to {end}");
    for (args, expected) in [
        (&["--begin", "122s"][..], format!("--begin 122s is {lasts}")),
        (&["--end", "5m"], format!("--end 5m is {lasts}")),
        (&["--begin", "2023-11-14T22:13:19Z"], lasts.clone()),
        (&["--begin", "20s", "--end", "10s"], "--begin 20s is after --end 10s".to_owned()),
        (&["--begin", "10:30"], "`10:30` is not a time: write".to_owned()),
        (&["--table", "slices"], "possible values: snapshots, zones, events".to_owned()),
        (&["--table", "census"], "has no census: record one with".to_owned()),
        (&["-O", "xml"], "possible values: csv, openmetrics".to_owned()),
        (
            &["-O", "openmetrics", "--table", "events"],
            "--table events has no figures over time".to_owned(),
        ),
        (&["--label", "a=b"], "--label is for -O openmetrics".to_owned()),
        (&["-O", "openmetrics", "--label", "a="], "`a=` is not NAME=VALUE".to_owned()),
        (&["-O", "openmetrics", "--label", "1a=b"], "`1a` is not a name for a label".to_owned()),
        (&["-O", "openmetrics", "--label", "__a=b"], "`__a` is not a name".to_owned()),
        (&["-O", "openmetrics", "--label", "zone=b"], "have a label `zone` already".to_owned()),
        (
            &["-O", "openmetrics", "--label", "a=b", "--label", "a=c"],
            "--label a is there twice".to_owned(),
        ),
        (&["--json"], "--json cannot be used with dump".to_owned()),
        (&["--from", "x"], "--from cannot be used with dump".to_owned()),
    ] {
        let output = dump(&dir, args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains(&expected), "{args:?}: {said}");
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        assert!(output.stdout.is_empty(), "{args:?}");
    }
    // Within the last second it is no mistake.
    assert!(dump(&dir, &["--end", "121s"]).status.success());
    let output = dump(home.path(), &[]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("is not a recording made by `ramslice-lab record`"), "{said}");
    let saved = command(&["dump"]).arg(data("guest-8g.json")).output().unwrap();
    assert_eq!((output.status.code(), saved.status.code()), (Some(2), Some(2)));

    let part = dir.join("zones/part-000000.parquet");
    let whole = fs::read(&part).unwrap();
    fs::write(&part, &whole[..whole.len() / 2]).unwrap();
    let output = dump(&dir, &["-O", "openmetrics"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("zones/part-000000.parquet is not a whole Parquet file"), "{said}");
    assert!(!output.status.success() && output.stdout.is_empty());
}

#[test]
fn a_closed_pipe_is_no_failure_and_a_full_disk_is_one() {
    let (_home, dir) = made_up(false);
    for args in [&["--table", "snapshots"][..], &["-O", "openmetrics"], &["--table", "meminfo"]] {
        let mut spawned = command(&["dump"]);
        spawned.arg(&dir).args(args).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = spawned.spawn().unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = command(&["dump"]).arg(&dir).args(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(said.contains("No space left on device"), "{args:?}: {said}");
    }
}
