# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the finished image of a kernel is: one of our flavours, built first if need be, or Debian's."""

import os
import subprocess
import sys
from pathlib import Path

from ramlab.common import FLAVOURS, RAMLAB, STOCK_KERNELS

KERNELS = [*FLAVOURS, *STOCK_KERNELS]


def image(kernel):
    """The directory of the image. RAMSLICE_IMAGE names another one, as kept in the cache.

    A build reports on stderr; if it fails, this program ends with its status.
    """
    if os.environ.get("RAMSLICE_IMAGE"):
        return Path(os.environ["RAMSLICE_IMAGE"])
    if kernel in STOCK_KERNELS:
        line = [RAMLAB, "stock-kernel", STOCK_KERNELS[kernel]]
    else:
        line = [RAMLAB, "kernel", "--path", kernel]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return Path(done.stdout.strip())
