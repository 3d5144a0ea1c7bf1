//! `ramslice-lab ramp` from outside: step by step down to a floor and up again.

mod common;

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use common::{command, data};
use serde_json::Value;

/// Over the saved machine: 48 slices are on, and 79 off, of which 6 is the lowest and 156 the
/// highest.
fn run(args: &[&str]) -> Output {
    command(args).arg("--from").arg(data("guest-8g.json")).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The steps of a ramp, and how it ended.
fn ramp(args: &[&str]) -> (Vec<Value>, Value, Option<i32>) {
    let output = run(&[&["ramp", "--every", "1ms", "--json"], args].concat());
    let mut documents: Vec<Value> =
        text(&output.stdout).lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let end = documents.pop().unwrap_or_else(|| panic!("{}", text(&output.stderr)));
    assert!(documents.iter().all(|one| one["kind"] == "step" && one["schema_version"] == 1));
    assert_eq!((&end["kind"], &end["command"]), (&"end".into(), &"ramp".into()));
    (documents, end, output.status.code())
}

fn ids(step: &Value) -> Vec<u64> {
    step["slices"].as_array().unwrap().iter().map(|id| id.as_u64().unwrap()).collect()
}

fn of(steps: &[Value], direction: &str) -> Vec<u64> {
    steps.iter().filter(|step| step["direction"] == direction).flat_map(ids).collect()
}

#[test]
fn a_ramp_goes_down_to_its_floor_and_up_again_in_the_reverse_order() {
    let (steps, end, status) = ramp(&["--step", "2", "--floor", "43"]);
    let down = of(&steps, "down");
    assert_eq!(down, [120, 88, 87, 86, 85]);
    let sizes: Vec<usize> = steps.iter().map(|step| ids(step).len()).collect();
    assert_eq!(sizes, [2, 2, 1, 2, 2, 1], "the last step down goes no further than the floor");
    assert_eq!(steps[2]["online_slices"], 43);
    assert_eq!(of(&steps, "up"), down.iter().rev().copied().collect::<Vec<_>>());
    assert_eq!(steps[5]["offline_slices"], 79);
    assert_eq!((&end["ended"], &end["floor_reached"]), (&"done".into(), &true.into()));
    assert_eq!((end["left_off"].as_array().unwrap().len(), status), (0, Some(0)));
    let (steps, ..) = ramp(&["--step", "3", "--floor", "45", "--end", "low"]);
    assert_eq!(of(&steps, "down"), [5, 10, 11]);
}

#[test]
fn a_floor_out_of_reach_is_reported_after_memory_has_grown_again() {
    let (steps, end, status) = ramp(&["--step", "5", "--floor", "1"]);
    assert_eq!(
        (&end["ended"], &end["floor_reached"], status),
        (&"done".into(), &false.into(), Some(1))
    );
    let mut down = of(&steps, "down");
    assert!(down.len() > 10);
    let all = down.len();
    down.sort_unstable();
    down.dedup();
    assert_eq!(down.len(), all, "none is tried again");
    assert_eq!(of(&steps, "up").len(), all);
    // Without a floor, as far as it goes is far enough.
    let (_, end, status) = ramp(&["--step", "5"]);
    assert_eq!((&end["floor_reached"], status), (&Value::Null, Some(0)));
    let output = run(&["ramp", "--floor", "48"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--floor is 48, and 48 slices are on already"));
}

#[test]
fn a_ramp_with_hold_is_refused_where_slices_cannot_be_held() {
    let output = run(&["ramp", "--hold"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("slices cannot be held off here (--hold)"));
}

/// A child that does not outlive a test that failed.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A command over the saved machine, its first line, and the others.
fn begun(command: &mut Command) -> (Running, String, Lines<BufReader<ChildStdout>>) {
    command.arg("--from").arg(data("guest-8g.json")).stdout(Stdio::piped());
    let mut child = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    (child, first, lines)
}

#[test]
fn output_that_nothing_reads_ends_the_ramp_calmly_and_soon() {
    let (mut child, _, lines) = begun(command(&["ramp", "--every", "1h"]).stderr(Stdio::piped()));
    drop(lines);
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
    let mut said = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "");
    let (mut child, _, lines) =
        begun(command(&["ramp", "--every", "1h", "--leave"]).stderr(Stdio::piped()));
    drop(lines);
    assert_eq!(child.0.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "ramslice-lab: left off: 88,120; `ramslice online` wakes them\n");
}

#[test]
fn a_ramp_under_nohup_outlives_its_terminal() {
    let mut ramp = Command::new("nohup");
    ramp.arg(env!("CARGO_BIN_EXE_ramslice-lab"))
        .args(["ramp", "--every", "500ms", "--floor", "44"]);
    let (mut child, _, lines) = begun(ramp.stdin(Stdio::null()).stderr(Stdio::null()));
    assert!(
        Command::new("kill").args(["-HUP", &child.0.id().to_string()]).status().unwrap().success()
    );
    assert_eq!(lines.last().unwrap().unwrap(), "done: what it switched off is on again");
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn on_interrupt_it_reports_offline_slices_and_wakes_or_leaves_them() {
    let woken = "interrupted: what it switched off is on again";
    for (more, signal, words) in [
        (&[][..], "-INT", woken),
        // The terminal is lost.
        (&[][..], "-HUP", woken),
        (&["--leave"][..], "-INT", "interrupted: left off: 88,120; `ramslice online` wakes them"),
    ] {
        // The tests themselves may run under nohup.
        let mut ramp = Command::new("env");
        ramp.args([
            "--default-signal=HUP",
            env!("CARGO_BIN_EXE_ramslice-lab"),
            "ramp",
            "--every",
            "1h",
        ])
        .args(more);
        let (mut child, first, mut lines) = begun(&mut ramp);
        assert!(
            first.ends_with(
                "s: offline: 88,120; 46 slices on, 81 off; 3797 pages moved, 6849 dropped"
            ),
            "{first}"
        );
        assert!(
            Command::new("kill")
                .args([signal, &child.0.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(lines.next().unwrap().unwrap(), words);
        assert_eq!(child.0.wait().unwrap().code(), Some(1));
    }
}
