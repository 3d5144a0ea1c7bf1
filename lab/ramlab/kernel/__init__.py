# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels: Debian's source, our series on it, builds of each flavour, Debian's own kernels."""
