//! What the tests of `ramslice` share.

mod program;

pub(crate) use program::{command, expect, here};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ramslice");
