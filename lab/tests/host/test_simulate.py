# SPDX-License-Identifier: GPL-2.0-or-later
"""The simulator's tables add up to its report, and seeds repeat."""
