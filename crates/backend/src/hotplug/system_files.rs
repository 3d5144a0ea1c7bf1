//! The files of memory hotplug behind a trait: those of the running system, or simulated ones in
//! tests.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use procfs_core::FromRead;
use rustix::fs::{FlockOperation, flock};
use rustix::time::{ClockId, clock_gettime};
use tracing::debug;

use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;
use crate::sys::interrupt;

/// Where the backend keeps what the kernel does not: below `/run`, because it is void after a
/// reboot.
pub(super) const STATE: &str = "run/ramslice/stock.json";
const LOCK: &str = "run/ramslice/stock.lock";

/// Holds the lock while it lives.
pub(super) type RequestLock = Box<dyn Send>;

/// A system's files, by paths without the leading `/`, and its clocks.
pub(super) trait SystemFiles: Send + Sync {
    /// A small file as text, without the white space around it.
    fn text(&self, path: &str) -> io::Result<String>;
    /// Writes a sysfs file, in one system call; a signal may interrupt it.
    fn write(&self, path: &str, text: &str) -> io::Result<()>;
    /// Whether a file may be written to; nothing is written.
    fn check_writable(&self, path: &str) -> io::Result<()>;
    /// The machine's architecture, as `uname -m` prints it.
    fn architecture(&self) -> String;
    /// Names in a directory.
    fn names(&self, directory: &str) -> io::Result<Vec<String>>;
    /// 64-bit words from the `first` on: as many as fit, fewer at the end.
    fn words(&self, path: &str, first: u64, into: &mut [u64]) -> io::Result<usize>;
    /// Replaces a file of our own as a whole.
    fn save(&self, path: &str, text: &str) -> io::Result<()>;
    /// Takes the lock of requests that switch blocks; `None` if another request holds it.
    fn lock(&self) -> io::Result<Option<RequestLock>>;
    /// The monotonic clock.
    fn now(&self) -> Duration;
    /// Waits for so long by that clock.
    fn pause(&self, time: Duration);
    /// CPU time of this thread.
    fn cpu_time(&self) -> Duration;
    /// Whether Ctrl-C asked the program to end its request.
    fn is_interrupted(&self) -> bool;
    /// The path as people know it.
    fn path(&self, path: &str) -> PathBuf;
}

/// Reads a file of `/proc` that procfs has a parser for.
pub(super) fn read_proc<T: FromRead>(
    system: &dyn SystemFiles,
    path: &str,
) -> Result<T, KernelError> {
    let text =
        system.text(path).map_err(|source| failed(system.path(path), FileAccess::Read, source))?;
    T::from_read(text.as_bytes())
        .map_err(|source| KernelError::ProcFile { path: system.path(path), source })
}

/// The running system, or a copy of its files elsewhere.
pub(super) struct RealFiles {
    root: PathBuf,
}

impl RealFiles {
    pub(super) fn under(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }
}

impl SystemFiles for RealFiles {
    fn text(&self, path: &str) -> io::Result<String> {
        Ok(fs::read_to_string(self.path(path))?.trim().to_owned())
    }

    fn write(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.path(path);
        let mut file = OpenOptions::new().write(true).open(&path)?;
        // Not write_all, which would begin again after a signal.
        let result = file.write(text.as_bytes()).map(drop);
        debug!(path = %path.display(), text, ok = result.is_ok(), "write");
        result
    }

    fn check_writable(&self, path: &str) -> io::Result<()> {
        OpenOptions::new().write(true).open(self.path(path)).map(drop)
    }

    fn architecture(&self) -> String {
        rustix::system::uname().machine().to_string_lossy().into_owned()
    }

    fn names(&self, directory: &str) -> io::Result<Vec<String>> {
        fs::read_dir(self.path(directory))?
            .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
            .collect()
    }

    fn words(&self, path: &str, first: u64, into: &mut [u64]) -> io::Result<usize> {
        let file = File::open(self.path(path))?;
        let mut bytes = vec![0; into.len() * 8];
        let mut filled = 0;
        while filled < bytes.len() {
            match file.read_at(&mut bytes[filled..], first * 8 + filled as u64) {
                Ok(0) => break,
                Ok(more) => filled += more,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        for (word, raw) in into.iter_mut().zip(bytes[..filled].chunks_exact(8)) {
            *word = u64::from_ne_bytes(raw.try_into().map_err(io::Error::other)?);
        }
        Ok(filled / 8)
    }

    fn save(&self, path: &str, text: &str) -> io::Result<()> {
        let path = self.path(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        // A reader sees the old file or the new one, never half of it.
        let fresh = path.with_extension("new");
        fs::write(&fresh, text)?;
        fs::rename(fresh, path)
    }

    fn lock(&self) -> io::Result<Option<RequestLock>> {
        let path = self.path(LOCK);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Some(Box::new(file))),
            Err(error) if error == rustix::io::Errno::WOULDBLOCK => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn now(&self) -> Duration {
        clock(ClockId::Monotonic)
    }

    fn pause(&self, time: Duration) {
        std::thread::sleep(time);
    }

    fn cpu_time(&self) -> Duration {
        clock(ClockId::ThreadCPUTime)
    }

    fn is_interrupted(&self) -> bool {
        interrupt::is_requested()
    }

    fn path(&self, path: &str) -> PathBuf {
        self.root.join(path)
    }
}

fn clock(id: ClockId) -> Duration {
    let time = clock_gettime(id);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
