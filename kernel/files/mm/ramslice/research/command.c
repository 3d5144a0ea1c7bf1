// SPDX-License-Identifier: GPL-2.0
/*
 * Parses the debugfs commands of the thesis, section 3.2.6. Pure.
 */

#include <linux/kernel.h>
#include <linux/string.h>
#include "../internal.h"
#include "../request.h"
#include "research.h"

static const char * const ramslice_command_names[] = {
	[RAMSLICE_CMD_OFFLINE_BATCH] = "offline_batch",
	[RAMSLICE_CMD_OFFLINE_INDEX] = "offline_index",
	[RAMSLICE_CMD_ONLINE_INDEX]  = "online_index",
	[RAMSLICE_CMD_OFFLINE_FREE]  = "offline_free",
	[RAMSLICE_CMD_ONLINE_ALL]    = "online_all",
	[RAMSLICE_CMD_REINIT]	     = "reinit",
	[RAMSLICE_CMD_RELEASE]	     = "release",
};

static char *ramslice_next_word(char **line)
{
	char *word;

	do {
		word = strsep(line, " \t\n");
	} while (word && !*word);
	return word;
}

/* A decimal number, or "inf" for the largest. */
static int ramslice_parse_limit(const char *word, u64 inf, u64 *value)
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
 * ramslice_parse_command - parse a command line
 * @line: the line; is modified
 * @cmd: the result
 *
 * Return: 0; -EOPNOTSUPP for an unknown command, -ENODATA for a missing
 * argument, -E2BIG for one too many, -EINVAL for one that is no number,
 * -ERANGE for a number that does not fit or is 0 where something is counted.
 */
int ramslice_parse_command(char *line, struct ramslice_command *cmd)
{
	char *word = ramslice_next_word(&line);
	u64 value;
	int err;

	memset(cmd, 0, sizeof(*cmd));
	if (!word)
		return -ENODATA;
	err = match_string(ramslice_command_names,
			   ARRAY_SIZE(ramslice_command_names), word);
	if (err < 0)
		return -EOPNOTSUPP;
	cmd->op = err;

	switch (cmd->op) {
	case RAMSLICE_CMD_OFFLINE_BATCH:
		word = ramslice_next_word(&line);
		if (word && !strcmp(word, "--per-slice")) {
			cmd->per_slice = true;
			word = ramslice_next_word(&line);
		}
		err = ramslice_parse_limit(word, RAMSLICE_UNLIMITED,
					   &cmd->budget);
		if (err)
			return err;
		err = ramslice_parse_limit(ramslice_next_word(&line),
					   RAMSLICE_ALL_SLICES, &value);
		if (err)
			return err;
		if (!value || value > RAMSLICE_ALL_SLICES)
			return -ERANGE;
		cmd->max_slices = value;
		break;
	case RAMSLICE_CMD_OFFLINE_INDEX:
	case RAMSLICE_CMD_ONLINE_INDEX:
		word = ramslice_next_word(&line);
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
	return ramslice_next_word(&line) ? -E2BIG : 0;
}
