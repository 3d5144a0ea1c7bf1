//! Cache that a request by use would move, not drop: counted for each slice on demand, and kept
//! until it changes.
//!
//! Requests look at every slice several times between two changes, and an owner's share of active
//! cache is a number for all its slices. So what was counted of a slice is forgotten when cache
//! comes to it or leaves it, and of all slices when the use of any cache changes.

use std::cell::Cell as Kept;

use ramslice_types::CacheChoice;

use super::{OwnerClass, SimMachine};

/// The latest counts.
#[derive(Debug, Clone)]
pub(super) struct CacheHistory {
    /// Of each slice the pages, and the turn in which they were counted.
    counts: Vec<Kept<(u64, u64)>>,
    /// What was counted in another turn is forgotten.
    generation: u64,
}

impl CacheHistory {
    /// Nothing is known of so many slices.
    pub(super) fn new(slices: usize) -> Self {
        Self { counts: vec![Kept::new((0, 0)); slices], generation: 1 }
    }

    /// Cache of a slice came, went, was written or is to be written.
    pub(super) fn forget(&mut self, at: usize) {
        self.counts[at].set((0, 0));
    }

    /// Cache was used or has aged.
    pub(super) fn forget_all(&mut self) {
        self.generation += 1;
    }
}

impl SimMachine {
    /// Clean cache of an owner in a slice that is moved, not dropped: all, none, or the share of it
    /// that is active.
    pub(super) fn kept(&self, slot: usize, at: usize, choice: CacheChoice) -> u32 {
        let clean = self.clean_here(slot, at);
        match choice {
            CacheChoice::Keep => clean,
            CacheChoice::Auto if clean > 0 => {
                rounded(f64::from(clean) * self.owners[slot].usage.active())
            }
            CacheChoice::Auto | CacheChoice::Drop => 0,
        }
    }

    /// The same of all owners.
    pub(super) fn kept_all(&self, at: usize, choice: CacheChoice) -> u64 {
        match choice {
            CacheChoice::Keep => u64::from(self.cells[at].freeable),
            CacheChoice::Auto if self.cells[at].freeable > 0 => {
                let (turn, pages) = self.counted.counts[at].get();
                if turn == self.counted.generation {
                    return pages;
                }
                let pages = self.count_kept(at);
                self.counted.counts[at].set((self.counted.generation, pages));
                pages
            }
            CacheChoice::Auto | CacheChoice::Drop => 0,
        }
    }

    fn count_kept(&self, at: usize) -> u64 {
        let slots =
            (0..self.owners.len()).filter(|&slot| self.owners[slot].class == OwnerClass::File);
        slots.map(|slot| u64::from(self.kept(slot, at, CacheChoice::Auto))).sum()
    }

    /// Whether what is remembered is what there is.
    pub(super) fn check_kept(&self) -> Result<(), String> {
        for at in (0..self.cells.len()).filter(|&at| self.cells[at].freeable > 0) {
            let (remembered, found) = (self.kept_all(at, CacheChoice::Auto), self.count_kept(at));
            if remembered != found {
                return Err(format!(
                    "slice {at}: {remembered} active pages remembered, {found} found"
                ));
            }
        }
        Ok(())
    }
}

/// The nearest whole number, halves up: what `f64::round()` gives for what is not negative and
/// fits, without a call.
fn rounded(value: f64) -> u32 {
    let whole = value as u32;
    whole + u32::from(value - f64::from(whole) >= 0.5)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use ramslice_types::{Budget, Bytes, Price, Request, RequestOp, SliceId};

    use super::super::{MemoryChange, OwnerId};
    use super::*;
    use crate::config::SimConfig;

    /// Something that may happen to a machine, from numbers.
    fn happens(machine: &mut SimMachine, (what, owner, share): (u8, u32, f64)) {
        const CHOICES: [CacheChoice; 3] = [CacheChoice::Drop, CacheChoice::Keep, CacheChoice::Auto];
        let all = machine.totals().managed.0;
        let (owner, pages) = (OwnerId(owner), (share * all as f64 / 3.0) as u64);
        let class = if owner.0 < 3 { OwnerClass::File } else { OwnerClass::Anon };
        let cache = CHOICES[owner.0 as usize % CHOICES.len()];
        let budget = Budget::Limited(Price((share * 3e7) as u64));
        match what {
            0 | 1 => machine.apply(MemoryChange::Level { owner, class, maps: 1, pages }),
            2 => machine.apply(MemoryChange::Read { owner, pages }),
            3 => machine.apply(MemoryChange::Write { owner, pages }),
            4 => machine.apply(MemoryChange::Used { owner, pages }),
            5 if class == OwnerClass::File => {
                machine.apply(MemoryChange::Written { owner, pages: pages / 4 });
            }
            5 => machine.apply(MemoryChange::Recycling { percent: 30, most: pages }),
            6 => machine.advance(std::time::Duration::from_secs_f64(share * 40.0)),
            7 => {
                let request = Request { cache, budget, ..Request::new(RequestOp::Compact) };
                machine.request_by_policy(&request);
            }
            8 => {
                let at = (share * machine.cells.len() as f64) as u32;
                machine.request_by_policy(&Request {
                    cache,
                    ..Request::new(RequestOp::Offline(SliceId(at)))
                });
            }
            _ => {
                machine.request_by_policy(&Request::new(RequestOp::OnlineAll));
            }
        }
    }

    proptest! {
        #[test]
        fn what_is_remembered_is_what_there_is_after_anything_that_happens(
            seed in 0..1000u64,
            changes in proptest::collection::vec((0..10u8, 0..5u32, 0.0..1.0f64), 1..60),
        ) {
            let config = SimConfig { seed, ..SimConfig::new(Bytes(256 << 20), Bytes(8 << 20)) };
            let mut machine = SimMachine::new(config).unwrap();
            for change in changes {
                happens(&mut machine, change);
                // This counts all slices, so that the next change meets them all remembered.
                prop_assert_eq!(machine.check_kept(), Ok(()));
                prop_assert_eq!(machine.check_books(), Ok(()));
            }
        }

        #[test]
        fn numbers_are_rounded_as_by_the_library(clean in 0..u32::MAX, share in 0.0..=1.0f64,
            half in 0..u32::MAX) {
            for value in [f64::from(clean) * share, f64::from(half) / 2.0,
                f64::from(half / 2) + 0.5_f64.next_down()] {
                prop_assert_eq!(rounded(value), value.round() as u32, "{}", value);
            }
        }
    }
}
