//! `ramslice-lab sim` from outside: its documents, its errors, and that other commands read what it
//! saves.

#[path = "../../record/tests/common/made_up.rs"]
mod made_up;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramslice-lab"));
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
    let error = refused(&["run", "batch", "--memory", "64"], 1);
    assert!(
        error.contains("less than a slice of 1 GiB")
            && error.contains("it has at least one, and a size without a unit is in bytes"),
        "{error}"
    );
    let error = refused(&["run", "batch", "--profile", "/"], 2);
    assert!(error.contains("/ is a directory: a profile is a file"), "{error}");
    let error = refused(&["run", "batch", "--profile", "mobile-states"], 2);
    assert!(error.contains("mobile-states"), "{error}");
    let error = refused(&["fleet", "/nonexistent.csv"], 1);
    assert!(error.contains("/nonexistent.csv"), "{error}");
    for (option, value) in [
        ("--noise", "nan"),
        ("--daily-swing", "inf"),
        ("--between-machines", "1e3"),
        ("--memory-percent", "101"),
        ("--cache-share", "1.01"),
        ("--price", "nan"),
        ("--pue", "1..inf"),
        ("--carbon", "1e308"),
    ] {
        let error = refused(&["fleet", "--generate", "2", option, value], 2);
        assert!(error.contains(option) && error.contains("from 0 to 1"), "{error}");
    }
    let error = refused(&["run", "batch", "--scatter", "nan"], 2);
    assert!(error.contains("`nan` is no number from 0 to 1"), "{error}");
    let error = refused(&["tournament", "--loads", "none"], 2);
    assert!(error.contains("no input"), "{error}");
}

#[test]
fn settings_of_a_policy_are_read_from_a_file_and_errors_name_the_line() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("policy.toml");
    let path = file.to_str().unwrap();
    fs::write(
        &file,
        "schema_version = 1\npolicy = \"periodic\"\n[periodic]\nperiod_seconds = 600\n",
    )
    .unwrap();
    assert_eq!(json(&small(&["run", "batch", "--policy", path]))["policy"], "periodic");
    fs::write(
        &file,
        "schema_version = 1\npolicy = \"periodic\"\n[periodic]\nperiod_seconds = -1\n",
    )
    .unwrap();
    let error = refused(&["run", "batch", "--policy", path], 1);
    assert!(error.contains("policy.toml:4:"), "{error}");
}

#[test]
fn a_generated_file_feeds_a_fleet_whose_report_lists_its_assumptions() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("synthetic.csv");
    let path = file.to_str().unwrap();
    let made = json(&["generate", path, "--machines", "3", "--for", "24h"]);
    assert_eq!(
        (made["origin"].as_str(), made["rows"].as_u64()),
        (Some("synthetic"), Some(3 * 288))
    );
    let small = ["--memory", "64G", "--slice", "2G"];
    let of = |args: &[&str]| {
        let mut all = args.to_vec();
        all.extend(small);
        json(&all)
    };
    let read = of(&["fleet", path]);
    assert_eq!(
        (read["machines"].as_u64(), read["machine_steps"].as_u64()),
        (Some(3), Some(3 * 288))
    );
    let assumptions = serde_json::to_string(&read["assumptions"]).unwrap();
    assert!(
        assumptions.contains("g of CO2") && assumptions.contains("page cache"),
        "{assumptions}"
    );
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
fn milliseconds_are_refused_unless_an_option_says_that_they_are_seconds() {
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
    let policies: Vec<&str> = report["standings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s["policy"].as_str().unwrap())
        .collect();
    assert_eq!(
        policies,
        ["clairvoyant", "never", "periodic", "watermarks", "threshold", "repair", "governor"]
    );
    assert!(report["scores"][0]["wake_wait_p999_ns"].is_number());
    assert!(fs::read_to_string(&file).unwrap().contains("bursty, seed 4"));
}

#[test]
fn machines_of_a_file_of_utilisation_take_part_in_a_tournament_by_seed_or_name() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("synthetic.csv");
    let path = file.to_str().unwrap();
    json(&["generate", path, "--machines", "6", "--for", "12h"]);
    let args =
        ["tournament", "--loads", "none", "--usage", path, "--memory", "64G", "--slice", "2G"];
    let of = |more: &[&str]| json(&[args.as_slice(), more].concat());
    let names = |report: &Value| -> Vec<String> {
        let scores = report["scores"].as_array().unwrap().iter();
        let first = scores.filter(|score| score["policy"] == "clairvoyant");
        first.map(|score| score["input"].as_str().unwrap().to_owned()).collect()
    };
    let (one, again) = (of(&["--sample", "2"]), of(&["--sample", "2"]));
    assert_eq!(one["scores"], again["scores"]);
    assert_eq!((names(&one).len(), one["scores"].as_array().unwrap().len()), (2, 14));
    assert!(one["assumptions"].to_string().contains("clean page cache"), "{one}");
    let drawn: std::collections::HashSet<_> = (1..=8)
        .map(|seed| names(&of(&["--policies", "never", "--sample-seed", &seed.to_string()])))
        .collect();
    assert!(drawn.len() > 1 && drawn.iter().all(|names| names.len() == 1), "{drawn:?}");
    let chosen = of(&["--policies", "never", "--machine", "m_4,m_1"]);
    assert_eq!(names(&chosen), ["synthetic.csv m_1", "synthetic.csv m_4"]);

    let refused = |more: &[&str], status| refused(&[args.as_slice(), more].concat(), status);
    let error = refused(&["--sample", "7"], 1);
    assert!(error.contains("synthetic.csv: the file has 6 machines"), "{error}");
    let error = refused(&["--machine", "m_9"], 1);
    assert!(error.contains("synthetic.csv: there is no machine m_9"), "{error}");
    let error = refused(&["--usage", path], 2);
    assert!(error.contains("two inputs are called synthetic.csv m_"), "{error}");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replacen("m_2,600,", "m_2,6000000,", 1)).unwrap();
    let error = refused(&[], 1);
    assert!(error.contains("synthetic.csv:292:") && error.contains("backwards"), "{error}");
}

#[test]
fn a_share_above_the_clairvoyants_has_a_mark_and_a_word() {
    // A machine that reads the same half of memory over and over, which no plan can use.
    let small = small(&["tournament", "--loads", "thrash", "--seeds", "1,2,3,4,5,6", "--coarse"]);
    let report = json(&small);
    let scores = report["scores"].as_array().unwrap();
    let above = |score: &&Value| score["share_of_clairvoyant"].as_f64() >= Some(1.0005);
    let marked = scores.iter().filter(above).count();
    assert!(marked > 0, "nothing is above: another load is needed here");
    assert!(scores.iter().all(|score| score["share_of_bound"].as_f64() <= Some(1.0)), "{report}");
    assert!(report["explanations"][0].as_str().unwrap().contains("above 100 %"), "{report}");
    let printed = String::from_utf8(sim(&small).stdout).unwrap();
    assert!(printed.lines().filter(|line| line.contains(" % * ")).count() >= marked, "{printed}");
    assert!(
        printed.contains("\n* a share above 100 % is more than the clairvoyant earned"),
        "{printed}"
    );
}

#[test]
fn tuned_watermarks_can_be_pasted_and_are_those_of_the_document() {
    let home = tempfile::tempdir().unwrap();
    let small = small(&["tune", "diurnal"]);
    let found = json(&small);
    let marks = &found["watermarks"];
    let of = |name: &str| marks[name].as_f64().unwrap();
    // By more than a slice of 64 MiB.
    assert!(of("free_high_mib") > of("free_low_mib") + 64.0, "{marks}");
    assert!(of("cache_free_high_mib") > of("cache_free_low_mib") + 64.0, "{marks}");
    let suitable = found["suitable_mib"].as_f64().unwrap();
    assert!(suitable > of("free_low_mib") && found["samples"] == 121, "{found}");
    let printed = String::from_utf8(sim(&small).stdout).unwrap();
    assert!(
        printed.contains("# suitable memory") && printed.contains("\n[watermarks]\n"),
        "{printed}"
    );
    for (name, value) in marks.as_object().unwrap() {
        assert!(
            printed.contains(&format!("\n{name} = {}\n", value.as_f64().unwrap())),
            "{name}: {printed}"
        );
    }
    let file = home.path().join("tuned.toml");
    fs::write(&file, format!("schema_version = 1\npolicy = \"watermarks\"\n{printed}")).unwrap();
    let run = json(&self::small(&["run", "diurnal", "--policy", file.to_str().unwrap()]));
    assert!(run["policy"] == "watermarks" && run["mean_offline"].as_f64() > Some(1.0), "{run}");
    // Who looks more rarely keeps more.
    let rarely = json(&[small.as_slice(), &["--timeout", "30m"]].concat());
    assert!(rarely["watermarks"]["free_low_mib"].as_f64() > marks["free_low_mib"].as_f64());
}

/// A recording of a saved machine in many parts.
fn recording(dir: &Path) {
    let machine = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
        .join("../cli/tests/data/guest-8g.json");
    let mut record = command(&["record", "--every", "5ms", "--part", "20ms", "--from"]);
    record.arg(machine).arg("-o").arg(dir).args(["--", "sleep", "0.3"]);
    let output = record.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_recording_is_tuned_by_what_was_seen_of_its_machine() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    recording(&dir);
    let path = dir.to_str().unwrap();
    let found =
        json(&["tune", path, "--granularity", "slice", "--timeout", "10s", "--time-factor", "1"]);
    assert!(found["samples"].as_u64() >= Some(2), "{found}");
    assert_eq!(
        (found["growth_timeout_mib"].as_f64(), found["watermarks"]["timeout_seconds"].as_f64()),
        (Some(0.0), Some(10.0))
    );
    assert!(found["assumptions"].to_string().contains("looks of the recording itself"), "{found}");
    // Less was seen than either time: the text does not speak of growth within these.
    let printed = sim(&["tune", path, "--granularity", "slice", "--time-factor", "1"]).stdout;
    let printed = String::from_utf8(printed).unwrap();
    for longer in
        ["demand grew within the 0 s seen (the time-out is 30 s) by", "break-even time is"]
    {
        assert!(printed.contains(longer), "{printed}");
    }
    // Nothing grows there: what stays free is the kernel's reserve, of all zones.
    let status = command(&["status", "--json", "--from", dir.to_str().unwrap()]).output().unwrap();
    let status: Value = serde_json::from_slice(&status.stdout).unwrap();
    let zones = status["zones"].as_array().unwrap().iter();
    let reserve: u64 = zones.map(|zone| zone["awake_reserve_pages"].as_u64().unwrap()).sum();
    assert_eq!(
        found["watermarks"]["free_low_mib"].as_f64(),
        Some(reserve as f64 / 256.0),
        "{found}"
    );
}

#[test]
fn options_count_for_a_recording_or_are_refused() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    made_up::write(&dir, None, false).unwrap();
    let path = dir.to_str().unwrap();
    let all = [path, "--granularity", "slice", "--time-factor", "1"];
    let args = [&["run", "--policy", "periodic"], &all[..]].concat();
    for (option, value) in [
        ("--memory", "4G"),
        ("--slice", "64M"),
        ("--step", "30s"),
        ("--for", "1h"),
        ("--machine", "m_1"),
    ] {
        let error = refused(&[&args[..], &[option, value]].concat(), 2);
        assert!(error.contains(&format!("{option} would change nothing")), "{error}");
        let error = refused(&[&["tune"], &all[..], &[option, value]].concat(), 2);
        assert!(error.contains(option), "{error}");
    }
    let run = |more: &[&str]| json(&[&args[..], more].concat());
    let usual = run(&[]);
    for more in [&["--placement", "packed"][..], &["--scatter", "1"], &["--coarse"]] {
        assert_ne!(run(more)["machine"], usual["machine"], "{more:?}");
    }
    let alone = ["tournament", "--slice", "32M", "--loads", "none", "--policies", "never"];
    let alone = [&alone[..], &["--recording"], &all[..]].concat();
    for (option, value) in [("--memory", "4G"), ("--step", "30s"), ("--for", "1h")] {
        let error = refused(&[&alone[..], &[option, value]].concat(), 2);
        assert!(error.contains(&format!("{option} would change nothing")), "{error}");
    }
    let file = home.path().join("usage.csv");
    fs::write(&file, "m_1,0,30,40,,,,,\nm_1,300,30,41,,,,,\n").unwrap();
    for (option, value) in [("--for", "1h"), ("--noise", "3"), ("--memory-percent", "50")] {
        let error = refused(&["fleet", file.to_str().unwrap(), option, value], 2);
        assert!(error.contains(&format!("{option} would change nothing")), "{error}");
    }
}

#[test]
fn missing_parts_of_a_recording_are_reported() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    recording(&dir);
    let args = ["run", dir.to_str().unwrap(), "--granularity", "slice", "--time-factor", "1"];
    assert_eq!(json(&args)["notes"]["missing_parts"], serde_json::json!({}));
    fs::remove_file(dir.join("vmstat/part-000001.parquet")).unwrap();
    assert_eq!(json(&args)["notes"]["missing_parts"], serde_json::json!({"vmstat": 1}));
    for command in ["run", "tune"] {
        let output = sim(&[&[command], &args[1..]].concat());
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(
            output.status.success() && text.contains("1 parts of the table vmstat are missing"),
            "{text}"
        );
    }
}

#[test]
fn seconds_of_an_emulated_machine_are_not_taken_for_real_ones() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    made_up::write(&dir, Some(0), false).unwrap();
    let path = dir.to_str().unwrap();
    let tournament =
        ["tournament", "--recording", path, "--slice", "32M", "--policies", "periodic"];
    let alone = [&tournament[..], &["--loads", "none"]].concat();
    for command in [&["run", path][..], &["tune", path], &alone] {
        let error = refused(&[command, &["--granularity", "slice"]].concat(), 2);
        assert!(error.contains("is emulated") && error.contains("--time-factor"), "{error}");
    }
    let run = |factor: &str| {
        let args = [
            "run",
            path,
            "--granularity",
            "slice",
            "--policy",
            "periodic",
            "--time-factor",
            factor,
        ];
        json(&args)
    };
    let saved = |run: &Value| run["saved_joules"]["low"].as_f64().unwrap();
    let (fast, slow) = (run("1"), run("4..8"));
    assert!(saved(&fast) > 0.0, "{fast}");
    assert!((saved(&fast) / saved(&slow) - 8.0).abs() < 1e-6, "{slow}");
    assert_eq!(fast["emptying_joules"], slow["emptying_joules"]);
    assert!(
        slow["assumptions"].to_string().contains("divided by 4 to 8 (--time-factor)"),
        "{slow}"
    );
    let factor = ["--time-factor", "4..8", "--time-factor-source", "compile"];
    let named = json(
        &[&["run", path, "--granularity", "slice", "--policy", "periodic"], &factor[..]].concat(),
    );
    assert!(named["assumptions"].to_string().contains("divided by 4 to 8 (compile)"), "{named}");
    let mixed =
        [&tournament[..], &["--loads", "batch", "--granularity", "slice", "--time-factor", "6"]]
            .concat();
    assert!(refused(&mixed, 2).contains("--loads none"));
    assert!(refused(&small(&["run", "batch", "--time-factor", "6"]), 2).contains("no recording"));
}

#[test]
fn what_cannot_be_tuned_is_named() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("usage.csv");
    let path = file.to_str().unwrap();
    fs::write(&file, "m_1,0,30,40,,,,,\n").unwrap();
    let error = refused(&["tune", path], 1);
    assert!(error.contains("seen 1 times") && error.contains("two looks"), "{error}");
    let error = refused(&["tune", "weekly"], 2);
    assert!(error.contains("no load `weekly`"), "{error}");
    let error = refused(&["tune", "diurnal", "--timeout", "0s"], 2);
    assert!(error.contains("--timeout"), "{error}");
    let error = refused(&["tune", home.path().to_str().unwrap()], 1);
    assert!(error.contains("is not a recording"), "{error}");
}
