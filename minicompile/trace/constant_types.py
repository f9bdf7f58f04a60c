"""The kinds of Python objects, and the facts known about each.

In: a Python object. Out: whether it is a constant, an identity, a library
object that never changes, or a function created at every use; or the
facts of a tensor. Some classes are the interpreter's own: no program has
their instances. PyTorch's are torch/_dynamo/trace_rules.py and
torch/_dynamo/utils.py.
"""

from __future__ import annotations

import builtins
import enum
import functools
import keyword
import re
import sys
import types
import typing

import torch

from ..core.guard import CONSTANTS, TensorFacts

#: Objects that are what they are: guarded by identity.
IDENTITIES = (type, types.ModuleType, types.FunctionType,
              types.BuiltinFunctionType, types.MethodDescriptorType,
              types.WrapperDescriptorType, types.MethodWrapperType,
              types.GetSetDescriptorType, types.ClassMethodDescriptorType,
              enum.Enum, re.Pattern, torch._ops.OpOverload,
              torch._ops.OpOverloadPacket, torch._C._SDPBackend,
              types.GenericAlias, types.UnionType, typing._Final,
              typing.TypeVar, frozenset,
              staticmethod, classmethod, property)

#: Methods written in C, bound to an object.
BOUND = (types.BuiltinFunctionType, types.MethodWrapperType)

#: The kinds of `__self__` of C functions that are no methods.
OWNERS = (types.ModuleType, type, type(None),
          type(torch._C._get_tracing_state.__self__))

ABSENT = object()


def is_bound(value: object) -> bool:
    """Whether this is a method written in C, bound to an object."""
    return isinstance(value, BOUND) and not isinstance(
        value.__self__, OWNERS)


def taken(name: str, value: object) -> bool:
    """Whether a name means something else in generated text."""
    return (keyword.iskeyword(name)
            or name in ("L", "F", "outputs", "finish", "graph", "run",
                        "math", "torch", "disjoint_memory")
            or getattr(builtins, name, value) is not value)


def facts(real: torch.Tensor, fake: torch.Tensor) -> TensorFacts:
    """A graph's assumptions about a tensor that this fake one models."""
    shape, stride = (tuple(None if isinstance(n, torch.SymInt) else n
                           for n in numbers)
                     for numbers in (fake.shape, fake.stride()))
    return TensorFacts(type(real), real.dtype, real.device, shape, stride,
                       real.requires_grad)


@functools.cache
def trusted(name: str | None) -> bool:
    """Whether a module's functions and classes never change.

    True of torch, the standard library and this package but for its
    models: patching them is not noticed, and no line is the user's.
    """
    root = (name or "").partition(".")[0]
    ours = root == "minicompile" and not name.endswith(".models")
    return ours or root == "torch" or (
        root in sys.stdlib_module_names - {"__main__"})


def contents(cell: types.CellType) -> dict:
    """A cell as a namespace of one name, or of none if it is empty."""
    try:
        return {"cell_contents": cell.cell_contents}
    except ValueError:
        return {}


def passing(value: object) -> bool:
    """Whether a value is of a kind that programs create at every use."""
    return type(value) is frozenset or (
        type(value) is types.FunctionType
        and "<" in value.__code__.co_qualname)  # whatever it wraps


def is_constant(value: object) -> bool:
    """Whether a value never changes, at any depth."""
    if isinstance(value, tuple):
        return all(map(is_constant, tuple.__iter__(value)))
    return type(value) in CONSTANTS or isinstance(
        value, (*IDENTITIES, int, str))


# Objects that only the interpreter holds


class Null:
    """CPython's stack entry below a callable that has no `self`."""

    def __repr__(self) -> str:
        return "NULL"


NULL = Null()


def made_tuple(kind: type, values) -> tuple:
    """A tuple of a class of its own, made without its `__new__`."""
    if kind is torch.Size or hasattr(kind, "n_sequence_fields"):
        return kind(values)  # the latter: torch.return_types.max, say
    return tuple.__new__(kind, values)


class StandIn:
    """An object that the interpreter must not look into."""
