# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's Debian packages are built, signed, installed, upgraded, booted and purged."""
