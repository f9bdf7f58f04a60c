"""The recipe for the caller's result: Python text that runs afterwards.

In: what the traced function returned and what it changed outside. Out:
the graph's outputs, each tensor once, and the text of `finish(L, F,
outputs)`, which rebuilds the result from them and then performs the
writes. Objects from outside are fetched, never rebuilt, so identity
holds. PyTorch's is torch/_dynamo/codegen.py.
"""

from __future__ import annotations

import types
from collections import OrderedDict, defaultdict, deque

import torch

from ..core.sizes import SYMBOLIC
from ..core.source import Local
from .kinds import ABSENT, CONSTANTS, IDENTITIES, contents, printable
from .outside import Copy, Overlay
from .reasons import unsupported
from .stand_ins import STAND_INS, as_tuple

#: Classes whose `__new__` makes the bare instance of a subclass.
BASES = (OrderedDict, dict, list, set, object)


class Rebuild:
    """The statements of `finish`: reads and makes first, then writes."""

    def __init__(self, tracer):
        self.tracer, self.outside = tracer, tracer.outside
        self.outputs: list[torch.Tensor] = []
        self.lines: list[str] = []
        self.names: dict[int, str | None] = {}
        self.cells: list[tuple[str, types.CellType]] = []
        self.count = 0

    def function(self, body: list[str]) -> str:
        """The text of a function: what was held, then `body`."""
        for name, cell in self.cells:
            content = contents(cell).get("cell_contents", ABSENT)
            if content is not ABSENT:
                self.lines.append(
                    f"{name}.cell_contents = {self.value(content)}")
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
        """An expression that means `value` whatever is written later."""
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
        """The expression of a value; what it needs is made before."""
        kind = type(value)
        if kind in CONSTANTS and kind is not slice:
            return repr(value) if printable(value) else self.known(value)
        source = self.outside.source(value)
        if source is not None:
            return source.code()
        if kind in SYMBOLIC:
            return self.hold(self.tracer.recorder.sizes.text(value))
        if isinstance(value, torch.Tensor):
            return self._output(value)
        if isinstance(value, IDENTITIES) and not (
                self.tracer.is_made(value) or kind is frozenset
                or self.outside.is_bound_here(value)):
            return self.known(value)
        if id(value) not in self.names:
            self.names[id(value)] = None
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

    def _output(self, value: torch.Tensor) -> str:
        """A tensor the graph computes: the same position each time."""
        for index, known in enumerate(self.outputs):
            if known is value:
                return f"outputs[{index}]"
        self.outputs.append(value)
        return f"outputs[{len(self.outputs) - 1}]"

    def _made(self, value, kind: type) -> str:
        """The name of an object that the traced program made."""
        if kind in MAKERS:
            return self.hold(MAKERS[kind](self, value))
        if isinstance(value, type):
            raise unsupported("result", f"the class {value.__name__}, "
                              "made in the function,")
        if isinstance(value, BaseException):
            return _error(self, value)
        if isinstance(value, tuple):
            return self.hold(f"{self.known(as_tuple)}("
                             f"{self.known(kind)}, "
                             f"({self.values(value)},))")
        if id(value) in self.tracer.made:
            return self._instance(value, kind)
        raise unsupported("result", f"a {kind.__name__}")

    def _instance(self, value, kind: type) -> str:
        """An object of a user's class, made without its `__init__`."""
        maker, items = self.base(kind), ""
        if issubclass(kind, dict):
            items = self.hold(f"{{{self.pairs(value)}}}")
        elif issubclass(kind, list):
            items = self.hold(f"[{self.values(list.__iter__(value))}]")
        slots = [name for each in kind.__mro__
                 for name, found in vars(each).items()
                 if type(found) is types.MemberDescriptorType]
        names = [*getattr(value, "__dict__", ()), *slots]
        state = {name: getattr(value, name) for name in names
                 if hasattr(value, name)}
        state = self.hold(f"{{{self.pairs(state)}}}")
        name = self.hold(f"{maker}.__new__({self.known(kind)})")
        if items:
            method = "extend" if issubclass(kind, list) else "update"
            self.lines.append(f"{maker}.{method}({name}, {items})")
        self.lines.append(f"{self.known(fill)}({name}, {state})")
        return name

    def base(self, kind: type) -> str:
        """The builtin class whose methods change a `kind` unseen."""
        base = next(k for k in BASES if issubclass(kind, k))
        return self.known(base) if base is OrderedDict else base.__name__

    # Writes

    def writes(self) -> list[str]:
        """Statements that change what was outside, in eager's order."""
        lines = [f"{self.known(function)}({self.values(args)})"
                 for function, args in self.outside.said]
        overlays = {id(o): o for o in self.outside.overlays.values()}
        for overlay in overlays.values():
            for key, value in self.outside.changes(overlay).items():
                if key in overlay.moved and value is not ABSENT:
                    lines.append(self._write(overlay, key, ABSENT))
                lines.append(self._write(overlay, key, value))
        for copy in list(self.outside.copies):
            lines += self._replace(copy)
        return lines

    def _write(self, overlay: Overlay, key, value) -> str:
        """One attribute or item of an object from outside, written."""
        owner, names = overlay.owner, overlay.names
        source = self.outside.source(owner) or names
        mine = self.hold(source.code())
        if overlay.kind != "attributes":
            key = self.value(self.outside.values.get(id(key), key))
            base = self.base(type(owner))
            if value is ABSENT:
                return f"{base}.pop({mine}, {key}, None)"
            value = self.hold(self.value(value))
            if type(owner).__module__ == "builtins":
                return f"{mine}[{key}] = {value}"
            return f"{base}.__setitem__({mine}, {key}, {value})"
        if value is ABSENT:
            return f"object.__delattr__({mine}, {key!r})"
        return (f"object.__setattr__({mine}, {key!r}, "
                f"{self.hold(self.value(value))})")

    def _replace(self, copy: Copy) -> list[str]:
        """A list, deque or set from outside, given its new elements."""
        if not copy.changed():
            return []
        mine = self.hold(copy.source.code())
        items = self.hold(f"[{self.values(copy.now)}]")
        if isinstance(copy.now, list):
            return [f"{mine}[:] = {items}"]
        grow = "extend" if isinstance(copy.now, deque) else "update"
        return [f"{mine}.clear()", f"{mine}.{grow}({items})"]


def _function(rebuild: Rebuild, made: types.FunctionType) -> str:
    """A closure: its code, globals and defaults, and its cells."""
    maker = rebuild.known(types.FunctionType)
    code, names = rebuild.known(made.__code__), rebuild.known(
        made.__globals__)
    cells = ("None" if made.__closure__ is None
             else f"({rebuild.values(made.__closure__)},)")
    name = rebuild.hold(f"{maker}({code}, {names}, {made.__name__!r}, "
                        f"{rebuild.value(made.__defaults__)}, {cells})")
    plain = types.FunctionType(made.__code__, made.__globals__,
                               closure=made.__closure__)
    for each in ("__kwdefaults__", "__qualname__", "__module__", "__doc__",
                 "__annotations__", "__dict__"):
        if (value := getattr(made, each)) != getattr(plain, each):
            rebuild.lines.append(f"{name}.{each} = {rebuild.value(value)}")
    return name


def _method(rebuild: Rebuild, method: types.MethodType) -> str:
    """A bound method; a stand-in's is one of what it stands for."""
    owner = rebuild.value(method.__self__)
    if isinstance(method.__self__, STAND_INS):
        return f"{owner}.{method.__name__}"
    return (f"{rebuild.known(types.MethodType)}("
            f"{rebuild.value(method.__func__)}, {owner})")


def _cell(rebuild: Rebuild, cell: types.CellType) -> str:
    """A cell, filled once all else is made: a function may be in it."""
    name = rebuild.hold(f"{rebuild.known(types.CellType)}()")
    rebuild.cells.append((name, cell))
    return name


def fill(made: object, state: dict) -> None:
    """Set attributes where they are kept, whatever the class says."""
    for name, value in state.items():
        object.__setattr__(made, name, value)


def thrown(error: BaseException) -> BaseException:
    """The exception with a traceback, which CPython counts on."""
    try:
        raise error
    except BaseException as caught:
        return caught


def _error(rebuild: Rebuild, error: BaseException) -> str:
    """An exception that the program made or caught."""
    kind = type(error)
    make, args = rebuild.known(kind), error.args
    if isinstance(kind.__init__, types.FunctionType):
        make, args = f"{make}.__new__", (kind, *args)
    name = rebuild.hold(f"{rebuild.known(thrown)}("
                        f"{make}({rebuild.values(args)}))")
    if vars(error):
        rebuild.lines.append(
            f"{name}.__dict__.update({{{rebuild.pairs(vars(error))}}})")
    for link in ("__cause__", "__context__", "__suppress_context__"):
        if getattr(error, link):
            rebuild.lines.append(
                f"{name}.{link} = {rebuild.value(getattr(error, link))}")
    return name


def _sized(opening: str, closing: str):
    return lambda r, v: f"{opening}{r.values(v)}{closing}"


#: How an object of each type is written, given a Rebuild and the object.
MAKERS = {
    list: _sized("[", "]"),
    tuple: lambda r, v: f"({r.values(v)},)" if v else "()",
    dict: lambda r, v: f"{{{r.pairs(v)}}}",
    set: _sized("set([", "])"),
    torch.Size: lambda r, v: f"{r.known(torch.Size)}([{r.values(v)}])",
    frozenset: _sized("frozenset([", "])"),
    deque: lambda r, v: f"{r.known(deque)}([{r.values(v)}], "
                        f"{v.maxlen!r})",
    OrderedDict: lambda r, v: f"{r.known(OrderedDict)}("
                              f"{{{r.pairs(v)}}})",
    defaultdict: lambda r, v: f"{r.known(defaultdict)}("
                              f"{r.value(v.default_factory)}, "
                              f"{{{r.pairs(v)}}})",
    slice: lambda r, v: f"slice({r.value(v.start)}, {r.value(v.stop)}, "
                        f"{r.value(v.step)})",
    types.MethodType: _method,
    types.FunctionType: _function,
    types.CellType: _cell,
}
