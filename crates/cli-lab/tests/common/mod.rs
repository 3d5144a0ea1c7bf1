//! What the tests of `ramslice-lab` share.

#![allow(dead_code, unused_imports, reason = "each test file uses some of it")]

use std::path::PathBuf;

#[path = "../../../cli/tests/common/program.rs"]
mod program;

pub(crate) use program::{command, expect, here};

const PROGRAM: &str = env!("CARGO_BIN_EXE_ramslice-lab");

/// A file of the tests of the program `ramslice`.
pub(crate) fn data(name: &str) -> PathBuf {
    here("../../cli/tests/data").join(name)
}
