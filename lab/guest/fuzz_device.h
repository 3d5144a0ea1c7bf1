/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Inputs to /dev/ramslice but requests. The rules are those of linux/ramslice.h and of the
 * page userspace-api/ramslice.
 */
#ifndef FUZZ_DEVICE_H
#define FUZZ_DEVICE_H

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/uio.h>
#include <unistd.h>
#include <linux/ramslice.h>
#include "fuzz.h"

/* First version of each structure: what a caller must pass at least. */
#define INFO_MIN	112
#define ZONE_MIN	96
#define SNAPSHOT_MIN	40
#define SLICE_MIN	72
#define PAGES_MIN	48
#define RUN_MIN		56
#define SEGMENTS_MIN	16
/* What the lab's kernels have. */
#define NR_NODES	16
#define MAX_ROWS	2048

#define DEVICE		"/dev/ramslice"

static int fd_rw, fd_ro, fd_wo, fd_null;
/* What the last look said; hints for making inputs, not truths. */
static uint32_t hint_rows = 64, hint_ids = 64, hint_zones = 1;
static uint64_t last_seq;
/* Until reboot: rows of the table of slices; 0: there is none. */
static uint32_t nr_segments;

static int open_device(int flags)
{
	int fd = open(DEVICE, flags | O_CLOEXEC);

	if (fd < 0) {
		perror(DEVICE);
		exit(2);
	}
	return fd;
}

static int try_ioctl(int fd, unsigned long nr, void *arg)
{
	return ioctl(fd, nr, arg) < 0 ? errno : 0;
}

static void device_init(void)
{
	struct ramslice_info info = { .size = sizeof(info) };

	fd_rw = open_device(O_RDWR | O_NONBLOCK);
	fd_ro = open_device(O_RDONLY);
	fd_wo = open_device(O_WRONLY);
	fd_null = open("/dev/null", O_RDWR | O_CLOEXEC);
	if (try_ioctl(fd_rw, RAMSLICE_IOC_INFO, &info)) {
		perror(DEVICE);
		exit(2);
	}
	nr_segments = info.nr_segments;
}

/* Another request may run, or the driver be gone: then it is as it was. */
static void wake_everything(void)
{
	struct ramslice_request req = {
		.size = sizeof(req), .op = RAMSLICE_OP_ONLINE_ALL, .node = RAMSLICE_ANY,
		.zone = RAMSLICE_ANY, .budget = RAMSLICE_UNLIMITED,
		.max_slices = RAMSLICE_ALL_SLICES,
	};

	try_ioctl(fd_rw, RAMSLICE_IOC_REQUEST, &req);
}

/* A descriptor that the call accepts or, rarely, one that it does not. */
static int some_fd(bool writes, struct errs *must)
{
	switch (below(40)) {
	case 0:
		add_err(must, EBADF);
		return writes ? fd_ro : fd_wo;
	case 1:
		add_err(must, EBADF);
		return one_in(2) ? -1 : 1000000;
	case 2:
		add_err(must, ENOTTY);
		return fd_null;
	default:
		return fd_rw;
	}
}

/* A size for a structure, and how many bytes of it there are at @place. */
static uint32_t some_size(uint32_t ksize)
{
	const uint32_t sizes[] = {
		0, 1, 4, ksize - 8, ksize - 1, ksize + 1, ksize + 8, ksize + 64, PAGE - 1, PAGE,
		PAGE + 1,
		1U << 31, UINT32_MAX,
	};

	return one_in(4) ? odd_number() : PICK(sizes);
}

/**
 * struct form - a structure for the kernel
 * @place: where it is
 * @usize: what its size field says
 * @must: what is wrong with where it is and how long
 */
struct form {
	struct place place;
	uint32_t usize;
	struct errs must;
};

/* Puts a structure of @ksize bytes somewhere; its size is its first word. */
static struct form hand_in(void *data, uint32_t ksize, uint32_t min)
{
	bool good_size = !one_in(5), good_place = !one_in(6), tail = false;
	struct form form = { .usize = good_size ? ksize : some_size(ksize) };
	uint32_t room = form.usize <= PAGE && form.usize > 4 ? form.usize : ksize;
	struct place *at = &form.place;

	memcpy(data, &form.usize, 4);
	*at = make_place(room, good_place);
	if (at->mine) {
		size_t known = at->avail < ksize ? at->avail : ksize;

		memset(at->mine, CANARY, at->avail);
		memcpy(at->mine, data, known);
		/* Bytes that the kernel does not know must be zero */
		if (at->avail > ksize) {
			memset(at->mine + ksize, 0, at->avail - ksize);
			if (one_in(3)) {
				at->mine[ksize + below(at->avail - ksize)] = 1 + below(255);
				tail = true;
			}
		}
	}
	if (at->avail < 4)
		add_err(&form.must, EFAULT);
	else if (form.usize < min || form.usize > PAGE)
		add_err(&form.must, EINVAL);
	else if (at->avail < form.usize)
		add_err(&form.must, EFAULT);
	if (tail)
		add_err(&form.must, E2BIG);
	if (at->readonly)
		add_err(&form.must, EFAULT);
	return form;
}

/* Gets back what the kernel wrote. */
static void take_back(const struct form *form, void *data, uint32_t ksize)
{
	memcpy(data, form->place.mine, form->usize < ksize ? form->usize : ksize);
}

static void note_seq(uint64_t seq, const char *what)
{
	if (seq < last_seq)
		bug("%s: event_seq went back from %" PRIu64 " to %" PRIu64, what, last_seq, seq);
	last_seq = seq;
}

/* --- INFO, ZONE, SNAPSHOT ------------------------------------------------- */

static void fuzz_info(void)
{
	struct ramslice_info info;
	struct errs may = {};
	struct form form;
	int fd, err;

	memset(&info, CANARY, sizeof(info));
	form = hand_in(&info, sizeof(info), INFO_MIN);
	fd = some_fd(false, &form.must);
	err = try_ioctl(fd, RAMSLICE_IOC_INFO, form.place.p);
	if (!judge(T_INFO, err, &form.must, &may, "info"))
		return;
	take_back(&form, &info, sizeof(info));
	note_seq(info.event_seq, "info");
	if (info.size != form.usize || info.abi_version != RAMSLICE_ABI_VERSION ||
	    info.page_bytes != PAGE || !info.pageblock_bytes || !info.slice_bytes ||
	    info.slice_bytes % info.pageblock_bytes || info.chunk_bytes % info.pageblock_bytes ||
	    !info.nr_zones || !info.nr_slices ||
	    info.free_pages + info.offline_pages > info.managed_pages + 100000 ||
	    (strcmp(info.power_driver, "none") && strcmp(info.power_driver, "sim")))
		bug("info: size %u, abi %u, slices of %llu, %u slices, %u zones, driver %.32s",
		    info.size, info.abi_version, (unsigned long long)info.slice_bytes,
		    info.nr_slices, info.nr_zones, info.power_driver);
	hint_rows = info.nr_slices;
	hint_zones = info.nr_zones;
}

static void fuzz_zone(void)
{
	struct ramslice_zone_info zi;
	struct errs may = {};
	struct form form;
	uint32_t index = one_in(3) ? odd_number() : below(hint_zones);
	int fd, err;

	memset(&zi, CANARY, sizeof(zi));
	zi.index = index;
	form = hand_in(&zi, sizeof(zi), ZONE_MIN);
	if (index >= NR_NODES * 8U)
		add_err(&form.must, ENOENT);
	else if (index >= hint_zones)
		add_err(&may, ENOENT);
	fd = some_fd(false, &form.must);
	err = try_ioctl(fd, RAMSLICE_IOC_ZONE, form.place.p);
	if (!judge(T_ZONE, err, &form.must, &may, "zone"))
		return;
	take_back(&form, &zi, sizeof(zi));
	if (zi.size != form.usize || zi.index != index || zi.node < 0 || zi.node >= NR_NODES ||
	    zi.zone > 8 || !memchr(zi.name, 0, sizeof(zi.name)) ||
	    zi.nr_empty + zi.nr_offline > MAX_ROWS || zi.nr_offline > zi.nr_slices ||
	    zi.offline_pages > zi.managed_pages || zi.nr_quarantined)
		bug("zone %u: index %u node %d zone %u, %u slices, %u offline, %u quarantined",
		    index, zi.index, zi.node, zi.zone, zi.nr_slices, zi.nr_offline,
		    zi.nr_quarantined);
}

static struct {
	uint64_t seq;
	uint32_t nr;
	uint32_t id[MAX_ROWS];
	uint8_t state[MAX_ROWS];
} before;

static void check_row(const struct ramslice_slice_info *row, int64_t last_id)
{
	if (row->id <= last_id || row->state >= RAMSLICE_NR_STATES ||
	    row->reason >= RAMSLICE_NR_REASONS || row->flags > 31 || row->node < 0 ||
	    row->node >= NR_NODES || row->zone > 8 || !row->nr_pages ||
	    row->state == RAMSLICE_QUARANTINED ||
	    (row->flags & RAMSLICE_SLICE_HELD && row->state != RAMSLICE_OFFLINE) ||
	    (row->retry_ms && !(row->flags & RAMSLICE_SLICE_BACKOFF)))
		bug("snapshot: row of slice %u after %" PRId64
		    ": state %u reason %u flags %x node %d zone %u pages %u",
		    row->id, last_id, row->state, row->reason, row->flags, row->node, row->zone,
		    row->nr_pages);
}

/* "No state changed between the rows": then the same number means the same rows. */
static void check_rows(const struct ramslice_snapshot *snap, const unsigned char *rows,
		       uint32_t stride)
{
	bool same = snap->event_seq == before.seq && before.nr;
	int64_t last_id = -1;
	uint32_t i;

	if (same && snap->nr != before.nr)
		bug("snapshot: %u rows, then %u, with no change of state in between", before.nr,
		    snap->nr);
	for (i = 0; i < snap->nr && i < MAX_ROWS; i++) {
		struct ramslice_slice_info row;

		memcpy(&row, rows + (size_t)i * stride, sizeof(row));
		check_row(&row, last_id);
		if (same && (row.id != before.id[i] || row.state != before.state[i]))
			bug("snapshot: slice %u state %u was slice %u state %u "
			    "with no change of state in between",
			    row.id, row.state, before.id[i], before.state[i]);
		before.id[i] = row.id;
		before.state[i] = row.state;
		last_id = row.id;
		if (stride > sizeof(row) && i % 16 == 0)
			expect_canary(rows + (size_t)i * stride + sizeof(row), stride - sizeof(row),
				      "snapshot row");
	}
	before.seq = snap->event_seq;
	before.nr = i;
	hint_ids = last_id + 1;
}

static void fuzz_pages(void)
{
	uint32_t stride = one_in(8) ? odd_number() : sizeof(struct ramslice_page_run);
	uint32_t nr = one_in(6) ? odd_number() : 1 + below(200),
		 first = one_in(3) ? odd_number() : 0, room;
	bool sane = stride >= RUN_MIN && stride <= PAGE;
	struct errs may = ERRS(EINTR, ENOMEM);
	struct ramslice_pages pages;
	struct place runs;
	struct form form;
	size_t want;
	int fd, err;

	want = (size_t)(nr < 1000 ? nr : 1000) * (sane ? stride : RUN_MIN);
	want = want < 8 ? 8 : want > ARENA / 4 ? ARENA / 4 : want;
	runs = make_place(want, !one_in(6));
	if (runs.mine)
		memset(runs.mine, CANARY, runs.avail);
	pages = (struct ramslice_pages){
		.id = one_in(8) ? odd_number() : below(hint_ids + 1), .entry_size = stride,
		.nr = nr,
		.first = first, .flags = one_in(12) ? odd_number() : 0,
		.reserved = one_in(12) ? odd_number() : 0, .runs = (uintptr_t)runs.p,
	};
	form = hand_in(&pages, sizeof(pages), PAGES_MIN);
	/* What is written where the structure is would be both right and wrong */
	if (runs.mine && form.place.mine && form.place.mine < runs.mine + runs.avail &&
	    runs.mine < form.place.mine + form.place.avail) {
		count(T_PAGES, try_ioctl(fd_rw, RAMSLICE_IOC_PAGES, form.place.p));
		return;
	}
	if (!sane || pages.flags || pages.reserved || !nr)
		add_err(&form.must, EINVAL);
	if (pages.id >= MAX_ROWS)
		add_err(&form.must, ENOENT);
	/* Memory decides how many runs there are, and whether it begins within the slice */
	add_err(&may, ENOENT);
	add_err(&may, EINVAL);
	room = runs.mine && !runs.readonly && sane ? runs.avail / stride : 0;
	if (nr > room)
		add_err(&may, EFAULT);
	fd = some_fd(false, &form.must);
	err = try_ioctl(fd, RAMSLICE_IOC_PAGES, form.place.p);
	if (!judge(T_PAGES, err, &form.must, &may, "pages"))
		return;
	take_back(&form, &pages, sizeof(pages));
	if (form.place.readonly || form.usize < sizeof(pages))
		return;
	if (pages.nr > nr || (pages.first > pages.nr_pages && pages.first != first) ||
	    pages.entry_size > stride)
		bug("pages: %u runs of %u, on at %u of %u", pages.nr, nr, pages.first,
		    pages.nr_pages);
}

static void fuzz_segments(void)
{
	uint32_t nr = one_in(3) ? odd_number() : nr_segments + below(3) - one_in(3);
	size_t want = (size_t)(nr < MAX_ROWS ? nr : MAX_ROWS) * sizeof(struct ramslice_segment);
	struct place rows = make_place(want < 8 ? 8 : want, !one_in(6));
	struct ramslice_segment_list list = { .nr = nr, .segments = (uintptr_t)rows.p };
	struct form form = hand_in(&list, sizeof(list), SEGMENTS_MIN);
	struct errs may = {};
	int fd, err;

	if (nr < nr_segments)
		add_err(&form.must, ENOSPC);
	else if (nr_segments && (!rows.mine || rows.readonly || rows.avail < want))
		add_err(&form.must, EFAULT);
	fd = some_fd(false, &form.must);
	err = try_ioctl(fd, RAMSLICE_IOC_SEGMENTS, form.place.p);
	if (!judge(T_SEGMENTS, err, &form.must, &may, "segments") ||
	    form.usize < sizeof(list))
		return;
	take_back(&form, &list, sizeof(list));
	if (list.size != form.usize || list.nr != nr_segments)
		bug("segments: size %u of %u, %u of %u", list.size, form.usize, list.nr,
		    nr_segments);
}

static void fuzz_snapshot(void)
{
	static const uint32_t strides[] = {
		SLICE_MIN, SLICE_MIN + 1, SLICE_MIN + 8, 80, 128, 4095, 4096,
	};
	uint32_t stride = one_in(8) ? odd_number() :
			  one_in(4) ? PICK(strides) : sizeof(struct ramslice_slice_info);
	uint32_t nr = one_in(5) ? odd_number() : hint_rows + below(3) - one_in(20);
	bool good = !one_in(6), sane = stride >= SLICE_MIN && stride <= PAGE;
	size_t want = (size_t)(nr < MAX_ROWS ? nr : MAX_ROWS) * (sane ? stride : SLICE_MIN);
	struct errs may = ERRS(ENOSPC);
	struct ramslice_snapshot snap;
	struct place rows;
	struct form form;
	int fd, err;

	if (want > ARENA / 2)
		want = ARENA / 2;
	if (want < 8)
		want = 8;
	rows = make_place(want, good);
	/* The rows and the structure side by side would be both right and wrong */
	if (rows.mine)
		memset(rows.mine, CANARY, rows.avail);
	snap = (struct ramslice_snapshot){
		.entry_size = stride, .nr = nr, .flags = one_in(12) ? odd_number() : below(2),
		.slices = (uintptr_t)rows.p, .limit_ms = one_in(4) ? below(20) : 0,
		.max_age_ms = one_in(4) ? odd_number() : 0,
	};
	form = hand_in(&snap, sizeof(snap), SNAPSHOT_MIN);
	if (rows.mine && form.place.mine && form.place.mine < rows.mine + rows.avail &&
	    rows.mine < form.place.mine + form.place.avail) {
		count(T_SNAPSHOT, try_ioctl(fd_rw, RAMSLICE_IOC_SNAPSHOT, form.place.p));
		return;
	}
	if (!sane || snap.flags & ~RAMSLICE_SNAPSHOT_FRESH)
		add_err(&form.must, EINVAL);
	if (!rows.mine || rows.readonly)
		add_err(&form.must, EFAULT);
	/* Whether the rows fit is for the moment to say */
	if (nr > MAX_ROWS || rows.avail < (size_t)nr * stride)
		add_err(&may, EFAULT);
	fd = some_fd(false, &form.must);
	err = try_ioctl(fd, RAMSLICE_IOC_SNAPSHOT, form.place.p);
	if (err == ENOSPC && form.place.mine) {
		uint32_t asked = nr;

		take_back(&form, &snap, sizeof(snap));
		if (!form.place.readonly && snap.nr <= asked)
			bug("snapshot: %u rows do not fit where %u do", snap.nr, asked);
		hint_rows = snap.nr;
		if (rows.mine)
			expect_canary(rows.mine, rows.avail, "snapshot, ENOSPC");
	}
	if (!judge(T_SNAPSHOT, err, &form.must, &may, "snapshot"))
		return;
	take_back(&form, &snap, sizeof(snap));
	note_seq(snap.event_seq, "snapshot");
	if (snap.nr > nr || snap.entry_size != sizeof(struct ramslice_slice_info) || !snap.nr ||
	    ((size_t)snap.nr - 1) * stride + sizeof(struct ramslice_slice_info) > rows.avail) {
		bug("snapshot: %u rows of %u bytes where %u rows of %u are in %zu bytes", snap.nr,
		    snap.entry_size, nr, stride, rows.avail);
		return;
	}
	if (rows.avail > (size_t)snap.nr * stride)
		expect_canary(rows.mine + (size_t)snap.nr * stride,
			      rows.avail - (size_t)snap.nr * stride, "snapshot");
	hint_rows = snap.nr;
	check_rows(&snap, rows.mine, stride);
}

/* --- read, poll and the rest ---------------------------------------------- */

static void fuzz_read(void)
{
	size_t len = one_in(4) ? below(8) : one_in(4) ? below(PAGE) : 8;
	struct place place = make_place(len < 8 ? 8 : len, !one_in(5));
	struct errs must = {}, may = ERRS(EAGAIN, EINTR);
	bool wait = one_in(20);
	int fd = one_in(20) ? fd_wo : wait ? fd_ro : fd_rw;
	uint64_t seq;
	ssize_t got;

	if (fd == fd_wo)
		add_err(&must, EBADF);
	if (len < 8)
		add_err(&must, EINVAL);
	if (place.avail < 8 || place.readonly)
		add_err(&must, EFAULT);
	if (place.mine)
		memset(place.mine, CANARY, place.avail);
	if (wait)
		interrupt_every(1000 + below(4000));
	got = read(fd, place.p, len);
	if (wait)
		interrupt_every(0);
	if (!judge(T_READ, got < 0 ? errno : 0, &must, &may, "read"))
		return;
	if (got != 8) {
		bug("read: %zd bytes instead of 8", got);
		return;
	}
	memcpy(&seq, place.mine, 8);
	note_seq(seq, "read");
	expect_canary(place.mine + 8, place.avail - 8, "read");
}

static void fuzz_poll(void)
{
	struct pollfd poll_fd = { .fd = one_in(20) ? fd_wo : fd_rw,
				  .events = one_in(4) ? (short)rnd() : POLLIN };
	struct errs must = {}, may = ERRS(EINTR, EFAULT);
	int got = poll(&poll_fd, one_in(30) ? 0 : 1, one_in(10) ? (int)below(3) : 0);
	uint64_t seq;

	if (!judge(T_POLL, got < 0 ? errno : 0, &must, &may, "poll") || got < 1)
		return;
	if (poll_fd.revents & ~(POLLIN | POLLRDNORM))
		bug("poll: events %x", poll_fd.revents);
	/* Nothing else reads from this opener: what was promised is there */
	if (poll_fd.fd == fd_rw && read(fd_rw, &seq, 8) != 8)
		bug("poll: ready, but read: %s", strerrorname_np(errno));
}

static void fuzz_file(void)
{
	struct place place = make_place(64, one_in(2));
	struct iovec iov = { place.p, 64 };
	struct errs must = {}, may = {};
	const char *what;
	long got;
	int fd;

	switch (below(10)) {
	case 0:
		what = "lseek";
		must = ERRS(ESPIPE);
		got = lseek(fd_rw, rnd(), below(6));
		add_err(&must, EINVAL);
		break;
	case 1:
		what = "mmap";
		must = ERRS(ENODEV, EACCES, EINVAL, EPERM, EOVERFLOW, ENOMEM);
		got = (long)mmap(NULL, 1 + below(1UL << below(34)), below(8),
				 MAP_SHARED << below(2), one_in(3) ? fd_ro : fd_rw, below(4) << 12);
		break;
	case 2:
		what = "write";
		must = ERRS(EINVAL, EFAULT, EBADF);
		got = write(one_in(3) ? fd_wo : fd_rw, place.p, 1 + below(64));
		break;
	case 3:
		what = "pread";
		must = ERRS(ESPIPE, EINVAL);
		got = pread(fd_rw, place.p, 8, rnd());
		break;
	case 4:
		what = "readv";
		may = ERRS(EAGAIN, EFAULT, EINVAL);
		got = readv(fd_rw, &iov, one_in(8) ? -1 : 1);
		break;
	case 5:
		what = "ftruncate";
		must = ERRS(EINVAL);
		got = ftruncate(fd_rw, rnd() >> below(64));
		break;
	case 6:
		what = "fallocate";
		must = ERRS(ENODEV, EINVAL, ESPIPE, EOPNOTSUPP, EFBIG);
		got = fallocate(fd_rw, below(4), 0, 1 + below(1 << 20));
		break;
	case 7:
		what = "fsync";
		must = ERRS(EINVAL);
		got = fsync(fd_rw);
		break;
	case 8:
		what = "fcntl";
		got = fcntl(fd_rw, F_SETFL, O_RDWR | O_NONBLOCK | (one_in(2) ? O_APPEND : 0));
		break;
	default:
		what = "open";
		may = ERRS(ENOTDIR, EINVAL, EEXIST, EISDIR);
		fd = open(DEVICE, (int)(rnd() & 0x3fffff & ~(O_CREAT | O_TRUNC)), 0600);
		got = fd;
		if (fd >= 0)
			close(fd);
	}
	judge(T_FILE, got < 0 ? errno : 0, &must, &may, what);
}

#endif
