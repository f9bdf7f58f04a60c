"""The tracer: one call of a function, run on stand-ins.

In: a function and the real values of its local variables. Out: the
state that its parts share: the recorder (the graph), the outside
(sources, guards, writes) and the stack of frames; and the few operations
that make up the opcodes. PyTorch's is torch/_dynamo/symbolic_convert.py.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Sequence
from itertools import islice

import torch

from ..core.errors import Unsupported, Where
from ..core.sizes import SYMBOLIC
from ..core.guard import Function
from ..core.state import global_state
from . import attributes, calls, native, rules
from .constant_types import ABSENT, StandIn
from .reasons import WAYS, Raised, Stopped, unsupported
from .recorder import DATA_DEPENDENT, Recorder
from .side_effects import OUTSIDES
from .symbolic_shapes import History, settled


class Tracer:
    """The state of one trace; opcodes and rules act through it."""

    def __init__(self, function: types.FunctionType, history: History,
                 stop: int | None = None):
        self.function = function
        self.clock, self.stop = 0, stop
        self.state = global_state()
        self.frames: list = []
        self.left: list = []  # frames that wait where the trace failed
        self.recorder = Recorder(self.where, history)
        self.outside = OUTSIDES[-1](self.recorder, self.where)
        self.outside.sources[id(function)] = Function(function.__name__)
        self.made: dict[int, object] = {}
        self.found: dict[tuple, tuple] = {}  # results of attributes.lookup
        self.raised: dict[int, BaseException] = {}
        self.origins: dict[int, tuple] = {}  # exceptions, and where
        self.turned: list[tuple[tuple, tuple]] = []  # switches
        self.generators: dict[int, tuple] = {}
        self.checks: list[Callable] = []  # of what a trace leaves
        self.outside.guard(None, "state", self.state)

    def tick(self) -> int:
        """The number of the next instruction; Stopped at the last."""
        self.clock += 1
        if self.clock == self.stop:
            raise Stopped(tuple(self.frames))
        return self.clock

    def where(self) -> Where | None:
        """The user's line that is running, outside of libraries."""
        for frame in reversed(self.frames):
            if not frame.library:
                return frame.where()
        return self.frames[-1].where() if self.frames else None

    def own(self, value):
        """`value`, remembered as made by the traced program."""
        self.made[id(value)] = value
        return value

    def is_made(self, value) -> bool:
        """Whether the traced program made this function or class."""
        return id(value) in self.made

    def special(self, value, name: str):
        """The method of the value's class, or ABSENT."""
        kind = type(value)
        if issubclass(kind, StandIn) or kind in SYMBOLIC:
            return ABSENT
        return attributes.method(self, kind, name)

    def python_method(self, value, name: str):
        """A method written in Python of the value's class, or None."""
        method = self.special(value, name)
        return method if type(method) is types.FunctionType else None

    def asked(self, name: str, value, *more):
        """The result of a method in Python or with a rule; or ABSENT."""
        method = self.special(value, name)
        if type(method) is types.FunctionType or rules.registered(method):
            return self.call(method, (value, *more))
        return ABSENT

    # Calls

    call, enter = calls.call, calls.enter
    natively = native.natively
    binary = rules.binary
    ask = rules.ask

    def native(self, function, args=(), kwargs=None):
        """Run a harmless C function; its exception is the program's."""
        try:
            return self.recorder.sizes.run(
                native.careful, function, args, kwargs or {})
        except (Raised, Unsupported, RecursionError):
            raise
        except DATA_DEPENDENT as error:
            raise unsupported("data-dependent", "a C function") from error
        except Exception as error:
            if id(error) not in self.raised:
                error.__context__ = None
            raise Raised(error) from error

    # Operators

    def key(self, key):
        """A key as C code may look it up."""
        key, source = settled(key), self.outside.source(key)
        if isinstance(key, torch.Tensor):
            if source is None:
                raise unsupported("data-dependent", "an index")
            self.outside.guard(source, "is", self.recorder.real(key))
        return native.look(self, key)

    def truth(self, value=False) -> bool:
        """`bool(value)`."""
        if isinstance(value, torch.Tensor):
            raise unsupported("data-dependent", "the truth of a tensor")
        if type(value) in (bool, int, str, type(None), *SYMBOLIC):
            return bool(value)
        for name in ("__bool__", "__len__"):
            answer = self.asked(name, value)
            if answer is not ABSENT:
                return bool(answer)
        return self.natively(bool, (value,), depth=0)

    def stored(self, mapping: dict, key):
        """The value that a dict holds at a key, or ABSENT."""
        key = self.key(key)
        if not self.outside.is_dict(mapping):
            return dict.get(mapping, key, ABSENT)
        return self.outside.read(self.outside.space("items", mapping), key)

    def inside(self, value) -> None:
        """Refuse to let C code at an object from outside."""
        if self.outside.is_outside(value):
            raise unsupported("effect", f"C code on {type(value).__name__}")

    # Iteration

    def iterate(self, value):
        """`iter(value)` as an iterator that is safe to run natively."""
        if isinstance(value, torch.Tensor):
            if not value.dim():
                raise Raised(TypeError("iteration over a 0-d tensor"))
            value = self.recorder.method("unbind", (value,), {})
        made = self.asked("__iter__", value)
        if made is not ABSENT:
            return WAYS["step"](self, made)
        found, _ = attributes.lookup(self, type(value), "__iter__")
        if found is ABSENT and self.python_method(value, "__getitem__"):
            return self.call(Sequence.__iter__, (value,))
        return self.natively(iter, (self.outside.resolve(value),), depth=0)

    def mapping(self, value) -> dict:
        """The items of `**value`, as a dict."""
        if isinstance(value, dict):
            return dict(self.outside.resolve(value))
        keys = self.call(attributes.load_attr(self, value, "keys"))
        return {key: self.ask(operator.getitem, value, key)
                for key in [*self.iterate(keys)]}

    def unpacked(self, value, most: int | None = None) -> list:
        """The elements, or the first of them, of an iterable."""
        if type(value) in (tuple, list, torch.Size):
            return [*value[:most]]
        steps = self.iterate(value)
        return self.native(list, (
            steps if most is None else islice(steps, most),))
