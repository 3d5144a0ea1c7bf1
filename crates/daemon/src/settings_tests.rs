//! Settings: what is right, and what is refused, where and why.

use std::collections::BTreeMap;
use std::fs;

use ramslice_types::CacheChoice;

use super::*;

fn parse(text: &str) -> Result<DaemonSettings, SettingsError> {
    DaemonSettings::parse(text, "x.toml")
}

/// All settings as text, but for the lines that they stand in.
fn all_of(settings: DaemonSettings) -> String {
    let mut policy = settings.policy.clone().at("", BTreeMap::default());
    // Left out, it is filled in at each use.
    let timeout = policy.watermarks.timeout();
    policy.watermarks.timeout_seconds = Some(timeout.as_secs_f64());
    format!("{:?}", DaemonSettings { policy, ..settings })
}

/// The sample with the defaults that it has as comments, and with the examples or without.
fn uncommented(with_examples: bool) -> String {
    let line = |line: &'static str| -> &str {
        let Some(rest) = line.strip_prefix("# ") else { return line };
        match rest.strip_prefix("e.g. ") {
            Some(example) if with_examples => example,
            Some(_) => line,
            None => {
                let name = rest.split_once(" = ").map_or("", |(name, _)| name);
                let is_setting = !name.is_empty() && !name.contains(' ');
                if rest.starts_with('[') || is_setting { rest } else { line }
            }
        }
    };
    SAMPLE.lines().flat_map(|text| [line(text), "\n"]).collect()
}

#[test]
fn what_the_sample_shows_without_e_g_is_the_default() {
    let empty = all_of(parse("schema_version = 1\n").unwrap());
    let sample = DaemonSettings::defaults();
    assert_eq!((sample.mode, sample.period), (DaemonMode::Observe, Duration::from_secs(30)));
    assert!(sample.listen.unwrap().ip().is_loopback());
    assert_eq!(all_of(sample), empty);
    let text = uncommented(false);
    for setting in ["floor_mib = 0 ", "resize_slices = true ", "low = 0.75 ", "max_share = 0.5 "] {
        assert!(text.contains(&format!("\n{setting}")), "{setting} is no default of the sample");
    }
    assert_eq!(all_of(parse(&text).unwrap()), empty);
}

#[test]
fn every_example_of_the_sample_is_allowed() {
    let text = uncommented(true);
    assert_eq!(parse(&text).unwrap().max_slices, Some(16));
    assert!(text.contains("\n[governor]\n") && text.contains("\ntime_factor"));
    assert!(!text.contains("e.g. "), "{text}");
}

#[test]
fn faults_at_the_end_of_a_line_are_told_in_files_with_carriage_returns_too() {
    for wrong in ["mode = \"on", "period_seconds = '30", "mode", "mode =", "[stop"] {
        let text = |end: &str| ["schema_version = 1", wrong, "[limits]", ""].join(end);
        let [unix, dos] = ["\n", "\r\n"].map(|end| parse(&text(end)).unwrap_err());
        assert_eq!((unix.faults[0].line, dos.faults[0].line), (2, 2), "{wrong}");
        let shown = |error: &SettingsError| error.report().contains(&format!(" 2 | {wrong}\n"));
        assert!(shown(&unix) && shown(&dos), "{}", dos.report());
    }
}

/// Whether each text is refused, with its place and with these words.
fn refused(rows: &[(&str, &str, &str)], head: &str) {
    for (text, place, words) in rows {
        let error = parse(&format!("{head}{text}")).expect_err(text).to_string();
        assert!(
            error.starts_with(&format!("x.toml:{place}: ")) && error.contains(words),
            "{text}\n{error}"
        );
    }
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_what_is_allowed() {
    let rows = [
        (r#"mode = "of""#, "2:8", "`observe`, `on`, `off`"),
        (r#"moed = "on""#, "2:1", "expected one of `schema_version`, `mode`"),
        ("mode = on", "2:8", ""),
        ("period_seconds = 0", "2:18", "from 0.05 to 3600"),
        ("period_seconds = nan", "2:18", "from 0.05 to 3600"),
        (r#"period_seconds = "30""#, "2:18", r#"is "30": it must be a number from 0.05 to 3600"#),
        (r#"backend = "hotplug""#, "2:11", "`auto`, `kernel`, `stock`"),
        (r#"policy = "best""#, "2:10", "`governor`"),
        ("[governor]\nday = 1", "3:1", "`day_seconds`"),
        ("[governor]\n  day_seconds = -1.0", "3:17", "at least 0"),
        ("[threshold]\nlow = 0.9\nhigh = 0.8", "3:7", "0 < low < high <= 1"),
        (
            "[watermarks]\nfree_low_mib = 1024\nfree_high_mib = 1024",
            "4:17",
            "above free_low_mib plus the size of a slice",
        ),
        ("[repair]\nmax_share = 2", "3:13", "from 0 to 1"),
        ("[repair]\nmax_slices = 0", "3:14", "at least 1"),
        ("[repair]\ncandidates = \"all\"", "3:14", "`price` or `paper`"),
        ("[takers]\nhuge = -1", "3:8", "takers.huge is -1: it must be a number from 0 to 10"),
        ("[takers]\nsleep = \"much\"", "3:9", "takers.sleep is \"much\": it must be a number"),
        ("[takers]\nhuge_count = 1.5", "3:14", "takers.huge_count is 1.5: it must be a whole"),
        ("[takers]\nhuge_node = -1", "3:13", "takers.huge_node is -1: it must be a whole number"),
        (
            "[takers]\nhuge_node = \"one\"",
            "3:13",
            "takers.huge_node is \"one\": it must be a whole",
        ),
        ("[takers]\nhuge_size = \"3MiB\"", "3:13", "takers.huge_size: `3MiB` is no size of a page"),
        ("[takers]\nhuge_size = \"big\"", "3:13", "takers.huge_size: "),
        ("[takers]\ncount = 4", "3:1", "expected one of `sleep`, `host`, `huge`, `buffers`"),
        ("[takers]\nsettle_seconds = -1", "3:18", "a number from 0 to 86400"),
        ("takers = 4", "2:10", "takers is 4: it must be a table, which begins with [takers]"),
        ("[energy]\nprofile = \"my-ram\"", "3:11", "thesis-parc"),
        ("[energy]\nprofile = \"/no/such.toml\"", "3:11", "reading /no/such.toml"),
        ("[energy]\nprofile = \"my-ram\"", "3:11", "giveback, \"none\", or the path"),
        ("[energy]\nprofile = 5", "3:11", "as in \"thesis-parc\" or \"giveback\", \"none\""),
        ("[energy]\nstate = \"asleep\"", "3:9", "it has parc"),
        ("[energy]\nprofile = \"giveback\"\nstate = \"parc\"", "4:9", "about DRAM"),
        ("[energy]\nprofile = \"none\"\ngranularity = \"slice\"", "4:15", "take it out"),
        ("[energy]\nmachine = \"giveback\"", "3:11", "names no machine"),
        ("[limits]\nfloor = 1", "3:1", "`floor_mib`, `burst_reserve_mib`, `stall_ms_per_second`"),
        ("[limits]\nfloor_mib = -1", "3:13", "limits.floor_mib is -1: it must be a number of at"),
        ("[limits]\nburst_reserve_mib = \"1G\"", "3:21", "a number of at least 0"),
        ("[limits]\nstall_ms_per_second = nan", "3:23", "at least 0"),
        ("limits = 1", "2:10", "a table, which begins with [limits]"),
        ("[energy]\nprofile = \"ddr4-states\"", "3:11", "energy.machine"),
        ("[energy]\nmachine = \"ddr5-modes\"", "3:11", "names no machine"),
        ("[energy]\ngranularity = \"big\"", "3:15", r#""slice""#),
        ("[energy]\ngranularity = \"0\"", "3:15", "nothing could be switched"),
        ("[energy]\ntime_factor = \"slow\"", "3:15", r#""12..18""#),
        ("[energy]\ntime_factor = \"0\"", "3:15", "above 0"),
        ("[requests]\nmax_slices = 0", "3:14", "from 1 to"),
        ("[requests]\ndeadline_seconds = 61", "3:20", "from 0.1 to 60"),
        ("[pressure]\nstall_ms = 900\nwindow_ms = 500", "3:12", "window_ms"),
        ("[stop]\nslices = \"keep\"", "3:10", "`leave`"),
        ("[stop]\nslices = 1", "3:10", r#"stop.slices is 1: it must be "auto", "leave""#),
        ("mode = true", "2:8", r#"mode is true: it must be "observe", "on" or "off""#),
        ("[pressure]\nstall_ms = 1.5", "3:12", "a whole number from 0 to 10000"),
        ("[requests]\nmax_slices = -1", "3:14", "a whole number from 1 to 1048576"),
        ("[governor]\nday_seconds = \"a\"", "3:15", "a number of at least 0"),
        ("[energy]\ntime_factor = 15", "3:15", r#""15" or "12..18""#),
        ("[stock]\nlook_share = 0.9", "3:14", "a number from 0.0001 to 0.5"),
        ("[cold]\nautomatic = 1", "3:13", "cold.automatic is 1: it must be true or false"),
        ("[cold]\nidle = \"soon\"", "3:8", "cold.idle: `soon` is not a time"),
        ("[cold]\nidle = \"50ms\"", "3:8", "at least 100ms"),
        ("[cold]\nidle = 30", "3:8", "as in \"30s\" or \"2min\""),
        ("[cold]\nrate = \"1\"", "3:8", "at least 4KiB"),
        ("[cold]\nin_use = 0", "3:10", "cold.in_use is 0: it must be a number from 0.01 to 1"),
        ("[cold]\ncpu_share = 2.0", "3:13", "from 0.001 to 1"),
        ("[cold]\nexcept = [\"/a\", \"b\"]", "3:17", "cold.except has `b`"),
        ("[cold]\nexcept = [\"/a/../b\"]", "3:11", "the path of a control group"),
        ("[cold]\nautomtic = true", "3:1", "`automatic`"),
        ("[cold]\nexcept = [\"/a//b\"]", "3:11", "the path of a control group"),
        ("[cold]\nexcept = [\"/./a\"]", "3:11", "the path of a control group"),
        (
            "[cold.rate_by_group]\n\"/a\"=\"1M\"\n\"/b\"=\"1M\"\n\"/c\"=\"1M\"\n\"/d\"=\"1M\"\n\
             \"/e\"=\"1M\"",
            "7:6",
            "at most 4",
        ),
        ("[cold]\nrate_by_group = \"4M\"", "3:17", "by control group"),
        ("[cold.rate_by_group]\n\"/a\" = 4", "3:8", "as in \"4MiB\""),
        ("[cold.rate_by_group]\n\"a\" = \"4M\"", "3:7", "cold.rate_by_group has `a`"),
        ("[cold.rate_by_group]\n\"/a\" = \"1\"", "3:8", "at least 4KiB"),
        ("[cold]\nexcept = [\"/a\"]\n[cold.rate_by_group]\n\"/a\" = \"4M\"", "5:8", "cold.except"),
        (r#"stop = "wake""#, "2:8", "a table, which begins with [stop]"),
        ("[metrics]\nlisten = \"localhost\"", "3:10", r#""off""#),
    ];
    refused(&rows, "schema_version = 1\n");
}

#[test]
fn a_version_that_is_missing_or_another_is_refused() {
    let rows = [
        ("schema_version = 2", "1:18", "this daemon knows 1"),
        ("mode = \"on\"", "1:1", "only a drop-in"),
        ("schema_version = \"1\"", "1:18", "it must be 1"),
    ];
    refused(&rows, "");
}

#[test]
fn all_values_that_are_wrong_are_told_at_once_in_the_order_of_the_file() {
    let text = "schema_version = 1\nperiod_seconds = 0\n[metrics]\nlisten = \"x\"\n[requests]\n\
        max_slices = 0\n";
    let error = parse(text).unwrap_err();
    let lines: Vec<usize> = error.faults.iter().map(|wrong| wrong.line).collect();
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
    let all = policies::spans(&uncommented(true));
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
    let error = DaemonSettings::read(&file).unwrap_err().to_string();
    assert!(
        error.contains("c.toml:2:9: ") && error.contains("0xe4") && error.contains("UTF-8"),
        "{error}"
    );
}

/// A settings file with drop-ins, by name.
fn with_drop_ins(main: &str, parts: &[(&str, &str)]) -> Result<DaemonSettings, String> {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("c.toml");
    fs::write(&file, main).unwrap();
    fs::create_dir(dir.path().join("c.toml.d")).unwrap();
    for (name, text) in parts {
        fs::write(dir.path().join("c.toml.d").join(name), text).unwrap();
    }
    let read = DaemonSettings::read(&file);
    read.map_err(|error| error.to_string().replace(&dir.path().display().to_string(), ""))
}

#[test]
fn drop_ins_set_what_they_name_in_the_order_of_their_names() {
    let main =
        "schema_version = 1\nmode = \"on\"\n[pressure]\npause_seconds = 9\nwindow_ms = 9000\n";
    let settings = with_drop_ins(
        main,
        &[
            ("20-late.toml", "period_seconds = 20\n"),
            ("10-early.toml", "period_seconds = 10\nmode = \"off\"\n[pressure]\nstall_ms = 5000\n"),
            ("30-other.conf", "no settings"),
            (".hidden.toml", "no settings"),
        ],
    )
    .unwrap();
    assert_eq!((settings.mode, settings.period), (DaemonMode::Off, Duration::from_secs(20)));
    // More than the default window, but not more than the file's.
    assert_eq!(settings.pressure.stall, Some(Duration::from_secs(5)));
    assert_eq!(settings.pressure.pause, Duration::from_secs(9));
}

#[test]
fn the_drop_in_for_giving_memory_back_is_taken_and_is_what_its_page_says() {
    let example = include_str!("../../../packaging/examples/giveback.toml");
    let page = include_str!("../../../docs/how-to/give-memory-back.md");
    let settings = with_drop_ins(super::SAMPLE, &[("giveback.toml", example)]).unwrap();
    assert_eq!((settings.mode, settings.period), (DaemonMode::On, Duration::from_secs(3)));
    assert_eq!(settings.policy.periodic.empty_seconds, Some(0.0));
    assert_eq!(settings.policy.periodic.wait_while_busy_seconds, Some(60.0));
    assert_eq!(settings.policy.periodic.cache, CacheChoice::Auto);
    let said = page.split("```").find_map(|part| part.strip_prefix("toml\n")).unwrap();
    assert!(example.ends_with(said), "the page says\n{said}");
}

#[test]
fn what_is_wrong_in_a_drop_in_is_told_with_its_file_and_place() {
    let main = "schema_version = 1\n";
    let refused = |text: &str| with_drop_ins(main, &[("a.toml", text)]).unwrap_err();
    let error = refused("[repair]\nmax_share = 2\n");
    assert!(error.starts_with("/c.toml.d/a.toml:2:13: "), "{error}");
    let error = refused("mode = on\n");
    assert!(error.starts_with("/c.toml.d/a.toml:1:8: "), "{error}");
    let error = refused("schema_version = 2\n");
    assert!(error.starts_with("/c.toml.d/a.toml:1:18: "), "{error}");
    // Neither is wrong alone.
    let main = "schema_version = 1\n[pressure]\nstall_ms = 1500\n";
    let error = with_drop_ins(main, &[("a.toml", "[pressure]\nwindow_ms = 1000\n")]).unwrap_err();
    assert!(error.starts_with("/c.toml with 1 drop-in: pressure.stall_ms is 1500"), "{error}");
    // What a drop-in mends is not wrong.
    let main = "schema_version = 1\nperiod_seconds = 0\n";
    with_drop_ins(main, &[("a.toml", "period_seconds = 5\n")]).unwrap();
}

#[test]
fn an_empty_file_is_said_to_be_empty() {
    for text in ["", "\n  \n"] {
        let error = parse(text).unwrap_err().report();
        assert!(error.starts_with("x.toml: the file is empty"), "{error}");
        assert!(error.contains("`schema_version = 1`") && error.contains("--print-config"));
    }
}

#[test]
fn a_file_that_is_there_but_cannot_be_read_needs_no_sample() {
    let place = tempfile::tempdir().unwrap();
    let error = DaemonSettings::read(place.path()).unwrap_err().to_string();
    assert!(error.contains("cannot be read: "), "{error}");
    assert!(!error.contains("--print-config"), "{error}");
}

#[test]
fn a_file_that_is_not_there_is_named_with_what_to_do() {
    let error = DaemonSettings::read(Path::new("/no/such/file.toml")).unwrap_err().to_string();
    assert!(
        error.starts_with("/no/such/file.toml: ") && error.contains("--print-config"),
        "{error}"
    );
}

#[test]
fn control_groups_may_have_a_rate_of_their_own() {
    let text = "schema_version = 1\n[cold]\n\
                rate_by_group = { \"/a.slice\" = \"4MiB\", \"/b\" = \"4KiB\" }";
    let settings = DaemonSettings::parse(text, "x.toml").unwrap();
    let rates: Vec<_> = settings.cold.rate_by_group.into_iter().collect();
    assert_eq!(
        rates,
        [
            ("/a.slice".to_owned(), ramslice_types::Bytes(4 << 20)),
            ("/b".to_owned(), ramslice_types::Bytes(4096))
        ]
    );
}
