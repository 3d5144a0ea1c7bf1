//! System Resource Affinity Table (ACPI 6.5, 5.2.16): which addresses belong to which domain.

use serde::Serialize;

use super::{HEADER, open};
use crate::address_range::AddressRange;
use crate::table_fields::TableFlaw;

/// Header and twelve reserved bytes.
const ENTRIES_AT: usize = HEADER + 12;
const _: () = assert!(ENTRIES_AT == 48);
/// Memory affinity, 5.2.16.2.
const MEMORY: u8 = 1;
const MEMORY_LENGTH: usize = 40;
const ENABLED: u32 = 1;
const HOT_PLUGGABLE: u32 = 1 << 1;
const NON_VOLATILE: u32 = 1 << 2;

/// The table's memory.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct SratTable {
    /// Enabled ranges, in the order of the table.
    pub memory: Vec<MemoryAffinity>,
}

/// A range and its domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryAffinity {
    /// The proximity domain.
    pub domain: u32,
    /// The addresses.
    pub range: AddressRange,
    /// Memory may be added here: the range may be larger than what is there.
    pub hot_pluggable: bool,
    /// Not DRAM.
    pub non_volatile: bool,
}

/// Reads the table. `None` if it is no such table.
pub fn parse(table: &[u8]) -> (Option<SratTable>, Vec<TableFlaw>) {
    let (fields, mut flaws) = open(table, b"SRAT");
    let Some(fields) = fields else { return (None, flaws) };
    let mut out = SratTable::default();
    let mut at = ENTRIES_AT;
    while at < fields.0.len() {
        let entry = fields.rest(at);
        let length = usize::from(entry.u8(1).unwrap_or(0));
        // A length below 2 would never get on.
        let Some(entry) = entry.part(0, length).filter(|_| length >= 2) else {
            flaws.push(TableFlaw::new(at, format!("an entry says that it has {length} bytes")));
            break;
        };
        if entry.u8(0) == Some(MEMORY) {
            let read = (entry.u32(2), entry.u64(8), entry.u64(16), entry.u32(28));
            match read {
                (Some(domain), Some(base), Some(size), Some(bits)) if length >= MEMORY_LENGTH => {
                    if bits & ENABLED != 0 {
                        let hot_pluggable = bits & HOT_PLUGGABLE != 0;
                        let non_volatile = bits & NON_VOLATILE != 0;
                        match AddressRange::sized(base, size) {
                            Some(range) => {
                                out.memory.push(MemoryAffinity {
                                    domain,
                                    range,
                                    hot_pluggable,
                                    non_volatile,
                                });
                            }
                            None => flaws.push(TableFlaw::new(
                                at,
                                format!("domain {domain} has no valid range"),
                            )),
                        }
                    }
                }
                _ => flaws.push(TableFlaw::new(
                    at,
                    format!("a memory entry has {length} bytes instead of 40"),
                )),
            }
        }
        at += length;
    }
    (Some(out), flaws)
}
