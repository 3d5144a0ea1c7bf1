//! Damaged, lying and random tables: never a panic, never an endless loop, never an impossible
//! verdict.

mod tables;

use proptest::prelude::*;
use ramslice_doctor::{
    DoctorReport, GapKind, MachineFindings, MwPerGib, VerdictKind, acpi, conclude, smbios,
};
use ramslice_types::Bytes;
use tables::{DDR4, GIB, LPDDR5, PowerNodeEntry, SmbiosBuilder, mpst, srat};

const QEMU_DMI: &[u8] = include_bytes!("data/qemu-q35-numa/DMI");
const QEMU_SRAT: &[u8] = include_bytes!("data/qemu-q35-numa/SRAT");
const QEMU_HMAT: &[u8] = include_bytes!("data/qemu-q35-numa/HMAT");

fn dmi() -> Vec<u8> {
    SmbiosBuilder::default()
        .array(1, 64 * GIB, 4)
        .module(2, 1, 16 * GIB, DDR4, 2, "A")
        .module(3, 1, 16 * GIB, LPDDR5, 0, "B")
        .array_range(4, 1, 0, 32 * GIB, 2)
        .module_range(5, 2, 0, 32 * GIB, 1)
        .module_range(6, 3, 0, 32 * GIB, 2)
        .end()
}

fn nodes() -> Vec<u8> {
    mpst(
        &[
            PowerNodeEntry(0, 3, 0, GIB),
            PowerNodeEntry(1, 3, GIB, GIB),
            PowerNodeEntry(2, 3, 2 * GIB, GIB),
            PowerNodeEntry(7, 3, 0, 3 * GIB),
        ],
        100,
        50,
        2,
    )
}

/// Reads all four, and concludes. What must hold of any verdict is checked here.
fn examine(dmi: &[u8], mpst: &[u8], srat: &[u8], hmat: &[u8]) -> DoctorReport {
    let findings = MachineFindings {
        smbios: Some(smbios::parse(dmi).0),
        mpst: acpi::parse_mpst(mpst).0,
        srat: acpi::parse_srat(srat).0,
        hmat: acpi::parse_hmat(hmat).0,
        mem_total_bytes: Some(Bytes(31 * GIB)),
        ..MachineFindings::default()
    };
    let report = conclude(findings, MwPerGib::new(1.0, 2.0));
    let verdict = &report.verdict;
    if let Some(part) = verdict.power_down {
        assert!(part.low_bytes <= part.high_bytes);
        let share = |share: Option<f64>| share.is_none_or(|share| (0.0..=1.0).contains(&share));
        assert!(share(verdict.low_share) && share(verdict.high_share));
        assert!(verdict.kind != VerdictKind::Zero || part.high_bytes == Bytes::ZERO);
        assert!(verdict.savings.iter().all(|saving| saving.low_mw <= saving.high_mw));
    }
    // Whatever tables say, there is no more than the modules have, or it is said that one hides it.
    let modules: Vec<_> = report.findings.modules().map(|module| module.size_bytes).collect();
    let sum: Option<Vec<Bytes>> = modules.iter().copied().collect();
    if let (Some(part), false) = (verdict.power_down, modules.is_empty()) {
        match sum {
            Some(sizes) => {
                let sum: Bytes = sizes.into_iter().sum();
                assert!(part.high_bytes <= sum, "{} of {sum}", part.high_bytes);
            }
            None => assert!(
                report.gaps.iter().any(|gap| gap.detail.contains("no bound here")),
                "{:?}",
                report.gaps
            ),
        }
    }
    for gap in report.gaps.iter().filter(|gap| gap.kind == GapKind::Contradictory) {
        let [one, other] = gap.statements.as_ref().expect("two statements");
        assert!(!one.is_empty() && !other.is_empty() && one != other, "{gap:?}");
        assert!(gap.detail.contains(one) && gap.detail.contains(other), "{gap:?}");
    }
    let text = serde_json::to_string(&report).unwrap();
    assert!(!text.contains("\\u0000"), "{text}");
    if let Some(size) = verdict.slice.slice_bytes {
        assert!(size.0 > 0 && size.0 % (2 << 20) == 0, "{size}");
    }
    report
}

/// A table with some bytes changed, and cut.
fn mutated(table: Vec<u8>) -> impl Strategy<Value = Vec<u8>> {
    let length = table.len();
    let change = (0..length, prop_oneof![Just(0u8), Just(1), Just(0x7f), Just(0xff), any::<u8>()]);
    let cut = prop_oneof![3 => Just(length), 1 => 0..=length];
    (prop::collection::vec(change, 0..8), cut).prop_map(move |(changes, cut)| {
        let mut table = table.clone();
        for (at, byte) in changes {
            table[at] = byte;
        }
        table.truncate(cut);
        table
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None,
        ..ProptestConfig::default() })]

    #[test]
    fn mutated_tables_get_a_verdict(
        dmi in prop_oneof![mutated(dmi()), mutated(QEMU_DMI.to_vec())],
        mpst in prop_oneof![mutated(nodes()), Just(Vec::new())],
        srat in prop_oneof![mutated(srat(&[(0, 0, GIB), (1, GIB, GIB)])),
            mutated(QEMU_SRAT.to_vec())],
        hmat in mutated(QEMU_HMAT.to_vec()),
    ) {
        examine(&dmi, &mpst, &srat, &hmat);
    }

    #[test]
    fn random_bytes_get_a_verdict(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let with = |signature: &[u8; 4]| tables::acpi(signature, &bytes);
        examine(&bytes, &with(b"MPST"), &with(b"SRAT"), &with(b"HMAT"));
        examine(&bytes, &bytes, &bytes, &bytes);
    }

    /// A truncated table is always reported as damaged: its end is known to be missing.
    #[test]
    fn a_cut_table_is_a_damaged_table(cut in 0usize..100) {
        let share = |table: &[u8]| table[..table.len() * cut / 100].to_vec();
        prop_assert!(!smbios::parse(&share(&dmi())).1.is_empty());
        prop_assert!(!acpi::parse_mpst(&share(&nodes())).1.is_empty());
        prop_assert!(!acpi::parse_srat(&share(QEMU_SRAT)).1.is_empty());
        prop_assert!(!acpi::parse_hmat(&share(QEMU_HMAT)).1.is_empty());
    }
}

#[test]
fn whole_tables_have_no_flaws() {
    assert_eq!(smbios::parse(&dmi()).1, []);
    assert_eq!(smbios::parse(QEMU_DMI).1, []);
    assert_eq!(acpi::parse_mpst(&nodes()).1, []);
    assert_eq!(acpi::parse_srat(QEMU_SRAT).1, []);
    assert_eq!(acpi::parse_hmat(QEMU_HMAT).1, []);
}

#[test]
fn lengths_that_would_never_get_on_end_the_table() {
    // A structure of 0 bytes, and entries of 0 bytes.
    for length in 0..4 {
        let (smbios, flaws) = smbios::parse(&[16, length, 1, 0, 0, 0, 127, 4, 2, 0, 0, 0]);
        assert_eq!(smbios.arrays, []);
        assert!(flaws[0].what.contains("4 is the least"), "{flaws:?}");
    }
    assert_eq!(acpi::parse_srat(&tables::acpi(b"SRAT", &[0; 64])).1.len(), 1);
    assert_eq!(acpi::parse_hmat(&tables::acpi(b"HMAT", &[0; 64])).1.len(), 1);
    let mut table = nodes();
    table[48..52].copy_from_slice(&1u32.to_le_bytes());
    let flaws = acpi::parse_mpst(&table).1;
    assert!(flaws.iter().any(|flaw| flaw.what.contains("says that it has 1 bytes")), "{flaws:?}");
}

#[test]
fn counts_that_lie_end_where_the_table_does() {
    let mut table = nodes();
    table[40..42].fill(0xff);
    let (mpst, flaws) = acpi::parse_mpst(&table);
    // What follows the four nodes is not taken for nodes.
    assert_eq!(mpst.unwrap().nodes.len(), 4);
    assert!(flaws.iter().any(|flaw| flaw.what.contains("node 4")), "{flaws:?}");
}

#[test]
fn more_modules_than_any_machine_has_are_left_out() {
    let mut dmi = SmbiosBuilder::default();
    for handle in 0..3000 {
        dmi = dmi.module(handle, 1, GIB, DDR4, 1, "A").module_range(
            10_000 + handle,
            handle,
            0,
            GIB,
            1,
        );
    }
    let (smbios, flaws) = smbios::parse(&dmi.end());
    assert_eq!((smbios.devices.len(), smbios.device_mappings.len()), (1024, 1024));
    assert_eq!(flaws.len(), 2);
}

#[test]
fn the_tables_of_qemu_say_what_qemu_was_started_with() {
    let (smbios, _) = smbios::parse(QEMU_DMI);
    assert_eq!(smbios.manufacturer.as_deref(), Some("QEMU"));
    let [module] = smbios.devices.as_slice() else { panic!("{:?}", smbios.devices) };
    assert_eq!((module.size_bytes, module.type_name), (Some(Bytes(GIB)), "RAM"));
    assert_eq!(smbios.arrays[0].sockets, 1);
    assert_eq!(smbios.array_mappings[0].range.size(), Bytes(GIB));
    let srat = acpi::parse_srat(QEMU_SRAT).0.unwrap();
    let end = |domain| {
        srat.memory
            .iter()
            .filter(|memory| memory.domain == domain)
            .map(|memory| memory.range.end_bytes)
            .max()
    };
    assert_eq!((end(0), end(1)), (Some(GIB / 2), Some(GIB)));
    let hmat = acpi::parse_hmat(QEMU_HMAT).0.unwrap();
    assert_eq!((hmat.domains.len(), hmat.latency_tables, hmat.caches.len()), (2, 1, 0));
}
