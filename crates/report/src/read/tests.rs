//! Reading of runs: errors name the file and the place.

use std::path::Path;

use super::*;
use crate::{ContentsSource, GainVerdict};

fn wrong(text: &str) -> String {
    latencies("l", Path::new("l.csv"), text).unwrap_err().to_string()
}

#[test]
fn latencies_are_sorted_and_what_is_wrong_is_named_by_line() {
    let found = latencies(
        "l",
        Path::new("l.csv"),
        "latency_us,boottime_us\n3000,2000000\n1500,1000000\n\n",
    )
    .unwrap();
    assert_eq!(found.requests, [(1.0, 1.5), (2.0, 3.0)]);
    assert_eq!(
        wrong("boottime_us,latency_us\n1,2\n3,x\n"),
        "l.csv:3: latency_us is `x`, not microseconds"
    );
    assert_eq!(wrong("boottime_us,latency_us\n1\n"), "l.csv:2: latency_us is ``, not microseconds");
    assert!(wrong("boottime_us,latency_us\n1,-2\n").contains("l.csv:2"));
    assert!(wrong("boottime_us,latency_ms\n1,2\n").contains("no column `latency_us`"));
    assert!(wrong("boottime_us,latency_us\n").contains("has no requests"));
}

fn document(text: &str) -> Result<(ReportData, Vec<(String, String)>)> {
    let mut reader = RunReader::new(None);
    let about = reader.document("d", Path::new("d.json"), text)?;
    reader.about.push(("d".to_owned(), about));
    Ok(reader.finish())
}

fn refused(text: &str) -> String {
    document(text).unwrap_err().to_string()
}

const SAMPLE: &str = r#"{"origin": {"artificial": {"mapped": 2}}, "label": "x", "slices": 1,
    "frames_pages": 8192,
    "free_pages": 8092, "drop_pages": 0, "move_pages": 100, "mappings": 200,
    "price_predicted_100cycles": 5,
    "price_measured_100cycles": 6, "keep_cache": false}"#;

#[test]
fn samples_of_a_calibration_are_read_and_a_damaged_one_is_named() {
    let file = |sample: &str| {
        format!(
            r#"{{"schema_version": 1, "kernel_release": "6.12", "price_parameters_100cycles": {{}},
                "samples": [{SAMPLE}, {sample}]}}"#
        )
    };
    let program = SAMPLE.replace(r#"{"artificial": {"mapped": 2}}"#, r#""program""#);
    let (runs, about) = document(&file(&program)).unwrap();
    let samples = &runs.prices[0].samples;
    assert_eq!(
        (samples[0].source, samples[1].source),
        (ContentsSource::Filled, ContentsSource::Programs)
    );
    assert!((samples[0].measured_cycles - 600.0).abs() < 1e-9);
    assert!(about[0].1.starts_with("2 slices with"));
    let everyday = program.replace("program", "everyday");
    assert_eq!(
        document(&file(&everyday)).unwrap().0.prices[0].samples[1].source,
        ContentsSource::Everyday
    );
    let damaged = file(&SAMPLE.replace("\"mappings\": 200", "\"mappings\": -1"));
    assert!(
        refused(&damaged).starts_with("d.json, samples[1]: invalid value"),
        "{}",
        refused(&damaged)
    );
    let newer = file(&program).replacen("\"schema_version\": 1", "\"schema_version\": 9", 1);
    assert!(refused(&newer).contains("schema_version 9, this program knows 1"));
    let text = file(&program);
    assert!(refused(&text[..text.len() / 2]).contains("d.json is not JSON, or damaged"));
}

const LEDGER: &str = r#"{"schema_version": 1, "command": "energy", "profile": "p", "state": "s",
    "clock": "real",
    "work": {"tried_slices": 1, "emptied_slices": 1, "woken_slices": 0, "migrated_pages": 0,
    "dropped_pages": 0,
    "target_free_pages": 0, "target_cache_pages": 0, "price_predicted_100cycles": 0,
    "price_measured_100cycles": 0,
    "page_faults": 0, "allocated_pages": 0}, "saved_joules": {"low": 1, "high": 2},
    "invested_joules": {"low": 0.5, "high": 1}, "net_joules": {"low": 0, "high": 1.5},
    "lines": [{"term": "run_time", "joules": null}], "verdict": {"sign": "undecided",
    "sentence": ""}}"#;

#[test]
fn the_last_document_of_a_ledger_counts() {
    let early = LEDGER.replace("\"high\": 2", "\"high\": 1").replace('\n', "");
    let (runs, _) = document(&format!("{early}\n{LEDGER}")).unwrap();
    let one = &runs.energy[0];
    assert!((one.saved.high - 2.0).abs() < 1e-9 && one.verdict == GainVerdict::Undecided);
    assert_eq!(one.uncounted, ["run time"]);
    let factor = r#""clock": "emulated", "time_factor": {"low": 12, "high": 18},
        "time_factor_source": "compile""#;
    let (runs, _) = document(&LEDGER.replace("\"clock\": \"real\"", factor)).unwrap();
    assert!(
        runs.energy[0].basis.contains("emulated seconds, divided by 12.0 to 18.0 (compile)"),
        "{:?}",
        runs.energy
    );
    let backwards = LEDGER.replace("\"high\": 1.5", "\"high\": -1.5");
    assert!(refused(&backwards).contains("runs backwards"));
}

#[test]
fn a_case_study_lists_its_settings() {
    let run = |setting: &str, seed: &str| {
        format!(
            r#"{{"scale": "full", "start": "fresh", "setting": "{setting}", "seed": {seed},
                "slice_seconds": {{"off": 2, "attainable": 4}}, "energy": {LEDGER}}}"#
        )
    };
    let study = |runs: &str| format!(r#"{{"case": "compile", "runs": [{runs}]}}"#);
    let (runs, about) =
        document(&study(&[run("nothing", "1"), run("ours", "1"), run("unlimited", "2")].join(",")))
            .unwrap();
    let budgets: Vec<_> = runs.energy.iter().map(|one| one.budget.clone()).collect();
    assert_eq!(
        budgets,
        [RunBudget::None, RunBudget::Policy("ours".to_owned()), RunBudget::Unlimited]
    );
    assert!((runs.energy[0].attainable.unwrap().high - 4.0).abs() < 1e-9);
    assert_eq!(about[0].1, "case study compile, 3 runs, scale full, start fresh");
    assert_eq!(runs.energy[2].name, "d unlimited 2");
    let text = refused(&study(&[run("ours", "1"), run("ours", "\"x\"")].join(",")));
    assert!(text.starts_with("d.json, runs[1]: invalid type"), "{text}");
}

#[test]
fn small_runs_are_left_out_beside_full_ones_and_different_runs_get_different_names() {
    let description = |kinds: &[(&str, &str)]| {
        let run = |(scale, start): &(&str, &str)| {
            format!(
                r#"{{"scale": "{scale}", "start": "{start}", "setting": "ours", "seed": 1,
                    "slice_seconds": {{"off": 2, "attainable": 4}}, "energy": {LEDGER}}}"#
            )
        };
        let all: Vec<_> = kinds.iter().map(run).collect();
        let (runs, about) =
            document(&format!(r#"{{"case": "c", "runs": [{}]}}"#, all.join(","))).unwrap();
        let names: Vec<_> = runs.energy.iter().map(|one| one.name.clone()).collect();
        (names.join(", "), about[0].1.clone())
    };
    let said = |names: &str, about: &str| (names.to_owned(), format!("case study c, {about}"));
    let (small, full, aged) = (("small", "aged"), ("full", "fresh"), ("full", "aged"));
    assert_eq!(
        description(&[small, full]),
        said("d ours 1", "1 run, scale full, start fresh; 1 run of smaller scale left out")
    );
    assert_eq!(
        description(&[small, full, aged, small]),
        said(
            "d fresh ours 1, d aged ours 1",
            "2 runs, scale full, start aged and fresh; 2 runs of smaller scale left out"
        )
    );
    // Nothing else there: what they are is said.
    assert_eq!(description(&[small]), said("d ours 1", "1 run, scale small, start aged"));
    assert_eq!(
        description(&[small, ("tiny", "awake")]),
        said(
            "d small aged ours 1, d tiny awake ours 1",
            "2 runs, scale small and tiny, start aged and awake"
        )
    );
    assert_eq!(description(&[]), said("", "0 runs"));
}

#[test]
fn other_files_are_refused_with_what_a_run_may_be() {
    for text in ["", "{}", "[1]", r#"{"schema_version": 1, "command": "status"}"#] {
        assert!(refused(text).contains("d.json is not a run: a run is a directory"), "{text}");
    }
}

#[test]
fn runs_are_called_as_their_files_or_as_said() {
    let of = |runs: &[&str]| names(&runs.iter().map(ToString::to_string).collect::<Vec<_>>());
    let found = of(&["/no/such/build", "4M=x.json"]).unwrap();
    assert_eq!(found[0].0, "build");
    assert_eq!(found[1], ("4M".to_owned(), "x.json".into()));
    assert!(of(&["a/x", "b/x"]).unwrap_err().to_string().contains("two runs are called `x`"));
}

#[test]
fn a_sweep_has_figures_by_start_and_kind_of_budget_and_says_that_it_is_simulated() {
    let row = |start: &str, policy: &str, budget: &str, per_slice: &str, net: (f64, f64)| {
        let ends = |low: f64, high: f64| format!(r#"{{"low": {low}, "high": {high}}}"#);
        format!(
            r#"{{"start": "{start}", "policy": "{policy}", "budget_100cycles": {budget},
                "per_slice": {per_slice}, "n": 5,
                "slices_off": 10, "attainable_slices_off": 20, "saved_joules": {},
                "invested_joules": {},
                "net_range_joules": {}}}"#,
            ends(1.0, 2.0),
            ends(0.5, 0.75),
            ends(net.0, net.1)
        )
    };
    let sweep = |rows: &[String]| {
        format!(
            r#"{{"schema_version": 1, "case": "tpch", "profile": "thesis-parc", "simulated": true,
                "time_factor": {{"low": 4, "high": 5}}, "budgets": [{}]}}"#,
            rows.join(",")
        )
    };
    let rows = [
        row("fresh", "periodic", "0", "null", (1.0, 2.0)),
        row("fresh", "periodic", "15625", "false", (-1.0, 2.0)),
        row("fresh", "periodic", "15625", "true", (-2.0, -1.0)),
        row("fresh", "periodic", "null", "null", (-3.0, -2.0)),
        row("aged", "governor", "null", "null", (0.0, 1.0)),
    ];
    let (runs, about) = document(&sweep(&rows)).unwrap();
    assert_eq!(about[0].1, "case study tpch, simulated for 5 budgets");
    let found: Vec<_> = runs
        .energy
        .iter()
        .map(|one| (one.sweep.clone().unwrap(), one.budget.clone(), one.verdict))
        .collect();
    let (all, each) = (
        "tpch, fresh, budget for all slices, simulated",
        "tpch, fresh, budget for each slice, simulated",
    );
    let budget = RunBudget::Cycles(1_562_500.0);
    assert_eq!(found[0], (all.to_owned(), RunBudget::None, GainVerdict::Gain));
    assert_eq!(found[1], (all.to_owned(), budget.clone(), GainVerdict::Undecided));
    assert_eq!(found[2], (all.to_owned(), RunBudget::Unlimited, GainVerdict::Loss));
    assert_eq!(found[3], (each.to_owned(), RunBudget::None, GainVerdict::Gain));
    assert_eq!(found[4], (each.to_owned(), budget, GainVerdict::Loss));
    assert_eq!((found.len(), &found[6].1), (8, &RunBudget::Policy("governor".to_owned())));
    assert!((runs.energy[0].attainable.unwrap().high - 4.0).abs() < 1e-9);
    assert!(
        runs.energy[0].basis.starts_with("Simulated, not measured"),
        "{}",
        runs.energy[0].basis
    );
    let text = refused(&sweep(&[rows[0].clone(), rows[1].replace("\"n\": 5", "\"n\": \"5\"")]));
    assert!(text.starts_with("d.json, budgets[1]: invalid type"), "{text}");
    let text = refused(&sweep(&[row("fresh", "periodic", "0", "null", (2.0, 1.0))]));
    assert!(text.contains("runs backwards"), "{text}");
}

const SIZED: &str = r#"{"scale": "full", "memory": "held", "seed": 1, "share": 0.5,
    "size_kib": 81920, "elapsed_s": 5.5, "performance": {"value": 5.0, "unit": "s",
    "more_is_better": false}, "counters": {"pgfault": 100, "pgmajfault": 40, "pgsteal_anon": 3,
    "pgsteal_file": 4, "pswpin": 5, "pswpout": 6}, "disk": {"read_bytes": 4096}}"#;
const RAMP: &str = r#"{"scale": "full", "memory": "ramp", "seed": 1, "share": 1.2,
    "size_kib": 81920, "elapsed_s": 1.0, "columns": ["seconds", "size_kib", "files", "bytes",
    "pgpgin", "ramslice_absent_read"],
    "samples": [[0.0, 81920, 1, 1000, 10, null], [0.5, 40960, 2, 2000, 12, null]]}"#;

fn sizes(runs: &[&str]) -> String {
    let head = r#"{"schema_version": 1, "kind": "sizes", "program": "sort", "what": "integers","#;
    format!(r#"{head} "runs": [{}]}}"#, runs.join(", "))
}

#[test]
fn a_study_of_sizes_is_read_with_its_footprint_and_without_smaller_scales() {
    let plenty = SIZED
        .replace("held", "plenty")
        .replace(r#""seed": 1"#, r#""seed": 1, "footprint_kib": 163840"#);
    let small = SIZED.replace("full", "tiny");
    let (runs, about) = document(&sizes(&[SIZED, &plenty, RAMP, &small])).unwrap();
    let study = &runs.sizes[0];
    assert_eq!(study.footprint.unwrap().0, 160 << 20);
    assert_eq!((study.runs.len(), study.ramps.len()), (2, 1));
    let held = &study.runs[1];
    assert_eq!((held.method, held.size.0), (crate::SizeMethod::Held, 80 << 20));
    assert_eq!((held.major_faults, held.minor_faults, held.swapped_out), (40, 60, 6));
    assert_eq!(study.ramps[0].samples[1].disk_kib, 12);
    assert_eq!(about[0].1, "memory sizes, sort: 3 runs");
    let (runs, about) = document(&sizes(&[&small])).unwrap();
    assert_eq!(runs.sizes[0].runs.len(), 1);
    assert!(about[0].1.ends_with("which are no evidence"));
}

#[test]
fn what_is_wrong_in_a_study_of_sizes_is_named_by_run_and_sample() {
    let other = SIZED.replace("held", "squeezed");
    assert!(refused(&sizes(&[SIZED, &other])).contains("run 2: memory is `squeezed`"));
    let unknown = SIZED.replace(r#""elapsed_s": 5.5"#, r#""elapsed_s": "long""#);
    assert!(refused(&sizes(&[SIZED, &unknown])).contains("runs[1]: "));
    let faults = SIZED.replace(r#""pgmajfault": 40"#, r#""pgmajfault": 400"#);
    assert!(refused(&sizes(&[&faults])).contains("400 of 100 page faults were major"));
    let unit = SIZED.replace(r#""unit": "s""#, r#""unit": "MB/s""#);
    assert!(refused(&sizes(&[SIZED, &unit])).contains("run 2: its performance is in MB/s"));
    let back = RAMP.replace("[0.5, 40960, 2, 2000, 12, null]", "[0.5, 40960, 2, 900, 12, null]");
    assert!(refused(&sizes(&[&back])).contains("runs backwards at sample 2"));
    let none = RAMP.replace("[0.5, 40960, 2, 2000, 12, null]", "[0.5, 40960, 2, null, 12, null]");
    assert!(refused(&sizes(&[&none])).contains("sample 2 has no number in `bytes`"));
    let column = RAMP.replace(r#""pgpgin""#, r#""pages""#);
    assert!(refused(&sizes(&[&column])).contains("no column `pgpgin`"));
}
