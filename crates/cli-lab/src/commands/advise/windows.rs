//! From counters at samples to stretches of time, as the model takes them.

use std::collections::HashMap;
use std::ops::Range;
use std::path::Path;

use ramslice_miss_ratio::{
    NR_ORDERS, ObservedWindow, PageKinds, RefaultDistances, ReuseHistogram, SampledReuse,
    WINDOWS_WANTED,
};

use super::recorded_counters::{CounterSample, RecordedCounters, UnfitRecording};

/// Intervals between samples in a stretch, at least.
const LEAST_INTERVALS: usize = 5;
/// Stretches at most.
const MOST_WINDOWS: usize = 24;
/// The share of the time of sampling that only watches: what is idle for longer is not told apart.
const WATCHING: f64 = 0.25;
/// More processors' time than that of one, as a multiple of what passed.
const MORE_THAN_ONE: f64 = 1.5;
const REUSE: &str = "ramslice_reuse_";

/// Two samples that follow each other.
#[derive(Clone, Copy)]
struct SampleInterval<'a> {
    from: &'a CounterSample,
    to: &'a CounterSample,
    /// The number of the sample at its end.
    end: usize,
}

impl SampleInterval<'_> {
    /// By how much a counter has risen. One that was not there before began at 0.
    fn risen(&self, name: &str) -> f64 {
        (self.to.or_zero(name) - self.from.or_zero(name)).max(0.0)
    }

    fn seconds(&self) -> f64 {
        (self.to.boottime_us - self.from.boottime_us) as f64 / 1e6
    }

    /// The mean of its ends.
    fn mean(&self, of: impl Fn(&CounterSample) -> f64) -> f64 {
        f64::midpoint(of(self.from), of(self.to))
    }

    fn reuse(&self, name: &str) -> f64 {
        self.risen(&format!("{REUSE}{name}"))
    }

    /// Which sampler's counts these are: none if there was none, or another one at its begin.
    fn sampler(&self) -> Option<i64> {
        let name = format!("{REUSE}started_us");
        let (from, to) = (self.from.get(&name)?, self.to.get(&name)?);
        (from.to_bits() == to.to_bits()).then_some(to as i64)
    }

    /// Scans of its sampler before it.
    fn scans_before(&self) -> f64 {
        self.from.or_zero(&format!("{REUSE}scans"))
    }

    fn scans_after(&self) -> f64 {
        self.to.or_zero(&format!("{REUSE}scans"))
    }

    fn scans(&self) -> f64 {
        self.scans_after() - self.scans_before()
    }
}

/// Stretches of time, and what was left out.
pub(super) struct ObservedTime {
    pub(super) windows: Vec<ObservedWindow>,
    /// How long was recorded, with what is in no stretch.
    pub(super) recorded_seconds: f64,
    /// The share of the time of sampling that only watched.
    pub(super) watching: f64,
    /// Memory of the recorder, on average.
    pub(super) recorder_bytes: f64,
    /// Sentences for those who read the advice.
    pub(super) notes: Vec<String>,
}

impl ObservedTime {
    /// How much longer to record, so that stretches last so long in all.
    pub(super) fn seconds_to_add(&self, wanted: f64) -> f64 {
        (wanted / (1.0 - self.watching) - self.recorded_seconds).max(0.0)
    }
}

/// Divides the time of recordings into stretches of equally many samples.
///
/// With reuse times, the first quarter of each sampler's time only watches, and is left out, as is
/// time without a sampler.
///
/// # Errors
/// If too little was recorded.
pub(super) fn observed(counters: &RecordedCounters) -> Result<ObservedTime, UnfitRecording> {
    let pairs = counters.samples.windows(2).enumerate();
    let all: Vec<SampleInterval> = pairs
        .filter(|(at, _)| !counters.breaks.contains(&(at + 1)))
        .map(|(at, pair)| SampleInterval { from: &pair[0], to: &pair[1], end: at + 1 })
        .filter(|interval| interval.seconds() > 0.0)
        .collect();
    let mut notes = Vec::new();
    let watching = watching_scans(&all);
    let sampled = !watching.is_empty();
    let used: Vec<SampleInterval> = if sampled {
        let watched_by = |interval: &&SampleInterval| {
            let watching = interval.sampler().and_then(|sampler| watching.get(&sampler));
            watching.is_some_and(|scans| interval.scans_before() >= *scans)
        };
        all.iter().filter(watched_by).copied().collect()
    } else {
        notes.push(
            "recorded without --reuse: of less memory than there was, nothing is known".to_owned(),
        );
        all.clone()
    };
    // A stretch is of one sampler, and has no gap: there, sampled counts begin again.
    let runs = used.chunk_by(|one, next| one.end + 1 == next.end);
    let runs: Vec<&[SampleInterval]> = runs.filter(|run| run.len() >= LEAST_INTERVALS).collect();
    let fit = runs.concat();
    let wanted = WINDOWS_WANTED * LEAST_INTERVALS;
    if fit.len() < wanted {
        let share = if sampled || all.is_empty() { 1.0 - WATCHING } else { 1.0 };
        return Err(UnfitRecording::TooFew {
            have: counters.samples.len(),
            // Its ends, and an interval in which watching ends.
            wanted: (wanted as f64 / share).ceil() as usize + 2,
            why: "in intervals without gaps",
        });
    }
    let seconds = |of: &[SampleInterval]| of.iter().map(SampleInterval::seconds).sum::<f64>();
    if sampled {
        notes.push(format!(
            "the first {:.0} s of {:.0} s only watched pages for the time since they were used",
            seconds(&all) - seconds(&used),
            seconds(&all)
        ));
    }
    if fit.len() < used.len() {
        notes.push(format!(
            "{:.0} s are left out, in pieces of fewer than {LEAST_INTERVALS} intervals",
            seconds(&used) - seconds(&fit)
        ));
    }
    notes.extend(silent_recordings(counters, &all, &fit));
    if !counters.breaks.is_empty() {
        notes.push(format!(
            "the time between recordings is left out, {} times",
            counters.breaks.len()
        ));
    }
    let number = (fit.len() / LEAST_INTERVALS).min(MOST_WINDOWS);
    let numbers = runs.iter().map(|run| (run.len() * number / fit.len()).max(1));
    let parts: Vec<_> = runs
        .iter()
        .zip(numbers.clone())
        .flat_map(|(run, own)| stretches(run, own, sampled))
        .collect();
    if parts.len() < WINDOWS_WANTED && parts.len() < numbers.sum::<usize>() {
        let scans = fit.iter().map(SampleInterval::scans).sum::<f64>() as u64;
        let seconds = seconds(&fit).round() as u64;
        return Err(UnfitRecording::RareScans { scans, seconds, wanted: WINDOWS_WANTED });
    }
    let windows = parts.into_iter().map(|part| window(part, sampled)).collect();
    let watching = if sampled { WATCHING } else { 0.0 };
    let own = fit.iter().map(|interval| interval.to.or_zero("recorder_private_bytes"));
    let recorder_bytes = own.sum::<f64>() / fit.len() as f64;
    let recorded_seconds = seconds(&all);
    Ok(ObservedTime { windows, recorded_seconds, watching, recorder_bytes, notes })
}

/// Up to `number` stretches of about equal length; with a sampler, each has a scan.
fn stretches<'a>(
    run: &'a [SampleInterval<'a>],
    number: usize,
    sampled: bool,
) -> Vec<&'a [SampleInterval<'a>]> {
    let scanned =
        |part: &[SampleInterval]| part.iter().map(SampleInterval::scans).sum::<f64>() > 0.0;
    let mut ends = vec![0];
    for end in (1..=number).map(|at| at * run.len() / number) {
        let begin = ends.last().copied().unwrap_or(0);
        if !sampled || scanned(&run[begin..end]) {
            ends.push(end);
        }
    }
    // What is left without a scan belongs to the stretch before.
    if let [_, .., last] = ends.as_mut_slice() {
        *last = run.len();
    }
    ends.windows(2).map(|ends| &run[ends[0]..ends[1]]).collect()
}

/// For each sampler, the scans that only watch; those that looked too rarely for any are left out.
fn watching_scans(all: &[SampleInterval]) -> HashMap<i64, f64> {
    let mut scans: HashMap<i64, f64> = HashMap::new();
    for interval in all {
        if let Some(sampler) = interval.sampler() {
            let most = scans.entry(sampler).or_default();
            *most = most.max(interval.scans_after());
        }
    }
    for scans in scans.values_mut() {
        *scans = (*scans * WATCHING).floor();
    }
    scans.retain(|_, scans| *scans >= 1.0);
    scans
}

/// Sentences that name the recordings of which no interval is used.
fn silent_recordings(
    counters: &RecordedCounters,
    all: &[SampleInterval],
    used: &[SampleInterval],
) -> Vec<String> {
    let sampled = |intervals: &[SampleInterval]| {
        intervals.iter().any(|interval| interval.sampler().is_some())
    };
    let silent = |(path, samples): (&Path, Range<usize>)| {
        let own = |interval: &&SampleInterval| samples.contains(&interval.end);
        if used.iter().any(|interval| own(&interval)) {
            return None;
        }
        let own: Vec<SampleInterval> = all.iter().filter(own).copied().collect();
        let why = if sampled(used) && !sampled(&own) {
            "it was recorded without --reuse"
        } else {
            "it is too short"
        };
        Some(format!("{} adds nothing: {why}", path.display()))
    };
    counters.recordings().filter_map(silent).collect()
}

/// One stretch.
fn window(intervals: &[SampleInterval], sampled: bool) -> ObservedWindow {
    let sum = |of: &dyn Fn(&SampleInterval) -> f64| intervals.iter().map(of).sum::<f64>();
    let seconds = sum(&|interval| interval.seconds());
    let mean = |of: &dyn Fn(&CounterSample) -> f64| {
        sum(&|interval| interval.mean(of) * interval.seconds()) / seconds
    };
    let risen = |name: &str| sum(&|interval| interval.risen(name));
    let lists = |sample: &CounterSample, kind: &str| {
        sample.or_zero(&format!("nr_inactive_{kind}"))
            + sample.or_zero(&format!("nr_active_{kind}"))
    };
    let anon = |sample: &CounterSample| if sample.swap { lists(sample, "anon") } else { 0.0 };
    let file = |sample: &CounterSample| lists(sample, "file");
    let fixed = |sample: &CounterSample| {
        let used = sample.memory_pages - sample.free_pages - anon(sample) - file(sample);
        used.max(0.0) + sample.free_pages.min(sample.reserve_pages)
    };
    // Waiting for a page that is read counts as both.
    let stalls = |share: &str| {
        let longest = ["memory", "io"].map(|resource| {
            let name = format!("pressure_{resource}_{share}_us");
            let known = intervals.iter().all(|interval| interval.from.get(&name).is_some());
            known.then(|| risen(&name) / 1e6)
        });
        longest.into_iter().flatten().reduce(f64::max)
    };
    let swap = intervals.iter().any(|interval| interval.to.swap);
    let distances = |kind: &str| {
        let mut found = RefaultDistances::default();
        for order in 0..NR_ORDERS {
            found.add(order, risen(&format!("ramslice_refault_{kind}_order_{order}")));
        }
        found
    };
    let processors = ProcessorTime::of(intervals, seconds);
    let stall_seconds = stalls("some");
    // Where it is unknown, nothing makes up for a wait.
    let full = stalls("full").or(stall_seconds).unwrap_or_default();
    let lost = processors.as_ref().and_then(|time| time.lost(full));
    ObservedWindow {
        seconds: seconds - processors.as_ref().map_or(0.0, |time| time.recorder),
        memory_pages: mean(&|sample| sample.memory_pages),
        fixed_pages: mean(&fixed),
        evictable_pages: PageKinds { anon: mean(&anon), file: mean(&file) },
        misses: PageKinds { anon: risen("pswpin"), file: risen("ramslice_readahead") },
        unused_pages: risen("ramslice_readahead_unused"),
        lookups: risen("ramslice_lookup_read") + risen("ramslice_lookup_fault"),
        stall_seconds,
        full_stall_seconds: lost.map_or(full, |(least, _)| least),
        most_lost_seconds: lost.map(|(_, most)| most),
        kernel_seconds: processors.as_ref().map(|time| time.kernel),
        refaults: PageKinds {
            anon: if swap { distances("anon") } else { RefaultDistances::default() },
            file: distances("file"),
        },
        clock_steps: clock_steps(intervals),
        reuse: sampled.then(|| reuse(intervals, swap)),
    }
}

/// What took the processors' time in a stretch, in seconds.
struct ProcessorTime {
    /// The kernel's, without what it did for the recorder: on several processors that work side by
    /// side, what it took of each.
    kernel: f64,
    /// By how much the recorder made the work longer: where processors have nothing to do, it does
    /// not.
    recorder: f64,
    /// Of the recorder itself.
    own: f64,
    /// Of the only processor, the time in which it had nothing to do; nothing if there are more.
    only_idle: Option<f64>,
}

impl ProcessorTime {
    /// Nothing if it was not recorded.
    fn of(intervals: &[SampleInterval], seconds: f64) -> Option<Self> {
        let took = |name: &str| {
            let risen = |interval: &SampleInterval| {
                Some((interval.to.get(name)? - interval.from.get(name)?).max(0.0) / 1e6)
            };
            intervals.iter().map(risen).sum::<Option<f64>>()
        };
        let (kernel, user) = (took("cpu_kernel_us")?, took("cpu_user_us")?);
        let (idle, own) = (took("cpu_idle_us")?, took("recorder_cpu_us")?);
        let busy = kernel + user;
        // Ticks may miss a short stretch.
        let (all, longest) = ((busy + idle).max(seconds), busy.max(seconds));
        Some(Self {
            kernel: (kernel - own).max(0.0) * seconds / longest,
            recorder: (own * busy / all * seconds / all).min(seconds / 2.0),
            own,
            only_idle: (all < MORE_THAN_ONE * seconds).then_some(idle),
        })
    }

    /// By how much waits made the work longer, at least and at most, of the time in which all tasks
    /// are said to have waited; nothing where there are several processors.
    ///
    /// On one, others make up for a wait unless it is idle. Pressure also counts time in which the
    /// kernel goes on. What the recorder did might have been idle time.
    fn lost(&self, full: f64) -> Option<(f64, f64)> {
        self.only_idle.map(|idle| {
            let least = full.min(idle);
            (least, least + self.own)
        })
    }
}

/// Steps of the kernel's clock of refault distances: evictions, and pages that became active
/// (`workingset_age_nonresident()`).
fn clock_steps(intervals: &[SampleInterval]) -> Option<f64> {
    const STEPS: [&str; 5] = [
        "pgsteal_anon",
        "pgsteal_file",
        "pgactivate",
        "workingset_activate_anon",
        "workingset_activate_file",
    ];
    let risen = |interval: &SampleInterval| {
        let known = |name: &&str| interval.from.get(name).is_some();
        STEPS.iter().all(known).then(|| STEPS.iter().map(|name| interval.risen(name)).sum::<f64>())
    };
    intervals.iter().map(risen).sum()
}

/// What the sampler saw in a stretch; memory of programs counts only if it can be swapped out.
fn reuse(intervals: &[SampleInterval], swap: bool) -> SampledReuse {
    // Later stretches tell longer times apart.
    let watched = intervals.iter().map(SampleInterval::scans_before).fold(f64::INFINITY, f64::min);
    let watched_scans = watched as u64;
    let mut found = SampledReuse { watched_scans, ..SampledReuse::default() };
    let last = intervals[intervals.len() - 1].to;
    let frames = |name: &str| last.or_zero(&format!("{REUSE}{name}_frames"));
    found.rate = frames("sampled") / frames("all").max(1.0);
    for interval in intervals {
        found.scans += interval.scans();
        let mut kind = |kind: &str| {
            let resident = format!("{REUSE}{kind}_resident");
            found.sampled_pages +=
                interval.mean(|sample| sample.or_zero(&resident)) / intervals.len() as f64;
            let of_activity = |activity: &str| {
                let mut times = ReuseHistogram::default();
                let prefix = format!("{REUSE}{kind}_{activity}_scans_");
                for (scans, _) in interval.to.beginning(&prefix) {
                    if let Ok(time) = scans.parse() {
                        times.add(time, interval.risen(&format!("{prefix}{scans}")));
                    }
                }
                // Idle since sampling began.
                let unseen = interval.reuse(&format!("{kind}_{activity}_unseen"));
                times.add((interval.scans_after() as u64).max(watched_scans + 1), unseen);
                times
            };
            let (active, mut inactive) = (of_activity("active"), of_activity("inactive"));
            inactive.add_first(interval.reuse(&format!("{kind}_arrived")));
            let taken = interval.risen(&format!("pgsteal_{kind}")) * found.rate;
            (active, inactive, (taken - interval.reuse(&format!("{kind}_gone"))).max(0.0))
        };
        let (active, inactive, recycled) = kind("file");
        let programs = swap.then(|| kind("anon"));
        found.active.file.add_scaled(&active, 1.0);
        found.inactive.file.add_scaled(&inactive, 1.0);
        found.recycled.file += recycled;
        if let Some((active, inactive, recycled)) = programs {
            found.active.anon.add_scaled(&active, 1.0);
            found.inactive.anon.add_scaled(&inactive, 1.0);
            found.recycled.anon += recycled;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_to_be_added_watches_too_and_what_was_recorded_counts_in_full() {
        let time = |watching| ObservedTime {
            windows: Vec::new(),
            recorded_seconds: 100.0,
            watching,
            recorder_bytes: 0.0,
            notes: Vec::new(),
        };
        // Twice the 75 s that were in stretches.
        assert!((time(WATCHING).seconds_to_add(150.0) - 100.0).abs() < 1e-9);
        assert!((time(0.0).seconds_to_add(150.0) - 50.0).abs() < 1e-9);
        assert!(time(0.0).seconds_to_add(90.0) < 1e-9);
    }
}
