//! `ramslice-lab calibrate`: fit the price model to this machine, judge it, install it on request.

mod measuring_host;
mod text;

use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ramslice_backend::PatchedBackend;
use ramslice_calibrate::measuring::{MeasureError, MeasuringPlan, take_samples};
use ramslice_calibrate::{
    CalibrationReport, DriftDetector, DriftSettings, DriftState, MachineConditions,
    ModelCoefficients, SampleSet, SamplesFile, check_conditions, check_everyday, check_refit,
    check_samples, everyday, report,
};
use ramslice_fragment::FillAmount;
use ramslice_types::{
    Backend, BackendError, Bytes, Price, PriceParameter, SCHEMA_VERSION, parse_bytes,
};
use serde::Serialize;

use self::measuring_host::CommandHost;
use crate::output_file::OutputFile;
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::{ExitStatus, UsageError};
use ramslice_cli::interrupt::interruptible;

const HELP: &str = "\
Fills memory with known mixtures (as `ramslice-lab fragment` does), empties slices, wakes them \
again, and fits the parameters of the price model to what that cost: without a reboot, in a \
minute or so. Then it judges them on slices of another size that hold what programs left there, \
or leave there while COMMAND runs, which the fit has not seen. Beside them stand the models of \
the Hannover thesis (2024, Table 4.2): A, slopes of dedicated experiments; B, as given there, the \
kernel's defaults; C, least squares.

Only --install installs them, and not if the parameters in force are better on what programs \
left. Ctrl-C ends it at any time: memory that was filled is free again, slices are awake and have \
their size. What is not as before: some pages lie elsewhere, and some cache was dropped. Only \
root can do it, while all slices are awake.

Too few samples are refused, and so is a machine that is busy or on which the same work does not \
cost the same.

Figures: p99 is the 99th percentile of the absolute error, as a share of the largest cost; rank, \
Spearman's rank correlation of price and cost; regret, the extra cycles spent when slices are \
emptied in the order of their prices rather than of their costs, mean over budgets from 10 % to \
90 % of what emptying all of them costs.

With --from FILE it fits samples that -o saved, on any machine; or everyday operations that \
ramsliced gathered. These show less: terms that they hardly show keep their proportions, and \
every second operation judges what the others give.

Examples:
  ramslice-lab calibrate                                  what the parameters should be
  ramslice-lab calibrate --install                        and put them in force
  ramslice-lab calibrate -o samples.json -- make -j2      judge them on what a build leaves
  ramslice-lab calibrate --from samples.json --json | jq .parameters_100cycles";

/// Fit the price model to this machine, and judge it.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct CalibrateArgs {
    /// Put the parameters in force
    #[arg(long)]
    install: bool,
    /// Save the samples there, for --from and for plots
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
    /// Fill this much memory at a time: a size, or a share of what is available as in 25%
    #[arg(long, value_name = "AMOUNT", default_value = "25%")]
    memory: FillAmount,
    /// Slices to empty for each mixture
    #[arg(
        long,
        value_name = "N",
        default_value = "12",
        value_parser = clap::value_parser!(u32).range(1..=10_000)
    )]
    samples: u32,
    /// Slices to judge by
    #[arg(
        long,
        value_name = "N",
        default_value = "100",
        value_parser = clap::value_parser!(u32).range(0..=100_000)
    )]
    held_out: u32,
    /// Size of these [default: half of what slices have]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    held_out_slice: Option<Bytes>,
    /// A directory on a disk, for a file without a name
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    dir: PathBuf,
    /// Decides which slices
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Measure also on a machine that is busy or not steady
    #[arg(long)]
    anyway: bool,
    /// The command whose memory parameters are judged by, after --
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<String>,
}

#[derive(Serialize)]
struct CalibrateDocument<'a> {
    slice_bytes: Bytes,
    artificial_samples: usize,
    everyday_samples: usize,
    held_out_samples: usize,
    changed_samples: u64,
    noise: f64,
    /// What `--install` puts in force.
    parameters_100cycles: std::collections::BTreeMap<PriceParameter, Price>,
    installed: bool,
    /// Why not, although it was asked for.
    not_installed_because: Option<&'a str>,
    /// What the detector of drift says of the parameters in force after all these samples.
    drift: DriftState,
    #[serde(flatten)]
    report: &'a CalibrationReport,
}

pub(crate) fn run(
    args: &CalibrateArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    if context.source_path().is_some() && !args.command.is_empty() {
        return Err(
            UsageError("with --from nothing is measured: it takes no COMMAND".to_owned()).into()
        );
    }
    let (samples, backend) = match context.source_path() {
        Some(path) => (load(path)?, None),
        None => {
            let backend = PatchedBackend::open().map_err(BackendError::from)?;
            (measure(args, &backend, context)?, Some(backend))
        }
    };
    let (artificial, gathered) = (samples.artificial(), samples.everyday());
    let of_every_day = artificial.is_empty() && !gathered.is_empty();
    let report = if of_every_day {
        check_everyday(&gathered)?;
        everyday(&samples)?
    } else {
        check_samples(&artificial)?;
        report(&samples)?
    };
    let parameters = report.fitted_model().coefficients_100cycles.parameters();
    let mut parameters = parameters.context("the fit has terms that the kernel does not take")?;
    // An offset in an order, not a cost: nothing to be measured.
    parameters.remove(&PriceParameter::Unreclaimable);

    let worse = args.install.then(|| reason_against(&report, of_every_day)).flatten();
    if args.install && worse.is_none() {
        match &backend {
            Some(backend) => install(backend, &parameters)?,
            None => install(&PatchedBackend::open().map_err(BackendError::from)?, &parameters)?,
        }
    }
    let installed = args.install && worse.is_none();
    if context.json() {
        let mut drift = DriftDetector::new(
            ModelCoefficients::of_parameters(&samples.parameters),
            DriftSettings::default(),
        );
        samples.samples.iter().cloned().for_each(|sample| {
            drift.observe(sample);
        });
        let body = CalibrateDocument {
            slice_bytes: samples.slice_bytes,
            artificial_samples: artificial.len(),
            everyday_samples: gathered.len(),
            held_out_samples: samples.programs().len(),
            changed_samples: samples.changed,
            noise: samples.noise,
            parameters_100cycles: parameters,
            installed,
            not_installed_because: worse.as_deref(),
            drift: drift.state(),
            report: &report,
        };
        write_json(out, "calibrate", body)?;
    } else {
        text::write(out, &context.screen, &samples, &report)?;
        match (args.install, &worse) {
            (true, None) => writeln!(out, "installed")?,
            (true, Some(why)) => writeln!(out, "not installed: {why}")?,
            (false, _) => writeln!(out, "nothing was installed: --install does")?,
        }
    }
    Ok(if worse.is_some() { ExitStatus::Refused } else { ExitStatus::Ok })
}

/// Takes samples on this machine, and saves them if asked to.
fn measure(
    args: &CalibrateArgs,
    backend: &dyn Backend,
    context: &CommandContext,
) -> Result<SampleSet> {
    if !args.anyway {
        check_conditions(conditions()?)?;
    }
    // Opened first: minutes of work should not end at a name that cannot be written. What is there
    // stays if they are interrupted.
    let file = match &args.output {
        Some(path) => {
            Some(OutputFile::create(path).with_context(|| format!("creating {}", path.display()))?)
        }
        None => None,
    };
    let plan = MeasuringPlan {
        memory: args.memory,
        per_mixture: args.samples,
        held_out: args.held_out,
        held_out_slice: args.held_out_slice,
        dir: args.dir.clone(),
        seed: args.seed,
        allow_unsteady: args.anyway,
        label: measuring_host::label(&args.command),
    };
    let samples = interruptible(|interrupt| {
        let host = CommandHost::new(&args.command, interrupt, context.json());
        take_samples(&plan, backend, &host).map_err(|error| match error {
            MeasureError::Backend(error) => error.into(),
            MeasureError::Workload(error) => measuring_host::not_started(error),
            error => error.into(),
        })
    })?;
    if let (Some(file), Some(path)) = (file, &args.output) {
        save(file, &samples).with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(samples)
}

fn conditions() -> Result<MachineConditions> {
    let path = "/proc/loadavg";
    let text = std::fs::read_to_string(path).with_context(|| format!("reading {path}"))?;
    let load = text.split_whitespace().next().and_then(|word| word.parse().ok());
    let load = load.with_context(|| format!("{path}: no load average in `{}`", text.trim()))?;
    Ok(MachineConditions { load, cpus: std::thread::available_parallelism()?.get() })
}

/// One line for each sample: easy to read, to compare and to cut.
fn save(mut file: OutputFile, samples: &SampleSet) -> Result<()> {
    let mut out = BufWriter::new(&mut file);
    let head = SamplesFile {
        schema_version: SCHEMA_VERSION,
        samples: SampleSet { samples: Vec::new(), ..samples.clone() },
    };
    let head = serde_json::to_string(&head)?;
    write!(out, "{}", head.strip_suffix("]}").context("samples come last")?)?;
    for (at, sample) in samples.samples.iter().enumerate() {
        write!(out, "{}\n{}", if at == 0 { "" } else { "," }, serde_json::to_string(sample)?)?;
    }
    writeln!(out, "\n]}}")?;
    out.flush()?;
    drop(out);
    Ok(file.finish()?)
}

fn load(path: &Path) -> Result<SampleSet> {
    if path.is_dir() {
        return Err(UsageError(format!(
            "{} is a recording: recordings have no measured costs. Give a file that `ramslice-lab \
             calibrate -o` saved",
            path.display()
        ))
        .into());
    }
    let text =
        std::fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
    let saved: SamplesFile = serde_json::from_str(&text).with_context(|| {
        format!("{}: not a file of samples, as `ramslice-lab calibrate -o` saves", path.display())
    })?;
    if saved.schema_version != SCHEMA_VERSION {
        let (path, found) = (path.display(), saved.schema_version);
        let message =
            format!("{path} has schema_version {found}, this program knows {SCHEMA_VERSION}");
        return Err(UsageError(message).into());
    }
    Ok(saved.samples)
}

/// Why the fitted parameters should not replace those in force.
fn reason_against(report: &CalibrationReport, of_every_day: bool) -> Option<String> {
    if of_every_day {
        return check_refit(report).err().map(|refusal| refusal.to_string());
    }
    let why = match report.is_better() {
        Some(true) => return None,
        Some(false) => {
            "on what programs left in memory, the parameters in force have smaller errors"
        }
        None => "no slice with what programs left in memory could be emptied: nothing to judge by",
    };
    Some(why.to_owned())
}

/// All or nothing: if one cannot be written, those before get their values back.
fn install(
    backend: &dyn Backend,
    parameters: &std::collections::BTreeMap<PriceParameter, Price>,
) -> Result<()> {
    let mut before = Vec::new();
    for (&parameter, &price) in parameters {
        before.push((parameter, backend.price_parameter(parameter)?));
        if let Err(error) = backend.set_price_parameter(parameter, price) {
            for (parameter, price) in before {
                // What cannot be put back either is in the error that comes.
                let _ = backend.set_price_parameter(parameter, price);
            }
            return Err(error).context("installing: the parameters are as before");
        }
    }
    Ok(())
}
