"""Sources as dictionary keys: equal ones meet, however deep they are."""

import pytest

from minicompile.core.guard import (Attribute, Call, Constant, Item, Local,
                                    Stored)
from minicompile.trace.torch.dimensions import Size

X = Local("x", 0)

#: How a source is read from another.
STEPS = [lambda x: Attribute(x, "a"), lambda x: Item(x, 0),
         lambda x: Stored(x, "k"), lambda x: Call("type", x),
         lambda x: Item(x, X), lambda x: Size(x, "shape", 0, "s0")]


@pytest.mark.parametrize("step", STEPS)
def test_a_deep_source_is_hashed_without_going_up_to_the_root(step):
    source, found = X, set()
    for _ in range(3000):
        source = step(source)
        found.add(source)
    assert len(found) == 3000 and step(source) not in found


def test_equal_sources_are_one_key():
    for step in STEPS:
        assert {step(X): 1}[step(Local("x", 0))] == 1
    assert Item(X, "k") is not Stored(X, "k")  # another way to read it
    assert len({Item(X, 1), Item(X, True), Item(X, 1.0)}) == 3
    assert len({Item(X, slice(1)), Item(X, slice(2))}) == 2
    one, other = Constant("c", [1]), Constant("c", [1])
    assert len({one, other, Constant("c", one.value)}) == 2
