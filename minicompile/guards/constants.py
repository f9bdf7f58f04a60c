"""When two constants are the same to a program that looks closely.

In: a Python value. Out: its fingerprint, equal exactly for values that no
program can tell apart: 1, 1.0 and True differ, 0.0 and -0.0 differ, a NaN
is itself. A value that is no constant has no fingerprint, for its
__eq__ could say anything.
PyTorch does this with EQUALS_MATCH in torch/_dynamo/guards.py.
"""

from __future__ import annotations

import enum
import math
import struct
import types

import torch

from ..core.errors import Unsupported
from ..core.scalars import SCALARS

#: Equality of these tells all there is to tell.
EXACT = (int, bool, str, bytes, type(None), type(...), type(NotImplemented),
         torch.dtype, torch.device, torch.layout, torch.memory_format,
         range)

#: These are compared as objects: there is one of each.
UNIQUE = (type, enum.Enum, types.FunctionType, types.BuiltinFunctionType,
          types.ModuleType, types.CodeType)

bits = struct.Struct("d").pack


def fingerprint(value: object) -> object:
    """Something hashable, equal only for indistinguishable values."""
    kind = type(value)
    if kind in EXACT:
        return kind, value
    if kind is float:
        return kind, bits(value)
    if kind is complex:
        return kind, bits(value.real), bits(value.imag)
    if kind in SCALARS:
        return kind, value.tobytes()
    if kind is slice:
        return kind, fingerprint((value.start, value.stop, value.step))
    if issubclass(kind, tuple) or kind in (frozenset, set):
        return kind, tuple(map(fingerprint, value))
    if issubclass(kind, UNIQUE):
        return kind, id(value)
    raise Unsupported("guard", f"a {kind.__name__} is not a constant that "
                      "a guard can compare by value")


def plain(value: object) -> bool:
    """Whether `type(x) is type(value) and x == value` is exact."""
    if type(value) is float:
        return math.isfinite(value) and value != 0
    return type(value) in (int, str, bytes, torch.device)


def single(value: object) -> bool:
    """Whether there is one object of this value, so that `is` tells."""
    return value is None or isinstance(value, (
        bool, type(...), torch.dtype, torch.layout, torch.memory_format,
        enum.Enum))
