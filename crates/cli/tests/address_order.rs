//! `ramslice offline` and `online` from outside: in any order, and from either end of memory.

mod common;

use std::io::{BufRead, BufReader};
use std::process::{Output, Stdio};

use common::{command, expect, here};
use serde_json::Value;

/// Over the saved machine: 48 slices are on, and 79 off, of which 6 is the lowest and 156 the
/// highest.
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

#[test]
fn slices_go_off_and_on_in_the_order_in_which_they_are_named() {
    let (tried, done, status) = answered(&["offline", "88,24", "12", "10-11,86"]);
    assert_eq!((tried, done), (vec![88, 24, 12, 10, 11, 86], vec![88, 24, 12, 10, 11, 86]));
    assert_eq!(status, Some(0));
    let (tried, done, _) = answered(&["online", "130,6,100-102", "90"]);
    assert_eq!((tried, done), (vec![130, 6, 100, 101, 102, 90], vec![130, 6, 100, 101, 102, 90]));
}

#[test]
fn count_takes_slices_from_either_end_and_skips_those_that_cannot_be_emptied() {
    let count = |end| answered(&["offline", "--count", "3", "--end", end]);
    assert_eq!(count("low").1, [5, 10, 11]);
    assert_eq!(count("high").1, [120, 88, 87]);
    assert_eq!(answered(&["offline", "--count", "1"]).1, [120], "high unless it is said");
    let (_, done, status) = answered(&["online", "--count", "3"]);
    assert_eq!((done, status), (vec![6, 7, 8], Some(0)));
    assert_eq!(answered(&["online", "--count", "2", "--end", "high"]).1, [156, 155]);
}

#[test]
fn fewer_slices_than_wanted_are_reported_and_refused() {
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
fn output_that_nothing_reads_ends_the_command_calmly_and_soon() {
    let mut top = command(&["top", "--interval", "100ms", "--from"]);
    let mut top = top
        .arg(here("data/guest-8g.json"))
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap()).lines();
    lines.next().unwrap().unwrap();
    drop(lines);
    let output = top.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output.stderr).as_str()), (Some(0), ""));
}
