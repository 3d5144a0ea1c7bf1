//! How the tests of `ramslice` and of `ramslice-lab` run their program, and texts it is expected to
//! print.
//!
//! Expected outputs are in `expects/`. After a change that is meant to be seen, write them
//! again with `RAMSLICE_UPDATE_EXPECTS=1 cargo test -p PACKAGE` and read the difference.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use super::PROGRAM;

pub(crate) fn here(path: &str) -> PathBuf {
    Path::new(&std::env::var("CARGO_MANIFEST_DIR").unwrap()).join("tests").join(path)
}

pub(crate) fn command(args: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(args).env_remove("COLORTERM").env("TERM", "xterm").stdin(Stdio::null());
    command
}

/// Compares what a command prints with `expects/NAME.txt`.
pub(crate) fn expect(name: &str, args: &[&str], run: impl Fn(&[&str]) -> Output) {
    let output = run(args);
    let text = format!(
        "$ {} {}\n{}{}[exit {}]\n",
        Path::new(PROGRAM).file_name().unwrap().display(),
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
         If that is right: RAMSLICE_UPDATE_EXPECTS=1 cargo test -p {}",
        path.display(),
        env!("CARGO_PKG_NAME"),
    );
}
