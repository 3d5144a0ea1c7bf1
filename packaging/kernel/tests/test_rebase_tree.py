# SPDX-License-Identifier: GPL-2.0-or-later
"""Checking the series against another kernel source names conflicts and writes nothing."""
