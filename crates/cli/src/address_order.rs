//! Slices by address, from either end: whom `offline --count`, `online --count` and `ramp` take
//! next.

use clap::ValueEnum;
use ramslice_types::{Backend, BackendError, Request, RequestOp, Slice, SliceId, SliceState};
use tracing::debug;

/// An end of physical memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AddressOrder {
    /// The lowest address first
    Low,
    /// The highest address first
    High,
}

impl AddressOrder {
    /// The slices that are wanted, in the order in which their turn comes.
    pub fn order(self, slices: &[Slice], wanted: impl Fn(&Slice) -> bool) -> Vec<SliceId> {
        let mut ids: Vec<SliceId> =
            slices.iter().filter(|slice| wanted(slice)).map(|slice| slice.id).collect();
        ids.sort_unstable();
        if self == Self::High {
            ids.reverse();
        }
        ids
    }
}

/// All slices. Pages that wait in the CPUs' batches for their LRU list look as if they could not be
/// moved, and a slice with one of them as if it could not be emptied: a request that does nothing
/// has the kernel put them where they belong.
pub fn settled_slices(backend: &dyn Backend) -> Result<Vec<Slice>, BackendError> {
    if backend.info()?.is_stock() {
        // There are no counters: pages are looked at one by one, and nothing would be put anywhere.
    } else if let Err(error) =
        backend.request(&Request { dry_run: true, ..Request::new(RequestOp::OfflineFree) })
    {
        debug!(%error, "what the slices hold is taken as it looks");
    }
    Ok(backend.snapshot()?.slices)
}

/// On, and could be emptied as far as is known. What failed lately counts if back-off is to be
/// ignored.
pub fn can_go_off(slice: &Slice, ignore_backoff: bool) -> bool {
    let backoff = slice.backoff && !ignore_backoff;
    slice.state == SliceState::Online && !slice.unreclaimable && !slice.unmovable && !backoff
}
