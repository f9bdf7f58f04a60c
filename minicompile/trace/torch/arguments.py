"""Arguments of operators that are no plain values: rows for the recorder.

In: NumPy's numbers, members of enumerations, graphs, an `out=`. Out: what
the node is given for them; or a refusal. PyTorch's are in
torch/_dynamo/variables/torch.py.
"""

from __future__ import annotations

import enum
import operator

import torch
from torch import fx

from ...core.scalars import SCALARS
from ..reasons import unsupported
from ..recorder import CAREFUL, CONVERSIONS, leaves

#: Functions that look at the class of a number, not only at its value.
BY_CLASS = {torch.tensor, torch.as_tensor, torch.asarray, "new_tensor",
            "__setitem__", operator.setitem}


def numpy_number(recorder, value) -> int | float:
    """A number of NumPy's as Python's own."""
    if recorder.target in BY_CLASS:
        raise unsupported("argument", type(value).__name__)
    return SCALARS[type(value)](value)


def member(recorder, value: enum.Enum) -> int | str:
    """The number or string that a member of an enumeration is."""
    if not isinstance(value, (int, str)):
        raise unsupported("argument", type(value).__name__)
    return value.value


def graph(recorder, value: fx.GraphModule) -> fx.Node:
    """A graph inside the graph."""
    name = f"graph_{len(recorder.modules)}"
    recorder.modules[name] = value
    return recorder.graph.get_attr(name)


def check_out(recorder, target, function, args, kwargs) -> None:
    """Refuse an `out=` that eager would resize, cast to, or refuse."""
    out = kwargs["out"]
    rest = {name: kwargs[name] for name in kwargs if name != "out"}
    if out is not None and kinds(out) != kinds(recorder.compute(
            target, function, args, rest)):
        raise unsupported("effect", "out= of another shape or dtype")


def kinds(value) -> list:
    """Shapes and dtypes of a tensor, or of several."""
    return [(part.shape, part.dtype) for part in leaves(value)]


CONVERSIONS[tuple(SCALARS)] = numpy_number
CONVERSIONS[enum.Enum] = member
CONVERSIONS[fx.GraphModule] = graph
CAREFUL["out"] = check_out
