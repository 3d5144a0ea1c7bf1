//! What public dumps of real firmware have: each is a small table of the same shape.

mod tables;

use ramslice_doctor::{ByteInterval, DoctorReport, GapKind, VerdictKind, VirtualVerdict};
use ramslice_types::Bytes;
use tables::{DDR4, GIB, KIB, MIB, PowerNodeEntry, SmbiosBuilder, TestMachine, mpst, srat};

const FLASH: u8 = 0x09;

/// The high end, and how many contradictions were found.
fn high_end(report: &DoctorReport) -> (Bytes, usize) {
    let ByteInterval { low_bytes, high_bytes } = report.verdict.power_down.unwrap();
    assert_eq!(low_bytes, Bytes::ZERO);
    (high_bytes, contradictions(report))
}

fn contradictions(report: &DoctorReport) -> usize {
    report.gaps.iter().filter(|gap| gap.kind == GapKind::Contradictory).count()
}

fn damaged(report: &DoctorReport) -> bool {
    report.gaps.iter().any(|gap| gap.kind == GapKind::Damaged)
}

/// Modules of 8 GiB with one rank each, in an array with handle 1; their handles are 2, 3, ...
fn modules(count: u16) -> SmbiosBuilder {
    (0..count).fold(SmbiosBuilder::default().array(1, 64 * GIB, 8), |dmi, number| {
        dmi.module(2 + number, 1, 8 * GIB, DDR4, 1, &format!("DIMM{number}"))
    })
}

fn report(dmi: SmbiosBuilder, total_gib: u64) -> DoctorReport {
    TestMachine::physical(total_gib * GIB * 31 / 32).dmi(dmi).report(None)
}

#[test]
fn flash_and_arrays_of_other_uses_do_not_count() {
    let plain = high_end(&report(modules(2), 16));
    assert_eq!(plain, (Bytes(8 * GIB), 0));
    let flash = modules(2).module(40, 1, 16 * MIB, FLASH, 0, "SPI ROM");
    assert_eq!(high_end(&report(flash, 16)), plain);
    // Video memory, use 4, with addresses of its own.
    let video = modules(2)
        .array_for(50, 4, 4 * GIB, 1)
        .module(51, 50, 4 * GIB, DDR4, 1, "VIDEO")
        .array_range(52, 50, 64 * GIB, 4 * GIB, 1)
        .module_range(53, 51, 64 * GIB, 4 * GIB, 0);
    let report = report(video, 16);
    assert_eq!(high_end(&report), plain);
    assert!(report.evidence.iter().any(|line| line.so == "no system memory: not counted"));
}

#[test]
fn mappings_that_say_nothing_are_no_damage_and_no_memory() {
    let with = |change: fn(SmbiosBuilder) -> SmbiosBuilder| {
        let dmi = change(modules(2).empty_socket(30, 1))
            .module_range(60, 2, 0, 8 * GIB, 0)
            .module_range(61, 3, 8 * GIB, 8 * GIB, 0);
        report(dmi, 16)
    };
    let changes: [fn(SmbiosBuilder) -> SmbiosBuilder; 7] = [
        // An end of all ones, and a start.
        |dmi| dmi.array_range_kib(4, 1, 0, u32::MAX),
        |dmi| dmi.array_range_kib(4, 1, u32::MAX, 5),
        // The extended fields are all ones, too.
        |dmi| dmi.array_range_kib(4, 1, u32::MAX, u32::MAX),
        // An empty socket at 0 to 1 KiB, and from an address to the one before it.
        |dmi| dmi.module_range_kib(4, 30, 0, 0),
        |dmi| dmi.module_range_kib(4, 30, 0x20_0000, 0x1f_ffff),
        // Anything at all for an empty socket.
        |dmi| dmi.module_range_kib(4, 30, 0, 0x10_0000),
        |dmi| dmi.module_range_kib(4, 30, 0x20_0000, 5),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        let report = with(change);
        assert_eq!(high_end(&report), (Bytes(8 * GIB), 0), "{number}: {:?}", report.gaps);
        assert!(!damaged(&report), "{number}: {:?}", report.gaps);
        assert!(report.layout.interleaving_known, "{number}");
        assert_eq!(report.findings.smbios.unwrap().unused_mappings, usize::from(number != 6));
    }
}

#[test]
fn a_range_that_ends_before_it_starts_is_damage_where_there_is_a_module() {
    let report = report(modules(2).module_range_kib(4, 2, 0x20_0000, 5), 16);
    assert!(damaged(&report), "{:?}", report.gaps);
}

#[test]
fn the_hole_that_type_19_counts_is_no_memory() {
    let dmi = modules(1).array_range(9, 1, 0, 35 * GIB / 4, 1);
    let report = report(dmi, 8);
    assert_eq!(contradictions(&report), 0, "{:?}", report.gaps);
    assert_eq!(report.verdict.total.unwrap().high_bytes, Bytes(8 * GIB));
}

#[test]
fn modules_with_the_same_start_and_a_position_are_interleaved() {
    // As many addresses as one module has, and as all.
    for size in [8 * GIB, 16 * GIB] {
        let dmi = modules(2)
            .array_range(9, 1, 0, 16 * GIB, 2)
            .module_range(10, 2, 0, size, 1)
            .module_range(11, 3, 0, size, 2);
        let report = report(dmi, 16);
        assert_eq!(report.verdict.kind, VerdictKind::Zero, "{:?}", report.gaps);
        assert_eq!(contradictions(&report), 0);
        assert!(report.layout.interleaving_known);
        assert_eq!(report.layout.groups[0].size_bytes, Bytes(16 * GIB));
    }
}

#[test]
fn modules_that_share_addresses_and_deny_it_contradict_themselves() {
    let dmi = modules(2).module_range(10, 2, 0, 16 * GIB, 0).module_range(11, 3, 0, 16 * GIB, 0);
    let report = report(dmi, 16);
    assert_eq!(high_end(&report), (Bytes(8 * GIB), 1), "{:?}", report.gaps);
}

#[test]
fn smbios_without_the_hole_and_srat_with_it_agree() {
    // Five modules in each socket; SRAT is 2 GiB further from 4 GiB on.
    let dmi = (0..10u16).fold(modules(10), |dmi, number| {
        dmi.module_range(60 + number, 2 + number, u64::from(number) * 8 * GIB, 8 * GIB, 0)
    });
    let domains = [(0, 0, 2 * GIB), (0, 4 * GIB, 38 * GIB), (1, 42 * GIB, 40 * GIB)];
    let machine =
        TestMachine::physical(78 * GIB).dmi(dmi).table("SRAT", &srat(&domains)).report(None);
    assert_eq!(high_end(&machine), (Bytes(72 * GIB), 0), "{:?}", machine.gaps);
    assert_eq!(machine.layout.groups.len(), 10);
}

#[test]
fn ranges_a_megabyte_short_give_the_modules_size() {
    let dmi = (0..4u16).fold(modules(4), |dmi, number| {
        let start = u64::from(number) * 8 * GIB;
        dmi.module_range(60 + number, 2 + number, start, 8 * GIB - MIB, 0)
    });
    let first = report(dmi, 32);
    assert_eq!(high_end(&first), (Bytes(24 * GIB), 0), "{:?}", first.gaps);
    assert_eq!(first.verdict.slice.parameter.as_deref(), Some("ramslice=8G"));
    // Each starts where the one before it ended early.
    let dmi = (0..4u16).fold(modules(4), |dmi, number| {
        let size = 8 * GIB - MIB;
        dmi.module_range(60 + number, 2 + number, u64::from(number) * size, size, 0)
    });
    assert_eq!(report(dmi, 32).verdict.slice.parameter.as_deref(), Some("ramslice=8G"));
}

#[test]
fn the_detail_bit_tells_persistent_memory_only_where_others_lack_it() {
    let optane = modules(2).module_with_detail(40, 1, 126 * GIB, DDR4, 1 << 12, "A2").array_range(
        41,
        1,
        0,
        142 * GIB,
        1,
    );
    assert_eq!(high_end(&report(optane, 16)), (Bytes(8 * GIB), 0));
    let all = SmbiosBuilder::default()
        .array(1, 64 * GIB, 8)
        .module_with_detail(2, 1, 8 * GIB, DDR4, 1 << 12, "A")
        .module_with_detail(3, 1, 8 * GIB, DDR4, 1 << 12, "B");
    let report = report(all, 16);
    assert_eq!(report.verdict.total.unwrap().high_bytes, Bytes(16 * GIB));
}

#[test]
fn a_module_of_unknown_size_takes_the_bound_away_and_says_so() {
    let report = report(modules(1).module_of_unknown_size(40, 1, DDR4, "DIMM9"), 16);
    let told = |gap: &ramslice_doctor::InputGap| gap.detail.contains("the size of DIMM9 (type 17)");
    assert!(report.gaps.iter().any(told), "{:?}", report.gaps);
}

#[test]
fn the_cache_that_sysfs_shows_to_all_users_is_read() {
    let machine = || {
        TestMachine::physical(1024 * GIB)
            .file("sys/firmware/devicetree/base/model", "none\0")
            .file("sys/devices/system/node/node0/memory_side_cache/index1/line_size", "64\n")
    };
    let size = "sys/devices/system/node/node0/memory_side_cache/index1/size";
    assert_eq!(machine().report(None).verdict.kind, VerdictKind::Possible);
    let report = machine().file(size, format!("{}\n", 96 * GIB)).report(None);
    assert_eq!(report.verdict.kind, VerdictKind::Unknown);
    assert!(report.verdict.headline.contains("DRAM is a cache"), "{}", report.verdict.headline);
    assert_eq!(report.findings.side_caches[0].size_bytes, Bytes(96 * GIB));
}

#[test]
fn dax_devices_below_a_bus_of_persistent_memory_are_no_dram() {
    let machine = |device: &str| {
        let path = format!("sys/devices/{device}/dax0.0");
        let machine = TestMachine::physical(31 * GIB)
            .file(&format!("{path}/size"), format!("{}\n", 16 * GIB));
        std::fs::create_dir_all(machine.path().join("sys/bus/dax/devices")).unwrap();
        let link = machine.path().join("sys/bus/dax/devices/dax0.0");
        std::os::unix::fs::symlink(format!("../../../devices/{device}/dax0.0"), link).unwrap();
        machine.report(None)
    };
    let persistent = machine("LNXSYSTM:00/ACPI0012:00/ndbus0/region0");
    assert!(persistent.findings.dax[0].persistent);
    assert_eq!(persistent.layout.set_aside_bytes, Bytes::ZERO);
    assert_eq!(machine("platform/hmem.0").layout.set_aside_bytes, Bytes(16 * GIB));
}

#[test]
fn the_primary_vm_of_gunyah_is_no_guest() {
    let tree = "sys/firmware/devicetree/base";
    let phone = |vmid: Option<u32>| {
        let machine = TestMachine::new()
            .file("proc/cpuinfo", "processor\t: 0\n")
            .file("proc/meminfo", format!("MemTotal: {} kB\n", 11 * GIB / KIB))
            .file(&format!("{tree}/model"), "Some tablet\0")
            .file(&format!("{tree}/compatible"), "some,tablet\0some,soc\0")
            .file(
                &format!("{tree}/hypervisor/compatible"),
                "qcom,gunyah-hypervisor-1.0\0qcom,gunyah-hypervisor\0simple-bus\0",
            );
        match vmid {
            None => machine,
            Some(id) => machine
                .file(&format!("{tree}/hypervisor/qcom,gunyah-vm/qcom,vmid"), id.to_be_bytes()),
        }
    };
    for vmid in [None, Some(3)] {
        let report = phone(vmid).report(None);
        assert_ne!(report.findings.virtual_machine.is, VirtualVerdict::Yes);
        assert_eq!(report.verdict.kind, VerdictKind::Possible);
        let text = serde_json::to_string(&report).unwrap();
        assert!(!text.contains("\\u0000") && text.contains("qcom,gunyah-hypervisor, simple-bus"));
    }
    assert_eq!(phone(Some(45)).report(None).findings.virtual_machine.is, VirtualVerdict::Yes);
}

#[test]
fn a_vendors_driver_for_segments_is_recognised_and_named() {
    let tree = "sys/firmware/devicetree/base";
    let phone = || {
        TestMachine::new()
            .file("proc/cpuinfo", "processor\t: 0\n")
            .file("proc/meminfo", format!("MemTotal: {} kB\n", 11 * GIB / KIB))
            .file(&format!("{tree}/compatible"), "some,soc\0")
            .file(&format!("{tree}/mem-offline/compatible"), "qcom,mem-offline\0")
    };
    let because = |machine: TestMachine| machine.report(None).verdict.because.join(" ");
    let granule = format!("{tree}/mem-offline/granule");
    let text = because(phone().file(&granule, 512u32.to_be_bytes()));
    assert!(text.contains("Qualcomm mem-offline powers a segment down when all"), "{text}");
    assert!(text.contains("multiples of 512 MiB") && text.contains("does not have it"), "{text}");
    let text = because(phone().file("sys/kernel/mem-offline/anon_migrate", "0\n"));
    assert!(text.contains("--backend stock"), "{text}");
    let sysfs = "sys/kernel/mem-offline";
    let text = because(phone().file(&format!("{sysfs}/offline_granule"), "268435456\n"));
    assert!(text.contains("multiples of 256 MiB"), "{text}");
    let unequal = |sizes: [&str; 2]| {
        let seg_size = |number| format!("{sysfs}/seg_info/segment{number}/seg_size");
        phone().file(&seg_size(0), sizes[0]).file(&seg_size(1), sizes[1])
    };
    let text = because(unequal(["536870912\n", "67108864\n"]));
    assert!(text.contains("segments differ, from 64 MiB to 512 MiB; slices should"), "{text}");
    let damaged = unequal(["536870912\n", "much\n"]).report(None);
    assert!(damaged.gaps.iter().any(|gap| gap.path.ends_with("segment1/seg_size")));
    let damaged = phone().file(&granule, "lots").file(&granule, [1, 2]).report(None);
    assert!(damaged.gaps.iter().any(|gap| gap.path.ends_with("/granule")), "{:?}", damaged.gaps);
    let none = TestMachine::physical(16 * GIB).report(None).verdict.because.join(" ");
    assert!(none.contains("none was found here"), "{none}");
}

/// A region of the node `ddr-regions`.
fn region(start: u64, bytes: u64, offset: u64, granule_mib: u64) -> Vec<u8> {
    [start, bytes, offset, 0, granule_mib].map(u64::to_be_bytes).concat()
}

#[test]
fn segments_that_a_device_tree_has_are_counted() {
    let node = "sys/firmware/devicetree/base/ddr-regions";
    let phone = |regions: &[Vec<u8>]| {
        let machine = phone_with("soc", "simple-bus");
        let numbered = regions.iter().enumerate();
        numbered.fold(machine, |machine, (number, region)| {
            machine.file(&format!("{node}/region{number}"), region)
        })
    };
    let report = phone(&[
        region(2 * GIB, 2 * GIB, 0, 512),
        region(4 * GIB, GIB, 0, 0),
        region(5 * GIB, GIB, 100 * MIB, 256),
        region(6 * GIB, GIB, 2 * GIB, 256),
    ])
    .report(None);
    let found = report.findings.ddr_regions.as_ref().unwrap();
    assert_eq!((found.regions, found.segments), (4, 7));
    assert_eq!(found.segment_bytes, Some((Bytes(256 * MIB), Bytes(512 * MIB))));
    let line = report.evidence.iter().find(|line| line.input == "segments").unwrap();
    assert_eq!(line.says, "4 regions, 7 whole segments of 256 MiB to 512 MiB");
    assert!(report.verdict.because.join(" ").contains("`ramslice=firmware` makes slices"));

    let nothing = phone(&[region(2 * GIB, GIB, 0, 0)]).report(None);
    let line = nothing.evidence.iter().find(|line| line.input == "segments").unwrap();
    assert_eq!(line.so, "nothing to power down");
    let beyond = region(u64::MAX, GIB, 0, 512);
    for damaged in [vec![0; 39], vec![0; 48], Vec::new(), beyond, region(0, GIB, 0, u64::MAX)] {
        let report = phone(&[damaged]).report(None);
        assert!(report.gaps.iter().any(|gap| gap.path.ends_with("ddr-regions/region0")));
    }
}

/// A phone whose device tree has a node that is compatible with this.
fn phone_with(node: &str, compatible: &str) -> TestMachine {
    let tree = "sys/firmware/devicetree/base";
    TestMachine::new()
        .file("proc/cpuinfo", "processor\t: 0\n")
        .file("proc/meminfo", format!("MemTotal: {} kB\n", 4 * GIB / KIB))
        .file(&format!("{tree}/compatible"), "some,phone\0some,soc\0")
        .file(&format!("{tree}/{node}/compatible"), format!("{compatible}\0"))
}

/// What is found of a driver: the size and the unequal sizes of its segments in MiB, what the
/// evidence says and why the low end is 0.
fn segments(report: &DoctorReport) -> (Option<u64>, Option<(u64, u64)>, String, String) {
    let driver = &report.findings.segment_drivers[0];
    let mib = |bytes: Bytes| bytes.0 / MIB;
    let line = report.evidence.iter().find(|line| line.input == "segments").unwrap();
    (
        driver.granule_bytes.map(mib),
        driver.unequal_bytes.map(|(least, most)| (mib(least), mib(most))),
        format!("{}: {}", line.says, line.so),
        report.verdict.because.join(" "),
    )
}

#[test]
fn mediateks_driver_is_recognised_by_each_form_of_its_banks() {
    let node = "reserved-memory/memory-lowpower-reserved-memory";
    let phone = || phone_with(node, "mediatek,memory-lowpower");
    let (granule, unequal, says, because) = segments(&phone().report(None));
    assert_eq!((granule, unequal), (None, None));
    assert_eq!(says, "MediaTek PASR: not in the running kernel");
    assert!(because.contains("MediaTek PASR empties segments when the screen goes off"));
    assert!(because.contains("does not have it"), "{because}");

    // 512 MiB each, as the driver for CMA shows them, with the last page frame included.
    let of_cma = "Bank[ 0] - start_pfn[ c0000] end_pfn[ dffff] segment[ 4] rank[0] [ON]\n\
                  Bank[ 1] - start_pfn[ e0000] end_pfn[ fffff] segment[ 5] rank[0] \n";
    // The older one counts in decimal before it lists.
    let older = "num_banks[2] num_ranks[1] mtkpasr_start_pfn[786432] mtkpasr_end_pfn[1048576]\n\
                 Rank[0] - start_bank[0] end_bank[1]\n  \
                 Bank[0] - start_pfn[0xc0000] end_pfn[0xdffff] inmafl[0] segment[4]\n  \
                 Bank[1] - start_pfn[0xe0000] end_pfn[0xfffff] inmafl[131072] segment[5]\n\
                 Exhausted level[2048]\n";
    let running = |banks: &str| phone().file("sys/power/mtkpasr/membank", banks);
    for banks in [of_cma, older] {
        let (granule, unequal, says, because) = segments(&running(banks).report(None));
        assert_eq!((granule, unequal), (Some(512), None), "{banks}");
        assert_eq!(says, "MediaTek PASR, units of 512 MiB: powers down what it empties itself");
        assert!(because.contains("it leaves powered what `ramslice` takes"));
        assert!(because.contains("Its segments have 512 MiB each."), "{because}");
        assert!(!because.contains("--backend stock"), "{because}");
    }
    let cut = of_cma.replace("end_pfn[ fffff]", "end_pfn[ effff]");
    let (granule, unequal, _, because) = segments(&running(&cut).report(None));
    assert_eq!((granule, unequal), (None, Some((256, 512))));
    assert!(because.contains("Its segments have from 256 MiB to 512 MiB."), "{because}");

    // Older kernels have no node for it.
    let old = TestMachine::physical(4 * GIB).file("sys/power/mtkpasr/membank", older);
    assert_eq!(segments(&old.report(None)).0, Some(512));
    assert_eq!(segments(&running("MTKPASR is not initialized!\n").report(None)).0, None);
}

#[test]
fn banks_that_make_no_sense_are_reported_and_the_others_read() {
    let banks = |second: &str| {
        let text = format!("Bank[0] - start_pfn[c0000] end_pfn[dffff] segment[4]\n{second}\n");
        TestMachine::physical(4 * GIB).file("sys/power/mtkpasr/membank", text).report(None)
    };
    for second in [
        "Bank[1] - start_pfn[e0000] segment[5]",
        "Bank[1] - start_pfn[e0000] end_pfn[many] segment[5]",
        "Bank[1] - start_pfn[e0000 end_pfn[fffff",
        "Bank[1] - start_pfn[fffff] end_pfn[e0000] segment[5]",
        "Bank[1] - start_pfn[0] end_pfn[ffffffffffffffff] segment[5]",
    ] {
        let report = banks(second);
        let gap = report.gaps.iter().find(|gap| gap.path.ends_with("mtkpasr/membank")).unwrap();
        assert_eq!(gap.kind, GapKind::Damaged, "{second}");
        assert!(gap.detail.contains("page frame in hexadecimal"), "{}", gap.detail);
        assert_eq!(segments(&report).0, Some(512), "{second}");
    }
    let right = banks("Bank[1] - start_pfn[e0000] end_pfn[fffff] segment[5]");
    assert!(!right.gaps.iter().any(|gap| gap.path.ends_with("mtkpasr/membank")));
}

#[test]
fn samsungs_driver_has_memory_blocks_for_segments_and_may_run() {
    let phone =
        || phone_with("pasr", "samsung,exynos-pasr").blocks(&[0..2 * GIB, 4 * GIB..6 * GIB]);
    let (granule, _, says, because) = segments(&phone().report(None));
    assert_eq!(
        (granule, says.as_str()),
        (Some(128), "Samsung PASR, units of 128 MiB: not in the running kernel")
    );
    assert!(because.contains("takes movable memory blocks offline for suspend"), "{because}");
    let running = phone().file("sys/bus/platform/drivers/exynos-pasr/uevent", "");
    let (_, _, says, because) = segments(&running.report(None));
    assert!(says.ends_with("powers down what it empties itself"), "{says}");
    assert!(because.contains("leaves powered") && !because.contains("have it."), "{because}");
}

#[test]
fn a_row_of_more_modules_than_there_are_says_nothing() {
    let so = |width: u8| {
        let dmi = SmbiosBuilder::default()
            .array(1, 32 * GIB, 2)
            .module(2, 1, 8 * GIB, DDR4, 1, "A")
            .module(3, 1, 8 * GIB, DDR4, 1, "B")
            .array_range(4, 1, 0, 16 * GIB, width);
        let report = TestMachine::physical(15 * GIB).dmi(dmi).report(None);
        let line = report.evidence.iter().find(|line| line.says.contains("(type 19)")).unwrap();
        assert_eq!(line.says, "16 GiB in 1 range (type 19)");
        line.so.clone()
    };
    assert_eq!(so(2), "2 modules form a row, says type 19: likely interleaved");
    for width in [0, 1, 3, 255] {
        assert_eq!(so(width), "says nothing of interleaving");
    }
}

#[test]
fn nodes_without_a_length_are_read_by_their_counts() {
    let nodes = [PowerNodeEntry(0, 3, 0, 8 * GIB), PowerNodeEntry(1, 3, 8 * GIB, 8 * GIB)];
    let mut table = mpst(&nodes, 100, 50, 2);
    for at in [48, 48 + 38] {
        table[at..at + 4].fill(0);
    }
    table[9] = 0;
    table[9] = table.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    let report = TestMachine::physical(16 * GIB).table("MPST", &table).report(None);
    let ByteInterval { low_bytes, high_bytes } = report.verdict.power_down.unwrap();
    assert_eq!((low_bytes, high_bytes), (Bytes(8 * GIB), Bytes(8 * GIB)), "{:?}", report.gaps);
    let note = report.gaps.iter().find(|gap| gap.input == "MPST").unwrap();
    assert_eq!((note.kind, note.widens), (GapKind::Silent, false));
    assert!(note.detail.contains("read by its counts"), "{}", note.detail);
}

#[test]
fn a_kernel_with_less_than_half_of_the_modules_is_explained_and_not_contradicted() {
    let machine = |managed: u64| TestMachine::physical(managed).dmi(modules(4));
    let sentence = |machine: TestMachine| {
        let report = machine.report(None);
        assert_eq!(high_end(&report), (Bytes(24 * GIB), 0), "{:?}", report.gaps);
        report.verdict.because.into_iter().find(|text| text.starts_with("The kernel manages"))
    };
    assert_eq!(sentence(machine(16 * GIB)), None);
    let little = || machine(16 * GIB - MIB);
    // mem=16G leaves no blocks above.
    for blocks in [0..0, 0..15 * GIB] {
        let text = sentence(little().blocks(&[blocks])).unwrap();
        assert!(text.contains("less than half of what the modules have (32 GiB)"), "{text}");
        for cause in ["`mem=`", "mirrored", "crashed", "hypervisor"] {
            assert!(text.contains(cause), "{cause}: {text}");
        }
    }
    let text = sentence(little().blocks(&[0..2 * GIB, 4 * GIB..34 * GIB])).unwrap();
    assert!(text.contains("memory blocks for 32 GiB, of which the rest is offline"), "{text}");
    assert!(!text.contains("mem="), "{text}");
}

#[test]
fn a_guest_or_memory_that_is_set_aside_is_not_little_managed() {
    let told = |machine: TestMachine| {
        let because = machine.dmi(modules(4)).report(None).verdict.because;
        because.iter().any(|text| text.starts_with("The kernel manages"))
    };
    let guest = "vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor\n\n";
    assert!(told(TestMachine::physical(8 * GIB)));
    assert!(!told(TestMachine::physical(8 * GIB).file("proc/cpuinfo", guest)));
    let size = format!("{}\n", 20 * GIB);
    let dax = TestMachine::physical(8 * GIB).file("sys/bus/dax/devices/dax0.0/size", size);
    assert!(!told(dax));
}
