// SPDX-License-Identifier: GPL-2.0
/*
 * Tests of what a page is taken for, on one that the test has allocated and
 * marks as the kernel's, another owner's, or not accepted.
 */

#include <kunit/test.h>
#include <linux/gfp.h>
#include "../internal.h"

static int ramslice_alloc_one(struct kunit *test)
{
	test->priv = alloc_page(GFP_KERNEL);
	return test->priv ? 0 : -ENOMEM;
}

static void ramslice_free_one(struct kunit *test)
{
	if (test->priv)
		__free_page(test->priv);
}

static void ramslice_expect(struct kunit *test, enum ramslice_page_class class,
			    enum ramslice_reason reason)
{
	KUNIT_EXPECT_EQ(test, ramslice_page_class(test->priv, false), class);
	KUNIT_EXPECT_EQ(test, ramslice_frame_blocks(test->priv), reason);
	/* Its owner has the only reference */
	KUNIT_EXPECT_NULL(test, ramslice_get_folio(test->priv));
	KUNIT_EXPECT_EQ(test, page_count(test->priv), 1);
}

static void ramslice_page_without_a_mark_is_the_kernels(struct kunit *test)
{
	KUNIT_EXPECT_EQ(test, ramslice_page_class(test->priv, true),
			RAMSLICE_PAGE_KERNEL);
	ramslice_expect(test, RAMSLICE_PAGE_KERNEL, RAMSLICE_REASON_UNMOVABLE);
}

static void ramslice_page_with_a_mapping_is_held_while_it_is_looked_at(struct kunit *test)
{
	struct page *page = test->priv;
	struct folio *folio;

	page->mapping = (void *)PAGE_MAPPING_ANON;
	folio = ramslice_get_folio(page);
	KUNIT_EXPECT_PTR_EQ(test, folio, page_folio(page));
	KUNIT_EXPECT_EQ(test, page_count(page), 2);
	if (folio)
		folio_put(folio);
	page->mapping = NULL;
}

static void ramslice_page_of_another_owner_stays(struct kunit *test)
{
	__SetPageOffline(test->priv);
	ramslice_expect(test, RAMSLICE_PAGE_FOREIGN,
			RAMSLICE_REASON_FOREIGN_OFFLINE);
	__ClearPageOffline(test->priv);
}

/* No lab has a machine with such memory: this is all that is seen of it. */
static void ramslice_page_not_accepted_stays(struct kunit *test)
{
	__SetPageUnaccepted(test->priv);
	ramslice_expect(test, RAMSLICE_PAGE_FOREIGN,
			RAMSLICE_REASON_FOREIGN_OFFLINE);
	__ClearPageUnaccepted(test->priv);
}

static void ramslice_page_of_a_page_table_stays(struct kunit *test)
{
	__SetPageTable(test->priv);
	ramslice_expect(test, RAMSLICE_PAGE_PAGETABLE,
			RAMSLICE_REASON_PAGETABLE);
	__ClearPageTable(test->priv);
}

static struct kunit_case ramslice_page_class_cases[] = {
	KUNIT_CASE(ramslice_page_without_a_mark_is_the_kernels),
	KUNIT_CASE(ramslice_page_with_a_mapping_is_held_while_it_is_looked_at),
	KUNIT_CASE(ramslice_page_of_another_owner_stays),
	KUNIT_CASE(ramslice_page_not_accepted_stays),
	KUNIT_CASE(ramslice_page_of_a_page_table_stays),
	{}
};

static struct kunit_suite ramslice_page_class_suite = {
	.name = "ramslice_page_class",
	.init = ramslice_alloc_one,
	.exit = ramslice_free_one,
	.test_cases = ramslice_page_class_cases,
};

kunit_test_suite(ramslice_page_class_suite);
