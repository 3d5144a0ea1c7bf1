//! Standard error. Its reader may be gone: a line that cannot be written is left out,
//! and nothing ends by it.
//!
//! `eprintln!` panics then, and a panic leaves slices off and prices changed. Clippy keeps it out
//! of this crate.

use std::fmt::Display;
use std::io::{self, Write};

/// Writes a line.
pub fn line(text: impl Display) {
    // There is nowhere left to say that it failed.
    let _ = writeln!(io::stderr(), "{text}");
}

/// Writes over the last line of a terminal.
pub fn rewrite(text: impl Display) {
    let _ = write!(io::stderr(), "\r\x1b[K{text}");
}

/// Leaves nothing on the last line of a terminal.
pub fn clear() {
    rewrite("");
}
