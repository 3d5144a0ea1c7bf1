//! Files of results: samples of a calibration, case studies, statements of a ledger.

use std::collections::BTreeSet;

use ramslice_energy::Interval;
use ramslice_types::{Ratio, WorkCounters};
use serde::Deserialize;
use serde_json::Value;

use crate::{ContentsSource, GainVerdict, PricedSlice, RunBudget, RunEnergy, ValueRange};

/// What `ramslice-lab calibrate -o` saves, as far as figures need it.
#[derive(Deserialize)]
pub(super) struct SavedSamples {
    pub(super) kernel_release: String,
    pub(super) samples: Vec<SavedSample>,
}

#[derive(Deserialize)]
pub(super) struct SavedSample {
    /// `program`, `everyday`, or an object that says how memory was filled.
    origin: Value,
    label: String,
    frames_pages: u64,
    drop_pages: u64,
    move_pages: u64,
    mappings: u64,
    price_predicted_100cycles: u64,
    price_measured_100cycles: u64,
}

impl From<SavedSample> for PricedSlice {
    fn from(sample: SavedSample) -> Self {
        Self {
            source: match sample.origin.as_str() {
                Some("program") => ContentsSource::Programs,
                Some("everyday") => ContentsSource::Everyday,
                _ => ContentsSource::Filled,
            },
            label: sample.label,
            frames_pages: sample.frames_pages,
            drop_pages: sample.drop_pages,
            move_pages: sample.move_pages,
            mappings: sample.mappings,
            fitted_cycles: None,
            predicted_cycles: sample.price_predicted_100cycles as f64 * 100.0,
            measured_cycles: sample.price_measured_100cycles as f64 * 100.0,
        }
    }
}

/// A case study's summary.
#[derive(Deserialize)]
pub(super) struct CaseStudy {
    case: String,
    pub(super) runs: Vec<CaseRun>,
}

impl CaseStudy {
    pub(super) fn has_full(&self) -> bool {
        self.runs.iter().any(CaseRun::is_full)
    }

    /// Runs that count: smaller ones are no evidence, and do not stand beside full ones.
    fn counting(&self) -> impl Iterator<Item = &CaseRun> {
        let full = self.has_full();
        self.runs.iter().filter(move |run| !full || run.is_full())
    }

    fn words<'a>(&'a self, of: impl Fn(&'a CaseRun) -> &'a str) -> Vec<&'a str> {
        self.counting().map(of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether runs that count differ in this.
    pub(super) fn several<'a>(&'a self, of: impl Fn(&'a CaseRun) -> &'a str) -> bool {
        self.words(of).len() > 1
    }

    /// What it is: how many runs, of which scale and start, and what is left out.
    pub(super) fn about(&self) -> String {
        let count = self.counting().count();
        let mut text = format!("case study {}, {count} {}", self.case, runs(count));
        if count > 0 {
            let (scales, starts) = (self.words(|run| &run.scale), self.words(|run| &run.start));
            text += &format!(", scale {}, start {}", scales.join(" and "), starts.join(" and "));
        }
        match self.runs.len() - count {
            0 => text,
            left => format!("{text}; {left} {} of smaller scale left out", runs(left)),
        }
    }
}

/// The noun for so many runs.
pub(super) fn runs(count: usize) -> &'static str {
    if count == 1 { "run" } else { "runs" }
}

#[derive(Deserialize)]
pub(super) struct CaseRun {
    /// Of the work: `full`, or a try.
    pub(super) scale: String,
    pub(super) start: String,
    pub(super) setting: String,
    pub(super) seed: u64,
    pub(super) slice_seconds: SliceSeconds,
    pub(super) energy: StatementFile,
}

impl CaseRun {
    pub(super) fn is_full(&self) -> bool {
        self.scale == "full"
    }
}

#[derive(Deserialize)]
pub(super) struct SliceSeconds {
    pub(super) off: f64,
    pub(super) attainable: f64,
}

/// What `ramslice energy --json` prints, as far as figures need it.
#[derive(Deserialize)]
pub(super) struct StatementFile {
    profile: String,
    state: String,
    clock: String,
    #[serde(default)]
    time_factor: Option<JouleRange>,
    #[serde(default)]
    time_factor_source: Option<String>,
    pub(super) work: WorkCounters,
    saved_joules: JouleRange,
    invested_joules: JouleRange,
    net_joules: JouleRange,
    #[serde(default)]
    lines: Vec<StatementLine>,
    verdict: VerdictFile,
}

#[derive(Deserialize, Clone, Copy)]
pub(super) struct JouleRange {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl JouleRange {
    pub(super) fn range(self) -> Result<ValueRange, String> {
        let Self { low, high } = self;
        if low > high || low.is_nan() || high.is_nan() {
            return Err(format!("an interval from {low} to {high} J runs backwards"));
        }
        Ok(ValueRange { low, high })
    }
}

#[derive(Deserialize)]
struct StatementLine {
    term: String,
    joules: Option<JouleRange>,
}

#[derive(Deserialize)]
struct VerdictFile {
    sign: String,
}

/// By what seconds are divided, and who says so, to stand behind them.
pub(super) fn divided(factor: Interval<Ratio>, source: &str) -> String {
    format!(", divided by {} ({source})", ramslice_energy::range(factor).trim_end())
}

impl StatementFile {
    /// `attainable` is the limit as a multiple of what was saved.
    pub(super) fn into_energy(
        self,
        name: String,
        budget: RunBudget,
        attainable: Option<f64>,
    ) -> Result<RunEnergy, String> {
        let saved = self.saved_joules.range()?;
        let divided = match self.time_factor {
            Some(factor) => {
                let by = self.time_factor_source.as_deref().unwrap_or("--time-factor");
                let ValueRange { low, high } = factor.range()?;
                divided(Interval::between(Ratio(low), Ratio(high)), by)
            }
            None => String::new(),
        };
        Ok(RunEnergy {
            sweep: None,
            name,
            budget,
            saved,
            attainable: attainable.map(|share| saved.times(share)),
            invested: self.invested_joules.range()?,
            net: self.net_joules.range()?,
            verdict: match self.verdict.sign.as_str() {
                "gain" => GainVerdict::Gain,
                "loss" => GainVerdict::Loss,
                _ => GainVerdict::Undecided,
            },
            uncounted: self
                .lines
                .iter()
                .filter(|line| line.joules.is_none())
                .map(|line| line.term.replace('_', " "))
                .collect(),
            basis: format!(
                "By the profile {}, state {}; {} seconds{divided}.",
                self.profile, self.state, self.clock
            ),
        })
    }
}
