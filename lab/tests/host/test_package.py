# SPDX-License-Identifier: GPL-2.0-or-later
"""The Debian package lives in a clean Debian that systemd boots."""
