//! SMBIOS memory structures, types 16 to 20, and what types 0 and 1 say of the maker.
//!
//! Layouts: DMTF DSP0134 (System Management BIOS Reference Specification) 3.7. Two crates read
//! these tables, too; one ends silently at the first damaged structure, the other refuses
//! structures that are longer or shorter than their version says. Here damage is reported with its
//! place and what came before it counts.

mod mapping;
mod memory;
mod structures;

use serde::Serialize;

use crate::table_fields::TableFlaw;
use mapping::MappingRead;
pub use mapping::{ArrayMapping, DeviceMapping};
pub use memory::{DramKind, MemoryArray, MemoryDevice, MemoryError, MemoryRole};
pub use structures::{SmbiosStructure, structures};

/// What the table says of memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SmbiosTable {
    /// Maker of the firmware (type 0).
    pub firmware_vendor: Option<String>,
    /// The firmware says that it runs in a virtual machine (type 0, extension byte 2, bit 4).
    pub virtual_machine: bool,
    /// Maker of the machine (type 1).
    pub manufacturer: Option<String>,
    /// Name of the machine (type 1).
    pub product: Option<String>,
    /// Groups of memory sockets (type 16).
    pub arrays: Vec<MemoryArray>,
    /// Memory sockets, those without a module left out (type 17).
    pub devices: Vec<MemoryDevice>,
    /// Sockets without a module.
    pub empty_sockets: usize,
    /// Errors that memory had (type 18); only those of another type than OK.
    pub errors: Vec<MemoryError>,
    /// Addresses of an array (type 19).
    pub array_mappings: Vec<ArrayMapping>,
    /// Addresses of a device (type 20).
    pub device_mappings: Vec<DeviceMapping>,
    /// Mappings that count for nothing: of empty sockets, of what is no system memory, or without
    /// a range.
    pub unused_mappings: usize,
}

/// More structures of one type than any machine has: the largest have some hundred modules.
const MOST: usize = 1024;

/// Reads a table as in `/sys/firmware/dmi/tables/DMI`. Flaws are what could not be read.
pub fn parse(table: &[u8]) -> (SmbiosTable, Vec<TableFlaw>) {
    let (structures, mut flaws) = structures(table);
    let mut out = SmbiosTable::default();
    let mut counts = [0usize; 256];
    let mut empty_sockets = Vec::new();
    for structure in &structures {
        let count = &mut counts[usize::from(structure.kind)];
        *count += 1;
        if *count > MOST {
            if *count == MOST + 1 {
                let what = format!(
                    "more than {MOST} structures of type {}: the rest is left out",
                    structure.kind
                );
                flaws.push(TableFlaw::new(structure.at, what));
            }
            continue;
        }
        let complete = match structure.kind {
            0 => {
                out.firmware_vendor = structure.string(0x04);
                out.virtual_machine =
                    structure.fields.u8(0x13).is_some_and(|byte| byte & 1 << 4 != 0);
                true
            }
            1 => {
                out.manufacturer = structure.string(0x04);
                out.product = structure.string(0x05);
                true
            }
            16 => keep(&mut out.arrays, MemoryArray::read(structure)),
            17 => match MemoryDevice::read(structure) {
                Some(device) if device.present => keep(&mut out.devices, Some(device)),
                Some(device) => {
                    empty_sockets.push(device.handle);
                    true
                }
                None => false,
            },
            18 => match MemoryError::read(structure) {
                Some(error) if error.is_error() => keep(&mut out.errors, Some(error)),
                Some(_) => true,
                None => false,
            },
            19 => map(
                &mut out.array_mappings,
                &mut out.unused_mappings,
                ArrayMapping::read(structure),
            ),
            20 => {
                let read = DeviceMapping::read(structure);
                // What is said of a socket without a module need not make sense.
                let of_empty = structure
                    .fields
                    .u16(0x0c)
                    .is_some_and(|device| empty_sockets.contains(&device));
                map(&mut out.device_mappings, &mut out.unused_mappings, read) || of_empty
            }
            _ => true,
        };
        if !complete {
            let what =
                format!("structure of type {} is too short or makes no sense", structure.kind);
            flaws.push(TableFlaw::new(structure.at, what));
        }
    }
    out.empty_sockets = empty_sockets.len();
    out.tell_apart(&empty_sockets);
    (out, flaws)
}

impl SmbiosTable {
    /// Tells DRAM from what else is listed like it, and drops mappings that are not of DRAM or
    /// persistent memory.
    fn tell_apart(&mut self, empty_sockets: &[u16]) {
        let of_other_use: Vec<u16> = self
            .arrays
            .iter()
            .filter(|array| !array.system_memory)
            .map(|array| array.handle)
            .collect();
        for device in &mut self.devices {
            if of_other_use.contains(&device.array) {
                device.role = MemoryRole::Other;
            }
        }
        // Some firmware calls all of its DRAM non-volatile: it tells only where others are not.
        let dram = || self.devices.iter().filter(|device| device.role == MemoryRole::Dram);
        if dram().any(|device| !device.maybe_persistent) {
            for device in &mut self.devices {
                if device.role == MemoryRole::Dram && device.maybe_persistent {
                    device.role = MemoryRole::Persistent;
                }
            }
        }
        let mapped = self.array_mappings.len() + self.device_mappings.len();
        self.array_mappings.retain(|mapping| !of_other_use.contains(&mapping.array));
        let devices = &self.devices;
        let is_other = |handle| {
            devices.iter().any(|device| device.handle == handle && device.role == MemoryRole::Other)
        };
        self.device_mappings.retain(|mapping| {
            !empty_sockets.contains(&mapping.device) && !is_other(mapping.device)
        });
        self.unused_mappings += mapped - self.array_mappings.len() - self.device_mappings.len();
    }
}

/// Keeps a mapping or counts it as unused; `false` when it is damaged.
fn map<T>(list: &mut Vec<T>, unused: &mut usize, read: MappingRead<T>) -> bool {
    match read {
        MappingRead::Mapped(mapping) => list.push(mapping),
        MappingRead::Unused => *unused += 1,
        MappingRead::Damaged => return false,
    }
    true
}

/// Keeps what was read; `false` when nothing was.
fn keep<T>(list: &mut Vec<T>, read: Option<T>) -> bool {
    let complete = read.is_some();
    list.extend(read);
    complete
}
