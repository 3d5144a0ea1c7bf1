//! A profile as rows: each figure with its source, for showing.

use ramslice_types::PhysicalQuantity;
use serde::Serialize;

use super::{DramPowerState, DramProfile, PowerScale, SourcedValue, TransitionLatency};
use crate::interval::Interval;

/// A figure of a profile.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ProfileFigure {
    /// The state it belongs to; nothing for what holds for all, and for the machine.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// Its name in the file.
    pub field: String,
    /// As the file has it.
    pub written: String,
    /// The low end in `unit`; `None` for a word and for an unknown figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub low: Option<f64>,
    /// The high end in `unit`; nothing if there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high: Option<f64>,
    /// The unit of the ends.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub unit: &'static str,
    /// Where it is from.
    pub source: String,
}

/// What has two ends.
trait IntervalEnds {
    fn ends(&self) -> (f64, Option<f64>);
}

impl<Q: PhysicalQuantity> IntervalEnds for Interval<Q> {
    fn ends(&self) -> (f64, Option<f64>) {
        (self.low().get(), Some(self.high().get()))
    }
}

impl IntervalEnds for TransitionLatency {
    fn ends(&self) -> (f64, Option<f64>) {
        (self.low.0, self.high.map(|high| high.0))
    }
}

/// Collects rows.
struct FigureList {
    rows: Vec<ProfileFigure>,
    state: Option<String>,
}

impl FigureList {
    fn number<T: IntervalEnds>(
        &mut self,
        field: &str,
        figure: &SourcedValue<T>,
        unit: &'static str,
    ) {
        let ends = figure.value.as_ref().map(IntervalEnds::ends);
        self.rows.push(ProfileFigure {
            state: self.state.clone(),
            field: field.to_owned(),
            written: figure.written.clone(),
            low: ends.map(|(low, _)| low),
            high: ends.and_then(|(_, high)| high),
            unit: if ends.is_some() { unit } else { "" },
            source: figure.source.clone(),
        });
    }

    fn power(
        &mut self,
        field: &str,
        figure: &SourcedValue<super::ProfilePower>,
        unit: &'static str,
    ) {
        let own = SourcedValue {
            value: figure.value.map(|power| power.own),
            written: figure.written.clone(),
            source: figure.source.clone(),
        };
        self.number(field, &own, unit);
    }

    fn word<T>(&mut self, field: &str, figure: &SourcedValue<T>) {
        let none: Option<TransitionLatency> = None;
        let word = SourcedValue {
            value: none,
            written: figure.written.clone(),
            source: figure.source.clone(),
        };
        self.number(field, &word, "");
    }
}

impl DramProfile {
    /// Every figure with its source, in the order of the file. Powers are in the profile's own
    /// unit.
    pub fn rows(&self) -> Vec<ProfileFigure> {
        let mut rows = FigureList { rows: Vec::new(), state: None };
        let unit = match &self.scale {
            PowerScale::PerGib => "W/GiB",
            PowerScale::PerModule(_) => "W",
            PowerScale::OfFull(_) => "of full power",
        };
        rows.power("background", &self.background, unit);
        match &self.scale {
            PowerScale::PerGib => {}
            PowerScale::PerModule(capacity) => rows.number("module_capacity", capacity, "GiB"),
            PowerScale::OfFull(full) => rows.number("full_power", full, "W/GiB"),
        }
        for state in &self.states {
            rows.state = Some(state.name.clone());
            state_rows(&mut rows, state, unit);
        }
        rows.state = None;
        if let Some(machine) = &self.machine {
            rows.number("memory", &machine.memory, "GiB");
            rows.number("frequency", &machine.frequency, "Hz");
            rows.number("compacting_power", &machine.compacting_power, "W");
            rows.number("platform_power", &machine.platform_power, "W");
            rows.number("accounting", &machine.accounting, "instructions/page");
            rows.number("waking", &machine.waking, "instructions/GiB");
            rows.number(
                "cycles_per_instruction",
                &machine.cycles_per_instruction,
                "cycles/instruction",
            );
            rows.number("refault_cpu", &machine.refault_cpu, "cycles/page");
            rows.number("refault_storage", &machine.refault_storage, "J/GiB");
            for (parameter, price) in &machine.prices {
                rows.number(&format!("prices.{}", parameter.name()), price, "cycles");
            }
            rows.number("prices.error", &machine.price_error, "cycles/GiB");
        }
        rows.rows
    }
}

fn state_rows(rows: &mut FigureList, state: &DramPowerState, unit: &'static str) {
    rows.power("saving", &state.saving, unit);
    if let Some(all_on) = &state.all_on {
        rows.power("all_on", all_on, unit);
    }
    rows.power("floor", &state.floor, unit);
    rows.word("granularity", &state.granularity.bytes);
    rows.number("entry_latency", &state.entry_latency, "s");
    rows.number("exit_latency", &state.exit_latency, "s");
    if let Some(power) = &state.exit_power {
        rows.power("exit_power", power, unit);
    }
    rows.word("retention", &state.retention);
    rows.word("applies", &state.applies);
    if let Some(standards) = &state.standards {
        rows.word("standards", standards);
    }
}
