//! What packing memory costs and what it earns: DRAM profiles and the ledger.
//!
//! This crate is pure: no clock, no I/O. A [`Profile`] is read from text; a [`Ledger`] takes samples of a
//! machine, from wherever they come, and gives a [`Statement`]: joules invested, saved and net, each as an
//! [`Interval`]. Nobody's seconds are real ones by themselves: see [`Clock`].

mod address_ranges;
mod clock;
mod interval;
mod ledger;
mod ledger_plan;
mod meter;
mod profile;
mod statement;
mod verdict;

pub use clock::{Clock, TimeFactor, TimeFactorError};
pub use interval::{Interval, IntervalError};
pub use ledger::{Ledger, LedgerError, Sample, Tally};
pub use ledger_plan::{AssumedUnit, LedgerPlan};
pub use meter::{Measured, MeterReading, MeterTally};
pub use profile::{
    Applies, Granularity, Latency, Machine, Power, Profile, ProfileError, Retention, Row, Scale,
    Sourced, State, TEMPLATE, builtin, builtin_names, builtin_text,
};
pub use statement::{Granule, Line, Now, Reconciled, Settings, Statement, Term, now};
pub use verdict::{Sign, Verdict, percent, range};
