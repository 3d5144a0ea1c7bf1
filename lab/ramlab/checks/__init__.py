# SPDX-License-Identifier: GPL-2.0-or-later
"""What the programs write, read by other programs: recordings, tables, metrics, pages."""
