//! `ramslice-lab record` from outside: how it ends, what a kill leaves, whose exit status it has.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

fn fixture() -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("../cli/tests/data/guest-8g.json")
}

fn ramslice(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramslice-lab"));
    command.args(args).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Records the saved machine into `dir`, quickly.
fn record(dir: &Path, more: &[&str]) -> Command {
    let mut command = ramslice(&["record", "--every", "5ms", "--part", "20ms", "--from"]);
    command.arg(fixture()).arg("-o").arg(dir).args(more);
    command
}

fn check(dir: &Path) -> Value {
    let output = ramslice(&["record", "--json", "--check"]).arg(dir).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

fn parts(dir: &Path) -> usize {
    let Ok(entries) = fs::read_dir(dir.join("samples")) else { return 0 };
    entries
        .filter(|entry| entry.as_ref().unwrap().file_name().to_str().unwrap().starts_with("part-"))
        .count()
}

fn until(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: waited in vain");
}

fn kill(child: &Child, signal: &str) {
    assert!(
        Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success()
    );
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[test]
fn a_recording_lasts_as_long_as_its_command_and_has_its_status() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    let output = record(&dir, &["--", "sh", "-c", "echo out; exit 7"]).output().unwrap();
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(String::from_utf8_lossy(&output.stdout), "out\n");
    let document = check(&dir);
    assert_eq!(document["ended"]["reason"], "command");
    assert_eq!(document["ended"]["command_status"], 7);
    assert_eq!(document["about"]["command"][0], "sh");
    // Before the command, and at its end.
    assert!(document["findings"]["rows"]["samples"].as_u64().unwrap() >= 2);
    assert_eq!(document["findings"]["incomplete_samples"], 0);
}

#[test]
fn a_closed_standard_error_changes_nothing() {
    let home = tempfile::tempdir().unwrap();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let dir = home.path().join("r");
    let mut command = ramslice(&["record", "--statistics-only", "-o"]);
    command.arg(&dir).args(["--", "sh", "-c", "exit 3"]).stderr(full());
    assert_eq!(command.status().unwrap().code(), Some(3));
    assert_eq!(check(&dir)["ended"]["command_status"], 3);
    // What is logged, too, of a machine that may or may not have ramslice.
    let status =
        |stderr: Stdio| ramslice(&["-vv", "status"]).stderr(stderr).status().unwrap().code();
    assert_eq!(status(full().into()), status(Stdio::null()));
}

#[test]
fn a_command_ended_by_a_signal_has_the_shells_status() {
    let home = tempfile::tempdir().unwrap();
    let output =
        record(&home.path().join("r"), &["--", "sh", "-c", "kill -KILL $$"]).output().unwrap();
    assert_eq!(output.status.code(), Some(137));
}

#[test]
fn signals_go_to_the_command() {
    let home = tempfile::tempdir().unwrap();
    for (signal, trap) in [("-TERM", "TERM"), ("-INT", "INT"), ("-USR1", "USR1")] {
        let (dir, ready) = (home.path().join(trap), home.path().join(format!("{trap}.ready")));
        let script = format!(
            "trap 'exit 9' {trap}; touch {}; while :; do sleep 0.05; done",
            ready.display()
        );
        let mut child = record(&dir, &["--", "sh", "-c", &script]).spawn().unwrap();
        until("the command", || ready.exists());
        kill(&child, signal);
        assert_eq!(child.wait().unwrap().code(), Some(9), "{trap}");
        assert_eq!(check(&dir)["ended"]["command_status"], 9);
    }
}

#[test]
fn an_interrupt_ends_cleanly_with_a_last_part() {
    let home = tempfile::tempdir().unwrap();
    for signal in ["-INT", "-TERM"] {
        let dir = home.path().join(signal);
        // No part grows old before the end: all there is is written there.
        let child = ramslice(&["record", "--every", "5ms", "--part", "25s", "--from"])
            .arg(fixture())
            .arg("-o")
            .arg(&dir)
            .spawn()
            .unwrap();
        until("the recording", || dir.join("samples/part-000000.parquet").exists());
        kill(&child, signal);
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        // One if the signal came before another sample was taken
        let text = text(&output);
        assert!(text.contains("2 parts of each") || text.contains("1 part of each"), "{text}");
        let document = check(&dir);
        assert_eq!(document["ended"]["reason"], "signal");
        assert_eq!(document["ended"]["samples"], document["findings"]["rows"]["samples"]);
        assert_eq!(document["findings"]["missing_parts"], 0);
    }
}

#[test]
fn an_interrupt_in_its_first_moments_ends_it_cleanly() {
    let home = tempfile::tempdir().unwrap();
    for round in 0..5 {
        let dir = home.path().join(round.to_string());
        let mut child = record(&dir, &[]).spawn().unwrap();
        // Written before the first sample is taken. Without a pause: that takes a millisecond.
        while !dir.join("recording.json").exists() {
            assert_eq!(child.try_wait().unwrap(), None);
        }
        kill(&child, "-INT");
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", text(&output));
        assert_eq!(check(&dir)["ended"]["reason"], "signal");
    }
}

#[test]
fn a_time_ends_it_and_its_command() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    let output = record(&dir, &["--for", "200ms", "--", "sleep", "600"]).output().unwrap();
    assert_eq!(output.status.code(), Some(128 + 15), "{}", text(&output));
    assert_eq!(check(&dir)["ended"]["reason"], "time");
}

#[test]
fn a_command_that_takes_long_to_end_after_its_time_is_recorded_and_gets_signals() {
    let home = tempfile::tempdir().unwrap();
    let (dir, recorded) = (home.path().join("r"), home.path().join("recorded"));
    // Asked to end, it waits until more parts are there, for half a minute at most.
    let script = format!(
        "count() {{ ls {samples} | wc -l; }}
         more() {{
             before=$(count); rounds=0
             while [ $(count) -le $((before + 2)) ] && [ $rounds -lt 600 ]; do
                 sleep 0.05; rounds=$((rounds + 1))
             done
             [ $rounds -lt 600 ] || exit 4
             touch {recorded}
         }}
         trap more TERM; trap 'exit 9' USR1
         while :; do sleep 0.05; done",
        samples = dir.join("samples").display(),
        recorded = recorded.display()
    );
    let child = record(&dir, &["--for", "2s", "--", "sh", "-c", &script]).spawn().unwrap();
    until("more parts", || recorded.exists());
    kill(&child, "-USR1");
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(9), "{}", text(&output));
    let document = check(&dir);
    assert_eq!(document["ended"]["reason"], "time");
    assert_eq!(document["ended"]["command_status"], 9);
}

#[test]
fn a_kill_loses_the_last_part_at_most() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    // At several moments: in the midst of a flush or between two.
    for round in 0..8 {
        let append: &[&str] = if round > 0 { &["--append"] } else { &[] };
        let before = parts(&dir);
        let mut child = record(&dir, append).spawn().unwrap();
        until("three parts", || parts(&dir) >= before + 3);
        std::thread::sleep(Duration::from_millis(round));
        let there = parts(&dir);
        child.kill().unwrap();
        child.wait().unwrap();
        let document = check(&dir);
        assert!(document["ended"].is_null());
        assert!(parts(&dir) >= there);
        // What a flush that was cut short left behind counts as nothing else.
        let findings = &document["findings"];
        assert!(findings["missing_parts"].as_u64().unwrap() <= 6 * (round + 1), "{findings}");
    }
    let output = record(&dir, &["--append", "--for", "50ms"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let findings = &check(&dir)["findings"];
    assert_eq!(findings["temporary_files"], 0);
    // A command that looks at the recording sees its last sample.
    let slices = ramslice(&["slices", "--json", "--from"]).arg(&dir).output().unwrap();
    let before = ramslice(&["slices", "--json", "--from"]).arg(fixture()).output().unwrap();
    assert_eq!(slices.stdout, before.stdout);
}

#[test]
fn a_command_that_cannot_run_is_named() {
    let home = tempfile::tempdir().unwrap();
    let output = record(&home.path().join("a"), &["--", "no-such-program"]).output().unwrap();
    assert_eq!(output.status.code(), Some(127));
    assert!(text(&output).contains("cannot run `no-such-program`"), "{}", text(&output));
    let output = record(&home.path().join("b"), &["--", "/etc/passwd"]).output().unwrap();
    assert_eq!(output.status.code(), Some(126));
    // A recording of nothing would be in the way of the next try.
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 0);
}

#[test]
fn what_only_this_machine_has_is_not_recorded_of_another_source() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    for option in ["--reuse=500ms", "--cache-use", "--statistics-only"] {
        let output = record(&dir, &["--for", "20ms", option]).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{option}: {}", text(&output));
        let name = option.split('=').next().unwrap();
        assert!(text(&output).contains(&format!("{name} looks at this machine")), "{option}");
        assert!(!dir.exists(), "{option}");
    }
}

#[test]
fn a_recording_is_not_overwritten() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    assert!(record(&dir, &["--for", "20ms"]).status().unwrap().success());
    let before = fs::read(dir.join("recording.json")).unwrap();
    let output = record(&dir, &["--for", "20ms"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("--append"), "{}", text(&output));
    assert_eq!(fs::read(dir.join("recording.json")).unwrap(), before);
}

#[test]
fn a_failing_disk_is_reported_and_the_command_goes_on() {
    let home = tempfile::tempdir().unwrap();
    let (dir, done) = (home.path().join("r"), home.path().join("done"));
    // Without its directory, the next part has nowhere to go.
    let script = format!(
        "cd {}; mv snapshots ..; sleep 0.3; touch {}; exit 0",
        dir.display(),
        done.display()
    );
    let output = record(&dir, &["--", "sh", "-c", &script]).output().unwrap();
    assert!(done.exists());
    assert_eq!(output.status.code(), Some(1));
    // Of a part of it, or of the folder itself, whichever is written to next
    assert!(text(&output).contains("/snapshots"), "{}", text(&output));
}

#[test]
fn why_a_recording_broke_is_said_also_if_its_command_ends_before_the_next_sample() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    let script =
        format!("mv {} {}; sleep 1", dir.join("snapshots").display(), home.path().display());
    let output = ramslice(&["record", "--every", "1h", "--part", "20ms", "--from"])
        .arg(fixture())
        .arg("-o")
        .arg(&dir)
        .args(["--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("/snapshots"), "{}", text(&output));
}

#[test]
fn statistics_need_no_slices() {
    let home = tempfile::tempdir().unwrap();
    let dir = home.path().join("r");
    let output =
        ramslice(&["record", "--statistics-only", "--for", "50ms", "--every", "10ms", "-o"])
            .arg(&dir)
            .output()
            .unwrap();
    assert!(output.status.success(), "{}", text(&output));
    let document = check(&dir);
    let rows = |table: &str| document["findings"]["rows"][table].as_u64().unwrap();
    let lines = fs::read_to_string("/proc/meminfo").unwrap().lines().count() as u64;
    assert_eq!(rows("meminfo"), rows("samples") * lines);
    assert_eq!((rows("snapshots"), rows("zones")), (0, 0));
    assert_eq!(
        document["about"]["kernel_release"],
        fs::read_to_string("/proc/sys/kernel/osrelease").unwrap().trim()
    );
}

#[test]
fn what_is_no_recording_is_named_with_what_it_lacks() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("file");
    fs::write(&file, "x").unwrap();
    for (path, why) in [
        (home.path().join("none"), "it does not exist"),
        (file, "it is not a directory"),
        (home.path().to_owned(), "it has no directory `snapshots`"),
    ] {
        let output = ramslice(&["record", "--check"]).arg(&path).output().unwrap();
        assert_eq!(output.status.code(), Some(1), "{}", text(&output));
        let expected =
            format!("{} is not a recording made by `ramslice-lab record`: {why}", path.display());
        assert!(text(&output).contains(&expected), "{}", text(&output));
    }
}

#[test]
fn a_directory_without_a_recording_cannot_be_looked_at() {
    let home = tempfile::tempdir().unwrap();
    let output = ramslice(&["map", "--from"]).arg(home.path()).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output).contains("is not a recording made by `ramslice-lab record`"),
        "{}",
        text(&output)
    );
}
