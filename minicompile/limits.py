"""Whether a call may be compiled: the stance, and the limits.

In: a name from the user, and events counted by the driver. Out: what the
next calls do, and what `compiled.stats()` shows. A program that has
warmed up must not stop to compile, and one that compiles for every call is
slower than eager. PyTorch's are set_stance in torch/compiler/__init__.py
and torch/_dynamo/cache_size.py.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from .core.errors import one_of
from .core.options import Options

#: How each stance runs a call that no entry fits.
STANCES = {
    "default": "compile",
    "force_eager": "eager, as is every other call",
    "eager_on_recompile": "eager",
    "fail_on_recompile": "RecompileLimit",
    "eager_then_compile": "eager the first time, then compile",
    "aot_eager_then_compile": "eager the first time, then compile",
}

#: Under these the first call of a function only shows its sizes.
EAGER_FIRST = ("eager_then_compile", "aot_eager_then_compile")

ours = "default"


def now() -> str:
    """The stance for a call that no entry fits: ours, or torch.compiler's.

    That one is read where PyTorch keeps it, if its compiler is loaded.
    """
    theirs = sys.modules.get("torch._dynamo.eval_frame")
    return ours if ours != "default" or theirs is None else (
        theirs._stance.stance)


def take(stance: str) -> None:
    """Take a stance, for all threads."""
    global ours
    one_of("stance", stance, STANCES)
    ours = stance


take._torchdynamo_disable = True  # compiled code stops for it


class set_stance:
    """Take a stance: for good, in a `with` block, or for a function.

    `set_stance("force_eager")` may be called, entered or used as a
    decorator. An unknown name is an OptionError.
    """

    def __init__(self, stance: str = "default"):
        self.stance, self.before = stance, ours
        take(stance)

    def __call__(self, function: Callable) -> Callable:
        take(self.before)

        @functools.wraps(function)
        def standing(*args, **kwargs):
            with set_stance(self.stance):
                return function(*args, **kwargs)
        return standing

    def __enter__(self) -> None:
        take(self.stance)

    def __exit__(self, *error: object) -> None:
        take(self.before)


FULL = """{name} was compiled {count} times, which is its {limit}. A call
that fits none of its graphs runs as eager from now on. Reasons so far:
{reasons}
  hint: let sizes be dynamic, pass numbers that vary as tensors, or set
  options={{"{limit}": ...}}"""


@dataclass
class Stats:
    """Counts of what has happened to a compiled function."""

    graphs: int = 0
    shared: int = 0  # those taken from another module of the same class
    recompiles: int = 0
    reasons: list[str] = field(default_factory=list)  # of recompiles
    dynamic: list[str] = field(default_factory=list)  # the new symbols
    graph_breaks: int = 0
    kernels: int = 0
    fallbacks: Counter = field(default_factory=Counter)
    replays: Counter = field(default_factory=Counter)

    def too_many(self, name: str, kept: int, made: int, options: Options,
                 reasons: list[str]) -> str:
        """Why no further entry is made; "" allows an entry and counts it.

        `kept` entries are cached, `made` were made. A limit that the user
        has not set is torch.compile's, if that is loaded.
        """
        limits = {"recompile_limit": kept,
                  "accumulated_recompile_limit": made}
        self.reasons += reasons
        theirs = sys.modules.get("torch._dynamo.config")
        for limit, count in limits.items():
            allowed = getattr(options, limit)
            if allowed == getattr(Options, limit):
                allowed = getattr(theirs, limit, allowed)
            if count >= allowed:
                return FULL.format(name=name, count=count, limit=limit,
                                   reasons="\n".join(self.reasons))
        self.recompiles += 1
        return ""
