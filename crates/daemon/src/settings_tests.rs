//! Settings: what is right, and what is refused, where and why.

use super::*;

fn parse(text: &str) -> Result<Settings, SettingsError> {
    Settings::parse(text, "x.toml")
}

#[test]
fn the_sample_has_the_defaults_of_an_empty_file() {
    let (sample, empty) = (Settings::defaults(), parse("schema_version = 1\n").unwrap());
    let facts = |s: &Settings| {
        let policy = serde_json::to_string(&s.policy).unwrap();
        let rest = (s.period, s.backend, s.deadline, s.max_slices, s.pressure, s.save, s.on_stop, s.listen);
        format!("{:?} {policy} {} {rest:?}", s.mode, s.energy.name())
    };
    assert_eq!(facts(&sample), facts(&empty));
    assert_eq!((sample.mode, sample.period), (Mode::Observe, Duration::from_secs(30)));
    assert!(sample.listen.unwrap().ip().is_loopback());
}

/// The sample with what it has as comments.
fn uncommented() -> String {
    let lines = SAMPLE.lines().map(|line| match line.strip_prefix("# ") {
        Some(rest) if rest.starts_with('[') || (rest.contains(" = ") && !rest.contains("...")) => rest,
        _ => line,
    });
    lines.flat_map(|line| [line, "\n"]).collect()
}

#[test]
fn every_setting_that_the_sample_has_as_a_comment_is_allowed() {
    let text = uncommented();
    let settings = parse(&text).unwrap();
    assert_eq!(settings.max_slices, Some(16));
    assert!(text.contains("\n[governor]\n") && text.contains("\ntime_factor"));
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_what_is_allowed() {
    for (text, place, words) in [
        ("schema_version = 1\nmode = \"of\"", "x.toml:2:8", "`observe`, `on`, `off`"),
        ("schema_version = 1\nmoed = \"on\"", "x.toml:2:1", "expected one of `schema_version`, `mode`"),
        ("schema_version = 2", "x.toml:1:18", "this daemon knows 1"),
        ("mode = \"on\"", "x.toml:1:1", "missing field `schema_version`"),
        ("schema_version = 1\nmode = on", "x.toml:2:8", ""),
        ("schema_version = 1\nperiod_seconds = 0", "x.toml:2:18", "from 0.05 to 3600"),
        ("schema_version = 1\nperiod_seconds = nan", "x.toml:2:18", "from 0.05 to 3600"),
        (
            "schema_version = 1\nperiod_seconds = \"30\"",
            "x.toml:2:18",
            "is \"30\": it must be a number from 0.05 to 3600",
        ),
        ("schema_version = 1\nbackend = \"hotplug\"", "x.toml:2:11", "`auto`, `kernel`, `stock`"),
        ("schema_version = 1\npolicy = \"best\"", "x.toml:2:10", "`governor`"),
        ("schema_version = 1\n[governor]\nday = 1", "x.toml:3:1", "`day_seconds`"),
        ("schema_version = 1\n[governor]\n  day_seconds = -1.0", "x.toml:3:17", "at least 0"),
        ("schema_version = 1\n[threshold]\nlow = 0.9\nhigh = 0.8", "x.toml:3:7", "0 < low < high <= 1"),
        (
            "schema_version = 1\n[watermarks]\nfree_low_mib = 1024\nfree_high_mib = 1024",
            "x.toml:4:17",
            "above free_low_mib plus the size of a slice",
        ),
        ("schema_version = 1\n[repair]\nmax_share = 2", "x.toml:3:13", "from 0 to 1"),
        ("schema_version = 1\n[repair]\nmax_slices = 0", "x.toml:3:14", "at least 1"),
        ("schema_version = 1\n[repair]\ncandidates = \"all\"", "x.toml:3:14", "`price` or `paper`"),
        ("schema_version = 1\n[energy]\nprofile = \"my-ram\"", "x.toml:3:11", "thesis-parc"),
        ("schema_version = 1\n[energy]\nprofile = \"/no/such.toml\"", "x.toml:3:11", "reading /no/such.toml"),
        ("schema_version = 1\n[energy]\nstate = \"asleep\"", "x.toml:3:9", "it has parc"),
        ("schema_version = 1\n[energy]\nprofile = \"ddr4-states\"", "x.toml:3:11", "energy.machine"),
        ("schema_version = 1\n[energy]\nmachine = \"ddr5-modes\"", "x.toml:3:11", "names no machine"),
        ("schema_version = 1\n[energy]\ngranularity = \"big\"", "x.toml:3:15", "\"slice\""),
        ("schema_version = 1\n[energy]\ngranularity = \"0\"", "x.toml:3:15", "nothing could be switched"),
        ("schema_version = 1\n[energy]\ntime_factor = \"slow\"", "x.toml:3:15", "\"12..18\""),
        ("schema_version = 1\n[energy]\ntime_factor = \"0\"", "x.toml:3:15", "above 0"),
        ("schema_version = 1\n[requests]\nmax_slices = 0", "x.toml:3:14", "from 1 to"),
        ("schema_version = 1\n[requests]\ndeadline_seconds = 61", "x.toml:3:20", "from 0.1 to 60"),
        ("schema_version = 1\n[pressure]\nstall_ms = 900\nwindow_ms = 500", "x.toml:3:12", "window_ms"),
        ("schema_version = 1\n[stop]\nslices = \"keep\"", "x.toml:3:10", "`leave`"),
        (
            "schema_version = 1\n[stop]\nslices = 1",
            "x.toml:3:10",
            "stop.slices is 1: it must be \"auto\", \"leave\"",
        ),
        (
            "schema_version = 1\nmode = true",
            "x.toml:2:8",
            "mode is true: it must be \"observe\", \"on\" or \"off\"",
        ),
        ("schema_version = \"1\"", "x.toml:1:18", "it must be 1"),
        ("schema_version = 1\n[pressure]\nstall_ms = 1.5", "x.toml:3:12", "a whole number from 0 to 10000"),
        (
            "schema_version = 1\n[requests]\nmax_slices = -1",
            "x.toml:3:14",
            "a whole number from 1 to 1048576",
        ),
        ("schema_version = 1\n[governor]\nday_seconds = \"a\"", "x.toml:3:15", "a number of at least 0"),
        ("schema_version = 1\n[energy]\ntime_factor = 15", "x.toml:3:15", "\"15\" or \"12..18\""),
        ("schema_version = 1\nstop = \"wake\"", "x.toml:2:8", "a table, which begins with [stop]"),
        ("schema_version = 1\n[metrics]\nlisten = \"localhost\"", "x.toml:3:10", "\"off\""),
    ] {
        let error = parse(text).expect_err(text).to_string();
        assert!(error.starts_with(&format!("{place}: ")) && error.contains(words), "{text}\n{error}");
    }
}

#[test]
fn all_values_that_are_wrong_are_told_at_once_in_the_order_of_the_file() {
    let text =
        "schema_version = 1\nperiod_seconds = 0\n[metrics]\nlisten = \"x\"\n[requests]\nmax_slices = 0\n";
    let error = parse(text).unwrap_err();
    let lines: Vec<usize> = error.wrong.iter().map(|wrong| wrong.line).collect();
    assert_eq!(lines, [2, 4, 6]);
}

#[test]
fn the_report_marks_what_is_meant_below_its_line() {
    let report = parse("schema_version = 1\nmode = \"of\"").unwrap_err().report();
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines[1..], [" 2 | mode = \"of\"", "   |        ^^^^"]);
}

#[test]
fn the_value_is_marked_and_not_its_name() {
    let report = parse("schema_version = 1\n[governor]\nday_seconds = -5").unwrap_err().report();
    let lines: Vec<&str> = report.lines().collect();
    assert_eq!(lines[1..], [" 3 | day_seconds = -5", "   |               ^^"]);
}

#[test]
fn there_are_words_for_every_setting_of_the_sample() {
    let all = policies::spans(&uncommented());
    assert!(all.len() > 30 && all.contains_key("governor.day_seconds"), "{all:?}");
    for name in all.keys() {
        assert!(allowed(name).is_some(), "{name}");
    }
    assert_eq!(allowed("governor.day"), None);
}

#[test]
fn a_byte_that_is_no_text_is_told_with_its_place() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    fs::write(&file, b"schema_version = 1\nmode = \"\xe4\"\n").unwrap();
    let error = Settings::read(&file).unwrap_err().to_string();
    assert!(error.contains("c.toml:2:9: ") && error.contains("0xe4") && error.contains("UTF-8"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named_with_what_to_do() {
    let error = Settings::read(Path::new("/no/such/file.toml")).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/file.toml: ") && error.contains("--print-config"), "{error}");
}
