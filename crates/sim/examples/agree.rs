//! Holds the simulator against virtual machines: `agree DIR SECONDS FITTED.toml PREDICTED.toml WORKLOAD...`.
//!
//! DIR has a recording `WORKLOAD-FITTED` and `WORKLOAD-PREDICTED` of each workload, done step by step, a step standing
//! for so many seconds, under the policies of these files, which are in DIR, too. Fitted on the first, the simulator
//! predicts how many slices hold something in the second. Prints a table, or JSON lines with `--json` as last word; the
//! status is 1 if the mean error of a workload is above 10 %, or not below that of both predictions that need no
//! simulator.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use ramslice_energy::builtin;
use ramslice_policy::{Config, Economics};
use ramslice_sim::load::recorded;
use ramslice_sim::predict::{Setting, agreement, fit, predict};

type Failure = Box<dyn std::error::Error>;

/// The mean error that is allowed.
const MOST: f64 = 0.1;

fn policy(dir: &Path, file: &str) -> Result<Config, Failure> {
    Ok(Config::parse(&std::fs::read_to_string(dir.join(file))?, file)?)
}

fn run(
    dir: &Path,
    step: Duration,
    files: [&str; 2],
    workloads: &[String],
    json: bool,
) -> Result<bool, Failure> {
    let [fitted, predicted] = [policy(dir, files[0])?, policy(dir, files[1])?];
    let profile = builtin("thesis-parc").ok_or("there is no profile thesis-parc")??;
    let state = profile.state(&profile.default_state).ok_or("the profile has no such state")?;
    let machine = profile.machine.as_ref().ok_or("the profile names no machine")?;
    let mut good = true;
    if !json {
        println!("workload       fit   error  last value  unchanged   behaviour");
    }
    for workload in workloads {
        let load = |file: &str| recorded(&dir.join(format!("{workload}-{}", file.trim_end_matches(".toml"))));
        let (first, second) = (load(files[0])?, load(files[1])?);
        let economics = Economics::new(state, machine, first.config.slice_bytes, first.config.page_bytes)?;
        let setting = |policy| Setting { policy, economics: &economics, step: Some(step) };
        let fit = fit(&first, &setting(&fitted))?;
        let prediction = predict(&first, &fit, &setting(&predicted))?;
        let agreement = agreement(&prediction, &first, &second)?;
        let naive = agreement.last_value_error.min(agreement.unchanged_error);
        good &= agreement.error <= MOST && agreement.error < naive;
        if json {
            let row = serde_json::json!({
                "workload": workload, "fit": fit, "agreement": agreement, "samples": prediction.len(),
                "predicted": prediction, "recorded": second.nonempty, "fitted_on": first.nonempty,
            });
            println!("{row}");
        } else {
            let percent = |share: f64| format!("{:.1} %", share * 100.0);
            println!(
                "{workload:<10} {:>7} {:>7} {:>11} {:>10}   {:?}",
                percent(fit.error),
                percent(agreement.error),
                percent(agreement.last_value_error),
                percent(agreement.unchanged_error),
                fit.behaviours.first()
            );
        }
    }
    Ok(good)
}

fn main() -> Result<ExitCode, Failure> {
    let mut words: Vec<String> = std::env::args().skip(1).collect();
    let json = words.pop_if(|word| word == "--json").is_some();
    let [dir, seconds, fitted, predicted, workloads @ ..] = words.as_slice() else {
        return Err("usage: agree DIR SECONDS FITTED.toml PREDICTED.toml WORKLOAD... [--json]".into());
    };
    let step = Duration::from_secs(seconds.parse()?);
    let good = run(Path::new(dir), step, [fitted, predicted], workloads, json)?;
    Ok(ExitCode::from(u8::from(!good)))
}
