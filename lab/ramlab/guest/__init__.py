# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs inside guests: libraries of tests, and programs. C programs are in lab/guest."""
