//! Little-endian fields of a table, by offset. Whatever lies outside the table is `None`, never a
//! panic.

/// Bytes of a firmware table or of one structure in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableFields<'a>(pub &'a [u8]);

impl<'a> TableFields<'a> {
    /// A byte.
    pub fn u8(self, at: usize) -> Option<u8> {
        self.0.get(at).copied()
    }

    /// Two bytes.
    pub fn u16(self, at: usize) -> Option<u16> {
        self.array(at).map(u16::from_le_bytes)
    }

    /// Four bytes.
    pub fn u32(self, at: usize) -> Option<u32> {
        self.array(at).map(u32::from_le_bytes)
    }

    /// Eight bytes.
    pub fn u64(self, at: usize) -> Option<u64> {
        self.array(at).map(u64::from_le_bytes)
    }

    /// `length` bytes from `at`.
    pub fn part(self, at: usize, length: usize) -> Option<TableFields<'a>> {
        self.0.get(at..at.checked_add(length)?).map(TableFields)
    }

    /// Everything from `at`; empty past the end.
    #[must_use]
    pub fn rest(self, at: usize) -> TableFields<'a> {
        TableFields(self.0.get(at..).unwrap_or_default())
    }

    fn array<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }
}

/// A flaw of a table: where it is and what is wrong. What was read before it still counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TableFlaw {
    /// Offset in the table, in bytes.
    pub at: usize,
    /// What is wrong there.
    pub what: String,
    /// It is read nevertheless, as other programs do: no damage.
    pub harmless: bool,
}

impl TableFlaw {
    /// A flaw at an offset.
    pub fn new(at: usize, what: impl Into<String>) -> Self {
        Self { at, what: what.into(), harmless: false }
    }

    /// What a table leaves out, and is known from elsewhere in it.
    pub fn note(at: usize, what: impl Into<String>) -> Self {
        Self { harmless: true, ..Self::new(at, what) }
    }
}

impl std::fmt::Display for TableFlaw {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "at byte {}: {}", self.at, self.what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_outside_is_nothing() {
        let fields = TableFields(&[1, 2, 3, 4]);
        assert_eq!(fields.u16(2), Some(0x0403));
        assert_eq!((fields.u16(3), fields.u32(1), fields.u64(0)), (None, None, None));
        assert_eq!(fields.u8(usize::MAX), None);
        assert_eq!(fields.u64(usize::MAX - 2), None);
        assert_eq!(fields.part(usize::MAX, usize::MAX), None);
        assert_eq!(fields.rest(9), TableFields(&[]));
    }
}
