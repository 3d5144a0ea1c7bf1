//! `ramslice sim` from outside: its documents, its errors, and that other commands read what it saves.

use std::fs;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramslice"));
    command.args(args).stdin(Stdio::null());
    command
}

fn sim(args: &[&str]) -> Output {
    let mut all = vec!["sim"];
    all.extend(args);
    command(&all).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let mut all = vec!["--json"];
    all.extend(args);
    let output = sim(&all);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(args: &[&str], status: i32) -> String {
    let output = sim(args);
    assert_eq!(output.status.code(), Some(status), "{args:?}: {output:?}");
    assert!(output.stdout.is_empty(), "{args:?} prints results");
    String::from_utf8(output.stderr).unwrap()
}

const SMALL: [&str; 10] =
    ["--memory", "4G", "--slice", "64M", "--granularity", "slice", "--for", "1h", "--step", "30s"];

fn small<'a>(args: &[&'a str]) -> Vec<&'a str> {
    let mut all = args.to_vec();
    all.extend(SMALL);
    all
}

#[test]
fn a_run_is_a_document_and_repeats() {
    let one = json(&small(&["run", "batch", "--policy", "periodic"]));
    assert_eq!((one["schema_version"].as_u64(), one["command"].as_str()), (Some(1), Some("sim")));
    assert_eq!((one["steps"].as_u64(), one["slices"].as_u64()), (Some(121), Some(64)));
    let (low, high) = (&one["net_joules"]["low"], &one["net_joules"]["high"]);
    assert!(low.as_f64().unwrap() <= high.as_f64().unwrap());
    assert!(!one["assumptions"].as_array().unwrap().is_empty());
    assert_eq!(one, json(&small(&["run", "batch", "--policy", "periodic"])));
    assert!(one != json(&small(&["run", "batch", "--policy", "periodic", "--seed", "2"])));
}

#[test]
fn a_saved_machine_is_one_for_other_commands() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("end.json");
    let path = file.to_str().unwrap();
    let run = json(&small(&["run", "diurnal", "--save", path]));
    let output = command(&["status", "--json", "--from", path]).output().unwrap();
    let status: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(status["info"]["nr_slices"], run["slices"]);
    assert_eq!(status["info"]["power_driver"], "simulated");
}

#[test]
fn what_cannot_be_simulated_is_named() {
    let error = refused(&["run", "weekly"], 2);
    assert!(error.contains("no load `weekly`") && error.contains("vm-churn"), "{error}");
    let error = refused(&["run", "batch", "--policy", "lazy"], 2);
    assert!(error.contains("no policy `lazy`") && error.contains("governor"), "{error}");
    let error = refused(&["run", "batch", "--slice", "3M", "--granularity", "slice"], 1);
    assert!(error.contains("multiple of the pageblock"), "{error}");
    // The profile's hardware switches 1 GiB as one.
    for args in [["run", "batch"].as_slice(), &["tournament"], &["fleet", "--generate", "2"]] {
        let error = refused(&[args, &["--slice", "512M"]].concat(), 2);
        assert!(
            error.contains("512 MiB") && error.contains("1 GiB") && error.contains("--granularity"),
            "{error}"
        );
    }
    let error = refused(&["run", "batch", "--profile", "mobile-states"], 2);
    assert!(error.contains("mobile-states"), "{error}");
    let error = refused(&["fleet", "/nonexistent.csv"], 1);
    assert!(error.contains("/nonexistent.csv"), "{error}");
    let error = refused(&["tournament", "--loads", "none"], 2);
    assert!(error.contains("no input"), "{error}");
}

#[test]
fn settings_of_a_policy_are_read_from_a_file_and_errors_name_the_line() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("policy.toml");
    let path = file.to_str().unwrap();
    fs::write(&file, "schema_version = 1\npolicy = \"periodic\"\n[periodic]\nperiod_seconds = 600\n")
        .unwrap();
    assert_eq!(json(&small(&["run", "batch", "--policy", path]))["policy"], "periodic");
    fs::write(&file, "schema_version = 1\npolicy = \"periodic\"\n[periodic]\nperiod_seconds = -1\n").unwrap();
    let error = refused(&["run", "batch", "--policy", path], 1);
    assert!(error.contains("policy.toml:4:"), "{error}");
}

#[test]
fn a_generated_file_feeds_a_fleet_whose_report_tells_its_assumptions() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("synthetic.csv");
    let path = file.to_str().unwrap();
    let made = json(&["generate", path, "--machines", "3", "--for", "24h"]);
    assert_eq!((made["origin"].as_str(), made["rows"].as_u64()), (Some("synthetic"), Some(3 * 288)));
    let small = ["--memory", "64G", "--slice", "2G"];
    let of = |args: &[&str]| {
        let mut all = args.to_vec();
        all.extend(small);
        json(&all)
    };
    let read = of(&["fleet", path]);
    assert_eq!((read["machines"].as_u64(), read["machine_steps"].as_u64()), (Some(3), Some(3 * 288)));
    let told = serde_json::to_string(&read["assumptions"]).unwrap();
    assert!(told.contains("g of CO2") && told.contains("page cache"), "{told}");
    assert!(read["year"]["co2_kg_per_year"]["high"].is_number());
    // Made up at once, the machines are the same.
    let made_up = of(&["fleet", "--generate", "3", "--for", "24h"]);
    assert_eq!(made_up["net_joules"], read["net_joules"]);

    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, &text[..text.len() - 4]).unwrap();
    let error = refused(&["fleet", path], 1);
    assert!(error.contains("synthetic.csv:864:"), "{error}");
}

#[test]
fn milliseconds_are_refused_until_somebody_says_that_they_are_seconds() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("usage.csv");
    let path = file.to_str().unwrap();
    fs::write(&file, "m_1,0,30,40,,,,,\nm_1,300000,30,41,,,,,\nm_1,600000,30,42,,,,,\n").unwrap();
    for command in ["fleet", "run"] {
        let error = refused(&[command, path, "--memory", "64G", "--slice", "2G"], 1);
        assert!(error.contains("usage.csv:1:") && error.contains("--sparse"), "{error}");
        json(&[command, path, "--memory", "64G", "--slice", "2G", "--sparse"]);
    }
}

#[test]
fn a_tournament_is_a_document_and_a_picture() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("policies.svg");
    let report = json(&small(&[
        "tournament",
        "--loads",
        "bursty",
        "--seeds",
        "4",
        "--coarse",
        "--svg",
        file.to_str().unwrap(),
    ]));
    let policies: Vec<&str> =
        report["standings"].as_array().unwrap().iter().map(|s| s["policy"].as_str().unwrap()).collect();
    assert_eq!(
        policies,
        ["clairvoyant", "never", "periodic", "watermarks", "threshold", "repair", "governor"]
    );
    assert!(report["scores"][0]["wake_wait_p999_ns"].is_number());
    assert!(fs::read_to_string(&file).unwrap().contains("bursty, seed 4"));
}
