//! What the simulator's commands share: the machine, the policy, the profile, numbers from and to
//! people.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};
use ramslice_energy::{AssumedUnit, DramPowerState, DramProfile, Interval, SampleClock, range};
use ramslice_policy::{PolicyConfig, PolicyKind, SliceEconomics};
use ramslice_record::Recording;
use ramslice_sim::load::{LoadPattern, UsageOptions};
use ramslice_sim::{EnergyRates, PlacementRule, SimConfig};
use ramslice_types::{Bytes, Joules, Ratio, parse_bytes};

use ramslice_cli::exit::UsageError;
use ramslice_cli::ledger_options::{TimeFactorOptions, UnitSize};
use ramslice_cli::profile_files;

use crate::recordings::clock_of;

/// The memory system.
#[derive(Debug, clap::Args)]
pub(super) struct EnergyOptions {
    /// The memory system and what packing costs: a name from `ramslice-lab profiles`, or a file
    #[arg(long, value_name = "NAME|FILE", default_value = "thesis-parc")]
    profile: String,
    /// The power state [default: the profile's]
    #[arg(long, value_name = "NAME")]
    state: Option<String>,
    /// What the hardware switches as one: a size, or `slice` [default: the profile's]
    #[arg(long, value_name = "SIZE|slice")]
    granularity: Option<UnitSize>,
}

impl EnergyOptions {
    /// What policies decide by, and joules, on a machine with this clock.
    pub(super) fn resolve(
        &self,
        slice: Bytes,
        page: Bytes,
        clock: SampleClock,
    ) -> Result<(SliceEconomics, EnergyRates)> {
        let (profile, state) = self.load()?;
        let machine = profile.machine.as_ref();
        let machine = machine.ok_or_else(|| {
            UsageError(format!("{} names no machine, whose costs could be counted", profile.file))
        })?;
        let usage = |error: String| UsageError(format!("{}: {error}", profile.file));
        let unit = match self.granularity {
            None => state.granularity.bytes.value,
            Some(UnitSize(AssumedUnit::Slice)) => Some(slice),
            Some(UnitSize(AssumedUnit::Bytes(bytes))) => Some(bytes),
        };
        if let Some(unit) = unit.filter(|unit| *unit > slice) {
            let message = format!(
                "slices of {slice} are smaller than what the hardware switches as one, {unit} by \
                 {}, and then none saves anything alone: make slices larger, or assume finer \
                 hardware with --granularity slice",
                if self.granularity.is_some() { "--granularity" } else { profile.name.as_str() },
            );
            return Err(UsageError(message).into());
        }
        let economics = SliceEconomics::new(&state, machine, slice, page)
            .map_err(|error| usage(error.to_string()))?;
        let rates = EnergyRates::new(&profile, &state, page)
            .map_err(|error| UsageError(error.to_string()))?;
        Ok((economics.by(&clock), rates.by(clock)))
    }

    fn load(&self) -> Result<(DramProfile, DramPowerState)> {
        let profile = profile_files::load(&self.profile)?;
        let state = profile_files::state(&profile, self.state.as_deref())?;
        Ok((profile, state))
    }
}

/// Whether the seconds of a load are real ones.
#[derive(Debug, clap::Args)]
pub(super) struct LoadSeconds {
    #[command(flatten)]
    time_factor: TimeFactorOptions,
}

impl LoadSeconds {
    /// The clock of the load, which has these recordings: all of it, or none.
    pub(super) fn clock<'a>(
        &self,
        recordings: impl IntoIterator<Item = &'a Path>,
    ) -> Result<SampleClock> {
        let mut found = None;
        for dir in recordings {
            found = Some(clock_of(&self.time_factor, Recording::open(dir)?.info())?);
        }
        if self.time_factor.time_factor.is_some() && found.is_none() {
            let message = "--time-factor says how slow a recorded machine was, and here is no \
                           recording: leave it out";
            return Err(UsageError(message.to_owned()).into());
        }
        Ok(found.unwrap_or(SampleClock::Real))
    }
}

/// The machine.
#[derive(Debug, clap::Args)]
pub(super) struct MachineOptions {
    /// Memory, rounded down to whole slices [default: 64G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(super) memory: Option<Bytes>,
    /// Size of a slice, a multiple of 2 MiB [default: 1G]
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    pub(super) slice: Option<Bytes>,
    /// Where new memory goes: stock, kernel-low or packed
    #[arg(long, value_name = "RULE", default_value = "stock", value_parser = placement)]
    placement: PlacementRule,
    /// How often a run of pages goes elsewhere than the one before, 0 to 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.2, value_parser = up_to::<1>)]
    scatter: f64,
    /// Simulate runs of a thirty-second of a slice instead of 2 MiB: for terabytes
    #[arg(long)]
    coarse: bool,
}

impl MachineOptions {
    pub(super) fn config(&self, seed: u64) -> SimConfig {
        let memory = self.memory.unwrap_or(Bytes(64 << 30));
        self.placed(SimConfig::new(memory, self.slice()), seed)
    }

    /// Size of a slice of what has no slices of its own.
    pub(super) fn slice(&self) -> Bytes {
        self.slice.unwrap_or(Bytes(1 << 30))
    }

    /// A machine that has memory and slices of its own, with these rules and this grain.
    pub(super) fn placed(&self, config: SimConfig, seed: u64) -> SimConfig {
        let config = SimConfig { placement: self.placement, scatter: self.scatter, seed, ..config };
        if self.coarse { config.coarse() } else { config }
    }
}

/// Refuses the first option that was stated and would change nothing, because of `why`.
pub(super) fn refuse_stated(options: &[(&str, bool)], why: &str) -> Result<()> {
    match options.iter().find(|(_, stated)| *stated) {
        Some((option, _)) => {
            Err(UsageError(format!("{option} would change nothing: {why}; leave it out")).into())
        }
        None => Ok(()),
    }
}

fn placement(text: &str) -> Result<PlacementRule, String> {
    let found = PlacementRule::ALL.into_iter().find(|rule| rule.name() == text);
    found.ok_or_else(|| "the rules are stock, kernel-low and packed".to_owned())
}

/// A policy by its name, with its defaults, or by a file with its settings.
pub(super) fn policy(text: &str) -> Result<PolicyConfig> {
    if let Ok(kind) = text.parse::<PolicyKind>() {
        return Ok(PolicyConfig::new(kind));
    }
    let path = Path::new(text);
    if !path.exists() && !text.contains(['/', '.']) {
        let error = text.parse::<PolicyKind>().expect_err("it was no name");
        return Err(UsageError(format!("{error}; or name a file with settings")).into());
    }
    let content = fs::read(path).with_context(|| format!("reading {text}"))?;
    Ok(PolicyConfig::parse_bytes(content, text)?)
}

/// What is taken of files of utilisation, which say no more than how much memory is in use.
pub(super) fn cache_assumption(options: UsageOptions) -> String {
    format!(
        "of what files of utilisation say is in use, {:.0} % is clean page cache, of which {:.0} \
         % is used again within an hour",
        options.cache_share * 100.0,
        options.cache_reuse_per_hour * 100.0
    )
}

/// A pattern by its name.
pub(super) fn pattern(text: &str) -> Option<LoadPattern> {
    LoadPattern::ALL.into_iter().find(|pattern| pattern.name() == text)
}

/// The names of all patterns.
pub(super) fn patterns() -> String {
    LoadPattern::ALL.map(LoadPattern::name).join(", ")
}

/// More than any price or factor is, and far from where products of some are no numbers any more.
const MOST: f64 = 1e9;

/// A number from 0 to `END`.
pub(super) fn up_to<const END: u32>(text: &str) -> Result<f64, String> {
    match text.trim().parse::<f64>() {
        Ok(number) if (0.0..=f64::from(END)).contains(&number) => Ok(number),
        _ => Err(format!("`{text}` is no number from 0 to {END}")),
    }
}

/// `0.3` or `0.1..0.3`, not negative, and no more than [`MOST`].
pub(super) fn interval(text: &str) -> Result<Interval<Ratio>, String> {
    let wrong = || {
        format!(
            "`{text}` is neither a number from 0 to {MOST:e} nor a range of two: write 0.3 or \
             0.1..0.3"
        )
    };
    let number = |text: &str| match text.trim().parse::<f64>() {
        Ok(number) if (0.0..=MOST).contains(&number) => Ok(Ratio(number)),
        _ => Err(wrong()),
    };
    let (low, high) = text.split_once("..").unwrap_or((text, text));
    Interval::new(number(low)?, number(high)?).map_err(|error| error.to_string())
}

/// Joules in a cell of a table.
pub(super) fn joules(value: Interval<Joules>) -> String {
    range(value)
}

/// A share in a cell of a table.
pub(super) fn share(value: Option<f64>) -> String {
    value.map_or_else(|| "-".to_owned(), |share| format!("{:.1} %", share * 100.0))
}

/// How many machines or inputs are simulated at a time unless --jobs says so.
pub(super) fn jobs(wanted: Option<usize>) -> usize {
    wanted.unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from))
}
