//! `ramslice-lab profiles` from outside.

mod common;

use std::fs;
use std::process::Output;

use common::{command, expect, here};
use serde_json::Value;

fn run(args: &[&str]) -> Output {
    command(args).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    serde_json::from_slice(&run(args).stdout).unwrap()
}

#[test]
fn profiles_are_listed_and_shown_as_expected() {
    for (name, args) in [
        ("profiles", vec!["profiles"]),
        ("profiles-rdram", vec!["profiles", "rdram"]),
        ("profiles-parc", vec!["profiles", "thesis-parc"]),
        ("profiles-giveback", vec!["profiles", "giveback"]),
        ("profiles-unknown", vec!["profiles", "ddr9"]),
    ] {
        expect(name, &args, run);
    }
    let document = json(&["profiles", "--json"]);
    let last = document["profiles"].as_array().unwrap().last().unwrap();
    assert_eq!((&last["name"], &last["gives_joules"]), (&"giveback".into(), &false.into()));
    assert_eq!(json(&["profiles", "giveback", "--json"])["unit"], "GiB h");
    assert_eq!(
        (&document["schema_version"], &document["command"]),
        (&1.into(), &"profiles".into())
    );
}

#[test]
fn a_profile_that_is_wrong_is_refused_by_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let name = path.to_str().unwrap();
    let template = String::from_utf8(run(&["profiles", "--template"]).stdout).unwrap();
    fs::write(&path, &template).unwrap();
    let right = run(&["profiles", name]);
    assert_eq!(right.status.code(), Some(0), "{}", String::from_utf8_lossy(&right.stderr));
    let line = template.lines().position(|line| line.starts_with("floor = ")).unwrap() + 1;
    fs::write(&path, template.replace("floor = { low = 71", "floor = { low = 76")).unwrap();
    for args in [&["profiles", name][..], &["sim", "run", "diurnal", "--profile", name]] {
        let wrong = run(args);
        assert_eq!(wrong.status.code(), Some(1), "{args:?}");
        assert!(wrong.stdout.is_empty());
        let text = String::from_utf8(wrong.stderr).unwrap();
        assert!(
            text.contains(&format!("{name}:{line}: floor of state `off` is inverted")),
            "{text}"
        );
    }
    let copy = run(&["profiles", "rdram", "--toml"]).stdout;
    assert_eq!(copy, fs::read(here("../../../profiles/rdram.toml")).unwrap());
}

#[test]
fn profiles_in_json_have_every_figure_with_unit_and_source() {
    let document = json(&["profiles", "ddr5-modes", "--json"]);
    let figures = document["figures"].as_array().unwrap();
    assert!(figures.iter().all(|figure| !figure["source"].as_str().unwrap().is_empty()));
    let parc = figures
        .iter()
        .find(|figure| figure["state"] == "parc" && figure["field"] == "saving")
        .expect("PARC has a saving");
    assert_eq!((parc["unit"].as_str(), parc["low"].as_f64()), (Some("W/GiB"), Some(0.0)));
    assert!((parc["high"].as_f64().unwrap() - 0.009_19).abs() < 1e-12);
    let all = json(&["profiles", "--json"]);
    assert_eq!(all["profiles"].as_array().unwrap().len(), 10);
}

#[test]
fn the_page_on_what_packing_is_worth_has_what_the_command_prints() {
    let output = run(&["profiles", "--worth"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let page = fs::read_to_string(here("../../../docs/reference/worth.md")).unwrap();
    let (_, rest) = page.split_once("<!-- worth -->\n").unwrap();
    let (tables, _) = rest.split_once("<!-- /worth -->").unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert_eq!(
        tables, printed,
        "put the output of `ramslice-lab profiles --worth` between the marks of worth.md"
    );
    let document = json(&["profiles", "--worth", "--json"]);
    let classes = document["classes"].as_array().unwrap();
    assert!(classes.iter().any(|class| class["share_of_machine"].is_null()), "{document}");
}
