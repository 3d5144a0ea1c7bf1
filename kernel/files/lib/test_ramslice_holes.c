// SPDX-License-Identifier: GPL-2.0
/*
 * A power driver for virtual machines whose memory is a file, to find accesses
 * to slices that are off.
 *
 * At power-off the host punches the slice's range out of the file. A read or a
 * write, by the CPU or by a device, brings the page back; at waking, before
 * anything may touch the memory, the host reports which pages are there. Each
 * of them is a violation. Scrambling (test_ramslice_sim.c) cannot see reads, nor
 * writes that are overwritten later.
 *
 * The host's side (in the lab of ramslice) listens at the other end of a
 * serial port, which is polled: that works in any context, with interrupts
 * off, and allocates nothing. Request and answer are a line each:
 *
 *   NUMBER OP SLICE [PFN+PAGES]...
 *   NUMBER ERROR COUNT VALUE
 *
 * where the answer repeats the number. No host, or one that does not answer in
 * time, is an error: a slice that is to go off stays, one that is to wake is
 * quarantined.
 */

#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/delay.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/random.h>
#include <linux/ramslice_power.h>
#include <linux/serial_reg.h>
#include <linux/spinlock.h>

#define POLL_US		5

static unsigned short port = 0x2f8;
module_param(port, ushort, 0444);
MODULE_PARM_DESC(port, "I/O port of the serial port to the host");

static unsigned int timeout_ms = 10000;
module_param(timeout_ms, uint, 0644);
MODULE_PARM_DESC(timeout_ms, "how long the host may take to answer");

static unsigned long violations;
module_param(violations, ulong, 0444);
MODULE_PARM_DESC(violations, "pages found touched while off");

/* Encloses a request and its answer, and the variables below. */
static DEFINE_SPINLOCK(holes_lock);
static unsigned int holes_number;
/* For a slice of a hundred runs. */
static char holes_line[2048];

/* Has the port this event? Gives up when *left_us is used up. */
static bool holes_wait_for(u8 event, unsigned long *left_us)
{
	while (!(inb(port + UART_LSR) & event)) {
		if (*left_us < POLL_US)
			return false;
		*left_us -= POLL_US;
		udelay(POLL_US);
	}
	return true;
}

static int holes_send_line(unsigned long *left_us)
{
	const char *c;

	for (c = holes_line; *c; c++) {
		if (!holes_wait_for(UART_LSR_THRE, left_us))
			return -EIO;
		outb(*c, port + UART_TX);
	}
	return 0;
}

static int holes_receive_line(unsigned long *left_us)
{
	size_t len = 0;

	/* No patience at all: not even with an answer that is there already */
	if (!*left_us)
		return -EIO;
	for (;;) {
		char c;

		if (!holes_wait_for(UART_LSR_DR, left_us))
			return -EIO;
		c = inb(port + UART_RX);
		if (c == '\n')
			break;
		if (len < sizeof(holes_line) - 1)
			holes_line[len++] = c;
	}
	holes_line[len] = '\0';
	return 0;
}

/* Context: any but NMI. Return: 0, or -EIO. */
static int holes_ask(const char *op, u32 id,
		     const struct ramslice_extents *extents,
		     u64 *count, u64 *value)
{
	unsigned long left_us = timeout_ms * 1000UL;
	unsigned long flags, pfn;
	unsigned int answered, i;
	size_t len;
	int err, result;

	spin_lock_irqsave(&holes_lock, flags);
	holes_number++;
	len = scnprintf(holes_line, sizeof(holes_line), "%u %s %u",
			holes_number, op, id);
	for_each_ramslice_extent(extents, i, pfn)
		len += scnprintf(holes_line + len, sizeof(holes_line) - len,
				 " %lu+%lu", pfn, extents->nr_pages);
	/* Filled to the brim: it may have been cut short */
	err = len >= sizeof(holes_line) - 2 ? -EIO : 0;
	if (!err) {
		holes_line[len++] = '\n';
		holes_line[len] = '\0';
		err = holes_send_line(&left_us);
	}
	/* Answers to requests that were given up may still arrive */
	do {
		if (!err)
			err = holes_receive_line(&left_us);
		answered = 0;
		if (!err && sscanf(holes_line, "%u %d %llu %llu", &answered,
				   &result, count, value) != 4)
			answered = 0;
	} while (!err && answered != holes_number);
	if (!err && result)
		err = -EIO;
	spin_unlock_irqrestore(&holes_lock, flags);
	return err;
}

static int holes_off(u32 id, const struct ramslice_extents *extents,
		     unsigned int state)
{
	u64 count, pfn;

	return holes_ask("off", id, extents, &count, &pfn);
}

/* What waking found, until it can be reported: under holes_lock. */
static struct {
	u64 nr_pages;
	u64 pfn;
	u32 id;
} holes_found;

static int holes_wake(u32 id, const struct ramslice_extents *extents,
		      unsigned int state)
{
	unsigned long flags;
	u64 count, pfn;
	int err;

	err = holes_ask("wake", id, extents, &count, &pfn);
	if (err || !count)
		return err;
	spin_lock_irqsave(&holes_lock, flags);
	violations += count;
	holes_found.nr_pages = count;
	holes_found.pfn = pfn;
	holes_found.id = id;
	spin_unlock_irqrestore(&holes_lock, flags);
	return 0;
}

/* Called after waking, without the locks under which nothing is printed. */
static void holes_check(u32 id, unsigned long pfn, unsigned long nr_pages)
{
	unsigned long flags;
	u64 nr, first;

	if (likely(!READ_ONCE(holes_found.nr_pages)))
		return;
	spin_lock_irqsave(&holes_lock, flags);
	nr = holes_found.nr_pages;
	first = holes_found.pfn;
	id = holes_found.id;
	holes_found.nr_pages = 0;
	spin_unlock_irqrestore(&holes_lock, flags);
	if (nr)
		pr_err("violation: slice %u was touched while off: %llu pages, the first pfn %llu\n",
		       id, nr, first);
}

static const struct ramslice_power_state holes_state = {
	.name = "hole",
	.entry_latency_us = 10000,
	.exit_latency_us = 10000,
	.atomic_wake = true,
	.may_stay_mapped = true,
};

static const struct ramslice_power_driver holes_driver = {
	.name = "holes",
	.states = &holes_state,
	.nr_states = 1,
	.off = holes_off,
	.wake = holes_wake,
	.check = holes_check,
};

/* --- questions between off and wake --------------------------------------- */

static int holes_get_figure(char *buffer, const char *op)
{
	const struct ramslice_extents none = {};
	u64 count, value;
	int err = holes_ask(op, 0, &none, &count, &value);

	return err ? : sysfs_emit(buffer, "%llu %llu\n", count, value);
}

static int holes_get_touched(char *buffer, const struct kernel_param *kp)
{
	return holes_get_figure(buffer, "touched");
}

static const struct kernel_param_ops holes_touched_ops = { .get = holes_get_touched };
module_param_cb(touched, &holes_touched_ops, NULL, 0444);
MODULE_PARM_DESC(touched, "pages of slices that are off now that were touched, and the first one's pfn");

static int holes_get_present(char *buffer, const struct kernel_param *kp)
{
	return holes_get_figure(buffer, "present");
}

static const struct kernel_param_ops holes_present_ops = { .get = holes_get_present };
module_param_cb(present, &holes_present_ops, NULL, 0444);
MODULE_PARM_DESC(present, "what the host has of this machine's memory and what it could have, in KiB");

/* --- start and end -------------------------------------------------------- */

/* Does the host find a page of ours where we say it is? */
static int __init holes_check_map(gfp_t gfp)
{
	u64 seen, unused, token = get_random_u64();
	struct ramslice_extents extent = { .nr_pages = 1, .nr = 1 };
	struct page *page = alloc_page(gfp);
	int err;

	if (!page)
		return -ENOMEM;
	extent.pfn = page_to_pfn(page);
	WRITE_ONCE(*(u64 *)page_address(page), token);
	/* The host looks when the port has been written to */
	wmb();
	err = holes_ask("peek", 0, &extent, &unused, &seen);
	if (err) {
		pr_err("no answer at port %#x within %u ms\n",
		       port, timeout_ms);
	} else if (seen != token) {
		pr_err("pfn %lu is not where the host looks for it\n",
		       extent.pfn);
		err = -ENXIO;
	}
	__free_page(page);
	return err;
}

static int __init holes_init(void)
{
	int err;

	/*
	 * The command line (reserve=0x2f8,8) keeps other drivers away from the
	 * port, and us from requesting it.
	 *
	 * Eight bits, no interrupts, empty queues.
	 */
	outb(0, port + UART_IER);
	outb(UART_LCR_WLEN8, port + UART_LCR);
	outb(UART_FCR_ENABLE_FIFO | UART_FCR_CLEAR_RCVR | UART_FCR_CLEAR_XMIT,
	     port + UART_FCR);
	outb(UART_MCR_DTR | UART_MCR_RTS, port + UART_MCR);

	/* The file has a gap where addresses below 4 GiB end: look at both */
	err = holes_check_map(GFP_KERNEL | GFP_DMA32);
	if (!err)
		err = holes_check_map(GFP_KERNEL);
	return err ? : ramslice_register_power_driver(&holes_driver);
}
module_init(holes_init);

static void __exit holes_exit(void)
{
	ramslice_unregister_power_driver(&holes_driver);
}
module_exit(holes_exit);

MODULE_DESCRIPTION("ramslice: holes in a virtual machine's memory");
MODULE_LICENSE("GPL");
