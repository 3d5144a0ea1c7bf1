//! The table as a row of structures: header, fields, strings.

use crate::table_fields::{TableFields, TableFlaw};

/// Type, length and handle (DSP0134, 6.1.2).
const HEADER: usize = 4;
/// The structure that ends a table.
const END_OF_TABLE: u8 = 127;
/// An entry in a table takes at least a header and the two zeros after it.
const SMALLEST: usize = HEADER + 2;
const _: () = assert!(SMALLEST == 6);

/// One structure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SmbiosStructure<'a> {
    /// Its type.
    pub kind: u8,
    /// The name by which others refer to it.
    pub handle: u16,
    /// Where it starts in the table, in bytes.
    pub at: usize,
    /// Header and fields; offsets are those of the specification.
    pub fields: TableFields<'a>,
    strings: &'a [u8],
}

impl<'a> SmbiosStructure<'a> {
    /// The strings, each but the last with the zero that ends it.
    pub fn raw_strings(&self) -> &'a [u8] {
        self.strings
    }

    /// The string whose number is in the byte at `at`; `None` when it is empty or missing.
    pub fn string(&self, at: usize) -> Option<String> {
        let number = usize::from(self.fields.u8(at)?);
        let bytes = self.strings.split(|&byte| byte == 0).nth(number.checked_sub(1)?)?;
        let text: String =
            String::from_utf8_lossy(bytes).chars().filter(|c| !c.is_control()).collect();
        let text = text.trim();
        (!text.is_empty()).then(|| text.to_owned())
    }
}

/// All structures up to the end-of-table structure or the first damage.
pub fn structures(table: &[u8]) -> (Vec<SmbiosStructure<'_>>, Vec<TableFlaw>) {
    let mut out = Vec::new();
    let mut at = 0;
    // Each turn moves on by SMALLEST bytes or more, so it ends.
    loop {
        let rest = TableFields(table).rest(at);
        let (Some(kind), Some(length), Some(handle)) = (rest.u8(0), rest.u8(1), rest.u16(2)) else {
            return (
                out,
                vec![TableFlaw::new(at, "the table ends without its end-of-table structure")],
            );
        };
        let length = usize::from(length);
        if length < HEADER {
            let what =
                format!("structure of type {kind} says that it has {length} bytes; 4 is the least");
            return (out, vec![TableFlaw::new(at, what)]);
        }
        let Some(fields) = rest.part(0, length) else {
            let what = format!(
                "structure of type {kind} has {length} bytes, which passes the table's end"
            );
            return (out, vec![TableFlaw::new(at, what)]);
        };
        let strings = rest.rest(length).0;
        let Some(end) = strings.windows(2).position(|pair| pair == [0, 0]) else {
            let what = format!("the strings of a structure of type {kind} do not end");
            return (out, vec![TableFlaw::new(at, what)]);
        };
        out.push(SmbiosStructure { kind, handle, at, fields, strings: &strings[..end] });
        if kind == END_OF_TABLE {
            return (out, Vec::new());
        }
        at += length + end + 2;
    }
}
