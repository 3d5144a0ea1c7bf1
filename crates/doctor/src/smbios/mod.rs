//! SMBIOS memory structures, types 16 to 20, and what types 0 and 1 say of the maker.
//!
//! Layouts: DMTF DSP0134 (System Management BIOS Reference Specification) 3.7. Two crates read
//! these tables, too; one ends silently at the first damaged structure, the other refuses
//! structures that are longer or shorter than their version says. Here damage is reported with its
//! place and what came before it counts.

mod memory;
mod structures;

use serde::Serialize;

use crate::table_fields::TableFlaw;
pub use memory::{ArrayMapping, DeviceMapping, DramKind, MemoryArray, MemoryDevice, MemoryError};
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
}

/// More structures of one type than any machine has: the largest have some hundred modules.
const MOST: usize = 1024;

/// Reads a table as in `/sys/firmware/dmi/tables/DMI`. Flaws are what could not be read.
pub fn parse(table: &[u8]) -> (SmbiosTable, Vec<TableFlaw>) {
    let (structures, mut flaws) = structures(table);
    let mut out = SmbiosTable::default();
    let mut counts = [0usize; 256];
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
                Some(_) => {
                    out.empty_sockets += 1;
                    true
                }
                None => false,
            },
            18 => match MemoryError::read(structure) {
                Some(error) if error.is_error() => keep(&mut out.errors, Some(error)),
                Some(_) => true,
                None => false,
            },
            19 => keep(&mut out.array_mappings, ArrayMapping::read(structure)),
            20 => keep(&mut out.device_mappings, DeviceMapping::read(structure)),
            _ => true,
        };
        if !complete {
            let what =
                format!("structure of type {} is too short or makes no sense", structure.kind);
            flaws.push(TableFlaw::new(structure.at, what));
        }
    }
    (out, flaws)
}

/// Keeps what was read; `false` when nothing was.
fn keep<T>(list: &mut Vec<T>, read: Option<T>) -> bool {
    let complete = read.is_some();
    list.extend(read);
    complete
}
