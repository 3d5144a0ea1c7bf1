//! `ramslice run --cold` from outside, with --optional: this machine may have no cold memory.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};

fn ramslice(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ramslice")).args(words).output().unwrap()
}

fn run(options: &[&str], program: &[&str]) -> Output {
    ramslice(&[&["run", "--cold", "--optional"], options, &["--"], program].concat())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_program_takes_its_place() {
    let done = run(&["--quiet"], &["sh", "-c", "echo $0 --json; exit 7", "name"]);
    assert_eq!((done.status.code(), text(&done.stdout)), (Some(7), "name --json\n".to_owned()));
    assert_eq!(text(&done.stderr), "");
    assert_eq!(run(&[], &["sh", "-c", "kill -TERM $$"]).status.signal(), Some(15));
}

#[test]
fn one_line_says_where_its_memory_goes() {
    let done = run(&[], &["true"]);
    assert_eq!(done.status.code(), Some(0));
    let line = text(&done.stderr);
    assert!(line.starts_with("ramslice: ") && line.matches('\n').count() == 1, "{line}");
}

#[test]
fn a_program_that_is_not_there_or_is_none_has_the_shell_s_status() {
    for (program, status, why) in [
        ("/no/such/program", 127, "No such file"),
        ("no-such-program", 127, "No such file"),
        ("/dev/null", 126, "Permission denied"),
    ] {
        let done = run(&[], &[program]);
        assert_eq!(done.status.code(), Some(status), "{program}");
        let line = text(&done.stderr);
        assert!(line.contains(&format!("cannot run `{program}`: {why}")), "{line}");
    }
}

#[test]
fn a_saved_machine_runs_no_program() {
    let done = ramslice(&["--from", "machine.json", "run", "--cold", "true"]);
    assert_eq!(done.status.code(), Some(2));
    assert!(text(&done.stderr).contains("leave out --from machine.json"));
}
