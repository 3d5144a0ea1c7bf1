//! The statement: joules saved, invested and net, each as an interval, with what each figure rests
//! on.

use ramslice_types::{Bytes, GibSeconds, Joules, Ratio, Seconds, Watts};
use serde::Serialize;

use crate::clock::{SampleClock, gib};
use crate::costs::{CostCalculator, CostLine};
use crate::interval::Interval;
use crate::ledger::{EnergySample, EnergyTally};
use crate::profile::DramPowerState;
use crate::statement_settings::{PowerGranule, StatementSettings};
use crate::verdict::{EnergyVerdict, VerdictGrounds, digits, range, verdict};

/// A meter's figure next to the model's.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MeterComparison {
    /// What was measured: the machine, the memory.
    pub what: &'static str,
    /// By the meter.
    pub meter_joules: Joules,
    /// By the profile.
    pub model_joules: Interval<Joules>,
    /// Whether the profile fits. Memory that is used may draw more than one that is idle.
    pub agrees: bool,
}

/// What slices in use may have saved by resting between two accesses.
///
/// No part of what was saved: whether hardware rested is not known. So the low end is none of the
/// time, and the high end that in which samples saw no access; all of it without samples.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RestStatement {
    /// See [`crate::DramProfile::rest_state`].
    pub state: Option<String>,
    /// Memory that the power driver was told may rest, times real seconds.
    pub gib_seconds: Interval<GibSeconds>,
    /// The share of it that was sampled, by DAMON.
    pub sampled_share: Ratio,
    /// The share of it in which samples saw no access, or there were none: at most so much was
    /// rest.
    pub unaccessed_share: Ratio,
    /// Saved by it; nothing if the profile's power of the state is unknown.
    pub joules: Option<Interval<Joules>>,
}

/// Where the joules went.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EnergyStatement {
    /// The time, in real seconds.
    pub time_seconds: Interval<Seconds>,
    /// Memory that was off in whole units of the hardware, times real seconds.
    pub off_gib_seconds: Interval<GibSeconds>,
    /// Saved by it.
    pub saved_joules: Interval<Joules>,
    /// The costs.
    pub lines: Vec<CostLine>,
    /// The sum of those that have a figure.
    pub invested_joules: Interval<Joules>,
    /// Saved less invested.
    pub net_joules: Interval<Joules>,
    /// Of slices in use; nothing if none may rest.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rest: Option<RestStatement>,
    /// Drawn by the whole machine.
    pub machine_joules: Option<Interval<Joules>>,
    /// Net as a share of that; it may be below 0.
    pub net_share: Option<Interval<Ratio>>,
    /// What the figures rest on, one sentence each.
    pub basis: Vec<String>,
    /// Meter and model.
    pub reconciled: Vec<MeterComparison>,
    /// In a word and a sentence.
    pub verdict: EnergyVerdict,
}

/// What is saved at one moment.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CurrentSaving {
    /// Bytes in slices that are off.
    pub off_bytes: Bytes,
    /// Of these, in whole units of the hardware; nothing if their size is unknown.
    pub whole_units_bytes: Option<Bytes>,
    /// Power that they save; nothing if the profile does not say.
    pub saved_watts: Option<Interval<Watts>>,
}

/// What a machine saves at the moment of a sample, as long as it stays as it is.
pub fn now(sample: &EnergySample, state: &DramPowerState, granule: PowerGranule) -> CurrentSaving {
    let off = |unit: Option<Bytes>| Bytes(sample.off_bytes(unit));
    let (off_bytes, whole) = (off(None), granule.bytes().map(|unit| off(Some(unit))));
    let memory =
        Interval::between(gib(whole.map_or(0, |bytes| bytes.0)), gib(whole.unwrap_or(off_bytes).0));
    let saved_watts = state.saving_by_packing().map(|saving| saving.times(memory));
    CurrentSaving { off_bytes, whole_units_bytes: whole, saved_watts }
}

impl EnergyStatement {
    /// Works out the joules; nothing if the profile does not say what the state saves.
    pub fn new(tally: &EnergyTally, settings: &StatementSettings<'_>) -> Option<Self> {
        let saving = settings.state.saving_by_packing()?;
        let clock = settings.clock;
        let time = clock.seconds(tally.elapsed());
        // The ends belong together: low with low, whatever the factor.
        let ends = [tally.off_low_byte_us, tally.off_high_byte_us]
            .map(|byte_us| clock.gib_seconds(byte_us));
        let off = Interval::between(ends[0].low(), ends[1].high());
        let saved = saving.times(off);
        let machine_joules = machine_energy(settings, time);
        let costs = CostCalculator { tally, settings };
        let mut lines = vec![
            costs.emptying(),
            costs.waking(),
            costs.accounting(),
            costs.refaults(),
            costs.transitions(),
            costs.run_time(machine_joules),
        ];
        let invested =
            lines.iter().filter_map(|line| line.joules).fold(Interval::zero(), |sum, j| sum + j);
        let net = saved - invested;
        for line in lines.iter_mut().filter(|line| line.joules.is_none()) {
            line.gain_only_if = costs.condition(line.term, net.low(), machine_joules);
        }
        let net_share = machine_joules.and_then(|all| net.per(all));
        let uncounted: Vec<_> = lines
            .iter()
            .filter(|line| line.joules.is_none())
            .map(|line| (line.term, line.gain_only_if.clone()))
            .collect();
        let emulated = !clock.is_real();
        let verdict =
            verdict(&VerdictGrounds { net, share: net_share, uncounted: &uncounted, emulated });
        Some(Self {
            time_seconds: time,
            off_gib_seconds: off,
            saved_joules: saved,
            lines,
            invested_joules: invested,
            net_joules: net,
            rest: rest(tally, settings),
            machine_joules,
            net_share,
            basis: basis(tally, settings, time),
            reconciled: reconcile(settings, time, saved),
            verdict,
        })
    }
}

/// What the whole machine drew: by the meter, otherwise by the profile.
fn machine_energy(
    settings: &StatementSettings<'_>,
    time: Interval<Seconds>,
) -> Option<Interval<Joules>> {
    if let Some(joules) = settings.measured.and_then(|measured| measured.machine_joules) {
        return Some(Interval::exactly(joules));
    }
    Some(settings.profile.machine.as_ref()?.platform_power.value?.times(time))
}

fn rest(tally: &EnergyTally, settings: &StatementSettings<'_>) -> Option<RestStatement> {
    if tally.resting_high_byte_us == 0 {
        return None;
    }
    let state = settings.profile.rest_state();
    let gib_seconds = settings.clock.gib_seconds(tally.resting_high_byte_us);
    let saving = state.and_then(DramPowerState::saving_by_packing);
    let unaccessed_byte_us = tally.resting_high_byte_us.saturating_sub(tally.accessed_low_byte_us);
    let unaccessed = settings.clock.gib_seconds(unaccessed_byte_us);
    let share = |byte_us: u128| Ratio(byte_us as f64 / tally.resting_high_byte_us as f64);
    Some(RestStatement {
        state: state.map(|state| state.name.clone()),
        gib_seconds,
        sampled_share: share(tally.sampled_byte_us),
        unaccessed_share: share(unaccessed_byte_us),
        joules: saving.map(|saving| saving.times(unaccessed).or_nothing()),
    })
}

fn basis(
    tally: &EnergyTally,
    settings: &StatementSettings<'_>,
    time: Interval<Seconds>,
) -> Vec<String> {
    let mut basis = Vec::new();
    let shown = digits(tally.elapsed().as_secs_f64());
    basis.push(match settings.clock {
        SampleClock::Real => format!("time: {shown} s, real"),
        SampleClock::Emulated(slower) => format!(
            "time: {shown} s of an emulated machine, divided by {} ({}), are {}",
            plain(slower.factor()),
            slower.source(),
            range(time),
        ),
    });
    basis.push(match (&settings.profile.machine, settings.clock) {
        (None, _) => "costs: none can be counted, because the profile names no machine".to_owned(),
        (Some(machine), SampleClock::Real) => {
            let by = match (settings.cycle_clock, machine.frequency.value) {
                (Some(clock), _) => format!("cycles are of {}", range(Interval::exactly(clock))),
                (None, Some(assumed)) => format!(
                    "the clock of its cycles is not known, and assumed to be the profile's, {}",
                    range(assumed)
                ),
                (None, None) => "the clock of its cycles is not known".to_owned(),
            };
            format!(
                "costs: the CPU time that the kernel measured ({by}), at the power of: {}",
                machine.name
            )
        }
        (Some(machine), SampleClock::Emulated(_)) => {
            format!("costs: operations that the kernel counted, at the prices of: {}", machine.name)
        }
    });
    basis.push(match settings.power_driver {
        "none" => {
            "power driver: none, so nothing was switched; figures are as if one had".to_owned()
        }
        name => {
            format!("power driver: {name}; savings hold if it brings this memory into this state")
        }
    });
    let unit = &settings.state.granularity;
    basis.push(match settings.granule {
        PowerGranule::Assumed(bytes) => format!(
            "granularity: {bytes} assumed, as if the hardware switched that; the profile says {} \
             ({})",
            unit.bytes.written, unit.what
        ),
        PowerGranule::OfProfile(Some(bytes)) => {
            format!("granularity: only whole aligned units of {bytes} count ({})", unit.what)
        }
        PowerGranule::OfProfile(None) => format!(
            "granularity: unknown ({}), so perhaps nothing of what was off saved: {}",
            unit.what, unit.bytes.source
        ),
    });
    basis.push(match settings.measured {
        Some(measured) if measured.incomplete => "all figures are a model's: meanwhile the \
                                                  meter's domains changed or it could not be \
                                                  read, so it has none of all the time"
            .to_owned(),
        Some(measured) => {
            format!(
                "savings are a model's; the machine's energy is measured ({})",
                measured.machine_domains.join(" + ")
            )
        }
        None => "all figures are a model's: no meter was read".to_owned(),
    });
    basis
}

fn plain(value: Interval<Ratio>) -> String {
    range(value).trim_end().to_owned()
}

fn reconcile(
    settings: &StatementSettings<'_>,
    time: Interval<Seconds>,
    saved: Interval<Joules>,
) -> Vec<MeterComparison> {
    let Some(measured) = settings.measured else { return Vec::new() };
    let mut found = Vec::new();
    let platform =
        settings.profile.machine.as_ref().and_then(|machine| machine.platform_power.value);
    if let (Some(meter), Some(power)) = (measured.machine_joules, platform) {
        let model = power.times(time);
        found.push(MeterComparison {
            what: "machine",
            meter_joules: meter,
            model_joules: model,
            agrees: model.contains(meter),
        });
    }
    let background = settings.profile.background.value.and_then(|power| power.per_gib);
    if let (Some(meter), Some(power)) = (measured.dram_joules, background) {
        let all = power.times(Interval::exactly(gib(settings.memory.0)).times(time));
        let model = (all - saved).at_least_zero();
        // The background is that of idle memory: reading and writing add to it.
        found.push(MeterComparison {
            what: "memory",
            meter_joules: meter,
            model_joules: model,
            agrees: meter >= model.low(),
        });
    }
    found
}

#[cfg(test)]
#[path = "statement_tests.rs"]
mod tests;
