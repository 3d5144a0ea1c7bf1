//! Types 19 and 20: which addresses an array and a device have (DSP0134, sections 7.20 and 7.21).
//!
//! Firmware also writes mappings that say nothing: for empty sockets, with a field of all ones, of
//! no bytes, or of the first KiB. They are no damage, and no memory.

use serde::Serialize;

use super::structures::SmbiosStructure;
use crate::address_range::AddressRange;

const KIB: u64 = 1 << 10;
/// No module is as small as that.
const SMALLEST_BYTES: u64 = 1 << 20;

/// What reading a mapping gave.
pub(super) enum MappingRead<T> {
    /// A mapping.
    Mapped(T),
    /// One that says nothing.
    Unused,
    /// Too short, or its end lies before its start.
    Damaged,
}

/// Addresses of an array (type 19, 7.20).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ArrayMapping {
    /// Its handle.
    pub handle: u16,
    /// The array.
    pub array: u16,
    /// The addresses.
    pub range: AddressRange,
    /// Devices that form one row of memory; `None` if not given.
    pub partition_width: Option<u8>,
}

impl ArrayMapping {
    const LENGTH: usize = 0x0f;

    pub(super) fn read(structure: &SmbiosStructure<'_>) -> MappingRead<Self> {
        let fields = structure.fields;
        let array = fields.part(0, Self::LENGTH).and_then(|_| fields.u16(0x0c));
        let Some(array) = array else { return MappingRead::Damaged };
        addresses(structure, 0x0f).map(|range| Self {
            handle: structure.handle,
            array,
            range,
            partition_width: fields.u8(0x0e).filter(|&width| width > 0),
        })
    }
}

/// Addresses of a device (type 20, 7.21).
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DeviceMapping {
    /// Its handle.
    pub handle: u16,
    /// The device.
    pub device: u16,
    /// The addresses.
    pub range: AddressRange,
    /// 0: not interleaved; 1, 2, ...: its place in the interleave; `None` if not given.
    pub interleave_position: Option<u8>,
    /// Consecutive rows that come from this device, 0 if it is not interleaved; `None` if not
    /// given.
    pub interleaved_data_depth: Option<u8>,
}

impl DeviceMapping {
    const LENGTH: usize = 0x13;

    pub(super) fn read(structure: &SmbiosStructure<'_>) -> MappingRead<Self> {
        let fields = structure.fields;
        let device = fields.part(0, Self::LENGTH).and_then(|_| fields.u16(0x0c));
        let Some(device) = device else { return MappingRead::Damaged };
        addresses(structure, 0x13).map(|range| Self {
            handle: structure.handle,
            device,
            range,
            interleave_position: fields.u8(0x11).filter(|&position| position != 0xff),
            interleaved_data_depth: fields.u8(0x12).filter(|&depth| depth != 0xff),
        })
    }
}

impl<T> MappingRead<T> {
    fn map<U>(self, change: impl FnOnce(T) -> U) -> MappingRead<U> {
        match self {
            Self::Mapped(value) => MappingRead::Mapped(change(value)),
            Self::Unused => MappingRead::Unused,
            Self::Damaged => MappingRead::Damaged,
        }
    }
}

/// First and last address: in KiB at 4 and 8, or in bytes at `extended` if both are all ones.
fn addresses(structure: &SmbiosStructure<'_>, extended: usize) -> MappingRead<AddressRange> {
    let fields = structure.fields;
    let (Some(start), Some(last)) = (fields.u32(0x04), fields.u32(0x08)) else {
        return MappingRead::Damaged;
    };
    let (start, last) = match (start, last) {
        (u32::MAX, u32::MAX) => match (fields.u64(extended), fields.u64(extended + 8)) {
            (Some(start), Some(last)) if start != u64::MAX && last != u64::MAX => (start, last),
            _ => return MappingRead::Unused,
        },
        (u32::MAX, _) | (_, u32::MAX) => return MappingRead::Unused,
        (start, last) => (u64::from(start) * KIB, u64::from(last) * KIB + (KIB - 1)),
    };
    // Of no bytes: the end is the byte before the start, or both are the same number.
    if last == start || last.checked_add(1) == Some(start) {
        return MappingRead::Unused;
    }
    let size = last.checked_sub(start).and_then(|size| size.checked_add(1));
    match size.and_then(|size| AddressRange::sized(start, size)) {
        Some(range) if range.size().0 < SMALLEST_BYTES => MappingRead::Unused,
        Some(range) => MappingRead::Mapped(range),
        None => MappingRead::Damaged,
    }
}
