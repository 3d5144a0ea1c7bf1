//! `ramslice giveback` from outside: over a saved machine whose power driver reports to the host,
//! and on the host, where the process looked at is this test.

mod common;

use std::fs;

use common::{command, expect, here};
use serde_json::Value;

#[test]
fn memory_is_given_back_until_so_much_is_left_on() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("guest.json");
    let text = fs::read_to_string(here("data/guest-8g.json")).unwrap();
    let changed = text.replace("\"power_driver\": \"simulated\"", "\"power_driver\": \"report\"");
    assert_ne!(text, changed);
    fs::write(&path, changed).unwrap();
    let run = |args: &[&str]| command(args).arg("--from").arg(&path).output().unwrap();
    for (name, args) in [
        ("giveback-reports", vec!["giveback"]),
        ("giveback-now", vec!["giveback", "--now"]),
        ("giveback-dry", vec!["giveback", "--now", "--dry-run", "--cache", "keep"]),
        ("giveback-until", vec!["giveback", "--until", "2700M"]),
        ("giveback-too-much", vec!["giveback", "--until", "64M"]),
        ("giveback-until-nothing", vec!["giveback", "--until", "7G"]),
        ("giveback-not-a-size", vec!["giveback", "--until", "lots"]),
        ("top-reports", vec!["top", "--once"]),
        ("giveback-json", vec!["giveback", "--until", "2700M", "--json"]),
    ] {
        expect(name, &args, run);
    }
}

#[test]
fn what_a_process_holds_is_found_by_its_size_and_compared() {
    let folder = tempfile::tempdir().unwrap();
    let status = folder.path().join("guest.json");
    // Of a size that no other mapping has
    let memory = vec![1_u8; (48 << 20) + (64 << 10)];
    let pid = std::process::id().to_string();
    let verify = |args: &[&str]| {
        let line = [&["giveback", "verify", "--pid", &pid], args].concat();
        let output = command(&line).output().unwrap();
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        (output.status.code().unwrap(), text)
    };
    let size = |line: &str| -> u64 {
        let (start, end) = line.split(' ').next().unwrap().split_once('-').unwrap();
        let number = |text| u64::from_str_radix(text, 16).unwrap();
        number(end) - number(start)
    };
    // The allocator adds a page to it
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let found = maps.lines().map(size).find(|&size| size > memory.len() as u64 && size < 50 << 20);
    let found = found.unwrap();
    let found_text = found.to_string();
    let (code, text) = verify(&["--memory", &found_text, "--json"]);
    assert_eq!(code, 0, "{text}");
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(document["memory_bytes"], found);
    assert!(document["held_bytes"].as_u64().unwrap() >= memory.len() as u64, "{document}");

    let compare = |off: u64| {
        let body = serde_json::json!({
            "schema_version": 1, "command": "giveback", "reported_bytes": off,
            "off_unreported_bytes": 0, "on_bytes": 1,
        });
        fs::write(&status, body.to_string()).unwrap();
        let path = status.to_str().unwrap();
        verify(&["--memory", &found_text, "--guest-status", path, "--tolerance", "4M"])
    };
    assert_eq!(compare(4 << 20).0, 0);
    let (code, text) = compare(32 << 20);
    assert_eq!(code, 1, "{text}");
    assert!(text.contains("\nthe host holds 2") && text.contains(" MiB too much\n"), "{text}");
    let (code, text) = compare(1 << 40);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("that is another guest's status"), "{text}");
    let (code, text) = verify(&["--memory", "7"]);
    assert_eq!(code, 2, "{text}");
    assert!(text.contains("it has no mapping of 7, the size of the guest's memory"), "{text}");
    drop(memory);
}
