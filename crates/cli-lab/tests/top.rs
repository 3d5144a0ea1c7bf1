//! Commands of `ramslice` over a recording, from outside: `top` replays it, others show its end.

mod common;
#[path = "../../record/tests/common/made_up.rs"]
mod made_up;

use std::path::PathBuf;

use common::{command, data};
use serde_json::Value;
use tempfile::TempDir;

fn recording() -> (TempDir, PathBuf) {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("recording");
    made_up::write(&dir, None, false).unwrap();
    (home, dir)
}

/// The documents that a command prints, one to a line.
fn lines(args: &[&str], dir: &PathBuf) -> Vec<Value> {
    let output = command(args).arg("--json").arg("--from").arg(dir).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let text = String::from_utf8(output.stdout).unwrap();
    serde_json::Deserializer::from_str(&text).into_iter().map(Result::unwrap).collect()
}

#[test]
fn a_recording_is_replayed_sample_by_sample() {
    let (_home, dir) = recording();
    let check = command(&["record", "--json", "--check"]).arg(&dir).output().unwrap();
    let check: Value = serde_json::from_slice(&check.stdout).unwrap();
    let shown = lines(&["top"], &dir);
    assert_eq!(shown.len() as u64, check["findings"]["rows"]["samples"].as_u64().unwrap());
    let times: Vec<u64> = shown.iter().map(|one| one["monotonic_us"].as_u64().unwrap()).collect();
    assert!(times.windows(2).all(|pair| pair[0] < pair[1]), "{times:?}");
    assert!(shown.iter().all(|one| one["daemon"]["is"] == "not-here"));
    assert!(shown[0].get("last").is_none(), "the first sample is no rate");
    let moved = |one: &Value| one["last"]["migrated_pages"].as_u64();
    assert!(shown[1..].iter().filter_map(moved).sum::<u64>() > 10_000);
    assert_eq!(lines(&["top", "--count", "3"], &dir).len(), 3);
}

#[test]
fn once_reads_a_recording_to_its_end() {
    let (_home, dir) = recording();
    let end = lines(&["top", "--once"], &dir);
    let [end] = &end[..] else { panic!("{} documents", end.len()) };
    let last = &lines(&["status"], &dir)[0];
    assert_eq!(end["monotonic_us"], last["snapshot"]["monotonic_us"]);
    assert_eq!(end["since_start"]["elapsed_us"], 120_000_000);
}

#[test]
fn joules_of_a_replay_need_the_factor_of_an_emulated_machine() {
    let (_home, dir) = recording();
    let joules = ["top", "--once", "--profile", "thesis-parc", "--granularity", "slice"];
    let refused = command(&joules).arg("--from").arg(&dir).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--time-factor"));
    let end = &lines(&[&joules[..], &["--time-factor", "15"]].concat(), &dir)[0];
    assert!(end["energy"]["saved_joules"]["high"].as_f64().unwrap() > 0.0, "{end}");
}

#[test]
fn commands_of_the_other_program_want_a_recording() {
    for args in [&["status"][..], &["slices"], &["map"], &["census"], &["top"]] {
        let output = command(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("name a recording with --from DIR"), "{said}");
    }
    let mut saved = command(&["top", "--count", "1", "--from"]);
    saved.arg(data("guest-8g.json"));
    assert_eq!(saved.output().unwrap().status.code(), Some(0), "a saved machine is one, too");
}
