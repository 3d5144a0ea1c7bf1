//! Joules beside the slices: the ledger of `ramslice energy`, kept from look to look.

use anyhow::Result;
use ramslice_energy::{
    CurrentSaving, EnergyLedger, EnergySample, Interval, LedgerPlan, SampleClock, now, range,
};
use ramslice_types::{Joules, PhysicalQuantity as _};
use serde::Serialize;

use super::activity::MachineSample;
use super::options::TopArgs;
use crate::ledger_options::{LedgerOptions, TimeFactorOptions};

/// The ledger, and what its figures rest on.
pub(super) struct EnergySums {
    plan: LedgerPlan,
    /// Not begun before the first look, which shows the size of a slice.
    ledger: Option<EnergyLedger>,
    figures: Option<EnergyFigures>,
    problem: Option<String>,
}

/// What is saved now and was saved, invested and earned since the start; nothing before some time
/// is over.
#[derive(Debug, Clone, Serialize)]
pub(super) struct EnergyFigures {
    pub(super) profile: String,
    pub(super) state: String,
    /// What is saved as long as nothing changes.
    #[serde(flatten)]
    pub(super) now: CurrentSaving,
    /// Absent before some time is over, or if what was done cannot be read.
    #[serde(flatten)]
    pub(super) sums: Option<EnergyTotals>,
}

/// Sums since the start, by a model.
#[derive(Debug, Clone, Serialize)]
pub(super) struct EnergyTotals {
    pub(super) saved_joules: Interval<Joules>,
    pub(super) invested_joules: Interval<Joules>,
    pub(super) net_joules: Interval<Joules>,
    pub(super) verdict: ramslice_energy::EnergyVerdict,
}

impl EnergySums {
    /// With the profile that is asked for, if any.
    pub(super) fn new(
        args: &TopArgs,
        clock: impl FnOnce(&TimeFactorOptions) -> Result<SampleClock>,
    ) -> Result<Option<Self>> {
        let Some(profile) = &args.profile else { return Ok(None) };
        let time_factor =
            TimeFactorOptions { time_factor: args.time_factor, time_factor_source: None };
        let clock = clock(&time_factor)?;
        let options = LedgerOptions {
            profile: profile.to_owned(),
            state: args.state.clone(),
            machine: None,
            time_factor,
            granularity: args.granularity,
            runtime_change: None,
        };
        let plan = options.plan(clock)?;
        Ok(Some(Self { plan, ledger: None, figures: None, problem: None }))
    }

    /// Takes a look into account.
    pub(super) fn add(&mut self, look: &MachineSample) {
        let (info, work) = (&look.machine.info, look.work.unwrap_or_default());
        let granule = self.plan.granule(info.slice_bytes);
        let sample = EnergySample::new(&look.machine.snapshot, info, work);
        let moment = now(&sample, &self.plan.state, granule);
        let mut sums = None;
        if look.work.is_some() {
            let ledger = self.ledger.get_or_insert_with(|| EnergyLedger::new(granule.bytes()));
            match ledger.add(sample) {
                Ok(()) => {
                    self.problem = None;
                    let statement = self.plan.statement(ledger.tally(), &look.machine, None);
                    sums = statement.filter(|_| ledger.tally().elapsed_us > 0).map(|statement| {
                        EnergyTotals {
                            saved_joules: statement.saved_joules,
                            invested_joules: statement.invested_joules,
                            net_joules: statement.net_joules,
                            verdict: statement.verdict,
                        }
                    });
                }
                Err(error) => {
                    self.problem = Some(format!("{error}; the sums begin again"));
                    self.ledger = None;
                }
            }
        }
        self.figures = Some(EnergyFigures {
            profile: self.plan.profile.name.clone(),
            state: self.plan.state.name.clone(),
            now: moment,
            sums,
        });
    }

    /// The figures of the last look.
    pub(super) fn figures(&self) -> Option<&EnergyFigures> {
        self.figures.as_ref()
    }

    /// A sentence, each figure with its two ends.
    pub(super) fn words(&self) -> String {
        let Some(figures) = &self.figures else { return String::new() };
        let watts = figures.now.saved_watts.map_or_else(|| "an unknown power".to_owned(), range);
        let head = format!("energy ({}, {}): saves {watts} now", figures.profile, figures.state);
        match (&figures.sums, &self.problem) {
            (Some(sums), _) => format!(
                "{head}; so far saved {}, invested {}, net {}{}",
                range(sums.saved_joules),
                range(sums.invested_joules),
                range(sums.net_joules),
                if sums.net_joules.contains_zero() && sums.net_joules.high().get() > 0.0 {
                    " (undecided)"
                } else {
                    ""
                },
            ),
            (None, Some(problem)) => format!("{head}; {problem}"),
            (None, None) => format!("{head}; no sums yet"),
        }
    }
}
