"""The recipe for the caller's result: Python text that runs afterwards.

In: what the traced function returned and what it changed outside. Out:
the graph's outputs, each tensor once, and the text of `finish(L, F,
outputs)`, which rebuilds the result from them and then performs the
writes. Objects from outside are fetched, never rebuilt, so identity
holds; what C code made is made as pickle would make it. PyTorch's is
torch/_dynamo/codegen.py.
"""

from __future__ import annotations

import gc
import types
import warnings
from collections import OrderedDict

import torch

from ..core.sizes import SYMBOLIC
from ..core.source import Local
from .kinds import (ABSENT, CONSTANTS, IDENTITIES, contents, is_bound,
                    printable)
from .reasons import unsupported
from .side_effects import Copy, Namespace
from .stand_ins import STAND_INS, Callback, Iteration, as_tuple

#: Classes whose `__new__` makes the bare instance of a subclass.
BASES = (OrderedDict, dict, list, set, object)

#: Modules of classes written in C that pickle knows how to make again.
PICKLED = ("builtins", "collections", "functools", "itertools")


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
                or is_bound(value)):
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
            return self._error(value, kind)
        if isinstance(value, tuple):
            return self.hold(f"{self.known(as_tuple)}("
                             f"{self.known(kind)}, "
                             f"[{self.values(tuple.__iter__(value))}])")
        if kind.__module__ in PICKLED and (
                type(kind.__reduce__) is types.MethodDescriptorType
                and kind.__reduce__ is not object.__reduce__):
            return self._reduced(value, kind)
        if id(value) in self.tracer.made:
            return self._instance(value, kind)
        raise unsupported("result", f"a {kind.__name__}")

    def _reduced(self, value, kind: type) -> str:
        """An object written in C where it stands, as pickle makes it."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            parts = kind.__reduce__(value)
        self.outside.kept.append(parts)
        make, args, *more = parts
        state, items, pairs = (*more, None, None, None)[:3]
        name = self.hold(f"{self.known(make)}({self.values(args)})")
        if state is not None:
            self.lines.append(f"{name}.__setstate__({self.value(state)})")
        if items is not None:
            self.lines.append(f"{name}.extend([{self.values(items)}])")
        if pairs is not None:
            self.lines.append(
                f"{name}.update({{{self.pairs(dict(pairs))}}})")
        return name

    def _instance(self, value, kind: type) -> str:
        """An object of a user's class, made without its `__init__`."""
        maker, items = self.base(kind), ""
        if issubclass(kind, dict):
            items = self.hold(f"{{{self.pairs(value)}}}")
        elif issubclass(kind, (list, set)):
            items = (list if issubclass(kind, list) else set).__iter__
            items = self.hold(f"[{self.values(items(value))}]")
        slots = [name for each in kind.__mro__
                 for name, found in vars(each).items()
                 if type(found) is types.MemberDescriptorType]
        names = [*getattr(value, "__dict__", ()), *slots]
        state = self.state({name: getattr(value, name) for name in names
                            if hasattr(value, name)})
        name = self.hold(f"{maker}.__new__({self.known(kind)})")
        if items:
            method = "extend" if issubclass(kind, list) else "update"
            self.lines.append(f"{maker}.{method}({name}, {items})")
        self.fill(name, state)
        return name

    def _error(self, error: BaseException, kind: type) -> str:
        """An exception that the program made or caught."""
        make, args = self.known(kind), error.args
        if isinstance(kind.__init__, types.FunctionType):
            make, args = f"{make}.__new__", (kind, *args)
        name = self.hold(f"{self.known(thrown)}("
                         f"{make}({self.values(args)}))")
        links = {link: getattr(error, link) for link in (
            "__cause__", "__context__", "__suppress_context__")}
        self.fill(name, self.state(vars(error) | {
            link: value for link, value in links.items() if value}))
        return name

    def state(self, attributes: dict) -> str:
        """The name of a dict of attributes; "" if there are none."""
        return attributes and self.hold(f"{{{self.pairs(attributes)}}}")

    def fill(self, name: str, state: str) -> None:
        """Let what was made have such attributes."""
        if state:
            self.lines.append(f"{self.known(fill)}({name}, {state})")

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

    def _write(self, overlay: Namespace, key, value) -> str:
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
        mine, now = self.hold(copy.source.code()), copy.now
        if isinstance(now, set):
            gone = [each for each in copy.before if each not in now]
            new = [each for each in now if each not in {*copy.before}]
            return [f"{mine}.{change}([{self.values(items)}])"
                    for change, items in (("update", new), (
                        "difference_update", gone)) if items]
        items = self.hold(f"[{self.values(now)}]")
        if isinstance(now, list):
            return [f"{mine}[:] = {items}"]
        return [f"{mine}.clear()", f"{mine}.extend({items})"]


#: What a function has besides what makes one.
ATTRIBUTES = ("__kwdefaults__", "__qualname__", "__module__", "__doc__",
              "__annotations__", "__dict__")


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
    rebuild.fill(name, rebuild.state({
        each: getattr(made, each) for each in ATTRIBUTES
        if getattr(made, each) != getattr(plain, each)}))
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


VIEWS = {type({}.keys()): "keys", type({}.values()): "values",
         type({}.items()): "items"}

#: Iterators of dicts, which notice that their dict changed its size.
STEPS = {type(iter(getattr({}, name)())): name for name in VIEWS.values()}


def _view(rebuild: Rebuild, view) -> str:
    """`d.keys()` and the like, of the same dict."""
    return f"{rebuild.value(_owner(rebuild, view))}.{VIEWS[type(view)]}()"


def _owner(rebuild: Rebuild, view) -> dict:
    """The dict that a view or an iterator is of."""
    owner = next((each for each in gc.get_referents(view)
                  if isinstance(each, dict)), {})
    return rebuild.outside.lives.get(id(owner), owner)


def _step(rebuild: Rebuild, iterator) -> str:
    """An iterator of a dict, as far along as this one."""
    owner, outside = _owner(rebuild, iterator), rebuild.outside
    try:
        left = len(iterator.__reduce__()[1][0])
    except RuntimeError:
        left = None
    if outside.is_dict(owner) and outside.keys(
            overlay := outside.items(owner)) != list(overlay.real):
        left = None
    if left is None:
        raise unsupported("result", "an iterator of a changed dict")
    return (f"{rebuild.known(_advanced)}({rebuild.value(owner)}."
            f"{STEPS[type(iterator)]}(), {len(owner) - left})")


def _advanced(view, count: int):
    """An iterator of a view, `count` steps along."""
    iterator = iter(view)
    for _ in range(count):
        next(iterator)
    return iterator


#: How an object of each type is written, given a Rebuild and the object.
MAKERS = {
    list: lambda r, v: f"[{r.values(v)}]",
    tuple: lambda r, v: f"({r.values(v)},)" if v else "()",
    dict: lambda r, v: f"{{{r.pairs(v)}}}",
    types.MethodType: _method, types.FunctionType: _function,
    types.CellType: _cell,
    Callback: lambda r, v: r.value(v.function),
    Iteration: lambda r, v: r.value(v.step.function.__self__),
    **dict.fromkeys(VIEWS, _view), **dict.fromkeys(STEPS, _step)}
