//! Slices by address, from either end: whom `offline --count`, `online --count` and `ramp` take next.

use clap::ValueEnum;
use ramslice_types::{Slice, SliceId, SliceState};

/// An end of physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum End {
    /// The lowest address first
    Low,
    /// The highest address first
    High,
}

impl End {
    /// The slices that are wanted, in the order in which their turn comes.
    pub(crate) fn order(self, slices: &[Slice], wanted: impl Fn(&Slice) -> bool) -> Vec<SliceId> {
        let mut ids: Vec<SliceId> =
            slices.iter().filter(|slice| wanted(slice)).map(|slice| slice.id).collect();
        ids.sort_unstable();
        if self == Self::High {
            ids.reverse();
        }
        ids
    }
}

/// On, and could be emptied as far as is known. What failed lately counts if back-off is to be ignored.
pub(crate) fn can_go_off(slice: &Slice, ignore_backoff: bool) -> bool {
    let backoff = slice.backoff && !ignore_backoff;
    slice.state == SliceState::Online && !slice.unreclaimable && !slice.unmovable && !backoff
}
