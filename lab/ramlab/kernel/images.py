# SPDX-License-Identifier: GPL-2.0-or-later
"""Where the image of a kernel is: of one of our flavours, built first if need be, or Debian's."""

import os
import re
import subprocess
import sys
from pathlib import Path

from ramlab.architectures import NATIVE
from ramlab.common import RAMLAB, STOCK_KERNELS
from ramlab.kernel.bases import full_name, our_kernels

KERNELS = [*our_kernels(), *STOCK_KERNELS]


def variable_of(kernel):
    """The environment variable that names an image for this kernel alone: RAMSLICE_IMAGE_PLAIN."""
    return "RAMSLICE_IMAGE_" + re.sub(r"\W", "_", kernel).upper()


def named_image(kernel):
    """The image that the environment names for this kernel, or for any; None if it names none.
    """
    named = os.environ.get(variable_of(kernel)) or os.environ.get("RAMSLICE_IMAGE")
    return Path(named) if named else None


def image(kernel, arch=NATIVE):
    """The directory of the image, built or fetched if need be, or as the environment names it:
    RAMSLICE_IMAGE_PLAIN and the like for one kernel, RAMSLICE_IMAGE for all of them.

    Kernels of other architectures are always the tree's or Debian's. A build reports on stderr; if
    it fails, this program ends with its status.
    """
    if arch.is_native and (named := named_image(kernel)):
        return named
    kernel = full_name(kernel)
    other = [] if arch.is_native else ["--arch", arch.name]
    if kernel in STOCK_KERNELS:
        line = [RAMLAB, "stock-kernel", *other, STOCK_KERNELS[kernel]]
    else:
        line = [RAMLAB, "kernel", *other, "--path", kernel]
    done = subprocess.run(line, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return Path(done.stdout.strip())
