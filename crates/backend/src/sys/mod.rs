//! What needs unsafe code: the ioctls, memory policies, and signals that let Ctrl-C or a deadline
//! end a system call.

#![allow(unsafe_code)]

pub(crate) mod alarm;
pub(crate) mod interrupt;
pub(crate) mod ioctl;
pub(crate) mod memory_policy;
mod thread;

pub use interrupt::{SignalInterrupt, ending_signals};
