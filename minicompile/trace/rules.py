"""The meaning of operators and builtins in a trace: a table of rules.

In: a callable. Out: its rule, if it has one: a function of the tracer and
the arguments. An operator asks the methods that Python would ask, in the
same order, and follows those written in Python. `HARMLESS` lists the C
functions that may run natively: they change nothing and look only at
their arguments. PyTorch's tables are torch/_dynamo/trace_rules.py.
"""

from __future__ import annotations

import builtins
import functools
import inspect
import operator
import os
import types
from collections import defaultdict, deque

import torch

from ..core.sizes import SYMBOLIC
from .constant_types import ABSENT, CONSTANTS
from .reasons import WAYS, Raised, unsupported
from .symbolic_shapes import settled

#: Modules whose C functions only compute.
SAFE_OWNERS = {"math", "cmath", "_operator", "itertools", "_collections",
               "_functools", "_bisect", "_heapq", "_string", "operator",
               "binascii", "_struct", "zlib", "unicodedata"}

#: C functions and classes that may run natively.
HARMLESS: set = {getattr(builtins, name) for name in """all any bin
    bytearray bytes chr classmethod divmod enumerate filter hex list map
    max min oct ord pow property range slice sorted staticmethod sum tuple
    zip""".split()} | {
    os.fspath, deque, defaultdict, types.MappingProxyType,
    torch.Size, torch.device, torch.finfo,
    torch.iinfo, torch.is_grad_enabled, torch.get_default_dtype,
    torch._C._get_privateuse1_backend_name,
    torch._C._has_torch_function, torch._C._has_torch_function_unary,
    torch._C._has_torch_function_variadic}

RULES: dict[int | tuple[str, str], object] = {}
_held: list[object] = []


def rule(*functions):
    """Let the decorated function be what calling `functions` means.

    One that is not to be imported for it is given by the module and the
    qualified name of its code; the rule of a closure gets it first.
    """
    def register(meaning):
        for function in functions:
            RULES[function if type(function) is tuple
                  else id(function)] = meaning
            _held.append(function)
        return meaning
    return register


def registered(function):
    """The rule of a callable, or None."""
    found = RULES.get(id(function))
    if found is None and type(function) is types.FunctionType:
        name = function.__code__.co_qualname
        found = RULES.get((function.__globals__.get("__name__"), name))
        if found is not None and "<locals>" in name:
            return functools.partial(found, function)
    return found


def apply(tracer, rule, args: tuple, kwargs: dict):
    """A rule's result; wrong arguments are the program's TypeError."""
    try:
        return rule(tracer, *args, **kwargs)
    except TypeError:
        try:
            inspect.signature(rule).bind(tracer, *args, **kwargs)
        except TypeError as error:
            raise Raised(error) from None
        raise


# Operators

ARITHMETIC = ("add", "and_", "floordiv", "lshift", "matmul", "mul", "mod",
              "or_", "pow", "rshift", "sub", "truediv", "xor")

COMPARISONS = {operator.lt, operator.le, operator.gt, operator.ge,
               operator.eq, operator.ne}

#: In-place operators, and the operators they fall back on.
INPLACE = {getattr(operator, f"i{name.strip('_')}"): getattr(operator, name)
           for name in ARITHMETIC}

#: Classes whose operators are C's, whatever is on the other side.
PLAIN = CONSTANTS.union(SYMBOLIC, (tuple, torch.Size))


def binary(tracer, op, left, right):
    """`left op right` of tensors and constants; or as the row says."""
    kinds = type(left), type(right)
    if str in kinds and op in (operator.mod, operator.imod):
        return WAYS["operator"](tracer, op, left, right)
    if PLAIN.issuperset(kinds):
        if bool in kinds:  # True == a symbol
            left, right = settled(left), settled(right)
        deep = op in COMPARISONS and CONSTANTS.isdisjoint(kinds)
        return tracer.natively(op, (left, right), depth=int(deep))
    for one, other in ((left, right), (right, left)):
        if isinstance(one, torch.Tensor) and (
                type(other) in PLAIN or isinstance(other, torch.Tensor)):
            return tracer.recorder.function(
                op if one is left else INPLACE.get(op, op), (left, right),
                {})
    return WAYS["operator"](tracer, op, left, right)


# Methods that a function or an operator asks its first argument

#: Operators that give a tensor if they are given one.
UNARY = (operator.neg, operator.pos, operator.invert, operator.abs, abs,
         round)
ITEMS = (operator.getitem, operator.setitem, operator.delitem)

#: Functions that ask a method of their first argument, and how deep they
#: look if it is written in C.
ASKING = {
    **dict.fromkeys((*UNARY, *ITEMS, reversed, len, int, float,
                     operator.index), 0),
    **dict.fromkeys((complex, str, repr, ascii, format), 2)}


def ask(tracer, function, *values, **more):
    """The result of a method in Python or with a rule, or of the C code."""
    name = "repr" if function is ascii else function.__name__
    if not values:
        return tracer.native(function, (), more)
    if isinstance(values[0], torch.Tensor) and function in (*UNARY, *ITEMS):
        return tracer.recorder.function(function, values, more)
    answer = tracer.asked(f"__{name}__", *values)
    return answer if answer is not ABSENT else tracer.natively(
        function, values, more, ASKING.get(function, 0))


def means(meaning, *functions):
    """Let `meaning` be the rule of these, and learn which one is called."""
    for function in functions:
        rule(function)(lambda tracer, *values, _function=function, **more:
                       meaning(tracer, _function, *values, **more))


means(binary, *INPLACE, *INPLACE.values(), *COMPARISONS)
means(ask, *ASKING)
rule(operator.truth, bool)(lambda tracer, *value: tracer.truth(*value))
rule(object.__init__)(lambda tracer, owner, *args, **kwargs: None)


@rule(iter)
def _iter(tracer, value, *sentinel):
    if sentinel:
        raise unsupported("builtin", "iter with a sentinel")
    return tracer.iterate(value)
