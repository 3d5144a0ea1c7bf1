//! `ramslice-lab report` and `ramslice-lab energy` over a recording, from outside, on recordings of
//! a machine that never was.

mod common;
#[path = "../../record/tests/common/made_up.rs"]
mod made_up;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::{command, expect};
use serde_json::Value;
use tempfile::TempDir;

fn recording(name: &str, budget: Option<i64>) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join(name);
    made_up::write(&dir, budget, false).unwrap();
    (home, dir)
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn report(more: &[&str], runs: &[&Path], to: &Path) -> Output {
    command(&["report"]).args(runs).arg("-o").arg(to).args(more).output().unwrap()
}

#[test]
fn a_recording_without_slices_has_its_statistics_drawn() {
    let home = tempfile::tempdir().unwrap();
    let runs = ["one", "other"].map(|name| home.path().join(name));
    for run in &runs {
        let words = ["record", "--statistics-only", "--for", "300ms", "--every", "20ms", "-o"];
        assert!(command(&words).arg(run).output().unwrap().status.success());
    }
    let data = home.path().join("data");
    let page = home.path().join("page.html");
    let more = ["--csv", data.to_str().unwrap()];
    let output = report(&more, &[&runs[0], &runs[1]], &page);
    assert!(output.status.success(), "{}", stderr(&output));
    let read = |name: &str| fs::read_to_string(data.join(name)).unwrap();
    assert!(read("statistics-1.csv").lines().count() > 2);
    let means = read("statistics-means.csv");
    let rows: Vec<Vec<&str>> = means.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!((rows.len(), rows[1][0], rows[2][0]), (3, "one", "other"));
    let value = |name: &str| {
        let column = rows[0].iter().position(|head| *head == name).unwrap();
        rows[1][column].parse::<f64>().unwrap()
    };
    // A mean over so short a time has no interval, and sums are sums
    assert_eq!(rows[1][rows[0].iter().position(|head| *head == "used_margin_bytes").unwrap()], "");
    assert!((value("free_bytes") + value("used_bytes") - value("total_bytes")).abs() < 4.0);
    assert!(
        (value("cached_bytes") + value("used_without_cache_bytes") - value("used_bytes")).abs()
            < 4.0
    );
}

#[test]
fn a_page_is_not_written_over_a_run() {
    let home = tempfile::tempdir().unwrap();
    let run = home.path().join("latency.csv");
    let rows = "boottime_us,latency_us\n1000000,5\n2000000,7\n";
    fs::write(&run, rows).unwrap();
    let link = home.path().join("link.html");
    std::os::unix::fs::symlink(&run, &link).unwrap();
    for output in [&run, &link] {
        let refused = report(&[], &[&run], output);
        assert_eq!(refused.status.code(), Some(2), "{}", stderr(&refused));
        assert!(stderr(&refused).contains("is one of the runs"), "{}", stderr(&refused));
        assert_eq!(fs::read_to_string(&run).unwrap(), rows);
    }
}

#[test]
fn the_ledger_runs_over_a_recording() {
    let (home, dir) = recording("r", None);
    let from = |args: &[&str]| command(args).arg("--from").arg(&dir).output().unwrap();
    let terms = ["--granularity", "slice", "--time-factor", "15"];
    let with = |more: &[&'static str]| {
        [&["energy", "--profile", "thesis-parc"], &terms[..], more].concat()
    };
    expect("energy-recording", &with(&[]), from);
    // Emulated seconds are never taken for real ones.
    expect("energy-recording-clock", &["energy", "--profile", "thesis-parc"], from);
    expect("energy-recording-for", &with(&["--for", "1m"]), from);

    // Cutting the time into pieces changes nothing.
    let output = from(&with(&["--json", "--every", "30s"]));
    let text = String::from_utf8(output.stdout).unwrap();
    let documents: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let elapsed: Vec<u64> =
        documents.iter().map(|one| one["elapsed_us"].as_u64().unwrap() / 1_000_000).collect();
    assert_eq!(elapsed, [30, 60, 90, 120, 120]);
    assert_eq!(documents[3]["net_joules"], documents[4]["net_joules"]);
    assert_eq!(
        (&documents[3]["final"], &documents[4]["final"]),
        (&Value::from(false), &Value::from(true))
    );
    let work = &documents[4]["work"];
    assert!(
        work["emptied_slices"].as_u64().unwrap() > 20
            && work["migrated_pages"].as_u64().unwrap() > 10_000
    );
    // What the factor is from stands beside it.
    let source = ["--time-factor-source", "compile, five times"];
    let shown = from(&with(&source));
    let text = String::from_utf8(shown.stdout).unwrap();
    assert!(text.contains("divided by 15.0 (compile, five times)"), "{text}");
    let shown: Value =
        serde_json::from_slice(&from(&with(&[&["--json"], &source[..]].concat())).stdout).unwrap();
    assert_eq!(shown["time_factor_source"], source[1]);
    let alone = from(&[&["energy", "--profile", "thesis-parc"], &source[..]].concat());
    assert_eq!(alone.status.code(), Some(2), "{}", stderr(&alone));
    drop(home);
}

#[test]
fn a_report_shows_the_cost_of_a_longer_run_and_the_source_of_the_time_factor() {
    let (home, dir) = recording("r", None);
    let energy = |more: &[&str]| {
        let terms = ["--profile", "thesis-parc", "--granularity", "slice", "--time-factor", "15"];
        let made = home.path().join("r.html");
        let output = report(&[&terms[..], &["--csv"], more].concat(), &[&dir], &made);
        assert!(output.status.success(), "{}", stderr(&output));
        let csv = fs::read_to_string(home.path().join("csv/energy.csv")).unwrap();
        (csv, fs::read_to_string(made).unwrap())
    };
    let csv = home.path().join("csv");
    let csv = csv.to_str().unwrap();
    let (unknown, _) = energy(&[csv]);
    assert!(unknown.contains("run time"), "{unknown}");
    let (known, page) =
        energy(&[csv, "--runtime-change", "1..2%", "--time-factor-source", "compile"]);
    assert!(!known.contains("run time"), "{known}");
    let invested = |csv: &str| -> f64 {
        let header: Vec<&str> = csv.lines().next().unwrap().split(',').collect();
        let at = header.iter().position(|name| *name == "invested_high_joules").unwrap();
        csv.lines().nth(1).unwrap().split(',').nth(at).unwrap().parse().unwrap()
    };
    assert!(invested(&known) > invested(&unknown), "{known}\n{unknown}");
    assert!(page.contains("divided by 15.0 (compile)"));
}

#[test]
fn slices_smaller_than_what_the_profile_switches_are_named() {
    let (home, dir) = recording("r", None);
    let made = home.path().join("r.html");
    let with = |more: &[&str]| {
        let terms = ["--profile", "thesis-parc", "--time-factor", "15"];
        let output = report(&[&terms[..], more].concat(), &[&dir], &made);
        assert!(output.status.success(), "{}", stderr(&output));
        (stderr(&output), fs::read_to_string(&made).unwrap())
    };
    let note = "Slices of 32 MiB are smaller than the 1 GiB that this hardware switches as one";
    let (warned, page) = with(&[]);
    assert!(warned.contains(note) && page.contains(note), "{warned}");
    let (warned, page) = with(&["--granularity", "slice"]);
    assert!(!warned.contains("smaller than") && !page.contains("smaller than"), "{warned}");
}

/// As in what `ramslice-lab calibrate --from` the same file says.
#[test]
fn kept_prices_are_drawn_by_both_models_with_the_errors_that_calibrate_prints() {
    let home = tempfile::tempdir().unwrap();
    let kept = common::here("data/prices-counted.json");
    let page = home.path().join("prices.html");
    let output = report(&[], &[&kept], &page);
    assert!(output.status.success(), "{}", stderr(&output));
    let page = fs::read_to_string(page).unwrap();
    let output = command(&["calibrate", "--json", "--from"]).arg(&kept).output().unwrap();
    let judged: Value = serde_json::from_slice(&output.stdout).unwrap();
    for (id, model) in [("prices", "b"), ("prices-fitted", "ours")] {
        let figure = &page[page.find(&format!("<figure id=\"{id}\">")).unwrap()..];
        let shown = figure.split("99 of 100 at most ").nth(1).unwrap().split(' ').next().unwrap();
        let models = judged["models"].as_array().unwrap();
        let expected = models.iter().find(|one| one["model"] == model).unwrap();
        let expected = 100.0 * expected["held_out"]["p99_of_largest"].as_f64().unwrap();
        let shown: f64 = shown.parse().unwrap();
        assert!((shown - expected).abs() < 0.01 * expected, "{id}: {shown} is not {expected}");
    }
}

#[test]
fn a_recording_without_work_counters_is_refused_by_file_and_row() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    let saved = common::data("guest-8g.json");
    let mut record = command(&["record", "--for", "30ms", "--every", "5ms", "-o"]);
    assert!(record.arg(&dir).arg("--from").arg(saved).output().unwrap().status.success());
    let output = command(&["energy", "--profile", "thesis-parc", "--time-factor", "15", "--from"])
        .arg(&dir)
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(
        text.contains("/samples/part-") && text.contains("row 0: `tried_slices` has no value"),
        "{text}"
    );
}

#[test]
fn a_report_is_one_page_with_its_data_and_pictures() {
    let (home, first) = recording("unlimited", None);
    let (_other, second) = recording("nothing", Some(0));
    let page = home.path().join("report.html");
    let run = |args: &[&str]| {
        command(args)
            .args([&first, &second])
            .args(["-o", "report.html"])
            .current_dir(home.path())
            .output()
            .unwrap()
    };
    let terms = ["--profile", "thesis-parc", "--granularity", "slice", "--time-factor", "12..18"];
    let output = run(&[&["report", "--json", "--csv", "csv"], &terms[..]].concat());
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let html = fs::read_to_string(&page).unwrap();
    assert_eq!(document["size_bytes"].as_u64().unwrap(), html.len() as u64);
    for figure in document["figures"].as_array().unwrap() {
        let id = figure["id"].as_str().unwrap();
        assert!(html.contains(&format!("<figure id=\"{id}\">")), "{id}");
        if figure["drawn"] == true {
            let csv =
                fs::read_to_string(home.path().join(figure["csv"].as_str().unwrap())).unwrap();
            assert!(csv.lines().count() > 1, "{id}");
        } else {
            assert!(html.contains(figure["missing"].as_str().unwrap()), "{id}");
        }
    }
    // What packing saved lies below what was to be had, and nothing was invested where nothing was
    // emptied.
    let energy = fs::read_to_string(home.path().join("csv/energy.csv")).unwrap();
    let cells = |run: &str| -> Vec<f64> {
        let line = energy.lines().find(|line| line.starts_with(run)).unwrap();
        line.split(',').skip(2).take(8).map(|cell| cell.parse().unwrap()).collect()
    };
    let (packed, nothing) = (cells("unlimited,"), cells("nothing,"));
    assert!(packed[0] > 0.0 && packed[1] <= packed[3], "{packed:?}");
    assert!(nothing[1].abs() < 1e-12 && nothing[3] > 0.0, "{nothing:?}");
    assert!(
        energy.contains("\nunlimited,unlimited,") && energy.contains("\nnothing,0,"),
        "{energy}"
    );
    // The other data are those of the machine.
    let used = fs::read_to_string(home.path().join("csv/utilisation-1.csv")).unwrap();
    assert_eq!(used.lines().count(), 122);
    // What was emptied is summed up from the events, and is what the counters say.
    let emptying = |at: usize| &document["emptying"][at];
    let (packed, nothing) = (emptying(0), emptying(1));
    let number = |name: &str| packed[name].as_f64().unwrap();
    assert_eq!(
        (packed["run"].as_str(), nothing["run"].as_str()),
        (Some("unlimited"), Some("nothing"))
    );
    assert!(number("emptied_slices") > 5.0 && number("failed_slices") < 0.5, "{packed}");
    assert!(
        number("migrated_ratio") > 0.0 && number("migrated_ratio") <= number("used_ratio"),
        "{packed}"
    );
    assert_eq!((&nothing["emptied_slices"], &nothing["migrated_ratio"]), (&0.into(), &Value::Null));
    let moved = fs::read_to_string(home.path().join("csv/repair-moved-1.csv")).unwrap();
    let bytes: f64 = moved.lines().last().unwrap().split(',').nth(1).unwrap().parse().unwrap();
    assert!((bytes - number("migrated_pages") * 4096.0).abs() < 0.5, "{bytes}");
    assert!(!home.path().join("csv/repair-moved-2.csv").exists(), "nothing was emptied there");
    expect("report", &["report"], run);
}

#[test]
fn pictures_are_drawn_without_a_browser() {
    let (home, dir) = recording("r", None);
    let output = report(
        &["--json", "--png", home.path().join("png").to_str().unwrap()],
        &[&dir],
        &home.path().join("r.html"),
    );
    assert!(output.status.success(), "{}", stderr(&output));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let figures = document["figures"].as_array().unwrap();
    let pictures: Vec<_> = figures.iter().filter_map(|figure| figure["png"].as_str()).collect();
    assert_eq!(pictures.len(), 6, "{pictures:?}");
    for path in pictures {
        let png = fs::read(path).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 5000, "{path}");
    }
}

#[test]
fn damaged_runs_are_named_by_file() {
    let (home, dir) = recording("r", None);
    let page = home.path().join("report.html");
    let part = dir.join("snapshots/part-000000.parquet");
    let bytes = fs::read(&part).unwrap();
    fs::write(&part, &bytes[..bytes.len() / 2]).unwrap();
    let output = report(&[], &[&dir], &page);
    assert_ne!(output.status.code(), Some(0));
    assert!(
        stderr(&output).contains("snapshots/part-000000.parquet is not a whole Parquet file"),
        "{}",
        stderr(&output)
    );
    assert!(!page.exists());

    let cases = [
        ("samples.json", "{\"schema_version\": 1", "samples.json is not JSON, or damaged"),
        ("notes.txt", "what I did", "notes.txt is not a run: a run is a directory"),
        ("other.json", "{\"schema_version\": 1}", "other.json is not a run: a run is a directory"),
        (
            "times.csv",
            "boottime_us,latency_us\n1,2\nx,2\n",
            "times.csv:3: boottime_us is `x`, not microseconds",
        ),
    ];
    for (name, text, expected) in cases {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        let output = report(&[], &[&path], &page);
        assert_ne!(output.status.code(), Some(0), "{name}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
    let output = report(&[], &[&home.path().join("none")], &page);
    assert!(
        stderr(&output).contains("reading ") && stderr(&output).contains("none"),
        "{}",
        stderr(&output)
    );
}
