//! What a ledger is kept by: the memory system, its power state, the clock and the unit that is
//! switched.

use ramslice_types::{Bytes, MachineState, Ratio};

use crate::{
    DramPowerState, DramProfile, EnergyStatement, EnergyTally, Interval, MeterEnergy, PowerGranule,
    SampleClock, StatementSettings,
};

/// The unit that the hardware is assumed to switch, instead of the profile's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AssumedUnit {
    /// A slice.
    Slice,
    /// This much.
    Bytes(Bytes),
}

/// Everything that turns the sums of a [`Ledger`](crate::EnergyLedger) into joules.
#[derive(Debug, Clone)]
pub struct LedgerPlan {
    /// The memory system.
    pub profile: DramProfile,
    /// Its power state; one that gives joules.
    pub state: DramPowerState,
    /// The clock of the samples.
    pub clock: SampleClock,
    /// The unit that is switched; the profile's if none is assumed.
    pub assumed_unit: Option<AssumedUnit>,
    /// By how much the work took longer than without packing, as a share of the time.
    pub runtime_change: Option<Interval<Ratio>>,
}

impl LedgerPlan {
    /// What the hardware switches as one where slices have this size.
    pub fn granule(&self, slice_bytes: Bytes) -> PowerGranule {
        match self.assumed_unit {
            None => PowerGranule::OfProfile(self.state.granularity.bytes.value),
            Some(AssumedUnit::Slice) => PowerGranule::Assumed(slice_bytes),
            Some(AssumedUnit::Bytes(bytes)) => PowerGranule::Assumed(bytes),
        }
    }

    /// Why slices of this size may save little or nothing: they are smaller than what the profile's
    /// hardware switches. Nothing if they are not, or if another unit is assumed.
    pub fn note_on_small_slices(&self, slice_bytes: Bytes) -> Option<String> {
        let PowerGranule::OfProfile(Some(unit)) = self.granule(slice_bytes) else { return None };
        (slice_bytes < unit).then(|| {
            format!(
                "Slices of {slice_bytes} are smaller than the {unit} that this hardware switches \
                 as one: memory saves only where all of such a unit is off, so perhaps nowhere. \
                 `--granularity slice` counts as if it switched slices."
            )
        })
    }

    /// What the sums of a ledger of `machine` come to.
    pub fn statement(
        &self,
        tally: &EnergyTally,
        machine: &MachineState,
        measured: Option<&MeterEnergy>,
    ) -> Option<EnergyStatement> {
        let info = &machine.info;
        let settings = StatementSettings {
            profile: &self.profile,
            state: &self.state,
            clock: &self.clock,
            cycle_clock: info.clock(),
            granule: self.granule(info.slice_bytes),
            runtime_change: self.runtime_change,
            accounts: !info.is_stock(),
            kernel_prices: &machine.price_parameters,
            page_bytes: info.page_bytes,
            memory: info.managed_pages.bytes(info.page_bytes),
            power_driver: &info.power_driver,
            measured,
        };
        EnergyStatement::new(tally, &settings)
    }
}
