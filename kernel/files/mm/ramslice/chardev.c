// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/ramslice: consistent snapshots, requests that return their own outcome,
 * and poll for state changes. The structures: include/uapi/linux/ramslice.h.
 */

#include <linux/miscdevice.h>
#include <linux/module.h>
#include <linux/poll.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include "internal.h"
#include "boot_args.h"
#include "request.h"
#include "segments.h"

/* Sizes of the structures' first version: no caller may pass less. */
#define INFO_SIZE_V1		112
#define ZONE_SIZE_V1		96
#define SNAPSHOT_SIZE_V1	40
#define REQUEST_SIZE_V1		128
#define SLICE_SIZE_V1		72
#define SEGMENTS_SIZE_V1	16

static_assert(offsetof(struct ramslice_info, held_pages) == INFO_SIZE_V1);
static_assert(offsetof(struct ramslice_zone_info, held_pages) ==
	      ZONE_SIZE_V1);
static_assert(offsetof(struct ramslice_snapshot, limit_ms) ==
	      SNAPSHOT_SIZE_V1);
static_assert(sizeof(struct ramslice_request) == REQUEST_SIZE_V1);
static_assert(sizeof(struct ramslice_slice_info) == SLICE_SIZE_V1);
static_assert(sizeof(struct ramslice_segment_list) == SEGMENTS_SIZE_V1);
static_assert(RAMSLICE_NR_COUNTERS == RAMSLICE_ROW_COUNTERS);

/* State changes that this opener has seen. */
struct ramslice_opener {
	u64 seen_seq;
};

/* Reads a structure that begins with its size; the caller's may be newer. */
int ramslice_get_struct(void *dst, size_t ksize, size_t min_size,
			const void __user *src, u32 *usize)
{
	if (get_user(*usize, (const u32 __user *)src))
		return -EFAULT;
	if (*usize < min_size || *usize > PAGE_SIZE)
		return -EINVAL;
	return copy_struct_from_user(dst, ksize, src, *usize);
}

/* Writes it back, as much as the caller has room for; size stays theirs. */
int ramslice_put_struct(void __user *dst, const void *src, size_t ksize,
			u32 usize)
{
	return copy_to_user(dst, src, min_t(size_t, ksize, usize)) ? -EFAULT : 0;
}

static u64 ramslice_read_seq(void)
{
	u64 seq;

	spin_lock_irq(&ramslice_lock);
	seq = ramslice_event_seq;
	spin_unlock_irq(&ramslice_lock);
	return seq;
}

static long ramslice_ioc_info(void __user *arg)
{
	struct ramslice_zone *rz;
	struct ramslice_info info;
	unsigned int i;
	u32 usize;
	int err = ramslice_get_struct(&info, sizeof(info), INFO_SIZE_V1, arg,
				      &usize);

	if (err)
		return err;
	memset(&info, 0, sizeof(info));
	info.size = usize;
	info.abi_version = RAMSLICE_ABI_VERSION;
	info.page_bytes = PAGE_SIZE;
	info.pageblock_bytes = pageblock_nr_pages << PAGE_SHIFT;
	info.chunk_bytes = (u64)RAMSLICE_CHUNK_PAGES << PAGE_SHIFT;
	info.nr_zones = ramslice_nr_zones();
	info.event_seq = ramslice_read_seq();

	down_read(&ramslice_table_sem);
	info.slice_bytes = ramslice_slice_bytes();
	info.interleave_ways = ramslice_interleave_now().ways;
	info.granularity_bytes = ramslice_interleave_now().granularity_bytes;
	if (ramslice_geom.table)
		info.nr_segments = ramslice_geom.table->nr;
	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		info.nr_slices += rz->nr_slices;
		info.managed_pages += zone_managed_pages(rz->zone);
		info.free_pages += zone_page_state(rz->zone, NR_FREE_PAGES);
		info.offline_pages += ramslice_zone_wakeable_pages(rz->zone);
		info.quarantined_pages +=
			READ_ONCE(rz->nr_quarantined_pages);
		info.held_pages += READ_ONCE(rz->nr_held_pages);
	}
	up_read(&ramslice_table_sem);
	ramslice_power_name(info.power_driver);
	return ramslice_put_struct(arg, &info, sizeof(info), usize);
}

static long ramslice_ioc_zone(void __user *arg)
{
	struct ramslice_zone_info zi;
	struct ramslice_zone *rz;
	struct ramslice_slice *s;
	u32 usize, index, id;
	int err = ramslice_get_struct(&zi, sizeof(zi), ZONE_SIZE_V1, arg,
				      &usize);

	if (err)
		return err;
	index = zi.index;
	rz = ramslice_zone_by_index(index);
	if (!rz)
		return -ENOENT;

	memset(&zi, 0, sizeof(zi));
	zi.size = usize;
	zi.index = index;
	zi.node = zone_to_nid(rz->zone);
	zi.zone = zone_idx(rz->zone);
	strscpy(zi.name, rz->zone->name);
	down_read(&ramslice_table_sem);
	for_each_zone_slice(rz, id, s) {
		if (READ_ONCE(s->state) == RAMSLICE_ONLINE)
			zi.nr_empty += ramslice_slice_empty(id);
		cond_resched();
	}
	spin_lock_irq(&ramslice_lock);
	zi.nr_slices = rz->nr_slices;
	zi.nr_offline = rz->nr[RAMSLICE_OFFLINE];
	zi.nr_quarantined = rz->nr[RAMSLICE_QUARANTINED];
	zi.nr_held = rz->nr_held;
	zi.held_pages = rz->nr_held_pages;
	zi.woken_by_demand = rz->woken_by_demand;
	spin_unlock_irq(&ramslice_lock);

	up_read(&ramslice_table_sem);
	zi.managed_pages = zone_managed_pages(rz->zone);
	zi.free_pages = zone_page_state(rz->zone, NR_FREE_PAGES);
	zi.offline_pages = ramslice_zone_wakeable_pages(rz->zone);
	zi.awake_reserve_pages = ramslice_awake_reserve(rz->zone);
	zi.low_wmark_pages = low_wmark_pages(rz->zone);
	return ramslice_put_struct(arg, &zi, sizeof(zi), usize);
}

/* Slices whose states are read under one hold of the lock, with interrupts off. */
#define ROWS_AT_ONCE	256
/* So long at a time memory is read: hotplug waits for ramslice_table_sem. */
#define READ_PART_NS	(2 * NSEC_PER_MSEC)
/* So often it begins again because one changed, before it holds the lock longer. */
#define MAX_RESTARTS	16

/* The zone of the last row, whose number takes a division. */
struct ramslice_row_zone {
	const struct ramslice_zone *rz;
	s16 node;
	u16 zone;
};

/* A slice's row, but what it holds. Under ramslice_lock. */
static void ramslice_fill_state(struct ramslice_slice_info *row, u32 id,
				struct ramslice_row_zone *of)
{
	const struct ramslice_slice *s = &ramslice_slices[id];

	if (of->rz != s->rz) {
		of->rz = s->rz;
		of->node = zone_to_nid(s->rz->zone);
		of->zone = zone_idx(s->rz->zone);
	}
	row->id = id;
	row->state = s->state;
	row->reason = s->reason;
	row->flags = 0;
	row->node = of->node;
	row->zone = of->zone;
	row->nr_pages = s->nr_pages;
	row->retry_ms = 0;
	if (s->unreclaimable)
		row->flags |= RAMSLICE_SLICE_UNRECLAIMABLE;
	if (s->held)
		row->flags |= RAMSLICE_SLICE_HELD;
	if (s->nr_fails && time_before(jiffies, s->retry_at)) {
		row->flags |= RAMSLICE_SLICE_BACKOFF;
		row->retry_ms = jiffies_to_msecs(s->retry_at - jiffies);
	}
}

/*
 * States of all slices at one moment, in parts as long as none changes. Under
 * table_sem.
 */
static u32 ramslice_fill_states(struct ramslice_slice_info *rows, u64 *seq)
{
	struct ramslice_row_zone of = {};
	unsigned int restarts = 0;
	u32 id = 0, nr = 0, end;

	while (id < ramslice_nr_ids) {
		spin_lock_irq(&ramslice_lock);
		if (id && *seq != ramslice_event_seq) {
			id = 0;
			nr = 0;
			restarts++;
		}
		*seq = ramslice_event_seq;
		end = ramslice_nr_ids;
		if (restarts < MAX_RESTARTS)
			end = min(end, id + ROWS_AT_ONCE);
		for (; id < end; id++) {
			if (ramslice_slices[id].rz)
				ramslice_fill_state(&rows[nr++], id, &of);
		}
		spin_unlock_irq(&ramslice_lock);
		cond_resched();
	}
	return nr;
}

/*
 * Those that are off hold nothing. The price is of what pages may be at most, the
 * counters are what was read.
 */
static void ramslice_fill_counters(struct ramslice_slice_info *row,
				   const struct ramslice_prices *prices)
{
	bool poisoned = row->flags & (RAMSLICE_SLICE_UNRECLAIMABLE |
				      RAMSLICE_SLICE_BACKOFF);
	const struct ramslice_slice *s = &ramslice_slices[row->id];
	u32 anon;

	BUILD_BUG_ON(ARRAY_SIZE(row->counters) != ARRAY_SIZE(s->count));
	if (ramslice_slice_stale(row->id)) {
		ramslice_glance_slice(row->id);
		row->flags |= RAMSLICE_SLICE_STALE;
		cond_resched();
	}
	row->age_ms = READ_ONCE(s->was_read) ?
		      jiffies_to_msecs(jiffies - READ_ONCE(s->read_at)) :
		      U32_MAX;
	ramslice_count_slice(row->id, row->counters);
	anon = row->counters[RAMSLICE_LRU_ANON];
	if (row->state == RAMSLICE_ONLINE &&
	    ramslice_count_stragglers(row->id, row->counters)) {
		row->flags |= RAMSLICE_SLICE_UNMOVABLE;
		poisoned = true;
	}
	row->price = ramslice_price_counters(prices, row->nr_pages,
					     row->counters, poisoned);
	row->counters[RAMSLICE_LRU_ANON] = anon;
}

/**
 * ramslice_fill_rows - a row for each slice
 * @rows: as many as there are slices
 * @seq: set to the number of state changes so far
 *
 * Context: ramslice_table_sem held. May sleep.
 * Return: the number of rows.
 */
u32 ramslice_fill_rows(struct ramslice_slice_info *rows, u64 *seq)
{
	struct ramslice_prices prices = ramslice_current_prices();
	u32 nr = ramslice_fill_states(rows, seq), i;

	for (i = 0; i < nr; i++) {
		ramslice_fill_counters(&rows[i], &prices);
		if (i % ROWS_AT_ONCE == 0)
			cond_resched();
	}
	return nr;
}

static u32 ramslice_count_rows(void)
{
	u32 id, nr = 0;

	for (id = 0; id < ramslice_nr_ids; id++)
		nr += !!ramslice_slices[id].rz;
	return nr;
}

static int ramslice_put_rows(struct ramslice_snapshot *snap,
			     const struct ramslice_slice_info *rows, u32 nr)
{
	u32 bytes = min_t(u32, snap->entry_size, sizeof(*rows));
	u32 i;

	if (snap->entry_size == sizeof(*rows))
		return copy_to_user(u64_to_user_ptr(snap->slices), rows,
				    array_size(nr, bytes)) ? -EFAULT : 0;
	for (i = 0; i < nr; i++) {
		void __user *to = u64_to_user_ptr(snap->slices) +
				  (size_t)i * snap->entry_size;

		if (copy_to_user(to, &rows[i], bytes))
			return -EFAULT;
	}
	return 0;
}

/*
 * Reads slices that changed, or that were read before @since and longer ago than
 * @max_age, until @until_ns.
 */
static void ramslice_read_zones(unsigned long since, unsigned long max_age,
				u64 until_ns)
{
	unsigned long age = max_age, deadline = jiffies + MAX_JIFFY_OFFSET;
	struct ramslice_zone *rz;
	unsigned int i;
	bool done;

	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		u32 left = U32_MAX;

		do {
			if (signal_pending(current) || ktime_get_ns() >= until_ns)
				return;
			/* What one part has read is no work for the next */
			if (max_age != RAMSLICE_ANY_AGE)
				age = max(max_age, jiffies - since + 1);
			down_read(&ramslice_table_sem);
			done = ramslice_scan_part(rz, &left, age,
						  READ_PART_NS, deadline);
			up_read(&ramslice_table_sem);
		} while (!done);
	}
}

/* Reads memory, as far as it comes in that time. May sleep. */
static void ramslice_read_memory(u32 limit_ms, u32 max_age_ms)
{
	unsigned long begun = jiffies;
	u64 now_ns = ktime_get_ns(), limit_ns = (u64)limit_ms * NSEC_PER_MSEC;

	/* What changed first: for the rest, time may not last */
	ramslice_read_zones(begun, RAMSLICE_ANY_AGE, now_ns + limit_ns / 2);
	ramslice_read_zones(begun, msecs_to_jiffies(max_age_ms),
			    now_ns + limit_ns);
}

/* See RAMSLICE_IOC_SEGMENTS. The table stays as it is: no lock. */
static long ramslice_ioc_segments(void __user *arg)
{
	const struct ramslice_segments *t = ramslice_geom.table;
	unsigned int block_shift = PAGE_SHIFT + pageblock_order;
	struct ramslice_segment __user *to;
	struct ramslice_segment_list list;
	u32 i, nr = t ? t->nr : 0, usize;
	int err = ramslice_get_struct(&list, sizeof(list), SEGMENTS_SIZE_V1,
				      arg, &usize);
	bool fits;

	if (err)
		return err;
	fits = nr <= list.nr;
	to = u64_to_user_ptr(list.segments);
	for (i = 0; fits && i < nr; i++) {
		struct ramslice_segment seg = {
			.start_bytes = (u64)t->at[i].first << block_shift,
			.bytes = (u64)t->at[i].nr << block_shift,
		};

		if (copy_to_user(&to[i], &seg, sizeof(seg)))
			return -EFAULT;
	}
	list.nr = nr;
	list.size = usize;
	err = ramslice_put_struct(arg, &list, sizeof(list), usize);
	if (err)
		return err;
	return fits ? 0 : -ENOSPC;
}

static long ramslice_ioc_snapshot(void __user *arg)
{
	struct ramslice_slice_info *rows;
	struct ramslice_snapshot snap;
	u32 usize, nr;
	int err = ramslice_get_struct(&snap, sizeof(snap), SNAPSHOT_SIZE_V1,
				      arg, &usize);

	if (err)
		return err;
	if (snap.flags & ~RAMSLICE_SNAPSHOT_FRESH || snap.entry_size < SLICE_SIZE_V1 ||
	    snap.entry_size > PAGE_SIZE)
		return -EINVAL;

	/* The first to look has memory reserved at boot found, if it can */
	if (mutex_trylock(&ramslice_mutex)) {
		ramslice_classify(false);
		mutex_unlock(&ramslice_mutex);
	}

	if (snap.flags & RAMSLICE_SNAPSHOT_FRESH)
		ramslice_read_memory(snap.limit_ms ?: RAMSLICE_SNAPSHOT_LIMIT_MS,
				     snap.max_age_ms);

	down_read(&ramslice_table_sem);
	nr = ramslice_count_rows();
	if (nr > snap.nr) {
		up_read(&ramslice_table_sem);
		snap.nr = nr;
		err = ramslice_put_struct(arg, &snap, sizeof(snap), usize);
		return err ?: -ENOSPC;
	}
	rows = kvmalloc_array(max(nr, 1U), sizeof(*rows), GFP_KERNEL);
	if (!rows) {
		up_read(&ramslice_table_sem);
		return -ENOMEM;
	}
	snap.time_ns = ktime_get_ns();
	ramslice_fill_rows(rows, &snap.event_seq);
	up_read(&ramslice_table_sem);

	err = ramslice_put_rows(&snap, rows, nr);
	kvfree(rows);
	if (err)
		return err;
	snap.nr = nr;
	snap.entry_size = min_t(u32, snap.entry_size, sizeof(*rows));
	return ramslice_put_struct(arg, &snap, sizeof(snap), usize);
}

static bool ramslice_request_valid(const struct ramslice_request *req)
{
	bool wakes = req->op == RAMSLICE_OP_ONLINE ||
		     req->op == RAMSLICE_OP_ONLINE_ALL;
	bool by_id = req->op == RAMSLICE_OP_OFFLINE ||
		     req->op == RAMSLICE_OP_ONLINE;
	u32 both = RAMSLICE_REQ_KEEP_CACHE | RAMSLICE_REQ_AUTO_CACHE;

	if (wakes && req->flags & ~(req->op == RAMSLICE_OP_ONLINE_ALL ?
				    RAMSLICE_REQ_HOLD : 0))
		return false;
	if (req->op >= RAMSLICE_NR_OPS || req->flags & ~RAMSLICE_REQ_FLAGS ||
	    (req->flags & both) == both ||
	    req->reserved || !req->max_slices)
		return false;
	if (by_id)
		return req->node == RAMSLICE_ANY && req->zone == RAMSLICE_ANY;
	if (req->id)
		return false;
	return (req->node == RAMSLICE_ANY ||
		(req->node >= 0 && req->node < MAX_NUMNODES)) &&
	       (req->zone == RAMSLICE_ANY ||
		(req->zone >= 0 && req->zone < MAX_NR_ZONES));
}

static long ramslice_ioc_request(void __user *arg)
{
	struct ramslice_request req, in;
	u32 usize;
	int err = ramslice_get_struct(&in, sizeof(in), REQUEST_SIZE_V1, arg,
				      &usize);

	if (err)
		return err;
	if (!ramslice_request_valid(&in))
		return -EINVAL;
	/* The machine has less memory then, for all */
	if (in.flags & RAMSLICE_REQ_HOLD && !capable(CAP_SYS_ADMIN))
		return -EPERM;

	req = (struct ramslice_request) {
		.size = usize,
		.op = in.op,
		.flags = in.flags,
		.id = in.id,
		.node = in.node,
		.zone = in.zone,
		.budget = in.budget,
		.max_slices = in.max_slices,
		.deadline_ms = in.deadline_ms,
	};
	err = ramslice_request(&req);
	return err ?: ramslice_put_struct(arg, &req, sizeof(req), usize);
}

static long ramslice_ioctl(struct file *file, unsigned int cmd,
			   unsigned long arg)
{
	void __user *uarg = (void __user *)arg;

	if (cmd == RAMSLICE_IOC_REQUEST)
		return file->f_mode & FMODE_WRITE ?
		       ramslice_ioc_request(uarg) : -EBADF;
	if (!(file->f_mode & FMODE_READ))
		return -EBADF;

	switch (cmd) {
	case RAMSLICE_IOC_INFO:
		return ramslice_ioc_info(uarg);
	case RAMSLICE_IOC_ZONE:
		return ramslice_ioc_zone(uarg);
	case RAMSLICE_IOC_SNAPSHOT:
		return ramslice_ioc_snapshot(uarg);
	case RAMSLICE_IOC_PAGES:
		return ramslice_ioc_pages(uarg);
	case RAMSLICE_IOC_SEGMENTS:
		return ramslice_ioc_segments(uarg);
	default:
		return -ENOTTY;
	}
}

/* Has anything changed since @o read last? @seq is what there is now. */
static bool ramslice_seq_moved(const struct ramslice_opener *o, u64 *seq)
{
	*seq = ramslice_read_seq();
	return *seq != READ_ONCE(o->seen_seq);
}

static ssize_t ramslice_read(struct file *file, char __user *buf, size_t len,
			     loff_t *pos)
{
	struct ramslice_opener *o = file->private_data;
	u64 seq;

	if (len < sizeof(seq))
		return -EINVAL;
	if (!ramslice_seq_moved(o, &seq)) {
		if (file->f_flags & O_NONBLOCK)
			return -EAGAIN;
		if (wait_event_interruptible(ramslice_wait,
					     ramslice_seq_moved(o, &seq)))
			return -ERESTARTSYS;
	}
	if (copy_to_user(buf, &seq, sizeof(seq)))
		return -EFAULT;
	WRITE_ONCE(o->seen_seq, seq);
	return sizeof(seq);
}

static __poll_t ramslice_poll(struct file *file, poll_table *wait)
{
	struct ramslice_opener *o = file->private_data;

	poll_wait(file, &ramslice_wait, wait);
	return ramslice_read_seq() != READ_ONCE(o->seen_seq) ?
	       EPOLLIN | EPOLLRDNORM : 0;
}

static int ramslice_open(struct inode *inode, struct file *file)
{
	struct ramslice_opener *o = kmalloc(sizeof(*o), GFP_KERNEL);

	if (!o)
		return -ENOMEM;
	o->seen_seq = ramslice_read_seq();
	file->private_data = o;
	return stream_open(inode, file);
}

static int ramslice_release(struct inode *inode, struct file *file)
{
	kfree(file->private_data);
	return 0;
}

static const struct file_operations ramslice_fops = {
	.owner		= THIS_MODULE,
	.open		= ramslice_open,
	.release	= ramslice_release,
	.read		= ramslice_read,
	.poll		= ramslice_poll,
	.unlocked_ioctl	= ramslice_ioctl,
	.compat_ioctl	= compat_ptr_ioctl,
};

/* Root only; udev may let others open it. */
static struct miscdevice ramslice_misc = {
	.minor	= MISC_DYNAMIC_MINOR,
	.name	= "ramslice",
	.fops	= &ramslice_fops,
	.mode	= 0600,
};

int __init ramslice_chardev_init(void)
{
	return misc_register(&ramslice_misc);
}
