//! State to keep between two calls because the kernel does not keep it: which blocks are ours, and
//! their zones.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::time::Duration;

use ramslice_types::{Bytes, Price, PriceParameter, Reason, WorkCounters};
use serde::{Deserialize, Serialize};

use super::price::ChangedPrices;
use super::system_files::{STATE, SystemFiles};
use crate::error::{FileAccess, KernelError};
use crate::readers::sysfs::failed;

/// How long a slice is not tried again after its first failure; doubled each time.
const FIRST_BACKOFF: Duration = Duration::from_secs(5);
const LONGEST_BACKOFF: Duration = Duration::from_secs(640);

/// A slice that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct SliceFailure {
    pub(super) reason: Reason,
    pub(super) times: u32,
    /// On the monotonic clock.
    pub(super) until_ms: u64,
}

/// The file in `/run`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct HotplugState {
    /// 0: one block.
    pub(super) slice_bytes: Bytes,
    pub(super) price_100cycles: BTreeMap<PriceParameter, Price>,
    /// Blocks taken offline by this program: the zone that each was in.
    pub(super) blocks: BTreeMap<u64, String>,
    /// By the first block of the slice.
    pub(super) failures: BTreeMap<u64, SliceFailure>,
    /// Blocks that were there at boot, on a kernel that never gives those back.
    pub(super) boot_blocks: BTreeSet<u64>,
    /// What was done since boot.
    pub(super) work: Option<WorkCounters>,
    /// The clock that counted its cycles: the first one, for all of them.
    pub(super) clock_khz: Option<u64>,
}

impl HotplugState {
    /// Reads it; the state is empty if there is no file yet.
    pub(super) fn read(system: &dyn SystemFiles) -> Result<Self, KernelError> {
        match system.text(STATE) {
            Ok(text) => serde_json::from_str(&text)
                .map_err(|source| KernelError::State { path: system.path(STATE), source }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Self::default()),
            Err(source) => Err(failed(system.path(STATE), FileAccess::Read, source)),
        }
    }

    /// Writes it as a whole.
    pub(super) fn save(&self, system: &dyn SystemFiles) -> Result<(), KernelError> {
        let text = serde_json::to_string(self)
            .map_err(|source| KernelError::State { path: system.path(STATE), source })?;
        system
            .save(STATE, &text)
            .map_err(|source| failed(system.path(STATE), FileAccess::Write, source))
    }

    pub(super) fn blocks_per_slice(&self, block: Bytes) -> u64 {
        (self.slice_bytes.0 / block.0).max(1)
    }

    pub(super) fn prices(&self) -> &ChangedPrices {
        &self.price_100cycles
    }

    /// Records a failure, so that the slice is not tried again for a while.
    pub(super) fn add_failure(&mut self, first: u64, reason: Reason, now: Duration) {
        let times = self.failures.get(&first).map_or(0, |failure| failure.times);
        let wait = (FIRST_BACKOFF * 2_u32.pow(times.min(16))).min(LONGEST_BACKOFF);
        let until_ms = u64::try_from((now + wait).as_millis()).unwrap_or(u64::MAX);
        self.failures.insert(first, SliceFailure { reason, times: times + 1, until_ms });
    }

    /// The failure of a slice that is not to be tried yet, and for how many milliseconds.
    pub(super) fn backoff(&self, first: u64, now: Duration) -> Option<(&SliceFailure, u64)> {
        let failure = self.failures.get(&first)?;
        let now_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        (failure.until_ms > now_ms).then(|| (failure, failure.until_ms - now_ms))
    }
}
