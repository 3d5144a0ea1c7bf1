//! Commands of `ramslice` over a recording instead of a running machine.

pub(crate) mod census;
pub(crate) mod energy;
pub(crate) mod top;
