# SPDX-License-Identifier: GPL-2.0-or-later
"""Real programs for placement_workload.py: a compiler, a Redis server, archives, a file server,
walks over many names.

Each works for some seconds and leaves in memory what such programs leave: caches, dentries,
inodes, page tables.
"""

import shutil
import subprocess
from pathlib import Path

from ramlab.guest import demo

# The C programs of the guests
HERE = Path(__file__).resolve().parents[2] / "guest"
SOURCES = ("openloop.c", "memload.c")
KEY_BYTES = 2000
# Programs that work in a round
ROUND = 3


def quiet(*words):
    done = subprocess.run(
        [*map(str, words)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    if done.returncode:
        raise RuntimeError(f"{words[0]} ended with status {done.returncode}: {done.stdout[-500:]}")


class Programs:
    """One at a time, in an order by chance; a folder on a disk is theirs."""

    def __init__(self, chance, folder):
        self.random, self.folder = chance, folder
        self.keys = 0
        self.works = [self.build, self.server, self.archive, self.serve, self.walk]
        folder.mkdir()
        demo.start_redis(1)

    def round(self, after):
        """Some do their work; after() follows each."""
        for work in self.random.sample(self.works, ROUND):
            work()
            after()

    def build(self):
        """A compiler for a file."""
        quiet("gcc", "-O1", "-c", HERE / self.random.choice(SOURCES), "-o", self.folder / "built.o")

    def server(self):
        """Redis grows, and now and then throws its data away."""
        if self.keys > 30000:
            demo.redis("flushall", "sync")
            self.keys = 0
        nr = self.random.randrange(2000, 8000)
        demo.redis("debug", "populate", nr, f"k{self.keys}", KEY_BYTES)
        self.keys += nr

    def archive(self):
        """A tree is packed and unpacked, and what was unpacked before removed."""
        packed, unpacked = self.folder / "tree.tar", self.folder / "tree"
        shutil.rmtree(unpacked, ignore_errors=True)
        unpacked.mkdir()
        quiet("tar", "-cf", packed, "-C", "/usr/include", "linux", "asm-generic")
        quiet("tar", "-xf", packed, "-C", unpacked)

    def serve(self):
        """Files of all sizes are written, read and appended to."""
        quiet(
            "fio",
            "--name=serve",
            f"--directory={self.folder}",
            "--rw=randrw",
            "--bs=4k",
            "--nrfiles=48",
            "--openfiles=16",
            "--filesize=4k-512k",
            "--io_size=2m",
            f"--randseed={self.random.randrange(1 << 30)}",
            "--unlink=1",
            "--fallocate=none",
            "--output=/dev/null",
        )

    def walk(self):
        """Names alone, as a search or a backup goes through them."""
        quiet("find", self.folder, "-newer", "/etc/passwd")

    def end(self):
        subprocess.run([*demo.REDIS, "shutdown", "nosave"], check=False, capture_output=True)
