//! Works out what woke slices: from slices that are offline, requests, and the kernel's count.

use ramslice_types::Zone;
use serde::{Deserialize, Serialize};

/// Why slices woke.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WakeReason {
    /// The kernel woke them for an allocation or ahead of one.
    Memory,
    /// The daemon woke them because tasks waited for memory, or little was available.
    Pressure,
    /// The policy asked for it.
    Policy,
    /// The daemon stopped, or its mode changed.
    Stop,
    /// Another program woke them, or the machine rebooted.
    Others,
}

impl WakeReason {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Memory, Self::Pressure, Self::Policy, Self::Stop, Self::Others];

    /// The word for it, in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pressure => "pressure",
            Self::Policy => "policy",
            Self::Stop => "stop",
            Self::Others => "others",
        }
    }
}

/// A zone as it was after a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ZoneBaseline {
    /// Slices that were offline.
    pub off: u32,
    /// The kernel's count of slices that woke without a request.
    pub woken_by_demand: u64,
}

/// What happened to a zone since that step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ZoneChange {
    /// Slices that the kernel woke.
    pub memory: u32,
    /// Slices that woke otherwise.
    pub others: u32,
    /// Slices that another program switched off.
    pub switched_off: u32,
}

impl ZoneBaseline {
    /// The zone as it is now.
    pub fn now(zone: &Zone) -> Self {
        Self { off: zone.nr_offline, woken_by_demand: zone.woken_by_demand }
    }

    /// What happened until `zone`, in the same boot.
    pub fn until(self, zone: &Zone) -> ZoneChange {
        let memory = u32::try_from(zone.woken_by_demand.saturating_sub(self.woken_by_demand))
            .unwrap_or(u32::MAX);
        // What was offline, minus what the kernel woke, is offline now, unless another program
        // switched slices.
        let expected = i64::from(self.off) - i64::from(memory);
        let missing = expected - i64::from(zone.nr_offline);
        ZoneChange {
            memory,
            others: u32::try_from(missing).unwrap_or(0),
            switched_off: u32::try_from(-missing).unwrap_or(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ramslice_types::{NodeId, Pages, ZoneIndex, ZoneNumber};

    fn zone(nr_offline: u32, woken_by_demand: u64) -> Zone {
        Zone {
            index: ZoneIndex(0),
            node: NodeId(0),
            zone: ZoneNumber(1),
            name: "Normal".to_owned(),
            nr_slices: 64,
            nr_empty: 0,
            nr_offline,
            nr_quarantined: 0,
            nr_held: 0,
            managed_pages: Pages(1 << 20),
            free_pages: Pages(1 << 10),
            offline_pages: Pages::ZERO,
            awake_reserve_pages: Pages(1 << 8),
            low_wmark_pages: Pages(1 << 7),
            woken_by_demand,
        }
    }

    #[test]
    fn the_kernel_woke_what_it_counted_and_others_woke_the_rest() {
        let left = ZoneBaseline { off: 10, woken_by_demand: 100 };
        for (now, memory, others, switched_off) in [
            (zone(10, 100), 0, 0, 0),
            (zone(7, 103), 3, 0, 0),
            (zone(5, 103), 3, 2, 0),
            (zone(12, 100), 0, 0, 2),
            // Two woke on demand, and another program switched two others off.
            (zone(10, 102), 2, 0, 2),
        ] {
            assert_eq!(left.until(&now), ZoneChange { memory, others, switched_off }, "{now:?}");
        }
    }
}
