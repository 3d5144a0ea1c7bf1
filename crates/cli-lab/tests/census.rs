//! A census over saved machines and in recordings, from outside.

mod common;
#[path = "../../record/tests/common/made_up.rs"]
mod made_up;

use std::path::{Path, PathBuf};
use std::process::Output;

use common::{command, data, expect};
use serde_json::Value;
use tempfile::TempDir;

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

fn made_up(census: bool) -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    made_up::write(&dir, None, census).unwrap();
    (home, dir)
}

fn census(from: &Path, more: &[&str]) -> Output {
    command(&["census", "--from"]).arg(from).args(more).output().unwrap()
}

#[test]
fn what_is_recorded_is_what_the_command_shows() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    let saved = data("guest-pages.json");
    let mut record =
        command(&["record", "--every", "1h", "--census", "10ms", "--for", "100ms", "-o"]);
    let output = record.arg(&dir).arg("--from").arg(&saved).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(json(&census(&dir, &["--json"])), json(&census(&saved, &["--json"])));
    assert_eq!(census(&dir, &[]).stdout, census(&saved, &[]).stdout);
    let lines = census(&dir, &["--every", "1ms", "--count", "1"]);
    assert_eq!(lines.stdout, census(&saved, &["--every", "1ms", "--count", "1"]).stdout);
    let checked = command(&["record", "--json", "--check"]).arg(&dir).output().unwrap();
    let (checked, shown) = (json(&checked), json(&census(&saved, &["--json"])));
    let slices = shown["slices"].as_array().unwrap().len() as u64;
    assert_eq!(checked["about"]["census_interval_us"], 10_000);
    let rows = &checked["findings"]["rows"];
    assert_eq!(rows["census"].as_u64().unwrap(), slices * rows["samples"].as_u64().unwrap());
}

#[test]
fn a_recording_shows_its_censuses_one_after_another() {
    let (_home, dir) = made_up(true);
    let from = |args: &[&str]| command(args).arg("--from").arg(&dir).output().unwrap();
    expect("census-recording", &["census", "--every", "20s"], from);
    let output = census(&dir, &["--every", "1ms", "--json"]);
    let documents: Vec<Value> = output
        .stdout
        .split(|&byte| byte == b'\n')
        .filter_map(|line| serde_json::from_slice(line).ok())
        .collect();
    assert_eq!(documents.len(), 16);
    for document in &documents {
        let (totals, zone) = (&document["totals"], &document["zones"][0]);
        assert_eq!(totals["slices_staying"], zone["staying_slices"]);
        assert_eq!(totals["sections_removable"], zone["removable_sections"]);
        assert_eq!(totals["offline_ratio_bound"], zone["offline_ratio_bound"]);
        assert!(totals["slices_staying_least"].as_u64() <= totals["slices_staying"].as_u64());
    }
    // Without --every, the last.
    let last = json(&census(&dir, &["--json"]));
    assert_eq!(last["totals"], documents[15]["totals"]);
}

#[test]
fn a_recording_without_a_census_is_refused_with_a_hint() {
    let (_home, dir) = made_up(false);
    for more in [&[][..], &["--every", "1s"]] {
        let output = census(&dir, more);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(
            text(&output).contains("has no census: record one with `ramslice-lab record --census")
        );
    }
}

#[test]
fn a_truncated_census_is_reported_and_the_rest_is_drawn() {
    let (home, dir) = made_up(true);
    std::fs::remove_dir_all(dir.join("census")).unwrap();
    let output = command(&["record", "--check"]).arg(&dir).output().unwrap();
    assert!(
        text(&output).contains("16 censuses whose slices are not all there"),
        "{}",
        text(&output)
    );
    let page = home.path().join("page.html");
    let output = command(&["report", "--json", "-o"]).arg(&page).arg(&dir).output().unwrap();
    assert!(text(&output).contains("16 censuses are not whole"), "{}", text(&output));
    let drawn = |output: &Output| -> Vec<String> {
        let figures = json(output)["figures"].as_array().unwrap().clone();
        let drawn = figures.iter().filter(|figure| figure["drawn"] == true);
        drawn.map(|figure| figure["id"].as_str().unwrap().to_owned()).collect()
    };
    let (over_time, emptied) =
        (["utilisation", "occupation", "slices"], ["repair-free", "repair-moved", "repair-share"]);
    assert_eq!(drawn(&output), [over_time, emptied].concat());

    let (_other, whole) = made_up(true);
    let output = command(&["report", "--json", "-o"]).arg(&page).arg(&whole).output().unwrap();
    let census = ["bitmaps", "fullness", "footprint", "kept-on", "census-shares"];
    assert_eq!(drawn(&output), [&over_time[..], &census, &emptied].concat());
}

#[test]
fn a_recording_whose_censuses_are_cut_is_not_told_to_record_one() {
    let (home, dir) = made_up(true);
    let other = home.path().join("other");
    let mut record = command(&["record", "--every", "1h", "--census", "1h", "--for", "50ms", "-o"]);
    let output = record.arg(&other).arg("--from").arg(data("guest-pages.json")).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let part = "census/part-000000.parquet";
    std::fs::copy(other.join(part), dir.join(part)).unwrap();
    for more in [&[][..], &["--every", "1s"]] {
        let output = census(&dir, more);
        assert_eq!(output.status.code(), Some(2), "{}", text(&output));
        assert!(text(&output).contains("has no whole census: see `ramslice-lab record --check"));
    }
}

#[test]
fn statistics_alone_have_no_pages_to_count() {
    let output =
        command(&["record", "--statistics-only", "--census", "1s", "-o", "x"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output).contains("cannot be used with"), "{}", text(&output));
}
