//! `ramsliced`, the daemon: looks at the machine now and then, lets a policy decide, acts if it may, and tells what
//! came of it.
//!
//! ```text
//! run        signals, timers, systemd, pressure                          (the only one that waits)
//!  |- settings   the TOML file and what is allowed in it
//!  |- open       the way to the machine, opened anew whenever it was lost
//!  |- engine     one step: look, decide, request, account
//!  |   |- books      joules, by the ledger of ramslice-energy
//!  |   |- prices     whether the kernel's prices hold, by what requests took
//!  |   `- memory     what is saved across restarts
//!  |- metrics    OpenMetrics, served by `serve`
//!  `- status     /run/ramslice/status.json, for people and `ramslice top`
//! ```
//!
//! Nothing here knows which kernel it runs on: everything goes through [`ramslice_types::Backend`].

pub mod args;
pub mod clock;
pub mod energy_ledger;
pub mod engine;
mod failure_reasons;
pub mod guard_thread;
pub mod host_files;
pub mod log;
pub mod machine_snapshot;
pub mod main_loop;
pub mod metrics;
pub mod metrics_server;
pub mod mode;
pub mod open_backend;
pub mod persisted_state;
pub mod pressure_trigger;
pub mod price_watch;
pub mod settings;
mod settings_schema;
pub mod signals;
pub mod status;
pub mod systemd;
pub mod wake_attribution;
