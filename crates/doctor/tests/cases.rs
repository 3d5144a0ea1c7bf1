//! Whole machines and the verdicts they get.

mod tables;

use ramslice_doctor::{ByteInterval, DoctorReport, GapKind, VerdictKind, VirtualVerdict};
use ramslice_types::Bytes;
use tables::{DDR4, GIB, KIB, LPDDR5, MIB, PowerNodeEntry, SmbiosBuilder, TestMachine, mpst, srat};

/// The two ends, in GiB.
fn power_down_gib(report: &DoctorReport) -> (f64, f64) {
    let ByteInterval { low_bytes, high_bytes } = report.verdict.power_down.unwrap();
    (low_bytes.0 as f64 / GIB as f64, high_bytes.0 as f64 / GIB as f64)
}

fn parameter(report: &DoctorReport) -> Option<&str> {
    report.verdict.slice.parameter.as_deref()
}

/// The problems of an input.
fn problems(report: &DoctorReport, input: &str) -> Vec<GapKind> {
    report.gaps.iter().filter(|gap| gap.input == input).map(|gap| gap.kind).collect()
}

/// Whether a gap that makes the verdict wider has these words.
fn widened_by(report: &DoctorReport, words: &str) -> bool {
    report.gaps.iter().any(|gap| gap.widens && gap.detail.contains(words))
}

/// What cannot both be true.
fn contradictions(report: &DoctorReport) -> Vec<&str> {
    let kind = GapKind::Contradictory;
    report.gaps.iter().filter(|gap| gap.kind == kind).map(|gap| gap.detail.as_str()).collect()
}

/// 16 GiB of LPDDR5 in two channels, the hole below 4 GiB, eight power nodes of 2 GiB of DRAM.
fn laptop() -> TestMachine {
    let dmi = SmbiosBuilder::default()
        .array(1, 16 * GIB, 2)
        .module(2, 1, 8 * GIB, LPDDR5, 1, "ChannelA")
        .module(3, 1, 8 * GIB, LPDDR5, 1, "ChannelB")
        .array_range(4, 1, 0, 16 * GIB, 2);
    TestMachine::physical(15 * GIB).dmi(dmi).blocks(&[0..2 * GIB, 4 * GIB..18 * GIB])
}

fn laptop_nodes() -> Vec<PowerNodeEntry> {
    let mut nodes = vec![PowerNodeEntry(0, 3, 0, 2 * GIB)];
    nodes.extend((1u16..8).map(|id| PowerNodeEntry(id, 3, (2 + 2 * u64::from(id)) * GIB, 2 * GIB)));
    nodes
}

#[test]
fn a_laptop_with_power_nodes_powers_down_all_but_the_kernels() {
    let report =
        laptop().table("MPST", &mpst(&laptop_nodes(), 150, 80, 2)).report("1-2".parse().ok());
    assert_eq!(power_down_gib(&report), (14.0, 14.0));
    assert_eq!(parameter(&report), Some("ramslice=2G"));
    let [given, firmware] = report.verdict.savings.as_slice() else {
        panic!("{:?}", report.verdict.savings)
    };
    assert!((given.low_mw - 14.0).abs() < 1e-9 && (given.high_mw - 28.0).abs() < 1e-9);
    // Seven nodes of 150 mW, of which 80%; the low end is 0, for it is against power at work.
    assert!(firmware.low_mw.abs() < 1e-9 && (firmware.high_mw - 840.0).abs() < 1e-9);
    assert!(
        report.verdict.because.iter().any(|text| text.contains("a power driver has to be written"))
    );
    assert!((report.verdict.high_share.unwrap() - 0.875).abs() < 1e-9);
}

#[test]
fn nodes_of_what_may_be_a_virtual_machine_promise_nothing() {
    let machine = laptop()
        .table("MPST", &mpst(&laptop_nodes(), 150, 80, 2))
        .file("proc/cpuinfo", "processor: 0\n");
    let report = machine.report(None);
    assert_eq!(report.findings.virtual_machine.is, VirtualVerdict::Unknown);
    assert_eq!(power_down_gib(&report), (0.0, 14.0));
}

#[test]
fn nodes_that_power_down_by_themselves_need_no_driver() {
    let report = laptop().table("MPST", &mpst(&laptop_nodes(), 150, 80, 0)).report(None);
    assert!(report.verdict.because.iter().any(|text| text.contains("by itself")));
    assert!(!report.verdict.headline.contains("power driver"), "{}", report.verdict.headline);
}

#[test]
fn a_damaged_table_of_nodes_takes_the_low_end_away() {
    let mut table = mpst(&laptop_nodes(), 150, 80, 2);
    table[20] ^= 1;
    let report = laptop().table("MPST", &table).report(None);
    assert_eq!(power_down_gib(&report), (0.0, 14.0));
    assert!(widened_by(&report, "checksum"));
}

#[test]
fn nodes_inside_others_count_once_and_the_small_ones_are_the_units() {
    let nodes = [
        PowerNodeEntry(0, 3, 0, 4 * GIB),
        PowerNodeEntry(1, 3, 0, GIB),
        PowerNodeEntry(2, 3, GIB, 3 * GIB),
    ];
    let report =
        TestMachine::physical(4 * GIB).table("MPST", &mpst(&nodes, 100, 50, 2)).report(None);
    assert_eq!(power_down_gib(&report), (3.0, 3.0));
    assert_eq!(report.verdict.unit_bytes, Some(Bytes(GIB)));
    // Of unequal sizes: 1 GiB and 3
    assert_eq!(parameter(&report), Some("ramslice=firmware"));
}

#[test]
fn nodes_that_cross_each_other_are_a_contradiction() {
    let nodes = [
        PowerNodeEntry(0, 3, 0, GIB),
        PowerNodeEntry(1, 3, GIB, 2 * GIB),
        PowerNodeEntry(2, 3, 2 * GIB, 2 * GIB),
    ];
    let report =
        TestMachine::physical(4 * GIB).table("MPST", &mpst(&nodes, 100, 50, 2)).report(None);
    assert!(widened_by(&report, "nodes 1 and 2 share a part"));
    assert!(power_down_gib(&report).0.abs() < f64::EPSILON);
}

#[test]
fn nodes_that_the_system_may_not_manage_are_no_nodes() {
    let nodes: Vec<PowerNodeEntry> =
        laptop_nodes().iter().map(|node| PowerNodeEntry(node.0, 1, node.2, node.3)).collect();
    let report = laptop().table("MPST", &mpst(&nodes, 150, 80, 2)).report(None);
    assert!(power_down_gib(&report).0.abs() < f64::EPSILON);
}

#[test]
fn a_laptop_without_power_nodes_is_open_up_to_seven_eighths() {
    let report = laptop().report("0-9.19".parse().ok());
    assert_eq!(power_down_gib(&report), (0.0, 15.0));
    assert_eq!(problems(&report, "MPST"), [GapKind::Absent]);
    assert!(widened_by(&report, "no usable structures of type 20"));
    // Not reported as interleaved: an eighth of one module. The hole from 2 to 4 GiB fits.
    assert_eq!(parameter(&report), Some("ramslice=1G"));
    assert!(report.verdict.slice.because.contains("assumed"));
    assert!((report.verdict.savings[0].high_mw - 15.0 * 9.19).abs() < 1e-6);
}

#[test]
fn low_power_dram_that_is_interleaved_still_has_eighths() {
    let dmi = SmbiosBuilder::default()
        .array(1, 16 * GIB, 2)
        .module(2, 1, 8 * GIB, LPDDR5, 1, "ChannelA")
        .module(3, 1, 8 * GIB, LPDDR5, 1, "ChannelB")
        .module_range(5, 2, 0, 16 * GIB, 1)
        .module_range(6, 3, 0, 16 * GIB, 2);
    let report = TestMachine::physical(15 * GIB).dmi(dmi).report(None);
    assert_eq!(power_down_gib(&report), (0.0, 14.0));
    assert_eq!(report.verdict.unit_bytes, Some(Bytes(2 * GIB)));
    assert_eq!(
        report.verdict.unit.as_deref(),
        Some("an eighth of the rows of all interleaved modules")
    );
    assert_eq!(parameter(&report), Some("ramslice=2G"));
}

/// Two sockets with four modules of 16 GiB each, interleaved over `ways` modules.
fn server(ways: u16, ranks: u8, tables: bool) -> TestMachine {
    let mut dmi =
        SmbiosBuilder::default().array(1, 128 * GIB, 8).array_range(2, 1, 0, 128 * GIB, 1);
    for module in 0..8u16 {
        let (handle, set) = (0x10 + module, u64::from(module / ways));
        dmi = dmi.module(handle, 1, 16 * GIB, DDR4, ranks, &format!("DIMM_{module}"));
        let size = u64::from(ways) * 16 * GIB;
        let position = if ways > 1 { u8::try_from(module % ways).unwrap() + 1 } else { 0 };
        dmi = dmi.module_range(0x30 + module, handle, set * size, size, position);
    }
    let machine = TestMachine::physical(126 * GIB).dmi(dmi);
    if !tables {
        return machine;
    }
    machine.table("SRAT", &srat(&[(0, 0, 64 * GIB), (1, 64 * GIB, 64 * GIB)]))
}

#[test]
fn a_server_interleaved_over_everything_has_nothing_to_power_down() {
    let report = server(8, 1, false).report("10".parse().ok());
    assert_eq!(report.verdict.kind, VerdictKind::Zero);
    assert_eq!(power_down_gib(&report), (0.0, 0.0));
    assert!(
        report
            .verdict
            .headline
            .starts_with("0 J possible here, because the addresses of all 8 modules")
    );
    assert_eq!(parameter(&report), None);
    assert!(report.verdict.savings[0].high_mw.abs() < 1e-9);
    assert!(report.verdict.because.iter().any(|text| text.contains("switch interleaving off")));
}

#[test]
fn two_ranks_leave_it_open_even_there() {
    let report = server(8, 2, false).report(None);
    assert_eq!(power_down_gib(&report), (0.0, 64.0));
    assert_eq!(report.verdict.unit.as_deref(), Some("a rank of each interleaved module"));
}

#[test]
fn a_server_interleaved_within_sockets_could_power_down_a_socket() {
    let report = server(4, 1, true).report(None);
    assert_eq!(power_down_gib(&report), (0.0, 64.0));
    assert_eq!(parameter(&report), Some("ramslice=64G"));
    assert!(report.layout.interleaving_known);
    assert_eq!(report.layout.groups.len(), 2);
}

#[test]
fn a_server_without_interleaving_could_power_down_modules() {
    let report = server(1, 1, true).report(None);
    assert_eq!(power_down_gib(&report), (0.0, 112.0));
    assert_eq!(parameter(&report), Some("ramslice=16G"));
}

#[test]
fn modules_of_two_sockets_that_share_addresses_are_a_contradiction() {
    let report = server(8, 1, true).report(None);
    assert!(widened_by(&report, "are in 2 domains"));
    // Type 20 is not believed then: any module may be by itself.
    assert_eq!(power_down_gib(&report), (0.0, 112.0));
    assert!(!report.layout.interleaving_known);
}

#[test]
fn an_unreadable_table_of_nodes_is_no_proof_of_nothing() {
    let report = server(8, 1, false).table("MPST", b"MPST").report(None);
    assert_eq!(report.verdict.kind, VerdictKind::Possible);
    assert_eq!(power_down_gib(&report), (0.0, 128.0));
    assert_eq!(problems(&report, "MPST"), [GapKind::Damaged]);
}

/// As some real firmware has it.
#[test]
fn a_place_in_an_interleave_with_addresses_of_ones_own_leaves_it_open() {
    let dmi = SmbiosBuilder::default()
        .array(1, 16 * GIB, 2)
        .module(2, 1, 8 * GIB, DDR4, 2, "DIMM1")
        .module(3, 1, 8 * GIB, DDR4, 2, "DIMM2")
        .module_range(4, 2, 0, 8 * GIB, 1)
        .module_range(5, 3, 8 * GIB, 8 * GIB, 2);
    let report = TestMachine::physical(15 * GIB).dmi(dmi).report(None);
    assert!(widened_by(&report, "2 (DIMM1 is the first) are interleaved"), "{:?}", report.gaps);
    assert_eq!(contradictions(&report), [""; 0]);
    assert!(!report.layout.interleaving_known);
    assert_eq!(power_down_gib(&report), (0.0, 12.0));
    assert!(report.verdict.because.iter().any(|text| text.contains("likely they are")));
}

#[test]
fn modules_that_are_alike_take_one_line() {
    let report = server(8, 2, false).report(None);
    let lines: Vec<&str> = report
        .evidence
        .iter()
        .filter(|line| line.input == "module")
        .map(|line| &*line.says)
        .collect();
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].starts_with("16 GiB of DDR4, 2 ranks each: DIMM_0, DIMM_1, "), "{lines:?}");
}

#[test]
fn a_module_around_the_hole_is_one_module() {
    let dmi = SmbiosBuilder::default()
        .array(1, 8 * GIB, 2)
        .module(2, 1, 4 * GIB, DDR4, 1, "A")
        .module(3, 1, 4 * GIB, DDR4, 1, "B")
        .module_range(4, 2, 0, 3 * GIB, 0)
        .module_range(5, 2, 4 * GIB, GIB, 0)
        .module_range(6, 3, 5 * GIB, 4 * GIB, 0);
    let report = TestMachine::physical(7 * GIB).dmi(dmi).report(None);
    assert_eq!(report.layout.groups.len(), 2);
    assert_eq!(power_down_gib(&report), (0.0, 4.0));
    assert_eq!(parameter(&report), Some("ramslice=1G"));
}

#[test]
fn a_single_module_with_one_rank_has_nothing_to_power_down() {
    let dmi =
        SmbiosBuilder::default().array(1, 32 * GIB, 2).module(2, 1, 8 * GIB, DDR4, 1, "DIMM 0");
    let report = TestMachine::physical(7 * GIB).dmi(dmi).report(None);
    assert_eq!(report.verdict.kind, VerdictKind::Zero);
    assert!(
        report.verdict.headline.contains("one module with one rank"),
        "{}",
        report.verdict.headline
    );
    assert_eq!(parameter(&report), None);
}

#[test]
fn a_single_module_that_hides_its_ranks_stays_open() {
    let dmi =
        SmbiosBuilder::default().array(1, 32 * GIB, 2).module(2, 1, 8 * GIB, DDR4, 0, "DIMM 0");
    let report = TestMachine::physical(7 * GIB).dmi(dmi).report(None);
    assert_eq!(power_down_gib(&report), (0.0, 7.0));
    assert!(widened_by(&report, "how many ranks"));
}

/// Sizes of types 16, 17 and 19 in GiB, and what the kernel manages.
fn sizes(capacity: u64, module: u64, mapped: u64, managed: u64) -> DoctorReport {
    let dmi = SmbiosBuilder::default()
        .array(1, capacity * GIB, 2)
        .module(2, 1, module * GIB / 2, DDR4, 2, "A")
        .module(3, 1, module * GIB / 2, DDR4, 2, "B")
        .array_range(4, 1, 0, mapped * GIB, 1);
    TestMachine::physical(managed * GIB).dmi(dmi).report(None)
}

#[test]
fn sizes_that_agree_are_no_contradiction() {
    let report = sizes(64, 16, 16, 15);
    assert_eq!(problems(&report, "memory size"), []);
    assert_eq!(report.verdict.total.unwrap().low_bytes, report.verdict.total.unwrap().high_bytes);
}

#[test]
fn contradictory_sizes_are_reported_and_modules_are_the_bound() {
    let agreed = power_down_gib(&sizes(64, 16, 16, 15)).1;
    for (report, words) in [
        (sizes(64, 16, 32, 15), "addresses are for 32 GiB (type 19)"),
        (sizes(64, 16, 32, 24), "the kernel manages 24 GiB"),
    ] {
        assert!(widened_by(&report, words), "{words}: {:?}", report.gaps);
        assert_eq!(power_down_gib(&report), (0.0, agreed));
        let total = report.verdict.total.unwrap();
        assert_eq!(total.high_bytes, Bytes(16 * GIB));
        assert!(total.low_bytes <= total.high_bytes);
    }
    // A unit that was mistaken.
    let report = sizes(64, 16, 16 << 10, 15);
    assert_eq!(problems(&report, "addresses"), [GapKind::Damaged]);
    assert_eq!((contradictions(&report).len(), power_down_gib(&report)), (0, (0.0, agreed)));
    // Larger modules than the maker tried are no contradiction.
    let report = sizes(8, 16, 16, 15);
    assert_eq!((contradictions(&report).len(), power_down_gib(&report)), (0, (0.0, agreed)));
    assert!(report.evidence.iter().any(|line| line.says.contains("at most 8 GiB in 2 sockets")));
}

fn says_how_a_host_offers_it(report: &DoctorReport) -> bool {
    report.verdict.because.iter().any(|sentence| sentence.contains("free-page-reporting=on"))
}

fn names_the_next_step(report: &DoctorReport) -> bool {
    report.verdict.because.iter().any(|sentence| sentence.starts_with("`ramslice giveback` says"))
}

#[test]
fn a_virtual_machine_has_nothing_and_says_whose_memory_it_is() {
    let guest = || {
        TestMachine::new()
            .file("proc/cpuinfo", "flags\t\t: fpu hypervisor\n")
            .file(
                "proc/meminfo",
                format!("MemTotal: {0} kB\nMemAvailable: {0} kB\n", 2 * GIB / KIB),
            )
            .file("sys/class/dmi/id/sys_vendor", "QEMU\n")
    };
    let report = guest().report("0-9.19".parse().ok());
    assert_eq!(
        (report.verdict.kind, report.findings.virtual_machine.is),
        (VerdictKind::Zero, VirtualVerdict::Yes)
    );
    assert!(
        report.verdict.headline.contains("virtual machine (QEMU)"),
        "{}",
        report.verdict.headline
    );
    assert_eq!((parameter(&report), report.verdict.returnable_bytes), (None, None));
    assert!(report.verdict.savings[0].high_mw.abs() < 1e-9);
    assert!(report.gaps.iter().all(|gap| !gap.widens), "{:?}", report.gaps);
    assert!(says_how_a_host_offers_it(&report));

    // Feature bit 5: free page reporting.
    let balloon = |features: &str| {
        let directory = "sys/bus/virtio/devices/virtio2";
        guest()
            .file(&format!("{directory}/device"), "0x0005\n")
            .file(&format!("{directory}/features"), features)
    };
    let report = balloon("1000010000").report(None);
    assert_eq!(report.verdict.returnable_bytes, Some(Bytes(2 * GIB)));
    assert!(report.findings.give_back[0].by_itself);
    assert_eq!(parameter(&report), Some("ramslice=4M"));
    assert!(!says_how_a_host_offers_it(&report), "it is offered");
    assert!(names_the_next_step(&report), "{:?}", report.verdict.because);
    let silent = balloon("1000000000").report(None);
    assert!(!silent.findings.give_back[0].by_itself);
    assert!(says_how_a_host_offers_it(&silent));
    assert!(!names_the_next_step(&silent), "nothing would reach the host");
    let report = guest().file("sys/bus/virtio/devices/virtio0/device", "0x0018\n").report(None);
    assert_eq!(report.findings.give_back[0].name, "virtio-mem");
}

#[test]
fn a_name_of_virtual_machines_on_a_processor_that_denies_it_is_a_contradiction() {
    let dmi =
        || SmbiosBuilder::default().array(1, 32 * GIB, 2).module(2, 1, 8 * GIB, DDR4, 2, "DIMM 0");
    let report = TestMachine::physical(7 * GIB)
        .file("sys/class/dmi/id/sys_vendor", "QEMU")
        .dmi(dmi())
        .report(None);
    assert_eq!(report.findings.virtual_machine.is, VirtualVerdict::Contradictory);
    assert!(widened_by(&report, "the processor denies"));
    assert_eq!(power_down_gib(&report), (0.0, 4.0));

    // Clouds rent whole machines under the same maker's name.
    let metal = TestMachine::physical(7 * GIB)
        .file("sys/class/dmi/id/sys_vendor", "Amazon EC2")
        .file("sys/class/dmi/id/product_name", "m5.metal");
    assert_eq!(metal.dmi(dmi()).report(None).findings.virtual_machine.is, VirtualVerdict::No);
}

#[test]
fn an_arm_board_without_smbios_is_open_and_says_so() {
    let report = TestMachine::new()
        .file("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n")
        .file("proc/meminfo", format!("MemTotal: {} kB\n", 8 * GIB / KIB))
        .file("sys/firmware/devicetree/base/model", "Board 3\0")
        .file("sys/firmware/devicetree/base/compatible", "maker,board-3\0maker,soc\0")
        .report(None);
    assert_eq!(report.findings.virtual_machine.is, VirtualVerdict::Unknown);
    assert_eq!(power_down_gib(&report), (0.0, 7.0));
    assert_eq!(problems(&report, "cpuinfo"), [GapKind::Silent]);
    assert!(widened_by(&report, "an eighth"));
    assert!(report.verdict.because.iter().any(|text| text.contains("If it is, the answer is 0 J")));
    assert!(report.gaps.iter().any(|gap| gap.input == "SMBIOS" && gap.widens));
    assert_eq!(parameter(&report), None);
    assert!(report.verdict.slice.because.contains("no table says what DRAM"));
}

#[test]
fn an_arm_guest_is_known_by_its_device_tree() {
    let report = TestMachine::new()
        .file("sys/firmware/devicetree/base/compatible", "linux,dummy-virt\0")
        .report(None);
    assert_eq!(report.verdict.kind, VerdictKind::Zero);
}

#[test]
fn an_empty_directory_has_no_verdict_and_lists_every_input() {
    let report = TestMachine::new().report("5".parse().ok());
    assert_eq!(report.verdict.kind, VerdictKind::Unknown);
    assert_eq!((report.verdict.power_down, parameter(&report)), (None, None));
    assert!(report.verdict.savings.is_empty());
    assert!(report.gaps.iter().all(|gap| gap.kind == GapKind::Absent && gap.widens));
    let inputs: Vec<&str> = report.gaps.iter().map(|gap| gap.input).collect();
    for input in
        ["SMBIOS", "MPST", "SRAT", "HMAT", "CXL", "DAX", "EDAC", "meminfo", "cpuinfo", "ramslice"]
    {
        assert_eq!(inputs.iter().filter(|name| **name == input).count(), 1, "{input}");
    }
    assert!(report.gaps.iter().all(|gap| !gap.would_tell.is_empty()));
}

#[test]
fn what_may_not_be_read_is_not_absent() {
    let denied = |paths: &[&str]| {
        let list: Vec<String> =
            paths.iter().map(|path| format!("\"{path}\": \"permission\"")).collect();
        format!("{{\"schema_version\": 1, \"problems\": {{{}}}}}", list.join(", "))
    };
    let notes = denied(&["sys/firmware/dmi/tables/DMI", "sys/firmware/acpi/tables/MPST"]);
    let report = TestMachine::physical(15 * GIB).file("ramslice-capture.json", notes).report(None);
    assert_eq!(problems(&report, "SMBIOS")[0], GapKind::Permission);
    assert_eq!(problems(&report, "MPST"), [GapKind::Permission]);
    assert!(report.gaps.iter().filter(|gap| gap.kind == GapKind::Permission).all(|gap| gap.widens));
    assert_eq!(power_down_gib(&report), (0.0, 15.0));
}

#[test]
fn drivers_that_stand_in_for_hardware_power_nothing_down() {
    let with = |driver: &str| {
        server(8, 1, false)
            .file("sys/kernel/mm/ramslice/enabled", "1\n")
            .file("sys/kernel/mm/ramslice/slice_bytes", format!("{}\n", 64 * MIB))
            .file("sys/kernel/mm/ramslice/power_driver", format!("{driver}\n"))
            .report(None)
    };
    for driver in ["none", "sim", "holes"] {
        let report = with(driver);
        assert_eq!(report.verdict.kind, VerdictKind::Zero, "{driver}");
        assert!(report.verdict.today.starts_with("Nothing is powered down today"));
    }
    // A driver that claims what tables deny: both are reported, and the verdict is open.
    let report = with("vendor");
    assert_eq!(report.verdict.kind, VerdictKind::Possible);
    assert!(widened_by(&report, "`vendor` says otherwise"));
    assert_eq!(power_down_gib(&report), (0.0, 128.0 - 0.0625));
}

#[test]
fn cxl_regions_are_memory_of_their_own() {
    let report = server(8, 1, false)
        .file("sys/bus/cxl/devices/region0/size", "0x800000000\n")
        .file("sys/bus/cxl/devices/region0/interleave_ways", "2\n")
        .file("sys/bus/cxl/devices/region0/interleave_granularity", "4096\n")
        .file("sys/bus/cxl/devices/mem0/ram/size", "0x400000000\n")
        .report(None);
    assert_eq!(power_down_gib(&report), (0.0, 128.0));
    assert!(report.evidence.iter().any(|line| line.says.contains("over 2 devices every 4 KiB")));
}

#[test]
fn edac_gives_modules_where_smbios_does_not() {
    let report = TestMachine::physical(15 * GIB)
        .file("sys/devices/system/edac/mc/mc0/dimm0/size", "8192\n")
        .file("sys/devices/system/edac/mc/mc0/dimm0/dimm_mem_type", "Unbuffered-DDR4\n")
        .file("sys/devices/system/edac/mc/mc0/dimm3/size", "8192\n")
        .file("sys/devices/system/edac/mc/mc0/dimm3/dimm_mem_type", "Unbuffered-DDR4\n")
        .report(None);
    assert_eq!(report.layout.groups.len(), 2);
    assert_eq!(power_down_gib(&report), (0.0, 15.0));
    assert_eq!(problems(&report, "SMBIOS"), [GapKind::Absent, GapKind::Silent]);
}

#[test]
fn edac_and_smbios_that_disagree_are_a_contradiction() {
    let report = laptop()
        .file("sys/devices/system/edac/mc/mc0/dimm0/size", "8192\n")
        .file("sys/devices/system/edac/mc/mc0/dimm1/size", "many\n")
        .report(None);
    assert!(
        report.gaps.iter().any(|gap| gap.input == "EDAC" && gap.detail.contains("reads `many`"))
    );
    let report = laptop().file("sys/devices/system/edac/mc/mc0/dimm0/size", "8192\n").report(None);
    assert!(widened_by(&report, "memory controllers see 8 GiB"));
}
