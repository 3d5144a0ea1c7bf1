//! `ramslice-lab fragment` from outside: the account, how long it holds, what it refuses.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

fn fragment(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_ramslice-lab"));
    command.arg("fragment").args(["--dir", env!("CARGO_TARGET_TMPDIR")]).args(args);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

const MIX: [&str; 8] = ["--memory", "16M", "--free", "0.5", "--anon", "0.3", "--file", "0.2"];

#[test]
fn the_account_comes_before_the_command_and_the_status_is_the_commands() {
    let home = tempfile::tempdir().unwrap();
    let account = home.path().join("made.json");
    // The command sees the file, and its parent's memory while it is held.
    let script =
        format!("cat {} && grep -E '^(VmRSS)' /proc/$PPID/status; exit 5", account.display());
    let path = account.to_str().unwrap();
    let output = fragment(&MIX)
        .args(["--account", path, "--map-count", "2", "--", "sh", "-c", &script])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(5), "{}", text(&output));
    let document: Value = serde_json::from_slice(&fs::read(&account).unwrap()).unwrap();
    assert_eq!(
        (document["command"].as_str(), document["map_count"].as_u64()),
        (Some("fragment"), Some(2))
    );
    let made = &document["made"];
    let pages = |name: &str| made[name].as_u64().unwrap();
    assert_eq!(pages("steps"), 16 << 8);
    assert_eq!(pages("anon_present_pages"), made["touched"]["anon_pages"].as_u64().unwrap());
    assert!((made["mappings_per_anon_page"].as_f64().unwrap() - 2.0).abs() < 0.01);
    let words = text(&output);
    let rss: u64 =
        words.split("VmRSS:").nth(1).unwrap().split_whitespace().next().unwrap().parse().unwrap();
    assert!(rss >= 4 * pages("anon_present_pages"), "{rss} kB");
    assert!(words.find("anonymous: ").unwrap() < words.find("VmRSS").unwrap());
}

#[test]
fn the_account_of_an_earlier_run_stays_if_nothing_comes_of_this_one() {
    let home = tempfile::tempdir().unwrap();
    let account = home.path().join("made.json");
    fs::write(&account, "before").unwrap();
    let nothing = ["--memory", "16M", "--free", "0", "--anon", "0", "--file", "0", "--account"];
    let output = fragment(&nothing).arg(&account).output().unwrap();
    assert!(!output.status.success(), "{}", text(&output));
    assert_eq!(fs::read_to_string(&account).unwrap(), "before");
    assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1);
}

#[test]
fn it_holds_until_it_is_interrupted() {
    for signal in ["-INT", "-TERM"] {
        let mut child = fragment(&MIX).args(["--json", "--map-count", "3"]).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next().unwrap().unwrap(), "{");
        let document = lines.by_ref().map_while(Result::ok).take_while(|line| line != "}");
        let document: Value =
            serde_json::from_str(&format!("{{{}}}", document.collect::<String>())).unwrap();
        assert_eq!(document["made"]["processes"], 3);
        // The document is out and flushed, and the program is still there.
        assert!(child.try_wait().unwrap().is_none());
        assert!(
            Command::new("kill")
                .args([signal, &child.id().to_string()])
                .status()
                .unwrap()
                .success()
        );
        assert_eq!(child.wait().unwrap().code(), Some(0), "{signal}");
    }
}

#[test]
fn a_time_ends_it() {
    let output = fragment(&MIX).args(["--for", "50ms"]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output));
    assert!(text(&output).contains("not mapped"), "{}", text(&output));
}

#[test]
fn recipes_can_be_changed_and_are_printed() {
    let output = fragment(&[
        "--recipe", "aged", "--memory", "16M", "--file", "0", "--for", "10ms", "--json",
    ])
    .output()
    .unwrap();
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["recipe"], "aged");
    assert_eq!(document["mix"]["free"], serde_json::json!({ "first": 0.2, "last": 0.8 }));
    assert_eq!(document["mix"]["anon"], serde_json::json!({ "first": 0.5, "last": 0.1 }));
    assert_eq!(document["made"]["touched"]["file_pages"], 0);
}

#[test]
fn what_makes_no_sense_is_wrong_usage() {
    for (args, expected) in [
        (&["--memory", "1M"][..], "needs a probability"),
        (&["--memory", "1M", "--free", "1.5"], "number from 0 to 1"),
        (&["--memory", "1M", "--free", "0..x"], "number from 0 to 1"),
        (&["--memory", "0%", "--free", "1"], "as in 512M, 4GiB or 80%"),
        (&["--memory", "1", "--free", "1"], "too little"),
        (&["--free", "1"], "--memory"),
        (&["--recipe", "halves"], "does not say how much"),
        (&["--recipe", "brandnew"], "possible values: aged, thirds, halves"),
        (&["--memory", "1M", "--anon", "1", "--map-count", "0"], "0 is not in 1..=1024"),
        (&["--memory", "1M", "--free", "1", "--from", "x"], "cannot work with --from"),
    ] {
        let output = fragment(args).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {}", text(&output));
        assert!(text(&output).contains(expected), "{args:?}: {}", text(&output));
    }
    let output = fragment(&["--memory", "1000T", "--free", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("are available"), "{}", text(&output));
}
