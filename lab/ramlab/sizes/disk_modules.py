# SPDX-License-Identifier: GPL-2.0-or-later
"""Builds the kernel modules of the slow disk: the kernel's own null_blk, and configfs, by which it
is set up.

No flavour has them in its configuration, and nothing but this needs them; so they are built as
modules outside the tree, against the objects of the same configuration.
"""

import hashlib
import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from ramlab.common import CACHE, die, locked
from ramlab.kernel.build import REPRODUCIBLE, compile_objects, make, objects_of
from ramlab.kernel.source import Source

FLAVOUR = "plain"
# {module: (folder of the kernel's source, its objects)}
PARTS = {
    "configfs": ("fs/configfs", ["inode", "file", "dir", "symlink", "mount", "item"]),
    "null_blk": ("drivers/block/null_blk", ["main"]),
}


def makefile():
    """The modules as kbuild wants them."""
    lines = ["obj-m := " + " ".join(f"{name}.o" for name in PARTS)]
    lines += [f"{name}-objs := " + " ".join(f"{name}/{part}.o" for part in parts)
              for name, (_, parts) in PARTS.items()]
    return "\n".join(lines) + "\n"


def build(kernel):
    """The folder with the modules for an image of our kernel, `kernel`; built if need be."""
    source = Source()
    source.extract()
    config = (kernel / "config").read_bytes()
    # The name of an image tells all that it was built from
    parts = [kernel.name, source.sha256, makefile()]
    key = hashlib.sha256(config + json.dumps(parts).encode()).hexdigest()[:16]
    store = CACHE / "disk-modules" / key
    if store.exists():
        return store
    with locked("kernel"), tempfile.TemporaryDirectory(prefix="disk-modules-", dir=CACHE) as work:
        objects = objects_of(source, FLAVOUR)
        if not (objects / "Module.symvers").exists():
            compile_objects(source, FLAVOUR)
        if (objects / ".config").read_bytes() != config:
            die(f"{objects} is of another configuration than {kernel}: build the kernel again "
                "(ramlab kernel plain)")
        work = Path(work)
        for name, (folder, _) in PARTS.items():
            shutil.copytree(source.pristine / folder, work / name)
            (work / name / "Makefile").unlink()
        (work / "Makefile").write_text(makefile())
        line = make(source.patched, objects, "-s", f"M={work}", "modules")
        done = subprocess.run([str(word) for word in line], text=True, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, env=os.environ | REPRODUCIBLE)
        if done.returncode:
            die(f"the modules of the slow disk do not build:\n{done.stdout[-4000:]}")
        fresh = store.with_name(f"{key}.{os.getpid()}")
        fresh.mkdir(parents=True)
        for name in PARTS:
            shutil.copy2(work / f"{name}.ko", fresh)
        if not store.exists():
            fresh.rename(store)
    return store
