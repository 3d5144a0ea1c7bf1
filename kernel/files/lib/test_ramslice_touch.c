// SPDX-License-Identifier: GPL-2.0
/*
 * Touches a page frame on purpose, to show that the detectors of that fire.
 *
 * A line "WAY PFN" written to /sys/kernel/debug/ramslice_touch/touch does it;
 * reading that file lists the ways. No way looks at whose page it is, or takes
 * a reference: it is for tests only, and taints the kernel. A number written to
 * "leak" beside it is how many objects are allocated and forgotten, one written
 * to "atomic" how many blocks of ATOMIC_ORDER are held that came from atomic
 * allocations, one written to "race" how often a variable is changed under no
 * lock.
 */

#include <linux/bio.h>
#include <linux/blkdev.h>
#include <linux/debugfs.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/panic.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>

#define MARK	0x6d6f726620656d69ULL

static char *disk = "/dev/vda";
module_param(disk, charp, 0444);
MODULE_PARM_DESC(disk, "disk whose first sectors device accesses use");

/* Made by "map", without a reference to the page. Under touch_mutex. */
static u64 *touch_mapping;
static unsigned long touch_mapped_pfn;

/* Order 3 is what network drivers ask for. */
#define ATOMIC_ORDER	3
#define MAX_ATOMIC	64

static struct page *touch_atomics[MAX_ATOMIC];
static unsigned int touch_nr_atomics;

static DEFINE_MUTEX(touch_mutex);
static struct dentry *touch_folder;

static u64 *touch_direct(unsigned long pfn)
{
	return page_address(pfn_to_page(pfn));
}

static int touch_read_page(unsigned long pfn)
{
	READ_ONCE(*touch_direct(pfn));
	return 0;
}

static int touch_write_page(unsigned long pfn)
{
	WRITE_ONCE(*touch_direct(pfn), MARK);
	return 0;
}

/* Leaves no trace in the contents. */
static int touch_rewrite(unsigned long pfn)
{
	u64 before = READ_ONCE(*touch_direct(pfn));

	WRITE_ONCE(*touch_direct(pfn), MARK);
	WRITE_ONCE(*touch_direct(pfn), before);
	return 0;
}

/* As above, but -EFAULT if the page is not mapped. */
static int touch_read_nofault(unsigned long pfn)
{
	u64 word;

	return copy_from_kernel_nofault(&word, touch_direct(pfn), sizeof(word));
}

static int touch_write_nofault(unsigned long pfn)
{
	u64 word = MARK;

	pagefault_disable();
	__put_kernel_nofault(touch_direct(pfn), &word, u64, fault);
	pagefault_enable();
	return 0;
fault:
	pagefault_enable();
	return -EFAULT;
}

static int touch_unmap(unsigned long pfn)
{
	vunmap(touch_mapping);
	touch_mapping = NULL;
	return 0;
}

/* While the page is in use or free: a mapping that outlives that. */
static int touch_map(unsigned long pfn)
{
	struct page *page = pfn_to_page(pfn);

	touch_unmap(pfn);
	touch_mapping = vmap(&page, 1, VM_MAP, PAGE_KERNEL);
	touch_mapped_pfn = pfn;
	return touch_mapping ? 0 : -ENOMEM;
}

static int touch_read_mapping(unsigned long pfn)
{
	if (!touch_mapping || touch_mapped_pfn != pfn)
		return -ENXIO;
	READ_ONCE(*touch_mapping);
	return 0;
}

static int touch_write_mapping(unsigned long pfn)
{
	if (!touch_mapping || touch_mapped_pfn != pfn)
		return -ENXIO;
	WRITE_ONCE(*touch_mapping, MARK);
	return 0;
}

static int touch_transfer(unsigned long pfn, blk_opf_t op)
{
	struct bio_vec bvec;
	struct file *file;
	struct bio bio;
	int err;

	file = bdev_file_open_by_path(disk, BLK_OPEN_READ | BLK_OPEN_WRITE,
				      NULL, NULL);
	if (IS_ERR(file))
		return PTR_ERR(file);
	bio_init(&bio, file_bdev(file), &bvec, 1, op);
	bio.bi_iter.bi_sector = 0;
	__bio_add_page(&bio, pfn_to_page(pfn), PAGE_SIZE, 0);
	err = submit_bio_wait(&bio);
	bio_uninit(&bio);
	bdev_fput(file);
	return err;
}

/* The device reads the page, to write it to the disk. */
static int touch_read_device(unsigned long pfn)
{
	return touch_transfer(pfn, REQ_OP_WRITE | REQ_SYNC);
}

/* The device writes the page, with what it has read from the disk. */
static int touch_write_device(unsigned long pfn)
{
	return touch_transfer(pfn, REQ_OP_READ);
}

static const struct {
	const char *name;
	int (*touch)(unsigned long pfn);
} touch_ways[] = {
	{ "read", touch_read_page },
	{ "write", touch_write_page },
	{ "rewrite", touch_rewrite },
	{ "read-nofault", touch_read_nofault },
	{ "write-nofault", touch_write_nofault },
	{ "map", touch_map },
	{ "unmap", touch_unmap },
	{ "read-mapping", touch_read_mapping },
	{ "write-mapping", touch_write_mapping },
	{ "read-device", touch_read_device },
	{ "write-device", touch_write_device },
};

static ssize_t touch_write(struct file *file, const char __user *buf,
			   size_t count, loff_t *ppos)
{
	unsigned long pfn;
	char text[64], way[32];
	unsigned int i;
	int err;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, buf, count))
		return -EFAULT;
	text[count] = '\0';
	if (sscanf(text, "%31s %lu", way, &pfn) != 2 || !pfn_valid(pfn))
		return -EINVAL;

	for (i = 0; i < ARRAY_SIZE(touch_ways); i++) {
		if (!strcmp(way, touch_ways[i].name))
			break;
	}
	if (i == ARRAY_SIZE(touch_ways))
		return -EINVAL;
	mutex_lock(&touch_mutex);
	err = touch_ways[i].touch(pfn);
	mutex_unlock(&touch_mutex);
	return err ? : count;
}

static int touch_show(struct seq_file *m, void *unused)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(touch_ways); i++)
		seq_printf(m, "%s\n", touch_ways[i].name);
	return 0;
}

static int touch_open(struct inode *inode, struct file *file)
{
	return single_open(file, touch_show, NULL);
}

static const struct file_operations touch_fops = {
	.owner = THIS_MODULE,
	.open = touch_open,
	.read = seq_read,
	.write = touch_write,
	.llseek = seq_lseek,
	.release = single_release,
};

static int touch_leak_set(void *unused, u64 nr)
{
	if (nr > 1000)
		return -EINVAL;
	while (nr--) {
		void *object = kmalloc(128, GFP_KERNEL);

		/* Not to be optimised away */
		OPTIMIZER_HIDE_VAR(object);
	}
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(touch_leak_fops, NULL, touch_leak_set, "%llu\n");

static unsigned long touch_raced;

/* Two tasks that write at the same time race. */
static int touch_race_set(void *unused, u64 nr)
{
	if (nr > 10000000)
		return -EINVAL;
	while (nr--) {
		touch_raced++;
		/* Not to be one addition */
		barrier();
	}
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(touch_race_fops, NULL, touch_race_set, "%llu\n");

static int touch_atomic_nr_set(void *unused, u64 nr)
{
	int err = 0;

	if (nr > MAX_ATOMIC)
		return -EINVAL;
	mutex_lock(&touch_mutex);
	while (touch_nr_atomics > nr)
		__free_pages(touch_atomics[--touch_nr_atomics], ATOMIC_ORDER);
	while (touch_nr_atomics < nr) {
		struct page *page = alloc_pages(GFP_ATOMIC | __GFP_NOWARN,
						ATOMIC_ORDER);

		if (!page) {
			err = -ENOMEM;
			break;
		}
		touch_atomics[touch_nr_atomics++] = page;
	}
	mutex_unlock(&touch_mutex);
	return err;
}
DEFINE_DEBUGFS_ATTRIBUTE(touch_atomic_fops, NULL, touch_atomic_nr_set, "%llu\n");

static int __init touch_init(void)
{
	add_taint(TAINT_TEST, LOCKDEP_STILL_OK);
	touch_folder = debugfs_create_dir("ramslice_touch", NULL);
	debugfs_create_file("touch", 0600, touch_folder, NULL, &touch_fops);
	debugfs_create_file_unsafe("leak", 0200, touch_folder, NULL,
				   &touch_leak_fops);
	debugfs_create_file_unsafe("race", 0200, touch_folder, NULL,
				   &touch_race_fops);
	debugfs_create_file_unsafe("atomic", 0200, touch_folder, NULL,
				   &touch_atomic_fops);
	return 0;
}
module_init(touch_init);

static void __exit touch_exit(void)
{
	debugfs_remove(touch_folder);
	touch_atomic_nr_set(NULL, 0);
	vunmap(touch_mapping);
}
module_exit(touch_exit);

MODULE_DESCRIPTION("ramslice: touches page frames on purpose");
MODULE_LICENSE("GPL");
