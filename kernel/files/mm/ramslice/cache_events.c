// SPDX-License-Identifier: GPL-2.0
/*
 * How well the page cache does, and how much more memory would help it.
 *
 * Look-ups are counted in /proc/vmstat: by reads and by faults, and those of them
 * that found nothing. A page that was read ahead stays idle until it is used.
 *
 * The distance of a refault is the number of pages that the lists aged by since
 * the page was evicted: with that much more memory, it would have stayed. A shadow
 * entry of the classic lists has the age itself. One of multi-generational lists
 * has the number of a generation, so the age at which its eviction began is kept
 * for the last ones; of a page that left before them no distance is known.
 */

#include <linux/kobject.h>
#include <linux/ramslice_cache.h>
#include <linux/shmem_fs.h>
#include <linux/sysfs.h>
#include "internal.h"

/* Refaults by distance: entry i has those from 2^i to 2^(i+1) - 1 pages. */
static atomic_long_t ramslice_refaults[ANON_AND_FILE][RAMSLICE_NR_DISTANCES];

/* See ramslice_cache_read(). Counts those pages of a folio that were read. */
void __ramslice_cache_read(const struct kiocb *iocb, struct folio *folio,
			   size_t bytes)
{
	loff_t from = max(folio_pos(folio), iocb->ki_pos - (loff_t)bytes);
	loff_t end = min(folio_pos(folio) + (loff_t)folio_size(folio),
			 iocb->ki_pos);

	if (from < end && ramslice_cache_counts(iocb))
		count_vm_events(RAMSLICE_LOOKUP_READ, ((end - 1) >> PAGE_SHIFT) -
						      (from >> PAGE_SHIFT) + 1);
}

/* See ramslice_cache_fault(). A fault that had to wait comes once more. */
void __ramslice_cache_fault(const struct vm_fault *vmf, struct folio *folio)
{
	if (folio && folio_test_idle(folio))
		folio_clear_idle(folio);
	if (vmf->flags & FAULT_FLAG_TRIED)
		return;
	count_vm_event(RAMSLICE_LOOKUP_FAULT);
	if (!folio)
		count_vm_event(RAMSLICE_ABSENT_FAULT);
}

/* See ramslice_cache_map(). tmpfs is no cache of anything. */
void __ramslice_cache_map(const struct vm_fault *vmf)
{
	if (!(vmf->flags & FAULT_FLAG_TRIED) &&
	    !shmem_mapping(vmf->vma->vm_file->f_mapping))
		count_vm_event(RAMSLICE_LOOKUP_FAULT);
}

/**
 * ramslice_distance_order - which entry counts a distance
 * @distance: in pages
 *
 * Return: its logarithm to base 2, and 0 for 0.
 */
unsigned int ramslice_distance_order(unsigned long distance)
{
	return distance ? ilog2(distance) : 0;
}

/* See ramslice_refault(). ULONG_MAX is a distance that is not known. */
void __ramslice_refault(bool file, unsigned long distance, long nr_pages)
{
	if (distance != ULONG_MAX)
		atomic_long_add(nr_pages,
				&ramslice_refaults[file][ramslice_distance_order(distance)]);
}

#ifdef CONFIG_LRU_GEN
/* The age of a whole node: what is evicted from any cgroup makes room in it. */
static unsigned long ramslice_age(struct lruvec *lruvec)
{
	struct lruvec *root = mem_cgroup_lruvec(NULL, lruvec_pgdat(lruvec));

	return atomic_long_read(&root->nonresident_age);
}

/*
 * See ramslice_gen_eviction(). Without a lock: two that evict the first folios of
 * a generation note ages that hardly differ.
 */
void __ramslice_gen_eviction(struct lruvec *lruvec, int type, unsigned long seq,
			     long nr_pages)
{
	struct lru_gen_folio *gen = &lruvec->lrugen;
	int at = seq % ARRAY_SIZE(gen->ramslice_evicted[type]);

	/* 0 is an entry that was never used */
	if (READ_ONCE(gen->ramslice_evicted[type][at].seq) != seq + 1) {
		WRITE_ONCE(gen->ramslice_evicted[type][at].age,
			   ramslice_age(lruvec));
		WRITE_ONCE(gen->ramslice_evicted[type][at].seq, seq + 1);
	}
	workingset_age_nonresident(lruvec, nr_pages);
}

/* See ramslice_gen_refault(). */
void __ramslice_gen_refault(struct lruvec *lruvec, int type, unsigned long seq,
			    long nr_pages)
{
	struct lru_gen_folio *gen = &lruvec->lrugen;
	int at = seq % ARRAY_SIZE(gen->ramslice_evicted[type]);

	if (READ_ONCE(gen->ramslice_evicted[type][at].seq) == seq + 1)
		__ramslice_refault(type, ramslice_age(lruvec) -
				   READ_ONCE(gen->ramslice_evicted[type][at].age),
				   nr_pages);
}
#endif

/**
 * ramslice_show_refaults - how many pages came back, by distance
 * @file: pages of files, or anonymous ones
 * @buf: a page, to be filled
 *
 * Return: length of what was written, as for sysfs.
 */
ssize_t ramslice_show_refaults(bool file, char *buf)
{
	ssize_t len = 0;
	int i;

	for (i = 0; i < RAMSLICE_NR_DISTANCES; i++)
		len += sysfs_emit_at(buf, len, "%lu%c",
				     atomic_long_read(&ramslice_refaults[file][i]),
				     i + 1 < RAMSLICE_NR_DISTANCES ? ' ' : '\n');
	return len;
}

static ssize_t file_show(struct kobject *kobj, struct kobj_attribute *attr,
			 char *buf)
{
	return ramslice_show_refaults(true, buf);
}

static struct kobj_attribute file_attr = __ATTR_RO(file);

static ssize_t anon_show(struct kobject *kobj, struct kobj_attribute *attr,
			 char *buf)
{
	return ramslice_show_refaults(false, buf);
}

static struct kobj_attribute anon_attr = __ATTR_RO(anon);

static struct attribute *ramslice_refault_attrs[] = {
	&file_attr.attr,
	&anon_attr.attr,
	NULL
};

static const struct attribute_group ramslice_refault_group = {
	.name = "refault_distances",
	.attrs = ramslice_refault_attrs,
};

/* Two files of many values each: counts by distance. */
int __init ramslice_refault_sysfs(struct kobject *kobj)
{
	return sysfs_create_group(kobj, &ramslice_refault_group);
}
