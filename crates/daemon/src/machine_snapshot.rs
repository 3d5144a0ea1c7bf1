//! One look at the machine, and its zones as policies see them.

use std::time::Duration;

pub use ramslice_backend::ZoneKey;
use ramslice_policy::{MachineTotals, SliceRow};
use ramslice_types::{Backend, BackendError, BackendInfo, Slice, SliceSnapshot, SliceState, Zone};

/// The machine at one moment.
#[derive(Debug, Clone)]
pub struct Look {
    /// What it is.
    pub info: BackendInfo,
    /// Its zones.
    pub zones: Vec<Zone>,
    /// Its slices.
    pub snapshot: SliceSnapshot,
}

impl Look {
    /// Looks.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn take(backend: &dyn Backend) -> Result<Self, BackendError> {
        let (info, zones, snapshot) = backend.view()?;
        Ok(Self { info, zones, snapshot })
    }

    /// When, on the machine's clock.
    pub fn time(&self) -> Duration {
        self.snapshot.time
    }

    /// The slices of a zone.
    pub fn slices(&self, key: ZoneKey) -> impl Iterator<Item = &Slice> {
        self.snapshot.slices.iter().filter(move |slice| ZoneKey::of_slice(slice) == key)
    }

    /// Sums over a zone.
    pub fn totals(&self, zone: &Zone) -> MachineTotals {
        MachineTotals::of(
            std::slice::from_ref(zone),
            self.slices(ZoneKey::of(zone)),
            self.info.slice_pages(),
        )
    }

    /// Rows of a zone's slices, but for those that are away: no policy is to touch them. `rows` is used again each time.
    pub fn rows(&self, key: ZoneKey, rows: &mut Vec<SliceRow>) {
        let frames = self.info.slice_pages();
        rows.clear();
        rows.extend(
            self.slices(key)
                .filter(|slice| !slice.is_away())
                .map(|slice| SliceRow::of(slice, frames)),
        );
    }

    /// Slices in each state, in the order of [`SliceState::ALL`].
    pub fn by_state(&self, key: ZoneKey) -> [u32; SliceState::ALL.len()] {
        let mut counts = [0; SliceState::ALL.len()];
        for slice in self.slices(key) {
            if let Some(count) = SliceState::ALL.iter().position(|state| *state == slice.state) {
                counts[count] += 1;
            }
        }
        counts
    }
}
