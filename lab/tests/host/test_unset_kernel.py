# SPDX-License-Identifier: GPL-2.0-or-later
"""With CONFIG_RAMSLICE=n the patched source is the unpatched kernel, object by object."""

import subprocess

import pytest

from ramlab.kernel import objects

# What a compiler makes of a line number, a constant and an initcall
SOURCE = """
void warn(const char *file, int line);
int __initcall__kmod_{name}__7_{line}_one6(int x)
{{
#line {line}
	if (x > 5) warn("a.c", __LINE__); return x {op};
}}
"""


def compiled(folder, line=700, op="<< 5", name="mmap"):
    """An object of these."""
    path = folder / f"{line}-{name}-{len(op)}-{op[0]}{op[-1]}.o"
    text = SOURCE.format(line=line, op=op, name=name)
    subprocess.run(["gcc", "-O2", "-x", "c", "-c", "-o", path, "-"], input=text, text=True,
                   check=True)
    return path


def test_line_numbers_that_a_patch_has_moved_make_no_other_code(tmp_path):
    assert objects.same_code(compiled(tmp_path), compiled(tmp_path, line=703))


@pytest.mark.parametrize("other", [
    {"op": "<< 6"}, {"op": ">> 5"}, {"op": "<< 5 ^ 1"}, {"line": 690}, {"line": 1700},
    {"name": "mremap"},
], ids=str)
def test_other_code_is_seen_to_differ(tmp_path, other):
    assert not objects.same_code(compiled(tmp_path), compiled(tmp_path, **other))


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_code_of_every_object_is_as_unpatched():
    stock, unset = (objects.tree_of(flavour) for flavour in ("stock", "unset"))
    lone, differ, nr = objects.differing(stock, unset)
    assert (lone, differ) == ([], [])
    assert nr > 1000


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_code_of_a_patched_object_is_seen_to_differ():
    """With CONFIG_RAMSLICE=y the hooks are in it."""
    stock, plain = (objects.tree_of(flavour) for flavour in ("stock", "plain"))
    assert not objects.same_code(stock / "mm/page_alloc.o", plain / "mm/page_alloc.o")
    assert objects.same_code(stock / "mm/mincore.o", plain / "mm/mincore.o")
