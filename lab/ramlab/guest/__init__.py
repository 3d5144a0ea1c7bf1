# SPDX-License-Identifier: GPL-2.0-or-later
"""What runs inside guests: libraries of tests, and programs. C programs are in lab/guest."""

import sys

from ramlab.common import ROOT

# The kernel's selftests, whose modules those of this folder build on
sys.path.append(str(ROOT / "kernel/files/tools/testing/selftests/mm/ramslice"))
