# SPDX-License-Identifier: GPL-2.0-or-later
"""What the fuzzer's inputs reach of mm/ramslice: the inputs kept, and the places by name.

A site is an instrumented place of the image, an edge a pair of sites that one task passed one after
the other. Sites belong to the innermost function of ours that they were compiled from, so that
functions that the compiler has merged into others are told apart.
"""

import fnmatch
import json
import os
import re
import subprocess
import tomllib
from dataclasses import dataclass

from ramlab.common import ROOT, put_json

FOLDER = "mm/ramslice/"
CALL = "call.*<__sanitizer_cov_trace_pc>"
HEADERS = "(headers)"
UNKNOWN = "not looked at"
REASONS = ROOT / "lab/ramlab/fuzz_unreached.toml"
# Inputs that are handed on; the last ones, which build on those before.
MOST_KEPT = 2000


class Corpus:
    """The inputs that reached new code, in a file of JSON, with the edges of the image they ran on.

    Another image has other edges: there the inputs run again to say which.
    """

    def __init__(self, path, image):
        self.path, self.image = path, image
        self.inputs, self.edges = [], []
        if path.exists():
            kept = json.loads(path.read_text())
            self.inputs = kept["inputs"]
            self.edges = kept["edges"] if kept["image"] == image else []

    def content(self):
        return {"image": self.image, "inputs": self.inputs, "edges": self.edges}

    def take(self, line):
        """A portion's finds, as the guest prints them."""
        self.inputs = line["inputs"][-MOST_KEPT:]
        self.edges += line["new_edges"]
        put_json(self.path, self.content())

    def places(self):
        """The addresses that were passed."""
        return {int(place, 16) for edge in self.edges for place in edge.split("-")} - {0}


@dataclass(frozen=True)
class Site:
    """An instrumented place of the source."""

    file: str
    function: str
    line: int
    init: bool    # runs at boot and is gone afterwards


def low_half(address):
    """As the fuzzer prints addresses."""
    return address & 0xffffffff


def site_addresses(vmlinux):
    """Where calls of the tracer return to, which is what it notes."""
    code = subprocess.Popen(["objdump", "-d", "--no-show-raw-insn", vmlinux],
                            stdout=subprocess.PIPE)
    # Millions of lines, of which a few thousand matter
    calls = subprocess.run(["grep", "-A1", CALL], stdin=code.stdout, stdout=subprocess.PIPE,
                           text=True, check=True).stdout.splitlines()
    code.stdout.close()
    if code.wait():
        raise subprocess.CalledProcessError(code.returncode, "objdump")
    return [int(after.split(":")[0], 16) for call, after in zip(calls, calls[1:])
            if re.search(CALL, call)]


def frames(vmlinux, addresses):
    """For each address, [(function, file, line)] from the innermost to the outermost."""
    # The call, not what it returns to
    text = "".join(f"{address - 1:x}\n" for address in addresses)
    done = subprocess.run(["addr2line", "-a", "-f", "-i", "-e", vmlinux], input=text, text=True,
                          stdout=subprocess.PIPE, check=True)
    found = []
    lines = iter(done.stdout.splitlines())
    for line in lines:
        if line.startswith("0x"):
            found.append([])
            continue
        file, number = next(lines).split(" ")[0].rsplit(":", 1)
        found[-1].append((line, os.path.normpath(file), int(number) if number.isdigit() else 0))
    return found


def symbol(kernel, name):
    return int(re.search(rf"^([0-9a-f]+) . {name}$", (kernel / "System.map").read_text(), re.M)[1],
               16)


def sites(kernel):
    """{address's low half: Site} of an image."""
    vmlinux = kernel / "vmlinux"
    addresses = site_addresses(vmlinux)
    init = range(symbol(kernel, "_sinittext"), symbol(kernel, "_einittext"))
    found = {}
    for address, stack in zip(addresses, frames(vmlinux, addresses), strict=True):
        # What the compiler traces to no file of ours is of a header: trace events, above all
        found[low_half(address)] = Site(*next(
            ((file.split(FOLDER)[-1], function, line) for function, file, line in stack
             if FOLDER in file), (HEADERS, stack[-1][0], stack[-1][2])), address in init)
    return found


def unreached_reasons():
    """{function, or pattern of some: why no input reaches it}, by hand."""
    return tomllib.loads(REASONS.read_text())["unreached"]


def reason_of(name, reasons):
    return next((reason for pattern, reason in reasons.items()
                 if fnmatch.fnmatchcase(name, pattern)), UNKNOWN)


def count(found, places):
    """{what: [reached, all]} of some sites."""
    counts = {}
    for what, name in (("sites", lambda place, site: place),
                       ("lines", lambda place, site: (site.file, site.line)),
                       ("functions", lambda place, site: (site.file, site.function))):
        everything = {name(*item) for item in found.items()}
        reached = {name(*item) for item in found.items() if item[0] in places}
        counts[what] = [len(reached), len(everything)]
    return counts


def report(found, places, reasons):
    """What was reached of the sites, as a summary keeps it."""
    running = {place: site for place, site in found.items() if not site.init}
    files = sorted({site.file for site in running.values()})
    never = {}
    for file in files:
        functions = {site.function for site in running.values() if site.file == file}
        functions -= {site.function for place, site in running.items()
                      if site.file == file and place in places}
        if functions:
            never[file] = {name: reason_of(name, reasons) for name in sorted(functions)}
    return {
        **count(running, places),
        "files": {file: count({place: site for place, site in running.items()
                               if site.file == file}, places) for file in files},
        "left_out": f"{len(found) - len(running)} sites of code that runs at boot alone",
        "unknown_places": len(places - set(found)),
        "never": never,
    }
