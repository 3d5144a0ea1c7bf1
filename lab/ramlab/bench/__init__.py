# SPDX-License-Identifier: GPL-2.0-or-later
"""Benchmarks: suites that measure in virtual machines, and a checker that compares with the table
of targets.
"""
