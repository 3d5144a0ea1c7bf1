//! The program `ramslice-lab` from outside: completion and manual pages.

mod common;

use std::fs;

use common::command;

#[test]
fn completions_and_man_pages_name_every_command() {
    let script = command(&["completions", "bash"]).output().unwrap().stdout;
    let script = String::from_utf8_lossy(&script).into_owned();
    assert!(script.contains("-o default ramslice-lab") && script.contains("--cache-use"));
    let dir = tempfile::tempdir().unwrap();
    let made = command(&["man", "--dir"]).arg(dir.path()).output().unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    assert!(dir.path().join("ramslice-lab-sim-fleet.1").exists());
    let mut named = 0;
    for page in fs::read_dir(dir.path()).unwrap() {
        let text = fs::read_to_string(page.unwrap().path()).unwrap().replace('\\', "");
        for word in text.split_whitespace().filter_map(|word| word.strip_suffix("(1)")) {
            let page = dir.path().join(format!("{word}.1"));
            assert!(page.exists(), "{word}(1) is named, and is not there");
            named += 1;
        }
    }
    assert_eq!(named, 23, "18 commands, and the five of `sim`");
}
