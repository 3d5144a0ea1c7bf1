// SPDX-License-Identifier: GPL-2.0
/*
 * What a page is used for, and why it may keep its slice on: the one opinion
 * that the census, emptying and /dev/ramslice share.
 */

#include <linux/hugetlb.h>
#include <linux/migrate.h>
#include <linux/page-isolation.h>
#include <linux/pagemap.h>
#include <linux/secretmem.h>
#include <linux/swap.h>
#include "../internal.h"
#include "internal.h"
#include "buffer.h"

/*
 * Is it memory that another owner keeps from the allocator: a balloon,
 * virtio-mem, or memory that a confidential guest has yet to accept?
 */
static bool ramslice_is_foreign(const struct page *page)
{
	return PageOffline(page) || PageUnaccepted(page);
}

/* The same of a page that is neither free nor on the LRU lists. */
static enum ramslice_reason ramslice_page_blocks(struct page *page)
{
	if (PageReserved(page))
		return RAMSLICE_REASON_BOOT;
	if (PageHWPoison(page))
		return RAMSLICE_REASON_HWPOISON;
	if (ramslice_is_foreign(page))
		return RAMSLICE_REASON_FOREIGN_OFFLINE;
	if (PageSlab(page))
		return RAMSLICE_REASON_SLAB;
	if (PageTable(page))
		return RAMSLICE_REASON_PAGETABLE;
	if (PageHuge(page))
		return folio_order(page_folio(page)) > pageblock_order ?
		       RAMSLICE_REASON_GIGANTIC : RAMSLICE_REASON_NONE;
	if (!page_count(page))
		return RAMSLICE_REASON_NONE;
	/* Anonymous, page cache or movable: isolated just now */
	if (READ_ONCE(page->mapping))
		return RAMSLICE_REASON_NONE;
	return ramslice_in_buffer(page_to_pfn(page)) ?
	       RAMSLICE_REASON_BUFFER : RAMSLICE_REASON_UNMOVABLE;
}

/* Memory that only its owner may touch (memfd_secret). */
static bool ramslice_is_secret(struct folio *folio)
{
	struct address_space *mapping;
	bool secret;

	/* All of it is unevictable, as few other pages are */
	if (!folio_test_unevictable(folio) || folio_test_anon(folio) ||
	    !folio_trylock(folio))
		return false;
	/* It stays the folio's while that is locked */
	mapping = folio_mapping(folio);
	secret = mapping && (secretmem_mapping(mapping) ||
			     mapping_inaccessible(mapping));
	folio_unlock(folio);
	return secret;
}

/**
 * ramslice_folio_pinned - whether a folio is pinned for DMA
 * @folio: a folio that the caller has one reference to
 *
 * A single page keeps its pins in its reference count, where a page of libc
 * that a thousand processes map would look pinned: only what neither mappings
 * nor a cache account for can be pins. Pins of a larger folio have a count.
 */
bool ramslice_folio_pinned(struct folio *folio)
{
	if (!folio_maybe_dma_pinned(folio))
		return false;
	return folio_test_large(folio) ||
	       ramslice_folio_extra_refs(folio) >= GUP_PIN_COUNTING_BIAS;
}

/**
 * ramslice_folio_blocks - why a folio can be neither dropped nor moved
 * @folio: a folio that the caller has a reference to
 *
 * Return: the reason, or RAMSLICE_REASON_NONE if it can, or is on its way
 * somewhere (isolated, or in an LRU batch).
 */
enum ramslice_reason ramslice_folio_blocks(struct folio *folio)
{
	if (folio_order(folio) > pageblock_order)
		return RAMSLICE_REASON_GIGANTIC;
	if (folio_test_lru(folio) || folio_test_hugetlb(folio)) {
		if (folio_contain_hwpoisoned_page(folio))
			return RAMSLICE_REASON_HWPOISON;
		if (ramslice_folio_pinned(folio))
			return RAMSLICE_REASON_PINNED;
		if (ramslice_is_secret(folio))
			return RAMSLICE_REASON_UNMOVABLE;
		return RAMSLICE_REASON_NONE;
	}
	if (__folio_test_movable(folio))
		return RAMSLICE_REASON_NONE;
	return ramslice_page_blocks(&folio->page);
}

/**
 * ramslice_folio_extra_refs - references that no mapping or cache accounts for
 * @folio: a folio on the LRU lists that the caller has one reference to
 *
 * The holder (a pipe that borrows the data, an old driver) cannot be made to
 * release them. Each lookup of a folio takes one, too, for a moment.
 */
int ramslice_folio_extra_refs(struct folio *folio)
{
	return max(folio_ref_count(folio) - 1 - folio_expected_ref_count(folio),
		   0);
}

/**
 * ramslice_frame_blocks - why a page frame without a reference may not go
 * @page: a page that is not in the buddy allocator; ramslice_get_folio() gave
 *        no reference
 *
 * Tails are met with their head, unless that lies in an earlier pageblock.
 *
 * Return: the reason, or RAMSLICE_REASON_NONE if it is free, or a tail.
 */
enum ramslice_reason ramslice_frame_blocks(struct page *page)
{
	if (!PageTail(page))
		return ramslice_page_blocks(page);
	return pageblock_aligned(page_to_pfn(page)) ? RAMSLICE_REASON_GIGANTIC :
						      RAMSLICE_REASON_NONE;
}

/**
 * ramslice_get_folio - a reference to what may be moved or dropped
 * @page: a page that is not in the buddy allocator
 *
 * To nothing else: who frees a buffer or a page table, or unplugs memory, has to
 * find that its reference is the only one.
 *
 * Return: the folio, or NULL: see ramslice_frame_blocks().
 */
struct folio *ramslice_get_folio(struct page *page)
{
	if (!PageLRU(page) && !PageHuge(page) && !__PageMovable(page) &&
	    /* On its way to a list of LRU, or isolated from it */
	    (page_has_type(page) || !READ_ONCE(page->mapping)))
		return NULL;
	return folio_get_nontail_page(page);
}

/**
 * ramslice_type_blocks - why pageblocks of a migrate type are not isolated
 * @type: the migrate type
 */
enum ramslice_reason ramslice_type_blocks(int type)
{
	if (is_migrate_isolate(type))
		return RAMSLICE_REASON_ISOLATED;
	if (is_migrate_cma(type))
		return RAMSLICE_REASON_CMA;
	if (!migratetype_is_mergeable(type))
		return RAMSLICE_REASON_HIGHATOMIC;
	return RAMSLICE_REASON_NONE;
}

/**
 * ramslice_page_class - what a page is used for
 * @page: no tail if @held, not in the buddy allocator
 * @held: the caller has a reference
 */
enum ramslice_page_class ramslice_page_class(struct page *page, bool held)
{
	struct folio *folio = (struct folio *)page;

	if (PageReserved(page))
		return RAMSLICE_PAGE_RESERVED;
	/* Pages in a balloon are PageOffline, too */
	if (held && __folio_test_movable(folio))
		return RAMSLICE_PAGE_MOVABLE;
	if (ramslice_is_foreign(page))
		return RAMSLICE_PAGE_FOREIGN;
	if (PageSlab(page))
		return RAMSLICE_PAGE_SLAB;
	if (PageTable(page))
		return RAMSLICE_PAGE_PAGETABLE;
	if (PageHuge(page))
		return RAMSLICE_PAGE_HUGETLB;
	/* Without a reference the rest would not be of one moment */
	if (!held && PageHWPoison(page))
		return RAMSLICE_PAGE_HWPOISON;
	if (!held)
		return page_count(page) && !READ_ONCE(page->mapping) ?
		       RAMSLICE_PAGE_KERNEL : RAMSLICE_PAGE_TRANSIT;
	if (folio_test_anon(folio))
		return RAMSLICE_PAGE_ANON;
	if (folio_test_swapcache(folio))
		return RAMSLICE_PAGE_SWAP;
	if (READ_ONCE(folio->mapping))
		return folio_test_swapbacked(folio) ? RAMSLICE_PAGE_SHMEM :
						      RAMSLICE_PAGE_FILE;
	return PageHWPoison(page) ? RAMSLICE_PAGE_HWPOISON :
				    RAMSLICE_PAGE_KERNEL;
}
