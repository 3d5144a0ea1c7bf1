// SPDX-License-Identifier: GPL-2.0
/*
 * Parses what the kernel command line says. Pure.
 */

#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/string.h>
#include "boot_args.h"

/**
 * ramslice_parse_bytes - parse a number of bytes
 * @arg: a number, with a suffix K to E or without
 * @bytes: set to it
 *
 * As memparse(), but what does not fit is an error.
 *
 * Return: 0; -EINVAL if it is none; -ERANGE if it does not fit.
 */
int ramslice_parse_bytes(const char *arg, u64 *bytes)
{
	static const char suffixes[] = "KMGTPE";
	const char *suffix = NULL;
	unsigned int shift = 0;
	char digits[32];
	ssize_t len = strscpy(digits, arg);
	int err;

	if (len <= 0)
		return -EINVAL;
	/* In a hexadecimal number an E is a digit */
	if (strncasecmp(digits, "0x", 2) || toupper(digits[len - 1]) != 'E')
		suffix = strchr(suffixes, toupper(digits[len - 1]));
	if (suffix) {
		shift = 10 * (suffix - suffixes + 1);
		digits[--len] = '\0';
	}
	/* kstrto* accepts a plus sign and a newline */
	if (!isdigit(digits[0]) || !isxdigit(digits[len - 1]))
		return -EINVAL;
	err = kstrtou64(digits, 0, bytes);
	if (err)
		return err;
	if (*bytes > U64_MAX >> shift)
		return -ERANGE;
	*bytes <<= shift;
	return 0;
}

static int ramslice_parse_size(const char *arg, u64 *bytes)
{
	return ramslice_parse_bytes(arg, bytes) ?: (*bytes ? 0 : -EINVAL);
}

/* ways=NUMBER and granularity=SIZE, once each, in any order. */
static int ramslice_parse_interleave(char *options,
				     struct ramslice_interleave *il)
{
	char *option;
	int err = 0;

	while (!err && (option = strsep(&options, ","))) {
		char *value = strchrnul(option, '=');

		if (*value)
			*value++ = '\0';
		if (!strcmp(option, "ways") && !il->ways)
			err = isdigit(*value) ? kstrtouint(value, 10, &il->ways) :
						-EINVAL;
		else if (!strcmp(option, "granularity") &&
			 !il->granularity_bytes)
			err = ramslice_parse_size(value,
						  &il->granularity_bytes);
		else
			err = -EINVAL;
	}
	return err ?: (il->ways && il->granularity_bytes ? 0 : -EINVAL);
}

/* A size or "on", and what follows it. */
static int ramslice_parse_slices(const char *arg, struct ramslice_boot *boot)
{
	char words[80], *options = words;
	ssize_t len = strscpy(words, arg);
	const char *size;
	int err = 0;

	boot->interleave = (struct ramslice_interleave) {};
	if (len < 0)
		return len == -E2BIG ? -EINVAL : len;
	size = strsep(&options, ",");
	if (strcmp(size, "on"))
		err = ramslice_parse_size(size, &boot->slice_bytes);
	if (!err && options)
		err = ramslice_parse_interleave(options, &boot->interleave);
	return err;
}

/**
 * ramslice_parse_boot - parse the value of ramslice= on the command line
 * @arg: off; or on, or the size of a slice with an optional suffix K to E, and
 *	 then nothing or ",ways=NUMBER,granularity=SIZE"; or firmware; or "table:" and a list of
 *	 segments, which is left for ramslice_parse_segments() and has to stay
 * @boot: what is known so far; a value that makes no sense means contiguous
 *	  slices of the default size and does not switch anything on or off
 *
 * Return: 0; -EINVAL if it is none of these; -ERANGE if a number does not fit.
 */
int ramslice_parse_boot(const char *arg, struct ramslice_boot *boot)
{
	int err;

	boot->table = NULL;
	boot->firmware = false;
	if (!strcmp(arg, "off")) {
		boot->off = true;
		return 0;
	}
	if (!strcmp(arg, "firmware")) {
		boot->firmware = true;
		boot->off = false;
		return 0;
	}
	if (strstarts(arg, "table:")) {
		boot->table = arg + strlen("table:");
		boot->off = false;
		return 0;
	}
	err = ramslice_parse_slices(arg, boot);
	if (err) {
		boot->slice_bytes = 0;
		boot->interleave = (struct ramslice_interleave) {};
		return err;
	}
	boot->off = false;
	return 0;
}

/**
 * ramslice_parse_cold - parse the value of ramslice_cold= on the command line
 * @arg: a size, as in ramslice=, or 0; then nothing or ",strict"
 * @cold: set to what it says, if that makes sense
 *
 * Return: 0; -EINVAL if it is neither; -ERANGE if the size does not fit.
 */
int ramslice_parse_cold(const char *arg, struct ramslice_cold_boot *cold)
{
	const char *comma = strchrnul(arg, ',');
	char size[32];
	u64 bytes = 0;
	int err;

	if (comma - arg >= sizeof(size))
		return -EINVAL;
	memcpy(size, arg, comma - arg);
	size[comma - arg] = '\0';
	if (*comma && strcmp(comma, ",strict"))
		return -EINVAL;
	err = strcmp(size, "0") ? ramslice_parse_size(size, &bytes) : 0;
	if (err)
		return err;
	cold->bytes = bytes;
	cold->strict = *comma;
	return 0;
}
