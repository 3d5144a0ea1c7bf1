//! What needs unsafe code: the ioctls, and a signal handler that lets Ctrl-C end one.

#![allow(unsafe_code)]

mod interrupt;
pub(crate) mod ioctl;

pub use interrupt::Interrupt;
