// SPDX-License-Identifier: GPL-2.0
/*
 * Calls of power drivers that may sleep: in a worker, and bounded in time.
 *
 * A caller that needs a slice chooses how long it waits. A driver that does not
 * answer within ramslice_call_timeout_ms loses the slice: it is quarantined,
 * and a later answer is ignored. Waking allocates nothing, hence the fixed
 * number of calls.
 */

#include <linux/export.h>
#include <linux/sched/mm.h>
#include <linux/timer.h>
#include <linux/workqueue.h>
#include "internal.h"

/* Calls under way at the same time, including those that hang for ever. */
#define MAX_CALLS	64

/**
 * struct ramslice_call - one call of the power driver
 * @work: what runs it
 * @timer: what gives it up
 * @until: jiffies when @timer does
 * @id: the slice
 * @power_state: state of the driver to enter or to leave
 * @kind: what the driver is called for
 * @nr: the calls that the slot has had
 * @state: owner of the slot; under ramslice_lock, like all the rest
 * @err: what the driver returned, once CALL_ANSWERED
 */
struct ramslice_call {
	struct work_struct work;
	struct timer_list timer;
	unsigned long until;
	u32 id;
	u8 power_state;
	enum ramslice_call_kind kind;
	unsigned int nr;
	enum {
		CALL_FREE,
		CALL_RUNNING,	/* the worker has it */
		CALL_ANSWERED,	/* not waking: the caller looks at @err */
		CALL_LATE,	/* given up; the worker still has it */
	} state;
	int err;
};

unsigned int ramslice_call_timeout_ms = 30000;

/**
 * ramslice_power_timeout_ms - time after which a call that may sleep is given up
 *
 * For a power driver that could wait longer: it returns an error in time, and
 * the slice stays.
 *
 * Context: Any.
 * Return: milliseconds.
 */
unsigned int ramslice_power_timeout_ms(void)
{
	return max(READ_ONCE(ramslice_call_timeout_ms),
		   2 * ramslice_power_latency_us() / 1000);
}
EXPORT_SYMBOL_GPL(ramslice_power_timeout_ms);

static struct ramslice_call ramslice_calls[MAX_CALLS];
/* Of these, the ones given up. Under ramslice_lock. */
static unsigned int ramslice_nr_late;
static struct workqueue_struct *ramslice_workers;

static void ramslice_run_call(struct work_struct *work)
{
	struct ramslice_call *call = container_of(work, struct ramslice_call,
						  work);
	unsigned int flags = memalloc_noreclaim_save();
	u32 id = call->id;
	bool late;
	int err;

	switch (call->kind) {
	case RAMSLICE_CALL_OFF:
		err = ramslice_power_off(call->id, &call->power_state);
		break;
	case RAMSLICE_CALL_WAKE:
		err = ramslice_power_wake(call->id, call->power_state);
		if (!err)
			ramslice_strict_map(call->id);
		break;
	default:
		err = ramslice_power_rest(call->id,
					  call->kind == RAMSLICE_CALL_REST);
	}

	spin_lock_irq(&ramslice_lock);
	timer_delete(&call->timer);
	late = call->state == CALL_LATE;
	WRITE_ONCE(ramslice_nr_late, ramslice_nr_late - late);
	call->err = err;
	if (call->kind != RAMSLICE_CALL_WAKE && !late) {
		WRITE_ONCE(call->state, CALL_ANSWERED);
	} else {
		WRITE_ONCE(call->state, CALL_FREE);
		if (!late)
			ramslice_wake_answered(call->id, err);
	}
	spin_unlock_irq(&ramslice_lock);

	if (late)
		pr_warn("the power driver answered for slice %u after it was given up\n",
			id);
	wake_up_all(&ramslice_wait);
	memalloc_noreclaim_restore(flags);
}

static const char * const ramslice_call_names[] = {
	[RAMSLICE_CALL_OFF]		= "power off",
	[RAMSLICE_CALL_WAKE]		= "wake",
	[RAMSLICE_CALL_REST]		= "rest",
	[RAMSLICE_CALL_END_REST]	= "end of rest",
};

static void ramslice_give_up(struct timer_list *timer)
{
	struct ramslice_call *call = from_timer(call, timer, timer);
	enum ramslice_call_kind kind;
	unsigned long flags;
	bool hung;
	u32 id;

	spin_lock_irqsave(&ramslice_lock, flags);
	hung = call->state == CALL_RUNNING &&
	       time_after_eq(jiffies, call->until);
	/* Given up, the slot is free as soon as the driver answers */
	id = call->id;
	kind = call->kind;
	if (hung) {
		WRITE_ONCE(call->state, CALL_LATE);
		WRITE_ONCE(ramslice_nr_late, ramslice_nr_late + 1);
		if (kind == RAMSLICE_CALL_WAKE)
			ramslice_wake_answered(call->id, -ETIMEDOUT);
	}
	spin_unlock_irqrestore(&ramslice_lock, flags);
	if (!hung)
		return;
	pr_err("slice %u: the power driver does not answer (%s)\n",
	       id, ramslice_call_names[kind]);
	wake_up_all(&ramslice_wait);
}

/**
 * ramslice_call_prepare - have a call ready
 * @id: the slice
 * @kind: what the driver is called for
 * @power_state: state of the driver to leave when waking
 *
 * Context: ramslice_lock held.
 * Return: the call, to be given to ramslice_call_start(); NULL if as many as
 * there can be are hanging.
 */
struct ramslice_call *ramslice_call_prepare(u32 id,
					    enum ramslice_call_kind kind,
					    u8 power_state)
{
	unsigned int i, ms = ramslice_power_timeout_ms();

	lockdep_assert_held(&ramslice_lock);
	for (i = 0; i < MAX_CALLS; i++) {
		struct ramslice_call *call = &ramslice_calls[i];

		if (call->state != CALL_FREE)
			continue;
		call->id = id;
		call->kind = kind;
		call->power_state = power_state;
		WRITE_ONCE(call->nr, call->nr + 1);
		/* Here: the last call's timer may be waiting for the lock */
		call->until = jiffies + msecs_to_jiffies(ms);
		WRITE_ONCE(call->state, CALL_RUNNING);
		return call;
	}
	return NULL;
}

/* Sends a call on its way, without ramslice_lock. */
void ramslice_call_start(struct ramslice_call *call)
{
	mod_timer(&call->timer, call->until);
	queue_work(ramslice_workers, &call->work);
}

/* Given up and answered, the slot may be another call's by now. */
static bool ramslice_call_runs(const struct ramslice_call *call,
			       unsigned int nr)
{
	return READ_ONCE(call->state) == CALL_RUNNING &&
	       READ_ONCE(call->nr) == nr;
}

/* Calls the driver, and waits for its answer. */
static int ramslice_call_and_wait(u32 id, enum ramslice_call_kind kind,
				  u8 *power_state)
{
	struct ramslice_call *call;
	int err = -ETIMEDOUT;
	unsigned int nr;

	spin_lock_irq(&ramslice_lock);
	call = ramslice_call_prepare(id, kind, 0);
	nr = call ? call->nr : 0;
	spin_unlock_irq(&ramslice_lock);
	if (!call)
		return -EBUSY;
	ramslice_call_start(call);
	wait_event(ramslice_wait, !ramslice_call_runs(call, nr));

	spin_lock_irq(&ramslice_lock);
	if (call->nr == nr && call->state == CALL_ANSWERED) {
		err = call->err ? -EIO : 0;
		*power_state = call->power_state;
		WRITE_ONCE(call->state, CALL_FREE);
	}
	spin_unlock_irq(&ramslice_lock);
	/* Who waits for the driver to have no calls may have looked before that */
	wake_up_all(&ramslice_wait);
	return err;
}

/**
 * ramslice_call_off - hand an empty slice to the power driver
 * @id: the slice
 * @power_state: set to the state of the driver that it is in
 *
 * Context: May sleep, no longer than ramslice_call_timeout_ms.
 * Return: 0; -EIO if the driver refused; -ETIMEDOUT if it did not answer, so
 * that the slice may be on or off; -EBUSY if too many calls hang.
 */
int ramslice_call_off(u32 id, u8 *power_state)
{
	return ramslice_call_and_wait(id, RAMSLICE_CALL_OFF, power_state);
}

/**
 * ramslice_call_rest - tell the power driver whether a slice may rest
 * @id: the slice, in use
 * @rests: it may from now on; false: as all others again
 *
 * Context: May sleep, no longer than ramslice_call_timeout_ms.
 * Return: as for ramslice_call_off().
 */
int ramslice_call_rest(u32 id, bool rests)
{
	u8 unused;

	return ramslice_call_and_wait(id, rests ? RAMSLICE_CALL_REST :
						  RAMSLICE_CALL_END_REST,
				      &unused);
}

/* Is a task inside the power driver, or about to be? */
bool ramslice_calls_busy(void)
{
	unsigned int i;

	for (i = 0; i < MAX_CALLS; i++) {
		if (READ_ONCE(ramslice_calls[i].state) != CALL_FREE)
			return true;
	}
	return false;
}

/* Is a call left that does not hang, so that a slice can be woken? */
bool ramslice_calls_left(void)
{
	return READ_ONCE(ramslice_nr_late) < MAX_CALLS;
}

/* Calls given up that have not returned. */
unsigned int ramslice_calls_late(void)
{
	return READ_ONCE(ramslice_nr_late);
}

int __init ramslice_call_init(void)
{
	unsigned int i;

	for (i = 0; i < MAX_CALLS; i++) {
		INIT_WORK(&ramslice_calls[i].work, ramslice_run_call);
		timer_setup(&ramslice_calls[i].timer, ramslice_give_up, 0);
	}
	ramslice_workers = alloc_workqueue("ramslice_power",
					   WQ_UNBOUND | WQ_MEM_RECLAIM, 0);
	return ramslice_workers ? 0 : -ENOMEM;
}
