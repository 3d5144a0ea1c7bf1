# SPDX-License-Identifier: GPL-2.0-or-later
"""A real Prometheus reads the daemon's metrics, and the rules and dashboard find series."""
