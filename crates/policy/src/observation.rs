//! The input of a policy: totals, one row per slice, and events since the last observation.

use std::time::Duration;

use ramslice_types::{
    Pages, Price, RefaultDistances, RequestOp, RequestOutcome, Slice, SliceId, SliceState, Zone,
};
use serde::{Deserialize, Serialize};

/// A machine, or the part of it that a policy decides for, at one moment.
#[derive(Debug, Clone, Copy)]
pub struct Observation<'a> {
    /// When, on a clock that never goes back. Only differences matter, and for the time of day the
    /// same phase each day.
    pub time: Duration,
    /// Sums over the slices.
    pub totals: MachineTotals,
    /// One row per slice by ascending id. May be empty for a policy that
    /// [`ObservationNeeds::MachineTotals`].
    pub rows: &'a [SliceRow],
    /// Events since the last observation, in order of time.
    pub events: &'a [PolicyEvent],
}

/// The parts of an observation that a policy reads; a caller need not gather more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObservationNeeds {
    /// Totals and events; rows may be empty.
    Totals,
    /// Rows as well: without them it can do less.
    Rows,
}

/// Sums over the slices of a machine. Plain numbers, so that a simulator can keep them up to date
/// as it goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MachineTotals {
    /// Page frames in a slice; above 0.
    pub slice_pages: Pages,
    /// Pages of all slices, online or offline, without quarantined ones.
    pub managed: Pages,
    /// Free and online.
    pub free: Pages,
    /// Free, but in slices that are off.
    pub offline: Pages,
    /// Clean cache without a mapping: it could be dropped.
    pub freeable: Pages,
    /// Page cache of files, including mapped and dirty pages. Shared memory and tmpfs are no part
    /// of it: dropping them would lose what they hold.
    pub cache: Pages,
    /// The floor under `free`, which is never switched off.
    pub awake_reserve: Pages,
    /// Slices without quarantined and held ones.
    pub nr_slices: u32,
    /// Of these online and wholly free.
    pub nr_empty: u32,
    /// Of these off.
    pub nr_offline: u32,
    /// Of these, slices that can never be switched off: with boot memory, holes and the like.
    pub nr_fixed: u32,
}

impl MachineTotals {
    /// Sums up zones and their slices: all of a machine, or one zone with its slices.
    ///
    /// `slice_pages` is the size of a slice in page frames.
    pub fn of<'a>(
        zones: &[Zone],
        slices: impl IntoIterator<Item = &'a Slice>,
        slice_pages: Pages,
    ) -> Self {
        let mut totals = Self { slice_pages, ..Self::default() };
        for zone in zones {
            totals.managed += zone.managed_pages;
            totals.free += zone.free_pages;
            totals.offline += zone.offline_pages;
            totals.awake_reserve += zone.awake_reserve_pages;
        }
        for slice in slices.into_iter().filter(|slice| !slice.is_away()) {
            totals.nr_slices += 1;
            let off = slice.state == SliceState::Offline;
            totals.nr_offline += u32::from(off);
            totals.nr_empty += u32::from(slice.is_empty());
            totals.nr_fixed += u32::from(!off && slice.unreclaimable);
            if !off {
                totals.cache += slice.counters.file - slice.counters.shmem;
                totals.freeable += slice.composition(slice_pages).freeable;
            }
        }
        totals
    }

    /// Pages in use, cache included.
    pub fn used(&self) -> Pages {
        self.managed - self.free - self.offline
    }

    /// Pages in use that cannot be dropped.
    pub fn needed(&self) -> Pages {
        self.used() - self.freeable
    }

    /// Slices that are on and could be off.
    pub fn nr_on(&self) -> u32 {
        self.nr_slices.saturating_sub(self.nr_offline).saturating_sub(self.nr_fixed)
    }

    /// Slices that can be on or off.
    pub fn nr_switchable(&self) -> u32 {
        self.nr_slices.saturating_sub(self.nr_fixed)
    }

    /// The share of all memory that is in use, cache included; between 0 and 1.
    pub fn utilisation(&self) -> f64 {
        self.used().share_of(self.managed)
    }
}

/// One slice, as far as policies read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SliceRow {
    /// Its id.
    pub id: SliceId,
    /// Its state.
    pub state: SliceState,
    /// The expected cost of emptying it; `None` if that is impossible, or impossible now.
    pub price: Option<Price>,
    /// Page frames with memory.
    pub present: Pages,
    /// Free pages.
    pub free: Pages,
    /// Clean cache without a mapping.
    pub freeable: Pages,
}

impl SliceRow {
    /// Of a slice; `slice_pages` is the size of a slice in page frames.
    pub fn of(slice: &Slice, slice_pages: Pages) -> Self {
        let parts = slice.composition(slice_pages);
        Self {
            id: slice.id,
            state: slice.state,
            price: slice.finite_price(),
            present: slice.present,
            free: parts.free,
            freeable: parts.freeable,
        }
    }

    /// Online, and can be switched off as far as is known.
    pub fn can_go_off(&self) -> bool {
        self.state == SliceState::Online && self.price.is_some()
    }

    /// On and wholly free.
    pub fn is_empty(&self) -> bool {
        self.can_go_off() && self.present > Pages::ZERO && self.free >= self.present
    }
}

/// An event. It can be saved: events after a policy's last step are input of its next one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PolicyEvent {
    /// Slices woke without a request of the policy.
    Woken {
        /// When.
        time: Duration,
        /// How many.
        slices: u32,
        /// What for.
        cause: WakeCause,
    },
    /// Tasks waited for memory: `some` of the kernel's `/proc/pressure/memory`.
    Stalled {
        /// For how long at least one task waited.
        waited: Duration,
        /// Within this time.
        within: Duration,
    },
    /// The processors worked, but for what runs at low priority. All times are sums over them.
    Worked {
        /// For so long.
        busy: Duration,
        /// Of so much time.
        within: Duration,
    },
    /// So much of the time since the last observation is in no ledger: the machine was suspended,
    /// or nothing watched it. What was offline then does not count as saved.
    Uncounted {
        /// How long.
        time: Duration,
    },
    /// Pages of cache were read again that requests of the policy had dropped by use, as far as the
    /// caller can tell.
    Refaulted {
        /// How many.
        pages: Pages,
    },
    /// What the page cache was asked for since the last such event, on a system that counts it.
    LookedUp {
        /// Pages looked up by buffered reads and by faults.
        lookups: Pages,
        /// Of these, not in the cache.
        absent: Pages,
        /// Pages that a disk brought, also ahead of reading.
        brought: Pages,
        /// Of these, pages that had been in the cache before.
        returned: Pages,
        /// The same by the memory that would have kept them, on a system that counts that.
        distances: Option<RefaultDistances>,
    },
    /// A request of the policy came to its end.
    Finished {
        /// What it was to do.
        op: RequestOp,
        /// How it went, and what it cost.
        outcome: RequestOutcome,
        /// The most slices that it was allowed, which may be fewer than the policy asked for.
        #[serde(default)]
        max_slices: Option<u32>,
    },
}

/// Why slices woke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WakeCause {
    /// An allocation had to wait for it.
    Demand,
    /// The kernel restored its awake reserve, ahead of need.
    Ahead,
    /// Another program asked for it.
    Request,
}
