//! What is remembered across restarts: written as a whole or not at all, and checked when it is read.
//!
//! A file has two lines: a head with version, length and checksum, and the contents as JSON. It is written next to
//! the old one, synced, renamed over it, and the directory is synced, so that after a crash there is the old or the
//! new one. A file that is damaged, of another version, or cannot be read is set aside under another name and named in the
//! log: the daemon begins anew.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ramslice_backend::WhatIfMemory;
use ramslice_energy::EnergyTally;
use ramslice_policy::{PolicyEvent, SavedPolicy};
use ramslice_types::{Bytes, Pages, Price, WorkCounters, duration_us};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::energy_ledger::Kind;
use crate::machine_snapshot::ZoneKey;
use crate::mode::Mode;
use crate::price_watch::PricesMemory;
use crate::wake_attribution::Left;

/// The version of the format. Raised when a field changes its meaning or goes; others are not taken.
pub const VERSION: u32 = 1;

/// The name of the file in the state directory.
pub const FILE: &str = "state.json";
/// The name of the file that who writes there has locked.
pub const LOCK: &str = "lock";

/// One zone's share.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ZoneMemory {
    /// Which.
    pub key: ZoneKey,
    /// What its policy has learned.
    pub policy: SavedPolicy,
    /// How it was left; nothing while that is not known.
    pub left: Option<Left>,
    /// What happened after the policy's last step.
    pub events: Vec<PolicyEvent>,
    /// Cache that was dropped and may be read again.
    #[serde(rename = "dropped_pages")]
    pub dropped: Pages,
}

/// Everything that is remembered.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Memory {
    /// The boot that it is of.
    pub boot: String,
    /// The policies' time when it was written.
    #[serde(rename = "time_us", with = "duration_us")]
    pub time: Duration,
    /// What the daemon did then.
    pub mode: Mode,
    /// What the policies' learning rests on: settings, profile, size of a slice. Other ones begin anew.
    pub basis: String,
    /// The size of a slice.
    pub slice_bytes: Bytes,
    /// By zone.
    pub zones: Vec<ZoneMemory>,
    /// Slices may be off that are to be woken when the mode is no longer on; files from before go by the mode.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owing: Option<bool>,
    /// What mode observe would have done. The engine leaves it to the main loop.
    pub shadow: WhatIfMemory,
    /// What the sums of both ledgers are of; files from before do not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub books: Option<Kind>,
    /// The ledger of mode on.
    pub earned: EnergyTally,
    /// The ledger of mode observe.
    pub would_earn: EnergyTally,
    /// Of the ledger of mode on, what this daemon took besides its requests; files from before do not have it.
    #[serde(rename = "earned_own_100cycles", default)]
    pub earned_own: Price,
    /// The same of that of mode observe.
    #[serde(rename = "would_earn_own_100cycles", default)]
    pub would_earn_own: Price,
    /// What this daemon has done, ever.
    pub work: WorkCounters,
    /// Slices that would have woken because memory was wanted, in mode observe.
    pub would_wake: u64,
    /// What is known of the kernel's prices; files from before do not have it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prices: Option<PricesMemory>,
}

impl Memory {
    /// Whether whoever wrote it may have left slices off that another mode is to wake.
    pub fn owes(&self) -> bool {
        self.owing.unwrap_or(self.mode == Mode::On)
    }

    /// Keeps what was counted, as of `now`, but not what policies have learned.
    pub fn forget_learned(&mut self, now: Duration) {
        self.time = now;
        // It fits nothing, so that they begin anew.
        self.basis.clear();
    }
}

#[derive(Serialize, Deserialize)]
struct Head {
    format: String,
    version: u32,
    bytes: usize,
    crc32: String,
}

const FORMAT: &str = "ramsliced-state";

/// A file that is not taken.
#[derive(Debug, Error)]
pub enum Damage {
    /// The head is not one.
    #[error("its first line is no head of such a file")]
    Head,
    /// It is of another version.
    #[error("it has version {found}, this daemon knows {VERSION}")]
    Version {
        /// The version that it has.
        found: u32,
    },
    /// It ends early, or goes on.
    #[error("it should have {wanted} bytes of contents and has {found}")]
    Length {
        /// By the head.
        wanted: usize,
        /// In truth.
        found: usize,
    },
    /// Contents and checksum do not fit.
    #[error("its checksum is {found}, not {wanted}: it was changed or damaged")]
    Checksum {
        /// By the head.
        wanted: String,
        /// In truth.
        found: String,
    },
    /// It cannot be understood although it is whole.
    #[error("its contents are not understood: {0}")]
    SliceContents(#[from] serde_json::Error),
    /// Nothing is known of what it says: the reason may pass.
    #[error("it cannot be read: {0}")]
    Unreadable(#[source] io::Error),
}

/// What was found when the daemon began.
#[derive(Debug)]
pub enum Found {
    /// There is none.
    Nothing,
    /// It is good.
    Good(Box<Memory>),
    /// It is no good, or cannot be read, and was set aside, under this name if that worked.
    SetAside {
        /// What is wrong with it.
        damage: Damage,
        /// The new name.
        to: Option<PathBuf>,
    },
}

/// The file's text.
pub fn encode(memory: &Memory) -> String {
    let contents = serde_json::to_string(memory).expect("names are text and numbers are finite");
    let head = Head {
        format: FORMAT.to_owned(),
        version: VERSION,
        bytes: contents.len(),
        crc32: checksum(&contents),
    };
    let head = serde_json::to_string(&head).expect("a head is plain");
    format!("{head}\n{contents}\n")
}

/// What a file's text says.
///
/// # Errors
/// What is wrong with it.
pub fn decode(text: &[u8]) -> Result<Memory, Damage> {
    let end = text.iter().position(|&byte| byte == b'\n').ok_or(Damage::Head)?;
    let head: Head = serde_json::from_slice(&text[..end]).map_err(|_| Damage::Head)?;
    if head.format != FORMAT {
        return Err(Damage::Head);
    }
    if head.version != VERSION {
        return Err(Damage::Version { found: head.version });
    }
    let contents = text[end + 1..].strip_suffix(b"\n").unwrap_or(&text[end + 1..]);
    if contents.len() != head.bytes {
        return Err(Damage::Length { wanted: head.bytes, found: contents.len() });
    }
    let found = format!("{:08x}", crc32fast::hash(contents));
    if found != head.crc32 {
        return Err(Damage::Checksum { wanted: head.crc32, found });
    }
    Ok(serde_json::from_slice(contents)?)
}

fn checksum(contents: &str) -> String {
    format!("{:08x}", crc32fast::hash(contents.as_bytes()))
}

/// Reads the file in `dir`. What is no good is renamed, so that nothing is lost and nothing is in the way; so is what cannot
/// be read, which may be good.
pub fn read(dir: &Path) -> Found {
    let path = dir.join(FILE);
    let found = match fs::read(&path) {
        Ok(text) => decode(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Found::Nothing,
        Err(error) => Err(Damage::Unreadable(error)),
    };
    match found {
        Ok(memory) => Found::Good(Box::new(memory)),
        Err(damage) => {
            let word =
                if matches!(damage, Damage::Unreadable(_)) { "unreadable" } else { "damaged" };
            let to = (1..1000)
                .map(|n| dir.join(format!("{FILE}.{word}-{n}")))
                .find(|path| !path.exists());
            let to = to.filter(|to| fs::rename(&path, to).is_ok());
            Found::SetAside { damage, to }
        }
    }
}

/// Writes it in place of the old one.
///
/// # Errors
/// Those of the file system. The old file is there as it was, then.
pub fn write(dir: &Path, memory: &Memory) -> io::Result<()> {
    replace(&dir.join(FILE), encode(memory).as_bytes())?;
    // Else the rename may be lost with the power.
    File::open(dir)?.sync_all()
}

/// Keeps everybody else who asks from `dir` for as long as the file is open; nothing if somebody does already.
///
/// # Errors
/// Those of the file system.
pub fn alone(dir: &Path) -> io::Result<Option<File>> {
    let file = File::create(dir.join(LOCK))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Replaces a file as a whole.
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
