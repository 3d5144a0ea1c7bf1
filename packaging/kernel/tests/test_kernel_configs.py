# SPDX-License-Identifier: GPL-2.0-or-later
"""The configurations of kernel packages come out as asked."""
