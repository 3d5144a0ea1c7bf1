//! Memory that the kernel has but its allocator does not: page descriptors that are initialised
//! late (`deferred_init`), and what a confidential guest has not accepted.
//!
//! Such pages show no flag at all, like memory that a driver has allocated. They are told apart by
//! their number, their place and their size.

use ramslice_types::{Pages, Pfn};

use super::page_use::is_bare;
use super::zones::ZoneInfo;

/// Pages of the largest block of the allocator, which gets its memory by such blocks: 4 MiB.
const LARGEST_BLOCK: u64 = 1024;

/// Where a zone may have memory that its allocator does not have yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NotGiven {
    /// From this page frame to the zone's end: descriptors are initialised in order of address.
    From(Pfn),
    /// Anywhere: memory is accepted in no particular order.
    Anywhere,
}

impl NotGiven {
    /// What a zone's counts say. `short`: the allocator has less than `MemTotal`, which counts
    /// memory whose descriptors are initialised late from the start.
    pub(super) fn of(zone: &ZoneInfo, short: bool) -> Option<Self> {
        if zone.unaccepted >= Pages(LARGEST_BLOCK) {
            return Some(Self::Anywhere);
        }
        let missing = zone.present - zone.managed;
        (short && missing >= Pages(LARGEST_BLOCK))
            .then(|| Self::From(Pfn((zone.start.0 + zone.spanned.0).saturating_sub(missing.0))))
    }

    fn includes(self, pfn: u64) -> bool {
        match self {
            Self::From(first) => pfn >= first.0,
            Self::Anywhere => true,
        }
    }

    /// How many pages from `pfn` on the allocator does not have, by their flags in
    /// `/proc/kpageflags`: those of the largest block of the allocator, or none.
    pub(super) fn pages_at(self, pfn: u64, flags: &[u64]) -> u64 {
        let whole = flags.get(..LARGEST_BLOCK as usize);
        let bare = || whole.is_some_and(|flags| flags.iter().all(|&flags| is_bare(flags)));
        if pfn.is_multiple_of(LARGEST_BLOCK) && self.includes(pfn) && bare() {
            LARGEST_BLOCK
        } else {
            0
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hotplug::page_use::bit;
    use crate::hotplug::zones;

    fn zone(present: u64, managed: u64, unaccepted: u64) -> ZoneInfo {
        let text = format!(
            "Node 0, zone Normal\n spanned 16384\n present {present}\n managed {managed}\n \
             nr_unaccepted {unaccepted}\n start_pfn: 4096\n"
        );
        zones::parse(&text).remove(0)
    }

    #[test]
    fn late_descriptors_lie_at_the_end_of_the_zone() {
        let late = NotGiven::of(&zone(16_384, 10_240, 0), true).unwrap();
        assert_eq!(late, NotGiven::From(Pfn(4096 + 10_240)));
        let flags = [0; 1024];
        assert_eq!(late.pages_at(14_336, &flags), 1024);
        assert_eq!(late.pages_at(13_312, &flags), 0, "before what is missing");
        assert_eq!(late.pages_at(14_337, &flags), 0, "no block of the allocator begins there");
        assert_eq!(late.pages_at(14_336, &flags[1..]), 0, "less than a block");
        let mut used = flags;
        used[1023] = bit::SLAB;
        assert_eq!(late.pages_at(14_336, &used), 0, "one page is in use");
    }

    #[test]
    fn memory_reserved_at_boot_is_not_taken_for_it() {
        assert_eq!(NotGiven::of(&zone(16_384, 10_240, 0), false), None);
        assert_eq!(NotGiven::of(&zone(16_384, 16_000, 0), true), None, "less than a block");
    }

    #[test]
    fn unaccepted_memory_may_be_anywhere() {
        let found = NotGiven::of(&zone(16_384, 16_384, 2048), false).unwrap();
        assert_eq!(found.pages_at(1024, &[0; 1024]), 1024);
        assert_eq!(NotGiven::of(&zone(16_384, 16_384, 1000), false), None);
    }
}
