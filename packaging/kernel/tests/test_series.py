# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel changes export as a series that git am turns into the tree we test."""
