//! On a stock kernel: a thread that wakes slices when memory runs short, for nobody else does.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ramslice_backend::{GuardAction, HotplugBackend, HotplugGuard};
use ramslice_types::{BackendError, BackendErrorKind, Bytes, Reason};
use tracing::{info, warn};

/// How often it looks whether it is to end.
const TICK: Duration = Duration::from_millis(500);

/// What the thread is told, and tells.
#[derive(Debug, Default)]
struct Shared {
    end: AtomicBool,
    /// It met nothing but errors lately, and still tries.
    blind: AtomicBool,
    /// Slices that it has woken, and those that did not wake, since somebody asked.
    done: Mutex<(u32, Vec<(Reason, u32)>)>,
}

impl Shared {
    fn done(&self) -> MutexGuard<'_, (u32, Vec<(Reason, u32)>)> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Errors in a row after which it no longer counts as watching.
const MOST_ERRORS: u32 = 10;

/// The thread; it ends when this is dropped.
pub struct Guarding {
    backend: Arc<HotplugBackend>,
    shared: Arc<Shared>,
    /// What it keeps available.
    floor: Bytes,
    thread: Option<JoinHandle<()>>,
}

impl Guarding {
    /// Starts it. `tell` gets a byte whenever slices were woken.
    ///
    /// # Errors
    /// If the kernel does not tell how much is available.
    pub fn start(backend: Arc<HotplugBackend>, tell: UnixStream) -> Result<Self, BackendError> {
        // Once here, so that whoever starts it learns what is wrong.
        let floor = HotplugGuard::new(&backend, None)?.floor();
        let shared = Arc::new(Shared::default());
        let thread = std::thread::Builder::new()
            .name("guard".to_owned())
            .spawn({
                let (backend, shared) = (Arc::clone(&backend), Arc::clone(&shared));
                move || watch(&backend, &shared, tell)
            })
            .map_err(|error| BackendError::new(BackendErrorKind::Failed, error))?;
        Ok(Self { backend, shared, floor, thread: Some(thread) })
    }

    /// Whether it watches by this way: requests of another one do not make way for it.
    pub fn is_of(&self, backend: &Arc<HotplugBackend>) -> bool {
        Arc::ptr_eq(&self.backend, backend)
    }

    /// Whether it is at work, and has not met nothing but errors for some seconds.
    pub fn watches(&self) -> bool {
        !self.shared.blind.load(Ordering::Relaxed)
            && self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// What it keeps available.
    pub fn floor(&self) -> Bytes {
        self.floor
    }

    /// Slices that it has woken since the last call, and by reason those that did not wake.
    pub fn take(&self) -> (u32, Vec<(Reason, u32)>) {
        std::mem::take(&mut *self.shared.done())
    }
}

impl Drop for Guarding {
    fn drop(&mut self) {
        self.shared.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Whoever panicked there has said so.
            let _ = thread.join();
        }
    }
}

fn watch(backend: &HotplugBackend, shared: &Shared, mut tell: UnixStream) {
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
            shared.done().1.push((outcome.reason, outcome.slices_failed));
        }
        match found {
            Ok(None) => failed = false,
            Ok(Some(pressure)) if pressure.outcome.slices_done > 0 => {
                let outcome = &pressure.outcome;
                info!(
                    by = ?pressure.by,
                    slices = outcome.slices_done,
                    failed = outcome.slices_failed,
                    "memory is short: slices were woken"
                );
                shared.done().0 += pressure.outcome.slices_done;
                // If nobody reads any more, nobody needs to know.
                let _ = tell.write_all(&[0]);
            }
            // Nothing is left to wake, or nothing wakes: no hurry to look again.
            Ok(Some(pressure)) => {
                let outcome = &pressure.outcome;
                if !outcome.is_ok() && !std::mem::replace(&mut failed, true) {
                    let (failed, reason) = (outcome.slices_failed, outcome.reason);
                    warn!(failed, %reason, "memory is short, but slices do not wake: {}", reason.advice());
                }
                std::thread::sleep(TICK);
            }
            Err(error) => {
                if !std::mem::replace(&mut failed, true) {
                    warn!(%error, "memory cannot be watched");
                }
                // Whoever started this starts another one, or learns why that is not possible.
                if error.kind() == BackendErrorKind::Unsupported {
                    return;
                }
                // So it does then, at its next step; until that comes, this one goes on.
                errors += 1;
                shared.blind.store(errors >= MOST_ERRORS, Ordering::Relaxed);
                std::thread::sleep(TICK);
                continue;
            }
        }
        errors = 0;
        shared.blind.store(false, Ordering::Relaxed);
    }
}
