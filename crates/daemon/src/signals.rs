//! Signals, and how they wake the main loop.

use std::io::Read;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, Result};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

/// Signals that arrived.
#[derive(Debug)]
pub struct SignalFlags {
    /// The settings are to be read again.
    pub reload: Arc<AtomicBool>,
    /// The daemon is to stop.
    pub stop: Arc<AtomicBool>,
    /// Holds a byte after a signal, or when the guard has something to report.
    pub wake_pipe: UnixStream,
    /// Writing to it wakes the main loop.
    pub waker: UnixStream,
}

impl SignalFlags {
    /// Handles signals from now on.
    ///
    /// # Errors
    /// If a socket cannot be made or a signal not handled.
    pub fn install() -> Result<Self> {
        let (wake_pipe, waker) = UnixStream::pair().context("a pair of sockets")?;
        wake_pipe.set_nonblocking(true).context("a socket")?;
        waker.set_nonblocking(true).context("a socket")?;
        let (reload, stop) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        for (signal, flag) in [(SIGHUP, &reload), (SIGTERM, &stop), (SIGINT, &stop)] {
            signal_hook::flag::register(signal, Arc::clone(flag)).context("handling signals")?;
            let waker = waker.try_clone().context("a socket")?;
            signal_hook::low_level::pipe::register(signal, waker).context("handling signals")?;
        }
        Ok(Self { reload, stop, wake_pipe, waker })
    }

    /// Empties [`Self::wake_pipe`].
    pub fn drain(&self) {
        let mut bytes = [0; 64];
        while (&self.wake_pipe).read(&mut bytes).is_ok_and(|read| read > 0) {}
    }
}
