//! How the kernel reports that tasks wait for memory: a trigger on `/proc/pressure/memory`.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// The kernel's file.
pub const PATH: &str = "/proc/pressure/memory";

/// A trigger. Its file becomes ready (`POLLPRI`) at most once in a window.
#[derive(Debug)]
pub struct PressureTrigger {
    file: File,
}

impl PressureTrigger {
    /// Fires when tasks have waited for `stall` within `window`.
    ///
    /// Kernels before 6.5 require `CAP_SYS_RESOURCE` for that; later ones only for windows that are
    /// no
    /// multiple of 2 s.
    ///
    /// # Errors
    /// If the kernel has no such file (`psi=0`), or refuses.
    pub fn open(path: &Path, stall: Duration, window: Duration) -> io::Result<Self> {
        let mut file = OpenOptions::new().read(true).write(true).open(path)?;
        file.write_all(format!("some {} {}\0", stall.as_micros(), window.as_micros()).as_bytes())?;
        Ok(Self { file })
    }
}

impl AsFd for PressureTrigger {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trigger_is_written_in_microseconds_and_a_missing_file_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("memory");
        let open =
            || PressureTrigger::open(&path, Duration::from_millis(100), Duration::from_secs(2));
        assert_eq!(open().unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, "").unwrap();
        open().unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "some 100000 2000000\0");
    }
}
