//! One-value files below `/sys/kernel/mm/ramslice`.

use std::fs;
use std::io;
use std::path::PathBuf;

use tracing::debug;

use crate::error::{Access, Error};
use crate::readers::Paths;

/// Reads a number.
pub(crate) fn read(paths: &Paths, name: &str) -> Result<u64, Error> {
    let path = paths.sysfs.join(name);
    let text =
        fs::read_to_string(&path).map_err(|source| failed(path.clone(), Access::Read, source))?;
    let text = text.trim();
    debug!(path = %path.display(), text, "read");
    text.parse().map_err(|_| Error::NotANumber { path, text: text.to_owned() })
}

/// Writes a number. The caller maps errno values that mean something for this file.
pub(crate) fn write(paths: &Paths, name: &str, value: u64) -> io::Result<()> {
    let path = paths.sysfs.join(name);
    debug!(path = %path.display(), value, "write");
    // Not fs::write: a sysfs file exists, or the kernel does not have it.
    let mut file = fs::OpenOptions::new().write(true).truncate(true).open(path)?;
    io::Write::write_all(&mut file, format!("{value}\n").as_bytes())
}

/// Gives an I/O error its path, and permission errors their remedy.
pub(crate) fn failed(path: PathBuf, access: Access, source: io::Error) -> Error {
    if source.kind() == io::ErrorKind::PermissionDenied {
        let hint = "only root may: use sudo".to_owned();
        return Error::Permission { path, access, hint };
    }
    Error::File { path, access, source }
}
