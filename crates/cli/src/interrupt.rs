//! Ctrl-C during a request: the request ends early, the command reports what was done.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context as _, Result};
use ramslice_backend::sys::SignalInterrupt;

/// How often a running request is looked after.
pub const TICK: Duration = Duration::from_millis(200);

/// Runs `work` so that Ctrl-C interrupts its request and lets it report.
///
/// A watcher repeats the signal while the work goes on: the first may come between a look at
/// the flag and the system call, and would interrupt neither.
pub fn interruptible<T>(work: impl FnOnce(&SignalInterrupt) -> Result<T>) -> Result<T> {
    let interrupt = SignalInterrupt::install().context("handling signals")?;
    std::thread::scope(|scope| {
        let (done, over) = mpsc::channel::<()>();
        let watched = &interrupt;
        scope.spawn(move || {
            while over.recv_timeout(TICK) == Err(RecvTimeoutError::Timeout) {
                if watched.requested() {
                    watched.nudge();
                }
            }
        });
        let result = work(&interrupt);
        drop(done);
        result
    })
}
