//! `ramslice-lab advise`: how much memory the recorded work needs, and what each size would cost.

mod energy_saving;
mod recorded_counters;
mod text;
mod watermarks;
mod windows;

use std::io::Write;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result};
use ramslice_cli::context::{CommandContext, write_json};
use ramslice_cli::exit::{ExitStatus, UsageError};
use ramslice_miss_ratio::{AdviceSettings, CostSource, Estimate, MemoryAdvice, WindowCurve};
use ramslice_policy::settings::WatermarksConfig;
use ramslice_types::{Bytes, parse_duration};
use serde::Serialize;

use energy_saving::EnergySaving;
use recorded_counters::RecordedCounters;
pub(crate) use watermarks::write_watermarks;

const HELP: &str = "\
Says for each size of memory what is to be expected of the recorded work: the share of looked-up \
page cache that no disk had to bring, pages that had to be read per second, and how much longer \
the work would take; and the least memory with which it takes at most --slowdown longer than with \
the most memory that is known. Each figure has an interval that holds it with 95 % probability; \
the least memory keeps the limit with its upper end.

Recordings are of one boot of a kernel with ramslice, made by `ramslice-lab record`; several are \
joined. Of more memory than there was, distances of refaults say what it would avoid. Of less, \
reuse times do, which only `record --reuse` samples. Where nothing was seen, the curve ends.

A page that has to be read costs what such pages cost in the recording, by the pressure of its \
machine. If it has too few, --miss-cost says it; otherwise only hit ratios are given.

The table [watermarks] is for the settings of ramsliced with the policy of that name.

Examples:
  sudo ramslice-lab record --reuse 500ms -o work --for 10m
  ramslice-lab advise work
  ramslice-lab advise monday tuesday --slowdown 2% --profile thesis-parc
  ramslice-lab advise work --json | jq .least_bytes";

/// Say how much memory recorded work needs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub(crate) struct AdviseArgs {
    /// Recordings of one boot
    #[arg(required = true, value_name = "RECORDING")]
    recordings: Vec<PathBuf>,
    /// How much longer the work may take, above 0% and at most 100%
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = parse_slowdown)]
    slowdown: f64,
    /// What a page costs that has to be read, where the recordings do not say it
    #[arg(long, value_name = "TIME", value_parser = parse_cost)]
    miss_cost: Option<Duration>,
    /// What memory that is not needed saves: a name from `ramslice-lab profiles`, or a file
    #[arg(long, value_name = "NAME|FILE")]
    profile: Option<String>,
    /// Between two looks of the policy, for its watermarks
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = parse_duration)]
    timeout: Duration,
}

/// Of one size.
#[derive(Debug, Serialize)]
struct SizeDocument {
    memory_bytes: Bytes,
    hit_ratio: Option<Estimate>,
    faults_per_second: Estimate,
    anon_faults_per_second: f64,
    slowdown: Option<Estimate>,
}

/// The whole advice.
#[derive(Debug, Serialize)]
struct AdviseDocument {
    recordings: Vec<PathBuf>,
    seconds: f64,
    stretches: usize,
    memory_bytes: Bytes,
    slowdown_limit: f64,
    miss_cost_us: Option<Estimate>,
    miss_cost_source: Option<CostSource>,
    sizes: Vec<SizeDocument>,
    least_bytes: Option<Bytes>,
    least_is_where_the_curve_begins: bool,
    likely_bytes: Option<Bytes>,
    record_more_seconds: Option<f64>,
    saved_bytes: Option<Bytes>,
    saving: Option<EnergySaving>,
    watermarks: Option<WatermarksConfig>,
    notes: Vec<String>,
}

/// What was recorded, and the advice on it.
struct RecordedAdvice {
    counters: RecordedCounters,
    advice: MemoryAdvice,
    /// What there was, in pages, at its most.
    memory_pages: f64,
    /// How much longer to record to be certain, in seconds.
    record_more: Option<f64>,
    notes: Vec<String>,
}

pub(crate) fn run(
    args: &AdviseArgs,
    context: &CommandContext,
    out: &mut dyn Write,
) -> Result<ExitStatus> {
    let profile = args.profile.as_deref().map(energy_saving::load).transpose()?;
    let RecordedAdvice { counters, advice, memory_pages, record_more, mut notes } =
        recorded(&args.recordings, args.slowdown, args.miss_cost)?;
    let bytes = |pages: f64| Bytes(pages.round() as u64 * counters.page.0);
    let least = advice.least;
    let saved = least.map(|least| bytes((memory_pages - least.pages).max(0.0)));
    let watermarks = match least {
        None => None,
        Some(least) => match watermarks::of(&args.recordings, bytes(least.pages), args.timeout) {
            Ok(watermarks) => Some(watermarks),
            Err(why) => {
                notes.push(format!("no watermarks: {why:#}"));
                None
            }
        },
    };
    let scaled = |cost: Estimate| Estimate {
        value: cost.value * 1e6,
        low: cost.low * 1e6,
        high: cost.high * 1e6,
    };
    let document = AdviseDocument {
        recordings: args.recordings.clone(),
        seconds: advice.seconds,
        stretches: advice.nr_windows,
        memory_bytes: bytes(memory_pages),
        slowdown_limit: args.slowdown,
        miss_cost_us: advice.miss_cost.map(|cost| scaled(cost.seconds)),
        miss_cost_source: advice.miss_cost.map(|cost| cost.source),
        sizes: advice
            .sizes
            .iter()
            .map(|size| SizeDocument {
                memory_bytes: bytes(size.pages),
                hit_ratio: size.hit_ratio,
                faults_per_second: size.misses_per_second,
                anon_faults_per_second: size.anon_misses_per_second,
                slowdown: size.slowdown,
            })
            .collect(),
        least_bytes: least.map(|least| bytes(least.pages)),
        least_is_where_the_curve_begins: least.is_some_and(|least| least.at_most),
        likely_bytes: least.map(|least| bytes(least.likely_pages)),
        record_more_seconds: record_more,
        saved_bytes: saved,
        saving: profile.zip(saved).and_then(|(profile, saved)| profile.saving(saved)),
        watermarks,
        notes,
    };
    if context.json() {
        write_json(out, "advise", document)?;
    } else {
        text::write(&document, context, out)?;
    }
    Ok(ExitStatus::Ok)
}

/// The least memory that keeps the usual limit, for `sim tune`.
///
/// # Errors
/// Why the recording does not say it.
pub(crate) fn suitable_memory(recording: &std::path::Path) -> Result<Bytes> {
    const USUAL: f64 = 0.05;
    let found = recorded(&[recording.to_owned()], USUAL, None)?;
    let least = found.advice.least.context("what a miss costs is unknown")?;
    Ok(Bytes(least.pages.round() as u64 * found.counters.page.0))
}

fn recorded(
    recordings: &[PathBuf],
    slowdown: f64,
    given_cost: Option<Duration>,
) -> Result<RecordedAdvice> {
    let counters = RecordedCounters::read(recordings)?;
    let time = windows::observed(&counters)?;
    let memory = time.windows.iter().map(|window| window.memory_pages).fold(0.0, f64::max);
    let step =
        counters.slice.map_or(Bytes((memory / 64.0) as u64 * counters.page.0), |slice| slice);
    let step_pages = (step.0 as f64 / counters.page.0 as f64).max(1.0);
    let beside_pages = time.recorder_bytes / counters.page.0 as f64;
    let settings = AdviceSettings { slowdown, given_cost, step_pages, beside_pages };
    let advice = MemoryAdvice::new(&time.windows, &settings)
        .with_context(|| recorded_counters::names(recordings))?;
    let wanted = advice.least.and_then(|least| least.record_seconds);
    let record_more = wanted.map(|seconds| time.seconds_to_add(seconds));
    let mut notes = time.notes;
    let begins = time.windows.iter().map(|window| WindowCurve::new(window).begin());
    let begin = (begins.fold(0.0, f64::max) - beside_pages).max(0.0);
    let begin = Bytes(begin as u64 * counters.page.0);
    notes.push(format!("of less than {begin}, nothing was seen"));
    Ok(RecordedAdvice { counters, advice, memory_pages: memory, record_more, notes })
}

/// `5%`.
fn parse_slowdown(text: &str) -> Result<f64, String> {
    let wrong =
        || format!("`{text}` is no slowdown: write a share above 0% and at most 100%, as in 5%");
    let percent = text.trim().strip_suffix('%').ok_or_else(wrong)?;
    match percent.trim().parse::<f64>() {
        Ok(number) if number > 0.0 && number <= 100.0 => Ok(number / 100.0),
        _ => Err(wrong()),
    }
}

/// `150us`, and what times are otherwise.
fn parse_cost(text: &str) -> Result<Duration, String> {
    let whole = text.strip_suffix("us").and_then(|number| number.trim().parse::<u32>().ok());
    match whole {
        Some(number) if number > 0 => Ok(Duration::from_micros(number.into())),
        _ => parse_duration(text)
            .map_err(|_| format!("`{text}` is no time: write it as in 150us, 8ms or 1s")),
    }
}

/// An error of usage, for the parts of this command.
fn usage(text: impl Into<String>) -> UsageError {
    UsageError(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slowdowns_are_shares_above_nothing_and_at_most_all() {
        assert_eq!(parse_slowdown("5%"), Ok(0.05));
        assert_eq!(parse_slowdown("100 %"), Ok(1.0));
        for wrong in ["0%", "-1%", "101%", "5", "x%", "nan%", ""] {
            let error = parse_slowdown(wrong).unwrap_err();
            assert!(error.contains("above 0% and at most 100%"), "{wrong}: {error}");
        }
    }

    #[test]
    fn costs_may_be_less_than_a_millisecond() {
        assert_eq!(parse_cost("150us"), Ok(Duration::from_micros(150)));
        assert_eq!(parse_cost("8ms"), Ok(Duration::from_millis(8)));
        assert!(parse_cost("0us").is_err() && parse_cost("fast").is_err());
    }
}
