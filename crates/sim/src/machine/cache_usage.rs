//! How page cache was used, as the kernel knows it: by two flags of each page.
//!
//! A page that is used climbs a step: referenced, active, active and referenced. One that is moved
//! to empty a slice goes down: it loses its reference, otherwise it is no longer active. So a
//! request that chooses by use drops cache that was used once, and keeps cache that was used twice,
//! until it was moved twice without being used. The kernel records this for each page
//! (`ramslice_age_folio()`, `folio_mark_accessed()`); here an owner has shares.

/// Shares of an owner's cache: neither flag, referenced, active, both.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CacheUsage([f64; 4]);

/// Look-ups of cache: pages that programs used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct CacheCounts {
    /// All of them.
    pub(super) all: u64,
    /// Of these, not in the cache.
    pub(super) absent: u64,
    /// Pages that a disk brought.
    pub(super) brought: u64,
    /// Of these, pages that had left a trace.
    pub(super) returned: u64,
}

impl CacheCounts {
    /// Adds pages that had not been read before.
    pub(super) fn read_first(&mut self, pages: u64) {
        self.all += pages;
        self.absent += pages;
        self.brought += pages;
    }
}

/// How cache comes to be; the number is where it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CacheOrigin {
    /// Programs wrote it. That is no use of it.
    Written = 0,
    /// Read without having left a trace: reading marks it as referenced.
    Read = 1,
    /// It comes back and had left a trace.
    Back = 2,
}

impl CacheUsage {
    pub(super) fn new() -> Self {
        let mut shares = [0.0; 4];
        shares[CacheOrigin::Read as usize] = 1.0;
        Self(shares)
    }

    /// The share that is kept by a request that chooses by use.
    pub(super) fn active(&self) -> f64 {
        (self.0[2] + self.0[3]).clamp(0.0, 1.0)
    }

    /// Pages chosen by chance are used: this share of all.
    pub(super) fn touch(&mut self, share: f64) {
        let share = share.clamp(0.0, 1.0);
        for step in (0..3).rev() {
            let up = self.0[step] * share;
            self.0[step] -= up;
            self.0[step + 1] += up;
        }
    }

    /// `pages` join `before` others.
    pub(super) fn join(&mut self, before: u64, pages: u64, how: CacheOrigin) {
        let all = before + pages;
        if pages == 0 || all == 0 {
            return;
        }
        let share = pages as f64 / all as f64;
        for value in &mut self.0 {
            *value *= 1.0 - share;
        }
        self.0[how as usize] += share;
    }

    /// `pages` of `before` that are not active leave.
    pub(super) fn drop_idle(&mut self, before: u64, pages: u64) {
        let idle = self.0[0] + self.0[1];
        if before <= pages || idle <= 0.0 {
            return;
        }
        let share = (pages as f64 / before as f64).min(idle);
        let left = 1.0 - share;
        let keep = (idle - share) / idle;
        self.0 =
            [self.0[0] * keep / left, self.0[1] * keep / left, self.0[2] / left, self.0[3] / left];
    }

    /// `pages` of `all` are moved: active ones, or any.
    pub(super) fn age(&mut self, all: u64, pages: u64, active_only: bool) {
        let of = if active_only { self.active() } else { 1.0 };
        if all == 0 || of <= 0.0 {
            return;
        }
        let share = (pages as f64 / all as f64 / of).min(1.0);
        let (second, third) = (self.0[2] * share, self.0[3] * share);
        let first = if active_only { 0.0 } else { self.0[1] * share };
        self.0[0] += first + second;
        self.0[1] -= first;
        self.0[2] += third - second;
        self.0[3] -= third;
    }

    /// What the kernel says: this share is active.
    pub(super) fn set_active(&mut self, share: f64) {
        let share = share.clamp(0.0, 1.0);
        self.0 = [0.0, 1.0 - share, share, 0.0];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(usage: &CacheUsage) -> f64 {
        usage.0.iter().sum()
    }

    #[test]
    fn what_is_used_twice_is_active_and_what_is_moved_twice_is_not() {
        let mut usage = CacheUsage::new();
        assert!(usage.active() < 1e-9);
        usage.touch(0.5);
        assert!((usage.active() - 0.5).abs() < 1e-9);
        usage.touch(1.0);
        assert!((usage.active() - 1.0).abs() < 1e-9);
        // Half of it has both flags: that half is still active after one move, and none after two.
        usage.age(1000, 1000, true);
        assert!((usage.active() - 0.5).abs() < 1e-9 && (sum(&usage) - 1.0).abs() < 1e-9);
        usage.age(1000, 500, true);
        assert!(usage.active() < 1e-9 && (sum(&usage) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn shares_stay_shares_when_pages_come_and_go() {
        let mut usage = CacheUsage::new();
        usage.touch(0.5);
        usage.join(100, 100, CacheOrigin::Read);
        assert!((usage.active() - 0.25).abs() < 1e-9);
        usage.join(200, 200, CacheOrigin::Back);
        assert!((usage.active() - 0.625).abs() < 1e-9);
        usage.drop_idle(400, 100);
        assert!((usage.active() - 250.0 / 300.0).abs() < 1e-9 && (sum(&usage) - 1.0).abs() < 1e-9);
        usage.drop_idle(300, 300);
        usage.join(0, 0, CacheOrigin::Read);
        assert!((sum(&usage) - 1.0).abs() < 1e-9);
    }
}
