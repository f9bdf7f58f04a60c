"""Globals, cells and closures: where a name that is no local is found.

In: a module's globals, a function or a cell. Out: the value of a name, or
its source. What existed before the call is read, and written, through the
outside. PyTorch has
torch/_dynamo/symbolic_convert.py:InstructionTranslatorBase for them.
"""

from __future__ import annotations

import types

from ..core.source import Attribute, Item
from .constant_types import ABSENT, contents
from .reasons import Raised


def load_global(tracer, names: dict, name: str):
    """A global or builtin name."""
    overlay = tracer.outside.globals(names)
    value = tracer.outside.read(overlay, name)
    if value is not ABSENT:
        return value
    builtins = names.get("__builtins__", {})
    builtins = getattr(builtins, "__dict__", builtins)
    if name not in builtins:
        raise Raised(NameError(f"name {name!r} is not defined"))
    return builtins[name]


def closure(tracer, function: types.FunctionType) -> tuple:
    """A function's cells, known to be outside if they are."""
    cells = function.__closure__ or ()
    if cells and not tracer.is_made(function):
        base = Attribute(tracer.outside.found_at(function), "__closure__")
        for index, cell in enumerate(cells):
            if not tracer.is_made(cell):
                tracer.outside.admit(cell, Item(base, index))
    return cells


def load_cell(tracer, cell: types.CellType, name: str):
    """A cell's content."""
    if tracer.outside.is_outside(cell):
        value = tracer.outside.read(tracer.outside.attributes(cell),
                                    "cell_contents")
    else:
        value = contents(cell).get("cell_contents", ABSENT)
    if value is ABSENT:
        raise Raised(NameError(f"free variable {name!r} is not set"))
    return value


def store_cell(tracer, cell: types.CellType, value) -> None:
    """Set a cell's content; outside, the write waits for the end."""
    if tracer.outside.is_outside(cell):
        tracer.outside.write(tracer.outside.attributes(cell),
                             "cell_contents", value)
    else:
        cell.cell_contents = value
