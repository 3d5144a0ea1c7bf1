//! `ramslice-lab calibrate --from`: samples made up by a rule give that rule back, and what is no
//! file of samples is refused.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::{Value, json};

fn calibrate(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ramslice-lab")).arg("calibrate").args(args).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// One slice on a machine where a page dropped costs 200, one moved 700, a mapping 90, a slice 3000
/// and 1024 frames 500.
fn sample(origin: &Value, frames: u64, dropped: u64, moved: u64, count: u64) -> Value {
    let cost = 3000 + 500 * frames / 1024 + 200 * dropped + 700 * moved + 90 * moved * count;
    json!({
        "origin": origin, "label": "made up", "slices": 1,
        "frames_pages": frames, "free_pages": frames - dropped - moved,
        "drop_pages": dropped, "move_pages": moved, "mappings": moved * count,
        "price_predicted_100cycles": 1000, "price_measured_100cycles": cost,
        "migrated_pages": moved, "dropped_pages": dropped, "failed_pages": 0,
    })
}

fn save(path: &Path, nr_mapped: u64) {
    let mut samples = Vec::new();
    for frames in [1024, 2048, 4096] {
        (0..4).for_each(|_| samples.push(sample(&json!({"artificial": "empty"}), frames, 0, 0, 0)));
    }
    for part in 1..=10 {
        samples.push(sample(&json!({"artificial": "cache"}), 4096, 400 * part, 0, 0));
        for count in [1, 2, 4, 8].into_iter().filter(|&count| count <= nr_mapped) {
            samples.push(sample(
                &json!({"artificial": {"mapped": count}}),
                4096,
                0,
                400 * part,
                count,
            ));
        }
        samples.push(sample(&json!("program"), 2048, 100 * part, 90 * part, part % 3 + 1));
    }
    let saved = json!({
        "schema_version": 1, "kernel_release": "6.12", "page_bytes": 4096, "slice_bytes": 16 << 20,
        "price_parameters_100cycles": {"isolate_slice": 695, "isolate_page": 303, "drop_page": 39,
            "migrate_page": 100, "migrate_mapping": 29, "alloc_buddy": 1, "alloc_cache": 25,
            "unreclaimable": 1_000_000_000},
        "noise": 0.01, "changed_samples": 2, "samples": samples,
    });
    fs::write(path, saved.to_string()).unwrap();
}

#[test]
fn saved_samples_are_fitted_and_models_compared() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.json");
    save(&path, 8);
    let path = path.to_str().unwrap();

    let done = calibrate(&["--json", "--from", path]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    // Nothing shows what dropping cache for a destination costs: as much as dropping it elsewhere.
    let expected = json!({"isolate_slice": 3000, "isolate_page": 500, "drop_page": 200,
        "migrate_page": 700,
        "migrate_mapping": 90, "alloc_buddy": 0, "alloc_cache": 200});
    assert_eq!(found["parameters_100cycles"], expected);
    assert_eq!(found["installed"], false);
    assert_eq!(
        (&found["artificial_samples"], &found["held_out_samples"]),
        (&json!(62), &json!(10))
    );
    assert_eq!(found["drift"]["state"], "refit");
    let models = found["models"].as_array().unwrap();
    let names: Vec<_> = models.iter().map(|model| model["model"].as_str().unwrap()).collect();
    assert_eq!(names, ["ours", "a", "b", "c"]);
    assert!(models[0]["held_out"]["p99_of_largest"].as_f64().unwrap() < 0.001);
    assert!(models[2]["held_out"]["bias"].as_f64().unwrap() < -0.5);

    let done = calibrate(&["--from", path]);
    let out = text(&done.stdout);
    for words in [
        "fitted to 62 slices",
        "2 were left out",
        "fitted here",
        "A: slopes",
        "nothing was installed",
    ] {
        assert!(out.contains(words), "{words}: {out}");
    }
}

#[test]
fn everyday_operations_that_a_daemon_gathered_are_fitted_and_judged_by_each_other() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("prices.json");
    let name = path.to_str().unwrap();
    save(&path, 8);
    let mut saved: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    // Cache, and pages that are mapped once: what a file server does all day.
    let operation =
        |part: u64| sample(&json!("everyday"), 4096, 300 * (part % 9), 90 * (part % 7), 1);
    saved["samples"] = (0..40).map(operation).collect();
    fs::write(&path, saved.to_string()).unwrap();

    let done = calibrate(&["--json", "--from", name]);
    assert!(done.status.success(), "{}", text(&done.stderr));
    let found: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!((&found["everyday_samples"], &found["artificial_samples"]), (&json!(40), &json!(0)));
    let fitted = |name: &str| found["parameters_100cycles"][name].as_f64().unwrap();
    assert!((fitted("drop_page") / 200.0 - 1.0).abs() < 0.05, "{found}");
    // A page mapped once cannot be separated from its mapping: only their sum is known.
    assert!(
        ((fitted("migrate_page") + fitted("migrate_mapping")) / 790.0 - 1.0).abs() < 0.05,
        "{found}"
    );
    assert_eq!(found["drift"]["state"], "refit");
    let models = found["models"].as_array().unwrap();
    let error = |at: usize| models[at]["held_out"]["p99_of_largest"].as_f64().unwrap();
    assert!(models[0]["model"] == "ours" && error(0) < 0.05 && error(1) > 0.3, "{found}");

    let out = text(&calibrate(&["--from", name]).stdout);
    for words in
        ["fitted to 40 everyday operations", "every second operation", "nothing was installed"]
    {
        assert!(out.contains(words), "{words}: {out}");
    }
    // Now a third of it, now three times as much: nothing is predicted, and nothing installed.
    for (at, operation) in saved["samples"].as_array_mut().unwrap().iter_mut().enumerate() {
        let factor = [0.33, 3.0, 1.0, 9.0][at / 2 % 4];
        let cost = operation["price_measured_100cycles"].as_f64().unwrap() * factor;
        operation["price_measured_100cycles"] = json!(cost as u64);
    }
    fs::write(&path, saved.to_string()).unwrap();
    let done = calibrate(&["--install", "--from", name]);
    assert!(
        text(&done.stdout).contains("not installed: half of the operations"),
        "{}",
        text(&done.stdout)
    );
    assert_eq!(done.status.code(), Some(1));

    saved["samples"].as_array_mut().unwrap().truncate(19);
    fs::write(&path, saved.to_string()).unwrap();
    let done = calibrate(&["--from", name]);
    assert_eq!(done.status.code(), Some(1));
    assert!(
        text(&done.stderr).contains("too few everyday operations: 19"),
        "{}",
        text(&done.stderr)
    );
}

#[test]
fn what_cannot_be_fitted_is_refused_with_the_reason() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("samples.json");
    save(&path, 1);
    let name = path.to_str().unwrap();
    let done = calibrate(&["--from", name]);
    assert_eq!(done.status.code(), Some(1));
    assert!(text(&done.stderr).contains("mapped more than once"), "{}", text(&done.stderr));

    for (content, words) in [("{}", "not a file of samples"), ("[1", "not a file of samples")] {
        fs::write(&path, content).unwrap();
        let done = calibrate(&["--from", name]);
        assert_eq!(done.status.code(), Some(1));
        assert!(
            text(&done.stderr).contains(words) && text(&done.stderr).contains(name),
            "{}",
            text(&done.stderr)
        );
    }
    let done = calibrate(&["--from", folder.path().to_str().unwrap()]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("is a recording"), "{}", text(&done.stderr));
    let done = calibrate(&["--from", name, "--", "true"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("COMMAND"), "{}", text(&done.stderr));
}
