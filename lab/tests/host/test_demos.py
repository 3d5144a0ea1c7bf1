# SPDX-License-Identifier: GPL-2.0-or-later
"""make demo and make demo-stock end well and leave their pictures and results."""
