"""The graph being recorded: operators run on fake tensors, one node each.

In: an operator and its arguments, tensors being fake. Out: its fake
result, and a node in the FX graph if a tensor was made or written. A fake
tensor stands for itself in the interpreter; `nodes` remembers which node
made it. A first trace takes all sizes for constants. A row of the
reference makes symbols of those that a later trace finds changed; without
it, every new size is traced again. PyTorch's are
torch/_dynamo/output_graph.py (SubgraphTracer) and torch/_dynamo/pgo.py.
"""

from __future__ import annotations

import functools
import operator
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from weakref import ref

import torch
from sympy import Symbol
from torch import fx
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorMode,
)
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.fx.node import _get_qualified_name, map_aggregate
from torch.utils._pytree import tree_leaves, tree_map_only

from ..core.errors import Unsupported
from ..core.graph import QUANTIZED, written_by
from ..core.sizes import SYMBOLIC, Numbers, hint, python_forms
from ..core.state import function_modes
from ..core.guard import IMMUTABLE, ORDINARY, Guard, Source, is_a
from .reasons import WAYS, unsupported

DATA_DEPENDENT = (DataDependentOutputException, DynamicOutputShapeException)

#: Operators -> what gives their fake results, where PyTorch's do not do:
#: it gets the fakes, what makes PyTorch's, and the arguments.
FAKED: dict[torch._ops.OpOverload, Callable] = {}

#: Classes of other arguments, and what turns one into a node's argument.
CONVERSIONS = {}


class Recorder:
    """An FX graph that grows, and the node of every fake tensor."""

    def __init__(self, where, history: History, frames: list):
        self.fake_mode = Fakes(shape_env=ShapeEnv(
            allow_scalar_outputs=False,
            allow_dynamic_output_shape_ops=False))
        self.where, self.frames = where, frames
        self.default, self.graph = function_modes(), fx.Graph()
        self.nodes: dict[int, fx.Node] = {}  # which hold the tensors
        self.modules: dict[str, fx.GraphModule] = {}  # graphs inside it
        self.placed: list[tuple[fx.Node, Source]] = []
        self.written = Counter()  # the writes to each storage
        self.numbers = Numbers(self.graph, where)
        self.sizes = SIZES[-1](self, history)

    def place(self, name: str, value, source: Source) -> fx.Node:
        """A new graph input, behind those there are."""
        last = self.placed[-1][0] if self.placed else self.graph._root
        with self.graph.inserting_after(last):
            node = self.graph.placeholder(name)
        node.target = node.name  # another place may have the same
        node.meta["val"], node.meta["where"] = value, self.where()
        self.placed.append((node, source))
        self.numbers.given(node)
        return node

    def input(self, real: torch.Tensor, source: Source) -> torch.Tensor:
        """The stand-in of a tensor that existed before the call."""
        fake = self.sizes.tensor(real, source)
        name = re.sub(r"\W+", "_", str(source)).strip("_")
        self.nodes[id(fake)] = self.place(name, fake, source)
        return fake

    def function(self, target, args, kwargs):
        """The result of a torch function."""
        if self.default or function_modes():
            kwargs = WAYS["device"](self, target, kwargs)
        return self.run("call_function", target, target, args, kwargs)

    def method(self, name: str, args, kwargs):
        """The result of the method `name` of the tensor `args[0]`."""
        return self.run("call_method", name, lambda owner, /, *rest, **more:
                        getattr(owner, name)(*rest, **more), args, kwargs)

    def run(self, op: str, target, function, args, kwargs):
        """Run `function` on fakes; record it if that does anything."""
        self.target, tensors = target, []
        fx_args, fx_kwargs = self.argument((tuple(args), kwargs), tensors)
        if kwargs.get("out") is not None:
            WAYS["out"](self, target, function, args, dict(kwargs))
        versions = [t._version for t in tensors]  # none is of inference
        given, writes = (args, kwargs), written_by(target, args, kwargs)
        if writes:  # no number decides what it makes
            given = tree_map_only(torch.SymFloat, hint, given)
        result = self.compute(target, function, *given)
        result = next((mine for mine, its in zip(args, given[0])
                       if its is result), result)  # the program's own list
        changed = [t for t, old in zip(tensors, versions)
                   if t._version != old] or writes
        if not {*map(type, changed)} <= ORDINARY:
            raise unsupported("effect", "a write to a tensor of parts")
        self.written.update(map(storage, changed))
        effect = result is None and (tensors or isinstance(
            target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)))
        if not (changed or effect or self._new(result)):
            return self._known(result)
        if op == "call_function":
            target = as_said(target)
        node = self.graph.create_node(op, target, fx_args, fx_kwargs)
        node.meta |= {"val": result, "where": self.where(),
                      "moment": self.frames[-1].moment
                      if self.frames else 0}
        self._bind(result, node)
        return result

    def compute(self, target, function, args, kwargs):
        """`function` on fakes, its failure told as a reason to stop."""
        name = getattr(target, "__name__", target)
        try:
            with python_forms(self.sizes.symbols, name):
                return function(*args, **kwargs)
        except DATA_DEPENDENT as error:
            raise unsupported("data-dependent", name) from error
        except (Unsupported, RecursionError):
            raise
        except Exception as error:
            what = f"{type(error).__name__}: {error}"
            raise unsupported("exception", what) from error

    def argument(self, value, tensors: list):
        """`value` as a node's argument; its tensors join `tensors`."""
        def part(value):
            if type(value) in IMMUTABLE and value not in QUANTIZED:
                return value
            if is_a(value, torch.Tensor):
                tensors.append(value)
                return self.node(value)
            for kinds, convert in CONVERSIONS.items():
                if is_a(value, kinds):
                    return convert(self, value)
            raise unsupported("argument", str(
                value if type(value) is torch.dtype
                else type(value).__name__))
        tree_leaves(value)  # a list in itself: RecursionError, no crash
        return map_aggregate(value, part)

    def node(self, fake: torch.Tensor) -> fx.Node:
        """The node that makes `fake`."""
        if id(fake) not in self.nodes:
            raise unsupported("untracked", "a tensor")
        return self.nodes[id(fake)]

    def _known(self, result):
        """A result without new tensors, if a trace may rely on it."""
        for item in tree_leaves(result):
            if not is_a(item, (torch.Tensor, *SYMBOLIC)) and type(
                    item) not in IMMUTABLE:
                raise unsupported("untracked", f"a {type(item).__name__}")
        return result

    def _new(self, result) -> bool:
        """Whether a tensor in `result` has no node yet."""
        return any(is_a(item, torch.Tensor)
                   and id(item) not in self.nodes
                   for item in tree_leaves(result))

    def _bind(self, result, node: fx.Node) -> None:
        """Remember `node`, or parts of it, as what makes `result`."""
        if is_a(result, torch.Tensor):
            self.nodes[id(result)] = node
            return
        parts = result if is_a(result, (tuple, list)) else ()
        for index, item in enumerate(parts):
            if self._new(item):
                part = self.graph.call_function(
                    operator.getitem, (node, index))
                part.meta.update(node.meta, val=item)
                self._bind(item, part)


def as_said(function):
    """A function that a graph's text may call by its name: a program may
    have put another one there in torch, or have copied the name."""
    root, *names = _get_qualified_name(function).split(".")
    if root != "torch" or functools.reduce(lambda owner, name: getattr(
            owner, name, None), names, torch) is function:
        return function

    def said(*args, **kwargs):
        return function(*args, **kwargs)
    said.__name__ = function.__name__
    return said


#: The identity of a tensor's memory.
storage = torch._C._storage_id


# Sizes

@dataclass(eq=False)
class History:
    """The sizes that one function's traces saw; `dynamic` as in compile().

    `seen` holds, for each place, its value, or how it varied as a text;
    `symbols` says which places became symbols, and why. With `never`, no
    place becomes one, marked or not. Traces wrote to the `counters`. A
    program that asks is told of `compiling`, unless that made it raise.
    """

    dynamic: bool | None = False
    floats: bool = True
    never: bool = False
    seen: dict[tuple, int | float | str] = field(default_factory=dict)
    symbols: dict[str, str] = field(default_factory=dict)
    counters: set[Source | str] = field(default_factory=set)
    compiling: bool = True


class Fakes(FakeTensorMode):
    """Fake tensors that are made without Dynamo."""

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return self.dispatch(function, types, args, kwargs)

    def dispatch(self, function, types, args=(), kwargs=None):
        """The fake result of an operator."""
        make = functools.partial(
            super().dispatch, function, types, args, kwargs)
        row = FAKED.get(function)
        return make() if row is None else row(self, make, args)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no Dynamo runs: nothing need be wrapped around


class ConstantSizes:
    """The sizes of one trace: constants, and `symbols` in a subclass."""

    def __init__(self, recorder, history: History):
        self.recorder, self.history = ref(recorder), history
        self.symbols: dict[Symbol, Source] = {}

    def tensor(self, real: torch.Tensor, place: Source, **how
               ) -> torch.Tensor:
        """The fake tensor of one from outside, which counts its writes."""
        mode = self.recorder().fake_mode
        fake = mode.from_tensor(real, **how or {"static_shapes": True})
        if not (fake.is_inference() or fake.requires_grad
                and fake.is_leaf and fake._is_view()):
            return fake
        with mode:  # another one of its memory, which is no view
            return fake.new_empty(0).set_(fake.detach()).requires_grad_(
                fake.requires_grad)

    def symbolic(self, value, source: Source, outside):
        """The symbol of a number that may vary; none here."""

    def run(self, call: Callable, function, args, kwargs):
        """The result of a C function."""
        return call(function, args, kwargs)

    def guards(self) -> tuple[Guard, ...]:
        """No relations between sizes: each tensor has its own guard."""
        return ()


#: The classes that keep the sizes of a trace; the last is in use.
SIZES: list[type[ConstantSizes]] = [ConstantSizes]


def settled(value):
    """The value with numbers for its symbols, which become constants."""
    settle = SETTLE.get(type(value))
    return settle(value) if settle else value


#: The classes of symbols, and of what may hold them -> how to settle one.
SETTLE: dict[type, Callable] = {}
