//! The machine at one moment, and its zones as policies see them.

use std::time::Duration;

pub use ramslice_backend::ZoneKey;
use ramslice_policy::{MachineTotals, SliceRow};
use ramslice_types::{Backend, BackendError, BackendInfo, Slice, SliceSnapshot, SliceState, Zone};

/// The machine at one moment.
#[derive(Debug, Clone)]
pub struct MachineSnapshot {
    /// Its sizes and totals.
    pub info: BackendInfo,
    /// Its zones.
    pub zones: Vec<Zone>,
    /// Its slices.
    pub snapshot: SliceSnapshot,
}

impl MachineSnapshot {
    /// Reads the machine.
    ///
    /// # Errors
    /// Those of the backend.
    pub fn take(backend: &dyn Backend) -> Result<Self, BackendError> {
        let (info, zones, snapshot) = backend.view()?;
        Ok(Self { info, zones, snapshot })
    }

    /// When it was taken, on the machine's clock.
    pub fn time(&self) -> Duration {
        self.snapshot.time
    }

    /// The slices of a zone.
    pub fn slices(&self, key: ZoneKey) -> impl Iterator<Item = &Slice> {
        self.snapshot.slices.iter().filter(move |slice| ZoneKey::of_slice(slice) == key)
    }

    /// The sums over a zone.
    pub fn totals(&self, zone: &Zone) -> MachineTotals {
        MachineTotals::of(
            std::slice::from_ref(zone),
            self.slices(ZoneKey::of(zone)),
            self.info.slice_pages(),
        )
    }

    /// Fills `rows` with a zone's slices, without held and quarantined ones: no policy may touch
    /// them.
    pub fn rows(&self, key: ZoneKey, rows: &mut Vec<SliceRow>) {
        let frames = self.info.slice_pages();
        rows.clear();
        rows.extend(
            self.slices(key)
                .filter(|slice| !slice.is_away())
                .map(|slice| SliceRow::of(slice, frames)),
        );
    }

    /// How many slices are in each state, in the order of [`SliceState::ALL`].
    pub fn slices_by_state(&self, key: ZoneKey) -> [u32; SliceState::ALL.len()] {
        let mut counts = [0; SliceState::ALL.len()];
        for slice in self.slices(key) {
            if let Some(count) = SliceState::ALL.iter().position(|state| *state == slice.state) {
                counts[count] += 1;
            }
        }
        counts
    }
}
