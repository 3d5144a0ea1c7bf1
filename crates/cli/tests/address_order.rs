//! Slices by hand from outside: in any order, from either end, and step by step down to a floor and up again.

mod common;

use std::io::{BufRead, BufReader, Lines, Read};
use std::process::{Child, ChildStdout, Command, Output, Stdio};

use common::{command, expect, here};
use serde_json::Value;

/// Over the saved machine: 48 slices are on, and 79 off, of which 6 is the lowest and 156 the highest.
fn run(args: &[&str]) -> Output {
    command(args).arg("--from").arg(here("data/guest-8g.json")).output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The ids of the slices of an answer, and those of them that were done.
fn answered(args: &[&str]) -> (Vec<u64>, Vec<u64>, Option<i32>) {
    let output = run(&[args, &["--json"]].concat());
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let results = document["results"].as_array().unwrap();
    let id = |one: &Value| one["slice"].as_u64().unwrap();
    let done = results.iter().filter(|one| one["outcome"]["slices_done"] == 1);
    (results.iter().map(id).collect(), done.map(id).collect(), output.status.code())
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
fn slices_go_off_and_on_in_the_order_in_which_they_are_named() {
    let (tried, done, status) = answered(&["offline", "88,24", "12", "10-11,86"]);
    assert_eq!((tried, done), (vec![88, 24, 12, 10, 11, 86], vec![88, 24, 12, 10, 11, 86]));
    assert_eq!(status, Some(0));
    let (tried, done, _) = answered(&["online", "130,6,100-102", "90"]);
    assert_eq!((tried, done), (vec![130, 6, 100, 101, 102, 90], vec![130, 6, 100, 101, 102, 90]));
}

#[test]
fn so_many_slices_go_off_from_either_end_past_those_that_cannot() {
    let count = |end| answered(&["offline", "--count", "3", "--end", end]);
    assert_eq!(count("low").1, [5, 10, 11]);
    assert_eq!(count("high").1, [120, 88, 87]);
    assert_eq!(answered(&["offline", "--count", "1"]).1, [120], "high unless it is said");
    let (_, done, status) = answered(&["online", "--count", "3"]);
    assert_eq!((done, status), (vec![6, 7, 8], Some(0)));
    assert_eq!(answered(&["online", "--count", "2", "--end", "high"]).1, [156, 155]);
}

#[test]
fn fewer_than_wanted_are_told_and_refused() {
    expect("offline-count", &["offline", "--count", "20", "--end", "low"], run);
    let output = run(&["online", "--count", "1000"]);
    let said = text(&output.stdout);
    assert!(
        said.ends_with("79 of 1000 slices online: there are no more; see `ramslice slices`\n"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
    for wrong in [
        &["offline", "--count", "0"][..],
        &["offline", "--count", "2", "12"],
        &["offline", "12", "--end", "low"],
        &["online", "--count", "2", "--all"],
        &["online", "--count", "2", "--end", "top"],
    ] {
        assert_eq!(run(wrong).status.code(), Some(2), "{wrong:?}");
    }
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
fn a_floor_that_cannot_be_reached_is_told_after_memory_has_grown_again() {
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
fn where_nothing_can_be_held_a_ramp_that_holds_is_refused() {
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
    command.arg("--from").arg(here("data/guest-8g.json")).stdout(Stdio::piped());
    let mut child = Running(command.spawn().unwrap());
    let mut lines = BufReader::new(child.0.stdout.take().unwrap()).lines();
    let first = lines.next().unwrap().unwrap();
    (child, first, lines)
}

#[test]
fn what_nobody_reads_any_more_ends_calmly_and_soon() {
    for args in [&["ramp", "--every", "1h"][..], &["watch", "--interval", "10ms"]] {
        let (mut child, _, lines) = begun(command(args).stderr(Stdio::piped()));
        drop(lines);
        assert_eq!(child.0.wait().unwrap().code(), Some(0), "{args:?}");
        let mut said = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert_eq!(said, "", "{args:?}");
    }
    let (mut child, _, lines) =
        begun(command(&["ramp", "--every", "1h", "--leave"]).stderr(Stdio::piped()));
    drop(lines);
    assert_eq!(child.0.wait().unwrap().code(), Some(1));
    let mut said = String::new();
    child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "ramslice: left off: 88,120; `ramslice online` wakes them\n");
}

#[test]
fn a_ramp_under_nohup_outlives_its_terminal() {
    let mut ramp = Command::new("nohup");
    ramp.arg(env!("CARGO_BIN_EXE_ramslice")).args(["ramp", "--every", "500ms", "--floor", "44"]);
    let (mut child, _, lines) = begun(ramp.stdin(Stdio::null()).stderr(Stdio::null()));
    assert!(
        Command::new("kill").args(["-HUP", &child.0.id().to_string()]).status().unwrap().success()
    );
    assert_eq!(lines.last().unwrap().unwrap(), "done: what it switched off is on again");
    assert_eq!(child.0.wait().unwrap().code(), Some(0));
}

#[test]
fn interrupted_it_says_what_is_off_and_wakes_that_or_leaves_it() {
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
            env!("CARGO_BIN_EXE_ramslice"),
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
