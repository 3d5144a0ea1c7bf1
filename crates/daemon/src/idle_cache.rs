//! On a kernel without ramslice, page cache not read for a time is reclaimed, so that free
//! page reporting finds it. The policy library decides how much; ramslice's kernel needs none of
//! this, as it chooses cache by use itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ramslice_backend::{GuestMemory, KernelError, ReclaimError, VmstatCounters};
use ramslice_policy::{CacheCounts, IdleCacheConfig, IdleCachePolicy};
use ramslice_types::{Bytes, Pages};
use rustix::param::page_size;
use serde::Serialize;
use tracing::{debug, info, warn};

use crate::mode::DaemonMode;
use crate::settings_idle_cache::IdleCacheSettings;

/// The cache is looked at so many times in the time after which it goes.
const LOOKS: u32 = 4;
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Less than this is not worth a request.
const LEAST: Bytes = Bytes(4 << 20);
/// What is reclaimed at a time: a signal waits no longer than that, and older kernels take more
/// than is asked for.
const STEP: Bytes = Bytes(8 << 20);
/// So much that is free among pages in use makes compaction worth its time...
const LOOSE: Bytes = Bytes(32 << 20);
/// ... if it is at least one part in so many of what was reclaimed.
const LOOSE_SHARE: u64 = 4;
/// The directory that only ramslice's kernel has.
const RAMSLICE: &str = "sys/kernel/mm/ramslice";

/// What became of idle cache.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct IdleCacheStatus {
    /// `off`; `kernel`: it chooses by itself; `works`; `fails`.
    pub state: &'static str,
    /// In words.
    pub why: String,
    /// For how long what goes has not been read: longer than set if it was read again.
    pub after_seconds: Option<f64>,
    /// Reclaimed since the daemon started.
    pub reclaimed_bytes: Bytes,
}

impl IdleCacheStatus {
    pub(crate) fn of(state: &'static str, why: impl Into<String>) -> Self {
        Self { state, why: why.into(), after_seconds: None, reclaimed_bytes: Bytes::ZERO }
    }
}

/// The policy with the files that it reads and writes.
#[derive(Debug)]
pub(crate) struct IdleCache {
    memory: GuestMemory,
    vmstat: PathBuf,
    is_patched: bool,
    settings: IdleCacheSettings,
    policy: Option<IdleCachePolicy>,
    /// How long tasks had waited for memory at the last look.
    stalled: Duration,
    compacted: Option<Duration>,
    reclaimed: Bytes,
    failed: bool,
    status: IdleCacheStatus,
}

impl IdleCache {
    /// The system whose files are below `root`.
    pub(crate) fn under(root: &Path) -> Self {
        Self {
            memory: GuestMemory::under(root),
            vmstat: root.join("proc/vmstat"),
            is_patched: root.join(RAMSLICE).exists(),
            settings: IdleCacheSettings::default(),
            policy: None,
            stalled: Duration::ZERO,
            compacted: None,
            reclaimed: Bytes::ZERO,
            failed: false,
            status: IdleCacheStatus::of("off", "idle_cache.after_seconds is 0"),
        }
    }

    /// Whether it works instead of the kernel.
    pub(crate) fn is_wanted(&self, settings: IdleCacheSettings) -> bool {
        settings.after.is_some() && !self.is_patched
    }

    /// The time between two looks; none if it has nothing to do.
    pub(crate) fn pause(&self) -> Option<Duration> {
        self.policy.as_ref()?;
        let after = self.settings.after?;
        Some((after / LOOKS).clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
    }

    /// What it did and why, for the status.
    pub(crate) fn status(&self) -> IdleCacheStatus {
        IdleCacheStatus {
            after_seconds: self.policy.as_ref().map(|policy| policy.wait().as_secs_f64()),
            reclaimed_bytes: self.reclaimed,
            ..self.status.clone()
        }
    }

    /// Takes the settings in force, and has nothing to do where they or the kernel say so.
    pub(crate) fn set(&mut self, settings: IdleCacheSettings, mode: DaemonMode) {
        let why = match (settings.after, mode.idle()) {
            _ if settings.after.is_some() && self.is_patched => {
                Some(("kernel", "ramslice's kernel chooses cache by use itself"))
            }
            (None, _) => Some(("off", "idle_cache.after_seconds is 0")),
            (_, Some(idle)) => Some(("off", idle)),
            _ => None,
        };
        if let Some((state, why)) = why {
            self.policy = None;
            self.status = IdleCacheStatus::of(state, why);
        } else if let (Some(after), true) =
            (settings.after, self.policy.is_none() || settings != self.settings)
        {
            let least = Pages(LEAST.0 / page_size() as u64);
            self.policy = Some(IdleCachePolicy::new(IdleCacheConfig { after, least }));
            self.status = IdleCacheStatus::of("works", "the cache was not looked at so far");
        }
        self.settings = settings;
    }

    /// Looks, and reclaims what is idle if it may. `goes_on` is asked between two steps.
    pub(crate) fn step(&mut self, now: Duration, mode: DaemonMode, goes_on: &dyn Fn() -> bool) {
        if self.policy.is_none() {
            return;
        }
        match self.try_step(now, mode, goes_on) {
            Ok(why) => {
                if std::mem::take(&mut self.failed) {
                    info!("idle page cache can be reclaimed again");
                }
                debug!(why, "idle page cache");
                self.status = IdleCacheStatus::of("works", why);
            }
            Err(error) => {
                // Logged once, not at every look.
                if !std::mem::replace(&mut self.failed, true) {
                    warn!("idle page cache stays: {error}");
                }
                self.status = IdleCacheStatus::of("fails", error.to_string());
            }
        }
    }

    fn try_step(
        &mut self,
        now: Duration,
        mode: DaemonMode,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<String, ReclaimError> {
        let counts = self.counts()?;
        let stalled = self.memory.stalled().unwrap_or_default();
        let waited = stalled.saturating_sub(std::mem::replace(&mut self.stalled, stalled));
        let Some(policy) = &mut self.policy else { return Ok(String::new()) };
        let pages = match policy.look(now, counts, waited) {
            Ok(pages) => pages,
            Err(reason) => return Ok(reason.to_string()),
        };
        let (idle, wait) = (bytes(pages), policy.wait().as_secs());
        if mode != DaemonMode::On {
            self.memory.check_reclaim()?;
            return Ok(format!("would reclaim {idle} of page cache not read for {wait} s"));
        }
        let before = self.memory.look()?;
        let (mut asked, mut gone, mut after) = (Bytes::ZERO, Bytes::ZERO, before);
        while asked.max(gone) < idle && goes_on() {
            let part = STEP.min(idle.saturating_sub(asked.max(gone)));
            self.memory.reclaim_cache(part, before.has_swap)?;
            asked = Bytes(asked.0 + part.0);
            after = self.memory.look()?;
            gone = (before.idle_cache + before.used_cache)
                .saturating_sub(after.idle_cache + after.used_cache);
        }
        self.reclaimed = Bytes(self.reclaimed.0 + gone.0);
        if let Some(policy) = &mut self.policy {
            policy.gave_up(now, Pages(gone.0 / page_size() as u64), counts.read_again);
        }
        let loose = after.free.saturating_sub(after.whole_blocks);
        let rested = self.settings.after.unwrap_or_default();
        let compacts = self.settings.compact
            && loose >= LOOSE.max(Bytes(gone.0 / LOOSE_SHARE))
            && self.compacted.is_none_or(|last| last + rested <= now)
            && goes_on();
        if compacts {
            self.compacted = Some(now);
            self.memory.compact()?;
        }
        let also = if compacts { ", compacted memory" } else { "" };
        info!("reclaimed {gone} of page cache not read for {wait} s{also}");
        Ok(format!("reclaimed {gone} of page cache not read for {wait} s{also}"))
    }

    /// What the kernel counts.
    fn counts(&self) -> Result<CacheCounts, KernelError> {
        let counters = VmstatCounters::read(&self.vmstat)?;
        let get = |name| counters.get(name).unwrap_or(0);
        // In KiB, whatever a page has
        let read = Pages((get("pgpgin") << 10) / page_size() as u64);
        Ok(CacheCounts {
            inactive: Pages(get("nr_inactive_file")),
            arrived: read + Pages(get("nr_dirtied") + get("pgdeactivate")),
            read_again: Pages(get("workingset_refault_file")),
        })
    }
}

fn bytes(pages: Pages) -> Bytes {
    pages.bytes(Bytes(page_size() as u64))
}

#[cfg(test)]
#[path = "idle_cache_tests.rs"]
mod tests;
