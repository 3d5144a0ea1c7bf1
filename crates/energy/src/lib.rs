//! What packing memory costs and what it earns: DRAM profiles and the ledger.
//!
//! This crate is pure: no clock, no I/O. A [`DramProfile`] is read from text; a [`EnergyLedger`]
//! takes samples of a machine, from wherever they come, and gives a [`EnergyStatement`]: joules
//! invested, saved and net, each as an [`Interval`]. No clock's seconds are real ones by
//! themselves: see [`SampleClock`].

mod address_ranges;
mod clock;
mod costs;
mod giveback_statement;
mod interval;
mod ledger;
mod ledger_plan;
mod meter;
mod profile;
mod statement;
mod statement_settings;
mod verdict;
mod worth;

pub use clock::{SampleClock, TimeFactor, TimeFactorError};
pub use costs::{CostLine, CostTerm};
pub use giveback_statement::{GivebackCostLine, GivebackStatement, GivebackStatementSettings};
pub use interval::{Interval, IntervalError};
pub use ledger::{EnergyLedger, EnergySample, EnergyTally, LedgerError};
pub use ledger_plan::{AssumedUnit, LedgerPlan};
pub use meter::{MeterEnergy, MeterReading, MeterTally};
pub use profile::{
    ClassSource, ClassWorth, DataRetention, DramPowerState, DramProfile, GIVEBACK_NAME,
    GivebackProfile, MachineClasses, PowerGranularity, PowerScale, ProfileError, ProfileFigure,
    ProfilePower, ReferenceMachine, SavingScope, SourcedValue, TEMPLATE, TransitionLatency,
    UnknownSaving, WorthProfile, builtin, builtin_giveback, builtin_names, builtin_text,
    worth_profile_names,
};
pub use statement::{CurrentSaving, EnergyStatement, MeterComparison, RestStatement, now};
pub use statement_settings::{PowerGranule, StatementSettings};
pub use verdict::{EnergyVerdict, NetSign, percent, range};
pub use worth::WorthUnit;
