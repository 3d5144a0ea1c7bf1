//! ACPI tables that describe memory. Layouts: ACPI specification 6.5, sections named at each.
//!
//! There is no crate for these tables outside a kernel; the one for kernels reads from physical
//! memory.

mod hmat;
mod mpst;
mod srat;

use crate::table_fields::{TableFields, TableFlaw};
pub use hmat::{HmatTable, MemoryDomain, MemorySideCache, parse as parse_hmat};
pub use mpst::{AcpiPowerState, MpstTable, PowerNode, parse as parse_mpst};
pub use srat::{MemoryAffinity, SratTable, parse as parse_srat};

/// Signature, length, revision, checksum, four names (5.2.6).
const HEADER: usize = 36;

/// Checks the header, and returns the table cut to the length that it says, with what is wrong.
///
/// `None` if it is no table of this kind at all.
fn open<'a>(table: &'a [u8], signature: &[u8; 4]) -> (Option<TableFields<'a>>, Vec<TableFlaw>) {
    let fields = TableFields(table);
    let mut flaws = Vec::new();
    let (Some(found), Some(length)) = (fields.part(0, 4), fields.u32(4)) else {
        return (None, vec![TableFlaw::new(0, "it is shorter than a table's header")]);
    };
    if found.0 != signature {
        return (
            None,
            vec![TableFlaw::new(
                0,
                format!("its signature is {}", String::from_utf8_lossy(found.0)),
            )],
        );
    }
    let length = usize::try_from(length).unwrap_or(usize::MAX);
    if length < HEADER || table.len() < HEADER {
        return (None, vec![TableFlaw::new(4, format!("it says that it has {length} bytes"))]);
    }
    let whole = fields.part(0, length).unwrap_or_else(|| {
        let what = format!("it says that it has {length} bytes, but {} are there", table.len());
        flaws.push(TableFlaw::new(4, what));
        fields
    });
    if flaws.is_empty() && whole.0.iter().fold(0u8, |sum, &byte| sum.wrapping_add(byte)) != 0 {
        flaws.push(TableFlaw::new(9, "its checksum is wrong"));
    }
    (Some(whole), flaws)
}
