//! A thousand machines whose tables agree, as firmware writes them, and a thousand of which one
//! statement is false: only in these is anything called contradictory, by both statements.

mod tables;

use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use ramslice_doctor::smbios::DramKind;
use ramslice_doctor::{EdacModule, GapKind, InputGap, MachineFindings, acpi, conclude, smbios};
use ramslice_types::Bytes;
use tables::{DDR4, GIB, LPDDR5, MIB, PowerNodeEntry, SmbiosBuilder, mpst, srat};

const MACHINES: usize = 1000;
const DDR5: u8 = 0x22;
const FLASH: u8 = 0x09;

/// How firmware writes the addresses of modules (type 20).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mapping {
    /// Not at all.
    None,
    /// One after the other, not interleaved.
    Apart,
    /// One after the other, with places in an interleave.
    Consecutive,
    /// All with the addresses of all.
    Shared,
    /// All with as many addresses as one has, from the same start.
    SameStart,
    /// One after the other, each some KiB or a MiB short.
    Short,
    /// Shared by the two modules of each pair.
    Pairs,
}

/// A machine and the ways of its firmware.
#[derive(Debug, Clone)]
struct Machine {
    modules: u16,
    module_bytes: u64,
    kind: u8,
    ranks: u8,
    mapping: Mapping,
    /// Size of the hole below 4 GiB.
    hole_bytes: u64,
    /// Type 19 counts the hole, if there is one.
    counts_hole: bool,
    /// Two domains of the SRAT, with the hole.
    sockets: bool,
    empty_sockets: u16,
    flash: bool,
    /// Type 19 with an end of all ones.
    end_of_ones: bool,
    /// The kernel's share, in 1/128.
    managed: u64,
    edac: bool,
    nodes: bool,
}

fn machine() -> impl Strategy<Value = Machine> {
    use Mapping::{Apart, Consecutive, None, Pairs, SameStart, Shared, Short};
    let modules = (
        prop::sample::select(vec![1u16, 2, 3, 4, 6, 8, 12, 16]),
        prop::sample::select(vec![4u64, 8, 16, 32, 64]),
        prop::sample::select(vec![DDR4, DDR5, LPDDR5]),
        0u8..3,
        prop::sample::select(vec![None, Apart, Consecutive, Shared, SameStart, Short, Pairs]),
    );
    let ways = (
        prop::sample::select(vec![512 * MIB, GIB, 2 * GIB, 2056 * MIB, 3 * GIB]),
        any::<(bool, bool, bool, bool, bool, bool)>(),
        0u16..4,
        116u64..127,
    );
    (modules, ways).prop_map(
        |((modules, gib, kind, ranks, mapping), (hole_bytes, flags, empty_sockets, managed))| {
            let (counts_hole, sockets, flash, end_of_ones, edac, nodes) = flags;
            Machine {
                modules,
                module_bytes: gib * GIB,
                kind,
                ranks,
                // Pairs need two of each.
                mapping: if mapping == Pairs && modules % 2 == 1 { Apart } else { mapping },
                hole_bytes,
                counts_hole,
                // Interleaved over sockets there are no domains.
                sockets: sockets
                    && modules % 4 == 0
                    && !matches!(mapping, Shared | SameStart | Consecutive),
                empty_sockets,
                flash,
                end_of_ones,
                managed,
                edac,
                nodes,
            }
        },
    )
}

/// A statement that is false.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lie {
    None,
    /// Type 19 has twice as much as the modules, and more than a hole.
    Addresses,
    /// Type 20 gives a module thrice its size.
    ModuleRange,
    /// Type 20 is of a device that type 17 has not.
    NoSuchDevice,
    /// The kernel has more than the modules.
    Kernel,
    /// Controllers see half of the modules.
    Controllers,
    /// Modules are interleaved over two domains.
    Domains,
    /// The domains have less than the kernel.
    SmallDomains,
    /// Power nodes have twice as much as there is.
    PowerNodes,
    /// Modules share addresses, but are not interleaved.
    NotInterleaved,
}

impl Lie {
    const ALL: [Self; 9] = [
        Self::Addresses,
        Self::ModuleRange,
        Self::NoSuchDevice,
        Self::Kernel,
        Self::Controllers,
        Self::Domains,
        Self::SmallDomains,
        Self::PowerNodes,
        Self::NotInterleaved,
    ];

    /// Words of the two statements.
    fn statements(self) -> [&'static str; 2] {
        match self {
            Self::None => ["", ""],
            Self::Addresses => ["modules have", "(type 19)"],
            Self::ModuleRange => ["(type 20)", "(type 17)"],
            Self::NoSuchDevice => ["(type 20)", "no such devices (type 17)"],
            Self::Kernel => ["the kernel manages", "modules have"],
            Self::Controllers => ["modules have", "(EDAC)"],
            Self::Domains => ["interleaved with each other (type 20)", "in 2 domains (SRAT)"],
            Self::SmallDomains => ["domains have", "the kernel manages"],
            Self::PowerNodes => ["power nodes have", "there is memory of"],
            Self::NotInterleaved => ["are not interleaved", "share addresses"],
        }
    }

    fn named_by(self, gaps: &[InputGap]) -> bool {
        let [one, other] = self.statements();
        gaps.iter()
            .filter_map(|gap| gap.statements.as_ref())
            .any(|[first, second]| first.contains(one) && second.contains(other))
    }
}

impl Machine {
    fn total(&self) -> u64 {
        u64::from(self.modules) * self.module_bytes
    }

    /// What a false statement needs to be one.
    fn with(mut self, lie: Lie) -> Self {
        match lie {
            Lie::ModuleRange => self.mapping = Mapping::Apart,
            Lie::NotInterleaved | Lie::Domains => {
                self.modules = self.modules.max(2).next_multiple_of(2);
                self.mapping = Mapping::Shared;
                self.sockets = lie == Lie::Domains;
                // Far more than any hole.
                self.module_bytes = self.module_bytes.max(16 * GIB);
            }
            Lie::SmallDomains => self.sockets = true,
            Lie::Addresses => self.module_bytes = self.module_bytes.max(8 * GIB),
            _ => {}
        }
        self
    }

    fn dmi(&self, lie: Lie) -> SmbiosBuilder {
        let (size, total) = (self.module_bytes, self.total());
        let sockets = self.modules + self.empty_sockets;
        // Types 16 often say less than there is.
        let mut dmi = SmbiosBuilder::default().array(1, 16 * GIB, sockets.min(4));
        for number in 0..self.modules {
            let name = format!("DIMM{number}");
            dmi = dmi.module(0x100 + number, 1, size, self.kind, self.ranks, &name);
        }
        for number in 0..self.empty_sockets {
            dmi = dmi.empty_socket(0x200 + number, 1).module_range_kib(
                0x300 + number,
                0x200 + number,
                0,
                0,
            );
        }
        if self.flash {
            dmi = dmi.module(0x280, 1, 16 * MIB, FLASH, 0, "SPI ROM");
        }
        let counted = if self.counts_hole && total > 4 * GIB { self.hole_bytes } else { 0 };
        dmi = match (lie, self.end_of_ones) {
            (Lie::Addresses, _) => dmi.array_range(2, 1, 0, 2 * total + counted, 1),
            (_, true) => dmi.array_range_kib(2, 1, 0, u32::MAX),
            _ => dmi.array_range(2, 1, 0, total + counted, 1),
        };
        if lie == Lie::NoSuchDevice {
            dmi = dmi.module_range(0x3ff, 0x7ff, 0, size, 0);
        }
        for number in 0..self.modules {
            let at = u64::from(number) * size;
            let place = u8::try_from(number % 4).unwrap() + 1;
            let pair = u64::from(number / 2) * 2 * size;
            let short = if number % 2 == 0 { MIB } else { 512 << 10 };
            let (start, length, position) = match self.mapping {
                Mapping::None => continue,
                Mapping::Apart if lie == Lie::ModuleRange && number == 0 => {
                    // Beyond all others, so that it shares no addresses.
                    (total + 64 * GIB, 3 * size, 0)
                }
                Mapping::Apart => (at, size, 0),
                Mapping::Consecutive => (at, size, place),
                Mapping::Shared if lie == Lie::NotInterleaved => (0, total, 0),
                Mapping::Shared => (0, total, place),
                Mapping::SameStart => (0, size, place),
                Mapping::Short => (at, size - short, 0),
                Mapping::Pairs => (pair, 2 * size, place),
            };
            dmi = dmi.module_range(0x400 + number, 0x100 + number, start, length, position);
        }
        dmi
    }

    /// What is wrong with it, by the doctor.
    fn gaps(&self, lie: Lie) -> Vec<InputGap> {
        let total = self.total();
        let managed = match lie {
            Lie::Kernel => total + GIB,
            _ => total / 128 * self.managed,
        };
        let (smbios, flaws) = smbios::parse(&self.dmi(lie).end());
        assert_eq!(flaws, [], "{self:?}");
        let mut findings = MachineFindings {
            mem_total_bytes: Some(Bytes(managed)),
            smbios: Some(smbios),
            ..MachineFindings::default()
        };
        if self.sockets {
            let hole = if total > 4 * GIB { self.hole_bytes } else { 0 };
            let (half, low) = (total / 2 + hole, 4 * GIB - hole);
            let shrink = if lie == Lie::SmallDomains { total / 4 } else { 0 };
            let mut domains = vec![(1, half, total / 2 - shrink)];
            // The first domain lies around the hole, or below it.
            if half > 4 * GIB && hole > 0 {
                domains.extend([(0, 0, low), (0, 4 * GIB, half - 4 * GIB)]);
            } else {
                domains.push((0, 0, total / 2));
            }
            findings.srat = acpi::parse_srat(&srat(&domains)).0;
        }
        if self.edac || lie == Lie::Controllers {
            let seen = if lie == Lie::Controllers { total / 2 } else { total };
            findings.edac.push(EdacModule {
                name: "mc0/dimm0".to_owned(),
                size_bytes: Some(Bytes(seen)),
                type_name: None,
                dram: DramKind::Unknown,
                location: None,
            });
        }
        if self.nodes || lie == Lie::PowerNodes {
            let all = if lie == Lie::PowerNodes { 2 * total } else { total };
            let nodes = [PowerNodeEntry(0, 3, 0, all / 2), PowerNodeEntry(1, 3, all / 2, all / 2)];
            findings.mpst = acpi::parse_mpst(&mpst(&nodes, 100, 50, 2)).0;
        }
        conclude(findings, None).gaps
    }
}

/// The same machines each time.
fn runner() -> TestRunner {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    TestRunner::new_with_rng(Config { failure_persistence: None, ..Config::default() }, rng)
}

#[test]
fn tables_that_agree_are_never_called_contradictory() {
    let mut runner = runner();
    for _ in 0..MACHINES {
        let machine = machine().new_tree(&mut runner).unwrap().current();
        let gaps = machine.gaps(Lie::None);
        let found: Vec<_> = gaps.iter().filter(|gap| gap.kind == GapKind::Contradictory).collect();
        assert!(found.is_empty(), "{machine:?}: {found:?}");
        let damaged = gaps.iter().find(|gap| gap.kind == GapKind::Damaged);
        assert!(damaged.is_none(), "{machine:?}: {damaged:?}");
    }
}

#[test]
fn a_false_statement_is_named_with_the_one_that_it_contradicts() {
    let mut runner = runner();
    let mut missed = Vec::new();
    for number in 0..MACHINES {
        let lie = Lie::ALL[number % Lie::ALL.len()];
        let machine = machine().new_tree(&mut runner).unwrap().current().with(lie);
        let gaps = machine.gaps(lie);
        if !lie.named_by(&gaps) {
            missed.push((lie, machine));
        }
    }
    assert!(missed.len() * 50 <= MACHINES, "{} were missed: {:?}", missed.len(), missed.first());
}
