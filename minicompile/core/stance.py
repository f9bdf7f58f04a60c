"""What compiled functions do at a call: the stance of this process.

In: its name. Out: nothing; the next call of every compiled function goes
by it. For trying out what compilation changes, and for a program that has
warmed up and must not stop to compile.
PyTorch's is set_stance in torch/compiler/__init__.py.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable

from .errors import one_of

#: What each stance makes of a call that no entry fits.
STANCES = {
    "default": "compile",
    "force_eager": "eager, as is every other call",
    "eager_on_recompile": "eager",
    "fail_on_recompile": "RecompileLimit",
}

current = "default"


def now() -> str:
    """The stance for a call that no entry fits: ours, or torch.compiler's.

    That one is read where PyTorch keeps it, if its compiler is loaded.
    """
    theirs = sys.modules.get("torch._dynamo.eval_frame")
    return current if current != "default" or theirs is None else (
        theirs._stance.stance)


def switch(stance: str) -> None:
    """Take a stance, for all threads."""
    global current
    one_of("stance", stance, STANCES)
    current = stance


switch._torchdynamo_disable = True  # compiled code stops for it


class set_stance:
    """Take a stance: for good, in a `with` block, or for a function.

    `set_stance("force_eager")` may be called, entered or used as a
    decorator. An unknown name is an OptionError.
    """

    def __init__(self, stance: str = "default"):
        self.stance, self.before = stance, current
        switch(stance)

    def __call__(self, function: Callable) -> Callable:
        switch(self.before)

        @functools.wraps(function)
        def standing(*args, **kwargs):
            with set_stance(self.stance):
                return function(*args, **kwargs)
        return standing

    def __enter__(self) -> None:
        switch(self.stance)

    def __exit__(self, *error: object) -> None:
        switch(self.before)
