//! What needs unsafe code: mappings of memory, and processes that share them.

#![allow(unsafe_code)]

use std::ffi::c_void;
use std::fs::File;
use std::io;
use std::ptr::{NonNull, null_mut};

use rustix::mm::{
    Advice, MapFlags, MprotectFlags, ProtFlags, madvise, mmap, mmap_anonymous, mprotect, munmap,
};
use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};

/// A private anonymous area, a whole number of alignments long and with a hole on either side, so
/// that the kernel lists it by itself.
pub(crate) struct MappedArea {
    whole: NonNull<c_void>,
    whole_bytes: usize,
    start: usize,
    bytes: usize,
}

impl MappedArea {
    /// Reserves `bytes` at a multiple of `align`; nothing is allocated yet. `huge`: in huge pages
    /// or in none.
    pub(crate) fn reserve(bytes: usize, align: usize, huge: bool) -> io::Result<Self> {
        let whole_bytes = bytes + 3 * align;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists.
        let whole = unsafe { mmap_anonymous(null_mut(), whole_bytes, ProtFlags::empty(), flags) }?;
        let whole = NonNull::new(whole).ok_or(io::ErrorKind::OutOfMemory)?;
        // At least one alignment is left in front and one behind.
        let start = (whole.as_ptr().expose_provenance() + align).next_multiple_of(align);
        let area = Self { whole, whole_bytes, start, bytes };
        let advice = if huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
        // SAFETY: the range lies within the mapping just made, to which no other code has a
        // pointer.
        unsafe {
            mprotect(area.pointer(0).cast(), bytes, MprotectFlags::READ | MprotectFlags::WRITE)
        }?;
        // SAFETY: as above; the advice concerns how pages are allocated, not what they hold.
        match unsafe { madvise(area.pointer(0).cast(), bytes, advice) } {
            // A kernel without huge pages needs no advice about them.
            Err(rustix::io::Errno::INVAL) if !huge => {}
            result => result?,
        }
        Ok(area)
    }

    /// Its addresses.
    pub(crate) fn addresses(&self) -> std::ops::Range<usize> {
        self.start..self.start + self.bytes
    }

    fn pointer(&self, offset: usize) -> *mut u8 {
        debug_assert!(offset <= self.bytes);
        std::ptr::with_exposed_provenance_mut(self.start + offset)
    }

    /// Writes to the page at `offset`, which has it allocated.
    pub(crate) fn touch(&mut self, offset: usize) {
        assert!(offset < self.bytes);
        // SAFETY: within the writable part of a mapping that this value owns; volatile, because
        // nothing reads it.
        unsafe { self.pointer(offset).write_volatile(1) };
    }
}

impl Drop for MappedArea {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and nothing borrows from it. Failure would only
        // leave it mapped.
        let _ = unsafe { munmap(self.whole.as_ptr(), self.whole_bytes) };
    }
}

/// Which pages of a file are in the page cache: a byte for each page, its lowest bit set if so.
pub(crate) fn cached(file: &File, bytes: usize, page_bytes: usize) -> io::Result<Vec<u8>> {
    let mut pages = vec![0u8; bytes.div_ceil(page_bytes)];
    // SAFETY: a new mapping at an address of the kernel's choice; it is only asked about, never
    // read.
    let at = unsafe { mmap(null_mut(), bytes, ProtFlags::READ, MapFlags::SHARED, file, 0) }?;
    // SAFETY: the range is the mapping just made, and `pages` has a byte for each page of it.
    let result = match unsafe { libc::mincore(at, bytes, pages.as_mut_ptr()) } {
        0 => Ok(pages),
        _ => Err(io::Error::last_os_error()),
    };
    // SAFETY: the mapping just made, which nothing refers to any more.
    unsafe { munmap(at, bytes) }?;
    result
}

/// Processes that share this one's memory and do nothing; they end with the value, or with this
/// process.
pub(crate) struct SharingProcesses(Vec<Pid>);

impl SharingProcesses {
    /// Forks `count` times.
    pub(crate) fn fork(count: u32) -> io::Result<Self> {
        let parent = rustix::process::getpid();
        let mut sharers = Self(Vec::new());
        for _ in 0..count {
            // SAFETY: the child calls nothing but async-signal-safe functions before it ends, so it
            // does not matter what other threads held at the moment of the fork.
            match unsafe { libc::fork() } {
                -1 => return Err(io::Error::last_os_error()),
                0 => sleep_for_ever(parent),
                pid => sharers.0.extend(Pid::from_raw(pid)),
            }
        }
        Ok(sharers)
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.0.len()
    }

    /// Their ids.
    pub(crate) fn pids(&self) -> Vec<i32> {
        self.0.iter().map(|pid| pid.as_raw_nonzero().get()).collect()
    }
}

fn sleep_for_ever(parent: Pid) -> ! {
    // SAFETY: async-signal-safe calls without pointers. A parent that ended before the first call
    // had taken effect is found out by the second.
    unsafe {
        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
        if libc::getppid() != parent.as_raw_nonzero().get() {
            libc::_exit(0);
        }
        loop {
            libc::pause();
        }
    }
}

impl Drop for SharingProcesses {
    fn drop(&mut self) {
        for &pid in &self.0 {
            // Not waited for yet, so the id is still theirs.
            let _ = kill_process(pid, Signal::KILL);
        }
        for &pid in &self.0 {
            while let Err(rustix::io::Errno::INTR) = waitpid(Some(pid), WaitOptions::empty()) {}
        }
    }
}
