//! Compares the simulator with virtual machines:
//! `agree SECONDS FITTED.toml PREDICTED.toml WORKLOAD,... DIR...`.
//!
//! Each DIR has a recording `WORKLOAD-FITTED` and `WORKLOAD-PREDICTED` of each workload, done step
//! by step, a step standing for so many seconds, under the policies of these files, which are in
//! DIR, too; another DIR has the same with another seed. Fitted on the first, the simulator
//! predicts how many slices hold something in the second. Prints a table, or JSON lines with
//! `--json` as last word. A workload holds if the mean error over all DIRs is at most 10 %, and
//! below the mean of both predictions that need no simulator; the status is 1 if fewer than three
//! do.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ramslice_energy::builtin;
use ramslice_policy::{PolicyConfig, SliceEconomics};
use ramslice_sim::load::recorded;
use ramslice_sim::predict::{PredictionSetting, agreement, fit, predict};

type AnyError = Box<dyn std::error::Error>;

/// The mean error that is allowed.
const MOST: f64 = 0.1;

/// So many workloads have to hold.
const LEAST: usize = 3;

fn policy(dir: &Path, file: &str) -> Result<PolicyConfig, AnyError> {
    Ok(PolicyConfig::parse(&std::fs::read_to_string(dir.join(file))?, file)?)
}

/// Errors of one recording, or the means over several: of the prediction, of the last value, of no
/// change.
#[derive(Clone, Copy, Default)]
struct PredictionErrors([f64; 3]);

impl PredictionErrors {
    fn mean(rows: &[Self]) -> Self {
        Self(std::array::from_fn(|of| {
            rows.iter().map(|row| row.0[of]).sum::<f64>() / rows.len() as f64
        }))
    }

    fn holds(self) -> bool {
        let [error, last_value, unchanged] = self.0;
        error <= MOST && error < last_value && error < unchanged
    }

    fn print(self, workload: &str, fit: f64, what: &str) {
        let cells =
            [fit, self.0[0], self.0[1], self.0[2]].map(|share| format!("{:.1} %", share * 100.0));
        let [fit, error, last, unchanged] = &cells;
        println!("{workload:<10} {fit:>7} {error:>7} {last:>11} {unchanged:>10}   {what}");
    }
}

/// One workload of one folder: the error of the fit, and those of the predictions.
fn one(
    dir: &Path,
    step: Duration,
    files: [&str; 2],
    workload: &str,
    json: bool,
) -> Result<(f64, PredictionErrors), AnyError> {
    let [fitted, predicted] = [policy(dir, files[0])?, policy(dir, files[1])?];
    let profile = builtin("thesis-parc").ok_or("there is no profile thesis-parc")??;
    let state = profile.state(&profile.default_state).ok_or("the profile has no such state")?;
    let machine = profile.machine.as_ref().ok_or("the profile names no machine")?;
    let load =
        |file: &str| recorded(&dir.join(format!("{workload}-{}", file.trim_end_matches(".toml"))));
    let (first, second) = (load(files[0])?, load(files[1])?);
    let economics =
        SliceEconomics::new(state, machine, first.config.slice_bytes, first.config.page_bytes)?;
    let setting = |policy| PredictionSetting { policy, economics: &economics, step: Some(step) };
    let fit = fit(&first, &setting(&fitted))?;
    let prediction = predict(&first, &fit, &setting(&predicted))?;
    let agreement = agreement(&prediction, &first, &second)?;
    let errors =
        PredictionErrors([agreement.error, agreement.last_value_error, agreement.unchanged_error]);
    if json {
        let row = serde_json::json!({
            "workload": workload, "dir": dir.file_name().map(|name| name.to_string_lossy()),
            "fit": fit,
            "agreement": agreement, "samples": prediction.len(), "predicted": prediction,
            "recorded": second.nonempty, "fitted_on": first.nonempty,
        });
        println!("{row}");
    } else {
        let name =
            dir.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        errors.print(workload, fit.error, &name);
    }
    Ok((fit.error, errors))
}

/// Whether enough workloads hold.
fn run(
    step: Duration,
    files: [&str; 2],
    workloads: &[&str],
    dirs: &[String],
    json: bool,
) -> Result<bool, AnyError> {
    let mut holding = 0;
    if !json {
        println!("workload       fit   error  last value  unchanged");
    }
    for workload in workloads {
        let rows = dirs
            .iter()
            .map(|dir| one(Path::new(dir), step, files, workload, json))
            .collect::<Result<Vec<_>, _>>()?;
        let mean =
            PredictionErrors::mean(&rows.iter().map(|(_, errors)| *errors).collect::<Vec<_>>());
        holding += usize::from(mean.holds());
        if !json {
            let fit = rows.iter().map(|(fit, _)| fit).sum::<f64>() / rows.len() as f64;
            mean.print(
                workload,
                fit,
                if mean.holds() { "mean: holds" } else { "mean: does not hold" },
            );
        }
    }
    Ok(holding >= LEAST)
}

fn main() -> Result<ExitCode, AnyError> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let json = words.pop_if(|word| word == "--json").is_some();
    let [seconds, fitted, predicted, workloads, dirs @ ..] = words.as_slice() else {
        return Err(
            "usage: agree SECONDS FITTED.toml PREDICTED.toml WORKLOAD,... DIR... [--json]".into()
        );
    };
    if dirs.is_empty() {
        return Err("agree: which folders?".into());
    }
    let step = Duration::from_secs(seconds.parse()?);
    let workloads: Vec<&str> = workloads.split(',').collect();
    let good = run(step, [fitted, predicted], &workloads, dirs, json)?;
    Ok(ExitCode::from(u8::from(!good)))
}
