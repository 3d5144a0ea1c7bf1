//! Which kdamonds are this daemon's. DAMON has one list for all programs, and names no owner: so
//! their thread ids are kept in a file that lasts as long as the boot.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tracing::warn;

use crate::persisted_state;

const FILE: &str = "kdamonds.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KdamondRecord {
    boot: String,
    /// None while they are being set up.
    pids: Option<Vec<u32>>,
}

/// Remembers kdamonds across a crash.
#[derive(Debug)]
pub(super) struct KdamondOwnership {
    file: PathBuf,
    boot: String,
    /// This run has started kdamonds that are not written down so far. All that there are, then:
    /// DAMON lets no other program add any while they run.
    is_unwritten: bool,
    /// Writes the file.
    write: fn(&Path, &[u8]) -> std::io::Result<()>,
}

impl KdamondOwnership {
    /// Where they are written down.
    pub(super) fn file(runtime_dir: &Path) -> PathBuf {
        runtime_dir.join(FILE)
    }

    /// Those of this boot.
    pub(super) fn new(runtime_dir: &Path, boot: &str) -> Self {
        Self {
            file: Self::file(runtime_dir),
            boot: boot.to_owned(),
            is_unwritten: false,
            write: |path, text| persisted_state::replace(path, text),
        }
    }

    /// The same with another way to write the file.
    #[cfg(test)]
    pub(super) fn written_by(self, write: fn(&Path, &[u8]) -> std::io::Result<()>) -> Self {
        Self { write, ..self }
    }

    /// They were started just now, and are to be written down.
    pub(super) fn started(&mut self) {
        self.is_unwritten = true;
    }

    /// Whether these kdamonds, by thread id, were set up by a daemon of this boot: all that run are
    /// written down. While it was setting them up, none ran.
    pub(super) fn owns(&self, kdamonds: &[Option<u32>]) -> bool {
        if self.is_unwritten {
            return true;
        }
        let record = fs::read(&self.file).ok();
        let record = record.and_then(|text| serde_json::from_slice::<KdamondRecord>(&text).ok());
        let Some(record) = record.filter(|record| record.boot == self.boot) else { return false };
        let mut running = kdamonds.iter().flatten();
        match record.pids {
            None => running.next().is_none(),
            Some(pids) => pids.len() == kdamonds.len() && running.all(|pid| pids.contains(pid)),
        }
    }

    /// Writes them down: none before they are set up, all when they run.
    pub(super) fn write(&mut self, pids: Option<Vec<u32>>) -> std::io::Result<()> {
        let record = KdamondRecord { boot: self.boot.clone(), pids };
        let text = serde_json::to_vec(&record).expect("names are text");
        (self.write)(&self.file, &text)?;
        self.is_unwritten = false;
        Ok(())
    }

    /// There are none any more.
    pub(super) fn forget(&mut self) {
        self.is_unwritten = false;
        if let Err(error) = fs::remove_file(&self.file)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            warn!("{} cannot be removed: {error}", self.file.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kdamonds_are_ours_if_all_that_run_are_written_down_in_this_boot() {
        let dir = tempfile::tempdir().unwrap();
        let mut ours = KdamondOwnership::new(dir.path(), "boot");
        assert!(!ours.owns(&[Some(7)]));
        ours.write(None).unwrap();
        assert!(ours.owns(&[None, None]) && !ours.owns(&[Some(7), None]));
        ours.write(Some(vec![7, 8])).unwrap();
        assert!(ours.owns(&[Some(7), Some(8)]) && ours.owns(&[None, Some(8)]));
        assert!(!ours.owns(&[Some(7), Some(9)]), "one of another program");
        assert!(!ours.owns(&[Some(7)]), "another program has changed their number");
        assert!(!KdamondOwnership::new(dir.path(), "other boot").owns(&[Some(7), Some(8)]));
        ours.forget();
        assert!(!ours.owns(&[Some(7), Some(8)]));
    }
}
