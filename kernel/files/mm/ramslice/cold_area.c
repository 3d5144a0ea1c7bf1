// SPDX-License-Identifier: GPL-2.0
/*
 * The size of cold memory: memory blocks move between a node and its twin.
 *
 * A block moves as memory hotplug has it: offline, another node, online. Before
 * that its slices are emptied as by any request, within a deadline, so that
 * hotplug finds nothing to move, and gives up on nothing.
 */

#include <linux/bitmap.h>
#include <linux/memory.h>
#include <linux/memory_hotplug.h>
#include <linux/sched/signal.h>
#include <linux/task_work.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include <linux/xarray.h>
#include "internal.h"
#include "request.h"
#include "cold.h"

unsigned int ramslice_cold_deadline_ms = 60 * MSEC_PER_SEC;

/* One change of a size at a time. */
static DEFINE_MUTEX(ramslice_cold_mutex);

/* There is one. Set with ramslice_table_sem held for reading. */
static bool ramslice_cold_resizing;

/* Then slices keep their size. With ramslice_table_sem held for writing. */
bool ramslice_cold_needs_geometry(void)
{
	return READ_ONCE(ramslice_cold_resizing);
}

/*
 * Blocks that are in twins, by number: the index of the zone that each had
 * before. Under ramslice_cold_mutex.
 */
static DEFINE_XARRAY(ramslice_cold_blocks);

/**
 * struct ramslice_resize - a change of the size of a twin under way
 * @nid: the node
 * @twin: its twin
 * @deadline: jiffies at which it gives up
 * @unit_pages: page frames that go together: a slice, or a memory block
 * @moved: numbers of the blocks that it has moved
 * @timer: ends hotplug's attempts to empty a block at the deadline
 * @task: the task that waits for that
 * @grows: blocks go to the twin
 * @stuck: a block of a unit could not go back to the others, or is offline
 * @undo: puts all blocks back
 */
struct ramslice_resize {
	int nid;
	int twin;
	unsigned long deadline;
	unsigned long unit_pages;
	struct xarray moved;
	struct timer_list timer;
	struct task_struct *task;
	bool grows;
	bool stuck;
	struct work_struct undo;
};

static unsigned long ramslice_block_pages(void)
{
	return memory_block_size_bytes() >> PAGE_SHIFT;
}

/*
 * What sizes are multiples of: the larger of a slice, with those that take turns
 * with it, and a memory block.
 */
u64 ramslice_cold_unit(void)
{
	return max_t(u64, ramslice_group_bytes(), memory_block_size_bytes());
}

/* Bytes of a node that are in its twin. */
u64 ramslice_cold_bytes(int nid)
{
	int twin = ramslice_twin_of(nid);

	return twin == NUMA_NO_NODE ?
	       0 : (u64)node_present_pages(twin) << PAGE_SHIFT;
}

/* The most that its twin may have: three quarters of both. */
u64 ramslice_cold_max_bytes(int nid)
{
	int twin = ramslice_twin_of(nid);
	u64 bytes;

	if (twin == NUMA_NO_NODE)
		return 0;
	bytes = (u64)(node_present_pages(nid) + node_present_pages(twin)) <<
		PAGE_SHIFT;
	return rounddown(bytes / 4 * 3, ramslice_cold_unit());
}

static int ramslice_resize_left(const struct ramslice_resize *r)
{
	if (signal_pending(current))
		return -EINTR;
	return time_after_eq(jiffies, r->deadline) ? -ETIMEDOUT : 0;
}

static void ramslice_resize_expired(struct timer_list *timer)
{
	struct ramslice_resize *r = from_timer(r, timer, timer);

	/* Offlining a block goes on until it succeeds, or for a signal */
	set_notify_signal(r->task);
}

/* Moves a block, which must be in use. Gives up at the deadline. */
static int ramslice_move_block(struct ramslice_resize *r, unsigned long pfn,
			       struct zone *zone)
{
	int err;

	lock_device_hotplug();
	err = ramslice_resize_left(r);
	if (!err) {
		mod_timer(&r->timer, r->deadline);
		err = memory_block_move(pfn, zone);
		/* Not one block after the other */
		r->stuck |= err == -EIO;
		if (err == -EINTR && time_after_eq(jiffies, r->deadline))
			err = -ETIMEDOUT;
		if (!del_timer_sync(&r->timer)) {
			/*
			 * It has set the flag. Work that may have set it, too, is
			 * not to be missed; work that waits without is no reason.
			 */
			clear_notify_signal();
			if (task_work_pending(current))
				set_notify_signal(current);
		}
	}
	/* After the last block went, or the first one did not */
	if (node_online(r->twin) && !node_state(r->twin, N_MEMORY))
		try_offline_node(r->twin);
	unlock_device_hotplug();
	return err;
}

/* Can it be emptied, as far as is known? Under ramslice_table_sem. */
static bool ramslice_slice_fits(const struct ramslice_resize *r,
				const struct ramslice_slice *s)
{
	if (!s || !s->rz || zone_to_nid(s->rz->zone) != r->nid)
		return false;
	/* It is read again and again: any value of it will do */
	if (data_race(s->nr_blocking))
		return false;
	return !READ_ONCE(s->unreclaimable) &&
	       READ_ONCE(s->state) != RAMSLICE_QUARANTINED;
}

static bool ramslice_unit_fits(const struct ramslice_resize *r,
			       unsigned long pfn)
{
	unsigned long nr, end = pfn + r->unit_pages;
	bool fits = true;

	/* Before anything is emptied for it; no block is removed meanwhile */
	lock_device_hotplug();
	for (nr = pfn; fits && nr < end; nr += ramslice_block_pages())
		fits = memory_block_can_move(nr);
	unlock_device_hotplug();

	down_read(&ramslice_table_sem);
	for (; fits && pfn < end; pfn += pageblock_nr_pages) {
		u32 id = ramslice_geom_slice(&ramslice_geom, pfn);

		fits = ramslice_slice_fits(r, ramslice_slice(id));
	}
	up_read(&ramslice_table_sem);
	return fits;
}

/* What is left until the deadline; at least 1, as 0 means the default. */
static unsigned int ramslice_resize_left_ms(const struct ramslice_resize *r)
{
	unsigned long now = jiffies;

	return time_before(now, r->deadline) ?
	       max(1U, jiffies_to_msecs(r->deadline - now)) : 1;
}

/* Waits while another request runs: the governor's, or a user's. */
static int ramslice_ask_to_empty(const struct ramslice_resize *r, u32 id)
{
	struct ramslice_request req;
	int err;

	for (;;) {
		req = (struct ramslice_request) {
			.size = sizeof(req),
			.op = RAMSLICE_OP_OFFLINE,
			.id = id,
			.flags = RAMSLICE_REQ_AUTO_CACHE |
				 RAMSLICE_REQ_IGNORE_BACKOFF,
			.node = RAMSLICE_ANY,
			.zone = RAMSLICE_ANY,
			.budget = RAMSLICE_UNLIMITED,
			.max_slices = 1,
			.deadline_ms = ramslice_resize_left_ms(r),
		};
		err = ramslice_request(&req);
		if (err != -EBUSY || ramslice_inhibited())
			break;
		err = ramslice_resize_left(r);
		if (err)
			return err;
		schedule_timeout_interruptible(max(1, HZ / 100));
	}
	/* That is not for want of memory to work with */
	if (!err && req.reason == RAMSLICE_REASON_AWAKE_RESERVE)
		return -ENOSPC;
	return err ?: -(int)req.status;
}

static void ramslice_ask_to_wake(u32 id)
{
	struct ramslice_request req = {
		.size = sizeof(req),
		.op = RAMSLICE_OP_ONLINE,
		.id = id,
		.node = RAMSLICE_ANY,
		.zone = RAMSLICE_ANY,
		.max_slices = 1,
	};

	ramslice_request(&req);
}

/* In use? What is off is empty. */
static bool ramslice_slice_is_on(u32 id)
{
	struct ramslice_slice *s;
	bool on;

	down_read(&ramslice_table_sem);
	s = ramslice_slice(id);
	on = s && READ_ONCE(s->state) != RAMSLICE_OFFLINE;
	up_read(&ramslice_table_sem);
	return on;
}

/* Empties the slices from @first on; sets in @emptied those it switched off. */
static int ramslice_empty_slices(struct ramslice_resize *r, u32 first,
				 unsigned int nr, unsigned long *emptied)
{
	unsigned int i;
	int err = 0;

	for (i = 0; !err && i < nr; i++) {
		err = ramslice_resize_left(r);
		if (err || !ramslice_slice_is_on(first + i))
			continue;
		err = ramslice_ask_to_empty(r, first + i);
		if (!err)
			__set_bit(i, emptied);
	}
	return err;
}

/* A block goes to the twin. */
static int ramslice_lend_block(struct ramslice_resize *r, unsigned long nr)
{
	unsigned long pfn = nr * ramslice_block_pages();
	struct page *page = pfn_to_online_page(pfn);
	int err;

	/* One that is there already would lose the zone that it had */
	if (!page || page_to_nid(page) != r->nid)
		return -ENODEV;
	err = xa_err(xa_store(&ramslice_cold_blocks, nr,
			      xa_mk_value(page_zonenum(page)), GFP_KERNEL));
	if (err)
		return err;
	err = ramslice_move_block(r, pfn, ramslice_cold_zone(r->twin));
	if (err)
		xa_erase(&ramslice_cold_blocks, nr);
	return err;
}

/* A block comes back from it, to the zone that it was in. */
static int ramslice_return_block(struct ramslice_resize *r, unsigned long nr)
{
	unsigned long index = xa_to_value(xa_load(&ramslice_cold_blocks, nr));
	int err;

	err = ramslice_move_block(r, nr * ramslice_block_pages(),
				  &NODE_DATA(r->nid)->node_zones[index]);
	if (!err)
		xa_erase(&ramslice_cold_blocks, nr);
	return err;
}

/* Of this node's twin? */
static bool ramslice_block_is_there(const struct ramslice_resize *r,
				    unsigned long nr)
{
	struct page *page = pfn_to_online_page(nr * ramslice_block_pages());

	return page && page_to_nid(page) == r->twin;
}

static int ramslice_move_or_return(struct ramslice_resize *r, unsigned long nr,
				   bool to_twin)
{
	if (ramslice_block_is_there(r, nr) == to_twin)
		return 0;
	return to_twin ? ramslice_lend_block(r, nr) :
			 ramslice_return_block(r, nr);
}

/* Moves the blocks of a unit: all, or none. */
static int ramslice_move_unit(struct ramslice_resize *r, unsigned long first)
{
	unsigned long end = first + r->unit_pages / ramslice_block_pages();
	unsigned long nr;
	int err = 0;

	for (nr = first; !err && nr < end; nr++) {
		/* Never to be undone, if slices are larger now than they were */
		if (ramslice_block_is_there(r, nr) == r->grows)
			continue;
		err = xa_err(xa_store(&r->moved, nr, xa_mk_value(0),
				      GFP_KERNEL));
		if (!err)
			err = ramslice_move_or_return(r, nr, r->grows);
	}
	if (!err)
		return 0;
	while (nr-- > first) {
		if (!xa_load(&r->moved, nr))
			continue;
		if (ramslice_move_or_return(r, nr, !r->grows))
			r->stuck = true;
		else
			xa_erase(&r->moved, nr);
	}
	return err;
}

/* Empties a unit and moves it to the twin. On failure its slices wake. */
static int ramslice_lend_unit(struct ramslice_resize *r, unsigned long pfn)
{
	u32 first = ramslice_geom_slice(&ramslice_geom, pfn);
	u32 last = ramslice_geom_slice(&ramslice_geom,
				       pfn + r->unit_pages - 1);
	unsigned long *emptied = bitmap_zalloc(last - first + 1, GFP_KERNEL);
	unsigned int i;
	int err;

	if (!emptied)
		return -ENOMEM;
	err = ramslice_empty_slices(r, first, last - first + 1, emptied);
	if (!err)
		err = ramslice_move_unit(r, pfn / ramslice_block_pages());
	if (err) {
		for_each_set_bit(i, emptied, last - first + 1)
			ramslice_ask_to_wake(first + i);
	}
	bitmap_free(emptied);
	return err;
}

/* What stopped it would stop it at the next unit, too. */
static bool ramslice_resize_is_over(const struct ramslice_resize *r, int err)
{
	return r->stuck || err == -EINTR || err == -ERESTARTSYS ||
	       err == -ETIMEDOUT || err == -ENOMEM || err == -EPERM;
}

/* Highest units first: what the kernel allocates at boot is rarely there. */
static int ramslice_cold_grow(struct ramslice_resize *r, u64 bytes)
{
	unsigned long pages = r->unit_pages;
	unsigned long pfn = roundup(pgdat_end_pfn(NODE_DATA(r->nid)), pages);
	int err, missed = -ENOSPC;

	while (ramslice_cold_bytes(r->nid) < bytes) {
		if (pfn < NODE_DATA(r->nid)->node_start_pfn + pages)
			return missed;
		pfn -= pages;
		if (!ramslice_unit_fits(r, pfn))
			continue;
		err = ramslice_lend_unit(r, pfn);
		if (ramslice_resize_is_over(r, err))
			return err;
		missed = err ?: missed;
	}
	return 0;
}

/* Lowest units first, the reverse. */
static int ramslice_cold_shrink(struct ramslice_resize *r, u64 bytes)
{
	unsigned long blocks = r->unit_pages / ramslice_block_pages();
	unsigned long nr, first, end = 0;
	void *entry;
	int err, missed = -EBUSY;

	xa_for_each(&ramslice_cold_blocks, nr, entry) {
		if (ramslice_cold_bytes(r->nid) <= bytes)
			return 0;
		/* The rest of a unit that was tried */
		if (nr < end || !ramslice_block_is_there(r, nr))
			continue;
		first = rounddown(nr, blocks);
		end = first + blocks;
		err = ramslice_move_unit(r, first);
		if (ramslice_resize_is_over(r, err))
			return err;
		missed = err ?: missed;
	}
	return ramslice_cold_bytes(r->nid) > bytes ? missed : 0;
}

/* How often a block is tried that cannot go back at the moment. */
#define RAMSLICE_UNDO_PAUSE	max(1, HZ / 20)

/*
 * Puts a block back. Hotplug gives up at once if another has isolated a part of
 * the block: a request that empties a slice, or compaction. That passes.
 */
static int ramslice_put_back(struct ramslice_resize *r, unsigned long nr)
{
	int err;

	for (;;) {
		err = ramslice_move_or_return(r, nr, !r->grows);
		if (err != -EBUSY || time_after_eq(jiffies, r->deadline))
			return err;
		schedule_timeout_uninterruptible(RAMSLICE_UNDO_PAUSE);
	}
}

/*
 * Puts every block back that was moved. By a worker, because hotplug gives up for
 * a signal, and there may be one.
 */
static void ramslice_resize_undo(struct work_struct *work)
{
	struct ramslice_resize *r =
		container_of(work, struct ramslice_resize, undo);
	unsigned long nr;
	void *entry;
	int err;

	r->task = current;
	xa_for_each(&r->moved, nr, entry) {
		/* For each, or much that was moved would not all go back */
		r->deadline = jiffies + msecs_to_jiffies(RAMSLICE_DEADLINE_MS);
		err = ramslice_put_back(r, nr);
		if (err)
			pr_warn("memory block %lu stays in node %d: %d\n", nr,
				r->grows ? r->twin : r->nid, err);
	}
}

/* Under ramslice_table_sem. */
static int ramslice_check_size(int nid, u64 bytes)
{
	u64 slice = ramslice_group_bytes(), block = memory_block_size_bytes();

	/* Slices by a table differ in size, and blocks need not fit in them */
	if (ramslice_geom.table || (slice % block && block % slice))
		return -EOPNOTSUPP;
	if (bytes % ramslice_cold_unit())
		return -EINVAL;
	return bytes > ramslice_cold_max_bytes(nid) ? -ERANGE : 0;
}

/**
 * ramslice_cold_resize - give a twin memory of its node, or take it back
 * @nid: the node
 * @bytes: the size that its twin is to have
 *
 * All or nothing: on failure every block is where it was.
 *
 * Context: Process context, for as long as ramslice_cold_deadline_ms and as it
 * takes to undo what was done, for each block at most a minute.
 * Return: 0; -ENODEV if the node has no twin; -EINVAL if @bytes is no multiple
 * of ramslice_cold_unit(); -ERANGE if it is more than ramslice_cold_max_bytes();
 * -EOPNOTSUPP if slices and memory blocks do not fit in each other; -EBUSY if
 * another change is under way, or the last block could not be emptied; -ENOSPC
 * if too few blocks can be emptied; -EHWPOISON if a block has a page with a memory
 * error; -EPERM if a notifier of memory hotplug says so; -EIO if a block was
 * online nowhere again; -ETIMEDOUT; -EINTR; -ENOMEM.
 */
int ramslice_cold_resize(int nid, u64 bytes)
{
	struct ramslice_resize r = {
		.nid = nid,
		.twin = ramslice_twin_of(nid),
		.task = current,
	};
	int err;

	if (r.twin == NUMA_NO_NODE)
		return -ENODEV;
	if (!mutex_trylock(&ramslice_cold_mutex))
		return -EBUSY;
	down_read(&ramslice_table_sem);
	err = ramslice_check_size(nid, bytes);
	r.unit_pages = ramslice_cold_unit() >> PAGE_SHIFT;
	WRITE_ONCE(ramslice_cold_resizing, !err);
	up_read(&ramslice_table_sem);
	if (err)
		goto unlock;

	r.deadline = jiffies +
		     msecs_to_jiffies(READ_ONCE(ramslice_cold_deadline_ms));
	xa_init(&r.moved);
	timer_setup_on_stack(&r.timer, ramslice_resize_expired, 0);
	r.grows = ramslice_cold_bytes(nid) < bytes;
	err = r.grows ? ramslice_cold_grow(&r, bytes) :
			ramslice_cold_shrink(&r, bytes);
	if (err && !xa_empty(&r.moved)) {
		INIT_WORK_ONSTACK(&r.undo, ramslice_resize_undo);
		queue_work(system_unbound_wq, &r.undo);
		flush_work(&r.undo);
		destroy_work_on_stack(&r.undo);
	}
	destroy_timer_on_stack(&r.timer);
	xa_destroy(&r.moved);
	WRITE_ONCE(ramslice_cold_resizing, false);
	ramslice_cold_update();
unlock:
	mutex_unlock(&ramslice_cold_mutex);
	return err;
}
