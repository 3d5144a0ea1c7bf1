# SPDX-License-Identifier: GPL-2.0-or-later
"""With CONFIG_RAMSLICE=n the patched source is the unpatched kernel, object by object."""

import pytest

from ramlab.kernel import objects

pytestmark = pytest.mark.slow


def test_the_code_of_every_object_is_as_unpatched():
    stock, unset = (objects.tree_of(flavour) for flavour in ("stock", "unset"))
    lone, differ, nr = objects.differing(stock, unset)
    assert (lone, differ) == ([], [])
    assert nr > 1000


def test_the_code_of_a_patched_object_is_seen_to_differ():
    """With CONFIG_RAMSLICE=y the hooks are in it."""
    stock, plain = (objects.tree_of(flavour) for flavour in ("stock", "plain"))
    assert not objects.same_code(stock / "mm/page_alloc.o", plain / "mm/page_alloc.o")
    assert objects.same_code(stock / "mm/mincore.o", plain / "mm/mincore.o")
