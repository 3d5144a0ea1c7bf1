# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that run in virtual machines: marks to machines, machines to boots, boots to reports."""
