//! What `sim run` and `sim tune` have in common: a load, and the machine that it is for.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use ramslice_energy::SampleClock;
use ramslice_sim::load::{
    InputNotes, LoadGenerator, LoadScale, LoadStep, UsageFile, UsageLoad, UsageOptions, recorded,
};
use ramslice_sim::{SimConfig, SimMachine};
use ramslice_types::parse_duration;

use super::common;
use ramslice_cli::exit::UsageError;

/// A load and its machine.
#[derive(Debug, clap::Args)]
pub(super) struct LoadOptions {
    /// A generated load, a recording, or a file of utilisation
    #[arg(value_name = "LOAD")]
    pub(super) source: String,
    #[command(flatten)]
    machine: common::MachineOptions,
    /// Between two steps [default: 10s; 5m for a file of utilisation]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    step: Option<Duration>,
    /// How long a generated load lasts [default: 24h]
    #[arg(long = "for", value_name = "TIME", value_parser = parse_duration)]
    duration: Option<Duration>,
    /// Decides everything that happens by chance
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(super) seed: u64,
    /// The machine of a file of utilisation [default: the first]
    #[arg(long = "machine", value_name = "ID")]
    name: Option<String>,
    /// Take rows of a file of utilisation that are usually more than an hour apart; otherwise their
    /// times count as milliseconds
    #[arg(long)]
    sparse: bool,
    #[command(flatten)]
    seconds: common::LoadSeconds,
}

/// The machine and its steps.
pub(super) struct LoadInput {
    pub(super) config: SimConfig,
    pub(super) machine: SimMachine,
    pub(super) steps: Box<dyn Iterator<Item = LoadStep>>,
    pub(super) notes: InputNotes,
}

impl LoadOptions {
    /// Where it is, if it is a recording.
    pub(super) fn recording(&self) -> Option<&Path> {
        let dir = Path::new(&self.source);
        (common::pattern(&self.source).is_none() && dir.is_dir()).then_some(dir)
    }

    /// Its clock.
    pub(super) fn clock(&self) -> Result<SampleClock> {
        self.seconds.clock(self.recording())
    }

    /// Reads or makes it.
    pub(super) fn input(&self) -> Result<LoadInput> {
        let config = self.machine.config(self.seed);
        if let Some(pattern) = common::pattern(&self.source) {
            let machine = SimMachine::new(config.clone())?;
            let pages = machine.totals().managed.0;
            let step = self.step.unwrap_or(Duration::from_secs(10));
            let duration = self.duration.unwrap_or(Duration::from_hours(24));
            let scale = LoadScale { pages, step, duration, seed: self.seed };
            return Ok(LoadInput {
                config,
                machine,
                steps: Box::new(LoadGenerator::new(pattern, scale)),
                notes: InputNotes::default(),
            });
        }
        if let Some(dir) = self.recording() {
            let stated = [
                ("--memory", self.machine.memory.is_some()),
                ("--slice", self.machine.slice.is_some()),
                ("--step", self.step.is_some()),
                ("--for", self.duration.is_some()),
                ("--machine", self.name.is_some()),
                ("--sparse", self.sparse),
            ];
            common::refuse_stated(&stated, "a recording has its own machine and times")?;
            let load = recorded(dir)?;
            let config = self.machine.placed(load.config.clone(), self.seed);
            let machine = load.machine(config.clone())?;
            return Ok(LoadInput {
                config,
                machine,
                steps: Box::new(load.steps.into_iter()),
                notes: load.notes,
            });
        }
        let path = Path::new(&self.source);
        if path.is_file() {
            return self.usage(path, config);
        }
        let message = format!(
            "there is no load `{}`: name one of {}, the directory of a recording, or a file of \
             utilisation",
            self.source,
            common::patterns()
        );
        Err(UsageError(message).into())
    }

    fn usage(&self, path: &Path, config: SimConfig) -> Result<LoadInput> {
        let file = UsageFile::open(path)?.sparse(self.sparse);
        let mut found = None;
        for series in file {
            let series = series?;
            if self.name.as_ref().is_none_or(|name| *name == series.machine) {
                found = Some(series);
                break;
            }
        }
        let Some(series) = found else {
            let name = self.name.as_deref().unwrap_or_default();
            return Err(UsageError(format!("{} has no machine {name}", path.display())).into());
        };
        let mut options = UsageOptions::default();
        options.step = self.step.unwrap_or(options.step);
        let machine = SimMachine::new(config.clone())?;
        let totals = machine.totals();
        let steps: Vec<LoadStep> =
            UsageLoad::new(&series, options, totals.managed.0, totals.used().0).collect();
        Ok(LoadInput { config, machine, steps: Box::new(steps.into_iter()), notes: series.notes })
    }
}
