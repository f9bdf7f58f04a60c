"""Sets, deques, methods and inner functions from outside: rows.

In: such an object, read for the first time, and its source. Out: what
stands for it, guarded by what that tells. PyTorch's are in
torch/_dynamo/variables/builder.py.
"""

from __future__ import annotations

import types
from collections import deque
from dataclasses import dataclass

from ...core.source import Attribute, Source
from ..constant_types import BOUND, is_constant
from ..reasons import unsupported
from ..reconstruct import REPLACED, Rebuild
from ..side_effects import FIRST, READ, Copy, Outside

# Deques and sets


def queue(outside: Outside, real: deque, source: Source) -> deque:
    """A deque, copied as lists are."""
    outside.guard(Attribute(source, "maxlen"), "equal", real.maxlen)
    return outside.sequence(real, source, deque((), real.maxlen))


@dataclass(frozen=True)
class SetCopy(Copy):
    """A set; its copy may have another order than the set's own."""

    order: tuple = ()


def constants(outside: Outside, real: set | frozenset, source: Source):
    """A set of constants, copied; its order is guarded, too."""
    if not all(map(is_constant, real)):
        raise unsupported("attribute", f"a set of objects, {source},")
    outside.guard(source, "keys", tuple(real))
    value = outside.remember(real, type(real)([*real]), source)
    outside.copies.append(SetCopy(source, tuple(value), value, tuple(real)))
    return value


def set_in_order(outside: Outside, value: set | frozenset):
    """A set, or its elements if a copy has them in another order."""
    for copy in outside.copies:
        if copy.now is value and copy.order != copy.before:
            if copy.changed():
                raise unsupported("effect", "iterating over a set")
            return [*copy.order]
    return value


def elements_changed(rebuild: Rebuild, mine: str, copy: Copy) -> list[str]:
    """A set from outside, given what is new and rid of what is gone."""
    gone = [each for each in copy.before if each not in copy.now]
    new = [each for each in copy.now if each not in {*copy.before}]
    return [f"{mine}.{change}([{rebuild.values(items)}])"
            for change, items in (("update", new), (
                "difference_update", gone)) if items]


FIRST |= {deque: queue, set: constants, frozenset: constants}
READ |= {set: set_in_order, frozenset: set_in_order}
REPLACED |= {set: elements_changed, deque: lambda rebuild, mine, copy: [
    f"{mine}.clear()", f"{mine}.extend([{rebuild.values(copy.now)}])"]}

# Methods and functions that are made anew at every use


def bound_method(outside: Outside, real: types.MethodType, source: Source):
    """A bound method, its function and its object read apart."""
    function = outside.admit(real.__func__, Attribute(source, "__func__"))
    owner = outside.admit(real.__self__, Attribute(source, "__self__"))
    return types.MethodType(function, owner)


def c_method(outside: Outside, real, source: Source):
    """A method written in C: its object read, and bound again."""
    outside.guard(Attribute(source, "__name__"), "equal", real.__name__)
    owner = outside.admit(real.__self__, Attribute(source, "__self__"))
    found = getattr(owner, real.__name__, None)
    if not isinstance(found, BOUND):
        raise unsupported("attribute", f"{source}, bound to an object,")
    return found


def inner(outside: Outside, real: types.FunctionType, source: Source):
    """A function known by its code: its next closure is as good."""
    for name in ("__code__", "__globals__"):
        outside.guard(Attribute(source, name), "is", getattr(real, name))
    for name in ("_torchdynamo_disable", "_torchdynamo_orig_callable"):
        if name not in vars(real):
            outside.lacks(Attribute(source, "__dict__"), name)
    return outside.remember(real, real, source)


FIRST |= {types.MethodType: bound_method, types.FunctionType: inner,
          **dict.fromkeys(BOUND, c_method)}
