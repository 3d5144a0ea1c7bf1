//! A capture gives the same answer as the machine it was made on.

mod tables;

use std::fs;

use ramslice_doctor::{GapKind, RootError, SystemRoot, capture, examine};
use tables::{DDR4, GIB, PowerNodeEntry, SmbiosBuilder, TestMachine, mpst};

fn machine() -> TestMachine {
    let dmi = SmbiosBuilder::default()
        .add(1, 9, &[1, 2, 3, 4], &["MAKER", "MODEL", "1.0", "SERIAL-5678"])
        .array(1, 32 * GIB, 2)
        .module(2, 1, 8 * GIB, DDR4, 2, "DIMM 0");
    TestMachine::physical(7 * GIB)
        .dmi(dmi)
        .table(
            "MPST",
            &mpst(
                &[PowerNodeEntry(0, 3, 0, 4 * GIB), PowerNodeEntry(1, 3, 4 * GIB, 4 * GIB)],
                100,
                50,
                2,
            ),
        )
        .blocks(&[0..GIB, 4 * GIB..7 * GIB])
        .file("sys/bus/virtio/devices/virtio0/device", "0x0001\n")
        .file("etc/shadow", "root:secret\n")
}

#[test]
fn a_captured_machine_gets_the_same_report() {
    let machine = machine();
    let root = SystemRoot::open(machine.path()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let target = dir.path().join("tables");
    let captured = capture(&root, &target).unwrap();
    assert!(captured.unreadable.is_empty());
    assert!(!target.join("etc").exists(), "only what is read");
    assert_eq!(examine(&SystemRoot::open(&target).unwrap(), None), machine.report(None));
    let names: Vec<_> =
        fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["tables"], "nothing is left beside it");
    // And a capture of the capture has the same files.
    let again = capture(&SystemRoot::open(&target).unwrap(), &dir.path().join("again")).unwrap();
    assert_eq!(again.files, captured.files);
}

#[test]
fn serial_numbers_do_not_leave_the_machine() {
    let machine = machine();
    let dir = tempfile::tempdir().unwrap();
    capture(&SystemRoot::open(machine.path()).unwrap(), dir.path()).unwrap();
    let table = fs::read(dir.path().join("sys/firmware/dmi/tables/DMI")).unwrap();
    let has = |text: &str| table.windows(text.len()).any(|bytes| bytes == text.as_bytes());
    assert!(has("MAKER") && has("DIMM 0"));
    assert!(!has("SERIAL"), "{table:?}");
}

#[test]
fn what_could_not_be_read_stays_so_in_the_capture() {
    let notes =
        r#"{"schema_version": 1, "problems": {"sys/firmware/dmi/tables/DMI": "permission"}}"#;
    let machine = TestMachine::physical(GIB).file("ramslice-capture.json", notes);
    let dir = tempfile::tempdir().unwrap();
    let captured = capture(&SystemRoot::open(machine.path()).unwrap(), dir.path()).unwrap();
    assert_eq!(captured.unreadable, [std::path::Path::new("sys/firmware/dmi/tables/DMI")]);
    let report = examine(&SystemRoot::open(dir.path()).unwrap(), None);
    let smbios = report.gaps.iter().find(|gap| gap.input == "SMBIOS").unwrap();
    assert_eq!(smbios.kind, GapKind::Permission);
}

#[test]
fn a_capture_does_not_mix_with_other_files() {
    let machine = machine();
    let root = SystemRoot::open(machine.path()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("mine"), "").unwrap();
    assert!(matches!(capture(&root, dir.path()), Err(RootError::NotEmpty { .. })));
    assert!(matches!(capture(&root, &dir.path().join("mine/below")), Err(RootError::Write { .. })));
}

#[test]
fn damaged_notes_are_refused_by_name() {
    for notes in ["[]", "{}", r#"{"schema_version": 2}"#] {
        let machine = TestMachine::physical(GIB).file("ramslice-capture.json", notes);
        let error = SystemRoot::open(machine.path()).unwrap_err();
        assert!(error.to_string().contains("ramslice-capture.json"), "{error}");
    }
}
