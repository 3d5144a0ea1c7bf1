# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own tests of ramslice, which need only its interface, on machines of the lab.

They are in tools/testing/selftests/mm/ramslice of the kernel tree, where they run without the lab.
On arm64 they are for the long campaigns: all of its processor is emulated.
"""

import ramslice_events
import ramslice_hold
import ramslice_ioctls
import ramslice_requests
import ramslice_sysfs
import ramslice_views

from ramlab.guest import ramslice_dev as dev
from ramlab.pytest_vm import vm
from test_kunit import CHECKED, RACES

SMALL = vm(mem="2G", append="ramslice=32M")
SMALL_ARM64 = vm(arch="arm64", mem="2G", append="ramslice=32M", slow=True)
# Data races between requests, and between them and what else runs
SMALL_RACES = vm(kernel="kcsan", mem="2G", append="ramslice=32M", slow=True)


@SMALL
@SMALL_ARM64
@SMALL_RACES
class Ioctls(ramslice_ioctls.Ioctls):
    pass


@SMALL
@SMALL_ARM64
@SMALL_RACES
class Events(ramslice_events.Events):
    pass


@SMALL
@SMALL_ARM64
@SMALL_RACES
class Sysfs(ramslice_sysfs.Sysfs):
    def test_a_new_kernel_has_the_papers_prices_and_no_driver(self):
        prices = [int(dev.read(dev.SYSFS / "price" / name))
                  for name in ("isolate_slice", "isolate_page")]
        self.assertEqual(prices, [695, 303])
        self.assertEqual(dev.read(dev.SYSFS / "power_driver"), "none")


@SMALL
@SMALL_ARM64
@SMALL_RACES
class Access(ramslice_sysfs.Access):
    pass


@SMALL
@SMALL_ARM64
@SMALL_RACES
class RoundTrip(ramslice_requests.RoundTrip):
    pass


@SMALL
@SMALL_ARM64
@SMALL_RACES
class InterruptedMigration(ramslice_requests.InterruptedMigration):
    pass


@vm(mem="1G", append="ramslice=16M movablecore=512M")
@CHECKED
@RACES
@vm(arch="arm64", mem="1G", append="ramslice=16M movablecore=512M", slow=True)
class Hold(ramslice_hold.Hold):
    pass


# More than 2 GiB, for a zone above 4 GiB and its lowmem reserves
@vm(mem="3G", append="ramslice=32M")
@vm(arch="arm64", mem="4G", append="ramslice=32M", slow=True)
@vm(kernel="kcsan", mem="3G", append="ramslice=32M", slow=True)
class Views(ramslice_views.Views):
    pass
