# SPDX-License-Identifier: GPL-2.0-or-later
"""The package's scripts wait for a running request and report what stays offline."""
