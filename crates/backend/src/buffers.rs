//! Contiguous buffers that programs and drivers have of slices: how many, and what was refused.

use std::fs;
use std::path::Path;

use ramslice_types::{BufferBooks, Bytes, Reason};

use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;

/// Below ramslice's directory in sysfs.
const FOLDER: &str = "buffers";

/// The books of the system whose ramslice directory in sysfs is `sysfs`; `None` where the kernel
/// has no buffers.
///
/// # Errors
/// What cannot be read or understood.
pub(crate) fn read_buffer_books(sysfs: &Path) -> Result<Option<BufferBooks>, KernelError> {
    let folder = sysfs.join(FOLDER);
    if !folder.exists() {
        return Ok(None);
    }
    let text = |name: &str| {
        let path = folder.join(name);
        match fs::read_to_string(&path) {
            Ok(text) => Ok((path, text.trim().to_owned())),
            Err(error) => Err(failed(path, FileAccess::Read, error)),
        }
    };
    let number = |name| {
        let (path, text) = text(name)?;
        text.parse().map_err(|_| KernelError::NotANumber { path, text })
    };
    let code = serde_json::Value::String(text("last_refusal")?.1);
    Ok(Some(BufferBooks {
        nr: number("nr")?,
        bytes: Bytes(number("bytes")?),
        nr_refused: number("nr_refused")?,
        // A kernel that is newer than this may have reasons of its own
        last_refusal: serde_json::from_value(code).unwrap_or(Reason::Unknown(u32::MAX)),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root(last: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join(FOLDER);
        fs::create_dir_all(&folder).unwrap();
        let files = [
            ("nr", "2\n"),
            ("bytes", "134217728\n"),
            ("nr_refused", "1\n"),
            ("last_refusal", last),
        ];
        for (name, text) in files {
            fs::write(folder.join(name), text).unwrap();
        }
        root
    }

    #[test]
    fn the_books_are_read() {
        let root = root("over-limit\n");
        let books = read_buffer_books(root.path()).unwrap().unwrap();
        assert_eq!((books.nr, books.bytes, books.nr_refused), (2, Bytes(128 << 20), 1));
        assert_eq!(books.last_refusal, Reason::OverLimit);
    }

    #[test]
    fn a_kernel_without_buffers_has_no_books() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(read_buffer_books(root.path()).unwrap(), None);
    }

    #[test]
    fn what_is_no_number_is_named() {
        let root = root("none\n");
        fs::write(root.path().join(FOLDER).join("bytes"), "many\n").unwrap();
        let text = read_buffer_books(root.path()).unwrap_err().to_string();
        assert!(text.contains("buffers/bytes") && text.contains("many"), "{text}");
    }
}
