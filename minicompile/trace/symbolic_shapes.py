"""Symbolic sizes: where each symbol is read, and what was learnt of it.

In: tensors and numbers that History lets vary. Out: their stand-ins, with
PyTorch's ShapeEnv behind them. A symbol is a graph input of its own; an
expression of symbols becomes nodes where an operator needs it, and text
where Python does. What ShapeEnv learnt, in any stage, becomes guards.
PyTorch's is torch/fx/experimental/symbolic_shapes.py:ShapeEnv.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from weakref import WeakMethod

import torch
from sympy import Expr, Integer, Symbol
from torch import nn
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import Source as TorchSource
from torch._subclasses.fake_tensor import (
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
)
from torch.utils._sympy.printers import PythonPrinter

from ..core.errors import Where
from ..core.guard import Guard, Relation
from ..core.sizes import AS_IN_CPP, SYMBOLIC, formula, hint
from ..core.source import Computed, Size, Source
from .automatic_dynamic import NUMBER, SIZE, STRIDE, History
from .reasons import unsupported

#: What does the same as a C function, and keeps symbols symbolic.
SYMBOLIC_FORMS = {
    int: torch.sym_int, float: torch.sym_float, max: torch.sym_max,
    min: torch.sym_min, math.sqrt: torch._sym_sqrt,
    math.log2: torch._sym_log2}

#: The classes of numbers that may vary, and what makes a symbol of one.
NUMBERS = {int: lambda sizes, value, source: sizes.env.create_symintnode(
    sizes.symbol(value, source), hint=value)}

#: What else says how the sizes of a tensor are taken, such as a mark. Each
#: gets the SymbolicSizes, the tensor, its source and what is to be changed:
#: for each dimension its kind, and its limits.
DECIDERS: list[Callable] = []


class Fakes(FakeTensorMode):
    """Fake tensors for which no convolution asks how large a batch is.

    On a CPU a batch of 16 runs another kernel; its results lie the same.
    Fake tensors of another mode come to `dispatch` by themselves.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is DEVICE:  # the question asked most
            return args[0].fake_device
        return self.dispatch(function, types, args, kwargs)

    def dispatch(self, function, types, args=(), kwargs=None):
        if function in CONVOLUTIONS and args[0].device.type == "cpu":
            with self.shape_env.suppress_guards():
                return super().dispatch(function, types, args, kwargs)
        return super().dispatch(function, types, args, kwargs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no Dynamo runs: nothing need be wrapped around


DEVICE = torch.ops.prim.device.default
CONVOLUTIONS = {torch.ops.aten.convolution.default,
                torch.ops.aten.convolution_backward.default}


class ShapeSource(TorchSource):
    """A source, as ShapeEnv wants to have one."""

    def __init__(self, source: Source):
        self.text = str(source)

    @property
    def name(self) -> str:
        return self.text


class Learnt(list):
    """ShapeEnv's guards, each with the user's line it was made for.

    `where` is held weakly: fake tensors would keep its tracer for ever.
    """

    def __init__(self, where):
        self.where, self.lines = WeakMethod(where), []

    def append(self, guard) -> None:
        super().append(guard)
        where = self.where()
        self.lines.append(where and where())


class SourcePrinter(PythonPrinter):
    """An expression as Python, its symbols called as `names` says."""

    def __init__(self, names: dict[Symbol, str]):
        super().__init__()
        self.names = names

    def _print_Symbol(self, symbol: Symbol) -> str:
        return self.names[symbol]

    def _print_NaN(self, _) -> str:
        return "math.nan"  # which torch 2.11 writes without its module


class SymbolicSizes:
    """The symbols of one trace.

    `place(symbol, value, source)` makes a graph input. `late` holds what
    is asked when the graph was lowered: functions that give relations.
    """

    def __init__(self, fake_mode, history: History, place, where):
        self.fake_mode, self.where = fake_mode, where
        self.env: ShapeEnv = fake_mode.shape_env
        self.history, self.place = history, place
        self.symbols: dict[Symbol, Source] = {}
        self.numbers: dict[Source, torch.SymInt | None] = {}
        self.equal: list[tuple[Source, Expr, Where | None]] = []
        self.ranges: list[Relation] = []
        self.late: list[Callable] = []
        self.fakes: dict[Source, tuple[torch.Tensor, torch.Size]] = {}
        self.env.guards = self.learnt = Learnt(where)

    # Stand-ins

    def tensor(self, real: torch.Tensor, source: Source):
        """The fake tensor of a tensor from outside."""
        context = self.context(real, source)
        if context is None:
            return self.counting(self.fake_mode.from_tensor(
                real, static_shapes=True))
        fake = self.counting(self.fake_mode.from_tensor(
            based(real), symbolic_context=context,
            source=ShapeSource(source)))
        self.fakes[source] = fake, fake.shape
        for read, values, what in (("shape", fake.shape, SIZE),
                                   ("stride()", fake.stride(), STRIDE)):
            for dim, value in enumerate(values):
                if isinstance(value, torch.SymInt):
                    place = Size(source, read, dim, str(value))
                    if self.bind(value, place) or what is SIZE:
                        self.history.tell(what, dim, source, hint(value))
        return fake

    def context(self, real: torch.Tensor, source: Source
                ) -> StatelessSymbolicContext | None:
        """Which sizes and strides of a tensor are symbols; None: none."""
        history = self.history
        if history.never or isinstance(real, nn.Parameter):
            return None
        sizes = history.varying(SIZE, source, tuple(real.shape))
        strides = history.varying(STRIDE, source, tuple(real.stride()))
        rest = DimDynamic.DUCK if history.dynamic else DimDynamic.STATIC
        kinds = [DimDynamic.DYNAMIC if varies else rest for varies in sizes]
        limits = [None] * len(kinds)
        for decide in DECIDERS:
            decide(self, real, source, kinds, limits)
        steps = [DimDynamic.DYNAMIC if varies and not any(sizes)
                 else DimDynamic.INFER_STRIDE for varies in strides]
        if {*kinds} <= {DimDynamic.STATIC} and (
                DimDynamic.DYNAMIC not in steps):
            return None
        return StatelessSymbolicContext(kinds, steps, limits)

    def counting(self, fake: torch.Tensor) -> torch.Tensor:
        """The fake tensor, or if it counts no writes one of its memory."""
        if not fake.is_inference():
            return fake
        with self.fake_mode:
            return torch.empty(0, dtype=fake.dtype,
                               device=fake.device).set_(fake)

    def number(self, value: int | float, source: Source):
        """The symbol of a number that varies; None if it stays constant."""
        if source not in self.numbers:
            made = NUMBERS[type(value)](self, value, source)
            self.numbers[source] = made
            if made is not None:
                self.bind(made, source)
                if type(source) is not Computed:
                    self.history.tell(NUMBER, 0, source, value)
        return self.numbers[source]

    def symbol(self, value: int | float, source: Source) -> Symbol:
        """A new symbol for a number."""
        return self.env.create_unspecified_symbol(
            value, ShapeSource(source), DimDynamic.DYNAMIC)

    def bind(self, value: torch.SymInt | torch.SymFloat, source: Source
             ) -> bool:
        """Say that `value` is read at `source`; whether the symbol is new.
        """
        expr = value.node.expr
        if expr.is_Symbol and expr not in self.symbols:
            self.symbols[expr] = source
            self.ranges += [
                Relation(f"{{0}} {text}", (source,))
                for text in bounds(self.env.var_to_range[expr])]
            self.place(expr, value, source)
            return True
        self.equal.append((source, expr, self.where()))
        return False

    def run(self, call: Callable, function, args, kwargs):
        """The result of a C function; if it is a question, the answer."""
        value = call(function, args, kwargs)
        if type(value) is torch.SymFloat and formula(value).free_symbols:
            return value
        return settled(value) if type(value) in SYMBOLIC[1:] else value

    def dispatcher(self, name: str):
        """A context in which this operator works with symbols."""
        python = self.symbols and name not in AS_IN_CPP
        return enable_python_dispatcher() if python else (
            contextlib.nullcontext())

    # What was learnt

    def text(self, value) -> str:
        """The Python expression of a number over `L` and `F`.

        It is read when the graph has run, so no input may have another
        shape by then.
        """
        if any(str(fake.shape) != str(was)
               for fake, was in self.fakes.values()):
            raise unsupported("effect", "an input that gets another shape")
        expr = formula(value)
        if not expr.free_symbols:
            return repr(settled(value))
        made = self.relation("({})", expr)
        return made.text.format(*[each.code() for each in made.sources])

    def guards(self) -> tuple[Guard, ...]:
        """All that the graph relies on, as relations between sizes."""
        late = [relation for ask in self.late for relation in ask()]
        if not self.symbols:
            return ()
        found = [(self.relation("{0} == {}", expr, source), where)
                 for source, expr, where in self.equal]
        found += [(relation, None) for relation in (*self.ranges, *late)]
        found += [(self.relation("{}", guard.expr), where) for guard, where
                  in zip(self.learnt, self.learnt.lines)]
        return tuple(Guard(None, "relation", relation, where)
                     for relation, where in found)

    def relation(self, form: str, expr: Expr, *sources: Source) -> Relation:
        """`form` with the expression in it, over sources."""
        symbols = sorted(expr.free_symbols, key=str)
        names = {symbol: f"{{{index}}}" for index, symbol
                 in enumerate(symbols, len(sources))}
        return Relation(
            form.replace("{}", SourcePrinter(names).doprint(expr)),
            (*sources, *map(self.symbols.__getitem__, symbols)))


def bounds(reach) -> list[str]:
    """A range of ints as comparisons, without what holds of every int."""
    return [f"{sign} {end}" for sign, end in ((">=", reach.lower),
                                             ("<=", reach.upper))
            if isinstance(end, Integer)]


def settled(value):
    """The value with numbers for its symbols, which become constants."""
    match value:
        case torch.SymInt():
            return int(value)
        case torch.SymFloat():
            exact = value.node.hint  # what float() gives has lost -0.0
            float(value)
            return exact
        case torch.SymBool():
            return bool(value)
        case slice():
            parts = value.start, value.stop, value.step
            plain = settled(parts)
            return value if plain is parts else slice(*plain)
    if type(value) in (tuple, torch.Size):
        parts = [*map(settled, value)]
        if any(a is not b for a, b in zip(parts, value)):
            return type(value)(parts)
    return value


def based(real: torch.Tensor) -> torch.Tensor:
    """The tensor alone: no symbols for a base, an offset or a gradient."""
    if not (real._is_view() or real.storage_offset() or (
            real.is_leaf and real.grad is not None)):
        return real
    with unset_fake_temporarily():
        alias = torch.empty(0, dtype=real.dtype, device=real.device)
        alias.set_(real.untyped_storage(), 0, real.shape, real.stride())
        return alias.requires_grad_(real.requires_grad)
