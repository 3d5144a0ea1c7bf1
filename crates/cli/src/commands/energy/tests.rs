//! The live ledger over a machine that a test moves, and what may be typed.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use ramslice_backend::{KernelPaths, ReplayBackend};
use ramslice_energy::{CostTerm, Interval, SampleClock, TimeFactor};
use ramslice_types::{
    BackendError, BackendInfo, Bytes, ContentsDetail, Joules, Pages, Price, PriceParameter, Ratio,
    Request, RequestOutcome, SliceContents, SliceId, SliceSnapshot, Zone,
};
use serde_json::Value;

use super::*;
use crate::args::{ColorChoice, GlobalOptions};
use crate::ledger_options::TimeFactorOptions;

/// A saved machine whose time passes by a second with each snapshot, and which works meanwhile.
struct MovingBackend {
    saved: ReplayBackend,
    seconds: AtomicU64,
    /// Asked when there is nothing to do for so long.
    idle: Box<dyn Fn(Duration) -> Result<(), BackendError> + Send + Sync>,
}

impl MovingBackend {
    fn new() -> Self {
        let path = Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap())
            .join("tests/data/guest-8g.json");
        Self {
            saved: ReplayBackend::open(&path).unwrap(),
            seconds: AtomicU64::new(0),
            idle: Box::new(|_| Ok(())),
        }
    }
}

impl Backend for MovingBackend {
    fn info(&self) -> Result<BackendInfo, BackendError> {
        self.saved.info()
    }

    fn zones(&self) -> Result<Vec<Zone>, BackendError> {
        self.saved.zones()
    }

    fn snapshot(&self) -> Result<SliceSnapshot, BackendError> {
        let second = self.seconds.fetch_add(1, Ordering::Relaxed);
        Ok(SliceSnapshot { time: Duration::from_secs(second), ..self.saved.snapshot()? })
    }

    fn contents(
        &self,
        slice: SliceId,
        detail: ContentsDetail,
    ) -> Result<SliceContents, BackendError> {
        self.saved.contents(slice, detail)
    }

    fn request(&self, request: &Request) -> Result<RequestOutcome, BackendError> {
        self.saved.request(request)
    }

    fn wait_event(&self, timeout: Duration) -> Result<Option<u64>, BackendError> {
        (self.idle)(timeout).map(|()| None)
    }

    fn slice_bytes(&self) -> Result<Bytes, BackendError> {
        self.saved.slice_bytes()
    }

    fn set_slice_bytes(&self, size: Bytes) -> Result<(), BackendError> {
        self.saved.set_slice_bytes(size)
    }

    fn price_parameter(&self, parameter: PriceParameter) -> Result<Price, BackendError> {
        self.saved.price_parameter(parameter)
    }

    fn set_price_parameter(
        &self,
        parameter: PriceParameter,
        value: Price,
    ) -> Result<(), BackendError> {
        self.saved.set_price_parameter(parameter, value)
    }

    fn work(&self) -> Result<WorkCounters, BackendError> {
        let done = self.seconds.load(Ordering::Relaxed);
        Ok(WorkCounters {
            migrated_pages: Pages(100 * done),
            tried_slices: done,
            page_faults: 10 * done,
            ..WorkCounters::default()
        })
    }
}

fn args() -> EnergyArgs {
    EnergyArgs {
        ledger: LedgerOptions {
            profile: "thesis-parc".to_owned(),
            state: None,
            machine: None,
            time_factor: TimeFactorOptions::default(),
            granularity: Some("slice".parse().unwrap()),
            runtime_change: None,
        },
        every: Some(Duration::from_millis(1)),
        // Of a slow machine, too, some samples fit into it
        duration: Some(Duration::from_millis(300)),
    }
}

fn global(json: bool) -> GlobalOptions {
    GlobalOptions { json, color: ColorChoice::Never, verbose: 0, from: None, backend: None }
}

fn watched(args: &EnergyArgs, json: bool, clock: SampleClock) -> String {
    let (context, backend) = (CommandContext::new(global(json), None), MovingBackend::new());
    let plan = args.ledger.plan(clock).unwrap();
    let mut out = Vec::new();
    interruptible(|interrupt| {
        EnergyWatch::new(&backend, &plan, None)?.run(args, interrupt, &context, &mut out)
    })
    .unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn only_a_kernel_with_accounts_pays_for_them() {
    let accounting = |abi_version| {
        let (plan, backend) =
            (args().ledger.plan(SampleClock::Real).unwrap(), MovingBackend::new());
        let mut watch = EnergyWatch::new(&backend, &plan, None).unwrap();
        watch.machine.info.abi_version = abi_version;
        watch.sample().unwrap();
        watch.sample().unwrap();
        let line = watch
            .statement()
            .unwrap()
            .lines
            .into_iter()
            .find(|line| line.term == CostTerm::Accounting);
        line.unwrap().joules.unwrap().high()
    };
    assert_eq!(accounting(0), Joules(0.0));
    assert!(accounting(1) > Joules(0.0));
}

#[test]
fn the_ledger_follows_the_machine_and_ends_with_everything() {
    let text = watched(&args(), true, SampleClock::Real);
    let documents: Vec<Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let last = documents.last().unwrap();
    assert_eq!(last["final"], true);
    assert!(documents[..documents.len() - 1].iter().all(|document| document["final"] == false));
    let steps = last["samples"].as_u64().unwrap() - 1;
    assert_eq!(last["elapsed_us"].as_u64().unwrap(), steps * 1_000_000);
    assert_eq!(last["work"]["migrated_pages"].as_u64().unwrap(), steps * 100);
    // 79 slices of 64 MiB are off all the time.
    let saved = last["saved_joules"]["low"].as_f64().unwrap();
    assert!((saved - steps as f64 * 79.0 / 16.0 * 0.009_19).abs() < 1e-9, "{saved}");
    assert_eq!(last["verdict"]["sign"], "undecided", "the change of run time is not known");
}

#[test]
fn a_counter_that_comes_round_between_two_figures_is_read_in_time() {
    const RANGE_UJ: u64 = 262_143_328_850;
    let root = tempfile::tempdir().unwrap();
    let paths = KernelPaths::under(root.path());
    let dir = paths.powercap.join("intel-rapl:0");
    std::fs::create_dir_all(&dir).unwrap();
    let put = |name: &str, text: String| std::fs::write(dir.join(name), text).unwrap();
    let shown = AtomicU64::new(0);
    put("name", "psys".to_owned());
    put("max_energy_range_uj", RANGE_UJ.to_string());
    put("energy_uj", "0".to_owned());

    // 4 kW for five minutes, of which each wait is a part: the counter comes round four times.
    let (dir, left) = (dir.clone(), AtomicU64::new(300_000));
    let idle = move |timeout: Duration| {
        let waited = u64::try_from(timeout.as_millis()).unwrap().min(left.load(Ordering::Relaxed));
        if left.fetch_sub(waited, Ordering::Relaxed) == 0 {
            return Err(BackendError::new(
                ramslice_types::BackendErrorKind::Failed,
                "the time is over",
            ));
        }
        let now = shown.fetch_add(4_000_000 * waited, Ordering::Relaxed) + 4_000_000 * waited;
        std::fs::write(dir.join("energy_uj"), (now % (RANGE_UJ + 1)).to_string()).unwrap();
        Ok(())
    };
    let backend = MovingBackend { idle: Box::new(idle), ..MovingBackend::new() };
    let args = EnergyArgs { every: Some(Duration::from_hours(2)), duration: None, ..args() };
    let (context, plan) =
        (CommandContext::new(global(true), None), args.ledger.plan(SampleClock::Real).unwrap());
    let meter = EnergyMeter { paths, tally: MeterTally::default() };
    let mut watch = EnergyWatch::new(&backend, &plan, Some(meter)).unwrap();
    interruptible(|interrupt| watch.run(&args, interrupt, &context, &mut Vec::new())).unwrap_err();
    let measured = watch.meter.unwrap().tally.measured().unwrap();
    assert_eq!(measured.machine_joules, Some(Joules(1.2e6)));
}

#[test]
fn a_meter_that_cannot_be_read_once_leaves_the_report_without_its_figure() {
    let root = tempfile::tempdir().unwrap();
    let paths = KernelPaths::under(root.path());
    let dir = paths.powercap.join("intel-rapl:0");
    std::fs::create_dir_all(&dir).unwrap();
    for (name, text) in [("name", "psys"), ("max_energy_range_uj", "1000"), ("energy_uj", "0")] {
        std::fs::write(dir.join(name), text).unwrap();
    }
    // The second reading fails; the others do not.
    let (counter, waits) = (dir.join("energy_uj"), AtomicU64::new(0));
    let idle = move |_| {
        let text = if waits.fetch_add(1, Ordering::Relaxed) == 0 { "" } else { "500" };
        std::fs::write(&counter, text).unwrap();
        Ok(())
    };
    let backend = MovingBackend { idle: Box::new(idle), ..MovingBackend::new() };
    let (every, duration) = (Some(Duration::from_hours(2)), Some(Duration::from_millis(500)));
    let args = EnergyArgs { every, duration, ..args() };
    let (context, plan) =
        (CommandContext::new(global(false), None), args.ledger.plan(SampleClock::Real).unwrap());
    let meter = EnergyMeter { paths, tally: MeterTally::default() };
    let mut watch = EnergyWatch::new(&backend, &plan, Some(meter)).unwrap();
    let mut out = Vec::new();
    interruptible(|interrupt| watch.run(&args, interrupt, &context, &mut out)).unwrap();
    let text = String::from_utf8(out).unwrap().replace("\n  ", " ");
    assert!(text.contains("meter's domains changed or it could not be read"), "{text}");
    assert!(text.trim_end().rsplit("\n\n").next().unwrap().starts_with("Undecided: "), "{text}");
}

#[test]
fn cycles_are_those_of_the_machine_that_is_watched() {
    let (plan, backend) = (args().ledger.plan(SampleClock::Real).unwrap(), MovingBackend::new());
    let mut watch = EnergyWatch::new(&backend, &plan, None).unwrap();
    let basis = |watch: &EnergyWatch<'_>| watch.statement().unwrap().basis[1].clone();
    assert!(basis(&watch).contains("assumed to be the profile's, 3.80 GHz"), "{}", basis(&watch));
    watch.machine.info.clock_khz = Some(2_095_078);
    assert!(basis(&watch).contains("cycles are of 2.10 GHz"), "{}", basis(&watch));
}

/// Numbers of the ledger carry their unit in the name of a field above them.
#[test]
fn numbers_of_the_ledger_are_named_with_their_unit() {
    const UNITS: [&str; 10] = [
        "joules",
        "_joules",
        "_seconds",
        "_share",
        "_bytes",
        "_pages",
        "_us",
        "_100cycles",
        "_slices",
        "time_factor",
    ];
    const PLAIN: [&str; 3] = ["schema_version", "samples", "page_faults"];
    fn walk(names: &mut Vec<String>, value: &Value) {
        match value {
            Value::Object(fields) => {
                for (name, value) in fields {
                    names.push(name.clone());
                    walk(names, value);
                    names.pop();
                }
            }
            Value::Array(items) => items.iter().for_each(|item| walk(names, item)),
            Value::Number(_) => {
                let known = names.iter().any(|name| UNITS.iter().any(|unit| name.ends_with(unit)));
                assert!(
                    known || PLAIN.contains(&names.last().unwrap().as_str()),
                    "{names:?} has no unit"
                );
            }
            _ => {}
        }
    }
    let text = watched(&args(), true, SampleClock::Real);
    walk(&mut Vec::new(), &serde_json::from_str(text.lines().last().unwrap()).unwrap());
}

#[test]
fn the_report_names_what_it_rests_on_and_ends_with_the_verdict() {
    let factor = TimeFactor::new(Interval::exactly(Ratio(15.0)), "--time-factor").unwrap();
    let text = watched(&args(), false, SampleClock::Emulated(factor));
    for words in [
        "emulated s: saved",
        "divided by 15.0 (--time-factor)",
        "Ryzen",
        "as if the hardware",
        "no meter",
    ] {
        assert!(text.contains(words), "no `{words}` in\n{text}");
    }
    let last = text.trim_end().rsplit("\n\n").next().unwrap();
    assert!(last.starts_with("Undecided: "), "{text}");
}
