# SPDX-License-Identifier: GPL-2.0-or-later
"""Pages that very many processes map, as those of libc, move like any other."""

import contextlib
import mmap
import os
import signal

from ramlab.guest import harness
from ramlab.guest import ramslice_dev as dev
from ramlab.guest.harness import PAGE
from ramlab.guest.pinned_memory import pfns
from ramlab.pytest_vm import vm

# From 1024 references on, a single page of a file looks pinned for DMA. A thousand programs take
# minutes to start on an emulated machine; a few that map the file often give it as many references.
PROCESSES, MAPPINGS_OF_EACH = 44, 25
FILE_PAGES = 64


def map_often_and_wait(file):
    """What each process does: maps the whole file so many times, touches it, and stays."""
    views = [mmap.mmap(file.fileno(), FILE_PAGES * PAGE, flags=mmap.MAP_PRIVATE)
             for _ in range(MAPPINGS_OF_EACH)]
    for view in views:
        view[::PAGE]
    while True:
        signal.pause()


def end(pid):
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)


@vm(mem="1G", disk="1G", append="ramslice=16M")
class SharedPages(harness.RamsliceTest):
    def test_a_page_that_is_mapped_a_thousand_times_keeps_no_slice_on(self):
        # On a file system whose pages move; the root's is the host's
        path = "/dev/shm/shared-pages"
        self.addCleanup(os.unlink, path)
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(open(path, "w+b"))
            file.write(bytes(range(256)) * (FILE_PAGES * PAGE // 256))
            file.flush()
            for _ in range(PROCESSES):
                pid = os.fork()
                if not pid:
                    try:
                        map_often_and_wait(file)
                    finally:
                        os._exit(1)
                stack.callback(end, pid)
            # Private, and never written to, so that its pages are those of the file
            text = stack.enter_context(
                mmap.mmap(file.fileno(), FILE_PAGES * PAGE, flags=mmap.MAP_PRIVATE))
            text[::PAGE]
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
                if run.nr_maps >= PROCESSES * MAPPINGS_OF_EACH and run.pfn in frames]
