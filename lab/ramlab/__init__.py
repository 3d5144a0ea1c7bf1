# SPDX-License-Identifier: GPL-2.0-or-later
"""The lab of ramslice: kernels, virtual machines, tests, benchmarks and case studies."""
