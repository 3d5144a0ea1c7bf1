/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * The two types of GLib that qemu-plugin.h names. No call that takes them is
 * used here, so that the plugin builds without GLib's headers.
 */
#ifndef RAMSLICE_PLUGIN_GLIB_H
#define RAMSLICE_PLUGIN_GLIB_H

typedef struct _GArray GArray;
typedef struct _GByteArray GByteArray;

#endif
