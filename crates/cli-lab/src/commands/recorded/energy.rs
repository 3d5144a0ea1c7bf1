//! `ramslice energy --from DIRECTORY`: the ledger over a recording, sample by sample, on the recording's clock.

use std::io::Write;

use anyhow::Result;
use ramslice_backend::Processor;
use ramslice_energy::{Clock, Ledger, Sample};
use ramslice_record::{Platform, ReadError, Recording};
use ramslice_types::Machine;

use super::energy::{Args, Plan, Slowness, clock};
use super::energy_show::View;
use crate::context::{Context, not_replayable};
use crate::exit::UsageError;

/// What ran the recorded machine, as far as the recording tells.
fn processor(platform: &Platform) -> Processor {
    let name = || platform.hypervisor.clone();
    match platform.emulated {
        Some(true) => Processor::Emulated(name()),
        Some(false) if platform.is_virtual => Processor::Virtual(name()),
        Some(false) => Processor::Real,
        None => Processor::Unknown,
    }
}

/// The clock of a recording; an error if its seconds may not be real and nobody says how slow the machine was.
pub(super) fn clock_of(slowness: &Slowness, recording: &Recording) -> Result<Clock> {
    clock(slowness, &processor(&recording.about().platform), "the recorded machine")
}

pub(super) fn run(
    args: &Args,
    recording: &Recording,
    context: &Context,
    out: &mut dyn Write,
) -> Result<()> {
    if args.duration.is_some() {
        return Err(UsageError("a recording has its own end: leave out --for".to_owned()).into());
    }
    let plan = Plan::new(args, clock_of(&args.slowness, recording)?)?;
    let mut machines = recording.machines();
    let mut watched: Option<(Machine, Ledger)> = None;
    let mut printed_us = 0;
    while let Some(machine) = machines.next().transpose().map_err(not_replayable)? {
        let work = machines.work().map_err(not_replayable)?;
        let sample = Sample::new(&machine.snapshot, &machine.info, work);
        let (first, ledger) = watched.get_or_insert_with(|| {
            let granule = plan.granule(machine.info.slice_bytes);
            (machine, Ledger::new(granule.bytes()))
        });
        ledger.add(sample)?;
        let elapsed_us = ledger.tally().elapsed_us;
        let every = args.every.map(|every| u64::try_from(every.as_micros()).unwrap_or(u64::MAX));
        if every.is_some_and(|every| elapsed_us - printed_us >= every) {
            printed_us = elapsed_us;
            write(&plan, first, ledger, false, context, out)?;
        }
    }
    if machines.skipped() > 0 {
        tracing::warn!(
            "{} samples are not whole and were passed over: see `ramslice record --check`",
            machines.skipped()
        );
    }
    let empty = || not_replayable(ReadError::Empty { path: recording.dir().to_owned() });
    let (first, ledger) = watched.ok_or_else(empty)?;
    if ledger.tally().steps == 0 {
        let message = format!(
            "{} has one sample, between which no time passes: `ramslice status --json --from` it, and give that \
             file to --from for what it saves at that moment",
            recording.dir().display()
        );
        return Err(UsageError(message).into());
    }
    write(&plan, &first, &ledger, true, context, out)
}

fn write(
    plan: &Plan,
    first: &Machine,
    ledger: &Ledger,
    over: bool,
    context: &Context,
    out: &mut dyn Write,
) -> Result<()> {
    // Plan::new has seen to it that the profile gives joules.
    let Some(statement) = plan.statement(ledger.tally(), first, None) else { return Ok(()) };
    let granule = plan.granule(first.info.slice_bytes);
    View { plan, granule, tally: ledger.tally() }.write(&statement, over, context, out)
}
