/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inputs to files: sysfs, debugfs, parameters of the simulated controller, and
 * the module itself. The rules are those of Documentation/ABI.
 */
#ifndef FUZZ_FILES_H
#define FUZZ_FILES_H

#include <ctype.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "fuzz_device.h"

#define SYSFS		"/sys/kernel/mm/ramslice/"
#define DEBUGFS		"/sys/kernel/debug/ramslice/"
#define PARAMETERS	"/sys/module/ramslice_sim/parameters/"
#define PAGEBLOCK	(2 * MIB)
#define MAX_PRICE	1000000000000UL
#define MIN_OFFSET	1000000UL
#define MAX_ZONES	8

static char zone_dirs[MAX_ZONES][64];
static unsigned int nr_zone_dirs;
/* The kernel has the commands of the thesis and the policies to compare with. */
static bool is_research;
static const char *module_path;

/* --- text, right or spoilt ------------------------------------------------ */

struct text {
	char s[400];
	size_t len;
};

static void __attribute__((format(printf, 2, 3))) add(struct text *t, const char *format, ...)
{
	va_list args;

	va_start(args, format);
	t->len += vsnprintf(t->s + t->len, sizeof(t->s) - t->len, format, args);
	va_end(args);
	if (t->len >= sizeof(t->s))
		t->len = sizeof(t->s) - 1;
}

static void insert(struct text *t, char c)
{
	size_t at = below(t->len + 1);

	if (t->len + 2 > sizeof(t->s))
		return;
	memmove(t->s + at + 1, t->s + at, t->len - at);
	t->s[at] = c;
	t->len++;
}

/* Makes a number one that is none. */
static void spoil_number(struct text *t)
{
	static const char flaws[] = "-.,;:_%gzGZ \t\r\x80\xff";

	if (one_in(4))
		t->len = 0;
	else if (one_in(4))
		insert(t, '\0');
	else
		insert(t, flaws[below(sizeof(flaws) - 1)]);
}

/*
 * In some calls, spoils the number in a text: the write must fail, or if a part of the number is
 * left, may fail with one of these errors.
 */
static void spoil_some(struct text *t, uint64_t value, struct errs part, struct errs *must,
		       struct errs *may)
{
	if (one_in(4)) {
		spoil_number(t);
		/* An end of string in the midst leaves a number, or nothing */
		if (memchr(t->s, 0, t->len) && t->s[0]) {
			*must = (struct errs){};
			*may = part;
		} else {
			add_err(must, EINVAL);
		}
	} else if (one_in(6)) {
		t->len = 0;
		add(t, "%lu%020lu", 1 + below(9), value);
		add_err(must, ERANGE);
	}
}

/* Opens, writes from a good or a bad place, closes. The errno, or 0. */
static int put_text(const char *path, const struct text *t, const struct place *place)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err;

	if (fd < 0)
		return errno;
	if (place->mine)
		memcpy(place->mine, t->s, t->len < place->avail ? t->len : place->avail);
	err = write(fd, place->p, t->len) < 0 ? errno : 0;
	close(fd);
	return err;
}

/* Without a byte it is for the file system to say whether that is worth an error. */
static void nothing(struct errs *must, struct errs *may)
{
	*must = (struct errs){};
	*may = ERRS(EINVAL, EFAULT);
}

/* What a bad place brings about. */
static void place_errors(const struct place *place, size_t len, struct errs *must)
{
	if (place->avail < len)
		add_err(must, EFAULT);
}

/* --- sysfs ---------------------------------------------------------------- */

static void fuzz_slice_bytes(void)
{
	static const unsigned int sizes[] = { 1, 2, 3, 4, 4, 4, 5, 8, 16, 32 };
	static const char *const formats[] = { "%lu", "%lu\n", "0x%lx", "0%lo", "0X%lX\n", "+%lu" };
	struct errs must = {}, may = ERRS(EBUSY, EINTR);
	uint64_t bytes = PAGEBLOCK * PICK(sizes);
	struct text t = {};
	struct place place;
	int err;

	switch (below(8)) {
	case 0:
		bytes = odd_number();
		if (bytes % PAGEBLOCK || !bytes)
			add_err(&must, EINVAL);
		else if (bytes > 1UL << 40)
			add_err(&must, EINVAL);
		else
			add_err(&may, EINVAL);
		break;
	case 1:
		bytes += 1 + below(PAGEBLOCK - 1);
		add_err(&must, EINVAL);
		break;
	case 2:
		/* More than there is */
		bytes <<= 20;
		add_err(&must, EINVAL);
		break;
	}
	add(&t, PICK(formats), bytes);
	spoil_some(&t, bytes, ERRS(EBUSY, EINTR, EINVAL), &must, &may);
	place = make_place(t.len + 1, !one_in(10));
	place_errors(&place, t.len, &must);
	if (!t.len)
		nothing(&must, &may);
	/* With a slice off it is refused */
	if (one_in(2))
		wake_everything();
	err = put_text(SYSFS "slice_bytes", &t, &place);
	if (judge(T_SLICE_BYTES, err, &must, &may, t.s) && t.len)
		__atomic_add_fetch(&shared->geometries, 1, __ATOMIC_RELAXED);
}

static const char * const prices[] = {
	"isolate_slice", "isolate_page", "drop_page", "migrate_page", "migrate_mapping",
	"alloc_buddy", "alloc_cache",
	"unreclaimable",
};

static void fuzz_price(void)
{
	const char *name = PICK(prices);
	bool offset = !strcmp(name, "unreclaimable");
	uint64_t value = one_in(2) ? odd_number() : (offset ? MIN_OFFSET : 0) + below(100000);
	struct errs must = {}, may = {};
	struct text t = {};
	struct place place;
	char path[128];

	snprintf(path, sizeof(path), SYSFS "price/%s", name);
	if (value > MAX_PRICE || (offset && value < MIN_OFFSET))
		add_err(&must, ERANGE);
	add(&t, one_in(2) ? "%lu" : "%lu\n", value);
	spoil_some(&t, value, ERRS(ERANGE, EINVAL), &must, &may);
	place = make_place(t.len + 1, !one_in(10));
	place_errors(&place, t.len, &must);
	if (!t.len)
		nothing(&must, &may);
	judge(T_PRICE, put_text(path, &t, &place), &must, &may, name);
}

/* Reads a file in pieces of any size, from anywhere. Returns the last errno. */
static int read_about(const char *path, bool at_places)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC), err = 0, left = 1 + below(4);

	if (fd < 0)
		return errno;
	while (left-- && !err) {
		size_t len = one_in(3) ? 1 + below(64) : 1 + below(16 * PAGE);
		struct place place = make_place(len, !one_in(8));
		ssize_t got;

		if (at_places && one_in(2))
			got = pread(fd, place.p, len,
				    one_in(4) ? (off_t)(rnd() >> 1) : (off_t)below(PAGE));
		else
			got = read(fd, place.p, len);
		if (got < 0)
			err = errno;
		else if ((size_t)got > place.avail)
			bug("%s: %zd bytes read to where %zu are", path, got, place.avail);
	}
	if (one_in(8))
		lseek(fd, rnd() >> below(64), below(6));
	close(fd);
	return err;
}

/* Settings that take a word or a small number; now and then one that is none. */
static void fuzz_setting(void)
{
	static const struct {
		const char *path;
		const char *good[8];
		const char *bad[8];
		int errs[4];
	} settings[] = {
		{ SYSFS "strict",
		  { "0", "1", "n", "on", "off\n" },
		  { "2", "maybe", "-1", " 1", "\n" },
		  { EINVAL } },
		{ SYSFS "driver_timeout_ms",
		  { "10000", "60000\n", "3600000" },
		  { "0", "99", "3600001", "4294967296", "1e3", "-1", "0x100" },
		  { EINVAL, ERANGE } },
		{ SYSFS "scan_ppm",
		  { "0", "1", "1000\n", "100000" },
		  { "1000001", "4294967296", "-1", "1e3", "0x10", "\n" },
		  { EINVAL, ERANGE } },
		{ DEBUGFS "migrate_batch",
		  { "1", "128", "512\n", "0" },
		  { "many", "-", "1.5" },
		  { EINVAL } },
		/* The core has this, research the two after it */
		{ SYSFS "placement/policy",
		  { "stock", "packed\n" },
		  { "Packed", "packed low", "pack", "7", "\n", "stockstockstock", "low", "array" },
		  { EINVAL } },
		{ SYSFS "placement/policy",
		  { "stock", "packed", "low\n", "array", "list", "adaptive" },
		  { "Packed", "packed low", "pack", "7", "\n", "stockstockstock" },
		  { EINVAL } },
		{ SYSFS "placement/low_slices",
		  { "0", "1", "8\n", "4294967295" },
		  { "4294967296", "-1", "1.5", "0x10", "many", "\n" },
		  { EINVAL, ERANGE } },
	};
	unsigned int pick = below(is_research ? 6 : 5), nr = 0;
	unsigned int which = is_research && pick > 3 ? pick + 1 : pick;
	bool good = !one_in(3);
	const char * const *words = good ? settings[which].good : settings[which].bad;
	/* Strict mode wants a kernel that can split, nothing off, and memory for it; a signal may
	 * come */
	struct errs must = good ? (struct errs){} : make_errs(settings[which].errs);
	struct errs may = ERRS(EBUSY, EINTR, ENOMEM, EOPNOTSUPP);
	struct text t = {};
	struct place place;

	while (nr < 8 && words[nr])
		nr++;
	if (one_in(5)) {
		add_err(&may, EFAULT);
		add_err(&may, EINVAL);
		must = (struct errs){};
		judge(T_SETTING, read_about(settings[which].path, false), &must, &may,
		      settings[which].path);
		return;
	}
	add(&t, "%s", words[below(nr)]);
	place = make_place(t.len + 1, !one_in(8));
	place_errors(&place, t.len, &must);
	judge(T_SETTING, put_text(settings[which].path, &t, &place), &must, &may,
	      settings[which].path);
}

static void fuzz_sysfs(void)
{
	static const char * const readable[] = {
		"enabled", "power_driver", "slice_bytes", "clock_khz", "placement/policies",
		"price",
	};
	struct errs must = {}, may = ERRS(EFAULT, EINVAL, EOVERFLOW);
	const char *name = PICK(readable);
	struct text t = {};
	char path[128];

	if (!strcmp(name, "price"))
		snprintf(path, sizeof(path), SYSFS "price/%s", PICK(prices));
	else
		snprintf(path, sizeof(path), SYSFS "%s", name);
	if (one_in(2)) {
		judge(T_SYSFS, read_about(path, true), &must, &may, name);
		return;
	}
	/* What only tells takes nothing */
	snprintf(path, sizeof(path), SYSFS "%s", one_in(2) ? "enabled" : "power_driver");
	add(&t, "%lu", odd_number());
	must = ERRS(EINVAL, EIO, EACCES, EPERM, EFAULT);
	judge(T_SYSFS,
	      put_text(path, &t, &(struct place){ (unsigned char *)t.s, NULL, t.len, false }),
	      &must, &(struct errs){}, path);
}

/* --- debugfs -------------------------------------------------------------- */

static void space(struct text *t)
{
	static const char * const spaces[] = { " ", " ", " ", "\t", "  ", "\n", " \t " };

	add(t, "%s", PICK(spaces));
}

/* A limit of offline_batch: small more often than not. */
static void limit(struct text *t, uint64_t max)
{
	space(t);
	if (one_in(4))
		add(t, "inf");
	else
		add(t, "%lu", one_in(2) ? 1 + below(4) : 1 + (rnd() >> below(64)) % max);
}

static void make_command(struct text *t, uint32_t nr_ids)
{
	static const char * const alone[] = { "offline_free", "online_all", "reinit", "release" };

	switch (below(4)) {
	case 0:
		add(t, "offline_batch");
		if (one_in(2)) {
			space(t);
			add(t, "--per-slice");
		}
		limit(t, UINT64_MAX);
		limit(t, UINT32_MAX);
		break;
	case 1:
	case 2:
		add(t, one_in(2) ? "offline_index" : "online_index");
		space(t);
		add(t, "%lu", one_in(8) ? odd_number() % UINT32_MAX : below(nr_ids + 1));
		break;
	default:
		add(t, "%s", PICK(alone));
	}
}

/* One thing wrong with it, and which errno says so. */
static void spoil_command(struct text *t, struct errs *must)
{
	static const char flaws[] = ".,;:=/*%'\"()!?ABCDEXYZ\r\x7f\x80\xff";
	static const char * const partial[] = {
		"offline_batch", "offline_batch inf", "offline_batch --per-slice 7",
		"offline_index", "online_index ", " ",
		"\n",
	};
	static const char * const too_large[] = {
		"offline_batch 18446744073709551616 1", "offline_batch 1 4294967296",
		"offline_batch 1 0",
		"offline_index 4294967295", "online_index 99999999999999999999999",
	};

	switch (below(7)) {
	case 0:
		add(t, " 0");
		*must = ERRS(E2BIG, EINVAL, ENODATA);
		break;
	case 1:
		insert(t, '\0');
		*must = ERRS(EINVAL);
		break;
	case 2:
		t->len = 0;
		add(t, "%s", PICK(partial));
		*must = ERRS(ENODATA);
		break;
	case 3:
		t->len = 0;
		add(t, "%s", PICK(too_large));
		*must = ERRS(ERANGE);
		break;
	case 4:
		while (t->len <= 256)
			add(t, "%*s", (int)(1 + below(100)), "");
		*must = ERRS(EMSGSIZE);
		break;
	case 5:
		t->len = 0;
		while (t->len < 1 + below(64))
			t->s[t->len++] = 0x80 | rnd();
		*must = ERRS(EOPNOTSUPP, ENODATA);
		break;
	default:
		insert(t, flaws[below(sizeof(flaws) - 1)]);
		*must = ERRS(EOPNOTSUPP, EINVAL, E2BIG, ENODATA, ERANGE);
	}
}

static void fuzz_command(bool bad, uint32_t nr_ids)
{
	struct errs must = {}, may = {};
	struct text t = {};
	struct place place;
	char path[128];
	int err;

	make_command(&t, nr_ids);
	if (bad)
		spoil_command(&t, &must);
	else
		may = ERRS(ENOENT, EBUSY, ENOSPC, ENOMEM, EAGAIN, ETIMEDOUT, EINTR, EIO);
	place = make_place(t.len, bad ? !one_in(6) : true);
	place_errors(&place, t.len, &must);
	snprintf(path, sizeof(path), "%s/cmd", zone_dirs[below(nr_zone_dirs)]);
	if (!bad)
		interrupt_every(20000 + below(80000));
	err = put_text(path, &t, &place);
	interrupt_every(0);
	judge(bad ? T_CMD_BAD : T_CMD, err, &must, &may, t.s);
}

static void fuzz_debugfs(void)
{
	static const char * const names[] = {
		"nr_slices", "nr_empty", "nr_offline", "all", "all", "reserve", "summary", "stats",
		"result",
	};
	static const char * const core_names[] = { "stats", "placement" };
	struct errs must = {}, may = ERRS(EFAULT, EINVAL, EINTR, EOVERFLOW);
	const char *name = is_research ? PICK(names) : PICK(core_names);
	char path[128];

	snprintf(path, sizeof(path), "%s/%s", zone_dirs[below(nr_zone_dirs)], name);
	judge(T_DEBUGFS, read_about(path, true), &must, &may, name);
}

static void fuzz_debugfs_write(void)
{
	static const char * const bools[] = {
		"Y", "N", "1", "0", "on", "of", "off\n", "maybe", "", "2", "yyyyyyyyyyyy",
	};
	/* dummy_mode is the debugfs core's to check */
	struct errs must = {}, may = ERRS(EINVAL, EFAULT);
	struct text t = {};
	struct place place;
	char path[128];

	if (one_in(2) || (!is_research && one_in(2))) {
		snprintf(path, sizeof(path), "%s/stats", zone_dirs[below(nr_zone_dirs)]);
		add(&t, "%lx", rnd());
	} else if (!is_research || one_in(3)) {
		/* Read-only by its mode; root opens it, and nothing takes the bytes */
		snprintf(path, sizeof(path), "%s/%s", zone_dirs[below(nr_zone_dirs)],
			 is_research ? "all" : "placement");
		add(&t, "%lu", odd_number());
		must = ERRS(EINVAL, EPERM, EACCES, EIO, EFAULT);
	} else {
		snprintf(path, sizeof(path), DEBUGFS "dummy_mode");
		add(&t, "%s", PICK(bools));
	}
	place = make_place(t.len + 1, !one_in(6));
	judge(T_DEBUGFS_WRITE, put_text(path, &t, &place), &must, &may, path);
}

static void fuzz_verify(void)
{
	struct errs must = {}, may = ERRS(EBUSY, EINTR);
	int fd = open(DEBUGFS "verify", O_RDONLY | O_CLOEXEC), err;
	char text[PAGE] = "";
	ssize_t got;

	if (fd < 0) {
		judge(T_VERIFY, errno, &must, &may, "open");
		return;
	}
	got = read(fd, text, sizeof(text) - 1);
	err = got < 0 ? errno : 0;
	close(fd);
	if (judge(T_VERIFY, err, &must, &may, "verify") && strncmp(text, "true:", 5))
		bug("the books are not true:\n%s", text);
}

/* --- the simulated controller --------------------------------------------- */

static void fuzz_parameter(void)
{
	static const unsigned int delays[] = { 0, 1, 10, 100, 500 };
	static const uint64_t too_long[] = { 200001, 1000000, 1UL << 31, UINT32_MAX - 49,
					     UINT32_MAX };
	/* It comes and goes */
	struct errs must = {}, may = ERRS(ENOENT, ENODEV);
	struct text t = {};
	struct place place;
	const char *name;

	switch (below(6)) {
	case 0:
		name = PARAMETERS "violations";
		if (one_in(2)) {
			add_err(&may, EFAULT);
			add_err(&may, EINVAL);
			judge(T_PARAMETER, read_about(name, true), &must, &may, name);
			return;
		}
		add(&t, "%lu", odd_number());
		must = ERRS(EINVAL, EIO, EACCES, EPERM, EFAULT);
		break;
	case 1:
		name = PARAMETERS "fail_off";
		add(&t, "%lu", below(3));
		break;
	case 2:
		/* One that fails to wake would be lost for good: other tests have that */
		name = PARAMETERS "fail_wake";
		add(&t, "0");
		break;
	default:
		name = one_in(2) ? PARAMETERS "off_delay_us" : PARAMETERS "wake_delay_us";
		if (one_in(4)) {
			add(&t, "%lu", PICK(too_long));
			add_err(&must, EINVAL);
		} else {
			add(&t, "%u", PICK(delays));
		}
	}
	if (one_in(6) && !any_err(&must)) {
		t.len = 0;
		add(&t, "%lu", (1UL << 32) + below(1 << 30));
		must = ERRS(ERANGE);
	} else if (one_in(6)) {
		static const char flaws[] = "-.,xz ";

		insert(&t, flaws[below(sizeof(flaws) - 1)]);
		add_err(&must, EINVAL);
	}
	place = make_place(t.len + 1, !one_in(8));
	place_errors(&place, t.len, &must);
	judge(T_PARAMETER, put_text(name, &t, &place), &must, &may, name);
}

static void fuzz_module(void)
{
	static const struct {
		const char *text;
		bool bad;
	} parameters[] = {
		{ "", false }, { "", false }, { "sleeping=1", false },
		{ "sleeping=0 wake_delay_us=100", false },
		{ "off_delay_us=200 fail_off=1", false }, { "sleeping=maybe", true },
		{ "wake_delay_us=200001", true },
		{ "off_delay_us=4294967295", true }, { "off_delay_us", true },
		{ "fail_off=-1", true },
		{ "fail_off=4294967296", true }, { "wake_delay_us=1e3", true },
	};
	struct errs must = {}, may = ERRS(EEXIST, EBUSY, EINTR, EAGAIN, ENOENT);
	const char *text = "";
	int fd, err, i;

	if (one_in(2)) {
		err = syscall(SYS_delete_module, "ramslice_sim", O_NONBLOCK) ? errno : 0;
		judge(T_MODULE, err, &must, &may, "remove");
		return;
	}
	i = below(sizeof(parameters) / sizeof(*parameters));
	text = parameters[i].text;
	if (parameters[i].bad)
		must = ERRS(EINVAL, ERANGE);
	fd = open(module_path, O_RDONLY | O_CLOEXEC);
	if (fd < 0) {
		perror(module_path);
		exit(2);
	}
	/* A load of a file that another process is loading gets that one's answer */
	while (__atomic_test_and_set(&shared->loading, __ATOMIC_ACQUIRE))
		usleep(1000);
	err = syscall(SYS_finit_module, fd, text, 0) ? errno : 0;
	__atomic_clear(&shared->loading, __ATOMIC_RELEASE);
	close(fd);
	judge(T_MODULE, err, &must, &may, text);
}

#endif
