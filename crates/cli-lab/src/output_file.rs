//! A file that is there when it is whole: written beside its place, and moved there at the end.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// A file being written. Unless it is [finished](Self::finish), what was in its place stays.
#[derive(Debug)]
pub(crate) struct OutputFile {
    file: File,
    path: PathBuf,
    /// Where it is until then; nothing if it is written in its place.
    temporary: Option<PathBuf>,
}

impl OutputFile {
    /// Begins to write the file. A device or a pipe is written in its place.
    ///
    /// # Errors
    /// If nothing can be written there.
    pub(crate) fn create(path: &Path) -> io::Result<Self> {
        let before = match OpenOptions::new().write(true).open(path) {
            Ok(file) => {
                let about = file.metadata()?;
                if !about.is_file() {
                    return Ok(Self { file, path: path.to_owned(), temporary: None });
                }
                Some(about)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(error),
        };
        // Of a link, what it leads to.
        let path = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
        let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?.to_string_lossy();
        let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
        let file = File::create(&temporary)?;
        let found = Self { file, path, temporary: Some(temporary) };
        if let Some(before) = before {
            found.file.set_permissions(before.permissions())?;
        }
        Ok(found)
    }

    /// Puts it in its place.
    ///
    /// # Errors
    /// If it cannot be; then what was there stays.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if let Some(temporary) = &self.temporary {
            self.file.sync_all()?;
            fs::rename(temporary, &self.path)?;
            self.temporary = None;
        }
        Ok(())
    }
}

impl Write for OutputFile {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.file.write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for OutputFile {
    fn drop(&mut self) {
        if let Some(temporary) = &self.temporary {
            // What is wrong with it has been reported, or the work was interrupted.
            let _ = fs::remove_file(temporary);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    #[test]
    fn what_was_there_stays_until_the_file_is_finished() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("samples.json");
        for finished in [false, true] {
            fs::write(&path, "before").unwrap();
            let mut file = OutputFile::create(&path).unwrap();
            file.write_all(b"after").unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), "before");
            if finished {
                file.finish().unwrap();
            } else {
                drop(file);
            }
            let expected = if finished { "after" } else { "before" };
            assert_eq!(fs::read_to_string(&path).unwrap(), expected);
            assert_eq!(names(home.path()), ["samples.json"]);
        }
    }

    #[test]
    fn links_and_devices_stay_what_they_are() {
        let home = tempfile::tempdir().unwrap();
        let (path, link) = (home.path().join("file"), home.path().join("link"));
        fs::write(&path, "before").unwrap();
        std::os::unix::fs::symlink(&path, &link).unwrap();
        let mut file = OutputFile::create(&link).unwrap();
        file.write_all(b"after").unwrap();
        file.finish().unwrap();
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_to_string(&path).unwrap(), "after");

        let null = OutputFile::create(Path::new("/dev/null")).unwrap();
        assert!(null.temporary.is_none());
        null.finish().unwrap();
    }

    #[test]
    fn a_place_where_nothing_can_be_written_is_refused_at_once() {
        let home = tempfile::tempdir().unwrap();
        for path in [home.path().to_owned(), home.path().join("none/file")] {
            assert!(OutputFile::create(&path).is_err(), "{}", path.display());
        }
        assert!(names(home.path()).is_empty());
    }
}
