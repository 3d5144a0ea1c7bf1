//! Reading below a root: the running system, or a captured tree from another machine.
//!
//! Links are followed inside the root only, nothing but regular files is opened for reading, and a
//! file has a largest size: a captured tree is not trusted.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;
use tracing::debug;

/// Larger files are not read. The largest SMBIOS tables known are below 64 KiB; `/proc/cpuinfo` of
/// a large server has some MiB.
const LARGEST: u64 = 16 << 20;
/// In a captured tree: what the capture could not read.
pub(crate) const NOTES: &str = "ramslice-capture.json";
/// Version of that file.
pub(crate) const NOTES_VERSION: u32 = 1;

/// Why a file or directory gave nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadProblem {
    /// It is not there.
    Absent,
    /// It is there, but not for this user.
    Permission,
    /// It is there, but reading it failed.
    Unreadable,
}

/// A root that cannot be used.
#[derive(Debug, Error)]
pub enum RootError {
    /// It cannot be opened.
    #[error("{path} cannot be read as a directory", path = .path.display())]
    Open {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The notes of a capture are damaged.
    #[error("{path} is not what `ramslice doctor --capture` writes", path = .path.display())]
    Notes {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// The notes are of another version.
    #[error(
        "{path} has schema_version {found}, these tools know {known}: capture again",
        path = .path.display()
    )]
    Version {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// The version that is known.
        known: u32,
    },
    /// A file of a capture cannot be written.
    #[error("writing {path} failed", path = .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// A capture would mix with other files.
    #[error("{path} is not empty: a capture needs a directory of its own", path = .path.display())]
    NotEmpty {
        /// The directory.
        path: PathBuf,
    },
}

/// Facts about a machine that files alone do not keep, so that a captured tree gives the same
/// answer as the machine.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CaptureNotes {
    /// Version of these notes.
    pub(crate) schema_version: u32,
    /// Files that were there but could not be read, without the leading slash.
    #[serde(default)]
    pub(crate) problems: BTreeMap<String, ReadProblem>,
    /// Directories and the names in them: empty ones get lost in archives, and some names are all
    /// that is wanted of what they stand for.
    #[serde(default)]
    pub(crate) directories: BTreeMap<String, Vec<String>>,
    /// Where links lead.
    #[serde(default)]
    pub(crate) links: BTreeMap<String, String>,
}

/// What was read, for a capture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ReadEntry {
    /// A file.
    File(Vec<u8>),
    /// A directory and the names in it.
    Directory(Vec<String>),
    /// A link and where it leads.
    Link(String),
    /// Neither.
    Problem(ReadProblem),
}

/// A root to read below.
#[derive(Debug)]
pub struct SystemRoot {
    directory: OwnedFd,
    notes: CaptureNotes,
    seen: RefCell<BTreeMap<String, ReadEntry>>,
}

/// Whether a directory is what `ramslice doctor --capture` made.
pub fn is_capture(dir: &Path) -> bool {
    dir.join(NOTES).is_file()
}

impl SystemRoot {
    /// The running system with `/`, or a captured tree.
    pub fn open(path: &Path) -> Result<Self, RootError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| RootError::Open { path: path.to_owned(), source: errno.into() })?;
        let root = Self { directory, notes: CaptureNotes::default(), seen: RefCell::default() };
        let Ok(text) = root.bytes(NOTES) else { return Ok(root) };
        let notes: CaptureNotes = serde_json::from_slice(&text)
            .map_err(|source| RootError::Notes { path: path.join(NOTES), source })?;
        if notes.schema_version != NOTES_VERSION {
            let (path, found) = (path.join(NOTES), notes.schema_version);
            return Err(RootError::Version { path, found, known: NOTES_VERSION });
        }
        root.seen.borrow_mut().clear();
        Ok(Self { notes, ..root })
    }

    /// A file's contents. Paths are relative, as in `proc/meminfo`.
    pub fn bytes(&self, path: &str) -> Result<Vec<u8>, ReadProblem> {
        let result = self.noted(path).and_then(|()| self.read(path));
        debug!(path, bytes = result.as_ref().map_or(0, Vec::len), ok = result.is_ok(), "read");
        let seen = result.clone().map_or_else(ReadEntry::Problem, ReadEntry::File);
        self.seen.borrow_mut().insert(path.to_owned(), seen);
        result
    }

    /// A file's text, without blanks around it. Control characters but line ends and tabs become
    /// blanks: device trees separate and end texts by zeros.
    pub fn text(&self, path: &str) -> Result<String, ReadProblem> {
        let bytes = self.bytes(path)?;
        let unprintable = |c: char| c.is_control() && !matches!(c, '\n' | '\t');
        Ok(String::from_utf8_lossy(&bytes).replace(unprintable, " ").trim().to_owned())
    }

    /// The texts of a file that separates them by zeros, as device trees do.
    pub fn texts(&self, path: &str) -> Result<Vec<String>, ReadProblem> {
        let bytes = self.bytes(path)?;
        let texts = bytes.split(|&byte| byte == 0).map(|text| {
            String::from_utf8_lossy(text).replace(|c: char| c.is_control(), " ").trim().to_owned()
        });
        Ok(texts.filter(|text| !text.is_empty()).collect())
    }

    /// Where a link leads, as it is written in it.
    pub fn link(&self, path: &str) -> Result<String, ReadProblem> {
        let result = self.noted(path).and_then(|()| match self.notes.links.get(path) {
            Some(target) => Ok(target.clone()),
            None => self.read_link(path),
        });
        debug!(path, ok = result.is_ok(), "link");
        let seen = result.clone().map_or_else(ReadEntry::Problem, ReadEntry::Link);
        self.seen.borrow_mut().insert(path.to_owned(), seen);
        result
    }

    /// The names in a directory, sorted so that numbers are in order.
    pub fn list(&self, path: &str) -> Result<Vec<String>, ReadProblem> {
        let result = self.noted(path).and_then(|()| match self.notes.directories.get(path) {
            Some(names) => Ok(names.clone()),
            None => self.entries(path),
        });
        debug!(path, entries = result.as_ref().map_or(0, Vec::len), ok = result.is_ok(), "list");
        let seen = result.clone().map_or_else(ReadEntry::Problem, ReadEntry::Directory);
        self.seen.borrow_mut().insert(path.to_owned(), seen);
        result
    }

    /// Whether there is such a directory.
    pub fn has(&self, path: &str) -> bool {
        self.list(path).is_ok()
    }

    /// Everything that was looked at so far.
    pub(crate) fn seen(&self) -> BTreeMap<String, ReadEntry> {
        self.seen.borrow().clone()
    }

    fn noted(&self, path: &str) -> Result<(), ReadProblem> {
        self.notes.problems.get(path).map_or(Ok(()), |&problem| Err(problem))
    }

    fn open_at(&self, path: &str, flags: OFlags) -> Result<OwnedFd, ReadProblem> {
        // NONBLOCK: a pipe in the tree must not block the doctor.
        let flags = flags | OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        rustix::fs::openat2(&self.directory, path, flags, Mode::empty(), resolve).map_err(problem)
    }

    fn read(&self, path: &str) -> Result<Vec<u8>, ReadProblem> {
        let file = self.open_at(path, OFlags::NOCTTY)?;
        let stat = rustix::fs::fstat(&file).map_err(problem)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(ReadProblem::Unreadable);
        }
        let mut bytes = Vec::new();
        File::from(file).take(LARGEST + 1).read_to_end(&mut bytes).map_err(|error| {
            error
                .raw_os_error()
                .map_or(ReadProblem::Unreadable, |raw| problem(Errno::from_raw_os_error(raw)))
        })?;
        if bytes.len() as u64 > LARGEST { Err(ReadProblem::Unreadable) } else { Ok(bytes) }
    }

    fn read_link(&self, path: &str) -> Result<String, ReadProblem> {
        let (parent, name) = path.rsplit_once('/').unwrap_or((".", path));
        let parent = self.open_at(parent, OFlags::DIRECTORY)?;
        // What is no link leads nowhere.
        let target = rustix::fs::readlinkat(parent, name, Vec::new()).map_err(problem)?;
        Ok(target.to_string_lossy().into_owned())
    }

    fn entries(&self, path: &str) -> Result<Vec<String>, ReadProblem> {
        let directory = self.open_at(path, OFlags::DIRECTORY)?;
        let mut names = Vec::new();
        for entry in Dir::new(directory).map_err(problem)? {
            let name = entry.map_err(problem)?.file_name().to_string_lossy().into_owned();
            if name != "." && name != ".." {
                names.push(name);
            }
        }
        names.sort_by_key(|name| {
            (
                name.trim_end_matches(|c: char| c.is_ascii_digit()).to_owned(),
                name.len(),
                name.clone(),
            )
        });
        Ok(names)
    }
}

fn problem(errno: Errno) -> ReadProblem {
    match errno {
        Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::NXIO => ReadProblem::Absent,
        Errno::ACCESS | Errno::PERM => ReadProblem::Permission,
        _ => ReadProblem::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn links_do_not_lead_out_of_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let (tree, secret) = (dir.path().join("tree"), dir.path().join("secret"));
        fs::create_dir(&tree).unwrap();
        fs::write(&secret, "secret").unwrap();
        std::os::unix::fs::symlink(&secret, tree.join("absolute")).unwrap();
        std::os::unix::fs::symlink("../secret", tree.join("relative")).unwrap();
        fs::write(tree.join("inside"), "a\n").unwrap();
        std::os::unix::fs::symlink("/inside", tree.join("link")).unwrap();
        let root = SystemRoot::open(&tree).unwrap();
        assert_eq!(root.text("absolute"), Err(ReadProblem::Absent));
        assert_eq!(root.text("relative"), Err(ReadProblem::Absent));
        assert_eq!(root.text("link").as_deref(), Ok("a"));
    }

    #[test]
    fn a_pipe_or_a_directory_is_no_file() {
        let dir = tempfile::tempdir().unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            dir.path().join("pipe"),
            FileType::Fifo,
            Mode::RWXU,
            0,
        )
        .unwrap();
        fs::create_dir(dir.path().join("directory")).unwrap();
        let root = SystemRoot::open(dir.path()).unwrap();
        assert_eq!(root.bytes("pipe"), Err(ReadProblem::Unreadable));
        assert_eq!(root.bytes("directory"), Err(ReadProblem::Unreadable));
        assert_eq!(root.bytes("nothing"), Err(ReadProblem::Absent));
        assert_eq!(root.bytes("pipe/below"), Err(ReadProblem::Absent));
    }

    #[test]
    fn a_file_without_end_is_not_read() {
        let dir = tempfile::tempdir().unwrap();
        File::create(dir.path().join("large")).unwrap().set_len(LARGEST + 1).unwrap();
        assert_eq!(
            SystemRoot::open(dir.path()).unwrap().bytes("large"),
            Err(ReadProblem::Unreadable)
        );
    }

    #[test]
    fn refused_is_not_absent() {
        assert_eq!(problem(Errno::ACCESS), ReadProblem::Permission);
        assert_eq!(problem(Errno::PERM), ReadProblem::Permission);
        assert_eq!(problem(Errno::NOENT), ReadProblem::Absent);
        assert_eq!(problem(Errno::IO), ReadProblem::Unreadable);
    }

    #[test]
    fn names_with_numbers_are_in_order() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["memory10", "memory9", "auto"] {
            fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(
            SystemRoot::open(dir.path()).unwrap().list("").unwrap_or_default(),
            Vec::<String>::new()
        );
        assert_eq!(
            SystemRoot::open(dir.path()).unwrap().list(".").unwrap(),
            ["auto", "memory9", "memory10"]
        );
    }
}
