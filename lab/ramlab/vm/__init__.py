# SPDX-License-Identifier: GPL-2.0-or-later
"""Virtual machines: booting them, reading their consoles, punching holes in their memory."""
