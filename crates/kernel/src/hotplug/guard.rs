//! Waking blocks under memory pressure, from user space: what a stock kernel does not do by itself.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ramslice_types::{Backend, BackendError, Bytes, ErrorKind, Op, Outcome, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tracing::debug;

use super::{HotplugBackend, look};
use crate::error::{Access, Error};
use crate::sysfs::failed;

/// Tasks that waited for memory for 50 ms of a second: early, for waking takes its time.
const TRIGGER: &[u8] = b"some 50000 1000000\0";

/// How often `MemAvailable` is looked at. A program that writes 1 GiB/s takes 50 MiB meanwhile.
const LOOK: Duration = Duration::from_millis(50);

/// How soon it tries again to wake slices while another request runs.
const AGAIN: Duration = Duration::from_millis(20);

/// What made a guard wake slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WokenBy {
    /// Tasks waited for memory (`/proc/pressure/memory`).
    Stall,
    /// This much was available, less than the floor.
    Low(Bytes),
}

/// What a guard saw and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pressure {
    /// Why.
    pub by: WokenBy,
    /// How waking went; `slices_done` is 0 if nothing was left to wake.
    pub outcome: Outcome,
}

/// The kernel's trigger, if it has one.
#[derive(Debug)]
struct Trigger {
    file: File,
}

impl Trigger {
    fn open(path: &Path) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.write_all(TRIGGER)?;
        Ok(Self { file })
    }

    /// Whether tasks waited within `timeout`.
    fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let mut fds = [PollFd::from_borrowed_fd(self.file.as_fd(), PollFlags::PRI)];
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => Ok(fds[0].revents().contains(PollFlags::PRI)),
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}

/// Watches memory and wakes slices before it is short.
///
/// Limits: it runs in user space. A program that takes memory faster than [`HotplugBackend::margin`] per look and
/// waking time, or a guard that does not get the CPU, meets reclaim, swapping and in the end the OOM killer with memory still
/// offline. Onlining a block also allocates a little. The patched kernel has none of this.
pub struct Guard<'a> {
    backend: &'a HotplugBackend,
    trigger: Option<Trigger>,
    /// After an error the trigger is set up anew: what went wrong may have been its file.
    renew: bool,
    pressure: PathBuf,
    floor: Bytes,
    /// Slices to wake at the next stall: doubled while stalls go on.
    step: u32,
    /// A stall that met another request, and the slices to wake for it: the kernel tells of one only once.
    due: Option<u32>,
}

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        self.backend.wanted.store(false, Ordering::Relaxed);
    }
}

impl<'a> Guard<'a> {
    /// Wakes slices when less than `floor` is available, by default three quarters of the margin.
    pub fn new(backend: &'a HotplugBackend, floor: Option<Bytes>) -> Result<Self, BackendError> {
        let floor = match floor {
            Some(floor) => floor,
            None => HotplugBackend::floor_of(backend.margin()?),
        };
        let pressure = backend.system.path("proc/pressure/memory");
        let trigger = trigger(&pressure)?;
        debug!(%floor, psi = trigger.is_some(), "guard");
        Ok(Self { backend, trigger, renew: false, pressure, floor, step: 1, due: None })
    }

    /// What it keeps available.
    pub fn floor(&self) -> Bytes {
        self.floor
    }

    /// Whether the kernel tells it of stalls.
    pub fn sees_stalls(&self) -> bool {
        self.trigger.is_some()
    }

    /// Watches for at most `timeout`, and wakes slices when memory is short.
    ///
    /// While another request runs it waits for that one's end and tries again; nothing if the request outlasts `timeout`.
    /// After any error it can go on: the next call begins anew. Only [`ErrorKind::Unsupported`] does not pass.
    pub fn watch(&mut self, timeout: Duration) -> Result<Option<Pressure>, BackendError> {
        if std::mem::take(&mut self.renew) {
            self.trigger = trigger(&self.pressure).inspect_err(|_| self.renew = true)?;
        }
        let end = self.backend.system.now() + timeout;
        loop {
            match self.look(end) {
                Err(error) if error.kind() == ErrorKind::Busy => {
                    let left = end.saturating_sub(self.backend.system.now());
                    if left.is_zero() {
                        return Ok(None);
                    }
                    std::thread::sleep(left.min(AGAIN));
                }
                result => {
                    self.renew = result.is_err();
                    return result;
                }
            }
        }
    }

    /// Watches until `end`, or until it wakes slices or fails to.
    fn look(&mut self, end: Duration) -> Result<Option<Pressure>, BackendError> {
        if let Some(slices) = self.due {
            return self.stalled(slices);
        }
        loop {
            let available = look::available(&*self.backend.system).map_err(BackendError::from)?;
            if available < self.floor {
                return self.wake(WokenBy::Low(available), self.missing(available)).map(Some);
            }
            let left = end.saturating_sub(self.backend.system.now()).min(LOOK);
            let stalled = match &self.trigger {
                Some(trigger) => {
                    let path = &self.pressure;
                    trigger.wait(left).map_err(|source| failed(path.clone(), Access::Read, source))
                }
                None => {
                    std::thread::sleep(left);
                    Ok(false)
                }
            };
            if stalled.map_err(|error: Error| BackendError::from(error))? {
                let step = self.step;
                self.step = (step * 2).min(1024);
                return self.stalled(step);
            }
            if self.backend.system.now() >= end {
                self.step = 1;
                // What it waited for in vain is there again.
                self.backend.wanted.store(false, Ordering::Relaxed);
                return Ok(None);
            }
        }
    }

    fn stalled(&mut self, slices: u32) -> Result<Option<Pressure>, BackendError> {
        let result = self.wake(WokenBy::Stall, slices);
        let busy = result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Busy);
        self.due = busy.then_some(slices);
        result.map(Some)
    }

    /// Slices that bring what is available back above the floor, and one more.
    fn missing(&self, available: Bytes) -> u32 {
        let slice = self.backend.slice_bytes().map_or(self.backend.block.0, |bytes| bytes.0);
        let short = self.floor.0.saturating_sub(available.0);
        u32::try_from(short.div_ceil(slice.max(1)) + 1).unwrap_or(u32::MAX)
    }

    fn wake(&self, by: WokenBy, slices: u32) -> Result<Pressure, BackendError> {
        let request = Request { max_slices: Some(slices), ..Request::new(Op::OnlineAll) };
        // A request of this program that takes memory away ends, and the next look finds the lock free.
        self.backend.wanted.store(true, Ordering::Relaxed);
        let result = self.backend.request(&request);
        if !result.as_ref().is_err_and(|error| error.kind() == ErrorKind::Busy) {
            self.backend.wanted.store(false, Ordering::Relaxed);
        }
        let outcome = result?;
        debug!(?by, slices, done = outcome.slices_done, "woken");
        Ok(Pressure { by, outcome })
    }
}

/// The kernel's trigger on this file.
fn trigger(pressure: &Path) -> Result<Option<Trigger>, Error> {
    match Trigger::open(pressure) {
        Ok(trigger) => Ok(Some(trigger)),
        // psi=0 on the command line, or a kernel without it: MemAvailable alone has to do.
        Err(error) if error.kind() != io::ErrorKind::PermissionDenied => Ok(None),
        Err(source) => Err(failed(pressure.to_owned(), Access::Write, source)),
    }
}

#[cfg(test)]
mod tests {
    use ramslice_types::SliceId;

    use super::super::fake::Fake;
    use super::*;
    use crate::paths::Paths;

    #[test]
    fn a_stall_that_met_another_request_is_not_forgotten() {
        let fake = Fake::new();
        let backend =
            HotplugBackend::with(Box::new(fake.clone()), Paths::under("/nonexistent".as_ref())).unwrap();
        assert!(backend.request(&Request::new(Op::Offline(SliceId(31)))).unwrap().is_ok());
        // Enough is available: only the stall is a reason.
        let mut guard = Guard::new(&backend, Some(Bytes(1))).unwrap();
        fake.inner().locked = true;
        assert_eq!(guard.stalled(1).unwrap_err().kind(), ErrorKind::Busy);
        assert_eq!(guard.watch(Duration::ZERO).unwrap(), None);
        fake.inner().locked = false;
        let pressure = guard.watch(Duration::ZERO).unwrap().unwrap();
        assert_eq!((pressure.by, pressure.outcome.slices_done), (WokenBy::Stall, 1));
    }
}
