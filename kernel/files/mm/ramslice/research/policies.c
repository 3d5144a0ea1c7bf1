// SPDX-License-Identifier: GPL-2.0
/*
 * Placement policies that are kept to compare others with.
 *
 * array, list and adaptive follow "Towards Practical Page Placement for a Green
 * Memory Manager" (IISc), sections IV.A, IV.B and IV.D; low follows "Run-time
 * Variation of Memory" (Virginia Tech, 2007), sections 3.2 and 3.6. What these
 * keep as lists and pools follows here from what a slice holds: it is the
 * kernel's if it has kernel pages, free if it holds nothing, otherwise the
 * users'.
 */

#include <linux/init.h>
#include <linux/kobject.h>
#include <linux/kstrtox.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include "research.h"

/* Slices of each zone that the kernel keeps to under the policy low. */
u32 ramslice_low_slices = RAMSLICE_PLACE_LOW_DEFAULT;

/* Kernel pages in the first @nr_low slices, others in the rest. */
static u64 ramslice_low_likes(enum ramslice_place_class class,
			      const struct ramslice_place_slice *p, u32 nr_low)
{
	bool kernels = p->index < nr_low;

	if (class == RAMSLICE_PLACE_KERNEL)
		return ramslice_place_tier(kernels ? 2 : 1, U32_MAX - p->index);
	return ramslice_place_tier(kernels ? 1 : 2, U32_MAX - p->index);
}

static u64 ramslice_array_likes(enum ramslice_place_class class,
				const struct ramslice_place_slice *p)
{
	return ramslice_place_tier(1, ramslice_place_end_first(class, p));
}

/* Tiers of list and adaptive: one's own, then free ones, then the others'. */
static u32 ramslice_pool_tier(enum ramslice_place_class class,
			      const struct ramslice_place_slice *p)
{
	if (ramslice_place_is_empty(p) && !p->fixed)
		return 2;
	return (class == RAMSLICE_PLACE_KERNEL) ==
	       ramslice_place_is_kernel(p) ? 3 : 1;
}

/* The most recently used first, then the most free. */
static u64 ramslice_list_likes(enum ramslice_place_class class,
			       const struct ramslice_place_slice *p)
{
	u32 tier = ramslice_pool_tier(class, p);

	if (tier == 2)
		return ramslice_place_tier(tier,
					   ramslice_place_end_first(class, p));
	if (p->in_use && tier == 3)
		return ramslice_place_tier(4, 0);
	return ramslice_place_tier(tier, p->nr_free);
}

/* Within a pool, none is better; the most free is what is stolen from. */
static u64 ramslice_adaptive_likes(enum ramslice_place_class class,
				   const struct ramslice_place_slice *p)
{
	u32 tier = ramslice_pool_tier(class, p);

	if (tier == 2)
		return ramslice_place_tier(tier,
					   ramslice_place_end_first(class, p));
	return ramslice_place_tier(tier, tier == 1 ? p->nr_free : 0);
}

/* As ramslice_place_likes(), which asks this for policies that it lacks. */
u64 ramslice_research_likes(enum ramslice_place_policy policy,
			    enum ramslice_place_class class,
			    const struct ramslice_place_slice *p)
{
	switch (policy) {
	case RAMSLICE_PLACE_LOW:
		return ramslice_low_likes(class, p,
					  READ_ONCE(ramslice_low_slices));
	case RAMSLICE_PLACE_ARRAY:
		return ramslice_array_likes(class, p);
	case RAMSLICE_PLACE_LIST:
		return ramslice_list_likes(class, p);
	case RAMSLICE_PLACE_ADAPTIVE:
		return ramslice_adaptive_likes(class, p);
	default:
		return 0;
	}
}

/**
 * ramslice_research_policy - ramslice_placement= on the command line
 * @arg: a policy, or low,SLICES
 * @found: the policy of that name, negative if there is none
 *
 * Return: the policy, or @found.
 */
int __init ramslice_research_policy(const char *arg, int found)
{
	u32 nr_low = RAMSLICE_PLACE_LOW_DEFAULT;

	if (str_has_prefix(arg, "low,") &&
	    !kstrtou32(arg + strlen("low,"), 10, &nr_low))
		found = RAMSLICE_PLACE_LOW;
	if (found >= 0)
		ramslice_low_slices = nr_low;
	return found;
}

static ssize_t low_slices_show(struct kobject *kobj,
			       struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%u\n", READ_ONCE(ramslice_low_slices));
}

static ssize_t low_slices_store(struct kobject *kobj,
				struct kobj_attribute *attr, const char *buf,
				size_t len)
{
	u32 nr;
	int err = kstrtou32(buf, 10, &nr);

	if (err)
		return err;
	WRITE_ONCE(ramslice_low_slices, nr);
	if (ramslice_place_policy() == RAMSLICE_PLACE_LOW)
		ramslice_place_rank_now();
	return len;
}

struct kobj_attribute ramslice_low_slices_attr = __ATTR_RW(low_slices);
