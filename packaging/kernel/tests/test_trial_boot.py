# SPDX-License-Identifier: GPL-2.0-or-later
"""Debian's kernel stays GRUB's default until a ramslice kernel was tried and confirmed."""
