//! A thread that wakes slices when memory runs short. A stock kernel does not wake any by itself.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ramslice_backend::{GuardAction, HotplugBackend, HotplugGuard};
use ramslice_types::{BackendError, BackendErrorKind, Bytes, Reason};
use tracing::{info, warn};

/// How often the thread checks whether it should end.
const TICK: Duration = Duration::from_millis(500);

/// What the thread and its owner share.
#[derive(Debug, Default)]
struct GuardShared {
    end: AtomicBool,
    /// It has met only errors recently, and still tries.
    only_errors: AtomicBool,
    /// Slices woken since the last question, and those that did not wake, by reason.
    wake_counts: Mutex<(u32, Vec<(Reason, u32)>)>,
}

impl GuardShared {
    fn lock_counts(&self) -> MutexGuard<'_, (u32, Vec<(Reason, u32)>)> {
        self.wake_counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// After so many errors in a row the thread no longer counts as watching.
const MOST_ERRORS: u32 = 10;

/// The thread. It ends when this is dropped.
pub struct GuardThread {
    backend: Arc<HotplugBackend>,
    shared: Arc<GuardShared>,
    /// How much memory it keeps available.
    floor: Bytes,
    thread: Option<JoinHandle<()>>,
}

impl GuardThread {
    /// Starts the thread. It writes a byte to `waker` whenever it has woken slices.
    ///
    /// # Errors
    /// If the kernel does not report how much memory is available.
    pub fn start(backend: Arc<HotplugBackend>, waker: UnixStream) -> Result<Self, BackendError> {
        // Here as well, so that the caller gets the error.
        let floor = HotplugGuard::new(&backend, None)?.floor();
        let shared = Arc::new(GuardShared::default());
        let thread = std::thread::Builder::new()
            .name("guard".to_owned())
            .spawn({
                let (backend, shared) = (Arc::clone(&backend), Arc::clone(&shared));
                move || watch(&backend, &shared, waker)
            })
            .map_err(|error| BackendError::new(BackendErrorKind::Failed, error))?;
        Ok(Self { backend, shared, floor, thread: Some(thread) })
    }

    /// Whether it watches through this backend. Requests to another one do not make way for it.
    pub fn watches_backend(&self, backend: &Arc<HotplugBackend>) -> bool {
        Arc::ptr_eq(&self.backend, backend)
    }

    /// Whether the thread runs and has not met only errors for some seconds.
    pub fn is_watching(&self) -> bool {
        !self.shared.only_errors.load(Ordering::Relaxed)
            && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// How much memory it keeps available.
    pub fn floor(&self) -> Bytes {
        self.floor
    }

    /// Slices woken since the last call, and those that did not wake, by reason.
    pub fn take(&self) -> (u32, Vec<(Reason, u32)>) {
        std::mem::take(&mut *self.shared.lock_counts())
    }
}

impl Drop for GuardThread {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A panic in the thread has been reported there.
            let _ = thread.join();
        }
    }
}

fn watch(backend: &HotplugBackend, shared: &GuardShared, mut waker: UnixStream) {
    let mut guard = match HotplugGuard::new(backend, None) {
        Ok(guard) => guard,
        Err(error) => return warn!(%error, "memory cannot be watched"),
    };
    let (mut failed, mut errors) = (false, 0_u32);
    while !shared.end.load(Ordering::Relaxed) {
        let found = guard.watch(TICK);
        if let Ok(Some(GuardAction { outcome, .. })) = &found
            && outcome.slices_failed > 0
        {
            shared.lock_counts().1.push((outcome.reason, outcome.slices_failed));
        }
        match found {
            Ok(None) => failed = false,
            Ok(Some(pressure)) if pressure.outcome.slices_done > 0 => {
                let outcome = &pressure.outcome;
                info!(
                    by = ?pressure.cause,
                    slices = outcome.slices_done,
                    failed = outcome.slices_failed,
                    "memory is short: slices were woken"
                );
                shared.lock_counts().0 += pressure.outcome.slices_done;
                // If the main loop no longer reads, it has ended.
                let _ = waker.write_all(&[0]);
            }
            // Nothing is left to wake, or nothing wakes: no need to check again at once.
            Ok(Some(pressure)) => {
                let outcome = &pressure.outcome;
                // Slices of a silent driver rest: that was reported when it was asked.
                let is_news = !outcome.is_ok() && outcome.reason != Reason::Backoff;
                if is_news && !std::mem::replace(&mut failed, true) {
                    let (failed, reason) = (outcome.slices_failed, outcome.reason);
                    let error = outcome.driver_error().map(tracing::field::display);
                    warn!(failed, %reason, error, "memory is short, but slices do not wake: \
                        {}", reason.advice());
                }
                std::thread::sleep(TICK);
            }
            Err(error) => {
                if !std::mem::replace(&mut failed, true) {
                    warn!(%error, "memory cannot be watched");
                }
                // The main loop starts another thread, or gets the error.
                if error.kind() == BackendErrorKind::Unsupported {
                    return;
                }
                // The main loop does the same at its next step. Until then this thread goes on.
                errors += 1;
                shared.only_errors.store(errors >= MOST_ERRORS, Ordering::Relaxed);
                std::thread::sleep(TICK);
                continue;
            }
        }
        errors = 0;
        shared.only_errors.store(false, Ordering::Relaxed);
    }
}
