"""From the arguments of a call to the function's local values.

In: a function. Out: another of the same signature, which returns what the
parameters of the first would hold. Python binds them; nothing is inspected
at a call.
PyTorch has this done by CPython, as it replaces frames: see
torch/csrc/dynamo/eval_frame.c.
"""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable

DEFAULTS = ("__defaults__", "__kwdefaults__")


def positional_count(function: types.FunctionType) -> int:
    """How many arguments, all positional, are the locals as they are."""
    code = function.__code__
    stars = code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS)
    return -1 if stars or code.co_kwonlyargcount else code.co_argcount


def make_bind(function: types.FunctionType) -> Callable:
    """A function of the same signature that returns its local values.

    They come in the order of `co_varnames`: positional, keyword-only,
    then the tuple and the dict of those left over.
    """
    code = function.__code__
    parameters = inspect.signature(types.FunctionType(
        code, {}, closure=function.__closure__))  # without defaults
    names = code.co_varnames[:len(parameters.parameters)]
    values = "".join(f"{name}, " for name in names)
    scope: dict = {}
    exec(f"def bind{parameters}: return ({values})", scope)
    made = scope["bind"]

    def bind(*args, **kwargs):
        for name in DEFAULTS:  # they may be others by now
            if getattr(made, name) is not getattr(function, name):
                setattr(made, name, getattr(function, name))
        return made(*args, **kwargs)

    has_none = not any(getattr(function, name) for name in DEFAULTS)
    return made if has_none else bind
