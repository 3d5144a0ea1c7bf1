//! On a kernel without ramslice, page cache not read for a time is reclaimed, so that free
//! page reporting finds it. The policy library decides how much; ramslice's kernel needs none of
//! this, as it chooses cache by use itself.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ramslice_backend::{GuestMemory, KernelError, ReclaimError, ReclaimedCache, VmstatCounters};
use ramslice_doctor::{MemoryReturn, SystemRoot, ways_to_give_back};
use ramslice_policy::{CacheCounts, IdleCacheConfig, IdleCachePolicy, IdleCacheReason, TaskLoad};
use ramslice_types::{Bytes, Pages};
use rustix::param::page_size;
use serde::Serialize;
use tracing::{debug, info, warn};

use crate::host_files;
use crate::mode::DaemonMode;
use crate::settings_idle_cache::IdleCacheSettings;

/// The cache is looked at so many times in the time after which it goes.
const LOOKS: u32 = 4;
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(15);
/// Less than this is not worth a request.
const LEAST: Bytes = Bytes(4 << 20);
/// So much that is free among pages in use is worth a compaction, at least...
const LOOSE: Bytes = Bytes(32 << 20);
/// ... and of all memory, one part in so many.
const LOOSE_SHARE: u64 = 64;
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
    root: PathBuf,
    memory: GuestMemory,
    vmstat: PathBuf,
    is_patched: bool,
    /// A device was seen by which the host hears of free memory.
    is_reported: bool,
    /// The settings and mode in force; none so far.
    in_force: Option<(IdleCacheSettings, DaemonMode)>,
    policy: Option<IdleCachePolicy>,
    processors: PathBuf,
    /// How long tasks had waited for memory at the last look.
    stalled: Duration,
    /// How long the processors had worked then, and of how much time.
    worked: Option<(Duration, Duration)>,
    reclaimed: Bytes,
    failed: bool,
    status: IdleCacheStatus,
}

impl IdleCache {
    /// The system whose files are below `root`.
    pub(crate) fn under(root: &Path) -> Self {
        Self {
            root: root.to_owned(),
            memory: GuestMemory::under(root),
            vmstat: root.join("proc/vmstat"),
            is_patched: root.join(RAMSLICE).exists(),
            is_reported: false,
            in_force: None,
            policy: None,
            processors: root.join("proc/stat"),
            stalled: Duration::ZERO,
            worked: None,
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
        let (settings, _) = self.in_force?;
        Some((settings.after? / LOOKS).clamp(SHORTEST_PAUSE, LONGEST_PAUSE))
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
        let before = self.in_force.replace((settings, mode));
        if before == self.in_force {
            return;
        }
        let (state, why) = match (settings.after, mode.idle()) {
            (None, _) => ("off", "idle_cache.after_seconds is 0"),
            _ if self.is_patched => ("kernel", "ramslice's kernel chooses cache by use itself"),
            (_, Some(idle)) => ("off", idle),
            (Some(after), None) => {
                if self.policy.is_none() || before.is_none_or(|before| before.0 != settings) {
                    let all = self.memory.look().map_or(Bytes::ZERO, |now| now.total);
                    let loose = pages(LOOSE.max(Bytes(all.0 / LOOSE_SHARE)));
                    self.policy = Some(IdleCachePolicy::new(IdleCacheConfig {
                        after,
                        least: pages(LEAST),
                        loose: settings.compact.then_some(loose),
                    }));
                }
                self.status = IdleCacheStatus::of("works", "the cache was not looked at so far");
                return;
            }
        };
        self.policy = None;
        self.status = IdleCacheStatus::of(state, why);
    }

    /// Whether the host hears of free memory: a device may come while the daemon runs.
    fn reaches_the_host(&mut self) -> bool {
        if !self.is_reported {
            let ways = SystemRoot::open(&self.root).map(|root| ways_to_give_back(&root));
            self.is_reported =
                ways.is_ok_and(|ways| ways.iter().any(MemoryReturn::may_take_reports));
        }
        self.is_reported
    }

    /// Looks, and reclaims what is idle if it may. `goes_on` is asked between two steps.
    pub(crate) fn step(&mut self, now: Duration, mode: DaemonMode, goes_on: &dyn Fn() -> bool) {
        if self.policy.is_none() {
            return;
        }
        if !self.reaches_the_host() {
            let why = "no device of this machine reports free memory to a host";
            self.status = IdleCacheStatus::of("off", why);
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
        let (counts, load) = (self.counts()?, self.load());
        let Some(policy) = &mut self.policy else { return Ok(String::new()) };
        let wait = policy.wait().as_secs();
        let (idle, mut said) = match policy.look(now, counts, load) {
            Ok(idle) => (bytes(idle), String::new()),
            Err(reason @ (IdleCacheReason::TasksWait { .. } | IdleCacheReason::Busy)) => {
                return Ok(reason.to_string());
            }
            // Memory may be compacted nevertheless
            Err(reason) => (Bytes::ZERO, reason.to_string()),
        };
        let before = self.memory.look()?;
        if mode != DaemonMode::On {
            self.memory.check_reclaim()?;
            if idle > Bytes::ZERO {
                said = format!("would reclaim {idle} of page cache not read for {wait} s");
            }
            if policy.compacts(now, pages(before.loose())) {
                said += "; would compact memory";
            }
            return Ok(said);
        }
        let (mut after, mut failed) = (before, None);
        if idle > Bytes::ZERO {
            match self.memory.reclaim_cache(idle, &before, &|_| goes_on()) {
                Ok(ReclaimedCache { taken, now: then }) => {
                    self.reclaimed += taken;
                    policy.gave_up(now, pages(taken), counts.read_again);
                    said = format!("reclaimed {taken} of page cache not read for {wait} s");
                    info!("{said}");
                    after = then;
                }
                // Compaction may do nevertheless
                Err(error) => failed = Some(error),
            }
        }
        if policy.compacts(now, pages(after.loose())) && goes_on() {
            self.memory.compact()?;
            let loose = self.memory.look()?.loose();
            policy.compacted(now, pages(after.loose()), pages(loose));
            let done = format!(
                "compacted memory: {loose} of {} are left among pages in use",
                after.loose()
            );
            info!("{done}");
            said += &format!("; {done}");
        }
        failed.map_or(Ok(said), Err)
    }

    /// What tasks did since the last look; nothing where the kernel does not count it.
    fn load(&mut self) -> TaskLoad {
        let stalled = self.memory.stalled().unwrap_or_default();
        let worked = host_files::processors_worked(&self.processors);
        let waited = stalled.saturating_sub(std::mem::replace(&mut self.stalled, stalled));
        let before = std::mem::replace(&mut self.worked, worked);
        let Some(((busy, all), (busy_before, all_before))) = worked.zip(before) else {
            return TaskLoad { waited, ..TaskLoad::default() };
        };
        TaskLoad {
            waited,
            busy: busy.saturating_sub(busy_before),
            within: all.saturating_sub(all_before),
        }
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

fn pages(bytes: Bytes) -> Pages {
    Pages(bytes.0 / page_size() as u64)
}

fn bytes(pages: Pages) -> Bytes {
    pages.bytes(Bytes(page_size() as u64))
}

#[cfg(test)]
#[path = "idle_cache_tests.rs"]
mod tests;
