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
import operator
import re
import sys
from collections.abc import Iterable
from weakref import WeakMethod

import torch
from sympy import Expr, Integer, Symbol
from torch._dispatch.python import enable_python_dispatcher
from torch._guards import Source as TorchSource
from torch._subclasses.fake_tensor import (
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils._sympy.printers import PythonPrinter
from torch.utils._sympy.symbol import SymT, symbol_is_type

from ..core.errors import ConstraintViolation
from ..core.guard import Guard, Relation
from ..core.sizes import AS_IN_CPP, SYMBOLIC, formula, hint
from ..core.source import Computed, Size, Source
from ..core.where import Where
from .automatic_dynamic import NUMBER, SIZE, STRIDE, History, limits, marked
from .reasons import unsupported


#: What does the same as a C function, and keeps symbols symbolic.
FORMS = {int: torch.sym_int, float: torch.sym_float,
         max: torch.sym_max, min: torch.sym_min, math.sqrt: torch._sym_sqrt,
         math.log2: torch._sym_log2}


#: How Python writes arithmetic: a sign between operands, or a name.
WRITTEN = {getattr(operator, kind + name): f" {sign} "
           for kind in ("", "i") for name, sign in (
               ("add", "+"), ("sub", "-"), ("mul", "*"), ("truediv", "/"),
               ("floordiv", "//"), ("mod", "%"), ("pow", "**"))} | {
    operator.neg: "-", operator.pos: "+", operator.abs: "abs"} | {
    each: f"math.{name}" for name, each in vars(math).items()
    if callable(each)} | {
    each: each.__name__ for each in (abs, round, pow, sum, *FORMS)
    if each.__module__ == "builtins"} | {int: "math.trunc"}
WRITTEN |= {form: WRITTEN[each] for each, form in FORMS.items()}

#: Of numbers beyond it, and of longer texts, symbols are not made.
LARGEST, LONGEST = sys.float_info.max, 2000


def spelled(form: str, parts: Iterable[str]) -> str:
    """Arithmetic on these parts, as Python text."""
    if form.strip() == form and len(form) > 1:
        return f"{form}({', '.join(parts)})"
    first, *rest = (f"({part})" for part in parts)
    return f"({first}{form}{rest[0]})" if rest else f"({form}{first})"


def outcome(text: str):
    """What the arithmetic gives; None if it raises."""
    try:
        return eval(text, {"math": math})
    except (ArithmeticError, TypeError, ValueError):
        return None


def varies(value) -> bool:
    """Whether this is a float made of floats that vary."""
    return type(value) is torch.SymFloat and any(
        symbol_is_type(symbol, SymT.FLOAT)
        for symbol in value.node.expr.free_symbols)


class Fakes(FakeTensorMode):
    """Fake tensors for which no convolution asks how large a batch is.

    On a CPU a batch of 16 runs another kernel; its results lie the same.
    """

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if function is DEVICE:  # the question asked most
            return args[0].fake_device
        if function in CONVOLUTIONS and args[0].device.type == "cpu":
            with self.shape_env.suppress_guards():
                return self.dispatch(function, types, args, kwargs)
        return self.dispatch(function, types, args, kwargs)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # no Dynamo runs: nothing need be wrapped around


DEVICE = torch.ops.prim.device.default
CONVOLUTIONS = {torch.ops.aten.convolution.default,
                torch.ops.aten.convolution_backward.default}


class Place(TorchSource):
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

    def forcing(self, symbol: Symbol) -> Where | None:
        """The line that made a constant of a symbol: the last to ask."""
        lines = [line for guard, line in zip(self, self.lines)
                 if symbol in guard.expr.free_symbols]
        return lines[-1] if lines else None


class Printer(PythonPrinter):
    """An expression as Python, its symbols called as `names` says."""

    def __init__(self, names: dict[Symbol, str]):
        super().__init__()
        self.names = names

    def _print_Symbol(self, symbol: Symbol) -> str:
        return self.names[symbol]

    def _print_NaN(self, _) -> str:
        return "math.nan"  # which torch 2.11 writes without its module


class Sizes:
    """The symbols of one trace.

    `place(symbol, value, source)` makes a graph input.
    """

    def __init__(self, fake_mode, history: History, place, where):
        self.fake_mode, self.where = fake_mode, where
        self.env: ShapeEnv = fake_mode.shape_env
        self.history, self.place = history, place
        self.symbols: dict[Symbol, Source] = {}
        self.numbers: dict[Source, torch.SymInt | torch.SymFloat] = {}
        self.equal: list[tuple[Source, Expr, Where | None]] = []
        self.ranges: list[Relation] = []
        self.marked: list[tuple[object, int, Source]] = []
        self.wrong: list[str] = []  # marks that do not hold
        self.shapes: list[tuple[torch.Tensor, torch.Size]] = []
        self.env.guards = self.learnt = Learnt(where)

    # Stand-ins

    def tensor(self, real: torch.Tensor, source: Source):
        """The fake tensor of a tensor from outside."""
        context = self.history.context(real, source)
        if context is None:
            return self.counting(self.fake_mode.from_tensor(
                real, static_shapes=True))
        fake = self.fake_mode.from_tensor(
            based(real), symbolic_context=context, source=Place(source))
        fake = self.counting(fake)
        self.shapes.append((fake, fake.shape))
        for dim in marked(real, "dynamic"):
            reach = limits(real, dim)
            if reach is not None and real.shape[dim] not in reach:
                self.wrong.append(
                    f"dimension {dim} of `{source}` is marked as "
                    f"{reach.lower} to {reach.upper}, and is "
                    f"{real.shape[dim]}")
            self.marked.append((fake.shape[dim], dim, source))
        for read, values, what in (("shape", fake.shape, SIZE),
                                   ("stride()", fake.stride(), STRIDE)):
            for dim, value in enumerate(values):
                if isinstance(value, torch.SymInt):
                    place = Size(source, read, dim, str(value))
                    if self.bind(value, place) or what is SIZE:
                        self.history.tell(what, dim, source, hint(value))
        return fake

    def counting(self, fake: torch.Tensor) -> torch.Tensor:
        """The fake tensor, or if it counts no writes one of its memory."""
        if not fake.is_inference():
            return fake
        with self.fake_mode:
            return torch.empty(0, dtype=fake.dtype,
                               device=fake.device).set_(fake)

    def number(self, value: int | float, source: Source):
        """The symbol of a number from outside."""
        if source not in self.numbers:
            made = self.env.create_unspecified_symbol(
                value, Place(source), DimDynamic.DYNAMIC)
            if type(value) is int:
                made = self.env.create_symintnode(made, hint=value)
            else:
                made = self.env.create_symfloatnode(made, hint=value)
                self.ranges.append(
                    Relation("math.isfinite({0})", (source,)))
            if type(source) is Computed:
                self.ranges.append(Relation(
                    f"type({{0}}) is type({type(value)()})", (source,)))
            self.bind(made, source)
            if type(source) is not Computed:
                self.history.tell(NUMBER, 0, source, value)
            self.numbers[source] = made
        return self.numbers[source]

    def compute(self, function, args: tuple, kwargs: dict):
        """What Python computes of floats: the text says it, not sympy.

        A float made of floats is a symbol of its own, with the value that
        the text has now; None if a function is no arithmetic. What is
        not finite is not computed of symbols.
        """
        given = args
        if function is sum or getattr(
                function, "__module__", None) == "math":
            args = [tuple(a) if type(a) is list else a for a in args]
            given = tree_leaves(args)
        if not any(map(varies, given)):
            return None
        form, kinds = WRITTEN.get(function), {*map(type, given)}
        if not any(type(a) is int and abs(a) > 2**53 for a in given):
            if form is None or kwargs or not kinds <= {
                    int, float, bool, torch.SymInt, torch.SymFloat}:
                return None
            text = spelled(form, map(self.text, args))
            value = outcome(spelled(form, map(repr, tree_map(hint, args))))
            if type(value) in (int, float) and (
                    abs(value) <= LARGEST) and len(text) < LONGEST:
                return self.number(value, Computed(text))
        return function(*settled(tuple(args)), **kwargs)

    def step(self, value):
        """A result of C code; the answer, if it is a question."""
        if type(value) is torch.SymBool:
            return bool(value)
        if type(value) is not torch.SymFloat:
            return value
        if varies(value) and not formula(value).is_Symbol:
            raise unsupported("builtin", "arithmetic inside a C function")
        return value if value.node.expr.free_symbols else settled(value)

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

    def dispatcher(self, name: str):
        """What lets this operator work with symbols, if there are any."""
        python = self.symbols and name not in AS_IN_CPP
        return enable_python_dispatcher() if python else (
            contextlib.nullcontext())

    # What was learnt

    def text(self, value) -> str:
        """The Python expression of a number over `L` and `F`.

        It is read when the graph has run, so no input may have another
        shape by then.
        """
        if any(str(fake.shape) != str(was) for fake, was in self.shapes):
            raise unsupported("effect", "an input that gets another shape")
        if type(value) is tuple:
            return f"({', '.join(map(self.text, value))},)"
        expr = formula(value) if isinstance(value, SYMBOLIC) else None
        if expr is None or not expr.free_symbols:
            return re.sub("(?=nan|inf)", "math.", repr(settled(value)))
        names = {symbol: source.code()
                 for symbol, source in self.symbols.items()}
        return f"({Printer(names).doprint(expr)})"

    def guards(self) -> tuple[Guard, ...]:
        """What the graph relies on, as relations between sizes."""
        if self.wrong:
            raise ConstraintViolation("\n".join(self.wrong))
        for value, dim, source in self.marked:
            self.refuse_constant(value, dim, source)
        if not self.symbols:
            return ()
        found = [(self.relation("{0} == {}", expr, source), where)
                 for source, expr, where in self.equal]
        found += [(relation, None) for relation in self.ranges]
        for source, made in self.numbers.items():
            if type(made) is torch.SymFloat and made.node.expr.is_number:
                sign = math.copysign(1, made.node.hint)
                found.append((Relation(f"math.copysign(1, {{0}}) == {sign}",
                                       (source,)), None))
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
            form.replace("{}", Printer(names).doprint(expr)),
            (*sources, *map(self.symbols.__getitem__, symbols)))

    def refuse_constant(self, value, dim: int, source: Source) -> None:
        """Raise if a marked dimension has become a constant."""
        expr = value.node.expr if isinstance(value, torch.SymInt) else value
        if isinstance(expr, Expr) and not expr.is_number:
            return
        where = isinstance(value, torch.SymInt) and self.learnt.forcing(
            value.node._expr)
        line = f"\n  at {where}  {where.text}" if where else (
            "\n  0 and 1 are always constants" if expr in (0, 1) else "")
        raise ConstraintViolation(
            f"dimension {dim} of `{source}` is marked dynamic, and the "
            f"graph needs it to be {expr}{line}\n  hint: mark it with "
            "torch._dynamo.maybe_mark_dynamic, or not at all")


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
