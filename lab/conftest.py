# SPDX-License-Identifier: GPL-2.0-or-later
"""What all tests of the lab share."""

import os

# Tests of the plug-in run pytest; guests have no use for that.
if not os.environ.get("RAMLAB_ITEMS"):
    pytest_plugins = ["pytester"]
