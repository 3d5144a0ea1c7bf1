/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Cold memory: what mm and the boot code call, with stubs that compile away.
 *
 * Each node with memory has a twin: a node without CPUs, possible from boot and
 * empty until it is sized, whose slices hold what is rarely used.
 */
#ifndef _LINUX_RAMSLICE_COLD_H
#define _LINUX_RAMSLICE_COLD_H

#include <linux/gfp_types.h>
#include <linux/jump_label.h>
#include <linux/mm.h>
#include <linux/mmzone.h>
#include <linux/nodemask.h>

struct mempolicy;

#ifdef CONFIG_RAMSLICE_COLD

/* There are twins: the command line asked for them. */
DECLARE_STATIC_KEY_FALSE(ramslice_cold_key);
/* A twin has memory, and what does not ask for it never gets it. */
DECLARE_STATIC_KEY_FALSE(ramslice_cold_strict_key);

/* Nodes that are no twins. Constant after boot. */
extern nodemask_t ramslice_hot_nodes;
extern struct mempolicy ramslice_cold_mempolicy;

void ramslice_cold_add_twins(nodemask_t *possible);
int ramslice_cold_distance(int from, int to);
bool __ramslice_is_twin(int nid);
struct mempolicy *__ramslice_cold_policy(void);
struct page *ramslice_cold_alloc(gfp_t gfp, unsigned int order, int nid);
struct zone *ramslice_cold_zone(int nid);
nodemask_t *__ramslice_cold_nodemask(nodemask_t *nodes, int nid, gfp_t gfp);
unsigned long __ramslice_cold_free_pages(void);
nodemask_t *__ramslice_spread_nodes(void);
bool __ramslice_cold_relieve(void);
bool __ramslice_cold_recycle(struct zone *twin, struct zone *wanted, gfp_t gfp,
			     unsigned int order);

/* There are twins. */
static __always_inline bool ramslice_has_twins(void)
{
	return static_branch_unlikely(&ramslice_cold_key);
}

/* A twin has memory, and what does not ask for it never gets it. */
static __always_inline bool ramslice_cold_is_strict(void)
{
	return static_branch_unlikely(&ramslice_cold_strict_key);
}

/*
 * The policy of an area that says nothing but that it is cold. The pool of huge
 * pages is not in twins.
 */
static __always_inline struct mempolicy *
ramslice_cold_vma_policy(const struct vm_area_struct *vma)
{
	if (!ramslice_has_twins() ||
	    (vma->vm_flags & (VM_COLD | VM_HUGETLB)) != VM_COLD)
		return NULL;
	return __ramslice_cold_policy();
}

/*
 * A file of tmpfs; its field may be set by one who maps it, and is never reset.
 * Who may only read must not slow down what others share.
 */
#define ramslice_cold_file_policy(_info)				\
	(ramslice_has_twins() && READ_ONCE((_info)->cold) ?		\
	 __ramslice_cold_policy() : NULL)
#define ramslice_cold_new_file(_info, _vm_flags)			\
	WRITE_ONCE((_info)->cold, (_vm_flags) & VM_COLD)
#define ramslice_cold_mmap(_info, _vm_flags) do {			\
	unsigned long needed = VM_COLD | VM_SHARED | VM_MAYWRITE;	\
									\
	if (((_vm_flags) & needed) == needed)				\
		WRITE_ONCE((_info)->cold, true);			\
} while (0)

/* Is this node a twin? */
static __always_inline bool ramslice_is_twin(int nid)
{
	return ramslice_has_twins() && __ramslice_is_twin(nid);
}

static __always_inline bool ramslice_is_cold(const struct mempolicy *policy)
{
	return ramslice_has_twins() && policy == &ramslice_cold_mempolicy;
}

/**
 * ramslice_cold_nodemask - the nodes that an allocation may use
 * @nodes: what its caller says; NULL: any
 * @nid: the node that it prefers
 * @gfp: its flags
 *
 * Return: @nodes, or in strict mode those that are no twins if any would do.
 */
static __always_inline nodemask_t *ramslice_cold_nodemask(nodemask_t *nodes,
							  int nid, gfp_t gfp)
{
	return ramslice_cold_is_strict() ?
	       __ramslice_cold_nodemask(nodes, nid, gfp) : nodes;
}

/* An allocation failed but for what strict mode keeps from it. */
static __always_inline bool ramslice_cold_was_spared(const nodemask_t *nodemask)
{
	return ramslice_cold_is_strict() && nodemask == &ramslice_hot_nodes;
}

/**
 * ramslice_cold_recycle - before a request falls back to a twin
 * @zone: the zone that is to be tried next
 * @wanted: the zone that it would like best
 * @gfp: the request's flags
 * @order: its order
 *
 * Page cache that is clean, unmapped and not in use makes room for it. May sleep
 * if @gfp allows it.
 *
 * Return: true if there is more room now where it would rather be.
 */
static __always_inline bool ramslice_cold_recycle(struct zone *zone,
						  struct zone *wanted,
						  gfp_t gfp, unsigned int order)
{
	return ramslice_has_twins() && zone != wanted &&
	       __ramslice_cold_recycle(zone, wanted, gfp, order);
}

/**
 * ramslice_cold_relieve - make room instead of an OOM kill
 *
 * For what cannot use twins, and in strict mode: pages that can be there are
 * demoted for a while, as long as that gets on.
 *
 * Context: oom_lock held. May be called from any allocation that may sleep.
 * Return: true if reclaim should be tried again.
 */
static __always_inline bool ramslice_cold_relieve(void)
{
	return ramslice_cold_is_strict() && __ramslice_cold_relieve();
}

/* Free memory that most allocations do not get. */
static __always_inline unsigned long ramslice_cold_free_pages(void)
{
	return ramslice_cold_is_strict() ? __ramslice_cold_free_pages() : 0;
}

/*
 * Nodes with memory, for what would spread over all of it. What shrinks may be in
 * twins, too, if it was put there by node.
 */
static inline nodemask_t *ramslice_spread_nodes(bool grows)
{
	return ramslice_has_twins() && grows ? __ramslice_spread_nodes() :
					       &node_states[N_MEMORY];
}

/* Leaves out twins. */
static inline void ramslice_cold_leave_out(nodemask_t *nodes)
{
	if (ramslice_has_twins())
		nodes_and(*nodes, *nodes, ramslice_hot_nodes);
}

#else /* !CONFIG_RAMSLICE_COLD */

#define ramslice_has_twins()			false
#define ramslice_cold_is_strict()		false
#define ramslice_cold_add_twins(...)		do { } while (0)
#define ramslice_cold_distance(from, to)	\
	((from) == (to) ? LOCAL_DISTANCE : REMOTE_DISTANCE)
#define ramslice_cold_vma_policy(...)		((struct mempolicy *)NULL)
#define ramslice_cold_file_policy(...)		((struct mempolicy *)NULL)
#define ramslice_cold_new_file(...)		do { } while (0)
#define ramslice_cold_mmap(...)			do { } while (0)
#define ramslice_is_twin(...)			false
#define ramslice_is_cold(...)			false
#define ramslice_cold_alloc(...)		((struct page *)NULL)
#define ramslice_cold_zone(...)			((struct zone *)NULL)
#define ramslice_cold_nodemask(_nodes, ...)	(_nodes)
#define ramslice_cold_was_spared(...)		false
#define ramslice_cold_recycle(...)		false
#define ramslice_cold_relieve()			false
#define ramslice_cold_free_pages()		0UL
#define ramslice_spread_nodes(...)		(&node_states[N_MEMORY])
#define ramslice_cold_leave_out(...)		do { } while (0)

#endif /* CONFIG_RAMSLICE_COLD */

#endif /* _LINUX_RAMSLICE_COLD_H */
