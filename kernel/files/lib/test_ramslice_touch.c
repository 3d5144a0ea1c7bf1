// SPDX-License-Identifier: GPL-2.0
/*
 * Touches a page frame on purpose, to show that the detectors of that fire.
 *
 * A line "WAY PFN" written to /sys/kernel/debug/ramslice_touch/touch does it;
 * reading that file lists the ways. No way looks at whose page it is, or takes
 * a reference: it is for tests only, and taints the kernel. A number written to
 * "leak" beside it is how many objects are allocated and forgotten, one written
 * to "atomic" how many blocks of ATOMIC_ORDER are held that came from atomic
 * allocations.
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
static u64 *mapping;
static unsigned long mapped_pfn;

/* Order 3 is what network drivers ask for. */
#define ATOMIC_ORDER	3
#define MAX_ATOMIC	64

static struct page *atomics[MAX_ATOMIC];
static unsigned int nr_atomics;

static DEFINE_MUTEX(touch_mutex);
static struct dentry *folder;

static u64 *direct(unsigned long pfn)
{
	return page_address(pfn_to_page(pfn));
}

static int do_read(unsigned long pfn)
{
	READ_ONCE(*direct(pfn));
	return 0;
}

static int do_write(unsigned long pfn)
{
	WRITE_ONCE(*direct(pfn), MARK);
	return 0;
}

/* Leaves no trace in the contents. */
static int do_rewrite(unsigned long pfn)
{
	u64 before = READ_ONCE(*direct(pfn));

	WRITE_ONCE(*direct(pfn), MARK);
	WRITE_ONCE(*direct(pfn), before);
	return 0;
}

/* As above, but -EFAULT if the page is not mapped. */
static int do_read_nofault(unsigned long pfn)
{
	u64 word;

	return copy_from_kernel_nofault(&word, direct(pfn), sizeof(word));
}

static int do_write_nofault(unsigned long pfn)
{
	u64 word = MARK;

	pagefault_disable();
	__put_kernel_nofault(direct(pfn), &word, u64, fault);
	pagefault_enable();
	return 0;
fault:
	pagefault_enable();
	return -EFAULT;
}

static int do_unmap(unsigned long pfn)
{
	vunmap(mapping);
	mapping = NULL;
	return 0;
}

/* While the page is in use or free: a mapping that outlives that. */
static int do_map(unsigned long pfn)
{
	struct page *page = pfn_to_page(pfn);

	do_unmap(pfn);
	mapping = vmap(&page, 1, VM_MAP, PAGE_KERNEL);
	mapped_pfn = pfn;
	return mapping ? 0 : -ENOMEM;
}

static int do_read_mapping(unsigned long pfn)
{
	if (!mapping || mapped_pfn != pfn)
		return -ENXIO;
	READ_ONCE(*mapping);
	return 0;
}

static int do_write_mapping(unsigned long pfn)
{
	if (!mapping || mapped_pfn != pfn)
		return -ENXIO;
	WRITE_ONCE(*mapping, MARK);
	return 0;
}

static int transfer(unsigned long pfn, blk_opf_t op)
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
static int do_read_device(unsigned long pfn)
{
	return transfer(pfn, REQ_OP_WRITE | REQ_SYNC);
}

/* The device writes the page, with what it has read from the disk. */
static int do_write_device(unsigned long pfn)
{
	return transfer(pfn, REQ_OP_READ);
}

static const struct {
	const char *name;
	int (*touch)(unsigned long pfn);
} ways[] = {
	{ "read", do_read },
	{ "write", do_write },
	{ "rewrite", do_rewrite },
	{ "read-nofault", do_read_nofault },
	{ "write-nofault", do_write_nofault },
	{ "map", do_map },
	{ "unmap", do_unmap },
	{ "read-mapping", do_read_mapping },
	{ "write-mapping", do_write_mapping },
	{ "read-device", do_read_device },
	{ "write-device", do_write_device },
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

	for (i = 0; i < ARRAY_SIZE(ways); i++) {
		if (!strcmp(way, ways[i].name))
			break;
	}
	if (i == ARRAY_SIZE(ways))
		return -EINVAL;
	mutex_lock(&touch_mutex);
	err = ways[i].touch(pfn);
	mutex_unlock(&touch_mutex);
	return err ? : count;
}

static int touch_show(struct seq_file *m, void *unused)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(ways); i++)
		seq_printf(m, "%s\n", ways[i].name);
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

static int leak_set(void *unused, u64 nr)
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
DEFINE_DEBUGFS_ATTRIBUTE(leak_fops, NULL, leak_set, "%llu\n");

static int atomic_nr_set(void *unused, u64 nr)
{
	int err = 0;

	if (nr > MAX_ATOMIC)
		return -EINVAL;
	mutex_lock(&touch_mutex);
	while (nr_atomics > nr)
		__free_pages(atomics[--nr_atomics], ATOMIC_ORDER);
	while (nr_atomics < nr) {
		struct page *page = alloc_pages(GFP_ATOMIC | __GFP_NOWARN,
						ATOMIC_ORDER);

		if (!page) {
			err = -ENOMEM;
			break;
		}
		atomics[nr_atomics++] = page;
	}
	mutex_unlock(&touch_mutex);
	return err;
}
DEFINE_DEBUGFS_ATTRIBUTE(atomic_fops, NULL, atomic_nr_set, "%llu\n");

static int __init touch_init(void)
{
	add_taint(TAINT_TEST, LOCKDEP_STILL_OK);
	folder = debugfs_create_dir("ramslice_touch", NULL);
	debugfs_create_file("touch", 0600, folder, NULL, &touch_fops);
	debugfs_create_file_unsafe("leak", 0200, folder, NULL, &leak_fops);
	debugfs_create_file_unsafe("atomic", 0200, folder, NULL, &atomic_fops);
	return 0;
}
module_init(touch_init);

static void __exit touch_exit(void)
{
	debugfs_remove(folder);
	atomic_nr_set(NULL, 0);
	vunmap(mapping);
}
module_exit(touch_exit);

MODULE_DESCRIPTION("ramslice: touches page frames on purpose");
MODULE_LICENSE("GPL");
