//! The program from outside: output, exit status and JSON, over a saved machine.
//!
//! `data/guest-8g.json` is made up, not measured: every state and several reasons occur in it.

mod common;

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use common::{command, expect, here};
use ramslice_backend::ReplayBackend;
use ramslice_types::Backend;
use serde_json::Value;

fn fixture() -> PathBuf {
    here("data/guest-8g.json")
}

/// Runs over the fixture.
fn run(args: &[&str]) -> Output {
    command(args).arg("--from").arg(fixture()).output().unwrap()
}

/// Runs over the fixture with the pages of some slices.
fn run_pages(args: &[&str]) -> Output {
    command(args).arg("--from").arg(here("data/guest-pages.json")).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = run(args);
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{args:?}: {error}\n{}", String::from_utf8_lossy(&output.stdout))
    })
}

#[test]
fn commands_print_what_is_expected() {
    for (name, args) in [
        ("status", vec!["status"]),
        ("slices", vec!["slices"]),
        ("slices-price", vec!["slices", "--state", "online", "--sort", "price", "--limit", "8"]),
        ("slices-zone", vec!["slices", "--zone", "normal", "--sort", "free", "--limit", "3"]),
        ("slices-no-zone", vec!["slices", "--zone", "Movable"]),
        ("slices-more", vec!["slices", "--zone", "Normal", "--limit", "4", "-o", "+held,retry"]),
        (
            "slices-raw",
            vec!["slices", "--sort", "free", "-ro", "slice,address,price,free,retry,reason"],
        ),
        ("slices-bytes", vec!["slices", "--limit", "9", "-nbo", "slice,present,free,state"]),
        ("slices-unknown-column", vec!["slices", "-o", "slice,fre,state"]),
        ("map", vec!["map"]),
        ("map-narrow", vec!["map", "--width", "48"]),
        ("map-color", vec!["map", "--color", "always"]),
        ("offline", vec!["offline", "24,10", "3,6,13,0", "133"]),
        ("offline-empty", vec!["offline", "--empty"]),
        ("offline-unknown", vec!["offline", "30-40"]),
        ("offline-nothing", vec!["offline"]),
        ("online", vec!["online", "6", "24"]),
        ("online-all", vec!["online", "--all"]),
        ("compact", vec!["compact"]),
        ("compact-budget", vec!["compact", "--budget", "200k"]),
        ("compact-most", vec!["compact", "--max-slices", "2", "--zone", "Normal"]),
        ("compact-dry", vec!["compact", "--dry-run", "--json"]),
        ("giveback", vec!["giveback"]),
        ("giveback-other-driver", vec!["giveback", "--now"]),
        ("giveback-watch-saved", vec!["giveback", "--watch"]),
        ("giveback-watch-often", vec!["giveback", "--watch", "--interval", "1ms"]),
        ("giveback-verify-saved", vec!["giveback", "verify", "--pid", "1"]),
        ("top-once", vec!["top", "--once", "--profile", "thesis-parc", "--sort", "price"]),
        ("top-line", vec!["top", "--count", "1"]),
        ("top-interval", vec!["top", "--interval", "10ms"]),
        ("energy-moment", vec!["energy", "--profile", "thesis-parc"]),
        ("energy-slice", vec!["energy", "--profile", "thesis-parc", "--granularity", "slice"]),
        ("energy-undecided", vec!["energy", "--profile", "ddr5-modes", "--granularity", "slice"]),
        ("energy-relative", vec!["energy", "--profile", "ddr4-states"]),
        ("energy-no-saving", vec!["energy", "--profile", "ddr4-rdimm", "--state", "rank-mpsm"]),
        ("energy-no-state", vec!["energy", "--profile", "rdram", "--state", "off"]),
        ("energy-for", vec!["energy", "--profile", "rdram", "--for", "10s"]),
    ] {
        expect(name, &args, run);
    }
}

#[test]
fn raw_values_are_words_whose_numbers_are_those_of_json() {
    let printed = run(&["slices", "-nbr", "-o", "slice,node,free,present,price,reason,held"]);
    let printed = String::from_utf8(printed.stdout).unwrap();
    let document = json(&["slices", "--json"]);
    let (slices, page_bytes) = (&document["slices"], document["page_bytes"].as_u64().unwrap());
    let expected = slices.as_array().unwrap().iter().map(|slice| {
        let bytes = |pages: &Value| (pages.as_u64().unwrap() * page_bytes).to_string();
        let is_on = ["online", "emptying"].contains(&slice["state"].as_str().unwrap());
        let free = &slice["composition"]["free_pages"];
        let flag = |name: &str| slice[name].as_bool().unwrap();
        let price = match slice["state"].as_str().unwrap() {
            "online" if flag("unreclaimable") || flag("unmovable") || flag("backoff") => {
                "inf".into()
            }
            "online" => slice["price_100cycles"].to_string(),
            _ => "-".into(),
        };
        let reason = slice["reason"].as_str().unwrap();
        [
            slice["id"].to_string(),
            slice["node"].to_string(),
            if is_on { bytes(free) } else { "-".into() },
            bytes(&slice["present_pages"]),
            price,
            if reason == "none" { "-".into() } else { reason.to_owned() },
            if flag("held") { "yes".into() } else { "no".into() },
        ]
        .join(" ")
    });
    let expected: Vec<String> = expected.collect();
    assert!(expected.len() > 100 && expected.iter().any(|line| line.contains(" inf pinned ")));
    assert_eq!(printed.lines().collect::<Vec<_>>(), expected);
}

#[test]
fn options_of_the_table_and_json_exclude_each_other() {
    for (option, name) in [
        (&["-o", "slice"][..], "--output"),
        (&["-n"], "--no-header"),
        (&["-b"], "--bytes"),
        (&["-r"], "--raw"),
    ] {
        for args in
            [[&["slices", "--json"], option].concat(), [&["--json", "slices"], option].concat()]
        {
            let output = run(&args);
            assert_eq!(output.status.code(), Some(2), "{args:?}");
            assert!(output.stdout.is_empty(), "{args:?}");
            let text = String::from_utf8(output.stderr).unwrap();
            assert!(text.contains(&format!("{name} cannot be used with --json")), "{text}");
        }
    }
}

#[test]
fn a_capture_of_the_doctor_is_named_as_such_with_the_command_that_reads_it() {
    let capture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/doctor-guest");
    let output = command(&["status", "--from"]).arg(&capture).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("is a capture of `ramslice doctor`"), "{text}");
    assert!(text.contains(&format!("`ramslice doctor --from {}`", capture.display())), "{text}");
}

#[test]
fn joules_of_memory_that_is_given_back_are_refused_with_where_it_is_valued() {
    let output = command(&["energy", "--profile", "giveback"]).output().unwrap();
    assert_ne!(output.status.code(), Some(0));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("that gives no joules"), "{text}");
    assert!(text.contains("`ramslice giveback --watch`"), "{text}");
}

#[test]
fn help_lists_the_columns_that_an_error_allows() {
    let refused = run(&["slices", "-o", "?"]).stderr;
    let refused = String::from_utf8(refused).unwrap();
    let (_, names) = refused.split_once("the columns are ").unwrap();
    let names: Vec<&str> = names.lines().next().unwrap().split(", ").collect();
    assert!(names.contains(&"slice") && names.contains(&"retry"), "{refused}");
    let help = String::from_utf8(run(&["slices", "--help"]).stdout).unwrap();
    let dir = tempfile::tempdir().unwrap();
    run(&["man", "--dir", dir.path().to_str().unwrap()]);
    let page = fs::read_to_string(dir.path().join("ramslice-slices.1")).unwrap();
    let page = page.replace(r"\-", "-");
    for name in names {
        let described = |line: &str| {
            line.trim_start_matches([' ', '*'])
                .split_once(' ')
                .is_some_and(|(word, about)| word == name && about.trim().len() > 8)
        };
        assert!(help.lines().any(described), "--help does not describe {name}");
        assert!(page.lines().any(described), "the manual page does not describe {name}");
    }
}

#[test]
fn explanations_are_what_is_expected() {
    for (name, args) in [
        ("explain-slab", vec!["explain", "2"]),
        ("explain-pinned", vec!["explain", "13"]),
        ("explain-movable", vec!["explain", "5", "--limit", "1"]),
        ("explain-boot", vec!["explain", "1"]),
        ("explain-off", vec!["explain", "6,133"]),
        ("explain-all", vec!["explain", "--all"]),
        ("explain-not-saved", vec!["explain", "0"]),
        ("explain-unknown", vec!["explain", "99"]),
        ("explain-nothing", vec!["explain"]),
        ("map-slice", vec!["map", "2"]),
        ("map-slice-color", vec!["map", "13", "--color", "always", "--width", "60"]),
    ] {
        expect(name, &args, run_pages);
    }
}

#[test]
fn a_census_counts_every_page_once() {
    let output = run_pages(&["census", "--json"]);
    let document = serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let rows = document["slices"].as_array().unwrap();
    assert!(!rows.is_empty());
    for row in rows {
        let pages = row.as_object().unwrap().iter();
        let counted = pages
            .filter(|(name, _)| !matches!(name.as_str(), "slice" | "lru_pages" | "staying_pages"));
        assert_eq!(counted.filter_map(|(_, pages)| pages.as_u64()).sum::<u64>(), 16384, "{row}");
    }
    let totals = &document["totals"];
    let staying = rows.iter().filter(|row| row["staying_pages"].as_u64() > Some(0)).count() as u64;
    assert!(totals["slices_staying"].as_u64().unwrap() >= staying);
    assert!(totals["slices_staying_least"].as_u64() <= totals["slices_staying"].as_u64());
    assert!(totals["slices_unknown"].as_u64() > Some(0));
}

#[test]
fn an_explanation_in_json_has_everything_that_the_text_has() {
    let parse = |output: Output| serde_json::from_slice::<Value>(&output.stdout).unwrap();
    let document = parse(run_pages(&["explain", "2", "--json"]));
    let slice = &document["slices"][0];
    let text = String::from_utf8(run_pages(&["explain", "2"]).stdout).unwrap().replace('\n', " ");
    assert!(text.contains(slice["plain_words"].as_str().unwrap()), "{text}");
    assert_eq!(slice["groups"][0]["class"], "slab");
    assert_eq!(slice["sites"][0]["processes"][0]["name"], "updatedb");
    assert_eq!(
        (slice["page_owner"].as_str(), slice["price_100cycles"].as_u64()),
        (Some("on"), None)
    );
    let held: u64 = slice["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| group["pages"].as_u64().unwrap())
        .sum();
    assert_eq!(held, 16384);

    let document = parse(run_pages(&["explain", "--all", "--json"]));
    let stuck: Vec<u64> = document["stuck"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["slice"].as_u64().unwrap())
        .collect();
    assert_eq!(stuck, [1, 2, 13]);
    assert_eq!(document["next"][0]["slice"], 12);
    assert_eq!(document["slices_unknown"], 1);
}

#[test]
fn a_saved_machine_keeps_the_pages_it_was_saved_with() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved.json");
    fs::write(&saved, run_pages(&["status", "--json", "--pages", "2,13"]).stdout).unwrap();
    let again = ReplayBackend::open(&saved).unwrap().machine().unwrap();
    assert_eq!(again.contents.iter().map(|contents| contents.slice.0).collect::<Vec<_>>(), [2, 13]);
    let before = ReplayBackend::open(&here("data/guest-pages.json")).unwrap().machine().unwrap();
    assert!(again.contents.iter().all(|contents| before.contents.contains(contents)));
    let output = run(&["status", "--pages", "2"]);
    assert_eq!(output.status.code(), Some(2), "--pages is for --json");
}

#[test]
fn top_prints_in_json_what_it_shows() {
    let document = json(&["top", "--once", "--json", "--profile", "thesis-parc"]);
    assert_eq!(document["daemon"]["is"], "not-here", "no daemon decides in a saved machine");
    assert_eq!(document["census"]["empty_slices"], 3);
    assert!(document["energy"]["saved_watts"]["high"].as_f64().unwrap() > 0.0);
    assert!(document.get("last").is_none(), "one look is no rate");

    let lines = run(&["top", "--json", "--count", "2", "--interval", "100ms"]).stdout;
    let lines: Vec<Value> = String::from_utf8(lines)
        .unwrap()
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["command"] == "top" && line["schema_version"] == 1));
}

#[test]
fn top_shows_the_daemon_status_or_why_it_cannot_be_read() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("status.json");
    let top = |text: &str| {
        fs::write(&file, text).unwrap();
        json(&["top", "--once", "--json", "--status-file", file.to_str().unwrap()])["daemon"]
            .clone()
    };
    let status = r#"{"schema_version": 1, "written_unix_seconds": 1.5, "mode": "on",
        "policy": "governor",
        "period_seconds": 30, "next_step_seconds": 30, "machine": {"ok": true},
        "why": "does nothing"}"#;
    assert_eq!((&top(status)["is"], &top(status)["mode"]), (&"running".into(), &"on".into()));
    let broken = top("{");
    assert_eq!(broken["is"], "unreadable");
    assert!(broken["error"].as_str().unwrap().contains("status.json"));
}

#[test]
fn every_expected_output_has_a_command() {
    let source = [
        "cli.rs",
        "doctor.rs",
        "giveback.rs",
        "address_order.rs",
        "../src/commands/top/live_screen_tests.rs",
    ]
    .map(|file| fs::read_to_string(here(file)).unwrap())
    .concat();
    for entry in fs::read_dir(here("expects")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        let name = name.strip_suffix(".txt").expect("only expected outputs");
        assert!(source.contains(&format!("\"{name}\"")), "expects/{name}.txt is left over");
    }
}

#[test]
fn status_json_can_be_looked_at_again() {
    let dir = tempfile::tempdir().unwrap();
    let saved = dir.path().join("saved.json");
    fs::write(&saved, run(&["status", "--json"]).stdout).unwrap();
    let again = ReplayBackend::open(&saved).unwrap().machine().unwrap();
    assert_eq!(again, ReplayBackend::open(&fixture()).unwrap().machine().unwrap());
}

#[test]
fn every_json_document_has_its_version_and_command() {
    for args in [
        vec!["status"],
        vec!["slices"],
        vec!["map"],
        vec!["offline", "3"],
        vec!["online", "--all"],
        vec!["compact"],
        vec!["top", "--count", "1"],
        vec!["energy", "--profile", "rdram"],
    ] {
        let document = json(&[args.as_slice(), &["--json"]].concat());
        assert_eq!(document["schema_version"], 1, "{args:?}");
        assert_eq!(document["command"], args[0]);
    }
}

/// Numbers in JSON carry their unit, but for counts, ids and versions.
#[test]
fn numbers_in_json_are_named_with_their_unit() {
    const UNITS: [&str; 5] = ["_bytes", "_pages", "_us", "_ms", "_100cycles"];
    const PLAIN: [&str; 34] = [
        "pages",
        "pid",
        "slices_online",
        "slices_empty",
        "slices_unknown",
        "pfn",
        "first_pfn",
        "order",
        "orders",
        "mappings",
        "extra_references",
        "inode",
        "cgroup_inode",
        "slice",
        "allocations",
        "schema_version",
        "abi_version",
        "event_seq",
        "nr_slices",
        "nr_zones",
        "nr_empty",
        "nr_offline",
        "nr_quarantined",
        "nr_held",
        "woken_by_demand",
        "index",
        "id",
        "node",
        "zone",
        "slices",
        "empty_slices",
        "unreclaimable_slices",
        "offline_ratio",
        "retry_ms",
    ];
    fn walk(name: &str, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in
                    fields.iter().filter(|(name, _)| *name != "price_parameters_100cycles")
                {
                    walk(name, value);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(name, item)),
            Value::Number(_) => {
                let known = UNITS.iter().any(|unit| name.ends_with(unit)) || PLAIN.contains(&name);
                assert!(known, "`{name}` has no unit");
            }
            _ => {}
        }
    }
    walk("", &json(&["status", "--json"]));
    for args in
        [&["explain", "2", "--json"][..], &["explain", "--all", "--json"], &["map", "2", "--json"]]
    {
        walk("", &serde_json::from_slice(&run_pages(args).stdout).unwrap());
    }
}

#[test]
fn the_offline_reason_is_a_code_in_json() {
    let document = json(&["offline", "13", "--json"]);
    assert_eq!(document["results"][0]["outcome"]["reason"], "backoff");
    let document = json(&["offline", "13", "--ignore-backoff", "--json"]);
    assert_eq!(document["results"][0]["outcome"]["slices_done"], 1);
}

#[test]
fn a_png_is_written_and_its_size_printed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("map.png");
    let output = run(&["map", "--png", path.to_str().unwrap(), "--width", "800"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("800 x "));
    assert!(fs::read(&path).unwrap().starts_with(b"\x89PNG"));
    let output = run_pages(&["map", "2", "--png", path.to_str().unwrap(), "--width", "900"]);
    assert!(String::from_utf8_lossy(&output.stdout).contains("900 x "));
    let missing = run(&["map", "--png", "/nonexistent/map.png"]);
    assert_eq!(missing.status.code(), Some(1));
    let text = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert_eq!(text.matches("No such file").count(), 1, "{text}");
}

#[test]
fn without_ramslice_there_is_one_line_and_status_2() {
    if Path::new("/sys/kernel/mm/ramslice").exists() {
        eprintln!("skipped: this kernel has ramslice");
        return;
    }
    // Without --backend, memory hotplug of the machine that runs the tests would be taken.
    for args in [&["status"][..], &["compact"], &["top"], &["offline", "3"], &["guard"]] {
        let output = command(args).args(["--backend", "kernel"]).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        assert!(output.stdout.is_empty());
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        let guard = text.contains("only a stock kernel needs a guard");
        assert!(guard || text.contains("has no ramslice") && text.contains("make shell"), "{text}");
    }
}

/// As a user whose look at pages would fail; root's takes seconds.
#[test]
fn huge_pages_are_refused_on_a_stock_kernel_without_a_look_at_its_pages() {
    let home = tempfile::tempdir().unwrap();
    fs::set_permissions(home.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let program = home.path().join("ramslice");
    fs::copy(env!("CARGO_BIN_EXE_ramslice"), &program).unwrap();
    let mut huge = Command::new(&program);
    huge.args(["huge", "--backend", "stock"]).current_dir("/");
    if fs::metadata("/proc/self").unwrap().uid() == 0 {
        huge.uid(65_534);
    }
    let output = huge.output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(text.contains("write nr_hugepages in /sys/kernel/mm/hugepages"), "{text}");
}

#[test]
fn a_profile_that_is_wrong_is_refused_by_file_and_line() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let name = path.to_str().unwrap();
    let template = fs::read_to_string(here("../../../profiles/template.toml")).unwrap();
    let line = template.lines().position(|line| line.starts_with("floor = ")).unwrap() + 1;
    fs::write(&path, template.replace("floor = { low = 71", "floor = { low = 76")).unwrap();
    let wrong = run(&["energy", "--profile", name]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(wrong.stdout.is_empty());
    let text = String::from_utf8(wrong.stderr).unwrap();
    assert!(text.contains(&format!("{name}:{line}: floor of state `off` is inverted")), "{text}");
}

#[test]
fn a_recording_is_left_to_the_other_program() {
    let dir = tempfile::tempdir().unwrap();
    for args in [&["status"][..], &["top"], &["census"], &["energy", "--profile", "thesis-parc"]] {
        let output = command(args).arg("--from").arg(dir.path()).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.contains("use ramslice-lab, whose commands status, slices, map, census"));
        assert!(text.contains("as in `ramslice-lab status --from"), "{text}");
    }
}

#[test]
fn what_one_moment_saves_is_an_interval_in_json() {
    let document =
        json(&["energy", "--profile", "thesis-parc", "--granularity", "slice", "--json"]);
    // 79 slices of 64 MiB at 9.19 mW/GiB.
    let (low, high) = (&document["saved_watts"]["low"], &document["saved_watts"]["high"]);
    assert!((low.as_f64().unwrap() - 79.0 / 16.0 * 0.009_19).abs() < 1e-9, "{document}");
    assert_eq!(low, high);
    assert_eq!(document["granularity_assumed"], true);
}

#[test]
fn a_file_of_another_kind_is_refused_by_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("other.json");
    fs::write(&path, "{}").unwrap();
    let output = command(&["status", "--from", path.to_str().unwrap()]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("other.json is not a file saved by"));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    for args in [
        &["slices", "--json"][..],
        &["slices"],
        &["slices", "-r"],
        &["completions", "bash"],
        &["man"],
    ] {
        let mut child = command(args)
            .arg("--from")
            .arg(fixture())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        drop(child.stdout.take());
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{args:?}");
        assert!(output.stderr.is_empty(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }
}

#[test]
fn completions_and_man_pages_name_every_command() {
    let script = run(&["completions", "bash"]).stdout;
    assert!(String::from_utf8_lossy(&script).contains("max-slices"));
    let dir = tempfile::tempdir().unwrap();
    run(&["man", "--dir", dir.path().to_str().unwrap()]);
    let page = fs::read_to_string(dir.path().join("ramslice-compact.1")).unwrap();
    assert!(page.contains("\\-\\-cache"));
    let mut named = 0;
    for page in fs::read_dir(dir.path()).unwrap() {
        let text = fs::read_to_string(page.unwrap().path()).unwrap().replace('\\', "");
        for word in text.split_whitespace().filter_map(|word| word.strip_suffix("(1)")) {
            assert!(
                dir.path().join(format!("{word}.1")).exists(),
                "{word}(1) is named, and is not there"
            );
            named += 1;
        }
    }
    // 18 commands, and the one below giveback
    assert_eq!(named, 19, "each page names the commands below it");
}

#[test]
fn a_saved_machine_that_cannot_be_true_is_refused_before_it_is_drawn() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("absurd.json");
    let saved = fs::read_to_string(here("data/guest-8g.json")).unwrap();
    let mut machine: Value = serde_json::from_str(&saved).unwrap();
    machine["snapshot"]["slices"][5]["present_pages"] = u64::MAX.into();
    fs::write(&file, machine.to_string()).unwrap();
    let mut map = command(&["map", "--png"]);
    let output = map.arg(home.path().join("map.png")).arg("--from").arg(&file).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(
        said.contains("slice 5: present_pages is 18446744073709551615: a slice has 16384 pages"),
        "{said}"
    );
    assert_eq!(output.status.code(), Some(1));
}
