//! The interface of `/dev/ramslice`: what bindgen makes of the kernel's header, and the constants
//! that it cannot make. `tests/uapi_header.rs` compares both with the header.

use std::mem::size_of;

pub use super::uapi_bindings::*;

/// A budget without a limit.
pub const RAMSLICE_UNLIMITED: u64 = !0;
/// A request for as many slices as its other limits allow.
pub const RAMSLICE_ALL_SLICES: u32 = !0;

/// The number of the ioctl that describes the kernel.
pub const RAMSLICE_IOC_INFO: u8 = 0;
/// The number of the ioctl that describes a zone.
pub const RAMSLICE_IOC_ZONE: u8 = 1;
/// The number of the ioctl that lists all slices.
pub const RAMSLICE_IOC_SNAPSHOT: u8 = 2;
/// The number of the ioctl that carries out a request.
pub const RAMSLICE_IOC_REQUEST: u8 = 3;
/// The number of the ioctl that lists a slice's pages.
pub const RAMSLICE_IOC_PAGES: u8 = 4;

/// The number of the ioctl that says what a table makes of slices.
pub const RAMSLICE_IOC_SEGMENTS: u8 = 5;

/// A structure's size in bytes, as the kernel wants it in `size` and `entry_size`.
pub const fn struct_size<T>() -> u32 {
    size_of::<T>() as u32
}

// The sizes are part of the interface.
const _: () = {
    assert!(size_of::<ramslice_info>() == 136);
    assert!(size_of::<ramslice_zone_info>() == 112);
    assert!(size_of::<ramslice_slice_info>() == 72);
    assert!(size_of::<ramslice_snapshot>() == 48);
    assert!(size_of::<ramslice_request>() == 128);
    assert!(size_of::<ramslice_page_run>() == 56);
    assert!(size_of::<ramslice_pages>() == 48);
    assert!(size_of::<ramslice_segment>() == 16);
    assert!(size_of::<ramslice_segment_list>() == 16);
};
