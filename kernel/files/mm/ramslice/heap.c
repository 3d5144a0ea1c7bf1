// SPDX-License-Identifier: GPL-2.0
/*
 * /dev/dma_heap/ramslice: contiguous buffers for programs, to be shared with
 * devices as dma-bufs. Each is zeroed, and charged to the control group of the
 * task that asks for it.
 */

#include <linux/dma-buf.h>
#include <linux/dma-heap.h>
#include <linux/dma-mapping.h>
#include <linux/highmem.h>
#include <linux/init.h>
#include <linux/mm.h>
#include <linux/scatterlist.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/vmalloc.h>
#include "internal.h"
#include "buffer.h"

/* An entry of a scatter list is no longer than this. */
#define MAX_ENTRY_BYTES		((unsigned long)SZ_1G)

/**
 * struct ramslice_heap_buffer - what a dma-buf has
 * @memory: its pages
 * @bytes: its length
 * @lock: what follows
 * @attachments: devices that may use it
 * @nr_vmaps: users of @vaddr
 * @vaddr: its pages in the kernel's address space, if @nr_vmaps
 */
struct ramslice_heap_buffer {
	struct ramslice_buffer *memory;
	size_t bytes;
	struct mutex lock;	/* attachments and the kernel's mapping */
	struct list_head attachments;
	unsigned int nr_vmaps;
	void *vaddr;
};

/**
 * struct ramslice_heap_attachment - a device that may use it
 * @node: in the buffer's list
 * @dev: the device
 * @table: its list of pages
 * @mapped: @table has the device's addresses
 */
struct ramslice_heap_attachment {
	struct list_head node;
	struct device *dev;
	struct sg_table table;
	bool mapped;
};

static int ramslice_heap_attach(struct dma_buf *dmabuf,
				struct dma_buf_attachment *attachment)
{
	struct ramslice_heap_buffer *b = dmabuf->priv;
	struct page *page = ramslice_buffer_page(b->memory);
	struct ramslice_heap_attachment *a;
	struct scatterlist *sg;
	unsigned int i;
	int err;

	a = kzalloc(sizeof(*a), GFP_KERNEL);
	if (!a)
		return -ENOMEM;
	err = sg_alloc_table(&a->table, DIV_ROUND_UP(b->bytes, MAX_ENTRY_BYTES),
			     GFP_KERNEL);
	if (err) {
		kfree(a);
		return err;
	}
	for_each_sgtable_sg(&a->table, sg, i) {
		unsigned long from = i * MAX_ENTRY_BYTES;

		sg_set_page(sg, nth_page(page, from >> PAGE_SHIFT),
			    min(b->bytes - from, MAX_ENTRY_BYTES), 0);
	}
	a->dev = attachment->dev;
	attachment->priv = a;

	mutex_lock(&b->lock);
	list_add(&a->node, &b->attachments);
	mutex_unlock(&b->lock);
	return 0;
}

static void ramslice_heap_detach(struct dma_buf *dmabuf,
				 struct dma_buf_attachment *attachment)
{
	struct ramslice_heap_buffer *b = dmabuf->priv;
	struct ramslice_heap_attachment *a = attachment->priv;

	mutex_lock(&b->lock);
	list_del(&a->node);
	mutex_unlock(&b->lock);
	sg_free_table(&a->table);
	kfree(a);
}

static struct sg_table *ramslice_heap_map(struct dma_buf_attachment *attachment,
					  enum dma_data_direction direction)
{
	struct ramslice_heap_attachment *a = attachment->priv;
	int err = dma_map_sgtable(attachment->dev, &a->table, direction, 0);

	if (err)
		return ERR_PTR(err);
	a->mapped = true;
	return &a->table;
}

static void ramslice_heap_unmap(struct dma_buf_attachment *attachment,
				struct sg_table *table,
				enum dma_data_direction direction)
{
	struct ramslice_heap_attachment *a = attachment->priv;

	a->mapped = false;
	dma_unmap_sgtable(attachment->dev, table, direction, 0);
}

static int ramslice_heap_begin_access(struct dma_buf *dmabuf,
				      enum dma_data_direction direction)
{
	struct ramslice_heap_buffer *b = dmabuf->priv;
	struct ramslice_heap_attachment *a;

	mutex_lock(&b->lock);
	if (b->nr_vmaps)
		invalidate_kernel_vmap_range(b->vaddr, b->bytes);
	list_for_each_entry(a, &b->attachments, node) {
		if (a->mapped)
			dma_sync_sgtable_for_cpu(a->dev, &a->table, direction);
	}
	mutex_unlock(&b->lock);
	return 0;
}

static int ramslice_heap_end_access(struct dma_buf *dmabuf,
				    enum dma_data_direction direction)
{
	struct ramslice_heap_buffer *b = dmabuf->priv;
	struct ramslice_heap_attachment *a;

	mutex_lock(&b->lock);
	if (b->nr_vmaps)
		flush_kernel_vmap_range(b->vaddr, b->bytes);
	list_for_each_entry(a, &b->attachments, node) {
		if (a->mapped)
			dma_sync_sgtable_for_device(a->dev, &a->table,
						    direction);
	}
	mutex_unlock(&b->lock);
	return 0;
}

/* dma-buf has checked that what is asked for lies in the buffer. */
static int ramslice_heap_mmap(struct dma_buf *dmabuf, struct vm_area_struct *vma)
{
	struct ramslice_heap_buffer *b = dmabuf->priv;
	unsigned long pfn = page_to_pfn(ramslice_buffer_page(b->memory));

	return remap_pfn_range(vma, vma->vm_start, pfn + vma->vm_pgoff,
			       vma->vm_end - vma->vm_start, vma->vm_page_prot);
}

/* Under the buffer's lock. */
static void *ramslice_heap_do_vmap(struct ramslice_heap_buffer *b)
{
	unsigned long i, nr = b->bytes >> PAGE_SHIFT;
	struct page **pages;
	void *vaddr;

	pages = kvmalloc_array(nr, sizeof(*pages), GFP_KERNEL);
	if (!pages)
		return NULL;
	for (i = 0; i < nr; i++)
		pages[i] = nth_page(ramslice_buffer_page(b->memory), i);
	vaddr = vmap(pages, nr, VM_MAP, PAGE_KERNEL);
	kvfree(pages);
	return vaddr;
}

static int ramslice_heap_vmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct ramslice_heap_buffer *b = dmabuf->priv;
	int err = 0;

	mutex_lock(&b->lock);
	if (!b->nr_vmaps)
		b->vaddr = ramslice_heap_do_vmap(b);
	if (b->vaddr) {
		b->nr_vmaps++;
		iosys_map_set_vaddr(map, b->vaddr);
	} else {
		err = -ENOMEM;
	}
	mutex_unlock(&b->lock);
	return err;
}

static void ramslice_heap_vunmap(struct dma_buf *dmabuf, struct iosys_map *map)
{
	struct ramslice_heap_buffer *b = dmabuf->priv;

	mutex_lock(&b->lock);
	if (!--b->nr_vmaps) {
		vunmap(b->vaddr);
		b->vaddr = NULL;
	}
	mutex_unlock(&b->lock);
	iosys_map_clear(map);
}

/* The last descriptor, mapping and device has let go of it. */
static void ramslice_heap_release(struct dma_buf *dmabuf)
{
	struct ramslice_heap_buffer *b = dmabuf->priv;

	ramslice_free_contig(b->memory);
	mutex_destroy(&b->lock);
	kfree(b);
}

static const struct dma_buf_ops ramslice_heap_buf_ops = {
	.attach			= ramslice_heap_attach,
	.detach			= ramslice_heap_detach,
	.map_dma_buf		= ramslice_heap_map,
	.unmap_dma_buf		= ramslice_heap_unmap,
	.begin_cpu_access	= ramslice_heap_begin_access,
	.end_cpu_access		= ramslice_heap_end_access,
	.mmap			= ramslice_heap_mmap,
	.vmap			= ramslice_heap_vmap,
	.vunmap			= ramslice_heap_vunmap,
	.release		= ramslice_heap_release,
};

static struct dma_buf *ramslice_heap_allocate(struct dma_heap *heap,
					      unsigned long bytes, u32 fd_flags,
					      u64 heap_flags)
{
	struct ramslice_contig want = {
		.nr_pages = ALIGN(bytes >> PAGE_SHIFT, pageblock_nr_pages),
		.nid = NUMA_NO_NODE,
		.gfp = GFP_KERNEL_ACCOUNT | __GFP_ZERO,
		.owner = "dma-heap",
	};
	DEFINE_DMA_BUF_EXPORT_INFO(exp_info);
	struct ramslice_heap_buffer *b;
	enum ramslice_reason reason;
	struct dma_buf *dmabuf;
	int err;

	b = kzalloc(sizeof(*b), GFP_KERNEL);
	if (!b)
		return ERR_PTR(-ENOMEM);
	mutex_init(&b->lock);
	INIT_LIST_HEAD(&b->attachments);
	b->bytes = bytes;
	b->memory = ramslice_alloc_contig(&want, &reason);
	if (IS_ERR(b->memory)) {
		err = PTR_ERR(b->memory);
		goto free;
	}

	exp_info.exp_name = dma_heap_get_name(heap);
	exp_info.ops = &ramslice_heap_buf_ops;
	exp_info.size = bytes;
	exp_info.flags = fd_flags;
	exp_info.priv = b;
	dmabuf = dma_buf_export(&exp_info);
	if (!IS_ERR(dmabuf))
		return dmabuf;
	err = PTR_ERR(dmabuf);
	ramslice_free_contig(b->memory);
free:
	mutex_destroy(&b->lock);
	kfree(b);
	return ERR_PTR(err);
}

static const struct dma_heap_ops ramslice_heap_ops = {
	.allocate = ramslice_heap_allocate,
};

/* After ramslice itself, without which there is no heap. */
static int __init ramslice_heap_init(void)
{
	struct dma_heap_export_info exp_info = {
		.name = "ramslice",
		.ops = &ramslice_heap_ops,
	};

	if (!ramslice_enabled())
		return 0;
	return PTR_ERR_OR_ZERO(dma_heap_add(&exp_info));
}
late_initcall_sync(ramslice_heap_init);
