//! `ramsliced`, the daemon: reads the machine now and then, lets a policy decide, acts if it may,
//! and
//! reports the result.
//!
//! ```text
//! main_loop    signals, timers, systemd, pressure          (only this part waits)
//!  |- settings        the TOML file; settings_schema says what it allows
//!  |- open_backend    opens the machine, again whenever it was lost
//!  |- engine          one step: read, decide, send requests, account
//!  |   |- worth_plan         what slices are worth: joules, GiB hours, money, or unknown
//!  |   |- energy_ledger     joules, by the ledger of ramslice-energy
//!  |   |- wake_attribution  what woke slices
//!  |   |- cache_watch       what the page cache was asked for
//!  |   |- memory_takers     who has memory that was emptied
//!  |   `- price_watch       whether the kernel's prices hold, by what requests took
//!  |- guard_thread    wakes slices on a stock kernel when memory runs short
//!  |- cold_automatic  sets up DAMON, which moves idle pages to cold nodes and back
//!  |- persisted_state what is saved across restarts
//!  |- metrics         OpenMetrics, served by metrics_server
//!  `- status          /run/ramslice/status.json, for people and `ramslice top`
//! ```
//!
//! Everything goes through [`ramslice_types::Backend`]. In mode observe that is a
//! [`ramslice_backend::WhatIfBackend`] around the real one, so the engine does not know its mode.

pub mod args;
pub mod cache_watch;
pub mod clock;
pub mod cold_automatic;
pub mod energy_ledger;
pub mod engine;
mod failure_reasons;
pub mod guard_thread;
pub mod host_files;
pub mod idle_cache;
pub mod log;
pub mod machine_snapshot;
pub mod main_loop;
pub mod memory_takers;
pub mod metrics;
pub mod metrics_server;
pub mod mode;
pub mod open_backend;
pub mod persisted_state;
pub mod pressure_trigger;
pub mod price_watch;
pub mod settings;
mod settings_cold;
mod settings_energy;
pub mod settings_files;
mod settings_idle_cache;
mod settings_schema;
mod settings_takers;
pub mod settings_warnings;
pub mod signals;
pub mod status;
pub mod systemd;
pub mod wake_attribution;
pub mod worth_plan;
