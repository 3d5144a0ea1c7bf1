//! What the main loop has to do with page cache that a kernel without ramslice gives up.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{BEYOND_DEADLINE, MainLoop};
use crate::idle_cache::{IdleCache, IdleCacheStatus};
use crate::settings::BackendChoice;

impl MainLoop<'_> {
    /// This machine's cache; none if the daemon decides for another one.
    pub(super) fn cache_of(root: &Path, is_here: bool) -> Option<IdleCache> {
        is_here.then(|| IdleCache::under(root))
    }

    /// Whether there is nothing but cache to give back: no kernel that has slices, where the
    /// settings ask for that one alone.
    pub(super) fn has_only_cache(&self) -> bool {
        let settings = self.engine.settings();
        settings.backend == BackendChoice::Kernel
            && self.idle_cache.as_ref().is_some_and(|cache| cache.is_wanted(settings.idle_cache))
    }

    /// Looks at the cache if that is due.
    pub(super) fn look_at_cache(&mut self) {
        let Some(cache) = &mut self.idle_cache else { return };
        let settings = self.engine.settings();
        cache.set(settings.idle_cache, settings.mode);
        if self.next_cache_look.is_some_and(|when| Instant::now() < when) {
            return;
        }
        let busy = self.watchdog.busy(BEYOND_DEADLINE);
        let stop = &self.signals.stop;
        cache.step(self.clock.now(), settings.mode, &|| !stop.load(Ordering::Relaxed));
        drop(busy);
        self.metrics.idle_cache(&cache.status());
        self.next_cache_look = cache.pause().map(|pause| Instant::now() + pause);
    }

    /// How long the main loop may wait until the cache is looked at again.
    pub(super) fn until_cache_look(&self) -> Duration {
        self.next_cache_look
            .map_or(Duration::MAX, |when| when.saturating_duration_since(Instant::now()))
    }

    pub(super) fn idle_cache_status(&self) -> IdleCacheStatus {
        match &self.idle_cache {
            Some(cache) => cache.status(),
            None => IdleCacheStatus::of("off", "the machine is a simulated one"),
        }
    }
}
