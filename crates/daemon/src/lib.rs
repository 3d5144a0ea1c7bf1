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

mod allowed;
pub mod args;
pub mod books;
pub mod clock;
pub mod engine;
mod failures;
pub mod guard;
pub mod host;
pub mod log;
pub mod look;
pub mod memory;
pub mod metrics;
pub mod mode;
pub mod open;
pub mod pressure;
pub mod prices;
pub mod run;
pub mod serve;
pub mod settings;
pub mod signals;
pub mod status;
pub mod systemd;
pub mod wakes;
