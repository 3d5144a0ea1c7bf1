//! Reuse times of a sample of pages: how long each had been idle when it was used again, by the
//! kernel's idle page tracking.
//!
//! A thread of its own looks at the sample on schedule; the recorder writes its counts with each
//! sample of the machine. The rows are described in `docs/reference/recordings.md`, what is made of
//! them in `docs/design/miss-ratio-curve.md`.

mod access_monitor;
mod counts;
mod error;
mod frame_sample;
mod page_idle;
mod scan;
#[cfg(test)]
mod tests;

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use crate::clock::ClockReading;
use crate::proc_statistics::StatisticLine;
use counts::ReuseCounts;
pub use error::ReuseError;
use frame_sample::FrameSample;
use page_idle::PageIdleFiles;
use scan::ReuseScan;

/// How reuse times are sampled.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReuseOptions {
    /// Between two looks at the sample.
    pub every: Duration,
    /// The share of a CPU that this may take, above 0 and at most 1.
    pub cpu_share: f64,
}

impl ReuseOptions {
    /// The share of a CPU that is taken unless another one is asked for.
    pub const USUAL_CPU_SHARE: f64 = 0.005;
}

/// Looks that are timed before a sample is taken for good: the shortest counts.
const TIMED_SCANS: usize = 3;
/// What the sample is fitted to, below the limit: scans of a busy machine take longer.
const AIM: f64 = 0.6;
/// Frames of a smaller sample say too little.
const LEAST_FRAMES: usize = 64;
/// Scans between two checks of the time that they take, and of other users of the same bits.
const CHECK_SCANS: u64 = 32;

/// A sampler at work.
pub(crate) struct ReuseSampler {
    shared: Arc<Mutex<SharedState>>,
    thread: Option<JoinHandle<()>>,
}

struct SharedState {
    counts: ReuseCounts,
    /// Why sampling ended early, until that was asked for.
    failure: Option<ReuseError>,
    failed: bool,
    over: bool,
}

impl ReuseSampler {
    /// Chooses a sample that can be looked at so often, and begins.
    ///
    /// # Errors
    /// [`ReuseError`]: if the kernel cannot do it, if DAMON uses the same bits, if the time between
    /// two looks is too short.
    pub(crate) fn start(root: &Path, options: ReuseOptions) -> Result<Self, ReuseError> {
        // What the kernel lacks comes first: DAMON out of the way would not help.
        let files = PageIdleFiles::open(root)?;
        access_monitor::refuse(root)?;
        let mut scan = fitted(root, &files, options, 1.0)?;
        let counts = scan.counts(ClockReading::now().boottime_us);
        let state = SharedState { counts, failure: None, failed: false, over: false };
        let shared = Arc::new(Mutex::new(state));
        let (theirs, root) = (Arc::clone(&shared), root.to_owned());
        let work = move || {
            if let Err(error) = sample(&root, &files, &mut scan, options, &theirs) {
                let mut state = lock(&theirs);
                (state.failure, state.failed) = (Some(error), true);
            }
        };
        Ok(Self { shared, thread: Some(std::thread::spawn(work)) })
    }

    /// The rows to be recorded now; none after sampling has ended early.
    pub(crate) fn lines(&self) -> Vec<StatisticLine> {
        let state = lock(&self.shared);
        if state.failed { Vec::new() } else { state.counts.lines() }
    }

    /// Why sampling has ended early, once.
    pub(crate) fn failure(&self) -> Option<ReuseError> {
        lock(&self.shared).failure.take()
    }
}

impl Drop for ReuseSampler {
    fn drop(&mut self) {
        lock(&self.shared).over = true;
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It reports what went wrong by the state; a panic has been printed.
            let _ = thread.join();
        }
    }
}

fn lock(shared: &Mutex<SharedState>) -> MutexGuard<'_, SharedState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A sample whose scans take little enough, of at most this share of what there is.
fn fitted(
    root: &Path,
    files: &PageIdleFiles,
    options: ReuseOptions,
    most: f64,
) -> Result<ReuseScan, ReuseError> {
    let ReuseOptions { every, cpu_share } = options;
    let allowed = every.as_secs_f64() * cpu_share * AIM;
    let mut rate = most;
    loop {
        let sample = FrameSample::choose(root, rate)?;
        let frames = sample.nr_sampled();
        if frames < LEAST_FRAMES {
            // Without what a product of two fractions adds far behind the point.
            let percent = (cpu_share * 1e6).round() / 1e4;
            return Err(ReuseError::TooShort { every, percent, frames });
        }
        let mut scan = ReuseScan::new(sample);
        // The first scan marks all pages, which later ones do not.
        scan.run(files)?;
        let mut taken = f64::INFINITY;
        for _ in 0..TIMED_SCANS {
            let begun = cpu_seconds();
            scan.run(files)?;
            taken = taken.min(cpu_seconds() - begun);
        }
        if taken <= allowed {
            return Ok(ReuseScan::new(scan.into_sample()));
        }
        rate *= (allowed / taken).min(0.8);
    }
}

/// Looks at the sample until it is told to end.
fn sample(
    root: &Path,
    files: &PageIdleFiles,
    scan: &mut ReuseScan,
    options: ReuseOptions,
    shared: &Mutex<SharedState>,
) -> Result<(), ReuseError> {
    let (mut due, mut begun, mut used) = (Instant::now(), Instant::now(), cpu_seconds());
    let mut share = scan.share();
    loop {
        scan.run(files)?;
        {
            let mut state = lock(shared);
            if state.over {
                return Ok(());
            }
            scan.fill(&mut state.counts, begun.elapsed(), cpu_seconds() - used);
        }
        if scan.scans() > 0 && scan.scans().is_multiple_of(CHECK_SCANS) {
            access_monitor::refuse(root)?;
            let taken = (cpu_seconds() - used) / begun.elapsed().as_secs_f64();
            if taken > options.cpu_share {
                // Another sample cannot go on with the counts of this one.
                share *= (options.cpu_share * AIM / taken).min(0.8);
                *scan = fitted(root, files, options, share)?;
                lock(shared).counts = scan.counts(ClockReading::now().boottime_us);
                (due, begun, used) = (Instant::now(), Instant::now(), cpu_seconds());
                continue;
            }
        }
        due += options.every;
        // What is late is not made up for: two scans in a row would see nothing in between.
        due = due.max(Instant::now());
        while let Some(left) = due.checked_duration_since(Instant::now()) {
            if left.is_zero() || lock(shared).over {
                break;
            }
            std::thread::park_timeout(left);
        }
    }
}

/// CPU time of this thread so far.
fn cpu_seconds() -> f64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
