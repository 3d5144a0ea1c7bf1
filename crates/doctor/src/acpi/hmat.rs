//! Heterogeneous Memory Attribute Table (ACPI 6.5, 5.2.28): kinds of memory, and DRAM that is a
//! cache.

use ramslice_types::Bytes;
use serde::Serialize;

use super::{HEADER, open};
use crate::table_fields::TableFlaw;

/// Header and four reserved bytes.
const STRUCTURES_AT: usize = HEADER + 4;
const _: () = assert!(STRUCTURES_AT == 40);
/// Type, reserved, length.
const STRUCTURE_HEADER: usize = 8;
/// Memory proximity domain attributes, 5.2.28.3.
const DOMAIN: u16 = 0;
/// Memory side cache information, 5.2.28.5.
const CACHE: u16 = 2;

/// What the table says of memory; latencies and bandwidths are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct HmatTable {
    /// Memory domains and the processors next to them.
    pub domains: Vec<MemoryDomain>,
    /// DRAM in front of other memory.
    pub caches: Vec<MemorySideCache>,
    /// Tables of latency or bandwidth.
    pub latency_tables: usize,
}

/// A memory domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemoryDomain {
    /// The domain.
    pub domain: u32,
    /// The domain of its processors or device, if it has one.
    pub initiator: Option<u32>,
}

/// A cache between processors and a memory domain.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MemorySideCache {
    /// The domain behind it.
    pub domain: u32,
    /// Its size.
    pub size_bytes: Bytes,
}

/// Reads the table. `None` if it is no such table.
pub fn parse(table: &[u8]) -> (Option<HmatTable>, Vec<TableFlaw>) {
    let (fields, mut flaws) = open(table, b"HMAT");
    let Some(fields) = fields else { return (None, flaws) };
    let mut out = HmatTable::default();
    let mut at = STRUCTURES_AT;
    while at < fields.0.len() {
        let entry = fields.rest(at);
        let length = entry.u32(4).map_or(0, |length| usize::try_from(length).unwrap_or(usize::MAX));
        // A length below the header's would never get on.
        let Some(entry) = entry.part(0, length).filter(|_| length >= STRUCTURE_HEADER) else {
            flaws.push(TableFlaw::new(at, format!("a structure says that it has {length} bytes")));
            break;
        };
        let complete = match entry.u16(0) {
            Some(DOMAIN) => match (entry.u16(8), entry.u32(12), entry.u32(16)) {
                (Some(bits), Some(initiator), Some(domain)) => {
                    let initiator = (bits & 1 != 0).then_some(initiator);
                    out.domains.push(MemoryDomain { domain, initiator });
                    true
                }
                _ => false,
            },
            Some(CACHE) => match (entry.u32(8), entry.u64(16)) {
                (Some(domain), Some(size)) => {
                    out.caches.push(MemorySideCache { domain, size_bytes: Bytes(size) });
                    true
                }
                _ => false,
            },
            _ => {
                out.latency_tables += 1;
                true
            }
        };
        if !complete {
            flaws.push(TableFlaw::new(at, format!("a structure has only {length} bytes")));
        }
        at += length;
    }
    (Some(out), flaws)
}
