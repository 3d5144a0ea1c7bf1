//! Reads the runs that a report is about: what kind each is, and what its figures need.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use ramslice_energy::Interval;
use ramslice_report::{Budget, Energy, Latencies, Priced, Range, Runs, Source, Verdict};
use ramslice_types::{Ratio, SCHEMA_VERSION, Work};
use serde::Deserialize;
use serde_json::Value;

use super::report_sweep::{self, Sweep};
use super::{energy, report_prices, report_recording};
use crate::exit::UsageError;

const KINDS: &str = "a directory made by `ramslice record`, a file of `ramslice calibrate -o` or of `ramslice energy \
                     --json`, a case study's summary or sweep, or a .csv of latencies";

/// `NAME=RUN` or `RUN`, which is then called as its file is.
pub(super) fn names(runs: &[String]) -> Result<Vec<(String, PathBuf)>> {
    let mut used = BTreeSet::new();
    let mut found = Vec::new();
    for run in runs {
        // A path may have an equals sign in it.
        let (name, path) = match run.split_once('=') {
            Some((name, path)) if !Path::new(run).exists() => {
                (name.to_owned(), PathBuf::from(path))
            }
            _ => {
                let path = PathBuf::from(run);
                let stem = if path.is_dir() { path.file_name() } else { path.file_stem() };
                (stem.map_or_else(|| run.clone(), |stem| stem.to_string_lossy().into_owned()), path)
            }
        };
        if !used.insert(name.clone()) {
            let message = format!(
                "two runs are called `{name}`: name them apart, as in first={}",
                path.display()
            );
            return Err(UsageError(message).into());
        }
        found.push((name, path));
    }
    Ok(found)
}

/// Gathers runs.
pub(super) struct Reader {
    ledger: Option<energy::Args>,
    runs: Runs,
    about: Vec<(String, String)>,
    /// Boots of the recordings, for the latencies of the same.
    boots: Vec<String>,
}

impl Reader {
    pub(super) fn new(ledger: Option<energy::Args>) -> Self {
        Self { ledger, runs: Runs::default(), about: Vec::new(), boots: Vec::new() }
    }

    /// Reads one, whatever it is.
    pub(super) fn read(&mut self, name: &str, path: &Path) -> Result<()> {
        let about = if path.is_dir() {
            let found = report_recording::read(name, path, self.ledger.as_ref())?;
            self.runs.recorded.push(found.recorded);
            self.runs.energy.extend(found.energy);
            self.boots.push(found.boot_id);
            found.about
        } else {
            let text =
                fs::read_to_string(path).with_context(|| format!("reading {}", path.display()))?;
            if path.extension().is_some_and(|extension| extension == "csv") {
                let run = latencies(name, path, &text)?;
                let about = format!("{} requests and what they took", run.requests.len());
                self.runs.latencies.push(run);
                about
            } else {
                self.document(name, path, &text)?
            }
        };
        self.about.push((name.to_owned(), about));
        Ok(())
    }

    fn document(&mut self, name: &str, path: &Path, text: &str) -> Result<String> {
        // The last of several documents, one to a line, has the sums of all.
        let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let mut last = None;
        for document in &mut documents {
            last = Some(
                document.with_context(|| format!("{} is not JSON, or damaged", path.display()))?,
            );
        }
        let unknown = || UsageError(format!("{} is not a run: a run is {KINDS}", path.display()));
        let document = last.ok_or_else(unknown)?;
        let has = |key: &str| document.get(key).is_some();
        if has("case") && has("budgets") {
            version(path, &document)?;
            let sweep: Sweep = parse(path, document)?;
            let (found, about) = sweep.into_energy().with_context(|| path.display().to_string())?;
            self.runs.energy.extend(found);
            return Ok(about);
        }
        if has("case") && has("runs") {
            let study: Study = parse(path, document)?;
            let about = study.about();
            let (full, scales, starts) = (
                study.has_full(),
                study.several(|run| &run.scale),
                study.several(|run| &run.start),
            );
            for (at, run) in
                study.runs.into_iter().enumerate().filter(|(_, run)| !full || run.is_full())
            {
                let mut label = name.to_owned();
                for (word, told) in [(&run.scale, scales), (&run.start, starts)] {
                    if told {
                        label = format!("{label} {word}");
                    }
                }
                let label = format!("{label} {} {}", run.setting, run.seed);
                let budget = match run.setting.as_str() {
                    "nothing" => Budget::None,
                    "unlimited" => Budget::Unlimited,
                    setting => Budget::Policy(setting.to_owned()),
                };
                let share = (run.slice_seconds.off > 0.0)
                    .then(|| run.slice_seconds.attainable / run.slice_seconds.off);
                let one = run.energy.into_energy(label, budget, share);
                self.runs
                    .energy
                    .push(one.with_context(|| format!("{}, run {}", path.display(), at + 1))?);
            }
            return Ok(about);
        }
        version(path, &document)?;
        if has("samples") && has("price_parameters_100cycles") {
            let saved: Saved = parse(path, document.clone())?;
            let samples: Vec<Priced> = saved.samples.into_iter().map(Into::into).collect();
            let about = format!(
                "{} slices with the cost of emptying them, Linux {}",
                samples.len(),
                saved.kernel_release
            );
            self.runs.prices.push(report_prices::fitted(name, samples, document));
            return Ok(about);
        }
        if document.get("command").and_then(Value::as_str) == Some("energy") && has("net_joules") {
            let ledger: Ledger = parse(path, document)?;
            let budget = if ledger.work.tried_slices == 0 {
                Budget::None
            } else {
                Budget::Policy(name.to_owned())
            };
            self.runs.energy.push(
                ledger
                    .into_energy(name.to_owned(), budget, None)
                    .with_context(|| path.display().to_string())?,
            );
            return Ok("joules".to_owned());
        }
        Err(unknown().into())
    }

    /// All of them, and what each is.
    pub(super) fn finish(mut self) -> (Runs, Vec<(String, String)>) {
        // Latencies tell no boot: they belong to recordings of one boot, whose clock is theirs.
        let one_boot = self.boots.windows(2).all(|pair| pair[0] == pair[1]);
        let spans: Vec<(f64, f64)> = self
            .runs
            .recorded
            .iter()
            .filter(|_| one_boot)
            .flat_map(|run| {
                run.compactions
                    .iter()
                    .map(|(from, to)| (from + run.begun_seconds, to + run.begun_seconds))
            })
            .collect();
        for run in &mut self.runs.latencies {
            run.compactions.clone_from(&spans);
        }
        (self.runs, self.about)
    }
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, document: Value) -> Result<T> {
    let mut track = String::new();
    // Which of many elements is wrong: serde says it only of text, by line; here the element is named.
    for key in ["samples", "runs", "budgets"] {
        if let Some(items) = document.get(key).and_then(Value::as_array) {
            for (at, item) in items.iter().enumerate() {
                let result = match key {
                    "samples" => serde_json::from_value::<Sample>(item.clone()).err(),
                    "budgets" => serde_json::from_value::<report_sweep::Row>(item.clone()).err(),
                    _ => serde_json::from_value::<Run>(item.clone()).err(),
                };
                if let Some(error) = result {
                    track = format!(", {key}[{at}]: {error}");
                    break;
                }
            }
        }
    }
    serde_json::from_value(document).map_err(|error| {
        let what = if track.is_empty() { format!(": {error}") } else { track };
        anyhow::anyhow!("{}{what}", path.display())
    })
}

fn version(path: &Path, document: &Value) -> Result<()> {
    match document.get("schema_version").and_then(Value::as_u64) {
        Some(found) if found == u64::from(SCHEMA_VERSION) => Ok(()),
        Some(found) => {
            let message = format!(
                "{} has schema_version {found}, this program knows {SCHEMA_VERSION}",
                path.display()
            );
            Err(UsageError(message).into())
        }
        None => {
            Err(UsageError(format!("{} is not a run: a run is {KINDS}", path.display())).into())
        }
    }
}

/// What `ramslice calibrate -o` saves, as far as figures need it.
#[derive(Deserialize)]
struct Saved {
    kernel_release: String,
    samples: Vec<Sample>,
}

#[derive(Deserialize)]
struct Sample {
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

impl From<Sample> for Priced {
    fn from(sample: Sample) -> Self {
        Self {
            source: match sample.origin.as_str() {
                Some("program") => Source::Programs,
                Some("everyday") => Source::Everyday,
                _ => Source::Filled,
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
struct Study {
    case: String,
    runs: Vec<Run>,
}

impl Study {
    fn has_full(&self) -> bool {
        self.runs.iter().any(Run::is_full)
    }

    /// Runs that count: smaller ones are no evidence, and do not stand beside full ones.
    fn counting(&self) -> impl Iterator<Item = &Run> {
        let full = self.has_full();
        self.runs.iter().filter(move |run| !full || run.is_full())
    }

    fn words<'a>(&'a self, of: impl Fn(&'a Run) -> &'a str) -> Vec<&'a str> {
        self.counting().map(of).collect::<BTreeSet<_>>().into_iter().collect()
    }

    /// Whether runs that count differ in this.
    fn several<'a>(&'a self, of: impl Fn(&'a Run) -> &'a str) -> bool {
        self.words(of).len() > 1
    }

    /// What it is: how many runs, of which scale and start, and what is left out.
    fn about(&self) -> String {
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

fn runs(count: usize) -> &'static str {
    if count == 1 { "run" } else { "runs" }
}

#[derive(Deserialize)]
struct Run {
    /// Of the work: `full`, or a try.
    scale: String,
    start: String,
    setting: String,
    seed: u64,
    slice_seconds: SliceSeconds,
    energy: Ledger,
}

impl Run {
    fn is_full(&self) -> bool {
        self.scale == "full"
    }
}

#[derive(Deserialize)]
struct SliceSeconds {
    off: f64,
    attainable: f64,
}

/// What `ramslice energy --json` prints, as far as figures need it.
#[derive(Deserialize)]
struct Ledger {
    profile: String,
    state: String,
    clock: String,
    #[serde(default)]
    time_factor: Option<Ends>,
    #[serde(default)]
    time_factor_source: Option<String>,
    work: Work,
    saved_joules: Ends,
    invested_joules: Ends,
    net_joules: Ends,
    #[serde(default)]
    lines: Vec<Line>,
    verdict: Sentence,
}

#[derive(Deserialize, Clone, Copy)]
pub(super) struct Ends {
    pub(super) low: f64,
    pub(super) high: f64,
}

impl Ends {
    pub(super) fn range(self) -> Result<Range> {
        let Self { low, high } = self;
        anyhow::ensure!(low <= high, "an interval from {low} to {high} J runs backwards");
        Ok(Range { low, high })
    }
}

#[derive(Deserialize)]
struct Line {
    term: String,
    joules: Option<Ends>,
}

#[derive(Deserialize)]
struct Sentence {
    sign: String,
}

/// By what seconds are divided, and who says so, to stand behind them.
pub(super) fn divided(factor: Interval<Ratio>, source: &str) -> String {
    format!(", divided by {} ({source})", ramslice_energy::range(factor).trim_end())
}

impl Ledger {
    /// `attainable` is the limit as a multiple of what was saved.
    fn into_energy(self, name: String, budget: Budget, attainable: Option<f64>) -> Result<Energy> {
        let saved = self.saved_joules.range()?;
        let divided = match self.time_factor {
            Some(factor) => {
                let by = self.time_factor_source.as_deref().unwrap_or("--time-factor");
                let Range { low, high } = factor.range()?;
                divided(Interval::between(Ratio(low), Ratio(high)), by)
            }
            None => String::new(),
        };
        Ok(Energy {
            sweep: None,
            name,
            budget,
            saved,
            attainable: attainable.map(|share| saved.times(share)),
            invested: self.invested_joules.range()?,
            net: self.net_joules.range()?,
            verdict: match self.verdict.sign.as_str() {
                "gain" => Verdict::Gain,
                "loss" => Verdict::Loss,
                _ => Verdict::Undecided,
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

/// Times of requests: `boottime_us,latency_us`.
fn latencies(name: &str, path: &Path, text: &str) -> Result<Latencies> {
    const COLUMNS: [&str; 2] = ["boottime_us", "latency_us"];
    let place = |line: usize| format!("{}:{}", path.display(), line + 1);
    let mut lines = text.lines().enumerate();
    let head: Vec<&str> =
        lines.next().map_or(Vec::new(), |(_, line)| line.split(',').map(str::trim).collect());
    let column = |name: &str| {
        head.iter().position(|found| *found == name).ok_or_else(|| {
            UsageError(format!(
                "{} has no column `{name}`: the first line names {}",
                place(0),
                COLUMNS.join(",")
            ))
        })
    };
    let (when, took) = (column(COLUMNS[0])?, column(COLUMNS[1])?);
    let mut requests: Vec<(f64, f64)> = Vec::new();
    for (number, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let cells: Vec<&str> = line.split(',').collect();
        let cell = |at: usize| -> Result<f64> {
            let text = cells.get(at).map_or("", |cell| cell.trim());
            let value: f64 = text
                .parse()
                .ok()
                .filter(|value: &f64| value.is_finite() && *value >= 0.0)
                .with_context(|| {
                    format!("{}: {} is `{text}`, not microseconds", place(number), head[at])
                })?;
            Ok(value)
        };
        requests.push((cell(when)? / 1e6, cell(took)? / 1e3));
    }
    if requests.is_empty() {
        return Err(UsageError(format!("{} has no requests", path.display())).into());
    }
    requests.sort_by(|a, b| a.0.total_cmp(&b.0));
    Ok(Latencies { name: name.to_owned(), requests, compactions: Vec::new() })
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
