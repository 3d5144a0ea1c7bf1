//! Lets a policy decide for the running machine, step by step, and records the result:
//! `step --policy FILE --seconds N --output DIR`.
//!
//! For each line on its standard input, of which `last` is the last, it reports to the policy that
//! this many seconds have passed, carries out its requests, takes a sample and answers with a line
//! of JSON. So the driver of the machine decides how fast time passes, and the same work can be
//! done again, step by step, under another policy. Root only.

use std::io::{BufRead, Write, stdin, stdout};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ramslice_backend::{BackendKind, open_backend};
use ramslice_energy::builtin;
use ramslice_policy::{
    AnyPolicy, MachineTotals, Observation, Policy, PolicyConfig, PolicyEvent, SliceEconomics,
    SliceRow, WakeCause,
};
use ramslice_record::{KernelPaths, Recorder, RecorderOptions};
use ramslice_types::{Backend, Pages, Request, RequestOp, Slice, SliceSnapshot, SliceState};

type AnyError = Box<dyn std::error::Error>;

/// The kernel's counts so far.
#[derive(Clone, Copy)]
struct KernelCounts {
    woken_by_demand: u64,
    refaulted_pages: u64,
}

fn counted(backend: &dyn Backend) -> Result<KernelCounts, AnyError> {
    let text = std::fs::read_to_string("/proc/vmstat")?;
    let line = text.lines().find_map(|line| line.strip_prefix("workingset_refault_file "));
    Ok(KernelCounts {
        woken_by_demand: backend.zones()?.iter().map(|zone| zone.woken_by_demand).sum(),
        refaulted_pages: line.ok_or("/proc/vmstat has no workingset_refault_file")?.parse()?,
    })
}

/// What happened that no request asked for.
fn happened(
    before: (&SliceSnapshot, KernelCounts),
    now: (&SliceSnapshot, KernelCounts),
    time: Duration,
) -> Vec<PolicyEvent> {
    let off = |slice: &Slice| slice.state == SliceState::Offline;
    let pairs = before.0.slices.iter().zip(&now.0.slices);
    let slices = pairs.filter(|(was, is)| off(was) && !off(is)).count() as u32;
    let demand = now.1.woken_by_demand > before.1.woken_by_demand;
    let cause = if demand { WakeCause::Demand } else { WakeCause::Ahead };
    let pages = Pages(now.1.refaulted_pages - before.1.refaulted_pages);
    let mut events = Vec::new();
    if slices > 0 {
        events.push(PolicyEvent::Woken { time, slices, cause });
    }
    if pages > Pages::ZERO {
        events.push(PolicyEvent::Refaulted { pages });
    }
    events
}

/// Has the kernel take pages back from its per-CPU lists, where they look used.
fn drain(backend: &dyn Backend) -> Result<(), AnyError> {
    backend.request(&Request { dry_run: true, ..Request::new(RequestOp::Compact) })?;
    Ok(())
}

fn run(policy: &Path, every: Duration, output: PathBuf) -> Result<(), AnyError> {
    let backend = open_backend(Path::new("/"), Some(BackendKind::Patched))?;
    let backend = &*backend;
    let config =
        PolicyConfig::parse(&std::fs::read_to_string(policy)?, &policy.display().to_string())?;
    let info = backend.info()?;
    let profile = builtin("thesis-parc").ok_or("there is no profile thesis-parc")??;
    let state = profile.state(&profile.default_state).ok_or("the profile has no such state")?;
    let machine = profile.machine.as_ref().ok_or("the profile names no machine")?;
    let economics = SliceEconomics::new(state, machine, info.slice_bytes, info.page_bytes)?;
    let mut decider = AnyPolicy::new(&config, &economics, info.slice_bytes, info.page_bytes)?;
    let options = RecorderOptions {
        dir: output,
        every,
        census: None,
        part_age: Duration::from_secs(20),
        append: false,
        command: std::env::args().collect(),
        source: "the running kernel".to_owned(),
        statistics: true,
        cache_use: true,
        reuse: None,
    };
    drain(backend)?;
    let mut recorder = Recorder::start(options, &KernelPaths::system(), Some(backend))?;
    recorder.sample()?;
    let mut before = (backend.snapshot()?, counted(backend)?);
    let mut finished = Vec::new();
    for (number, line) in (1u32..).zip(stdin().lock().lines()) {
        let last = line? == "last";
        drain(backend)?;
        let time = every * number;
        let now = (backend.snapshot()?, counted(backend)?);
        let mut events = std::mem::take(&mut finished);
        events.extend(happened((&before.0, before.1), (&now.0, now.1), time));
        let totals = MachineTotals::of(&backend.zones()?, &now.0.slices, info.slice_pages());
        let rows: Vec<SliceRow> =
            now.0.slices.iter().map(|slice| SliceRow::of(slice, info.slice_pages())).collect();
        let decision = decider.step(&Observation { time, totals, rows: &rows, events: &events });
        let mut off = 0;
        for request in &decision.requests {
            let outcome = backend.request(request)?;
            off += outcome.slices_done;
            finished.push(PolicyEvent::Finished {
                op: request.op,
                outcome,
                max_slices: request.max_slices,
            });
        }
        before = (backend.snapshot()?, now.1);
        if !last {
            recorder.sample()?;
        }
        let used = |slice: &&Slice| slice.state != SliceState::Offline && !slice.is_empty();
        let nonempty = before.0.slices.iter().filter(used).count();
        let why = decision.why.to_string();
        let answer = serde_json::json!({ "step": number, "nonempty": nonempty, "switched_off": off,
            "why": why });
        writeln!(stdout(), "{answer}")?;
        stdout().flush()?;
        if last {
            // The end has a sample of its own.
            break;
        }
    }
    recorder.finish("the work is done", None)?;
    Ok(())
}

fn main() -> Result<(), AnyError> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let value =
        |name: &str| words.iter().position(|word| word == name).and_then(|at| words.get(at + 1));
    let (Some(policy), Some(seconds), Some(output)) =
        (value("--policy"), value("--seconds"), value("--output"))
    else {
        return Err("usage: step --policy FILE --seconds N --output DIR".into());
    };
    run(Path::new(policy), Duration::from_secs(seconds.parse()?), output.into())
}
