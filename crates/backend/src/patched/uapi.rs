//! `include/uapi/linux/ramslice.h` in Rust, field by field. `tests/uapi_header.rs` compares the two.

// The values below have the names and the meaning of the header, which documents them.
#![allow(missing_docs, clippy::doc_markdown)]

use std::mem::{offset_of, size_of};

/// A field of a structure, for the test that compares with the header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Field {
    /// Its name.
    pub name: &'static str,
    /// Its type as written below.
    pub rust_type: &'static str,
    /// Bytes from the start.
    pub offset: usize,
}

/// Declares structures as C lays them out, and lists them for the comparison.
macro_rules! structs {
    ($($(#[$doc:meta])* $name:ident = $c_name:literal, $size:literal bytes {
        $($field:ident: $type:ty,)+
    })+) => {
        $(
            $(#[$doc])*
            #[repr(C)]
            #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
            pub struct $name { $(pub $field: $type,)+ }

            impl $name {
                /// Its size, as the kernel wants it in `size` and `entry_size`.
                pub const SIZE: u32 = $size;
            }

            const _: () = assert!(size_of::<$name>() == $size);
        )+

        /// Every structure: its name in C, its size in bytes, its fields in order.
        pub const STRUCTS: &[(&str, usize, &[Field])] = &[
            $(($c_name, size_of::<$name>(), &[
                $(Field {
                    name: stringify!($field),
                    rust_type: stringify!($type),
                    offset: offset_of!($name, $field),
                },)+
            ]),)+
        ];
    };
}

/// Declares constants under their name in C, and lists them for the comparison.
macro_rules! constants {
    ($list:ident, $type:ty { $($name:ident = $value:expr,)+ }) => {
        $(pub const $name: $type = $value;)+

        /// Name and value of each constant of this group, in the header's order.
        pub const $list: &[(&str, u64)] = &[$((stringify!($name), $name as u64),)+];
    };
}

constants! { STATES, u8 {
    RAMSLICE_ONLINE = 0,
    RAMSLICE_EMPTYING = 1,
    RAMSLICE_OFFLINE = 2,
    RAMSLICE_WAKING = 3,
    RAMSLICE_QUARANTINED = 4,
    RAMSLICE_NR_STATES = 5,
}}

constants! { REASONS, u32 {
    RAMSLICE_REASON_NONE = 0,
    RAMSLICE_REASON_HOLE = 1,
    RAMSLICE_REASON_ZONE_END = 2,
    RAMSLICE_REASON_BOOT = 3,
    RAMSLICE_REASON_QUARANTINED = 4,
    RAMSLICE_REASON_SLAB = 5,
    RAMSLICE_REASON_PAGETABLE = 6,
    RAMSLICE_REASON_PINNED = 7,
    RAMSLICE_REASON_WRITEBACK = 8,
    RAMSLICE_REASON_HUGETLB = 9,
    RAMSLICE_REASON_GIGANTIC = 10,
    RAMSLICE_REASON_CMA = 11,
    RAMSLICE_REASON_HIGHATOMIC = 12,
    RAMSLICE_REASON_HWPOISON = 13,
    RAMSLICE_REASON_FOREIGN_OFFLINE = 14,
    RAMSLICE_REASON_ISOLATED = 15,
    RAMSLICE_REASON_UNMOVABLE = 16,
    RAMSLICE_REASON_NO_ROOM = 17,
    RAMSLICE_REASON_OVER_BUDGET = 18,
    RAMSLICE_REASON_AWAKE_RESERVE = 19,
    RAMSLICE_REASON_BACKOFF = 20,
    RAMSLICE_REASON_PRESSURE = 21,
    RAMSLICE_REASON_DEADLINE = 22,
    RAMSLICE_REASON_SIGNAL = 23,
    RAMSLICE_REASON_STATE = 24,
    RAMSLICE_REASON_POWER = 25,
    RAMSLICE_REASON_MIGRATION = 26,
    RAMSLICE_NR_REASONS = 27,
}}

constants! { COUNTERS, usize {
    RAMSLICE_FREE = 0,
    RAMSLICE_LRU_ANON = 1,
    RAMSLICE_LRU_FILE = 2,
    RAMSLICE_ANON_MAPPED = 3,
    RAMSLICE_FILE_MAPPED = 4,
    RAMSLICE_FILE = 5,
    RAMSLICE_SHMEM = 6,
    RAMSLICE_DIRTY = 7,
    RAMSLICE_WRITEBACK = 8,
    RAMSLICE_HUGE = 9,
    RAMSLICE_NR_COUNTERS = 10,
}}

constants! { OPS, u32 {
    RAMSLICE_OP_OFFLINE = 0,
    RAMSLICE_OP_ONLINE = 1,
    RAMSLICE_OP_COMPACT = 2,
    RAMSLICE_OP_OFFLINE_FREE = 3,
    RAMSLICE_OP_ONLINE_ALL = 4,
    RAMSLICE_NR_OPS = 5,
}}

constants! { PAGE_CLASSES, u8 {
    RAMSLICE_PAGE_FREE = 0,
    RAMSLICE_PAGE_TRANSIT = 1,
    RAMSLICE_PAGE_ANON = 2,
    RAMSLICE_PAGE_FILE = 3,
    RAMSLICE_PAGE_SHMEM = 4,
    RAMSLICE_PAGE_SWAP = 5,
    RAMSLICE_PAGE_MOVABLE = 6,
    RAMSLICE_PAGE_HUGETLB = 7,
    RAMSLICE_PAGE_SLAB = 8,
    RAMSLICE_PAGE_PAGETABLE = 9,
    RAMSLICE_PAGE_KERNEL = 10,
    RAMSLICE_PAGE_RESERVED = 11,
    RAMSLICE_PAGE_HWPOISON = 12,
    RAMSLICE_PAGE_FOREIGN = 13,
    RAMSLICE_PAGE_HOLE = 14,
    RAMSLICE_PAGE_OFF = 15,
    RAMSLICE_NR_PAGE_CLASSES = 16,
}}

constants! { RUN_FLAGS, u32 {
    RAMSLICE_RUN_DROP = 1 << 0,
    RAMSLICE_RUN_LRU = 1 << 1,
    RAMSLICE_RUN_DIRTY = 1 << 2,
    RAMSLICE_RUN_WRITEBACK = 1 << 3,
    RAMSLICE_RUN_BUFFERS = 1 << 4,
    RAMSLICE_RUN_SWAPCACHE = 1 << 5,
    RAMSLICE_RUN_UNEVICTABLE = 1 << 6,
    RAMSLICE_RUN_MLOCKED = 1 << 7,
    RAMSLICE_RUN_KSM = 1 << 8,
    RAMSLICE_RUN_PINNED = 1 << 9,
    RAMSLICE_RUN_HWPOISON = 1 << 10,
}}

constants! { SLICE_FLAGS, u16 {
    RAMSLICE_SLICE_UNRECLAIMABLE = 1 << 0,
    RAMSLICE_SLICE_BACKOFF = 1 << 1,
    RAMSLICE_SLICE_UNMOVABLE = 1 << 2,
    RAMSLICE_SLICE_HELD = 1 << 3,
}}

constants! { REQUEST_FLAGS, u32 {
    RAMSLICE_ABI_VERSION = 1,
    RAMSLICE_REQ_PER_SLICE = 1 << 0,
    RAMSLICE_REQ_KEEP_CACHE = 1 << 1,
    RAMSLICE_REQ_IGNORE_BACKOFF = 1 << 2,
    RAMSLICE_REQ_DRY_RUN = 1 << 3,
    RAMSLICE_REQ_AUTO_CACHE = 1 << 4,
    RAMSLICE_REQ_HOLD = 1 << 5,
    RAMSLICE_REQ_FLAGS = 0x3f,
    RAMSLICE_ALL_SLICES = !0,
}}

constants! { LIMITS, u64 {
    RAMSLICE_UNLIMITED = !0,
}}

constants! { WILDCARDS, i32 {
    RAMSLICE_ANY = -1,
}}

constants! { IOCTLS, u8 {
    RAMSLICE_IOC_MAGIC = 0xba,
    RAMSLICE_IOC_INFO = 0,
    RAMSLICE_IOC_ZONE = 1,
    RAMSLICE_IOC_SNAPSHOT = 2,
    RAMSLICE_IOC_REQUEST = 3,
    RAMSLICE_IOC_PAGES = 4,
}}

structs! {
    /// What this kernel offers.
    Info = "ramslice_info", 120 bytes {
        size: u32,
        abi_version: u32,
        page_bytes: u32,
        pageblock_bytes: u32,
        slice_bytes: u64,
        chunk_bytes: u64,
        nr_slices: u32,
        nr_zones: u32,
        event_seq: u64,
        managed_pages: u64,
        free_pages: u64,
        offline_pages: u64,
        quarantined_pages: u64,
        power_driver: [u8; 32],
        held_pages: u64,
    }

    /// One zone.
    ZoneInfo = "ramslice_zone_info", 112 bytes {
        size: u32,
        index: u32,
        node: i32,
        zone: u32,
        name: [u8; 16],
        nr_slices: u32,
        nr_empty: u32,
        nr_offline: u32,
        nr_quarantined: u32,
        managed_pages: u64,
        free_pages: u64,
        offline_pages: u64,
        awake_reserve_pages: u64,
        low_wmark_pages: u64,
        woken_by_demand: u64,
        held_pages: u64,
        nr_held: u32,
        reserved: u32,
    }

    /// One slice in a snapshot.
    SliceInfo = "ramslice_slice_info", 72 bytes {
        id: u32,
        state: u8,
        reason: u8,
        flags: u16,
        node: i16,
        zone: u16,
        nr_pages: u32,
        price: u64,
        counters: [u32; RAMSLICE_NR_COUNTERS],
        retry_ms: u32,
        reserved: u32,
    }

    /// All slices at one moment.
    Snapshot = "ramslice_snapshot", 40 bytes {
        size: u32,
        entry_size: u32,
        nr: u32,
        flags: u32,
        slices: u64,
        event_seq: u64,
        time_ns: u64,
    }

    /// A request and its own outcome.
    Request = "ramslice_request", 128 bytes {
        size: u32,
        op: u32,
        flags: u32,
        id: u32,
        node: i32,
        zone: i32,
        budget: u64,
        max_slices: u32,
        deadline_ms: u32,
        status: u32,
        reason: u32,
        nr_done: u32,
        nr_failed: u32,
        last_id: u32,
        reserved: u32,
        elapsed_ns: u64,
        price_predicted: u64,
        price_measured: u64,
        pages_migrated: u64,
        pages_dropped: u64,
        pages_failed: u64,
        huge_split: u64,
        huge_moved: u64,
    }
    /// Neighbouring page frames that are alike.
    PageRun = "ramslice_page_run", 56 bytes {
        pfn: u64,
        nr_pages: u32,
        flags: u32,
        inode: u64,
        cgroup: u64,
        dev_major: u32,
        dev_minor: u32,
        nr_maps: u32,
        extra_refs: u32,
        page_class: u8,
        reason: u8,
        order: u8,
        reserved8: u8,
        reserved: u32,
    }

    /// What a slice holds, page by page.
    PagesHead = "ramslice_pages", 48 bytes {
        size: u32,
        id: u32,
        entry_size: u32,
        nr: u32,
        runs: u64,
        first: u32,
        nr_pages: u32,
        flags: u32,
        state: u32,
        reason: u32,
        reserved: u32,
    }
}
