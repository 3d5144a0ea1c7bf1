//! What the tests of the program share: how it is run, and texts it is expected to print.
//!
//! Expected outputs are in `expects/`. After a change that is meant to be seen, write them
//! again with `RAMSLICE_UPDATE_EXPECTS=1 cargo test -p ramslice-cli-lab` and read the difference.

#![allow(dead_code, reason = "each test file uses some of it")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests").join(path)
}

/// A file of the tests of the program `ramslice`.
pub(crate) fn data(name: &str) -> PathBuf {
    here("../../cli/tests/data").join(name)
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramslice-lab"));
    command.args(args).env_remove("COLORTERM").env("TERM", "xterm").stdin(Stdio::null());
    command
}

/// Compares what a command prints with `expects/NAME.txt`.
pub(crate) fn expect(name: &str, args: &[&str], run: impl Fn(&[&str]) -> Output) {
    let output = run(args);
    let text = format!(
        "$ ramslice-lab {}\n{}{}[exit {}]\n",
        args.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        output.status.code().unwrap(),
    );
    let path = here("expects").join(format!("{name}.txt"));
    if std::env::var_os("RAMSLICE_UPDATE_EXPECTS").is_some() {
        fs::write(&path, text).unwrap();
        return;
    }
    let expected = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "{} differs from what is printed now:\n{text}\n\
         If that is right: RAMSLICE_UPDATE_EXPECTS=1 cargo test -p ramslice-cli-lab",
        path.display()
    );
}
