//! `ramslice doctor` from outside: what it prints, its exit status, its JSON, its captures.
//!
//! Machines are made by the same code as in the tests of `ramslice-doctor`; `data/doctor-guest` is
//! a capture of a real guest. Expected outputs are `expects/doctor-*`.

mod common;
#[path = "../../doctor/tests/tables/mod.rs"]
mod tables;

use std::path::Path;
use std::process::{Command, Output};

use common::{command, here};
use serde_json::Value;
use tables::{DDR4, GIB, LPDDR5, PowerNodeEntry, SmbiosBuilder, TestMachine, mpst};

fn doctor(from: &Path, args: &[&str]) -> Output {
    command(&[&["doctor"], args].concat()).arg("--from").arg(from).output().unwrap()
}

fn json(from: &Path, args: &[&str]) -> Value {
    serde_json::from_slice(&doctor(from, &[args, &["--json"]].concat()).stdout).unwrap()
}

fn modules(kind: u8) -> SmbiosBuilder {
    SmbiosBuilder::default()
        .array(1, 32 * GIB, 2)
        .module(2, 1, 8 * GIB, kind, 1, "ChannelA-DIMM0")
        .module(3, 1, 8 * GIB, kind, 1, "ChannelB-DIMM0")
}

fn laptop() -> TestMachine {
    let nodes = [
        PowerNodeEntry(0, 3, 0, 4 * GIB),
        PowerNodeEntry(1, 3, 4 * GIB, 4 * GIB),
        PowerNodeEntry(2, 3, 8 * GIB, 8 * GIB),
    ];
    TestMachine::physical(15 * GIB).dmi(modules(LPDDR5)).table("MPST", &mpst(&nodes, 300, 70, 2))
}

fn interleaved() -> TestMachine {
    let dmi = modules(DDR4).module_range(5, 2, 0, 16 * GIB, 1).module_range(6, 3, 0, 16 * GIB, 2);
    TestMachine::physical(15 * GIB).dmi(dmi)
}

fn contradictory() -> TestMachine {
    TestMachine::physical(15 * GIB).dmi(modules(LPDDR5).array_range(4, 1, 0, 64 * GIB, 1))
}

fn unreadable() -> TestMachine {
    let notes = r#"{"schema_version": 1, "problems": {"sys/firmware/dmi/tables/DMI": "permission",
        "sys/firmware/acpi/tables/MPST": "permission"}}"#;
    TestMachine::physical(15 * GIB).file("ramslice-capture.json", notes)
}

/// Compares what is printed of a machine with `expects/NAME.txt`.
fn expect(name: &str, from: &Path, args: &[&str]) {
    let line = [&["doctor"], args].concat();
    common::expect(name, &line, |line| command(line).arg("--from").arg(from).output().unwrap());
}

#[test]
fn verdicts_are_what_is_expected() {
    expect("doctor-laptop", laptop().path(), &["--mw-per-gib", "0-9.19"]);
    expect(
        "doctor-open",
        TestMachine::physical(15 * GIB).dmi(modules(LPDDR5)).path(),
        &["--mw-per-gib", "0-9.19"],
    );
    expect("doctor-interleaved", interleaved().path(), &[]);
    expect("doctor-contradictory", contradictory().path(), &[]);
    expect("doctor-unreadable", unreadable().path(), &[]);
    expect("doctor-guest", &here("data/doctor-guest"), &[]);
    expect("doctor-empty", TestMachine::new().path(), &[]);
}

#[test]
fn a_verdict_of_nothing_is_an_answer_and_no_verdict_is_a_failure() {
    assert_eq!(doctor(interleaved().path(), &[]).status.code(), Some(0));
    assert_eq!(doctor(TestMachine::new().path(), &[]).status.code(), Some(1));
    assert_eq!(doctor(TestMachine::new().path(), &["--json"]).status.code(), Some(1));
    let nowhere = doctor(Path::new("/nonexistent"), &[]);
    assert_eq!(nowhere.status.code(), Some(1));
    let text = String::from_utf8(nowhere.stderr).unwrap();
    assert!(text.starts_with("ramslice: /nonexistent cannot be read as a directory"), "{text}");
    assert_eq!(text.lines().count(), 1);
}

#[test]
fn a_saved_machine_is_refused_with_how_to_make_what_the_doctor_takes() {
    let output = doctor(&here("data/guest-8g.json"), &[]);
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("guest-8g.json is a file"), "{text}");
    assert!(text.contains("`ramslice doctor --capture DIR`"), "{text}");
}

#[test]
fn a_figure_that_makes_no_sense_is_wrong_usage() {
    for figure in ["9-1", "-3", "lots", "1e3"] {
        let output = doctor(laptop().path(), &[&format!("--mw-per-gib={figure}")]);
        assert_eq!(output.status.code(), Some(2), "{figure}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("LOW-HIGH"));
    }
}

#[test]
fn json_has_the_verdict_the_evidence_and_the_gaps() {
    let machine = laptop();
    let document = json(machine.path(), &["--mw-per-gib", "1-2"]);
    assert_eq!(
        (&document["schema_version"], &document["command"]),
        (&Value::from(1), &Value::from("doctor"))
    );
    let verdict = &document["verdict"];
    assert_eq!(verdict["kind"], "possible");
    assert_eq!(verdict["power_down"]["low_bytes"], 12 * GIB);
    assert_eq!(verdict["savings"][0]["high_mw"], 24.0);
    assert_eq!(verdict["slice"]["parameter"], "ramslice=firmware");
    assert_eq!(document["findings"]["mpst"]["nodes"][1]["states"][0]["saving_percent"], 70);
    let gap =
        document["gaps"].as_array().unwrap().iter().find(|gap| gap["input"] == "CXL").unwrap();
    assert_eq!((&gap["kind"], &gap["widens"]), (&Value::from("absent"), &Value::from(false)));
}

/// Numbers in JSON carry their unit, but for counts, ids and versions.
#[test]
fn numbers_in_json_are_named_with_their_unit() {
    const UNITS: [&str; 6] = ["_bytes", "_mw", "_ns", "_percent", "_share", "_mw_per_gib"];
    const PLAIN: [&str; 22] = [
        "schema_version",
        "handle",
        "array",
        "device",
        "sockets",
        "empty_sockets",
        "ranks",
        "partition_width",
        "interleave_position",
        "interleaved_data_depth",
        "interleave_ways",
        "code",
        "id",
        "value",
        "domain",
        "initiator",
        "latency_tables",
        "modules",
        "modules_said_interleaved",
        "unused_mappings",
        "parts",
        "blocks",
    ];
    fn walk(name: &str, value: &Value) {
        match value {
            Value::Object(fields) => fields.iter().for_each(|(name, value)| walk(name, value)),
            Value::Array(items) => items.iter().for_each(|item| walk(name, item)),
            Value::Number(_) => {
                let known = UNITS.iter().any(|unit| name.ends_with(unit)) || PLAIN.contains(&name);
                assert!(known, "`{name}` has no unit");
            }
            _ => {}
        }
    }
    for machine in [laptop(), interleaved(), contradictory()] {
        walk("", &json(machine.path(), &["--mw-per-gib", "1-2"]));
    }
    walk("", &json(&here("data/doctor-guest"), &[]));
}

#[test]
fn a_capture_is_written_and_looked_at_again() {
    let machine = laptop();
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("tables");
    let name = target.to_str().unwrap();
    let output = doctor(machine.path(), &["--capture", name]);
    assert!(output.status.success());
    assert!(String::from_utf8_lossy(&output.stdout).contains("serial numbers blanked"));
    assert_eq!(json(&target, &[])["verdict"], json(machine.path(), &[])["verdict"]);
    let again = doctor(machine.path(), &["--capture", name]);
    assert_eq!(again.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&again.stderr).contains("is not empty"));
    let document = json(machine.path(), &["--capture", dir.path().join("two").to_str().unwrap()]);
    assert_eq!(document["unreadable"], Value::Array(Vec::new()));
    assert!(document["files"].as_array().unwrap().len() > 3);
}

#[test]
fn the_running_machine_gets_an_answer_whatever_it_is() {
    let run =
        |args: &[&str]| Command::new(env!("CARGO_BIN_EXE_ramslice")).args(args).output().unwrap();
    let output = run(&["doctor", "--json"]);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    // /proc/meminfo is there for every user, so that at least the size is known.
    assert_ne!(document["verdict"]["kind"], "unknown");
    assert_eq!(document["root"], "/");
}
