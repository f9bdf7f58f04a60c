"""The recipe for the caller's result: Python text that runs afterwards.

In: what the traced function returned and what it changed outside. Out:
the graph's outputs, each tensor once, and the text of `finish(L, F,
outputs)`, which rebuilds the result from them and then performs the
writes. Objects from outside are fetched, never rebuilt, so identity
holds. PyTorch's is torch/_dynamo/codegen.py.
"""

import types
from collections.abc import Callable

import torch

from ..core.guard import CONSTANTS, IDENTITIES, is_a, printable
from .reasons import unsupported
from .side_effects import is_bound


class Rebuild:
    """The statements of `finish`: reads and makes first, then writes."""

    unfinished: str | None = None  # the name of what is being made

    def __init__(self, tracer):
        self.tracer, self.outside = tracer, tracer.outside
        self.outputs: list[torch.Tensor] = []
        self.lines: list[str] = []
        self.names: dict[int, str | None] = {}
        self.later: list[Callable] = []  # writers of the last lines
        self.behind: list[str] = []  # what waits until all is written
        self.named: list[object] = []  # whose ids stay valid

    def function(self, writes: list[str], *ends: str) -> str:
        """The text of `finish`: held values, writes, and how it ends."""
        for write in self.later:
            write()
        return "\n    ".join(["def finish(L, F, outputs):", *self.lines,
                              *writes, *self.behind, *ends]) + "\n"

    def hold(self, text: str) -> str:
        """Compute `text` now, before anything is written: its name."""
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {text}")
        return name

    def known(self, value) -> str:
        """The name of an object that existed before and never changes."""
        if self.tracer.is_made(value):
            raise unsupported("result", f"{value!r}, made in the function,")
        if type(value) in METHODS and value.__objclass__ in BUILTINS:
            return value.__qualname__
        return self.outside.constant(value).code()

    def call(self, function, *args) -> str:
        """The text of a call."""
        return f"{self.known(function)}({self.values(args)})"

    # Values

    def value(self, value) -> str:
        """An expression of a value, which later writes do not change."""
        kind = type(value)
        if kind in CONSTANTS and kind is not slice:
            return repr(value) if printable(value) else self.known(value)
        if id(value) not in self.names:
            self.named.append(value)
            self.names[id(value)] = self.unfinished
            self.names[id(value)] = self._name(value, kind)
        name = self.names[id(value)]
        if name is None:
            raise unsupported("result", f"a {kind.__name__} in itself")
        return name

    def values(self, values) -> str:
        """Expressions separated by commas."""
        return ", ".join(map(self.value, values))

    def _name(self, value, kind: type) -> str:
        """The name of a value; what it is made of is held, too."""
        value = self.outside.values.get(id(value), value)  # a dict's key
        if (source := self.outside.source(value)) is not None:
            text = source.code()
            return text if source.base is None else self.hold(text)
        if issubclass(kind, torch.Tensor):
            self.outputs.append(value)
            return f"outputs[{len(self.outputs) - 1}]"
        if is_a(value, IDENTITIES) and not (
                self.tracer.is_made(value) or kind is frozenset
                or is_bound(value)):
            return self.known(value)
        text = self._made(value, kind)
        return text if text.isidentifier() else self.hold(text)

    def _made(self, value, kind: type) -> str:
        """The text of an object that the traced program made."""
        makers = [MAKERS[kind]] if kind in MAKERS else [
            DERIVED[each] for each in kind.__mro__ if each in DERIVED]
        if not makers:
            raise unsupported("result", f"a {kind.__name__}")
        made = makers[0](self, value)
        return made if type(made) is str else self.call(*made)


#: Methods in C, and the classes whose methods any module can name.
METHODS = types.MethodDescriptorType, types.WrapperDescriptorType
BUILTINS = {object, dict, list, set}

#: How an object of a class is made, given a Rebuild and the object: the
#: text; or a function and its arguments.
MAKERS = {
    list: lambda r, v: f"[{r.values(v)}]",
    tuple: lambda r, v: f"({r.values(v)},)" if v else "()",
    dict: lambda r, v: "{{{}}}".format(", ".join(
        f"{r.value(key)}: {r.value(each)}" for key, each in v.items()))}

#: The same for every class derived from one of these, the nearest first.
DERIVED: dict[type, Callable] = {}
