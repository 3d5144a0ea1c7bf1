//! Files that are shipped: the dashboard and the alert rules use metrics that exist, and the unit
//! keeps its word.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use ramslice_policy::{DemandForecast, OfflineTaker, PoolAction, TakerReason};
use ramslice_sim::{SimBackend, SimConfig};
use ramslice_types::{
    BackendError, BackendErrorKind, Bytes, Pages, Reason, RequestOp, RequestOutcome, SliceId,
};
use ramsliced::energy_ledger::{EarnedJoules, JouleRange};
use ramsliced::idle_cache::IdleCacheStatus;
use ramsliced::machine_snapshot::MachineSnapshot;
use ramsliced::metrics::{DaemonMetrics, KINDS};
use ramsliced::mode::DaemonMode;
use ramsliced::price_watch::PriceWatch;
use ramsliced::status::PriceStatus;
use ramsliced::wake_attribution::WakeReason;

fn packaging(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../packaging").join(path)
}

/// All metrics with all their labels, as after a while.
fn exposition() -> String {
    let metrics = DaemonMetrics::new();
    let sim = SimBackend::new(SimConfig::new(Bytes(1 << 30), Bytes(64 << 20))).unwrap();
    let look = MachineSnapshot::take(&sim).unwrap();
    let second = std::time::Duration::from_secs(1);
    metrics.set_mode(DaemonMode::On, "governor");
    metrics.machine(&look);
    metrics.look(second, Some(&BackendError::new(BackendErrorKind::Failed, "gone")));
    let range = JouleRange { low: 1.0, high: 2.0 };
    let verdict = String::new();
    let earned = EarnedJoules { saved: range, invested: range, net: range, seconds: 3.0, verdict };
    for mode in [DaemonMode::On, DaemonMode::Observe] {
        metrics.energy(mode, &earned);
        metrics.loss_cap(mode, Some(1.0));
        metrics.woken(mode, WakeReason::Memory, 1);
    }
    metrics.request(DaemonMode::On, RequestOp::Compact, second, &Ok(RequestOutcome::default()));
    metrics.failed([(Reason::Pinned, 1)]);
    let emptied = RequestOutcome { slices_done: 1, ..RequestOutcome::default() };
    metrics.moved(DaemonMode::On, RequestOp::Compact, &emptied, look.info.slice_pages());
    metrics.request(
        DaemonMode::On,
        RequestOp::Compact,
        second,
        &Err(BackendError::new(BackendErrorKind::Busy, "busy")),
    );
    let forecast = DemandForecast {
        horizon: second,
        slices: 1,
        bias_slices: 0.0,
        mean_error_slices: 0.0,
        checked: 1,
    };
    metrics.forecast(&look.zones[0], Some(forecast));
    for understood in [true, false] {
        metrics.priced(understood);
    }
    let prices = PriceWatch::new(None).status();
    metrics.prices(&PriceStatus { measured_over_predicted: Some(1.5), ..prices });
    metrics.set_guarded(Some(true));
    metrics.set_pressure_watched(Some(true));
    metrics.reloaded(false);
    metrics.saved(false);
    metrics.stepped(second, second, second);
    metrics.text()
}

/// Everything that is counted, once.
fn counted(metrics: &DaemonMetrics) {
    metrics.idle_cache(&IdleCacheStatus {
        state: "works",
        why: String::new(),
        after_seconds: None,
        reclaimed_bytes: Bytes(1),
    });
    let failed = RequestOutcome { slices_failed: 1, ..RequestOutcome::default() };
    let done = RequestOutcome { slices_done: 1, ..RequestOutcome::default() };
    let partly = RequestOutcome { slices_done: 1, ..failed.clone() };
    let all = RequestOutcome { migrated: Pages(1), dropped: Pages(1), ..done.clone() };
    let error = || BackendError::new(BackendErrorKind::Busy, "busy");
    let ops = [
        RequestOp::Offline(SliceId(7)),
        RequestOp::Online(SliceId(7)),
        RequestOp::Compact,
        RequestOp::OfflineFree,
        RequestOp::OnlineAll,
    ];
    for mode in DaemonMode::ALL {
        for cause in WakeReason::ALL {
            metrics.woken(mode, cause, 1);
        }
        for op in ops {
            for result in [Ok(failed.clone()), Ok(partly.clone()), Ok(done.clone()), Err(error())] {
                metrics.request(mode, op, std::time::Duration::ZERO, &result);
            }
        }
        metrics.moved(mode, RequestOp::Compact, &all, Pages(2));
        metrics.changed_pool(mode, PoolAction::Make(1), TakerReason::HugeIsDearest, 1);
        for why in [
            TakerReason::OfflineIsDearer(OfflineTaker::Sleep),
            TakerReason::NoLongerWanted,
            TakerReason::TasksWait,
            TakerReason::BuffersRefused(1),
        ] {
            metrics.changed_pool(mode, PoolAction::GiveBack(1), why, 1);
        }
    }
    metrics.failed(Reason::ALL.iter().chain(&[Reason::None]).map(|&reason| (reason, 1)));
    for kind in KINDS {
        metrics.error(&BackendError::new(kind, "so"));
    }
    for well in [false, true] {
        metrics.priced(well);
        metrics.reloaded(well);
        metrics.saved(well);
    }
    metrics.others_switched_off(1);
    metrics.stalled();
}

#[test]
fn whatever_is_counted_is_there_at_0_before_it_happens_so_that_the_first_time_is_an_increase() {
    let metrics = DaemonMetrics::new();
    let series = |metrics: &DaemonMetrics| -> BTreeMap<String, u64> {
        let text = metrics.text();
        let counters =
            text.lines().filter_map(|line| line.rsplit_once(' ')).filter(|(series, _)| {
                // The daemon's own time goes on whatever happens.
                let name = series
                    .split('{')
                    .next()
                    .filter(|name| *name != "ramslice_process_cpu_seconds_total");
                name.is_some_and(|name| name.ends_with("_total")) && !series.starts_with('#')
            });
        // One has a time in it, and is no whole number.
        let number = |value: &str| value.parse::<f64>().unwrap().ceil() as u64;
        counters.map(|(series, value)| (series.to_owned(), number(value))).collect()
    };
    let before = series(&metrics);
    counted(&metrics);
    let after = series(&metrics);
    for (name, value) in &after {
        assert_eq!(before.get(name), Some(&0), "{name} begins at {value}");
    }
    // And those that are there can happen, but for what only a look counts.
    let idle: Vec<_> =
        after.iter().filter(|(_, value)| **value == 0).map(|(name, _)| name).collect();
    assert_eq!(idle, ["ramslice_reported_byte_seconds_total", "ramslice_steps_total"]);
}

/// Names of series and, of each, its labels.
fn series() -> Vec<(String, BTreeSet<String>)> {
    let text = exposition();
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let head = line.split_whitespace().next().unwrap();
            let (name, labels) = head.split_once('{').unwrap_or((head, ""));
            let labels =
                labels.trim_end_matches('}').split(',').filter_map(|label| label.split_once('='));
            (name.to_owned(), labels.map(|(label, _)| label.to_owned()).collect())
        })
        .collect()
}

/// Words of an expression that begin with `ramslice_`.
fn used(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'))
        .filter(|word| word.starts_with("ramslice_"))
        .map(str::to_owned)
        .collect()
}

fn unknown(text: &str) -> Vec<String> {
    let known: BTreeSet<String> = series().into_iter().map(|(name, _)| name).collect();
    used(text).into_iter().filter(|name| !known.contains(name)).collect()
}

#[test]
fn the_dashboard_and_the_rules_use_only_metrics_that_exist() {
    for file in [
        "grafana/ramslice.json",
        "prometheus/ramslice.rules.yml",
        "prometheus/ramslice.rules.test.yml",
    ] {
        let text = fs::read_to_string(packaging(file)).unwrap();
        assert!(used(&text).len() > 5, "{file} uses hardly any");
        assert_eq!(unknown(&text), Vec::<String>::new(), "{file}");
    }
    assert_eq!(unknown("sum(ramslice_slice{x=\"y\"})"), ["ramslice_slice"]);
}

#[test]
fn labels_in_the_dashboard_and_the_rules_are_those_of_their_metrics() {
    // Prometheus adds these.
    let added = ["instance", "job", "le"];
    let known = series();
    for file in ["grafana/ramslice.json", "prometheus/ramslice.rules.yml"] {
        let text = fs::read_to_string(packaging(file)).unwrap().replace("\\\"", "\"");
        for (at, _) in text.match_indices("ramslice_") {
            let word: String =
                text[at..].chars().take_while(|c| c.is_ascii_alphanumeric() || *c == '_').collect();
            let Some(selector) = text[at + word.len()..].strip_prefix('{') else { continue };
            let selector = selector.split('}').next().unwrap();
            let labels =
                selector.split(',').filter_map(|part| part.split(['=', '!']).next()).map(str::trim);
            for label in labels.filter(|label| !added.contains(label)) {
                let has =
                    known.iter().any(|(name, labels)| *name == word && labels.contains(label));
                assert!(has, "{file}: {word} has no label {label}");
            }
        }
    }
}

#[test]
fn the_dashboard_is_json_with_panels_that_do_not_overlap() {
    let text = fs::read_to_string(packaging("grafana/ramslice.json")).unwrap();
    let board: serde_json::Value = serde_json::from_str(&text).unwrap();
    let panels = board["panels"].as_array().unwrap();
    let mut taken = BTreeSet::new();
    for panel in panels {
        let at = |key: &str| panel["gridPos"][key].as_u64().unwrap();
        for x in at("x")..at("x") + at("w") {
            for y in at("y")..at("y") + at("h") {
                assert!(x < 24 && taken.insert((x, y)), "{} overlaps", panel["title"]);
            }
        }
    }
}

#[test]
fn the_unit_is_not_started_again_with_settings_that_are_wrong() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("c.toml");
    fs::write(&config, "schema_version = 1\nmode = \"onn\"\n").unwrap();
    let ended = Command::new(env!("CARGO_BIN_EXE_ramsliced"))
        .arg("--config")
        .arg(&config)
        .output()
        .unwrap();
    let unit = fs::read_to_string(packaging("systemd/ramsliced.service")).unwrap();
    let word = format!("RestartPreventExitStatus={}", ended.status.code().unwrap());
    assert!(unit.lines().any(|line| line == word), "{word}");
}

#[test]
fn the_unit_may_write_what_the_daemon_writes() {
    let text = fs::read_to_string(packaging("systemd/ramsliced.service")).unwrap();
    let paths: Vec<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("ReadWritePaths="))
        .flat_map(str::split_whitespace)
        .collect();
    for path in ["kernel/mm/hugepages", "kernel/mm/ramslice/slice_bytes", "kernel/mm/damon"] {
        assert!(paths.contains(&format!("-/sys/{path}").as_str()), "{path}: {paths:?}");
    }
}

#[test]
fn the_unit_keeps_what_it_exposes_below_a_threshold_and_needs_no_debugfs() {
    let unit = packaging("systemd/ramsliced.service");
    let text = fs::read_to_string(&unit).unwrap();
    assert!(text.contains("InaccessiblePaths=-/sys/kernel/debug"));
    let bounds: Vec<&str> =
        text.lines().filter(|line| line.starts_with("CapabilityBoundingSet=")).collect();
    assert_eq!(bounds, ["CapabilityBoundingSet=CAP_SYS_RESOURCE"]);
    let security = |threshold: &str| {
        Command::new("systemd-analyze")
            .args(["security", "--offline=true", "--no-pager", "--threshold", threshold])
            .arg(&unit)
            .output()
            .expect("systemd-analyze is part of Debian")
    };
    let found = security("20");
    assert!(found.status.success(), "{}", String::from_utf8_lossy(&found.stdout));
    assert!(!security("5").status.success(), "the check does not check");
}
