"""A compiled module: itself a module, which holds the user's.

In: a module, and what makes a compiled function of `(module, *args)`.
Out: a module whose calls are compiled. All else is the user's module:
attributes are read, set and deleted there, so that both always agree.
PyTorch's is OptimizedModule in torch/_dynamo/eval_frame.py.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

from torch import nn


class OptimizedModule(nn.Module):
    """A module whose calls are compiled; all else is `_orig_mod`'s.

    What nn.Module keeps for itself, such as hooks, stays with the wrapper.
    Copies and pickles hold no compiled code: they compile anew.
    """

    def __init__(self, module: nn.Module, make: Callable[[], Callable]):
        super().__init__()
        del self.__dict__["training"]
        self._modules["_orig_mod"] = module
        self._compile(make)

    def _compile(self, make: Callable[[], Callable]) -> None:
        """Make `forward`, under the signature of the user's."""
        compiled, modules = make(), self._modules

        @functools.wraps(self._orig_mod.forward, updated=())
        def forward(*args, **kwargs):
            return compiled(modules["_orig_mod"], *args, **kwargs)

        self.__dict__.update(_make=make, _compiled=compiled,
                             forward=forward)

    def stats(self):
        """What has happened to this module's compiled calls."""
        return self._compiled.stats()

    @property
    def cache(self):
        """The compiled entries."""
        return self._compiled.cache

    def __getattr__(self, name: str):
        held = self.__dict__["_modules"]["_orig_mod"]
        return held if name == "_orig_mod" else getattr(held, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name in ("_orig_mod", "__dict__", *self.__dict__):
            super().__setattr__(name, value)
        else:
            setattr(self._orig_mod, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._orig_mod, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})

    def __getstate__(self) -> dict:
        return {name: value for name, value in self.__dict__.items()
                if name not in ("_compiled", "_compiled_call_impl",
                                "forward")}

    def __setstate__(self, state: dict) -> None:
        super().__setstate__(state)
        self._compile(self._make)
