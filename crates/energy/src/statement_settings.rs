//! The inputs of a statement other than the sums of a ledger.

use std::collections::BTreeMap;

use ramslice_types::{Bytes, Hertz, Price, PriceParameter, Ratio};

use crate::clock::SampleClock;
use crate::interval::Interval;
use crate::meter::MeterEnergy;
use crate::profile::{DramPowerState, DramProfile};

/// What the hardware switches as one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PowerGranule {
    /// As in the profile; `None` if its source does not give it.
    OfProfile(Option<Bytes>),
    /// Taken instead, for a machine in the proportions of a larger one.
    Assumed(Bytes),
}

impl PowerGranule {
    /// Its size.
    pub fn bytes(self) -> Option<Bytes> {
        match self {
            Self::OfProfile(bytes) => bytes,
            Self::Assumed(bytes) => Some(bytes),
        }
    }
}

/// The inputs of a statement other than the sums.
#[derive(Debug, Clone)]
pub struct StatementSettings<'a> {
    /// The memory system.
    pub profile: &'a DramProfile,
    /// Its power state.
    pub state: &'a DramPowerState,
    /// The clock of the samples.
    pub clock: &'a SampleClock,
    /// The frequency by which the system converted CPU time to measured cycles; `None` if it does
    /// not report it.
    pub cycle_clock: Option<Hertz>,
    /// What the hardware switches as one; the ledger must have been kept with the same.
    pub granule: PowerGranule,
    /// By how much the work took longer, as a share of the time; from a comparison with a run
    /// without.
    pub runtime_change: Option<Interval<Ratio>>,
    /// Whether the kernel that was watched does work at each page; a stock kernel does not.
    pub accounts: bool,
    /// The price model's parameters of the kernel that was watched.
    pub kernel_prices: &'a BTreeMap<PriceParameter, Price>,
    /// Size of a page there.
    pub page_bytes: Bytes,
    /// Its memory.
    pub memory: Bytes,
    /// The name of its power driver.
    pub power_driver: &'a str,
    /// What a meter says of the same time.
    pub measured: Option<&'a MeterEnergy>,
}
