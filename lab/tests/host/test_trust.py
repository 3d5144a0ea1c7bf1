# SPDX-License-Identifier: GPL-2.0-or-later
"""Fitted on recordings of one policy, the simulator predicts the slices used under another."""
