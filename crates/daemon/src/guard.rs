//! On a stock kernel: a thread that wakes slices when memory runs short, for nobody else does.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ramslice_kernel::{Guard, HotplugBackend};
use ramslice_types::{BackendError, Bytes, ErrorKind};
use tracing::{info, warn};

/// How often it looks whether it is to end.
const TICK: Duration = Duration::from_millis(500);

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub struct Guarding {
    end: Arc<AtomicBool>,
    woken: Arc<AtomicU32>,
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
        let floor = Guard::new(&backend, None)?.floor();
        let (end, woken) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let shared = (Arc::clone(&end), Arc::clone(&woken));
        let thread = std::thread::Builder::new()
            .name("guard".to_owned())
            .spawn(move || watch(&backend, &shared.0, &shared.1, tell))
            .map_err(|error| BackendError::new(ErrorKind::Failed, error))?;
        Ok(Self { end, woken, floor, thread: Some(thread) })
    }

    /// What it keeps available.
    pub fn floor(&self) -> Bytes {
        self.floor
    }

    /// Slices that it has woken since the last call.
    pub fn take_woken(&self) -> u32 {
        self.woken.swap(0, Ordering::Relaxed)
    }
}

impl Drop for Guarding {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // Whoever panicked there has said so.
            let _ = thread.join();
        }
    }
}

fn watch(backend: &HotplugBackend, end: &AtomicBool, woken: &AtomicU32, mut tell: UnixStream) {
    let mut guard = match Guard::new(backend, None) {
        Ok(guard) => guard,
        Err(error) => return warn!(%error, "memory cannot be watched"),
    };
    let mut failed = false;
    while !end.load(Ordering::Relaxed) {
        match guard.watch(TICK) {
            Ok(None) => failed = false,
            Ok(Some(pressure)) if pressure.outcome.slices_done > 0 => {
                let outcome = &pressure.outcome;
                info!(
                    by = ?pressure.by,
                    slices = outcome.slices_done,
                    failed = outcome.slices_failed,
                    "memory is short: slices were woken"
                );
                woken.fetch_add(pressure.outcome.slices_done, Ordering::Relaxed);
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
                std::thread::sleep(TICK);
            }
        }
    }
}
