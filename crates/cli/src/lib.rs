//! The program `ramslice`, and what `ramslice-lab` shares with it.
//!
//! ```text
//! cli          the operator's commands by name, and which file runs each
//!  |- commands/      a file or folder for each: arguments, help, what it does
//!  |   |- address_order, request_report, ledger_options, profile_files   what several share
//!  |   |- daemon_takers, daemon_samples   what the daemon says of those who take emptied memory,
//!  |   |                                  and of accesses to what may rest
//!  |   `- interrupt, progress   Ctrl-C during a request; a line about long work
//!  |- program        what both programs do around a command
//!  |   |- context    the global options resolved: backend, JSON or text
//!  |   |- args       the global options
//!  |   |- exit       exit statuses, and the errors that go with them
//!  |   `- stdout, stderr   streams whose reader may leave
//!  `- render/        how things look: terminal, plain text, PNG
//! ```
//!
//! Arrows point down this list. Nothing here reads recordings, fits models or draws reports: that
//! is `ramslice-lab`, so that the operator's program stays small and quick to start.

#![warn(clippy::print_stderr, clippy::print_stdout)]

pub mod address_order;
pub mod args;
pub mod cli;
pub mod commands;
pub mod context;
mod daemon_samples;
mod daemon_takers;
pub mod exit;
pub mod interrupt;
pub mod ledger_options;
pub mod profile_files;
pub mod program;
pub mod progress;
pub mod render;
pub mod request_report;
pub mod stderr;
pub mod stdout;
