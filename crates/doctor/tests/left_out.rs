//! DRAM that is present and cannot be packed: a cache in front of other memory, or set aside for
//! direct access.

mod tables;

use ramslice_doctor::{ByteInterval, DoctorReport, VerdictKind};
use ramslice_types::Bytes;
use tables::{DDR4, GIB, LPDDR5, NON_VOLATILE, SmbiosBuilder, TestMachine, hmat};

fn high_end(report: &DoctorReport) -> u64 {
    let ByteInterval { low_bytes, high_bytes } = report.verdict.power_down.unwrap();
    assert_eq!(low_bytes, Bytes(0));
    high_bytes.0 / GIB
}

fn gives_reason(report: &DoctorReport, words: &str) -> bool {
    report.verdict.because.iter().any(|text| text.contains(words))
}

/// Two modules of DRAM, and others of persistent memory.
fn server(dram: u64, persistent: u64, managed: u64) -> TestMachine {
    let mut dmi = SmbiosBuilder::default().array(1, 4096 * GIB, 8);
    for (handle, name) in [(2, "A1"), (3, "B1")] {
        dmi = dmi.module(handle, 1, dram * GIB / 2, DDR4, 2, name);
    }
    if persistent > 0 {
        dmi = dmi.module(4, 1, persistent * GIB, NON_VOLATILE, 0, "A2");
    }
    TestMachine::physical(managed * GIB).dmi(dmi)
}

#[test]
fn dram_that_is_all_a_cache_is_nothing_to_power_down() {
    // As firmware lists it with the persistent memory, and without: then sizes contradict, and
    // still nothing is promised.
    for persistent in [512, 0] {
        let report =
            server(64, persistent, 500).table("HMAT", &hmat(&[(0, 32), (1, 32)])).report(None);
        assert_eq!(
            (report.verdict.kind, high_end(&report)),
            (VerdictKind::Zero, 0),
            "{:?}",
            report.verdict
        );
        assert!(
            report.verdict.headline.contains("cache of other memory (HMAT)"),
            "{}",
            report.verdict.headline
        );
        assert!(gives_reason(&report, "64 GiB is a cache"));
        let contradicts = report.gaps.iter().any(|gap| gap.input == "memory size");
        assert_eq!(contradicts, persistent == 0, "{:?}", report.gaps);
    }
    // The same machine without the table: two ranks on each of two modules, of which one holds the
    // kernel.
    assert_eq!(high_end(&server(64, 0, 60).report(None)), 48);
}

#[test]
fn a_cache_that_is_a_part_of_the_dram_leaves_the_rest() {
    let report = server(64, 512, 500).table("HMAT", &hmat(&[(0, 32)])).report(None);
    assert_eq!(high_end(&report), 32 - 16);
    assert_eq!(report.verdict.total.unwrap().high_bytes, Bytes(32 * GIB));
    assert!(gives_reason(&report, "32 GiB is a cache"));
}

#[test]
fn a_cache_beside_the_modules_takes_nothing_from_them() {
    let report = server(64, 0, 60).table("HMAT", &hmat(&[(0, 16)])).report(None);
    assert_eq!(high_end(&report), 48);
    assert!(!gives_reason(&report, "is a cache"), "{:?}", report.verdict.because);
}

fn dax(machine: TestMachine, name: &str, gib: u64) -> TestMachine {
    machine
        .file(&format!("sys/bus/dax/devices/{name}/size"), format!("{}\n", gib * GIB))
        .file(&format!("sys/bus/dax/devices/{name}/target_node"), "0\n")
}

#[test]
fn dram_that_is_set_aside_is_not_packed() {
    let laptop = |managed: u64| {
        let dmi = SmbiosBuilder::default()
            .array(1, 64 * GIB, 2)
            .module(2, 1, 32 * GIB, LPDDR5, 1, "A")
            .module(3, 1, 32 * GIB, LPDDR5, 1, "B");
        TestMachine::physical(managed * GIB).dmi(dmi)
    };
    // Less than half of the modules would be a contradiction, were the rest not accounted for.
    let report = dax(dax(laptop(22), "dax0.0", 32), "dax1.0", 8).report(None);
    // An eighth of a module stays with the kernel.
    assert_eq!(high_end(&report), 64 - 40 - 4);
    assert!(gives_reason(&report, "40 GiB is set aside for direct access (DAX)"));
    assert!(report.gaps.iter().all(|gap| gap.input != "memory size"), "{:?}", report.gaps);
    // With the driver that makes memory of it, the kernel has one of them.
    let managed = dax(dax(laptop(54), "dax0.0", 32), "dax1.0", 8)
        .directory("sys/bus/dax/drivers/kmem/dax0.0");
    assert_eq!(high_end(&managed.report(None)), 64 - 8 - 4);
    let all = dax(laptop(2), "dax0.0", 64).report(None);
    assert_eq!((all.verdict.kind, high_end(&all)), (VerdictKind::Zero, 0));
}

#[test]
fn persistent_memory_that_is_handed_out_takes_nothing_from_the_dram() {
    let report = dax(server(64, 512, 60), "dax0.0", 500).report(None);
    assert_eq!(high_end(&report), 48);
    // Nor does it contradict the modules once the kernel has it.
    let memory =
        dax(server(64, 512, 550), "dax0.0", 500).directory("sys/bus/dax/drivers/kmem/dax0.0");
    let report = memory.report(None);
    assert_eq!(high_end(&report), 48);
    assert!(report.gaps.iter().all(|gap| gap.input != "memory size"), "{:?}", report.gaps);
}
