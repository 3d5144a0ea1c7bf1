//! A simulated machine with slices, and its uses: runs, fleets, tournaments.
//!
//! The machine is a [`Backend`](ramslice_types::Backend) as a kernel is, so that the same policies
//! and the same tests run over both. It counts runs of pages; with coarse runs it simulates
//! terabytes and fleets. Everything is decided by seeds: the same ones give the same results.

mod backend;
mod config;
mod energy_account;
pub mod fleet;
pub mod load;
mod machine;
mod parquet_out;
pub mod predict;
mod run;
pub mod tournament;

pub use backend::SimBackend;
pub use config::{PlacementRule, SimConfig, SimConfigError, ZoneConfig};
pub use energy_account::{ASSUMED_REFAULT, EnergyAccount, EnergyRates, EnergyRatesError};
pub use machine::{MachineStats, MemoryChange, OwnerClass, OwnerId, PriceModel, SimMachine};
pub use run::{ClairvoyantSchedule, RunDecider, SimRun, needed_slices, run};
