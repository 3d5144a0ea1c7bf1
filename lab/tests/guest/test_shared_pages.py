# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages that very many processes map, as those of libc, move like any other."""

import contextlib
import mmap
import os
import shutil
import subprocess

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE
from ramlab.guest.pinned_memory import pfns
from ramlab.pytest_vm import vm

# From 1024 references on, a single page of a file looks pinned for DMA
PROCESSES = 1100


@vm(mem="1G", append="ramslice=16M")
class SharedPages(harness.RamsliceTest):
    def test_a_page_that_a_thousand_processes_map_keeps_no_slice_on(self):
        # On a file system whose pages move; the root's is the host's
        program = "/dev/shm/shared-pages"
        shutil.copy("/bin/busybox", program)
        self.addCleanup(os.unlink, program)
        with contextlib.ExitStack() as stack:
            for _ in range(PROCESSES):
                child = subprocess.Popen(["busybox", "sleep", "100000"], executable=program)
                stack.callback(child.wait)
                stack.callback(child.kill)
            file = stack.enter_context(open(program, "rb"))
            size = os.path.getsize(program) // PAGE * PAGE
            # Private, and never written to, so that its pages are those of the program
            text = stack.enter_context(mmap.mmap(file.fileno(), size, flags=mmap.MAP_PRIVATE))
            for page in range(0, size, PAGE):
                text[page]
            self.assertTrue(harness.until(lambda: self.shared_by_all(pfns(text))))
            for run in self.shared_by_all(pfns(text)):
                # Their slice may stay for other reasons, as one that spans two zones
                self.assertNotEqual(run.why(), "pinned")
                self.assertFalse(run.flags & dev.PINNED)

    def shared_by_all(self, frames):
        """Runs of these page frames that all processes map."""
        size = self.row(0).nr_pages
        return [run
                for number in {pfn // size for pfn in frames}
                for run in self.device.pages(number)
                if run.nr_maps >= PROCESSES and run.pfn in frames]
