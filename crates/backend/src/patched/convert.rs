//! Converts between the kernel's structures and the types that the rest of the project uses.

use std::ffi::c_char;
use std::time::Duration;

use ramslice_types as types;
use ramslice_types::{
    Bytes, CacheChoice, DeviceNumber, FileId, NodeId, PageClass, PageFlags, Pages, Pfn, Price,
    Reason, RequestOp, SliceCounters, SliceId, SliceState, ZoneIndex, ZoneNumber,
};

use crate::error::KernelError;
use crate::patched::uapi;

/// A name that the kernel padded with NULs.
fn text(chars: &[c_char]) -> String {
    // Whether char has a sign depends on the architecture.
    let bytes: Vec<u8> = chars.iter().map(|&char| char.to_ne_bytes()[0]).collect();
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

pub(crate) fn info(
    raw: &uapi::ramslice_info,
    segments: &[types::Segment],
    resting_bytes: Bytes,
    clock_khz: Option<u64>,
) -> types::BackendInfo {
    types::BackendInfo {
        abi_version: raw.abi_version,
        page_bytes: Bytes(raw.page_bytes.into()),
        pageblock_bytes: Bytes(raw.pageblock_bytes.into()),
        slice_bytes: Bytes(raw.slice_bytes),
        // A kernel from before it could do that leaves zeros.
        interleave: (raw.interleave_ways > 1).then_some(types::Interleave {
            ways: raw.interleave_ways,
            granularity_bytes: Bytes(raw.granularity_bytes),
        }),
        segments: segments.to_vec(),
        chunk_bytes: Bytes(raw.chunk_bytes),
        nr_slices: raw.nr_slices,
        nr_zones: raw.nr_zones,
        event_seq: raw.event_seq,
        managed_pages: Pages(raw.managed_pages),
        free_pages: Pages(raw.free_pages),
        offline_pages: Pages(raw.offline_pages),
        quarantined_pages: Pages(raw.quarantined_pages),
        held_pages: Pages(raw.held_pages),
        resting_bytes,
        power_driver: text(&raw.power_driver),
        clock_khz,
    }
}

pub(crate) fn zone(raw: &uapi::ramslice_zone_info) -> types::Zone {
    types::Zone {
        index: ZoneIndex(raw.index),
        node: NodeId(raw.node),
        zone: ZoneNumber(raw.zone),
        name: text(&raw.name),
        nr_slices: raw.nr_slices,
        nr_empty: raw.nr_empty,
        nr_offline: raw.nr_offline,
        nr_quarantined: raw.nr_quarantined,
        nr_held: raw.nr_held,
        managed_pages: Pages(raw.managed_pages),
        free_pages: Pages(raw.free_pages),
        offline_pages: Pages(raw.offline_pages),
        awake_reserve_pages: Pages(raw.awake_reserve_pages),
        low_wmark_pages: Pages(raw.low_wmark_pages),
        woken_by_demand: raw.woken_by_demand,
    }
}

pub(crate) fn slice(raw: &uapi::ramslice_slice_info) -> Result<types::Slice, KernelError> {
    let id = SliceId(raw.id);
    let state = SliceState::from_raw(raw.state)
        .ok_or(KernelError::UnknownState { slice: id, state: raw.state })?;
    let has = |flag: u32| u32::from(raw.flags) & flag != 0;
    let counter = |index: uapi::ramslice_counter| Pages(raw.counters[index as usize].into());
    Ok(types::Slice {
        id,
        state,
        reason: Reason::from_raw(raw.reason.into()),
        unreclaimable: has(uapi::RAMSLICE_SLICE_UNRECLAIMABLE),
        backoff: has(uapi::RAMSLICE_SLICE_BACKOFF),
        unmovable: has(uapi::RAMSLICE_SLICE_UNMOVABLE),
        held: has(uapi::RAMSLICE_SLICE_HELD),
        node: NodeId(raw.node.into()),
        zone: ZoneNumber(raw.zone.into()),
        present: Pages(raw.nr_pages.into()),
        frames: None,
        price: Price(raw.price),
        counters: SliceCounters {
            free: counter(uapi::RAMSLICE_FREE),
            lru_anon: counter(uapi::RAMSLICE_LRU_ANON),
            lru_file: counter(uapi::RAMSLICE_LRU_FILE),
            anon_mapped: counter(uapi::RAMSLICE_ANON_MAPPED),
            file_mapped: counter(uapi::RAMSLICE_FILE_MAPPED),
            file: counter(uapi::RAMSLICE_FILE),
            shmem: counter(uapi::RAMSLICE_SHMEM),
            dirty: counter(uapi::RAMSLICE_DIRTY),
            writeback: counter(uapi::RAMSLICE_WRITEBACK),
            huge: counter(uapi::RAMSLICE_HUGE),
        },
        retry_ms: raw.retry_ms,
    })
}

pub(crate) fn run(raw: &uapi::ramslice_page_run) -> types::PageRun {
    let class = PageClass::from_raw(raw.page_class);
    let device = DeviceNumber { major: raw.dev_major, minor: raw.dev_minor };
    let cached = matches!(class, PageClass::File | PageClass::Shmem);
    // Device 0:0 is the kernel's way to say that it could not look.
    let has_file = cached && (raw.dev_major, raw.dev_minor) != (0, 0);
    types::PageRun {
        pfn: Pfn(raw.pfn),
        pages: Pages(raw.nr_pages.into()),
        class,
        reason: Reason::from_raw(raw.reason.into()),
        flags: PageFlags::from_raw(raw.flags),
        order: raw.order.into(),
        mappings: raw.nr_maps,
        extra_references: raw.extra_refs,
        file: has_file.then_some(FileId { device, inode: raw.inode }),
        cgroup_inode: (raw.cgroup != 0).then_some(raw.cgroup),
    }
}

pub(crate) fn request(request: &types::Request) -> uapi::ramslice_request {
    let (op, id) = match request.op {
        RequestOp::Offline(id) => (uapi::RAMSLICE_OP_OFFLINE, id.0),
        RequestOp::Online(id) => (uapi::RAMSLICE_OP_ONLINE, id.0),
        RequestOp::Compact => (uapi::RAMSLICE_OP_COMPACT, 0),
        RequestOp::OfflineFree => (uapi::RAMSLICE_OP_OFFLINE_FREE, 0),
        RequestOp::OnlineAll => (uapi::RAMSLICE_OP_ONLINE_ALL, 0),
    };
    let flag = |on: bool, flag: u32| if on { flag } else { 0 };
    uapi::ramslice_request {
        size: uapi::struct_size::<uapi::ramslice_request>(),
        op,
        flags: flag(request.per_slice, uapi::RAMSLICE_REQ_PER_SLICE)
            | flag(request.cache == CacheChoice::Keep, uapi::RAMSLICE_REQ_KEEP_CACHE)
            | flag(request.cache == CacheChoice::Auto, uapi::RAMSLICE_REQ_AUTO_CACHE)
            | flag(request.ignore_backoff, uapi::RAMSLICE_REQ_IGNORE_BACKOFF)
            | flag(request.dry_run, uapi::RAMSLICE_REQ_DRY_RUN)
            | flag(request.hold, uapi::RAMSLICE_REQ_HOLD),
        id,
        node: request.node.map_or(uapi::RAMSLICE_ANY, |node| node.0),
        zone: request
            .zone
            .map_or(uapi::RAMSLICE_ANY, |zone| i32::try_from(zone.0).unwrap_or(i32::MAX)),
        budget: request.budget.raw(),
        max_slices: request.max_slices.unwrap_or(uapi::RAMSLICE_ALL_SLICES),
        // At least 1: 0 would ask for the default.
        deadline_ms: request
            .deadline
            .map_or(0, |time| u32::try_from(time.as_millis()).unwrap_or(u32::MAX).max(1)),
        ..uapi::ramslice_request::default()
    }
}

pub(crate) fn outcome(raw: &uapi::ramslice_request) -> types::RequestOutcome {
    types::RequestOutcome {
        status_errno: raw.status,
        reason: Reason::from_raw(raw.reason),
        slices_done: raw.nr_done,
        slices_failed: raw.nr_failed,
        // It counts the pages of CPUs' lists as free, and drains the lists itself.
        slices_to_drain: 0,
        // Without work there is no last slice; the kernel then leaves all bits set.
        last_slice: (raw.last_id != u32::MAX).then_some(SliceId(raw.last_id)),
        elapsed: Duration::from_nanos(raw.elapsed_ns),
        price_predicted: Price(raw.price_predicted),
        price_measured: Price(raw.price_measured),
        migrated: Pages(raw.pages_migrated),
        dropped: Pages(raw.pages_dropped),
        failed: Pages(raw.pages_failed),
        huge_split: raw.huge_split,
        huge_moved: raw.huge_moved,
    }
}
