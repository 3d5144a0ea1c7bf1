//! Firmware tables and whole machines made by code, from the specifications: DSP0134 3.7 and ACPI
//! 6.5.

#![allow(dead_code, reason = "each test file uses a part")]

use std::fs;
use std::path::Path;

use ramslice_doctor::{DoctorReport, MwPerGib, SystemRoot, examine};
use tempfile::TempDir;

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;
pub(crate) const GIB: u64 = 1 << 30;

/// Codes of memory types (7.18.2).
pub(crate) const DDR4: u8 = 0x1a;
pub(crate) const LPDDR5: u8 = 0x23;
pub(crate) const NON_VOLATILE: u8 = 0x1f;

/// An SMBIOS table under construction.
#[derive(Default)]
pub(crate) struct SmbiosBuilder(pub(crate) Vec<u8>);

impl SmbiosBuilder {
    /// A structure: its fields after the header, and its strings.
    pub(crate) fn add(mut self, kind: u8, handle: u16, fields: &[u8], strings: &[&str]) -> Self {
        self.0.extend([kind, u8::try_from(fields.len() + 4).unwrap()]);
        self.0.extend(handle.to_le_bytes());
        self.0.extend(fields);
        for text in strings {
            self.0.extend(text.bytes().chain([0]));
        }
        self.0.extend(if strings.is_empty() { &[0, 0][..] } else { &[0] });
        self
    }

    /// Type 16: system memory for at most `capacity`.
    pub(crate) fn array(self, handle: u16, capacity: u64, sockets: u16) -> Self {
        self.array_for(handle, 3, capacity, sockets)
    }

    /// Type 16 with a use (7.17.2).
    pub(crate) fn array_for(self, handle: u16, r#use: u8, capacity: u64, sockets: u16) -> Self {
        let mut fields = vec![3, r#use, 3];
        fields.extend(0x8000_0000u32.to_le_bytes());
        fields.extend(0xfffeu16.to_le_bytes());
        fields.extend(sockets.to_le_bytes());
        fields.extend(capacity.to_le_bytes());
        self.add(16, handle, &fields, &[])
    }

    /// Type 17.
    pub(crate) fn module(
        self,
        handle: u16,
        array: u16,
        size: u64,
        kind: u8,
        ranks: u8,
        name: &str,
    ) -> Self {
        let mib = u32::try_from(size / MIB).unwrap();
        let short = u16::try_from(mib).map_or(0x7fff, |mib| mib.min(0x7fff));
        self.device(handle, array, (short, mib), (kind, 0, ranks), name)
    }

    /// Type 17 with a type detail (7.18.3).
    pub(crate) fn module_with_detail(
        self,
        handle: u16,
        array: u16,
        size: u64,
        kind: u8,
        detail: u16,
        name: &str,
    ) -> Self {
        self.device(
            handle,
            array,
            (0x7fff, u32::try_from(size / MIB).unwrap()),
            (kind, detail, 1),
            name,
        )
    }

    /// Type 17: a module that does not say how large it is.
    pub(crate) fn module_of_unknown_size(
        self,
        handle: u16,
        array: u16,
        kind: u8,
        name: &str,
    ) -> Self {
        self.device(handle, array, (0xffff, 0), (kind, 0, 1), name)
    }

    /// Type 17: a socket without a module.
    pub(crate) fn empty_socket(self, handle: u16, array: u16) -> Self {
        self.device(handle, array, (0, 0), (2, 0, 0), "EMPTY")
    }

    /// Type 17: sizes in its two fields, the second in MiB; kind, detail and ranks.
    fn device(
        self,
        handle: u16,
        array: u16,
        (short, mib): (u16, u32),
        (kind, detail, ranks): (u8, u16, u8),
        name: &str,
    ) -> Self {
        let mut fields = Vec::new();
        fields.extend(array.to_le_bytes());
        fields.extend([0xfe, 0xff, 64, 0, 64, 0]);
        fields.extend(short.to_le_bytes());
        // Form factor, set, locator, bank, type; speed, maker, serial, asset, part, attributes.
        fields.extend([9, 0, 1, 0, kind]);
        fields.extend(detail.to_le_bytes());
        fields.extend([0, 0, 0, 2, 0, 0, ranks]);
        fields.extend(mib.to_le_bytes());
        self.add(17, handle, &fields, &[name, "SERIAL-1234"])
    }

    /// Type 19.
    pub(crate) fn array_range(
        self,
        handle: u16,
        array: u16,
        start: u64,
        size: u64,
        width: u8,
    ) -> Self {
        let mut fields = [0xff; 8].to_vec();
        fields.extend(array.to_le_bytes());
        fields.push(width);
        fields.extend(start.to_le_bytes());
        fields.extend((start + size - 1).to_le_bytes());
        self.add(19, handle, &fields, &[])
    }

    /// Type 20.
    pub(crate) fn module_range(
        self,
        handle: u16,
        module: u16,
        start: u64,
        size: u64,
        position: u8,
    ) -> Self {
        let mut fields = Vec::new();
        fields.extend(u32::try_from(start / KIB).unwrap().to_le_bytes());
        fields.extend(u32::try_from((start + size) / KIB - 1).unwrap().to_le_bytes());
        fields.extend(module.to_le_bytes());
        fields.extend([0, 0, 0xff, position, u8::from(position > 0)]);
        self.add(20, handle, &fields, &[])
    }

    /// Type 19 in KiB, first and last, whatever they are; its extended fields are all ones.
    pub(crate) fn array_range_kib(self, handle: u16, array: u16, first: u32, last: u32) -> Self {
        let mut fields = [first.to_le_bytes(), last.to_le_bytes()].concat();
        fields.extend(array.to_le_bytes());
        fields.push(1);
        fields.extend([0xff; 16]);
        self.add(19, handle, &fields, &[])
    }

    /// Type 20 in KiB, first and last, whatever they are.
    pub(crate) fn module_range_kib(self, handle: u16, module: u16, first: u32, last: u32) -> Self {
        let mut fields = [first.to_le_bytes(), last.to_le_bytes()].concat();
        fields.extend(module.to_le_bytes());
        fields.extend([0, 0, 0xff, 0, 0]);
        self.add(20, handle, &fields, &[])
    }

    /// The bytes, with the end-of-table structure.
    pub(crate) fn end(self) -> Vec<u8> {
        self.add(127, 0xfeff, &[], &[]).0
    }
}

/// An ACPI table: header, length and checksum around `body`.
pub(crate) fn acpi(signature: &[u8; 4], body: &[u8]) -> Vec<u8> {
    let mut table = signature.to_vec();
    table.extend(u32::try_from(36 + body.len()).unwrap().to_le_bytes());
    table.extend([1, 0]);
    table.resize(36, b' ');
    table.extend(body);
    table[9] = table.iter().fold(0u8, |sum, byte| sum.wrapping_sub(*byte));
    table
}

/// A memory power node: id, flags, start and size.
#[derive(Clone, Copy)]
pub(crate) struct PowerNodeEntry(pub(crate) u16, pub(crate) u8, pub(crate) u64, pub(crate) u64);

/// An MPST whose nodes have full power and one state that saves `percent` of `full_mw`.
pub(crate) fn mpst(nodes: &[PowerNodeEntry], full_mw: u32, percent: u32, flags: u8) -> Vec<u8> {
    let mut body = vec![0; 4];
    body.extend(u16::try_from(nodes.len()).unwrap().to_le_bytes());
    body.extend([0, 0]);
    for PowerNodeEntry(id, flags, start, size) in nodes {
        body.extend([*flags, 0]);
        body.extend(id.to_le_bytes());
        body.extend((32u32 + 4 + 2).to_le_bytes());
        body.extend(start.to_le_bytes());
        body.extend(size.to_le_bytes());
        body.extend(2u32.to_le_bytes());
        body.extend(1u32.to_le_bytes());
        // Two states, one component.
        body.extend([0, 0, 1, 1, 0, 0]);
    }
    body.extend([2, 0, 0, 0]);
    for (id, flags, percent) in [(0, 1, 0), (1, flags, percent)] {
        body.extend([id, flags, 0, 0]);
        body.extend(full_mw.to_le_bytes());
        body.extend(percent.to_le_bytes());
        body.extend(1000u64.to_le_bytes());
        body.extend([0; 8]);
    }
    acpi(b"MPST", &body)
}

/// An SRAT of domains with a start and a size.
pub(crate) fn srat(domains: &[(u32, u64, u64)]) -> Vec<u8> {
    let mut body = vec![0; 12];
    for (domain, start, size) in domains {
        body.extend([1, 40]);
        body.extend(domain.to_le_bytes());
        body.extend([0; 2]);
        body.extend(start.to_le_bytes());
        body.extend(size.to_le_bytes());
        body.extend([0; 4]);
        body.extend(1u32.to_le_bytes());
        body.extend([0; 8]);
    }
    acpi(b"SRAT", &body)
}

/// An HMAT of memory-side caches: the domain behind each, and its GiB.
pub(crate) fn hmat(caches: &[(u32, u64)]) -> Vec<u8> {
    let mut body = vec![0; 4];
    for (domain, gib) in caches {
        body.extend([2, 0, 0, 0]);
        body.extend(32u32.to_le_bytes());
        body.extend(domain.to_le_bytes());
        body.extend([0; 4]);
        body.extend((gib * GIB).to_le_bytes());
        body.extend([0; 8]);
    }
    acpi(b"HMAT", &body)
}

/// A directory tree shaped like `/`.
pub(crate) struct TestMachine(pub(crate) TempDir);

impl TestMachine {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    /// With a file.
    pub(crate) fn file(self, path: &str, contents: impl AsRef<[u8]>) -> Self {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, contents).unwrap();
        self
    }

    /// With a directory.
    pub(crate) fn directory(self, path: &str) -> Self {
        fs::create_dir_all(self.0.path().join(path)).unwrap();
        self
    }

    /// A physical x86 machine that manages `total`.
    pub(crate) fn physical(total: u64) -> Self {
        Self::new()
            .file("proc/cpuinfo", "processor\t: 0\nflags\t\t: fpu vme sse2\n\nprocessor\t: 1\n")
            .file(
                "proc/meminfo",
                format!("MemTotal: {0} kB\nMemFree: {0} kB\nMemAvailable: {0} kB\n", total / KIB),
            )
            .file("sys/kernel/mm/transparent_hugepage/hpage_pmd_size", "2097152\n")
            .file("sys/class/dmi/id/sys_vendor", "LENOVO\n")
    }

    pub(crate) fn dmi(self, dmi: SmbiosBuilder) -> Self {
        self.file("sys/firmware/dmi/tables/DMI", dmi.end())
    }

    pub(crate) fn table(self, name: &str, bytes: &[u8]) -> Self {
        self.file(&format!("sys/firmware/acpi/tables/{name}"), bytes)
    }

    /// Memory blocks of 128 MiB at these addresses.
    pub(crate) fn blocks(mut self, ranges: &[std::ops::Range<u64>]) -> Self {
        const BLOCK: u64 = 128 * MIB;
        self = self.file("sys/devices/system/memory/block_size_bytes", "8000000\n");
        for number in ranges.iter().flat_map(|range| range.start / BLOCK..range.end / BLOCK) {
            self = self.directory(&format!("sys/devices/system/memory/memory{number}"));
        }
        self
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn report(&self, rate: Option<MwPerGib>) -> DoctorReport {
        examine(&SystemRoot::open(self.path()).unwrap(), rate)
    }
}
