"""What a program says to the compiler: break here, leave this alone.

In: nothing, or a function. Out: nothing, or a function that a trace does
not enter. They do nothing when code runs as it is. PyTorch's are
torch/_dynamo/decorators.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from .reasons import unsupported
from .rules import rule


def graph_break(reason: str = "") -> None:
    """Where this is called, one graph ends and the next begins."""


@rule(graph_break)
def _graph_break(tracer, reason: str = ""):
    raise unsupported("asked", reason or "graph_break()")


def disable(function: Callable | None = None, *, reason: str = ""):
    """`function` as it is, which compiled code calls without entering.

    Also a decorator, with or without arguments, as torch.compiler's.
    """
    if function is None:
        return functools.partial(disable, reason=reason)

    @functools.wraps(function)
    def disabled(*args, **kwargs):
        return function(*args, **kwargs)

    disabled._torchdynamo_disable = True  # torch.compile heeds it, too
    disabled._torchdynamo_disable_msg = reason or None
    return disabled


def refuse_disabled(function: Callable) -> None:
    """Raise Unsupported for a function that is not to be entered."""
    if getattr(function, "_torchdynamo_disable", False):
        why = getattr(function, "_torchdynamo_disable_msg", None)
        name = (uncompiled(function) or function).__qualname__
        raise unsupported("disabled", f"{name} ({why})" if why else name)


def uncompiled(function: Callable) -> Callable | None:
    """What was compiled, by us or by torch.compile, to make `function`."""
    return vars(function).get("_torchdynamo_orig_callable")
