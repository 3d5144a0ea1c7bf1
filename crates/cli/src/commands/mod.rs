//! One file or folder for each command: its arguments, its help, what it does.

pub mod census;
pub(crate) mod cold;
pub(crate) mod compact;
pub mod completions;
pub(crate) mod doctor;
pub mod energy;
pub(crate) mod explain;
pub(crate) mod giveback;
pub(crate) mod guard;
pub(crate) mod huge;
pub mod man;
pub mod map;
pub(crate) mod offline;
pub(crate) mod online;
pub(crate) mod run;
pub mod slices;
pub mod status;
pub mod top;
