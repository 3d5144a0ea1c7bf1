//! `ramslice-lab energy`: the ledger over a recording, sample by sample, on the recording's clock.

use std::io::Write;

use anyhow::Result;
use ramslice_cli::commands::energy::statement_text::StatementView;
use ramslice_cli::commands::energy::{self, EnergyArgs};
use ramslice_cli::context::CommandContext;
use ramslice_cli::exit::{ExitStatus, UsageError};
use ramslice_energy::{EnergyLedger, EnergySample, LedgerPlan};
use ramslice_record::ReadError;
use ramslice_types::MachineState;

use crate::recordings::{clock_of, open_recording, unreplayable_error};

/// Keeps the ledger over a recording, or shows what a saved machine saves.
pub(crate) fn run(
    args: &EnergyArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some_and(std::path::Path::is_file) {
        return energy::run(args, context, out);
    }
    let recording = &open_recording(context)?;
    if args.duration.is_some() {
        return Err(UsageError("a recording has its own end: leave out --for".to_owned()).into());
    }
    let plan = args.ledger.plan(clock_of(&args.ledger.time_factor, recording.info())?)?;
    let mut machines = recording.machines();
    let mut watched: Option<(MachineState, EnergyLedger)> = None;
    let mut printed_us = 0;
    while let Some(machine) = machines.next().transpose().map_err(unreplayable_error)? {
        let work = machines.work().map_err(unreplayable_error)?;
        let sample = EnergySample::new(&machine.snapshot, &machine.info, work);
        let (first, ledger) = watched.get_or_insert_with(|| {
            let granule = plan.granule(machine.info.slice_bytes);
            (machine, EnergyLedger::new(granule.bytes()))
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
            "{} samples are not whole and were passed over: see `ramslice-lab record --check`",
            machines.skipped()
        );
    }
    let empty = || unreplayable_error(ReadError::Empty { path: recording.dir().to_owned() });
    let (first, ledger) = watched.ok_or_else(empty)?;
    if ledger.tally().steps == 0 {
        let message = format!(
            "{} has one sample, between which no time passes: `ramslice-lab status --json --from` \
             it, and give that file to --from for what it saves at that moment",
            recording.dir().display()
        );
        return Err(UsageError(message).into());
    }
    write(&plan, &first, &ledger, true, context, out)?;
    Ok(ExitStatus::Ok)
}

fn write(
    plan: &LedgerPlan,
    first: &MachineState,
    ledger: &EnergyLedger,
    over: bool,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<()> {
    // LedgerOptions::plan has seen to it that the profile gives joules.
    let Some(statement) = plan.statement(ledger.tally(), first, None) else { return Ok(()) };
    let granule = plan.granule(first.info.slice_bytes);
    StatementView { plan, granule, tally: ledger.tally() }.write(&statement, over, context, out)
}
