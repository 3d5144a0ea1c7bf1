//! The state that is saved across restarts: written as a whole or not at all, and checked when
//! read.
//!
//! The file has two lines: a head with version, length and checksum, and the contents as JSON. A
//! new
//! file is written next to the old one, synced and renamed over it, and the directory is synced, so
//! that after a crash there is either the old or the new one. A file that is damaged, of another
//! version, or unreadable is set aside under another name, which the log gives; the daemon starts
//! without saved state.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ramslice_backend::WhatIfMemory;
use ramslice_energy::EnergyTally;
use ramslice_policy::{PolicyEvent, PoolBook, SavedPolicy};
use ramslice_types::{Bytes, Pages, Price, WorkCounters, duration_us};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::energy_ledger::LedgerKind;
use crate::machine_snapshot::ZoneKey;
use crate::mode::DaemonMode;
use crate::price_watch::PersistedPrices;
use crate::wake_attribution::ZoneBaseline;

/// The version of the format, raised when a field changes its meaning or goes. Files of other
/// versions are refused.
pub const VERSION: u32 = 1;

/// The name of the file in the state directory.
pub const FILE: &str = "state.json";
/// The name of the file that the writer of the state holds locked.
pub const LOCK: &str = "lock";

/// The state of one zone.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PersistedZone {
    /// Which zone.
    pub key: ZoneKey,
    /// What its policy has learned.
    pub policy: SavedPolicy,
    /// The zone after the last step; none while that is not known.
    #[serde(rename = "left")]
    pub baseline: Option<ZoneBaseline>,
    /// Events since the policy's last step.
    pub events: Vec<PolicyEvent>,
    /// Cache that left a trace when it was dropped, and may be read again.
    #[serde(rename = "dropped_pages")]
    pub dropped: Pages,
}

/// Everything that is saved.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PersistedState {
    /// The boot in which it was written.
    pub boot: String,
    /// The policies' time when it was written.
    #[serde(rename = "time_us", with = "duration_us")]
    pub time: Duration,
    /// The daemon's mode then.
    pub mode: DaemonMode,
    /// What the policies' learning depends on: settings, profile, size of a slice. If that differs,
    /// learning again.
    pub basis: String,
    /// The size of a slice.
    pub slice_bytes: Bytes,
    /// The zones.
    pub zones: Vec<PersistedZone>,
    /// Slices may be offline that are to be woken when the mode is no longer on. For older files,
    /// without this field, the mode decides.
    #[serde(rename = "owing", default, skip_serializing_if = "Option::is_none")]
    pub wake_pending: Option<bool>,
    /// The kinds of backends by which slices may be offline; older files lack it. The main loop
    /// fills this in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<String>,
    /// What mode observe would have done. The main loop fills this in.
    #[serde(rename = "shadow")]
    pub what_if: WhatIfMemory,
    /// What the sums of both ledgers are about; older files lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[serde(rename = "books")]
    pub ledger_kind: Option<LedgerKind>,
    /// The ledger of mode on.
    pub earned: EnergyTally,
    /// The ledger of mode observe.
    pub would_earn: EnergyTally,
    /// The part of the ledger of mode on that this daemon cost beyond its requests; older files
    /// lack
    /// it.
    #[serde(rename = "earned_own_100cycles", default)]
    pub earned_own: Price,
    /// The same for the ledger of mode observe.
    #[serde(rename = "would_earn_own_100cycles", default)]
    pub would_earn_own: Price,
    /// Windows that governors have opened in mode on, over all zones; older files lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earned_windows: Option<u64>,
    /// The same in mode observe.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub would_earn_windows: Option<u64>,
    /// What this daemon has done since its first run.
    pub work: WorkCounters,
    /// Slices that would have woken because memory was wanted, in mode observe.
    pub would_wake: u64,
    /// What is known of the kernel's prices; older files lack it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<PersistedPrices>,
    /// Huge pages that were made in this boot; older files lack it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub pools: Vec<PoolBook>,
}

impl PersistedState {
    /// Whether the writer may have left slices offline that another mode is to wake.
    pub fn wake_is_pending(&self) -> bool {
        self.wake_pending.unwrap_or(self.mode == DaemonMode::On)
    }

    /// Keeps what was counted, as of `now`, but drops what policies have learned.
    pub fn forget_learned(&mut self, now: Duration) {
        self.time = now;
        // An empty basis fits nothing, so that they start over.
        self.basis.clear();
    }
}

#[derive(Serialize, Deserialize)]
struct StateHead {
    format: String,
    version: u32,
    bytes: usize,
    crc32: String,
}

const FORMAT: &str = "ramsliced-state";

/// Why a file is refused.
#[derive(Debug, Error)]
pub enum StateDamage {
    /// The first line is no head.
    #[error("its first line is no head of such a file")]
    Head,
    /// It is of another version.
    #[error("it has version {found}; this daemon knows {VERSION}")]
    Version {
        /// The version that it has.
        found: u32,
    },
    /// It is shorter or longer than its head says.
    #[error("it should have {expected} bytes of contents and has {found}")]
    Length {
        /// As the head says.
        expected: usize,
        /// As found.
        found: usize,
    },
    /// The contents do not have the checksum of the head.
    #[error("its checksum is {found}, not {expected}: it was changed or damaged")]
    Checksum {
        /// As the head says.
        expected: String,
        /// As found.
        found: String,
    },
    /// It is complete but cannot be parsed.
    #[error("its contents are not understood: {0}")]
    SliceContents(#[from] serde_json::Error),
    /// It cannot be read. Its contents may be good.
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
}

/// What was found when the daemon started.
#[derive(Debug)]
pub enum FoundState {
    /// There is no file.
    Nothing,
    /// The file is good.
    Good(Box<PersistedState>),
    /// The file is refused and was set aside, if that worked.
    SetAside {
        /// What is wrong with it.
        damage: StateDamage,
        /// Its new name.
        new_path: Option<PathBuf>,
    },
}

/// The file's text.
pub fn encode(memory: &PersistedState) -> String {
    let contents = serde_json::to_string(memory).expect("names are text and numbers are finite");
    let head = StateHead {
        format: FORMAT.to_owned(),
        version: VERSION,
        bytes: contents.len(),
        crc32: checksum(&contents),
    };
    let head = serde_json::to_string(&head).expect("a head is plain");
    format!("{head}\n{contents}\n")
}

/// Parses the file's text.
///
/// # Errors
/// What is wrong with it.
pub fn decode(text: &[u8]) -> Result<PersistedState, StateDamage> {
    let end = text.iter().position(|&byte| byte == b'\n').ok_or(StateDamage::Head)?;
    let head: StateHead = serde_json::from_slice(&text[..end]).map_err(|_| StateDamage::Head)?;
    if head.format != FORMAT {
        return Err(StateDamage::Head);
    }
    if head.version != VERSION {
        return Err(StateDamage::Version { found: head.version });
    }
    let contents = text[end + 1..].strip_suffix(b"\n").unwrap_or(&text[end + 1..]);
    if contents.len() != head.bytes {
        return Err(StateDamage::Length { expected: head.bytes, found: contents.len() });
    }
    let found = format!("{:08x}", crc32fast::hash(contents));
    if found != head.crc32 {
        return Err(StateDamage::Checksum { expected: head.crc32, found });
    }
    Ok(serde_json::from_slice(contents)?)
}

fn checksum(contents: &str) -> String {
    format!("{:08x}", crc32fast::hash(contents.as_bytes()))
}

/// Reads the file in `dir`. A refused file is renamed, so that nothing is lost and nothing is in
/// the
/// way. So is a file that cannot be read, because it may be good.
pub fn read(dir: &Path) -> FoundState {
    let path = dir.join(FILE);
    let found = match fs::read(&path) {
        Ok(text) => decode(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return FoundState::Nothing,
        Err(error) => Err(StateDamage::Unreadable(error)),
    };
    match found {
        Ok(memory) => FoundState::Good(Box::new(memory)),
        Err(damage) => {
            let word =
                if matches!(damage, StateDamage::Unreadable(_)) { "unreadable" } else { "damaged" };
            let free_path = (1..1000)
                .map(|n| dir.join(format!("{FILE}.{word}-{n}")))
                .find(|path| !path.exists());
            let new_path = free_path.filter(|to| fs::rename(&path, to).is_ok());
            FoundState::SetAside { damage, new_path }
        }
    }
}

/// Writes the file in place of the old one.
///
/// # Errors
/// Those of the file system. The old file is unchanged then.
pub fn write(dir: &Path, memory: &PersistedState) -> io::Result<()> {
    replace(&dir.join(FILE), encode(memory).as_bytes())?;
    // Otherwise a power failure may undo the rename.
    File::open(dir)?.sync_all()
}

/// Locks `dir` against other daemons while the returned file is open; none if another one holds the
/// lock.
///
/// # Errors
/// Those of the file system.
pub fn lock_directory(dir: &Path) -> io::Result<Option<File>> {
    let file = File::create(dir.join(LOCK))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Replaces a whole file.
///
/// # Errors
/// Those of the file system.
pub fn replace(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let mut file = File::create(&new)?;
    file.write_all(text)?;
    file.sync_data()?;
    fs::rename(&new, path)
}

#[cfg(test)]
#[path = "persisted_state_tests.rs"]
mod tests;
