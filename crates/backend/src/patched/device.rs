//! The character device behind a trait, so that what is made of its answers can be tested without
//! it.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::patched::uapi;
use crate::sys::ioctl;

/// The calls that `/dev/ramslice` answers.
pub(crate) trait RamsliceDevice: Send + Sync {
    fn info(&self, arg: &mut uapi::ramslice_info) -> io::Result<()>;
    fn zone(&self, arg: &mut uapi::ramslice_zone_info) -> io::Result<()>;
    /// Fills `rows`; what was read within `max_age`, and had no pages come or go, stays as it is.
    fn snapshot(
        &self,
        rows: &mut [uapi::ramslice_slice_info],
        max_age: Duration,
    ) -> (io::Result<()>, uapi::ramslice_snapshot);
    /// Runs of slice `id` from its page frame `first` on.
    fn pages(
        &self,
        id: u32,
        first: u32,
        runs: &mut [uapi::ramslice_page_run],
    ) -> io::Result<uapi::ramslice_pages>;
    /// Slices by a table, which `rows` must have room for; returns their number.
    fn segments(&self, rows: &mut [uapi::ramslice_segment]) -> io::Result<u32>;
    fn request(&self, arg: &mut uapi::ramslice_request) -> io::Result<()>;
    /// Whether a slice changed within `timeout`; clears the event and returns the count.
    fn wait(&self, timeout: Duration) -> io::Result<Option<u64>>;
}

impl RamsliceDevice for File {
    fn info(&self, arg: &mut uapi::ramslice_info) -> io::Result<()> {
        ioctl::info(self, arg)
    }

    fn zone(&self, arg: &mut uapi::ramslice_zone_info) -> io::Result<()> {
        ioctl::zone(self, arg)
    }

    fn snapshot(
        &self,
        rows: &mut [uapi::ramslice_slice_info],
        max_age: Duration,
    ) -> (io::Result<()>, uapi::ramslice_snapshot) {
        ioctl::snapshot(self, rows, max_age)
    }

    fn pages(
        &self,
        id: u32,
        first: u32,
        runs: &mut [uapi::ramslice_page_run],
    ) -> io::Result<uapi::ramslice_pages> {
        ioctl::pages(self, (id, first), runs)
    }

    fn segments(&self, rows: &mut [uapi::ramslice_segment]) -> io::Result<u32> {
        ioctl::segments(self, rows)
    }

    fn request(&self, arg: &mut uapi::ramslice_request) -> io::Result<()> {
        ioctl::request(self, arg)
    }

    fn wait(&self, timeout: Duration) -> io::Result<Option<u64>> {
        let mut fds = [PollFd::from_borrowed_fd(self.as_fd(), PollFlags::IN)];
        let timeout = Timespec::try_from(timeout).map_err(io::Error::other)?;
        if poll(&mut fds, Some(&timeout))? == 0 {
            return Ok(None);
        }
        let mut count = [0; 8];
        // The file is opened with O_NONBLOCK: two readers cannot make one wait for ever.
        match (&mut &*self).read(&mut count) {
            Ok(8) => Ok(Some(u64::from_ne_bytes(count))),
            Ok(_) => Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(None),
            Err(error) => Err(error),
        }
    }
}
