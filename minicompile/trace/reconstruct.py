"""The recipe for the caller's result: Python text that runs afterwards.

In: what the traced function returned and what it changed outside. Out:
the graph's outputs, each tensor once, and the text of `finish(L, F,
outputs)`, which rebuilds the result from them and then performs the
writes. Objects from outside are fetched, never rebuilt, so identity
holds. PyTorch's is torch/_dynamo/codegen.py.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from ..core.sizes import SYMBOLIC
from ..core.guard import Local, printable
from .constant_types import CONSTANTS, IDENTITIES, is_bound
from .reasons import unsupported


class Rebuild:
    """The statements of `finish`: reads and makes first, then writes."""

    unfinished: str | None = None  # the name of what is being made

    def __init__(self, tracer):
        self.tracer, self.outside = tracer, tracer.outside
        self.outputs: list[torch.Tensor] = []
        self.lines: list[str] = []
        self.names: dict[int, str | None] = {}
        self.later: list[Callable] = []  # writers of the last lines
        self.count = 0

    def function(self, body: list[str]) -> str:
        """The text of `finish`: the held values, then `body`."""
        for write in self.later:
            write()
        return "\n    ".join(["def finish(L, F, outputs):", *self.lines,
                              *body]) + "\n"

    def fresh(self) -> str:
        """A name that nothing has yet."""
        self.count += 1
        return f"v{self.count - 1}"

    def hold(self, text: str) -> str:
        """Compute `text` now, before anything is written: its name."""
        name = self.fresh()
        self.lines.append(f"{name} = {text}")
        return name

    def local(self, value) -> str:
        """An expression for `value` that later writes do not change."""
        source = self.outside.source(value)
        if source is None or isinstance(source, Local):
            return self.value(value)
        if id(value) not in self.names:
            self.names[id(value)] = self.hold(source.code())
        return self.names[id(value)]

    def known(self, value) -> str:
        """The name of an object that existed before and never changes."""
        if self.tracer.is_made(value):
            raise unsupported("result", f"{value!r}, made in the function,")
        name = getattr(value, "__name__", None) or type(value).__name__
        return self.outside.constant(value, name).code()

    # Values

    def value(self, value) -> str:
        """The expression of a value; holds the parts that it needs."""
        kind = type(value)
        if kind in CONSTANTS and kind is not slice:
            return repr(value) if printable(value) else self.known(value)
        source = self.outside.source(value)
        if source is not None:
            return source.code()
        if kind in SYMBOLIC:
            return self.hold(self.tracer.recorder.sizes.text(value))
        if isinstance(value, torch.Tensor):
            if id(value) not in self.names:
                self.names[id(value)] = f"outputs[{len(self.outputs)}]"
                self.outputs.append(value)
            return self.names[id(value)]
        if isinstance(value, IDENTITIES) and not (
                self.tracer.is_made(value) or kind is frozenset
                or is_bound(value)):
            return self.known(value)
        if id(value) not in self.names:
            self.names[id(value)] = self.unfinished
            self.names[id(value)] = self._made(value, kind)
        name = self.names[id(value)]
        if name is None:
            raise unsupported("result", f"a {kind.__name__} in itself")
        return name

    def values(self, values) -> str:
        """Expressions separated by commas."""
        return ", ".join(map(self.value, values))

    def pairs(self, mapping: dict) -> str:
        """`key: value` expressions separated by commas."""
        return ", ".join(f"{self.value(k)}: {self.value(v)}"
                         for k, v in dict.items(mapping))

    def _made(self, value, kind: type) -> str:
        """The name of an object that the traced program made."""
        makers = [MAKERS[kind]] if kind in MAKERS else [
            DERIVED[each] for each in kind.__mro__ if each in DERIVED]
        if not makers:
            raise unsupported("result", f"a {kind.__name__}")
        text = makers[0](self, value)
        return text if text.isidentifier() else self.hold(text)


#: How an object of a class is written, given a Rebuild and the object.
MAKERS = {
    list: lambda r, v: f"[{r.values(v)}]",
    tuple: lambda r, v: f"({r.values(v)},)" if v else "()",
    dict: lambda r, v: f"{{{r.pairs(v)}}}"}

#: The same for every class derived from one of these, the nearest first.
DERIVED: dict[type, Callable] = {}
