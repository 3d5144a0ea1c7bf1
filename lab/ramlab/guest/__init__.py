# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs inside guests: libraries of the tests, and programs. The C programs are in lab/guest."""
