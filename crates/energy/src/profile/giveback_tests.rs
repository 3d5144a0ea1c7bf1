//! The built-in profile reads; wrong files are refused by line; a file of one kind is not taken
//! for the other.

use crate::profile::{DramProfile, WorthProfile, builtin_giveback, builtin_text};
use crate::worth::WorthUnit;

use super::*;

fn text() -> &'static str {
    builtin_text("giveback").unwrap()
}

/// The built-in one with one line changed.
fn changed(from: &str, to: &str) -> String {
    assert_eq!(text().matches(from).count(), 1, "`{from}` must occur once");
    text().replacen(from, to, 1)
}

/// The built-in one in money.
fn money() -> String {
    changed("\nkind = \"giveback\"", "\nkind = \"giveback\"\ncurrency = \"EUR\"")
        .replace("\"GiB h/", "\"EUR/")
        .replace(
            "\nfrequency",
            "\nmemory = { low = 0.004, high = 0.005, unit = \"EUR/GiB h\", source = \"a bill\" }\n\
             frequency",
        )
}

#[test]
fn the_built_in_one_counts_in_gib_hours() {
    let profile = builtin_giveback().unwrap();
    assert_eq!((profile.name.as_str(), profile.unit), ("giveback", WorthUnit::GibHour));
    assert!((profile.memory.value.unwrap().low().0 * 3600.0 - 1.0).abs() < 1e-12);
    assert!((profile.cpu.value.unwrap().high().0 * 3600.0 - 9.11).abs() < 1e-9);
    assert_eq!(profile.rows().len(), 13);
    assert!(profile.rows().iter().all(|row| !row.source.is_empty()));
}

#[test]
fn with_a_currency_all_figures_are_money() {
    let profile = GivebackProfile::parse(&money(), "my.toml").unwrap();
    assert_eq!(profile.unit.to_string(), "EUR");
    let hour = profile.memory.value.unwrap();
    assert!((hour.high().0 * 3600.0 - 0.005).abs() < 1e-12, "{hour:?}");
}

#[test]
fn what_is_wrong_is_named_with_its_line_and_what_is_allowed() {
    let built_in = |from: &str, to: &str| changed(from, to);
    let in_money = |from: &str, to: &str| {
        assert!(money().contains(from), "{from}");
        money().replacen(from, to, 1)
    };
    for (text, line_of, words) in [
        (built_in("cpu = { low = 9.09", "cpu = { low = 99"), "cpu =", "inverted"),
        (built_in("cpu = { low = 9.09", "cpu = { low = -9"), "cpu =", "negative"),
        (built_in("GiB h/CPU h\", s", "USD/CPU h\", s"), "cpu =", "GiB h/CPU h, GiB h/CPU s"),
        (built_in("unit = \"GiB h/wake\", ", ""), "wake =", "wake has no unit"),
        (built_in("unit = \"GiB h/wake\", source", "unit = \"GiB h/wake\", x"), "wake =", "`x`"),
        (
            built_in(
                "wake = { low = 0, high = 2.5e-6, unit = \"GiB h/wake\", ",
                "wake = { unknown = true, ",
            ),
            "wake =",
            "a decision needs it",
        ),
        (built_in("frequency = { low = 2", "frequency = { low = 0"), "frequency", "above"),
        (built_in("schema_version = 1", "schema_version = 2"), "schema_version", "know 1"),
        (built_in("kind = \"giveback\"", "kind = \"money\""), "kind", "\"power\" (of DRAM) or"),
        (
            built_in(
                "\nfrequency",
                "\nmemory = { value = 1, unit = \"x\", source = \"y\" }\nfrequency",
            ),
            "memory",
            "take it out",
        ),
        (
            in_money("\ncurrency = \"EUR\"", "\ncurrency = \"Euro\""),
            "currency",
            "three capital letters",
        ),
        (in_money("memory = { low = 0.004, high = 0.005, unit", "# unit"), "currency", "EUR/GiB h"),
        (
            in_money("memory = { low = 0.004, high = 0.005", "memory = { low = 0, high = 0"),
            "memory",
            "nothing could be earned",
        ),
    ] {
        let error = WorthProfile::parse(&text, "my.toml").expect_err("refused");
        let at = text.lines().position(|line| line.starts_with(line_of)).unwrap() + 1;
        assert_eq!(error.line, at, "{error}");
        assert!(error.message.contains(words), "{error}");
    }
}

#[test]
fn a_missing_figure_is_named() {
    for field in ["cpu = ", "refaults = ", "host_faults = ", "wake = ", "migrate_page = "] {
        let kept: Vec<&str> = text().lines().filter(|line| !line.starts_with(field)).collect();
        let error = GivebackProfile::parse(&kept.join("\n"), "my.toml").expect_err(field);
        let name = field.trim_end_matches(" = ");
        assert!(error.message.contains(&format!("missing field `{name}`")), "{error}");
    }
}

#[test]
fn a_file_of_one_kind_is_not_taken_for_the_other() {
    let error = DramProfile::parse(text(), "g.toml").unwrap_err();
    assert!(error.to_string().starts_with("g.toml:"), "{error}");
    assert!(error.message.contains("name a profile of kind \"power\""), "{error}");
    let parc = builtin_text("thesis-parc").unwrap();
    let error = GivebackProfile::parse(parc, "p.toml").unwrap_err();
    assert!(error.message.contains("name a profile of kind \"giveback\""), "{error}");
    assert!(matches!(WorthProfile::parse(parc, "p.toml"), Ok(WorthProfile::Power(_))));
    let named = parc.replacen("schema_version", "kind = \"power\"\nschema_version", 1);
    assert!(matches!(WorthProfile::parse(&named, "p.toml"), Ok(WorthProfile::Power(_))));
    assert!(matches!(WorthProfile::parse(text(), "g.toml"), Ok(WorthProfile::Giveback(_))));
}
