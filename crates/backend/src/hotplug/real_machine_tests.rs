//! What stock kernels of real machines showed: memory that is not the allocator's, kernels and
//! programs that do not let blocks go.

use ramslice_types::{
    Backend, BackendErrorKind, Bytes, ContentsDetail, PageClass, Pages, Reason, Request, RequestOp,
    RequestOutcome, Slice, SliceId,
};
use rustix::io::Errno;

use super::HotplugBackend;
use super::fake_machine::{BLOCK, FakeMachine};
use super::page_use::bit;

fn machine() -> (FakeMachine, HotplugBackend) {
    let fake = FakeMachine::new();
    let backend = fake.simulated_backend().with_scan_reuse(0);
    (fake, backend)
}

fn slice(backend: &HotplugBackend, id: u32) -> Slice {
    backend.snapshot().unwrap().slices.into_iter().find(|slice| slice.id.0 == id).unwrap()
}

fn offline(backend: &HotplugBackend, id: u32) -> RequestOutcome {
    backend.request(&Request::new(RequestOp::Offline(SliceId(id)))).unwrap()
}

fn groups(backend: &HotplugBackend, id: u32) -> Vec<(PageClass, u64, Reason)> {
    let contents = backend.contents(SliceId(id), ContentsDetail::default()).unwrap();
    contents.runs.iter().map(|run| (run.class, run.pages.0, run.reason)).collect()
}

#[test]
fn a_few_pages_without_flags_may_be_free_in_a_cpus_list_and_are_tried_last() {
    let (fake, backend) = machine();
    // The lists hold 5 pages, and may have grown by a batch since.
    fake.inner().per_cpu_batch = 95;
    fake.inner().fill(22, 40, 0, 0);
    fake.inner().fill(23, 101, 0, 0);
    assert_eq!((slice(&backend, 22).reason, slice(&backend, 22).unmovable), (Reason::None, false));
    assert_eq!(
        groups(&backend, 22),
        [(PageClass::Transit, 40, Reason::None), (PageClass::Free, BLOCK - 40, Reason::None)]
    );
    assert_eq!(slice(&backend, 23).reason, Reason::Unmovable);
    assert_eq!(groups(&backend, 23)[0], (PageClass::Kernel, 101, Reason::Unmovable));
    // Empty ones first, although this one has a higher address than most.
    let in_normal = Request { zone: Some(slice(&backend, 22).zone), ..Request::default() };
    backend.request(&Request { max_slices: Some(3), ..in_normal.clone() }).unwrap();
    assert_eq!(fake.off(), [19, 20, 21]);
    fake.inner().fill(22, 40, bit::BUDDY, 0);
    assert_eq!(offline(&backend, 22).slices_done, 1);
}

#[test]
fn a_dry_run_counts_the_slices_with_pages_that_only_cpus_lists_explain() {
    let (fake, backend) = machine();
    fake.inner().per_cpu_batch = 95;
    let dry = |op| {
        let request = Request { dry_run: true, ..Request::new(op) };
        let outcome = backend.request(&request).unwrap();
        (outcome.slices_done, outcome.slices_to_drain)
    };
    let (most, none) = dry(RequestOp::Compact);
    assert_eq!(none, 0);
    fake.inner().fill(21, 40, 0, 0);
    fake.inner().fill(22, 1, 0, 0);
    // More than the lists hold: it cannot go.
    fake.inner().fill(23, 101, 0, 0);
    assert_eq!(dry(RequestOp::Compact), (most - 1, 2));
    assert_eq!(dry(RequestOp::Offline(SliceId(22))), (1, 1));
    assert_eq!(dry(RequestOp::Offline(SliceId(20))), (1, 0));
    // They go last: what is done before them counts none.
    let request = Request { dry_run: true, max_slices: Some(3), ..Request::default() };
    assert_eq!(backend.request(&request).unwrap().slices_to_drain, 0);
    assert_eq!(fake.inner().writes, []);
}

#[test]
fn memory_that_the_allocator_does_not_have_yet_is_named_as_that() {
    let (fake, backend) = machine();
    // The upper half of block 22 and all of block 23, at the end of Normal, have no descriptors.
    let missing = BLOCK + BLOCK / 2;
    fake.inner().not_given = missing;
    let first = (22 * BLOCK + BLOCK / 2) as usize;
    fake.inner().flags[first..(24 * BLOCK) as usize].fill(0);
    assert_eq!(
        groups(&backend, 22),
        [
            (PageClass::Free, BLOCK / 2, Reason::None),
            (PageClass::NotGiven, BLOCK / 2, Reason::NotGiven)
        ]
    );
    let whole = slice(&backend, 23);
    assert_eq!(
        (whole.reason, whole.unmovable, whole.unreclaimable),
        (Reason::NotGiven, true, false)
    );
    assert_eq!(offline(&backend, 23).reason, Reason::NotGiven);
    assert_eq!(fake.inner().writes, []);
    // Below, where nothing is missing, such pages are the kernel's.
    fake.inner().fill(10, 1024, 0, 0);
    assert_eq!(groups(&backend, 10)[0], (PageClass::Kernel, 1024, Reason::Unmovable));
}

#[test]
fn a_blocks_own_page_descriptors_are_no_obstacle() {
    let (fake, backend) = machine();
    // 64 bytes a page: 256 pages of 16384.
    fake.inner().fill(20, 256, bit::OWNER_PRIVATE, 0);
    assert_eq!(slice(&backend, 20).reason, Reason::Unmovable, "memmap_on_memory is off");
    fake.inner()
        .saved_files
        .insert("sys/module/memory_hotplug/parameters/memmap_on_memory".to_owned(), "Y".to_owned());
    let added = slice(&backend, 20);
    assert_eq!((added.reason, added.unmovable, added.is_empty()), (Reason::None, false, true));
    assert_eq!((added.present, added.counters.free), (Pages(BLOCK - 256), Pages(BLOCK - 256)));
    // Until Linux 6.10 they are reserved as well, which memory of the boot is.
    fake.inner().fill(20, 256, bit::OWNER_PRIVATE | bit::RESERVED, 0);
    assert_eq!(slice(&backend, 20), added);
    fake.inner().fill(20, 257, bit::OWNER_PRIVATE | bit::RESERVED, 0);
    assert_eq!(slice(&backend, 20).reason, Reason::Boot);
    // Such pages elsewhere, or more of them, are a driver's.
    fake.inner().fill(20, 257, bit::OWNER_PRIVATE, 0);
    assert_eq!(slice(&backend, 20).reason, Reason::Unmovable);
    fake.inner().fill(21, 300, bit::OWNER_PRIVATE, 0);
    fake.inner().fill(21, 1, bit::BUDDY, 0);
    assert_eq!(slice(&backend, 21).reason, Reason::Unmovable);
}

#[test]
fn on_arm64_the_first_refusal_is_enough_for_all_memory_of_boot() {
    let (fake, backend) = machine();
    {
        let mut inner = fake.inner();
        inner.architecture = Some("aarch64");
        inner.failures = (0..31).map(|block| ((block, "offline"), Errno::PERM)).collect();
        // Block 31 was added by a driver.
        inner.saved_files.insert(
            "proc/iomem".to_owned(),
            "00000000-7bffffff : System RAM\n7c000000-7fffffff : System RAM (kmem)".to_owned(),
        );
    }
    let outcome = backend.request(&Request::default()).unwrap();
    assert_eq!(
        (outcome.reason, outcome.slices_done, outcome.slices_failed),
        (Reason::BootMemory, 1, 1)
    );
    assert_eq!(fake.off(), [31]);
    assert_eq!(fake.inner().writes.len(), 2);
    let kept = slice(&backend, 12);
    assert_eq!((kept.reason, kept.unreclaimable), (Reason::BootMemory, true));
    assert_eq!(offline(&backend, 12).reason, Reason::BootMemory);
    assert_eq!(fake.inner().writes.len(), 2, "it is not tried again");
}

#[test]
fn on_arm64_a_module_that_was_plugged_in_is_no_memory_of_boot_unless_it_is_refused() {
    let (fake, backend) = machine();
    {
        let mut inner = fake.inner();
        inner.architecture = Some("aarch64");
        inner.failures = (0..31).map(|block| ((block, "offline"), Errno::PERM)).collect();
        // Firmware describes blocks 30 and 31 as devices, but block 30 was there at boot.
        for block in [30, 31] {
            let id = format!("sys/devices/system/memory/memory{block}/firmware_node/hid");
            inner.saved_files.insert(id, "PNP0C80".to_owned());
        }
    }
    assert_eq!(offline(&backend, 12).reason, Reason::BootMemory);
    let reasons = |ids: [u32; 3]| ids.map(|id| slice(&backend, id).reason);
    assert_eq!(reasons([13, 30, 31]), [Reason::BootMemory, Reason::None, Reason::None]);
    assert_eq!(offline(&backend, 31).slices_done, 1);
    assert_eq!(offline(&backend, 30).reason, Reason::BootMemory);
    assert_eq!(slice(&backend, 30).reason, Reason::BootMemory);
}

#[test]
fn elsewhere_such_a_refusal_is_a_drivers() {
    let (fake, backend) = machine();
    fake.inner().failures.insert((12, "offline"), Errno::PERM);
    assert_eq!(offline(&backend, 12).reason, Reason::Power);
    assert_eq!(slice(&backend, 13).reason, Reason::None);
}

#[test]
fn a_block_that_another_program_brings_back_at_once_is_left_alone_for_a_while() {
    let (fake, backend) = machine();
    backend.set_slice_bytes(Bytes(128 << 20)).unwrap();
    // The lower one of its two blocks
    fake.inner().brought_back.insert(24);
    assert_eq!(offline(&backend, 12).reason, Reason::BroughtBack);
    assert_eq!(fake.off(), [] as [u64; 0], "the other one comes back, too");
    let slice = slice(&backend, 12);
    assert_eq!((slice.reason, slice.backoff), (Reason::BroughtBack, true));
}

#[test]
fn a_block_with_a_bad_page_stays_offline_and_says_why() {
    let (fake, backend) = machine();
    assert_eq!(offline(&backend, 12).slices_done, 1);
    fake.inner().failures.insert((12, "online"), Errno::HWPOISON);
    let outcome = backend.request(&Request::new(RequestOp::Online(SliceId(12)))).unwrap();
    assert_eq!((outcome.reason, outcome.slices_failed), (Reason::HwPoison, 1));
}

#[test]
fn a_container_that_may_not_write_to_sys_gets_that_as_its_error() {
    let (fake, backend) = machine();
    fake.inner().read_only = true;
    for request in [Request::default(), Request::new(RequestOp::Offline(SliceId(12)))] {
        let error = backend.request(&request).unwrap_err();
        assert_eq!(error.kind(), BackendErrorKind::Permission);
        let text = error.to_string();
        assert!(text.contains("memory0/state") && text.contains("read-only"), "{text}");
    }
    assert!(backend.request(&Request { dry_run: true, ..Request::default() }).is_ok());
}

#[test]
fn a_hugetlb_page_of_several_blocks_keeps_each_of_them_on() {
    let (fake, backend) = machine();
    // 1 GiB from block 8 on; the head is in the first block alone.
    for block in 8..24 {
        fake.inner().fill(block, BLOCK, bit::HUGE | bit::COMPOUND_TAIL, 0);
    }
    fake.inner().fill(8, 1, bit::HUGE | bit::COMPOUND_HEAD, 0);
    for id in [8, 9, 23] {
        assert_eq!(slice(&backend, id).reason, Reason::Gigantic, "{id}");
    }
}

#[test]
fn the_end_of_a_zone_that_could_not_come_back_has_a_reason_of_its_own() {
    let (fake, backend) = machine();
    fake.inner().zones.values_mut().for_each(|zone| *zone = "DMA");
    for (id, reason) in [(31, Reason::ZoneEdge), (30, Reason::None)] {
        assert_eq!(slice(&backend, id).reason, reason, "{id}");
    }
}
