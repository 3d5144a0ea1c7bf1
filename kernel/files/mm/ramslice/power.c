// SPDX-License-Identifier: GPL-2.0
/*
 * Power drivers: one at a time, exchanged only while every slice is awake.
 */

#include <linux/module.h>
#include <linux/slab.h>
#include "internal.h"
#include "cold.h"

/* Changes under ramslice_mutex and ramslice_lock, with nothing offline. */
static const struct ramslice_power_driver *ramslice_driver;

/*
 * What tasks without either lock ask about the driver, which may go at any
 * time: copies, not its own memory. Written under ramslice_lock.
 */
static char ramslice_driver_name[RAMSLICE_DRIVER_NAME_LEN] = "none";
static bool ramslice_driver_sleeps;
static bool ramslice_driver_unmaps;
static bool ramslice_driver_survives_sleep;
static bool ramslice_driver_rests;
static unsigned int ramslice_driver_latency_us;
static unsigned int ramslice_driver_cache_percent;

/* Writes the driver's name, or "none". */
void ramslice_power_name(char name[RAMSLICE_DRIVER_NAME_LEN])
{
	spin_lock_irq(&ramslice_lock);
	memcpy(name, ramslice_driver_name, RAMSLICE_DRIVER_NAME_LEN);
	spin_unlock_irq(&ramslice_lock);
}

bool ramslice_power_wake_sleeps(void)
{
	return ramslice_is_strict() || READ_ONCE(ramslice_driver_sleeps);
}

/* Slices are to leave the direct map before off() and come back after wake(). */
bool ramslice_power_unmaps(void)
{
	return READ_ONCE(ramslice_driver_unmaps);
}

/* What is off may stay so while the system is suspended, to idle or to memory. */
bool ramslice_power_survives_sleep(void)
{
	return READ_ONCE(ramslice_driver_survives_sleep);
}

/* Slices in use can be told to rest. */
bool ramslice_power_rests(void)
{
	return READ_ONCE(ramslice_driver_rests);
}

/* Longest time that the driver says a call takes. */
unsigned int ramslice_power_latency_us(void)
{
	return READ_ONCE(ramslice_driver_latency_us);
}

/* Of a zone: inactive page cache that reading ahead may wake memory for. */
unsigned int ramslice_power_cache_percent(void)
{
	return READ_ONCE(ramslice_driver_cache_percent);
}

/* The first of a driver's states that keeps contents; its number of states if none. */
static unsigned int ramslice_rest_state(const struct ramslice_power_driver *drv)
{
	unsigned int i;

	for (i = 0; i < drv->nr_states && !drv->states[i].retention; i++)
		;
	return i;
}

/* A driver, or none, is the one that is called from now on. */
static void ramslice_set_driver(const struct ramslice_power_driver *drv)
{
	const struct ramslice_power_state *state = drv ? drv->states : NULL;

	lockdep_assert_held(&ramslice_lock);
	WRITE_ONCE(ramslice_driver, drv);
	strscpy_pad(ramslice_driver_name, drv ? drv->name : "none");
	WRITE_ONCE(ramslice_driver_sleeps, state && !state->atomic_wake);
	WRITE_ONCE(ramslice_driver_unmaps, state && !state->may_stay_mapped);
	WRITE_ONCE(ramslice_driver_survives_sleep,
		   state && state->survives_sleep);
	WRITE_ONCE(ramslice_driver_rests,
		   drv && drv->rest && ramslice_rest_state(drv) < drv->nr_states);
	WRITE_ONCE(ramslice_driver_latency_us,
		   state ? max(state->entry_latency_us, state->exit_latency_us) : 0);
	WRITE_ONCE(ramslice_driver_cache_percent, drv ? drv->cache_percent : 0);
}

int ramslice_power_off(u32 id, u8 *power_state)
{
	struct ramslice_extents e;

	*power_state = 0;
	if (!ramslice_driver)
		return 0;
	ramslice_geom_extents(&ramslice_geom, id, &e);
	return ramslice_driver->off(id, &e, *power_state);
}

int ramslice_power_wake(u32 id, u8 power_state)
{
	struct ramslice_extents e;
	int err;

	if (!ramslice_driver)
		return 0;
	ramslice_geom_extents(&ramslice_geom, id, &e);
	err = ramslice_driver->wake(id, &e, power_state);
	if (err)
		printk_deferred(KERN_ERR "ramslice: slice %u did not wake (%s: %d): quarantined, %llu bytes lost\n",
				id, ramslice_driver->name, err,
				(u64)e.nr * e.nr_pages << PAGE_SHIFT);
	return err;
}

int ramslice_power_rest(u32 id, bool rests)
{
	struct ramslice_extents e;

	if (!ramslice_power_rests())
		return -EOPNOTSUPP;
	ramslice_geom_extents(&ramslice_geom, id, &e);
	return ramslice_driver->rest(id, &e,
				     ramslice_rest_state(ramslice_driver),
				     rests);
}

void ramslice_power_check(u32 id, unsigned long pfn, unsigned long nr_pages)
{
	if (ramslice_driver && ramslice_driver->check)
		ramslice_driver->check(id, pfn, nr_pages);
}

/* No slice is off, or on its way there or back. Under ramslice_lock, or alone. */
bool ramslice_power_idle(void)
{
	struct ramslice_zone *rz;
	unsigned int i;

	for (i = 0; (rz = ramslice_zone_by_index(i)); i++) {
		if (rz->nr[RAMSLICE_OFFLINE] || rz->nr[RAMSLICE_WAKING] ||
		    rz->nr[RAMSLICE_EMPTYING])
			return false;
	}
	return true;
}

/* Exchanges drivers; with slices awake, no task can be inside one. */
static int ramslice_exchange(const struct ramslice_power_driver *drv,
			     const struct ramslice_power_driver *old)
{
	int err = 0;

	lockdep_assert_held(&ramslice_mutex);

	spin_lock_irq(&ramslice_lock);
	if (ramslice_driver != old)
		err = old ? -ENOENT : -EBUSY;
	else if (!ramslice_power_idle())
		err = -EBUSY;
	if (!err)
		ramslice_set_driver(drv);
	spin_unlock_irq(&ramslice_lock);
	return err;
}

/**
 * ramslice_register_power_driver - make a power driver known
 * @drv: the driver; must stay until unregistered
 *
 * Slices that are offline without a driver are woken first.
 *
 * Context: May sleep.
 * Return: 0; -EINVAL if something is missing or out of range; -EBUSY if there is a driver;
 * -ENODEV if ramslice is off; -EOPNOTSUPP if slices cannot leave the direct map
 * of this architecture, as the driver demands.
 */
int ramslice_register_power_driver(const struct ramslice_power_driver *drv)
{
	u32 nr_woken = 0;
	int err;

	if (!ramslice_enabled() || !ramslice_slices)
		return -ENODEV;
	if (!drv->name || strlen(drv->name) >= RAMSLICE_DRIVER_NAME_LEN || !drv->nr_states ||
	    !drv->states || !drv->off || !drv->wake || drv->cache_percent > 100)
		return -EINVAL;
	if (!drv->states->may_stay_mapped && !RAMSLICE_CAN_UNMAP)
		return -EOPNOTSUPP;

	mutex_lock(&ramslice_mutex);
	if (ramslice_driver) {
		err = -EBUSY;
	} else {
		ramslice_wake_all(&nr_woken);
		err = ramslice_exchange(drv, NULL);
		if (!err)
			ramslice_rest_begin();
	}
	mutex_unlock(&ramslice_mutex);
	if (!err)
		pr_info("power driver %s, %s wake within %u us\n",
			drv->name,
			ramslice_power_wake_sleeps() ? "sleeping" : "atomic",
			drv->states[0].exit_latency_us);
	return err;
}
EXPORT_SYMBOL_GPL(ramslice_register_power_driver);

/**
 * ramslice_unregister_power_driver - withdraw a power driver
 * @drv: the driver
 *
 * Wakes every slice. Those that do not wake are quarantined and need the
 * driver no more. Waits for calls that hang, however long, but holds up no
 * other task meanwhile.
 *
 * Context: May sleep.
 * Return: 0, or -ENOENT if it is not registered.
 */
int ramslice_unregister_power_driver(const struct ramslice_power_driver *drv)
{
	u32 nr_woken = 0;
	int err;

	do {
		/* Its code must stay until the last call has returned */
		wait_event_idle(ramslice_wait, !ramslice_calls_busy());
		mutex_lock(&ramslice_mutex);
		ramslice_wake_all(&nr_woken);
		err = -EBUSY;
		if (ramslice_rest_end() && !ramslice_calls_busy())
			err = ramslice_exchange(NULL, drv);
		mutex_unlock(&ramslice_mutex);
	} while (err == -EBUSY);
	return err;
}
EXPORT_SYMBOL_GPL(ramslice_unregister_power_driver);
