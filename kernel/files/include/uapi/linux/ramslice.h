/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * User space interface of ramslice: packing memory into few DRAM slices.
 *
 * All requests go to /dev/ramslice. Every structure starts with its own size
 * in bytes, set by the caller: the kernel reads at most that much, takes the
 * rest as zero, and writes back at most that much, so that either side may be
 * newer. A caller that passes non-zero bytes which the kernel does not know
 * gets -E2BIG; one that passes less than the first version's size, -EINVAL.
 * RAMSLICE_NR_* count what this header knows: newer kernels may know more.
 */
#ifndef _UAPI_LINUX_RAMSLICE_H
#define _UAPI_LINUX_RAMSLICE_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* Raised when a meaning changes; new fields only grow the structures. */
#define RAMSLICE_ABI_VERSION	1

/* The state of a slice. Legal changes: mm/ramslice/state.c. */
enum ramslice_state {
	RAMSLICE_ONLINE		= 0, /* its pages belong to the allocator */
	RAMSLICE_EMPTYING	= 1, /* isolated; pages are being moved out */
	RAMSLICE_OFFLINE	= 2, /* empty, with the power driver */
	RAMSLICE_WAKING		= 3, /* powered again, chunks being released */
	RAMSLICE_QUARANTINED	= 4, /* failed to wake: lost until reboot */
	RAMSLICE_NR_STATES,
};

/* Why a slice cannot be emptied, or why a request stopped. */
enum ramslice_reason {
	RAMSLICE_REASON_NONE		= 0,
	/* what the slice is */
	RAMSLICE_REASON_HOLE		= 1,  /* has page frames without memory */
	RAMSLICE_REASON_ZONE_END	= 2,  /* spans zones or nodes, or is cut by one's end */
	RAMSLICE_REASON_BOOT		= 3,  /* memory reserved at boot */
	RAMSLICE_REASON_QUARANTINED	= 4,  /* failed to wake */
	/* what it holds */
	RAMSLICE_REASON_SLAB		= 5,
	RAMSLICE_REASON_PAGETABLE	= 6,
	RAMSLICE_REASON_PINNED		= 7,  /* long-term pinned or extra references */
	RAMSLICE_REASON_WRITEBACK	= 8,  /* written back for too long */
	RAMSLICE_REASON_HUGETLB		= 9,
	RAMSLICE_REASON_GIGANTIC	= 10, /* folio larger than a pageblock */
	RAMSLICE_REASON_CMA		= 11,
	RAMSLICE_REASON_HIGHATOMIC	= 12, /* the allocator's high-order atomic reserve */
	RAMSLICE_REASON_HWPOISON	= 13,
	RAMSLICE_REASON_FOREIGN_OFFLINE	= 14, /* PageOffline pages of another owner */
	RAMSLICE_REASON_ISOLATED	= 15, /* a pageblock isolated by another owner */
	RAMSLICE_REASON_UNMOVABLE	= 16, /* any other kernel allocation */
	/* why a request stopped */
	RAMSLICE_REASON_NO_ROOM		= 17, /* the dearer slices cannot take its pages */
	RAMSLICE_REASON_OVER_BUDGET	= 18, /* the price exceeds the budget */
	RAMSLICE_REASON_AWAKE_RESERVE	= 19, /* would cut into the awake reserve */
	RAMSLICE_REASON_BACKOFF		= 20, /* failed lately, left alone for a while */
	RAMSLICE_REASON_PRESSURE	= 21, /* memory was wanted meanwhile */
	RAMSLICE_REASON_DEADLINE	= 22,
	RAMSLICE_REASON_SIGNAL		= 23,
	RAMSLICE_REASON_STATE		= 24, /* the slice is not in the state this needs */
	RAMSLICE_REASON_POWER		= 25, /* the power driver refused */
	RAMSLICE_REASON_MIGRATION	= 26, /* pages that should have moved did not */
	RAMSLICE_REASON_BUFFER		= 27, /* it holds a part of a contiguous buffer */
	RAMSLICE_REASON_OVER_LIMIT	= 28, /* a control group may not have a buffer */
	RAMSLICE_NR_REASONS,
};

/* The per-slice counters, in pages. Definitions: the design document. */
enum ramslice_counter {
	RAMSLICE_FREE		= 0, /* in the buddy allocator's lists */
	RAMSLICE_LRU_ANON	= 1, /* on the anonymous LRU lists (with tmpfs) */
	RAMSLICE_LRU_FILE	= 2, /* on the file LRU lists */
	RAMSLICE_ANON_MAPPED	= 3, /* anonymous, mapped at least once */
	RAMSLICE_FILE_MAPPED	= 4, /* file or tmpfs, mapped at least once */
	RAMSLICE_FILE		= 5, /* all page cache, with tmpfs */
	RAMSLICE_SHMEM		= 6, /* tmpfs and shared memory */
	RAMSLICE_DIRTY		= 7,
	RAMSLICE_WRITEBACK	= 8,
	RAMSLICE_HUGE		= 9, /* of the LRU's, in folios of a pageblock */
	RAMSLICE_NR_COUNTERS,
};

/* Of these, the ones in a row's array, for good: later ones follow its last field. */
#define RAMSLICE_ROW_COUNTERS	10

/**
 * struct ramslice_info - what this kernel offers
 * @size:           in: bytes of this structure
 * @abi_version:    out: RAMSLICE_ABI_VERSION
 * @page_bytes:     out: page size
 * @pageblock_bytes: out: unit of summaries and of slice sizes
 * @slice_bytes:    out: size of a slice; with @nr_segments, of the largest
 * @chunk_bytes:    out: unit in which a slice wakes
 * @nr_slices:      out: rows a snapshot can have
 * @nr_zones:       out: zones that RAMSLICE_IOC_ZONE answers for
 * @event_seq:      out: number of state changes so far
 * @managed_pages:  out: pages of all zones
 * @free_pages:     out: free and awake
 * @offline_pages:  out: free, but in offline slices
 * @quarantined_pages: out: lost to slices that did not wake
 * @power_driver:   out: name of the power driver, "none" without one
 * @held_pages:     out: in offline slices that are held; not in @managed_pages
 * @interleave_ways: out: slices that take turns; 1: each is contiguous
 * @nr_segments:    out: slices by a table, see RAMSLICE_IOC_SEGMENTS; 0: none, all
 *                  are of one size
 * @granularity_bytes: out: what a slice gets each time; @slice_bytes with one way
 *
 * Without @nr_segments, slice i consists of @slice_bytes / @granularity_bytes runs of
 * @granularity_bytes. The first begins at
 *
 *   i / @interleave_ways * @interleave_ways * @slice_bytes +
 *   i % @interleave_ways * @granularity_bytes
 *
 * (integer division), and each begins @interleave_ways * @granularity_bytes
 * after the one before.
 */
struct ramslice_info {
	__u32 size;
	__u32 abi_version;
	__u32 page_bytes;
	__u32 pageblock_bytes;
	__u64 slice_bytes;
	__u64 chunk_bytes;
	__u32 nr_slices;
	__u32 nr_zones;
	__u64 event_seq;
	__u64 managed_pages;
	__u64 free_pages;
	__u64 offline_pages;
	__u64 quarantined_pages;
	char power_driver[32];
	__u64 held_pages;
	__u32 interleave_ways;
	__u32 nr_segments;
	__u64 granularity_bytes;
};

/**
 * struct ramslice_zone_info - one zone
 * @size:           in: bytes of this structure
 * @index:          in: 0 to nr_zones - 1
 * @node:           out: NUMA node
 * @zone:           out: zone number within the node
 * @name:           out: the zone's name
 * @nr_slices:      out: slices that belong to it
 * @nr_empty:       out: of these online and wholly free
 * @nr_offline:     out: of these offline
 * @nr_quarantined: out: of these quarantined
 * @managed_pages:  out: pages the allocator manages, awake or not
 * @free_pages:     out: free and awake
 * @offline_pages:  out: free, but in offline slices
 * @awake_reserve_pages: out: what stays awake: slices go offline only while
 *                  @free_pages stays above it, and once these sink below the
 *                  high watermark, slices wake to reach it again
 * @low_wmark_pages: out: below this, allocations wake slices themselves
 * @woken_by_demand: out: slices woken since boot without a request: by
 *                  allocations, ahead of them, and for memory hotplug
 * @held_pages:     out: in offline slices that are held; not in @managed_pages
 * @nr_held:        out: these slices; they count in @nr_offline, too
 * @reserved:       out: 0
 */
struct ramslice_zone_info {
	__u32 size;
	__u32 index;
	__s32 node;
	__u32 zone;
	char name[16];
	__u32 nr_slices;
	__u32 nr_empty;
	__u32 nr_offline;
	__u32 nr_quarantined;
	__u64 managed_pages;
	__u64 free_pages;
	__u64 offline_pages;
	__u64 awake_reserve_pages;
	__u64 low_wmark_pages;
	__u64 woken_by_demand;
	__u64 held_pages;
	__u32 nr_held;
	__u32 reserved;
};

/* Flags of a slice. */
#define RAMSLICE_SLICE_UNRECLAIMABLE	(1U << 0) /* can never be emptied: @reason */
#define RAMSLICE_SLICE_BACKOFF		(1U << 1) /* failed lately: @reason */
#define RAMSLICE_SLICE_UNMOVABLE	(1U << 2) /* it holds pages that stay */
#define RAMSLICE_SLICE_HELD		(1U << 3) /* offline, and wakes only by hand */
#define RAMSLICE_SLICE_STALE		(1U << 4) /* pages came or went since it was read */

/**
 * struct ramslice_slice_info - one slice in a snapshot
 * @id:        physical address divided by the slice size, if slices are
 *             contiguous and of one size; for others see struct ramslice_info
 * @state:     enum ramslice_state
 * @reason:    enum ramslice_reason: why it cannot be emptied, if known
 * @flags:     RAMSLICE_SLICE_*
 * @node:      NUMA node
 * @zone:      zone number within the node
 * @nr_pages:  page frames with memory
 * @price:     Eq 3.3, in units of 100 cycles, each mapped page counted once.
 *             Holds the offset for unreclaimable slices if @flags has UNRECLAIMABLE,
 *             BACKOFF or UNMOVABLE
 * @counters:  enum ramslice_counter, in pages, as they were when read last
 * @retry_ms:  time until a slice that failed is tried again
 * @age_ms:    time since all of the slice was read; ~0U if it never was
 *
 * Whether a slice is wholly free is true whatever its age.
 */
struct ramslice_slice_info {
	__u32 id;
	__u8  state;
	__u8  reason;
	__u16 flags;
	__s16 node;
	__u16 zone;
	__u32 nr_pages;
	__u64 price;
	__u32 counters[RAMSLICE_ROW_COUNTERS];
	__u32 retry_ms;
	__u32 age_ms;
};

/* Flags of a snapshot. */
#define RAMSLICE_SNAPSHOT_FRESH		(1U << 0) /* read memory first, within @limit_ms */

/* What 0 stands for in @limit_ms. */
#define RAMSLICE_SNAPSHOT_LIMIT_MS	10U

/**
 * struct ramslice_snapshot - all slices at one moment
 * @size:       in: bytes of this structure
 * @entry_size: in: bytes between rows; out: bytes the kernel filled of each
 * @nr:         in: rows that fit at @slices; out: rows there are
 * @flags:      in: RAMSLICE_SNAPSHOT_*
 * @slices:     in: address of an array of struct ramslice_slice_info
 * @event_seq:  out: state changes so far; no state changed between the rows
 * @time_ns:    out: CLOCK_MONOTONIC when the rows were filled
 * @limit_ms:   in: with RAMSLICE_SNAPSHOT_FRESH, the most time that reading may
 *              take; 0: RAMSLICE_SNAPSHOT_LIMIT_MS. What it does not reach is
 *              older than that, as @age_ms says, and read first the next time
 * @max_age_ms: in: with RAMSLICE_SNAPSHOT_FRESH: slices that were read later than
 *              this ago, and had no pages come or go, are not read again
 *
 * Fails with -ENOSPC, @nr set and nothing written, when the rows do not fit.
 */
struct ramslice_snapshot {
	__u32 size;
	__u32 entry_size;
	__u32 nr;
	__u32 flags;
	__u64 slices;
	__u64 event_seq;
	__u64 time_ns;
	__u32 limit_ms;
	__u32 max_age_ms;
};

/* What a request does. */
enum ramslice_op {
	RAMSLICE_OP_OFFLINE	 = 0, /* empty slice @id and switch it off */
	RAMSLICE_OP_ONLINE	 = 1, /* wake slice @id */
	RAMSLICE_OP_COMPACT	 = 2, /* empty the cheapest slices within the budget */
	RAMSLICE_OP_OFFLINE_FREE = 3, /* switch off what is empty already */
	RAMSLICE_OP_ONLINE_ALL	 = 4, /* wake everything */
	RAMSLICE_NR_OPS,
};

/* Flags of a request. */
#define RAMSLICE_REQ_PER_SLICE		(1U << 0) /* the budget holds for each slice, not for all */
#define RAMSLICE_REQ_KEEP_CACHE		(1U << 1) /* drop no page cache, move it */
#define RAMSLICE_REQ_IGNORE_BACKOFF	(1U << 2) /* try slices that failed lately, too */
#define RAMSLICE_REQ_DRY_RUN		(1U << 3) /* price only: nothing is moved */
#define RAMSLICE_REQ_AUTO_CACHE		(1U << 4) /* move cache used lately, drop the rest */
/*
 * Slices switched off stay off, and OFFLINE takes one that is off already;
 * ONLINE_ALL with this flag wakes those that are held, too.
 */
#define RAMSLICE_REQ_HOLD		(1U << 5)
#define RAMSLICE_REQ_FLAGS		0x3fU

#define RAMSLICE_UNLIMITED		(~0ULL)
#define RAMSLICE_ALL_SLICES		(~0U)
#define RAMSLICE_ANY			(-1)

/**
 * struct ramslice_request - a request and its own outcome
 * @size:            in: bytes of this structure
 * @op:              in: enum ramslice_op
 * @flags:           in: RAMSLICE_REQ_*
 * @id:              in: the slice of OFFLINE and ONLINE; otherwise 0
 * @node:            in: node that COMPACT, OFFLINE_FREE and ONLINE_ALL keep to, or RAMSLICE_ANY
 * @zone:            in: zone number they keep to, or RAMSLICE_ANY
 * @budget:          in: most to spend, units of 100 cycles, or RAMSLICE_UNLIMITED
 * @max_slices:      in: most slices to switch off, or RAMSLICE_ALL_SLICES; at least 1
 * @deadline_ms:     in: time after which the request gives up; 0: the default of 60 s
 * @status:          out: 0, or the errno (positive) of what stopped it
 * @reason:          out: enum ramslice_reason that goes with it
 * @nr_done:         out: slices that changed as asked (dry run: would)
 * @nr_failed:       out: slices tried in vain; they are charged for
 * @last_id:         out: slice that was worked on last; ~0U if none was
 * @elapsed_ns:      out: wall-clock time
 * @price_predicted: out: sum of the prices (Eq 3.4) of the slices tried
 * @price_measured:  out: CPU time spent, in units of 100 cycles
 * @pages_migrated:  out
 * @pages_dropped:   out: clean cache dropped, sources and destinations
 * @pages_failed:    out: pages that could not be moved
 * @huge_split:      out: folios of a pageblock split for want of room
 * @huge_moved:      out: folios of a pageblock moved whole
 * @reserved:        must be 0
 *
 * The ioctl returns 0 when the request was valid and was carried out, even
 * if it ended early: @status and @reason say how. Invalid requests return
 * -EINVAL (field out of range), -E2BIG, -ENOENT (no such slice, node or
 * zone), -EBUSY (another request is running, or the system is suspending or
 * shutting down), -EPERM (RAMSLICE_REQ_HOLD, or ONLINE of a slice that is held,
 * without CAP_SYS_ADMIN) and change nothing. A dry run fills @nr_done and
 * @price_predicted only.
 */
struct ramslice_request {
	__u32 size;
	__u32 op;
	__u32 flags;
	__u32 id;
	__s32 node;
	__s32 zone;
	__u64 budget;
	__u32 max_slices;
	__u32 deadline_ms;
	__u32 status;
	__u32 reason;
	__u32 nr_done;
	__u32 nr_failed;
	__u32 last_id;
	__u32 reserved;
	__u64 elapsed_ns;
	__u64 price_predicted;
	__u64 price_measured;
	__u64 pages_migrated;
	__u64 pages_dropped;
	__u64 pages_failed;
	__u64 huge_split;
	__u64 huge_moved;
};

/* What a page frame is used for. */
enum ramslice_page_class {
	RAMSLICE_PAGE_FREE	= 0,  /* in the allocator's free lists */
	RAMSLICE_PAGE_TRANSIT	= 1,  /* free in a per-CPU list, or on its way; see below */
	RAMSLICE_PAGE_ANON	= 2,  /* anonymous memory */
	RAMSLICE_PAGE_FILE	= 3,  /* page cache of a file or block device */
	RAMSLICE_PAGE_SHMEM	= 4,  /* tmpfs and shared memory */
	RAMSLICE_PAGE_SWAP	= 5,  /* in the swap cache alone */
	RAMSLICE_PAGE_MOVABLE	= 6,  /* of a driver that can move it: zsmalloc, balloon */
	RAMSLICE_PAGE_HUGETLB	= 7,
	RAMSLICE_PAGE_SLAB	= 8,
	RAMSLICE_PAGE_PAGETABLE	= 9,
	RAMSLICE_PAGE_KERNEL	= 10, /* any other allocation of the kernel */
	RAMSLICE_PAGE_RESERVED	= 11, /* reserved at boot */
	RAMSLICE_PAGE_HWPOISON	= 12, /* taken out of use after a memory error */
	RAMSLICE_PAGE_FOREIGN	= 13, /* PageOffline of another owner: balloon, virtio-mem */
	RAMSLICE_PAGE_HOLE	= 14, /* no memory */
	RAMSLICE_PAGE_OFF	= 15, /* in this slice, which is switched off or lost */
	RAMSLICE_NR_PAGE_CLASSES,
};

/*
 * All but the first page of an allocation without __GFP_COMP look like pages on
 * their way: they are RAMSLICE_PAGE_TRANSIT, too.
 */

/* Flags of a run of pages. */
#define RAMSLICE_RUN_DROP	(1U << 0) /* clean unmapped cache: would be dropped, not moved */
#define RAMSLICE_RUN_LRU	(1U << 1) /* on the LRU lists */
#define RAMSLICE_RUN_DIRTY	(1U << 2)
#define RAMSLICE_RUN_WRITEBACK	(1U << 3)
#define RAMSLICE_RUN_BUFFERS	(1U << 4) /* with data of its file system */
#define RAMSLICE_RUN_SWAPCACHE	(1U << 5)
#define RAMSLICE_RUN_UNEVICTABLE (1U << 6) /* not to be reclaimed */
#define RAMSLICE_RUN_MLOCKED	(1U << 7)
#define RAMSLICE_RUN_KSM	(1U << 8)
#define RAMSLICE_RUN_PINNED	(1U << 9) /* pinned for DMA, as far as is known */
#define RAMSLICE_RUN_HWPOISON	(1U << 10) /* a page of it has a memory error */

/**
 * struct ramslice_page_run - neighbouring page frames that are alike
 * @pfn:        the first page frame
 * @nr_pages:   page frames
 * @flags:      RAMSLICE_RUN_*
 * @inode:      of FILE and SHMEM: the file's inode; 0 for the block device
 *              @dev_major, @dev_minor itself, and if it is not known
 * @cgroup:     inode of the memory cgroup charged for it, or 0
 * @dev_major:  of FILE and SHMEM: device that the inode is of, as in stat();
 *              0, 0 if it is not known
 * @dev_minor:  its minor number
 * @nr_maps:    mappings, of each folio in the run
 * @extra_refs: references of each folio beyond those of its mappings, its
 *              cache and its file system, where these are known
 * @page_class: enum ramslice_page_class
 * @reason:     enum ramslice_reason: why a request would be refused for them;
 *              RAMSLICE_REASON_NONE if they are free, can be dropped or moved
 * @order:      the folios or free blocks that the run consists of have
 *              2^order page frames each; larger ones may be cut by the slice
 * @reserved8:  0
 * @reserved:   0
 */
struct ramslice_page_run {
	__u64 pfn;
	__u32 nr_pages;
	__u32 flags;
	__u64 inode;
	__u64 cgroup;
	__u32 dev_major;
	__u32 dev_minor;
	__u32 nr_maps;
	__u32 extra_refs;
	__u8  page_class;
	__u8  reason;
	__u8  order;
	__u8  reserved8;
	__u32 reserved;
};

/**
 * struct ramslice_pages - what a slice holds, page by page
 * @size:       in: bytes of this structure
 * @id:         in: the slice
 * @entry_size: in: bytes between runs; out: bytes the kernel filled of each
 * @nr:         in: runs that fit at @runs, at least 1; out: runs written
 * @runs:       in: address of an array of struct ramslice_page_run
 * @first:      in: page frame of the slice to begin with, 0 for the first;
 *              out: where to go on. Equal to @nr_pages at the end
 * @nr_pages:   out: page frames of the slice, holes included
 * @flags:      in: must be 0
 * @state:      out: enum ramslice_state
 * @reason:     out: enum ramslice_reason of the slice, as in the snapshot
 * @reserved:   must be 0
 *
 * Runs are in the order of the slice's page frames and leave none out. They
 * are read without stopping the system: each was true at some moment of the
 * call. The kernel may write fewer runs than fit; call again with @first as
 * it was returned. A slice that is offline or quarantined has one run for each
 * that it consists of.
 *
 * Needs CAP_SYS_ADMIN, because runs show where in memory all users' files are.
 * Fails with -EPERM without it, with -ENOENT if there is no such slice.
 */
struct ramslice_pages {
	__u32 size;
	__u32 id;
	__u32 entry_size;
	__u32 nr;
	__u64 runs;
	__u32 first;
	__u32 nr_pages;
	__u32 flags;
	__u32 state;
	__u32 reason;
	__u32 reserved;
};

/**
 * struct ramslice_segment - a slice by a table
 * @start_bytes: out: its first address
 * @bytes:       out: its size
 */
struct ramslice_segment {
	__u64 start_bytes;
	__u64 bytes;
};

/**
 * struct ramslice_segment_list - slices by a table
 * @size:     in: bytes of this structure
 * @nr:       in: rows that fit at @segments; out: rows there are
 * @segments: in: address of an array of struct ramslice_segment
 *
 * By ascending address. Slice i is segment i, and it stays so until reboot; what
 * has no memory, or no longer, is in no snapshot. Memory outside of all segments is
 * of no slice, and never goes off. Without a table, there are 0.
 *
 * Fails with -ENOSPC, @nr set and nothing written, when the rows do not fit.
 */
struct ramslice_segment_list {
	__u32 size;
	__u32 nr;
	__u64 segments;
};

#define RAMSLICE_IOC_MAGIC	0xba

/*
 * The size is in the structure, not in the number, so that a structure that
 * grows keeps its number. SNAPSHOT, INFO, ZONE and SEGMENTS need read permission on
 * the file, PAGES CAP_SYS_ADMIN as well; REQUEST needs write permission.
 *
 * poll() reports EPOLLIN when a slice changed its state since the file was
 * opened or last read; read() of 8 bytes returns the number of state changes
 * so far as a __u64 (without waiting if O_NONBLOCK: -EAGAIN).
 */
#define RAMSLICE_IOC_INFO	_IO(RAMSLICE_IOC_MAGIC, 0)
#define RAMSLICE_IOC_ZONE	_IO(RAMSLICE_IOC_MAGIC, 1)
#define RAMSLICE_IOC_SNAPSHOT	_IO(RAMSLICE_IOC_MAGIC, 2)
#define RAMSLICE_IOC_REQUEST	_IO(RAMSLICE_IOC_MAGIC, 3)
#define RAMSLICE_IOC_PAGES	_IO(RAMSLICE_IOC_MAGIC, 4)
#define RAMSLICE_IOC_SEGMENTS	_IO(RAMSLICE_IOC_MAGIC, 5)

#endif /* _UAPI_LINUX_RAMSLICE_H */
