//! Memory that is rarely used moves by itself: a thread sets up DAMON, steers it, and removes it.
//!
//! ```text
//! mod         the thread, and what it shares with the main loop
//!  |- monitor      one tick: start, steer or remove the kdamonds
//!  |- instructions what the kdamonds are told
//!  |- group_limits whose pages stay or go at a rate of their own
//!  |- node_room    what is free on the nodes without waking slices
//!  |- unaccessed   for how long what may rest was not accessed
//!  |- ownership    which kdamonds are this daemon's, also after a crash
//!  `- report       the state in words, for status and metrics
//! ```
//!
//! What to do is decided by [`ramslice_policy::ColdSteering`]. Writing to DAMON waits for the end
//! of an aggregation, up to four seconds for each kdamond, and twice that for samples: so it is no
//! part of the main loop.

mod group_limits;
mod instructions;
mod monitor;
#[cfg(test)]
mod monitor_tests;
mod node_room;
mod ownership;
mod report;
mod unaccessed;

use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ramslice_types::Backend;
use tracing::warn;

use crate::metrics::DaemonMetrics;
use crate::settings::ColdSettings;

use self::monitor::ColdMonitor;
use self::ownership::KdamondOwnership;

pub use report::{ColdNodeStatus, ColdStatus, ColdWord};

/// A tick that takes longer hangs.
const LATE: Duration = Duration::from_mins(2);
/// How long the thread may take to end, for which systemd has to wait: with a twin and four groups,
/// five kdamonds are each read, told and read once more, four seconds each time; one gives samples,
/// and all end.
#[cfg(test)]
pub(crate) const LONGEST_END: Duration = Duration::from_secs(75);

/// What is wanted of the thread.
#[derive(Clone)]
pub struct ColdRequest {
    /// The settings; otherwise why nothing is to move.
    pub settings: Result<ColdSettings, String>,
    /// The patched kernel, which knows what is free without waking slices; none of a stock kernel.
    pub backend: Option<Arc<dyn Backend>>,
    /// How long a page must stay until its moves have paid, with what that rests on; otherwise why
    /// that is not known.
    pub break_even: Result<(Duration, String), String>,
    /// How long a slice must stay off until that has paid; slices that are off for less are not
    /// woken. Without, no slice is.
    pub slice_break_even: Option<Duration>,
}

impl PartialEq for ColdRequest {
    fn eq(&self, other: &Self) -> bool {
        let same_backend = match (&self.backend, &other.backend) {
            (Some(one), Some(other)) => Arc::ptr_eq(one, other),
            (None, None) => true,
            _ => false,
        };
        same_backend
            && self.settings == other.settings
            && self.break_even == other.break_even
            && self.slice_break_even == other.slice_break_even
    }
}

/// What decisions rest on, by the profile.
#[derive(Debug, Clone)]
pub(crate) struct ColdFigures {
    /// See [`ColdRequest::break_even`].
    pub(crate) break_even: Result<(Duration, String), String>,
    /// See [`ColdRequest::slice_break_even`].
    pub(crate) slice_break_even: Option<Duration>,
}

/// What thread and main loop share.
struct ColdShared {
    request: Mutex<SharedRequest>,
    changed: Condvar,
    /// With the time at which it was told.
    status: Mutex<(ColdStatus, Instant)>,
}

#[derive(Default)]
struct SharedRequest {
    wanted: Option<ColdRequest>,
    /// The thread has not seen it so far.
    is_new: bool,
    end: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The thread. When this is dropped, it removes its kdamonds and ends.
pub struct ColdThread {
    shared: Arc<ColdShared>,
    thread: Option<JoinHandle<()>>,
}

impl ColdThread {
    /// Whether an earlier run of this boot has left kdamonds behind: then a thread is needed even
    /// if nothing is to move.
    pub fn is_needed_after(runtime_dir: &Path) -> bool {
        KdamondOwnership::file(runtime_dir).exists()
    }

    /// Starts the thread for the system whose files are below `root`.
    ///
    /// # Errors
    /// If there can be no thread.
    pub fn start(
        root: &Path,
        runtime_dir: &Path,
        boot: &str,
        metrics: Arc<DaemonMetrics>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(ColdShared {
            request: Mutex::default(),
            changed: Condvar::new(),
            status: Mutex::new((ColdStatus::off("has not begun so far"), Instant::now())),
        });
        let monitor = ColdMonitor::new(root, KdamondOwnership::new(runtime_dir, boot));
        let thread = std::thread::Builder::new().name("cold".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || watch(monitor, &shared, &metrics)
        })?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Says what is wanted from now on.
    pub fn set(&self, wanted: ColdRequest) {
        let mut request = lock(&self.shared.request);
        if request.wanted.as_ref() != Some(&wanted) {
            request.wanted = Some(wanted);
            request.is_new = true;
            self.shared.changed.notify_all();
        }
    }

    /// Makes the thread end; dropping this waits for it.
    pub fn begin_end(&self) {
        lock(&self.shared.request).end = true;
        self.shared.changed.notify_all();
    }

    /// How things are.
    pub fn status(&self) -> ColdStatus {
        let (mut status, told) = lock(&self.shared.status).clone();
        // Samples of long ago say nothing of now.
        status.unaccessed_ratio = status.unaccessed_ratio.filter(|_| told.elapsed() < LATE);
        status
    }
}

impl Drop for ColdThread {
    fn drop(&mut self) {
        self.begin_end();
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported there.
            let _ = thread.join();
        }
    }
}

/// Removes what an earlier run of this boot has left behind, where no daemon will run.
pub fn remove_left_behind(root: &Path, runtime_dir: &Path, boot: &str) {
    if ColdThread::is_needed_after(runtime_dir) {
        ColdMonitor::new(root, KdamondOwnership::new(runtime_dir, boot)).remove();
    }
}

fn watch(mut monitor: ColdMonitor, shared: &ColdShared, metrics: &DaemonMetrics) {
    let mut due = Instant::now();
    loop {
        let wanted = {
            let mut request = lock(&shared.request);
            loop {
                if request.end {
                    monitor.remove();
                    return;
                }
                let now = Instant::now();
                let is_new = request.is_new && request.wanted.is_some();
                if is_new || (now >= due && request.wanted.is_some()) {
                    request.is_new = false;
                    break request.wanted.clone();
                }
                let wait = due.saturating_duration_since(now).max(Duration::from_millis(50));
                request = shared
                    .changed
                    .wait_timeout(request, wait)
                    .map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
            }
        };
        let Some(wanted) = wanted else { continue };
        let (status, next) = monitor.tick(&wanted, Instant::now());
        metrics.cold(&status);
        *lock(&shared.status) = (status, Instant::now());
        due = Instant::now() + next;
    }
}

impl std::fmt::Debug for ColdThread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ColdThread").finish_non_exhaustive()
    }
}

/// Starts a thread, or says why not once.
pub(crate) fn start_or_warn(
    root: &Path,
    runtime_dir: &Path,
    boot: &str,
    metrics: &Arc<DaemonMetrics>,
) -> Option<ColdThread> {
    ColdThread::start(root, runtime_dir, boot, Arc::clone(metrics))
        .inspect_err(|error| warn!("idle memory stays where it is: no thread for it: {error}"))
        .ok()
}
