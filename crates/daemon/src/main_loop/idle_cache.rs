//! What the main loop has to do with page cache that a kernel without ramslice gives up.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::{BEYOND_DEADLINE, MainLoop, WAKE_AT_RELOAD};
use crate::engine::STOCK;
use crate::idle_cache::IdleCacheStatus;
use crate::settings::BackendChoice;

/// A look at the cache reclaims for so long; the next one goes on.
const LONGEST_LOOK: Duration = Duration::from_secs(10);

impl MainLoop<'_> {
    /// Whether there is nothing but cache to give back: no kernel that has slices, where the
    /// settings ask for that one alone.
    pub(super) fn has_only_cache(&self) -> bool {
        let settings = self.engine.settings();
        settings.backend == BackendChoice::Kernel
            && self.idle_cache.as_ref().is_some_and(|cache| cache.is_wanted(settings.idle_cache))
    }

    /// Does without a machine that has slices; memory blocks that are offline by this daemon or an
    /// earlier run are woken, if the settings say so.
    pub(super) fn do_without_slices(&mut self) {
        self.what_if = None;
        if let Some(before) = self.backend.take() {
            self.leave_stock(before);
        }
        let earlier = std::mem::take(&mut self.earlier_backends);
        // Older state does not name the backend.
        let is_unnamed = std::mem::take(&mut self.earlier_wake_pending) && earlier.is_empty();
        if is_unnamed || earlier.iter().any(|kind| kind == STOCK) {
            self.take_over(STOCK.to_owned());
        }
        self.wake_replaced(WAKE_AT_RELOAD);
        self.guard();
        self.engine.has_no_machine();
    }

    /// Looks at the cache if that is due.
    pub(super) fn look_at_cache(&mut self) {
        let Some(cache) = &mut self.idle_cache else { return };
        let settings = self.engine.settings();
        cache.set(settings.idle_cache, settings.mode);
        let Some(pause) = cache.pause() else {
            self.next_cache_look = None;
            return;
        };
        if self.next_cache_look.is_some_and(|when| Instant::now() < when) {
            return;
        }
        let busy = self.watchdog.busy(BEYOND_DEADLINE);
        let (stop, began) = (&self.signals.stop, Instant::now());
        cache.step(self.clock.now(), settings.mode, &|| {
            !stop.load(Ordering::Relaxed) && began.elapsed() < LONGEST_LOOK
        });
        drop(busy);
        self.metrics.idle_cache(&cache.status());
        self.next_cache_look = Some(Instant::now() + pause);
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
