# SPDX-License-Identifier: GPL-2.0-or-later
"""The kernel's own KUnit suites, which run at boot: prices, reserves, states, geometry, parsing."""

from pathlib import Path

from ramlab.guest import ramslice_dev as dev
from ramlab.pytest_vm import vm

SOURCE = Path(__file__).resolve().parents[3] / "kernel/files/mm/ramslice"
UNIT_TESTS = "kunit.enable=1 kunit.filter_glob=ramslice*"
# Tests run at boot, and other modules' tests after it: a boot with checkers takes a minute
CHECKED = vm(kernel="debug", mem="1G", append=f"ramslice=16M movablecore=512M {UNIT_TESTS}")
RACES = vm(kernel="kcsan", mem="1G", append=f"ramslice=16M movablecore=512M {UNIT_TESTS}",
           slow=True)
RESEARCH = vm(kernel="research", mem="2G", append=f"ramslice=32M {UNIT_TESTS}")


@vm(mem="1G", append=UNIT_TESTS, slow=True)
@CHECKED
@RESEARCH
@RACES
@vm(arch="arm64", mem="1G", append=UNIT_TESTS, slow=True)
def test_every_kunit_suite_passes():
    dev.debugfs()
    results = {path.parent.name: path.read_text()
               for path in dev.DEBUGFS.glob("kunit/ramslice*/results")}
    print("\n".join(results.values()))
    failed = [name for name, text in results.items()
              if "not ok" in text or not text.rstrip().splitlines()[-1].startswith("ok ")]
    assert not failed
    # A kernel without what only research needs has no tests of it
    suites = [path for path in SOURCE.rglob("*-kunit.c")
              if dev.is_research() or "research" not in path.parts]
    # They are about a table of ACPI's, and about a device tree
    for folder, name in (("acpi", "mpst"), ("devicetree", "ddr_regions")):
        if not Path("/sys/firmware", folder).exists():
            suites.remove(SOURCE / f"tests/{name}-kunit.c")
    assert len(results) == len(suites)
