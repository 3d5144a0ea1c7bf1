// SPDX-License-Identifier: GPL-2.0
/*
 * Cold memory: for each node a twin without CPUs, and the way of an allocation
 * to it.
 *
 * A twin is a node like any other: it has LRU lists, kswapd and watermarks of
 * its own, so that what is cold is not swapped out because hot memory is short.
 * All of it is in ZONE_MOVABLE.
 */

#include <linux/cpuset.h>
#include <linux/gfp.h>
#include <linux/memory-tiers.h>
#include <linux/mempolicy.h>
#include <linux/oom.h>
#include <linux/sched/signal.h>
#include <linux/topology.h>
#include "../internal.h"
#include "internal.h"
#include "boot_args.h"
#include "cold.h"

/* A twin is a little farther away than its partner, and nearer than others. */
#define TWIN_DISTANCE	1

DEFINE_STATIC_KEY_FALSE(ramslice_cold_key);
DEFINE_STATIC_KEY_FALSE(ramslice_cold_strict_key);

nodemask_t ramslice_hot_nodes;

/* Who does not know it takes it for what it says: allocate locally. */
struct mempolicy ramslice_cold_mempolicy = {
	.refcnt = ATOMIC_INIT(1),
	.mode = MPOL_LOCAL,
};

/* For each node its twin or partner, and 1 + that, as 0 means none. Written once. */
static u16 ramslice_cold_other[MAX_NUMNODES];

static struct ramslice_cold_boot ramslice_cold_args __initdata;
static bool ramslice_cold_wanted;
u64 ramslice_cold_boot_bytes;
static enum ramslice_cold_mode ramslice_cold_mode_now;

/* ramslice_cold=2G, ramslice_cold=2G,strict; 0: twins, but nothing in them yet */
static int __init ramslice_cold_parse_param(char *arg)
{
	int err = arg ? ramslice_parse_cold(arg, &ramslice_cold_args) : -EINVAL;

	if (err) {
		pr_warn("\"ramslice_cold=%s\" on the command line is no size, nor one with \",strict\"\n",
			arg ?: "");
		return err;
	}
	ramslice_cold_wanted = true;
	ramslice_cold_boot_bytes = ramslice_cold_args.bytes;
	if (ramslice_cold_args.strict)
		ramslice_cold_mode_now = RAMSLICE_COLD_STRICT;
	return 0;
}
early_param("ramslice_cold", ramslice_cold_parse_param);

static int ramslice_cold_other_of(int nid)
{
	return (int)ramslice_cold_other[nid] - 1;
}

/* The twin of a node, or NUMA_NO_NODE. */
int ramslice_twin_of(int nid)
{
	return node_isset(nid, ramslice_hot_nodes) ?
	       ramslice_cold_other_of(nid) : NUMA_NO_NODE;
}

/* The node whose twin this is; NUMA_NO_NODE if it is none. */
int ramslice_partner_of(int twin)
{
	return node_isset(twin, ramslice_hot_nodes) ?
	       NUMA_NO_NODE : ramslice_cold_other_of(twin);
}

/* See ramslice_is_twin(). */
bool __ramslice_is_twin(int nid)
{
	return nid < MAX_NUMNODES && ramslice_partner_of(nid) != NUMA_NO_NODE;
}

/**
 * ramslice_cold_add_twins - make one more node possible for each that is
 * @possible: nodes that are possible; twins are added
 *
 * Only if the command line asks for it. If node ids run out, the last nodes
 * have no twin.
 *
 * Context: Boot, before node_possible_map is used.
 */
void __init ramslice_cold_add_twins(nodemask_t *possible)
{
	nodemask_t hot = *possible;
	int nid, twin;

	if (!ramslice_cold_wanted)
		return;
	memset(ramslice_cold_other, 0, sizeof(ramslice_cold_other));
	ramslice_hot_nodes = hot;
	for_each_node_mask(nid, hot) {
		/* A gap in the ids is in the table of distances, or is firmware's */
		twin = find_last_bit(possible->bits, MAX_NUMNODES) + 1;
		if (twin >= MAX_NUMNODES) {
			pr_warn("no node id is left for cold memory of node %d\n",
				nid);
			continue;
		}
		node_set(twin, *possible);
		ramslice_cold_other[nid] = twin + 1;
		ramslice_cold_other[twin] = nid + 1;
	}
}

/* Distance of nodes of which one is not in the table of distances. */
int ramslice_cold_distance(int from, int to)
{
	int extra = 0;

	if (from == to)
		return LOCAL_DISTANCE;
	if (ramslice_partner_of(from) >= 0) {
		from = ramslice_partner_of(from);
		extra += TWIN_DISTANCE;
	}
	if (ramslice_partner_of(to) >= 0) {
		to = ramslice_partner_of(to);
		extra += TWIN_DISTANCE;
	}
	if (from == to)
		return LOCAL_DISTANCE + extra;
	return extra ? node_distance(from, to) + extra : REMOTE_DISTANCE;
}

struct mempolicy *__ramslice_cold_policy(void)
{
	struct mempolicy *own = current->mempolicy;

	/* A task that is bound stays bound */
	return own && own->mode == MPOL_BIND ? NULL : &ramslice_cold_mempolicy;
}

/**
 * ramslice_cold_zone - the zone that memory of a twin is online in
 * @nid: a node
 *
 * Return: ZONE_MOVABLE; NULL if the node is no twin.
 */
struct zone *ramslice_cold_zone(int nid)
{
	return ramslice_partner_of(nid) < 0 ?
	       NULL : &NODE_DATA(nid)->node_zones[ZONE_MOVABLE];
}

/**
 * ramslice_cold_alloc - allocate from the twin of a node
 * @gfp: the allocation's flags
 * @order: its order
 * @nid: the node whose twin is asked
 *
 * Reclaims nothing.
 *
 * Return: the page; NULL if smaller pages may be had there, and the caller is to
 * try these; an error if the allocation goes on as if there were no twin.
 */
struct page *ramslice_cold_alloc(gfp_t gfp, unsigned int order, int nid)
{
	int twin = ramslice_twin_of(nid);
	gfp_t try = gfp & ~(__GFP_RECLAIM | __GFP_NOFAIL);
	struct page *page;
	struct zone *zone;

	if (twin == NUMA_NO_NODE || !node_state(twin, N_MEMORY))
		return ERR_PTR(-ENOMEM);
	/* kswapd wakes slices; it has nothing else to do for such a request */
	if (ramslice_node_wakeable_pages(twin))
		try |= gfp & __GFP_KSWAPD_RECLAIM;
	try |= __GFP_THISNODE | __GFP_NOWARN | __GFP_NOMEMALLOC;
	page = __alloc_pages_noprof(try, order, twin, NULL);
	if (page)
		return page;
	if (!order || gfp & __GFP_NOFAIL)
		return ERR_PTR(-ENOMEM);
	/* One that can do with smaller pages finds them in the twin */
	zone = ramslice_cold_zone(twin);
	if (gfp_zone(gfp) == ZONE_MOVABLE && cpuset_node_allowed(twin, gfp) &&
	    zone_watermark_ok(zone, 0, low_wmark_pages(zone) + (1UL << order),
			      ZONE_MOVABLE, 0))
		return NULL;
	return ERR_PTR(-ENOMEM);
}

/* See ramslice_cold_nodemask(). */
nodemask_t *__ramslice_cold_nodemask(nodemask_t *nodes, int nid, gfp_t gfp)
{
	/* A cpuset of twins alone leaves no choice */
	if (!nodes && gfp_zone(gfp) == ZONE_MOVABLE &&
	    node_isset(nid, ramslice_hot_nodes) &&
	    nodes_intersects(cpuset_current_mems_allowed, ramslice_hot_nodes))
		return &ramslice_hot_nodes;
	return nodes;
}

/*
 * Is this a twin whose partner takes what does not fit? Then nothing is
 * reclaimed for it: what is cold would be swapped out while memory is free.
 */
bool ramslice_partner_has_room(struct zone *zone)
{
	int i, partner = ramslice_partner_of(zone_to_nid(zone));

	for (i = 0; partner >= 0 && i < MAX_NR_ZONES; i++) {
		struct zone *z = NODE_DATA(partner)->node_zones + i;

		if (managed_zone(z) &&
		    (ramslice_zone_can_wake(z) || ramslice_enough(z, 0)))
			return true;
	}
	return false;
}

/* Pages that make room in one go. */
#define RECYCLE_BATCH	(4 * SWAP_CLUSTER_MAX)

bool __ramslice_cold_recycle(struct zone *twin, struct zone *wanted, gfp_t gfp,
			     unsigned int order)
{
	unsigned long pages = max(RECYCLE_BATCH, 1UL << order), nr;
	struct ramslice_zone *rz;

	if (ramslice_partner_of(zone_to_nid(twin)) < 0 ||
	    ramslice_partner_of(zone_to_nid(wanted)) >= 0)
		return false;
	/* A large page that is merely welcome is not worth it; reading ahead is */
	if (!gfpflags_allow_blocking(gfp) || current->flags & PF_MEMALLOC ||
	    (order && gfp & __GFP_NORETRY))
		return false;
	rz = ramslice_zone_of(wanted);
	if (!rz || time_before(jiffies, READ_ONCE(rz->recycle_at)))
		return false;
	nr = ramslice_recycle_cache(wanted->zone_pgdat, gfp, zone_idx(wanted),
				    pages);
	/* Little is left: others go to the twin meanwhile, without asking */
	if (nr < pages / 2)
		WRITE_ONCE(rz->recycle_at, jiffies + HZ / 10);
	return nr;
}

nodemask_t *__ramslice_spread_nodes(void)
{
	static nodemask_t nodes;

	/* Another caller would write the same */
	nodes_and(nodes, node_states[N_MEMORY], ramslice_hot_nodes);
	return &nodes;
}

unsigned long __ramslice_cold_free_pages(void)
{
	unsigned long nr = 0;
	int nid;

	for_each_node_state(nid, N_MEMORY) {
		if (ramslice_partner_of(nid) >= 0)
			nr += sum_zone_node_page_state(nid, NR_FREE_PAGES) +
			      ramslice_node_wakeable_pages(nid);
	}
	return nr;
}

enum ramslice_cold_mode ramslice_cold_mode(void)
{
	return READ_ONCE(ramslice_cold_mode_now);
}

/* Who changes what mode and sizes mean to the rest of mm. */
static DEFINE_MUTEX(ramslice_cold_update_mutex);

/* Pages are demoted by mode; what was set by hand stays as long as it is the same. */
static bool ramslice_cold_demotes;

/* What mode and sizes mean to the rest of mm. May sleep. */
void ramslice_cold_update(void)
{
	bool populated = false, strict;
	int nid;

	mutex_lock(&ramslice_cold_update_mutex);
	for_each_node_state(nid, N_MEMORY)
		populated |= ramslice_partner_of(nid) >= 0;
	strict = ramslice_cold_mode() == RAMSLICE_COLD_STRICT;
	if (populated && strict)
		static_branch_enable(&ramslice_cold_strict_key);
	else
		static_branch_disable(&ramslice_cold_strict_key);
	if (ramslice_cold_demotes != (populated && !strict)) {
		ramslice_cold_demotes = populated && !strict;
		WRITE_ONCE(numa_demotion_enabled, ramslice_cold_demotes);
	}
	mutex_unlock(&ramslice_cold_update_mutex);
}

/* Pages are demoted in strict mode for so long. */
#define RELIEF_TIME	(10 * HZ)

/* Demotion was switched on for that, and not by hand. */
static bool ramslice_cold_relieves;

static void ramslice_cold_end_relief(struct work_struct *work)
{
	mutex_lock(&ramslice_cold_update_mutex);
	WRITE_ONCE(numa_demotion_enabled, ramslice_cold_demotes);
	WRITE_ONCE(ramslice_cold_relieves, false);
	mutex_unlock(&ramslice_cold_update_mutex);
}

static DECLARE_DELAYED_WORK(ramslice_cold_relief, ramslice_cold_end_relief);

static unsigned long ramslice_cold_demoted(void)
{
	return global_node_page_state(PGDEMOTE_KSWAPD) +
	       global_node_page_state(PGDEMOTE_DIRECT);
}

/* Is there a twin that takes pages, now or when its slices wake? */
static bool ramslice_twins_have_room(void)
{
	struct zone *zone;
	int nid;

	for_each_node_state(nid, N_MEMORY) {
		zone = ramslice_cold_zone(nid);
		if (zone && (ramslice_zone_wakeable_pages(zone) ||
			     zone_watermark_ok(zone, 0, high_wmark_pages(zone),
					       ZONE_MOVABLE, 0)))
			return true;
	}
	return false;
}

bool __ramslice_cold_relieve(void)
{
	static unsigned long began, demoted;
	unsigned long now = ramslice_cold_demoted();
	bool moved = now - demoted >= SWAP_CLUSTER_MAX;

	lockdep_assert_held(&oom_lock);
	/* Who is dying gets memory otherwise */
	if (fatal_signal_pending(current) || current->flags & PF_EXITING ||
	    !ramslice_twins_have_room())
		return false;
	/* If next to nothing was demoted since the last time, nothing can be */
	if (began && !moved &&
	    time_in_range(jiffies, began + HZ, began + RELIEF_TIME))
		return false;
	if (!began || moved || time_after(jiffies, began + RELIEF_TIME)) {
		began = jiffies ?: 1;
		demoted = now;
	}
	/* Switched on by hand: it stays as it is */
	if (READ_ONCE(numa_demotion_enabled) &&
	    !READ_ONCE(ramslice_cold_relieves))
		return true;
	WRITE_ONCE(ramslice_cold_relieves, true);
	WRITE_ONCE(numa_demotion_enabled, true);
	mod_delayed_work(system_wq, &ramslice_cold_relief, RELIEF_TIME);
	return true;
}

void ramslice_cold_set_mode(enum ramslice_cold_mode mode)
{
	WRITE_ONCE(ramslice_cold_mode_now, mode);
	ramslice_cold_update();
}

/* Twins are a tier of their own, to which pages are demoted. */
static int ramslice_cold_adistance(struct notifier_block *nb, unsigned long nid,
				   void *data)
{
	int *adistance = data;

	if (ramslice_partner_of(nid) < 0)
		return NOTIFY_OK;
	*adistance = MEMTIER_ADISTANCE_DRAM * 2;
	return NOTIFY_STOP;
}

static struct notifier_block ramslice_cold_adistance_nb = {
	.notifier_call = ramslice_cold_adistance,
};

static int __init ramslice_cold_key_init(void)
{
	if (!ramslice_cold_wanted ||
	    nodes_equal(ramslice_hot_nodes, node_possible_map))
		return 0;
	static_branch_enable(&ramslice_cold_key);
	return register_mt_adistance_algorithm(&ramslice_cold_adistance_nb);
}
subsys_initcall(ramslice_cold_key_init);
