/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Uses of memory, by which mm calls ramslice: allocations of every size that
 * wake slices, readahead that recycles page cache, pages of the hugetlb pool,
 * and memory that goes offline by hotplug. All but the pool is given back at
 * once.
 */
#ifndef FUZZ_MEMORY_H
#define FUZZ_MEMORY_H

#include <fcntl.h>
#include <unistd.h>
#include "fuzz_device.h"
#include "fuzz_files.h"

#define POOL		"/proc/sys/vm/nr_hugepages"
#define BLOCKS		"/sys/devices/system/memory/"
/* All processes at once leave most of the guest's memory to its loads. */
#define MOST_MIB	8
#define LARGE_MIB	64
/* A guest of 1 GiB has eight */
#define MAX_BLOCKS	10

/* A file on a disk, of twice MOST_MIB; NULL: there is none. */
static const char *file_path;

/* Takes what is free offline: with little awake, uses of memory are demand. */
static void leave_little_awake(void)
{
	struct ramslice_request req = {
		.size = sizeof(req), .op = RAMSLICE_OP_OFFLINE_FREE, .node = RAMSLICE_ANY,
		.zone = RAMSLICE_ANY, .budget = RAMSLICE_UNLIMITED,
		.max_slices = RAMSLICE_ALL_SLICES,
	};

	/* Another request may run, or the driver be gone */
	if (!try_ioctl(fd_rw, RAMSLICE_IOC_REQUEST, &req))
		__atomic_add_fetch(&shared->offlined, req.nr_done, __ATOMIC_RELAXED);
}

static int write_word(const char *path, const char *word)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC), err;

	if (fd < 0)
		return errno;
	err = write(fd, word, strlen(word)) < 0 ? errno : 0;
	close(fd);
	return err;
}

/* Memory of this process alone, or of a file in memory, in pages small or large. */
static int use_memory(bool shared_file, bool huge)
{
	/* The thread that wakes memory ahead of need can follow small uses alone */
	size_t len = (1 + below(one_in(4) ? LARGE_MIB : MOST_MIB)) * MIB;
	int fd = shared_file ? memfd_create("fuzz", MFD_CLOEXEC) : -1, err = 0;
	void *p;

	if (shared_file && (fd < 0 || ftruncate(fd, len)))
		return errno;
	p = mmap(NULL, len, PROT_READ | PROT_WRITE,
		 shared_file ? MAP_SHARED : MAP_PRIVATE | MAP_ANONYMOUS, fd, 0);
	if (p == MAP_FAILED)
		return errno;
	if (huge && madvise(p, len, MADV_HUGEPAGE))
		err = errno;
	else if (madvise(p, len, MADV_POPULATE_WRITE))
		err = errno;
	if (!err && one_in(4) && mlock(p, len))
		err = errno;
	munmap(p, len);
	if (fd >= 0)
		close(fd);
	return err;
}

/* Reads a file that is no longer in memory, or not all of it. */
static int read_file(void)
{
	static char chunk[256 << 10];
	int fd = open(file_path, O_RDONLY | O_CLOEXEC), left = 1 + below(8), err = 0;
	off_t at = below(MOST_MIB) * MIB;

	if (fd < 0)
		return errno;
	if (!one_in(4))
		err = posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
	if (one_in(3))
		err = posix_fadvise(fd, 0, 0, POSIX_FADV_SEQUENTIAL);
	for (; left && !err; left--, at += sizeof(chunk))
		err = pread(fd, chunk, sizeof(chunk), at) < 0 ? errno : 0;
	close(fd);
	return err;
}

/* Changes the pool of huge pages, which is there until the next such input. */
static int resize_pool(void)
{
	char word[24];

	snprintf(word, sizeof(word), "%lu", below(7));
	return write_word(POOL, word);
}

/* Takes a block of memory offline, if that can be done soon, and has it back. */
static int cycle_block(void)
{
	int err, tries = 2000;
	char path[64];

	snprintf(path, sizeof(path), BLOCKS "memory%lu/state", below(MAX_BLOCKS));
	/* One at a time, and none is offline for others to want */
	while (__atomic_test_and_set(&shared->block, __ATOMIC_ACQUIRE))
		usleep(1000);
	interrupt_every(100000);
	err = write_word(path, "offline");
	interrupt_every(0);
	while (!err && write_word(path, "online") && tries--)
		usleep(1000);
	__atomic_clear(&shared->block, __ATOMIC_RELEASE);
	if (tries < 0)
		bug("%s does not come online again", path);
	return err;
}

static void fuzz_memory(void)
{
	static const char * const figures[] = {
		"/proc/meminfo", "/proc/zoneinfo", "/sys/devices/system/node/node0/meminfo",
	};
	/* No such block; one that holds what cannot move; a bad address */
	struct errs must = {}, may = ERRS(ENOMEM, EINTR, EAGAIN, EBUSY, ENOENT, EINVAL, EFAULT);
	const char *what;
	int err;

	if (!one_in(3))
		leave_little_awake();
	switch (below(9)) {
	case 0:
		what = "figures";
		err = read_about(PICK(figures), false);
		break;
	case 1:
	case 2:
		what = "anonymous";
		err = use_memory(false, one_in(2));
		break;
	case 3:
		what = "shared";
		err = use_memory(true, one_in(2));
		break;
	case 4:
	case 5:
	case 6:
		what = "file";
		err = file_path ? read_file() : 0;
		break;
	case 7:
		what = "huge pages";
		err = resize_pool();
		break;
	default:
		what = "block";
		err = one_in(2) ? cycle_block() : 0;
	}
	judge(T_MEMORY, err, &must, &may, what);
}

#endif
