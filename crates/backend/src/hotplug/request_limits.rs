//! Ends a request before it is complete: at its deadline, when memory is wanted, or when no more
//! pages leave a block.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ramslice_types::{Bytes, Reason};
use tracing::debug;

use super::HotplugBackend;
use super::guard::LOOK;
use super::page_scan::{PageScan, available};

/// If no page leaves a block for this long, one of its pages is pinned: the kernel would try
/// forever.
const STUCK: Duration = Duration::from_secs(2);

/// How often the used pages of a block that is being emptied are counted.
const COUNT: Duration = Duration::from_secs(1);

/// The limits of a request.
pub(super) struct RequestLimits<'a> {
    backend: &'a HotplugBackend,
    /// With less than this available, a guard wakes slices.
    floor: Bytes,
    /// When to look again, in milliseconds of the monotonic clock.
    next_ms: AtomicU64,
    short_seen: AtomicBool,
    /// Ctrl-C came before, or the program was ending: the request is to clean up.
    began_interrupted: bool,
    /// On the monotonic clock.
    pub(super) end: Duration,
}

impl<'a> RequestLimits<'a> {
    /// The limits of a request that takes memory offline while its lock keeps guards from waking
    /// any; `floor` is 0 for other requests.
    pub(super) fn new(backend: &'a HotplugBackend, floor: Bytes) -> Self {
        let (next_ms, short) = (AtomicU64::new(0), AtomicBool::new(false));
        let began_interrupted = backend.system.is_interrupted() || !(backend.may_continue)();
        let end = Duration::MAX;
        Self { backend, floor, next_ms, short_seen: short, began_interrupted, end }
    }

    /// Whether a guard waits to wake slices, or would have to: a guard of another program cannot
    /// report it.
    pub(super) fn is_memory_needed(&self) -> bool {
        self.backend.is_wake_pending() || self.short_seen.load(Ordering::Relaxed) || self.is_short()
    }

    fn is_short(&self) -> bool {
        let now = ms(self.backend.system.now());
        if self.floor == Bytes(0) || now < self.next_ms.load(Ordering::Relaxed) {
            return false;
        }
        self.next_ms.store(now + ms(LOOK), Ordering::Relaxed);
        let short = available(&*self.backend.system).is_ok_and(|available| available < self.floor);
        if short {
            debug!(floor = %self.floor, "memory is wanted");
            self.short_seen.store(true, Ordering::Relaxed);
        }
        short
    }

    /// Whether Ctrl-C came during this request, or the program is to end: also while the kernel
    /// could not be interrupted, as when it waits for a driver.
    pub(super) fn is_interrupted(&self) -> bool {
        !self.began_interrupted
            && (self.backend.system.is_interrupted() || !(self.backend.may_continue)())
    }

    /// Why the request must start nothing more.
    pub(super) fn stop_reason(&self) -> Option<Reason> {
        if self.backend.system.now() >= self.end {
            return Some(Reason::Deadline);
        }
        if self.is_interrupted() {
            return Some(Reason::Signal);
        }
        self.is_memory_needed().then_some(Reason::Pressure)
    }
}

/// Watches over a block while it is being emptied.
pub(super) struct BlockEmptying<'a> {
    pub(super) limits: &'a RequestLimits<'a>,
    pub(super) scan: &'a PageScan,
    pub(super) number: u64,
    /// No request named this block: others may be easier to empty.
    pub(super) may_give_up: bool,
    /// When pages were last seen to leave, and when to count again.
    pub(super) last_progress_ms: AtomicU64,
    next_ms: AtomicU64,
    used_pages: AtomicU64,
    stuck_seen: AtomicBool,
}

impl<'a> BlockEmptying<'a> {
    /// `users`: pages to leave.
    pub(super) fn new(
        limits: &'a RequestLimits<'a>,
        scan: &'a PageScan,
        number: u64,
        gives_up: bool,
        users: usize,
    ) -> Self {
        let now = limits.backend.system.now();
        Self {
            limits,
            scan,
            number,
            may_give_up: gives_up,
            last_progress_ms: AtomicU64::new(ms(now)),
            next_ms: AtomicU64::new(ms(now + COUNT)),
            used_pages: AtomicU64::new(users as u64),
            stuck_seen: AtomicBool::new(false),
        }
    }

    /// Whether to interrupt the kernel. After the deadline it is interrupted in any case: whether
    /// the program goes on is no longer asked then, because it takes the question for progress.
    pub(super) fn should_end(&self) -> bool {
        let is_in_time = self.limits.backend.system.now() < self.limits.end;
        self.limits.is_memory_needed()
            || (is_in_time && self.limits.is_interrupted())
            || (self.may_give_up && self.is_stuck())
    }

    /// Whether it ended because no more pages left.
    pub(super) fn was_stuck(&self) -> bool {
        self.stuck_seen.load(Ordering::Relaxed)
    }

    fn is_stuck(&self) -> bool {
        let system = &*self.limits.backend.system;
        let now = ms(system.now());
        if self.was_stuck() || now < self.next_ms.load(Ordering::Relaxed) {
            return self.was_stuck();
        }
        self.next_ms.store(now + ms(COUNT), Ordering::Relaxed);
        let Ok(users) = self.scan.users(system, self.number) else { return false };
        let users = users.len() as u64;
        if users < self.used_pages.swap(users, Ordering::Relaxed) {
            self.last_progress_ms.store(now, Ordering::Relaxed);
        } else if users > 0 && now >= self.last_progress_ms.load(Ordering::Relaxed) + ms(STUCK) {
            debug!(block = self.number, users, "no page leaves it any more");
            self.stuck_seen.store(true, Ordering::Relaxed);
        }
        self.was_stuck()
    }
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
