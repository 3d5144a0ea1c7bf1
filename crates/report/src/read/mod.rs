//! Reads the runs that a report is about: what kind each is, and what its figures need.

mod error;
mod latencies;
mod page_cache;
mod prices;
mod recording;
mod rest;
mod results;
mod sizes;
mod sweep;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use ramslice_types::SCHEMA_VERSION;
use serde_json::Value;

use self::error::Result;
use self::latencies::latencies;
use self::rest::ResultsFile;
use self::results::{CaseRun, CaseStudy, SavedSample, SavedSamples, StatementFile};
use self::sizes::{SizesFile, SizesRun};
use self::sweep::{BudgetRow, BudgetSweep};
use crate::{PricedSlice, ReportData, RunBudget};

pub use self::error::{BoxError, PlanForRecording, RunError};

/// What a run may be.
const KINDS: &str = "a directory made by `ramslice-lab record`, a file of `ramslice-lab calibrate \
                     -o` or of `ramslice energy --json`, a case study's summary or sweep, a study \
                     of memory sizes, the kept results of cold memory, or a .csv of latencies";

/// Names and paths of runs: `NAME=RUN` or `RUN`, which is then called as its file is.
///
/// # Errors
/// If two have one name.
pub fn names(runs: &[String]) -> Result<Vec<(String, PathBuf)>> {
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
            return Err(RunError::NotARun(message));
        }
        found.push((name, path));
    }
    Ok(found)
}

/// Gathers runs.
pub struct RunReader<'a> {
    plan: Option<&'a PlanForRecording<'a>>,
    runs: ReportData,
    about: Vec<(String, String)>,
    /// Boots of the recordings, for the latencies of the same.
    boots: Vec<String>,
}

impl<'a> RunReader<'a> {
    /// With `plan`, joules of recordings are counted.
    pub fn new(plan: Option<&'a PlanForRecording<'a>>) -> Self {
        Self { plan, runs: ReportData::default(), about: Vec::new(), boots: Vec::new() }
    }

    /// Reads one, whatever it is.
    ///
    /// # Errors
    /// By file and place: what is no run, or damaged.
    pub fn read(&mut self, name: &str, path: &Path) -> Result<()> {
        let about = if path.is_dir() {
            let found = recording::read(name, path, self.plan)?;
            self.runs.recorded.extend(found.recorded.map(Rc::new));
            self.runs.statistics.extend(found.statistics);
            self.runs.page_cache.extend(found.page_cache);
            self.runs.energy.extend(found.energy);
            self.boots.push(found.boot_id);
            found.about
        } else {
            let text = fs::read_to_string(path)
                .map_err(|source| RunError::Unreadable { path: path.to_owned(), source })?;
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
        if !text.trim_start().starts_with('{') {
            return Err(not_a_run(path));
        }
        // The last of several documents, one to a line, has the sums of all.
        let mut documents = serde_json::Deserializer::from_str(text).into_iter::<Value>();
        let mut last = None;
        for document in &mut documents {
            let damaged = |source| RunError::NotJson { path: path.to_owned(), source };
            last = Some(document.map_err(damaged)?);
        }
        let document = last.ok_or_else(|| not_a_run(path))?;
        let at_path = |why: String| RunError::Damaged(format!("{}: {why}", path.display()));
        let has = |key: &str| document.get(key).is_some();
        if has("case") && has("budgets") {
            version(path, &document)?;
            let sweep: BudgetSweep = parse(path, document)?;
            let (found, about) = sweep.into_energy().map_err(at_path)?;
            self.runs.energy.extend(found);
            return Ok(about);
        }
        if has("case") && has("runs") {
            let study: CaseStudy = parse(path, document)?;
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
                for (word, shown) in [(&run.scale, scales), (&run.start, starts)] {
                    if shown {
                        label = format!("{label} {word}");
                    }
                }
                let label = format!("{label} {} {}", run.setting, run.seed);
                let budget = match run.setting.as_str() {
                    "nothing" => RunBudget::None,
                    "unlimited" => RunBudget::Unlimited,
                    setting => RunBudget::Policy(setting.to_owned()),
                };
                let share = (run.slice_seconds.off > 0.0)
                    .then(|| run.slice_seconds.attainable / run.slice_seconds.off);
                let one = run.energy.into_energy(label, budget, share);
                let damaged =
                    |why| RunError::Damaged(format!("{}, run {}: {why}", path.display(), at + 1));
                self.runs.energy.push(one.map_err(damaged)?);
            }
            return Ok(about);
        }
        if has("suite") && has("entries") {
            let file: ResultsFile = parse(path, document)?;
            let (rest, accesses, about) = file.into_studies(name).map_err(at_path)?;
            self.runs.rest.extend(rest);
            self.runs.cold_accesses.extend(accesses);
            return Ok(about);
        }
        version(path, &document)?;
        if document.get("kind").and_then(Value::as_str) == Some("sizes") {
            let file: SizesFile = parse(path, document)?;
            let (study, about) = file.into_study(name.to_owned()).map_err(at_path)?;
            self.runs.sizes.push(study);
            return Ok(about);
        }
        if has("samples") && has("price_parameters_100cycles") {
            let saved: SavedSamples = parse(path, document.clone())?;
            let samples: Vec<PricedSlice> = saved.samples.into_iter().map(Into::into).collect();
            let about = format!(
                "{} slices with the cost of emptying them, Linux {}",
                samples.len(),
                saved.kernel_release
            );
            self.runs.prices.push(prices::fitted(name, samples, document));
            return Ok(about);
        }
        if document.get("command").and_then(Value::as_str) == Some("energy") && has("net_joules") {
            let ledger: StatementFile = parse(path, document)?;
            let budget = if ledger.work.tried_slices == 0 {
                RunBudget::None
            } else {
                RunBudget::Policy(name.to_owned())
            };
            let one = ledger.into_energy(name.to_owned(), budget, None);
            self.runs.energy.push(one.map_err(at_path)?);
            return Ok("joules".to_owned());
        }
        Err(not_a_run(path))
    }

    /// All of them, and what each is.
    pub fn finish(mut self) -> (ReportData, Vec<(String, String)>) {
        // Latencies name no boot: they belong to recordings of one boot, whose clock is theirs.
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

fn not_a_run(path: &Path) -> RunError {
    RunError::NotARun(format!("{} is not a run: a run is {KINDS}", path.display()))
}

fn parse<T: serde::de::DeserializeOwned>(path: &Path, document: Value) -> Result<T> {
    let mut track = String::new();
    // Which of many elements is wrong: serde says it only of text, by line; here the element is
    // named.
    for key in ["samples", "runs", "budgets"] {
        if let Some(items) = document.get(key).and_then(Value::as_array) {
            for (at, item) in items.iter().enumerate() {
                let result = match key {
                    "samples" => serde_json::from_value::<SavedSample>(item.clone()).err(),
                    "budgets" => serde_json::from_value::<BudgetRow>(item.clone()).err(),
                    _ if document.get("kind").and_then(Value::as_str) == Some("sizes") => {
                        serde_json::from_value::<SizesRun>(item.clone()).err()
                    }
                    _ => serde_json::from_value::<CaseRun>(item.clone()).err(),
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
        RunError::Damaged(format!("{}{what}", path.display()))
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
            Err(RunError::NotARun(message))
        }
        None => Err(not_a_run(path)),
    }
}
