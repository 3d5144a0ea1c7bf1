/* SPDX-License-Identifier: GPL-2.0 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM ramslice

#if !defined(_TRACE_RAMSLICE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _TRACE_RAMSLICE_H

#include <linux/tracepoint.h>
#include <uapi/linux/ramslice.h>

#define show_ramslice_state(state)				\
	__print_symbolic(state,					\
		{ RAMSLICE_ONLINE,	"online" },		\
		{ RAMSLICE_EMPTYING,	"emptying" },		\
		{ RAMSLICE_OFFLINE,	"offline" },		\
		{ RAMSLICE_WAKING,	"waking" },		\
		{ RAMSLICE_QUARANTINED,	"quarantined" })

#define show_ramslice_reason(reason)				\
	__print_symbolic(reason,				\
		{ RAMSLICE_REASON_NONE, "none" }, \
		{ RAMSLICE_REASON_HOLE, "hole" }, \
		{ RAMSLICE_REASON_ZONE_END, "zone-end" }, \
		{ RAMSLICE_REASON_BOOT, "boot" }, \
		{ RAMSLICE_REASON_QUARANTINED, "quarantined" }, \
		{ RAMSLICE_REASON_SLAB, "slab" }, \
		{ RAMSLICE_REASON_PAGETABLE, "pagetable" }, \
		{ RAMSLICE_REASON_PINNED, "pinned" }, \
		{ RAMSLICE_REASON_WRITEBACK, "writeback" }, \
		{ RAMSLICE_REASON_HUGETLB, "hugetlb" }, \
		{ RAMSLICE_REASON_GIGANTIC, "gigantic" }, \
		{ RAMSLICE_REASON_CMA, "cma" }, \
		{ RAMSLICE_REASON_HIGHATOMIC, "highatomic" }, \
		{ RAMSLICE_REASON_HWPOISON, "hwpoison" }, \
		{ RAMSLICE_REASON_FOREIGN_OFFLINE, "foreign-offline" }, \
		{ RAMSLICE_REASON_ISOLATED, "isolated" }, \
		{ RAMSLICE_REASON_UNMOVABLE, "unmovable" }, \
		{ RAMSLICE_REASON_NO_ROOM, "no-room" }, \
		{ RAMSLICE_REASON_OVER_BUDGET, "over-budget" }, \
		{ RAMSLICE_REASON_AWAKE_RESERVE, "awake-reserve" }, \
		{ RAMSLICE_REASON_BACKOFF, "backoff" }, \
		{ RAMSLICE_REASON_PRESSURE, "pressure" }, \
		{ RAMSLICE_REASON_DEADLINE, "deadline" }, \
		{ RAMSLICE_REASON_SIGNAL, "signal" }, \
		{ RAMSLICE_REASON_STATE, "state" }, \
		{ RAMSLICE_REASON_POWER, "power" }, \
		{ RAMSLICE_REASON_MIGRATION, "migration" }, \
		{ RAMSLICE_REASON_BUFFER, "buffer" }, \
		{ RAMSLICE_REASON_OVER_LIMIT, "over-limit" })

#define show_ramslice_op(op)					\
	__print_symbolic(op,					\
		{ RAMSLICE_OP_OFFLINE, "offline" }, \
		{ RAMSLICE_OP_ONLINE, "online" }, \
		{ RAMSLICE_OP_COMPACT, "compact" }, \
		{ RAMSLICE_OP_OFFLINE_FREE, "offline-free" }, \
		{ RAMSLICE_OP_ONLINE_ALL, "online-all" })

TRACE_EVENT(ramslice_state,

	TP_PROTO(u32 id, u8 from, u8 to),

	TP_ARGS(id, from, to),

	TP_STRUCT__entry(
		__field(u32, id)
		__field(u8, from)
		__field(u8, to)
	),

	TP_fast_assign(
		__entry->id = id;
		__entry->from = from;
		__entry->to = to;
	),

	TP_printk("id=%u %s -> %s", __entry->id,
		  show_ramslice_state(__entry->from),
		  show_ramslice_state(__entry->to))
);

TRACE_EVENT(ramslice_price,

	TP_PROTO(u32 id, u64 price, u64 budget, unsigned long nr_drop,
		 unsigned long nr_move, unsigned long nr_maps),

	TP_ARGS(id, price, budget, nr_drop, nr_move, nr_maps),

	TP_STRUCT__entry(
		__field(u32, id)
		__field(u64, price)
		__field(u64, budget)
		__field(unsigned long, nr_drop)
		__field(unsigned long, nr_move)
		__field(unsigned long, nr_maps)
	),

	TP_fast_assign(
		__entry->id = id;
		__entry->price = price;
		__entry->budget = budget;
		__entry->nr_drop = nr_drop;
		__entry->nr_move = nr_move;
		__entry->nr_maps = nr_maps;
	),

	TP_printk("id=%u price=%llu budget=%llu drop=%lu move=%lu maps=%lu",
		  __entry->id, __entry->price, __entry->budget,
		  __entry->nr_drop, __entry->nr_move, __entry->nr_maps)
);

TRACE_EVENT(ramslice_offline,

	TP_PROTO(u32 id, int error, u8 reason, u64 migrated, u64 dropped),

	TP_ARGS(id, error, reason, migrated, dropped),

	TP_STRUCT__entry(
		__field(u32, id)
		__field(int, error)
		__field(u8, reason)
		__field(u64, migrated)
		__field(u64, dropped)
	),

	TP_fast_assign(
		__entry->id = id;
		__entry->error = error;
		__entry->reason = reason;
		__entry->migrated = migrated;
		__entry->dropped = dropped;
	),

	TP_printk("id=%u error=%d reason=%s migrated=%llu dropped=%llu",
		  __entry->id, __entry->error,
		  show_ramslice_reason(__entry->reason),
		  __entry->migrated, __entry->dropped)
);

TRACE_EVENT(ramslice_refuse,

	TP_PROTO(u32 id, u8 reason, unsigned long pfn),

	TP_ARGS(id, reason, pfn),

	TP_STRUCT__entry(
		__field(u32, id)
		__field(u8, reason)
		__field(unsigned long, pfn)
	),

	TP_fast_assign(
		__entry->id = id;
		__entry->reason = reason;
		__entry->pfn = pfn;
	),

	TP_printk("id=%u reason=%s pfn=0x%lx", __entry->id,
		  show_ramslice_reason(__entry->reason), __entry->pfn)
);

TRACE_EVENT(ramslice_target,

	TP_PROTO(u32 id, unsigned long pfn, unsigned long nr_free,
		 unsigned long nr_cache),

	TP_ARGS(id, pfn, nr_free, nr_cache),

	TP_STRUCT__entry(
		__field(u32, id)
		__field(unsigned long, pfn)
		__field(unsigned long, nr_free)
		__field(unsigned long, nr_cache)
	),

	TP_fast_assign(
		__entry->id = id;
		__entry->pfn = pfn;
		__entry->nr_free = nr_free;
		__entry->nr_cache = nr_cache;
	),

	TP_printk("id=%u pfn=0x%lx free=%lu cache=%lu", __entry->id,
		  __entry->pfn, __entry->nr_free, __entry->nr_cache)
);

TRACE_EVENT(ramslice_chunk,

	TP_PROTO(u32 id, unsigned long pfn, unsigned long nr_pages,
		 bool by_demand),

	TP_ARGS(id, pfn, nr_pages, by_demand),

	TP_STRUCT__entry(
		__field(u32, id)
		__field(unsigned long, pfn)
		__field(unsigned long, nr_pages)
		__field(bool, by_demand)
	),

	TP_fast_assign(
		__entry->id = id;
		__entry->pfn = pfn;
		__entry->nr_pages = nr_pages;
		__entry->by_demand = by_demand;
	),

	TP_printk("id=%u pfn=0x%lx nr_pages=%lu by_demand=%d", __entry->id,
		  __entry->pfn, __entry->nr_pages, __entry->by_demand)
);

TRACE_EVENT(ramslice_request,

	TP_PROTO(const struct ramslice_request *req, int error),

	TP_ARGS(req, error),

	TP_STRUCT__entry(
		__field(u32, op)
		__field(u32, flags)
		__field(int, error)
		__field(u32, status)
		__field(u32, reason)
		__field(u32, id)
		__field(u32, nr_done)
		__field(u32, nr_failed)
		__field(u64, budget)
		__field(u64, predicted)
		__field(u64, measured)
		__field(u64, migrated)
		__field(u64, dropped)
		__field(u64, elapsed_ns)
	),

	TP_fast_assign(
		__entry->op = req->op;
		__entry->flags = req->flags;
		__entry->error = error;
		__entry->status = req->status;
		__entry->reason = req->reason;
		__entry->id = req->last_id;
		__entry->nr_done = req->nr_done;
		__entry->nr_failed = req->nr_failed;
		__entry->budget = req->budget;
		__entry->predicted = req->price_predicted;
		__entry->measured = req->price_measured;
		__entry->migrated = req->pages_migrated;
		__entry->dropped = req->pages_dropped;
		__entry->elapsed_ns = req->elapsed_ns;
	),

	TP_printk("op=%s flags=0x%x error=%d status=%u reason=%s id=%d done=%u failed=%u budget=%llu predicted=%llu measured=%llu migrated=%llu dropped=%llu elapsed_ns=%llu",
		  show_ramslice_op(__entry->op), __entry->flags,
		  __entry->error, __entry->status,
		  show_ramslice_reason(__entry->reason), (int)__entry->id,
		  __entry->nr_done, __entry->nr_failed, __entry->budget,
		  __entry->predicted, __entry->measured, __entry->migrated,
		  __entry->dropped, __entry->elapsed_ns)
);

#endif /* _TRACE_RAMSLICE_H */

#include <trace/define_trace.h>
