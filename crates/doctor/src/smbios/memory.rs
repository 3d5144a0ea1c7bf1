//! Types 16 to 18. Offsets and codes are those of DSP0134, sections 7.17 to 7.19.

use std::fmt;

use ramslice_types::Bytes;
use serde::Serialize;

use super::structures::SmbiosStructure;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// A group of memory sockets (type 16, 7.17).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryArray {
    /// Its handle.
    pub handle: u16,
    /// It holds system memory or does not say; others are for video memory, flash, caches.
    pub system_memory: bool,
    /// The most that fits; `None` if not given.
    pub capacity_bytes: Option<Bytes>,
    /// Sockets that it has.
    pub sockets: u16,
}

impl MemoryArray {
    const LENGTH: usize = 0x0f;

    pub(super) fn read(structure: &SmbiosStructure<'_>) -> Option<Self> {
        let fields = structure.fields;
        fields.part(0, Self::LENGTH)?;
        let capacity_bytes = match fields.u32(0x07)? {
            0x8000_0000 => fields.u64(0x0f).filter(|&bytes| bytes > 0).map(Bytes),
            0 => None,
            kib => Some(Bytes(u64::from(kib) * KIB)),
        };
        Some(Self {
            handle: structure.handle,
            // Use, 7.17.2: 4 video memory, 5 flash, 6 non-volatile RAM, 7 cache.
            system_memory: !matches!(fields.u8(0x05)?, 4..=7),
            capacity_bytes,
            sockets: fields.u16(0x0d)?,
        })
    }
}

/// What a module is made of, as far as it decides which parts can be powered down.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DramKind {
    /// DDR2 and DDR3: a part of a rank in self-refresh (PASR) is optional in the standard.
    DdrWithOptionalPasr,
    /// DDR, DDR4 and DDR5: nothing smaller than a rank.
    Ddr,
    /// LPDDR to LPDDR4: parts of a rank in self-refresh (PASR).
    LpDdr,
    /// LPDDR5: parts of a rank in self-refresh and at work (PASR, PARC).
    LpDdr5,
    /// HBM and anything the table does not name.
    Unknown,
}

impl DramKind {
    /// Into how many parts a rank can be divided for powering down, at most.
    ///
    /// LPDDR masks eight segments; an unknown kind may do the same. Source: Table 2.3 and section
    /// 2.1.4 of the 2024 thesis, after the JEDEC standards.
    pub fn parts_of_a_rank(self) -> u64 {
        match self {
            Self::Ddr => 1,
            Self::DdrWithOptionalPasr | Self::LpDdr | Self::LpDdr5 | Self::Unknown => 8,
        }
    }
}

/// What a device of type 17 is to the system.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryRole {
    /// DRAM: the only one that counts.
    Dram,
    /// Persistent memory.
    Persistent,
    /// No system memory: flash, ROM, video memory, or in an array for something else.
    Other,
}

/// A module (type 17, 7.18).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryDevice {
    /// Its handle.
    pub handle: u16,
    /// The array that it belongs to.
    pub array: u16,
    /// The socket has a module.
    #[serde(skip)]
    pub present: bool,
    /// Size; `None` if there is a module of unknown size.
    pub size_bytes: Option<Bytes>,
    /// Label of the socket.
    pub locator: Option<String>,
    /// Label of the bank.
    pub bank: Option<String>,
    /// Name of the type, as in `DDR4`.
    pub type_name: &'static str,
    /// What that means for powering down.
    pub dram: DramKind,
    /// Ranks; `None` if not given.
    pub ranks: Option<u8>,
    /// What it is to the system.
    pub role: MemoryRole,
    /// Its type detail calls it non-volatile, and its technology does not say that it is DRAM.
    #[serde(skip)]
    pub(super) maybe_persistent: bool,
}

impl MemoryDevice {
    /// Up to the type detail: what SMBIOS 2.1 has.
    const LENGTH: usize = 0x15;

    pub(super) fn read(structure: &SmbiosStructure<'_>) -> Option<Self> {
        let fields = structure.fields;
        fields.part(0, Self::LENGTH)?;
        let (present, size_bytes) = match fields.u16(0x0c)? {
            0 => (false, None),
            0xffff => (true, None),
            0x7fff => {
                let mib = fields.u32(0x1c).map(|mib| mib & 0x7fff_ffff).filter(|&mib| mib > 0);
                (true, mib.map(|mib| Bytes(u64::from(mib) * MIB)))
            }
            kib if kib & 0x8000 != 0 => (true, Some(Bytes(u64::from(kib & 0x7fff) * KIB))),
            mib => (true, Some(Bytes(u64::from(mib) * MIB))),
        };
        let code = fields.u8(0x12)?;
        let (type_name, dram) = dram_type(code);
        let technology = fields.u8(0x28);
        let role = match (code, technology) {
            // Video and static RAM, ROM, flash, EEPROM, FEPROM, EPROM.
            (0x05 | 0x06 | 0x08..=0x0c, _) => MemoryRole::Other,
            // Technology, 7.18.6: NVDIMM-F, NVDIMM-P, Optane. NVDIMM-N is DRAM with a backup.
            (0x1f, _) | (_, Some(5..=7)) => MemoryRole::Persistent,
            _ => MemoryRole::Dram,
        };
        // Type detail, 7.18.3, bit 12. Technology 3 and 4 are DRAM and NVDIMM-N.
        let maybe_persistent =
            fields.u16(0x13)? & 1 << 12 != 0 && !matches!(technology, Some(3 | 4));
        Some(Self {
            handle: structure.handle,
            array: fields.u16(0x04)?,
            present,
            size_bytes: size_bytes.filter(|&size| size > Bytes::ZERO),
            locator: structure.string(0x10),
            bank: structure.string(0x11),
            type_name,
            dram,
            ranks: fields.u8(0x1b).map(|byte| byte & 0x0f).filter(|&ranks| ranks > 0),
            role,
            maybe_persistent,
        })
    }

    /// Its label, or its handle.
    pub fn name(&self) -> String {
        self.locator.clone().unwrap_or_else(|| format!("device {:#06x}", self.handle))
    }
}

/// Memory device type, 7.18.2.
fn dram_type(code: u8) -> (&'static str, DramKind) {
    match code {
        0x03 => ("DRAM", DramKind::Unknown),
        0x05 => ("video RAM", DramKind::Unknown),
        0x06 => ("static RAM", DramKind::Unknown),
        0x07 => ("RAM", DramKind::Unknown),
        0x08 => ("ROM", DramKind::Unknown),
        0x09 => ("flash", DramKind::Unknown),
        0x0a => ("EEPROM", DramKind::Unknown),
        0x0b => ("FEPROM", DramKind::Unknown),
        0x0c => ("EPROM", DramKind::Unknown),
        0x0f => ("SDRAM", DramKind::Ddr),
        0x12 => ("DDR", DramKind::Ddr),
        0x13 => ("DDR2", DramKind::DdrWithOptionalPasr),
        0x14 => ("DDR2 FB-DIMM", DramKind::DdrWithOptionalPasr),
        0x18 => ("DDR3", DramKind::DdrWithOptionalPasr),
        0x19 => ("FBD2", DramKind::DdrWithOptionalPasr),
        0x1a => ("DDR4", DramKind::Ddr),
        0x1b => ("LPDDR", DramKind::LpDdr),
        0x1c => ("LPDDR2", DramKind::LpDdr),
        0x1d => ("LPDDR3", DramKind::LpDdr),
        0x1e => ("LPDDR4", DramKind::LpDdr),
        0x1f => ("non-volatile", DramKind::Unknown),
        0x20 => ("HBM", DramKind::Unknown),
        0x21 => ("HBM2", DramKind::Unknown),
        0x22 => ("DDR5", DramKind::Ddr),
        0x23 => ("LPDDR5", DramKind::LpDdr5),
        0x24 => ("HBM3", DramKind::Unknown),
        _ => ("memory of unknown type", DramKind::Unknown),
    }
}

/// An error that memory had (type 18, 7.19).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryError {
    /// Its handle.
    pub handle: u16,
    /// Code of the error, 7.19.1.
    pub code: u8,
}

impl MemoryError {
    const LENGTH: usize = 0x17;

    pub(super) fn read(structure: &SmbiosStructure<'_>) -> Option<Self> {
        structure.fields.part(0, Self::LENGTH)?;
        Some(Self { handle: structure.handle, code: structure.fields.u8(0x04)? })
    }

    /// Neither other, unknown nor OK.
    pub(super) fn is_error(&self) -> bool {
        self.code > 3
    }
}

impl fmt::Display for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.size_bytes {
            Some(size) => write!(f, "{size} of {}", self.type_name),
            None => write!(f, "{} of unknown size", self.type_name),
        }
    }
}
