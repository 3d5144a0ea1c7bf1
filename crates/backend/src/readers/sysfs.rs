//! One-value files below `/sys/kernel/mm/ramslice`.

use std::fs;
use std::io;
use std::path::PathBuf;

use tracing::debug;

use crate::error::{FileAccess, KernelError};
use crate::readers::KernelPaths;

/// Reads a number.
pub(crate) fn read(paths: &KernelPaths, name: &str) -> Result<u64, KernelError> {
    let path = paths.sysfs.join(name);
    let text = fs::read_to_string(&path)
        .map_err(|source| failed(path.clone(), FileAccess::Read, source))?;
    let text = text.trim();
    debug!(path = %path.display(), text, "read");
    text.parse().map_err(|_| KernelError::NotANumber { path, text: text.to_owned() })
}

/// Writes a number. The caller maps errno values that mean something for this file.
pub(crate) fn write(paths: &KernelPaths, name: &str, value: u64) -> io::Result<()> {
    let path = paths.sysfs.join(name);
    debug!(path = %path.display(), value, "write");
    // Not fs::write: a sysfs file exists, or the kernel does not have it.
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    io::Write::write_all(&mut file, format!("{value}\n").as_bytes())
}

/// Gives an I/O error its path, and permission errors their remedy.
pub(crate) fn failed(path: PathBuf, access: FileAccess, source: io::Error) -> KernelError {
    if source.kind() == io::ErrorKind::ReadOnlyFilesystem {
        return KernelError::ReadOnly { path };
    }
    if source.kind() == io::ErrorKind::PermissionDenied {
        let hint = "only root may: use sudo".to_owned();
        return KernelError::Permission { path, access, hint };
    }
    KernelError::File { path, access, source }
}
