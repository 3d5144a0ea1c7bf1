// SPDX-License-Identifier: GPL-2.0
/*
 * Parses the debugfs commands of the paper's section 3.2.6, and what the
 * kernel command line says. Pure.
 */

#include <linux/ctype.h>
#include <linux/kernel.h>
#include <linux/string.h>
#include "internal.h"
#include "parse.h"

static const char * const names[] = {
	[RAMSLICE_CMD_OFFLINE_BATCH] = "offline_batch",
	[RAMSLICE_CMD_OFFLINE_INDEX] = "offline_index",
	[RAMSLICE_CMD_ONLINE_INDEX]  = "online_index",
	[RAMSLICE_CMD_OFFLINE_FREE]  = "offline_free",
	[RAMSLICE_CMD_ONLINE_ALL]    = "online_all",
	[RAMSLICE_CMD_REINIT]	     = "reinit",
	[RAMSLICE_CMD_RELEASE]	     = "release",
};

static char *next_word(char **line)
{
	char *word;

	do {
		word = strsep(line, " \t\n");
	} while (word && !*word);
	return word;
}

/* A decimal number, or "inf" for the largest. */
static int parse_limit(const char *word, u64 inf, u64 *value)
{
	if (!word)
		return -ENODATA;
	if (!strcmp(word, "inf")) {
		*value = inf;
		return 0;
	}
	/* kstrto* accepts a plus sign; a minus is -EINVAL */
	return kstrtou64(word, 10, value);
}

/**
 * ramslice_parse_cmd - parse a command line
 * @line: the line; is modified
 * @cmd: the result
 *
 * Return: 0; -EOPNOTSUPP for an unknown command, -ENODATA for a missing
 * argument, -E2BIG for one too many, -EINVAL for one that is no number,
 * -ERANGE for a number that does not fit or is 0 where something is counted.
 */
int ramslice_parse_cmd(char *line, struct ramslice_cmd *cmd)
{
	char *word = next_word(&line);
	u64 value;
	int err;

	memset(cmd, 0, sizeof(*cmd));
	if (!word)
		return -ENODATA;
	err = match_string(names, ARRAY_SIZE(names), word);
	if (err < 0)
		return -EOPNOTSUPP;
	cmd->op = err;

	switch (cmd->op) {
	case RAMSLICE_CMD_OFFLINE_BATCH:
		word = next_word(&line);
		if (word && !strcmp(word, "--per-slice")) {
			cmd->per_slice = true;
			word = next_word(&line);
		}
		err = parse_limit(word, RAMSLICE_UNLIMITED, &cmd->budget);
		if (err)
			return err;
		err = parse_limit(next_word(&line), RAMSLICE_ALL_SLICES,
				  &value);
		if (err)
			return err;
		if (!value || value > RAMSLICE_ALL_SLICES)
			return -ERANGE;
		cmd->max_slices = value;
		break;
	case RAMSLICE_CMD_OFFLINE_INDEX:
	case RAMSLICE_CMD_ONLINE_INDEX:
		word = next_word(&line);
		if (!word)
			return -ENODATA;
		err = kstrtou64(word, 10, &value);
		if (err)
			return err;
		if (value >= RAMSLICE_NO_ID)
			return -ERANGE;
		cmd->id = value;
		break;
	default:
		break;
	}
	return next_word(&line) ? -E2BIG : 0;
}

/* A size as memparse() takes it, but one that does not fit is an error. */
static int parse_size(const char *arg, u64 *bytes)
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
	return *bytes ? 0 : -EINVAL;
}

/**
 * ramslice_parse_boot - parse the value of ramslice= on the command line
 * @arg: off, on, or the size of a slice with an optional suffix K to E
 * @boot: what is known so far; a value that makes no sense means slices of the
 *	  default size and does not switch anything on or off
 *
 * Return: 0; -EINVAL if it is none of these; -ERANGE if the size does not fit.
 */
int ramslice_parse_boot(const char *arg, struct ramslice_boot *boot)
{
	int err;

	if (!strcmp(arg, "off")) {
		boot->off = true;
		return 0;
	}
	if (strcmp(arg, "on")) {
		err = parse_size(arg, &boot->slice_bytes);
		if (err) {
			boot->slice_bytes = 0;
			return err;
		}
	}
	boot->off = false;
	return 0;
}
