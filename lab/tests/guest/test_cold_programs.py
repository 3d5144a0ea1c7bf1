# SPDX-License-Identifier: GPL-2.0-or-later
"""Programs and cold memory: libramslice-cold, and `ramslice run --cold`, on a twin, on the lowest
memory tier of a stock kernel, and on machines that have neither.
"""

import contextlib
import ctypes
import errno
import json
import mmap
import os
import shutil
import signal
import subprocess
import sys
import threading
import unittest
from pathlib import Path

from ramlab.guest import cold_memory as cold
from ramlab.guest import cold_programs as programs
from ramlab.guest import harness
from ramlab.guest.cold_memory import MAP_COLD
from ramlab.guest.cold_programs import COLD, HOT, ColdLibrary, nodes_of, pattern
from ramlab.guest.harness import MIB, PAGE
from ramlab.guest.pinned_memory import MPOL_BIND, PatternedMemory
from ramlab.pytest_vm import vm

PLACES = [sys.executable, "-m", "ramlab.guest.cold_programs"]

# Node 1 is slower by what firmware says
SLOWER = [
    f"-numa hmat-lb,initiator=0,target={node},hierarchy=memory,{value}"
    for node, latency, bandwidth in ((0, 10, "10G"), (1, 50, "2G"))
    for value in (f"data-type=access-latency,latency={latency}",
                  f"data-type=access-bandwidth,bandwidth={bandwidth}")
]



def compiled_java(folder):
    """The program whose buffer is looked for; made on the host."""
    from ramlab.common import ROOT

    subprocess.run(["javac", "-d", folder, ROOT / "lab/guest/MappedBuffer.java"], check=True)


# The tests load the library when they run
ROOM = {"GLIBC_TUNABLES": "glibc.rtld.optional_static_tls=16384"}
TWIN = vm(mem="2G", append="ramslice=16M ramslice_cold=0", env=ROOM, files={"java": compiled_java})
TIER = vm(kernel="debian-6.12", mem="2G", numa=("1536M,cpus=0-1", "512M,initiator=0"),
          qemu=("-machine hmat=on", *SLOWER), env=ROOM)
TWO_TWINS = vm(mem="2G", append="ramslice=16M ramslice_cold=512M", env=ROOM,
               numa=("1G,cpus=0", "1G,cpus=1"))
NO_TWIN = vm(mem="2G", append="ramslice=16M", env=ROOM)
ONE_TIER = vm(mem="2G", append="ramslice=off", numa=("1536M,cpus=0-1", "512M"), env=ROOM)


def run(*words, program=PLACES, **more):
    """`ramslice run` with these words; the program's output as text."""
    line = [os.environ["RAMSLICE_PROGRAM"], "run", *words, "--", *map(str, program)]
    environment = {**os.environ, "RAMSLICE_COLD_PRELOAD": str(programs.PRELOAD)}
    return subprocess.run(line, capture_output=True, text=True, env=environment, **more)


class ColdNode:
    """What holds of the library and the command wherever there is cold memory."""

    # The library's word, the words of the command's line, the node
    way = line = None
    node = 1

    def setUp(self):
        super().setUp()
        self.library = ColdLibrary()

    def assert_place(self, address, size, node):
        self.assertEqual(set(nodes_of(address, size)), {node}, nodes_of(address, size))

    def assert_holds(self, address, size, seed=1):
        self.assertEqual(ctypes.string_at(address, size), pattern(seed, size))

    def test_the_way_is_found(self):
        self.assertEqual(self.library.way(), self.way)

    def test_every_page_of_an_object_is_where_it_was_allocated(self):
        for size, count in ((100, 2000), (5000, 500), (100_000, 100), (40 * MIB, 1)):
            for place, node in ((COLD, self.node), (HOT, 0)):
                with self.subTest(size=size, place=place), contextlib.ExitStack() as stack:
                    for _ in range(count):
                        address = stack.enter_context(self.library.object(size, place))
                        self.assert_place(address, size, node)
                        self.assertEqual(self.library.place_of(address), place)

    def test_an_object_moves_with_its_contents(self):
        for size in 10, 3000, 200_000, 20 * MIB:
            with self.subTest(size):
                address = self.library.alloc(size, HOT)
                ctypes.memmove(address, pattern(size, size), size)
                for place, node in ((COLD, self.node), (HOT, 0), (COLD, self.node)):
                    address = self.library.move(address, place)
                    self.assert_place(address, size, node)
                    self.assert_holds(address, size, size)
                self.library.free(address)

    def test_an_object_whose_size_changes_stays_cold(self):
        address, before = self.library.alloc(1), 1
        ctypes.memmove(address, pattern(3, 1), 1)
        for size in 500, 9000, 3 * MIB, 50 * MIB, 70_000, 40:
            address = self.library.realloc(address, size)
            self.assert_holds(address, min(before, size), 3)
            ctypes.memmove(address, pattern(3, size), size)
            self.assert_place(address, size, self.node)
            before = size
        self.library.free(address)

    def test_a_range_moves_and_keeps_its_address_and_contents(self):
        for huge in False, True:
            memory = PatternedMemory(32, huge=huge, flags=mmap.MAP_PRIVATE)
            with self.subTest(huge=huge), memory:
                for place, node in ((COLD, self.node), (HOT, 0)):
                    done = self.library.move_range(memory.address, memory.bytes, place)
                    self.assertEqual(done, memory.bytes)
                    self.assert_place(memory.address, memory.bytes, node)
                    self.assertIsNone(memory.wrong_at())

    def test_only_pages_that_lie_in_a_range_move(self):
        with PatternedMemory(1, flags=mmap.MAP_PRIVATE) as memory:
            start = memory.address + 10 * PAGE
            done = self.library.move_range(start - 1, 3 * PAGE, COLD)
            self.assertEqual(done, 2 * PAGE)
            self.assert_place(start, 2 * PAGE, self.node)
            self.assert_place(start - PAGE, PAGE, 0)
            self.assert_place(start + 2 * PAGE, PAGE, 0)

    def test_a_page_that_is_pinned_stays_and_others_move(self):
        with PatternedMemory(8, flags=mmap.MAP_PRIVATE) as memory, cold.spliced(memory, 1):
            done = self.library.move_range(memory.address, memory.bytes, COLD)
            self.assertEqual(done, memory.bytes - PAGE)
            self.assert_place(memory.address, PAGE, 0)
            self.assertIsNone(memory.wrong_at())

    def test_statistics_count_what_is_cold_and_freeing_gives_it_back(self):
        with self.library.object(1):
            before = self.library.stats()
            size = 48 * MIB
            with self.library.object(size):
                during = self.library.stats()
                # Beside it, a huge page that it shares, and one with what jemalloc keeps about it
                more = during.cold_bytes - before.cold_bytes - size
                self.assertIn(more, range(4 * MIB + 1))
                self.assertEqual(during.hot_bytes, before.hot_bytes)
            after = self.library.stats()
            self.assertLessEqual(after.cold_bytes, before.cold_bytes + 4 * MIB)

    def test_more_than_cold_memory_has_is_elsewhere(self):
        """And works."""
        free = self.free_mib()
        size = (free + 64) * MIB
        address = self.library.alloc(size)
        for at in range(0, size, MIB):
            ctypes.memmove(address + at, pattern(at // MIB, MIB), MIB)
        nodes = nodes_of(address, size)
        self.assertGreater(nodes[self.node] * PAGE, (free - 96) * MIB)
        self.assertGreater(nodes[0] * PAGE, 32 * MIB)
        self.assertGreater(self.library.stats().hot_bytes, 32 * MIB)
        for at in range(0, size, MIB):
            self.assert_holds(address + at, MIB, at // MIB)
        self.library.free(address)

    def free_mib(self):
        for line in Path(f"/sys/devices/system/node/node{self.node}/meminfo").open():
            if "MemFree:" in line:
                return int(line.split()[3]) // 1024
        raise KeyError(self.node)

    def test_threads_share_it(self):
        wrong = []

        def work(seed):
            kept = []
            for turn in range(150):
                size = (turn * 7919 + seed * 104_729) % 100_000 + 1
                place = (turn + seed) % 2
                address = self.library.alloc(size, place)
                ctypes.memmove(address, pattern(turn, size), size)
                kept.append((self.library.move(address, 1 - place), size, turn, 1 - place))
                if len(kept) > 20:
                    address, size, before, place = kept.pop(turn % 20)
                    if ctypes.string_at(address, size) != pattern(before, size):
                        wrong.append((seed, turn, "contents"))
                    if set(nodes_of(address, size)) != {self.node if place == COLD else 0}:
                        wrong.append((seed, turn, nodes_of(address, size)))
                    self.library.free(address)
            for address, *_ in kept:
                self.library.free(address)

        threads = [threading.Thread(target=work, args=[seed]) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_the_library_s_own_test_and_its_example(self):
        for name in "objects", "archive":
            done = subprocess.run([programs.FOLDER / name], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(self.way, done.stdout.splitlines()[0])
            self.assertNotIn("FAILED", done.stdout)
        self.assertIn("document 7 is hot again, and begins with h", done.stdout)

    # --- ramslice run ---

    def places(self, *words):
        """{kind: nodes} of a program that knows nothing of cold memory."""
        done = run("--cold", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(self.line, done.stderr)
        return {kind: {int(node) for node in nodes}
                for kind, nodes in json.loads(done.stdout).items()}

    def test_all_memory_of_a_program_is_cold(self):
        self.assertEqual(self.places(), dict.fromkeys(
            ("small", "medium", "large", "mapped"), {self.node}))

    def test_only_large_pieces_of_a_program_are_cold(self):
        self.assertEqual(
            self.places("--larger-than", "1M"),
            {"small": {0}, "medium": {0}, "large": {self.node}, "mapped": {self.node}})

    def test_a_workload_that_checks_its_memory_finds_it_right(self):
        """Also if it needs more than there is of cold memory."""
        memload = programs.FOLDER.parent / "memload"
        before = harness.vmstat()
        for mib, words in ((64, ["--larger-than", "1M"]), (self.free_mib() + 64, [])):
            done = run("--cold", "--quiet", *words,
                       program=[memload, "--mode", "anon", "--mb", mib, "--seconds", 3])
            self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(harness.vmstat()["oom_kill"], before["oom_kill"])


@TWIN
class Twin(ColdNode, harness.RamsliceTest):
    way, line = "MAP_COLD", "prefer"

    def setUp(self):
        super().setUp()
        self.addCleanup(cold.resize, 0)
        cold.resize(512)
        self.assertEqual(cold.twin(), self.node)

    def test_the_line_says_where_memory_goes(self):
        done = run("--cold", program=["true"])
        self.assertEqual(done.stderr, "ramslice: all memory of true prefers cold memory, node 1, "
                                      "by set_mempolicy()\n")
        done = run("--cold", "--larger-than", "1M", program=["true"])
        self.assertEqual(done.stderr, "ramslice: of true, pieces of more than 1 MiB prefer cold "
                                      "memory, node 1, by mmap(MAP_COLD)\n")
        self.assertEqual(run("--cold", "--quiet", program=["true"]).stderr, "")

    def test_signals_and_the_exit_status_are_the_program_s(self):
        self.assertEqual(run("--cold", program=["sh", "-c", "exit 7"]).returncode, 7)
        done = run("--cold", program=["sh", "-c", "kill -TERM $$"])
        self.assertEqual(done.returncode, -signal.SIGTERM)

    def test_what_cannot_run_is_said_in_words(self):
        plain = Path("/tmp/plain")
        plain.write_text("no program")
        self.addCleanup(plain.unlink)
        setuid = Path("/tmp/setuid")
        shutil.copyfile("/bin/true", setuid)
        self.addCleanup(setuid.unlink)
        os.chown(setuid, 1, 1)
        setuid.chmod(0o4755)
        larger = ("--cold", "--larger-than", "1M")
        for words, program, status, text in (
            (("--cold",), ["no-such-program"], 127, "cannot run `no-such-program`"),
            (("--cold",), ["/tmp/plain"], 126, "cannot run `/tmp/plain`"),
            (larger, ["busybox", "true"], 2, "is linked statically: leave out --larger-than"),
            (larger, [setuid], 2, "is setuid"),
            ((*larger, "--library", "/no/such"), ["true"], 2, "/no/such"),
            ((), ["true"], 2, "--cold"),
        ):
            with self.subTest(words=words, program=program):
                done = run(*words, program=program)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(text, done.stderr)
        self.assertEqual(run("--cold", program=["busybox", "true"]).returncode, 0)

    def test_a_twin_without_a_size_is_no_cold_memory(self):
        cold.resize(0)
        for words in ("--cold",), ("--cold", "--larger-than", "1M"):
            done = run(*words, program=["true"])
            self.assertEqual(done.returncode, 2)
            self.assertIn("ramslice cold --size 2G", done.stderr)
        done = run("--cold", "--optional", program=["sh", "-c", "exit 3"])
        self.assertEqual(done.returncode, 3)
        self.assertIn("runs as usual", done.stderr)

    def test_python_maps_cold_memory_by_a_flag(self):
        """As the how-to page has it, in a Python that knows no such flag."""
        text = (
            "import mmap\n"
            "size = 32 << 20\n"
            "cold = mmap.mmap(-1, size,\n"
            "                 flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x200000)\n"
            "cold[:] = bytes([7]) * size\n"
            "print(open('/proc/self/numa_maps').read())\n"
        )
        self.assertEqual(MAP_COLD, 0x200000)
        done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True,
                              check=True)
        pages = [line for line in done.stdout.splitlines() if f"N1={32 * MIB // PAGE}" in line]
        self.assertEqual(len(pages), 1, done.stdout)
        self.assertNotIn(" N0=", pages[0])

    def cold_files(self):
        """A folder whose files are cold memory; what runtimes map from it needs no flag."""
        folder = Path("/tmp/cold-files")
        folder.mkdir()
        self.addCleanup(folder.rmdir)
        line = ["mount", "-t", "tmpfs", "-o", f"mpol=prefer:{self.node}", "cold", folder]
        subprocess.run(line, check=True)
        self.addCleanup(subprocess.run, ["umount", folder], check=True)
        return folder

    def test_mapped_buffers_of_java_are_cold_by_their_file_system(self):
        """As the how-to page has it; on another file system, the same program's buffer is hot."""
        size = 16 * MIB
        for folder, node, other in ((self.cold_files(), 1, 0), (Path("/dev/shm"), 0, 1)):
            path = folder / "buffer"
            line = ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp",
                    Path(os.environ["RAMSLICE_FOLDER"], "java"), "MappedBuffer", path, size]
            done = subprocess.run([str(word) for word in line], capture_output=True, text=True)
            path.unlink()
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            self.assertIn(f" N{node}={size // PAGE} ", done.stdout)
            self.assertNotIn(f" N{other}=", done.stdout)

    def test_files_of_a_tmpfs_are_cold(self):
        path = self.cold_files() / "buffer"
        path.write_bytes(bytes(16 * MIB))
        with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as area:
            self.assertEqual(area[:].count(0), 16 * MIB)
            view = ctypes.c_char.from_buffer(area)
            self.assert_place(ctypes.addressof(view), len(area), self.node)
            del view


@TWO_TWINS
class TwoTwins(harness.RamsliceTest):
    """The twin that is used is that of the node where a task runs, or where a page is."""

    def setUp(self):
        super().setUp()
        self.library = ColdLibrary()
        self.twins = {node: cold.twin(node) for node in (0, 1)}
        self.addCleanup(os.sched_setaffinity, 0, os.sched_getaffinity(0))

    def test_what_a_task_allocates_is_in_its_node_s_twin(self):
        for node, twin in self.twins.items():
            os.sched_setaffinity(0, {node})
            with self.library.object(10 * MIB) as address:
                self.assertEqual(set(nodes_of(address, 10 * MIB)), {twin})
            done = run("--cold")
            self.assertIn("nodes 2 and 3, by set_mempolicy()", done.stderr)
            self.assertEqual(json.loads(done.stdout)["large"].keys(), {str(twin)})
            done = run("--cold", "--larger-than", "1M")
            found = json.loads(done.stdout)
            self.assertEqual(found["large"].keys(), {str(twin)})
            self.assertEqual(found["medium"].keys(), {str(node)})

    def test_pages_move_to_their_node_s_twin_and_back(self):
        for node, twin in self.twins.items():
            with self.subTest(node), PatternedMemory(16, fill=False) as memory:
                memory.bind(MPOL_BIND, [node])
                memory.fill()
                for place, there in ((COLD, twin), (HOT, node)):
                    done = self.library.move_range(memory.address, memory.bytes, place)
                    self.assertEqual(done, memory.bytes)
                    self.assertEqual(set(memory.nodes()), {there})
                    self.assertIsNone(memory.wrong_at())


@TIER
class Tier(ColdNode, unittest.TestCase):
    way, line = "mbind", "the lowest memory tier, node 1"


class Neither:
    """Without cold memory all of it works, and nothing is cold."""

    def test_the_library_works(self):
        library = ColdLibrary()
        self.assertEqual(library.way(), "none")
        with library.object(10 * MIB) as address:
            self.assertEqual(set(nodes_of(address, 10 * MIB)), {0})
            stats = library.stats()
            self.assertEqual(stats.cold_bytes, 0)
            self.assertGreaterEqual(stats.hot_bytes, 10 * MIB)
            with self.assertRaises(OSError) as caught:
                library.move_range(address, 10 * MIB, COLD)
            self.assertEqual(caught.exception.errno, errno.EOPNOTSUPP)
        done = subprocess.run([programs.FOLDER / "objects"], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(done.stdout.splitlines()[0], "way: none")

    def test_a_program_runs_only_if_it_may(self):
        for words in ("--cold",), ("--cold", "--larger-than", "1M"):
            done = run(*words)
            self.assertEqual((done.returncode, done.stdout), (2, ""))
            self.assertIn("this machine has no cold memory", done.stderr)
            done = run(*words, "--optional")
            self.assertEqual(done.returncode, 0, done.stderr)
            nodes = {node for places in json.loads(done.stdout).values() for node in places}
            self.assertEqual(nodes, {"0"})

    def test_the_preloaded_library_by_itself_changes_no_place(self):
        environment = {**os.environ, "LD_PRELOAD": str(programs.PRELOAD),
                       "RAMSLICE_COLD_LARGER_THAN": str(MIB)}
        done = subprocess.run(PLACES, env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        nodes = {node for places in json.loads(done.stdout).values() for node in places}
        self.assertEqual(nodes, {"0"})


@NO_TWIN
class NoTwin(Neither, unittest.TestCase):
    """A kernel that knows the flag, without twins on its command line."""


@ONE_TIER
class OneTier(Neither, unittest.TestCase):
    """A node without CPUs, of which nothing says that it is slower."""
