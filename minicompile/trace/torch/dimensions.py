"""Symbolic sizes: which vary, where each is read, and their guards.

In: tensors and numbers that a History lets vary, or that a program marks.
Out: their stand-ins, with PyTorch's ShapeEnv behind them. A symbol is a
graph input of its own; an expression of symbols becomes nodes where an
operator needs it, and text where Python does. The facts that ShapeEnv
learns, in any stage, become guards. If a graph needs a constant where a
mark forbids it, ConstraintViolation is raised. PyTorch's are
torch/_dynamo/decorators.py and torch/fx/experimental/symbolic_shapes.py.
"""

import math
import operator
import re
import warnings
from collections.abc import Callable
from functools import partial, reduce

import torch
from sympy import Expr, Integer, Symbol
from torch import fx, nn
from torch._guards import Source as TorchSource
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.symbolic_shapes import (
    DimDynamic,
    ShapeEnv,
    StatelessSymbolicContext,
    StrictMinMaxConstraint,
)
from torch.utils._sympy.numbers import int_oo
from torch.utils._sympy.value_ranges import ValueRanges

from ...core.errors import ConstraintViolation, Where
from ...core.guard import (Call, Function, Guard, Local,
                           Source, chain, is_a, source_class)
from ...core.sizes import SYMBOLIC, formula, hint
from ...core.torch.symbols import text_of
from ..attributes import SEEN_AS, type_of
from ..reasons import WAYS, Raised, unsupported
from ..recorder import (CONVERSIONS, FAKED, SETTLE, SIZES, ConstantSizes,
                        Fakes, History, Recorder, settled)
from ..reconstruct import MAKERS
from ..side_effects import Outside

#: The possible symbols in words: a size, a stride, a number.
SIZE, STRIDE = "dimension {0} of `{1}`", "stride {0} of `{1}`"
NUMBER = "`{1}`"

#: On a CPU a batch of 16 runs another kernel; its results lie the same.
CONVOLUTIONS = {torch.ops.aten.convolution.default,
                torch.ops.aten.convolution_backward.default}

#: A C function -> its equivalent that keeps symbols symbolic.
SYMBOLIC_FORMS = {
    int: torch.sym_int, float: torch.sym_float, max: torch.sym_max,
    min: torch.sym_min, math.sqrt: torch._sym_sqrt,
    math.log2: torch._sym_log2}

#: What raises an exception if its last argument is zero.
DIVIDING = {divmod, *(getattr(operator, f"{i}{name}") for i in ("", "i")
                      for name in ("truediv", "floordiv", "mod"))}

#: Ints whose squares a kernel holds; others stay constants.
SQUARED = range(-2 ** 31, 2 ** 31)

#: The classes of numbers that may vary, and what makes a symbol of one.
NUMBERS: dict[type, Callable] = {
    int: lambda sizes, value, source: sizes.env.create_symintnode(
        sizes.symbol(value, source), hint=value) if value in SQUARED
    else None}

#: `tensor.shape[dim]` or `tensor.stride()[dim]`, and its symbol.
Size = source_class("Size", "owner read dim symbol",
                    "{owner}.{read}[{dim}]")

#: A number that Python computes of others: an expression of them.
Computed = source_class("Computed", "expression", "{expression}")


class ShapeSource(TorchSource):
    """A source, as ShapeEnv wants to have one."""

    name = ""

    def __init__(self, source: Source):
        self.name = str(source)


#: Classes that no message of the program's own names.
STAND_INS = re.compile("Sym(Int|Float|Bool)|FakeTensor|Callback")


class SymbolicSizes(ConstantSizes):
    """The symbols of one trace: those sizes and numbers that may vary.

    `late` holds functions that raise if a mark does not hold, or guard
    what a symbol turned out to be; they are called when the graph has
    been lowered.
    """

    def __init__(self, recorder: Recorder, history: History):
        super().__init__(recorder, history)
        self.env: ShapeEnv = recorder.fake_mode.shape_env
        self.numbers: dict[Source, torch.SymInt | None] = {}
        self.ranges: list[Guard] = []
        self.late: list[Callable] = []
        self.fakes: dict[Source, tuple[torch.Tensor, torch.Size]] = {}
        where = recorder.where
        self.env._get_sloc = lambda *_, **__: where()

    # Stand-ins

    def tensor(self, real: torch.Tensor, source: Source):
        """The fake tensor of a tensor from outside. PyTorch reads `.grad`
        even of one that is no leaf: a warning, which may be an error."""
        try:
            return self.stand_in(real, source)
        except UserWarning:
            with warnings.catch_warnings(action="ignore"):
                return self.stand_in(real, source)

    def stand_in(self, real: torch.Tensor, source: Source):
        """The fake tensor, with the symbols of the sizes that vary."""
        context = self.context(real, source)
        if context is None:
            return super().tensor(real, source)
        fake = super().tensor(
            based(real), source, symbolic_context=context,
            source=ShapeSource(source))
        self.fakes[source] = fake, fake.shape
        found = [(value, Size(source, read, dim, str(value)), what)
                 for read, values, what in (
                     ("shape", fake.shape, SIZE),
                     ("stride()", fake.stride(), STRIDE))
                 for dim, value in enumerate(values)
                 if isinstance(value, torch.SymInt)]
        # a stride may be made of another that comes after it
        found.sort(key=lambda each: not each[0].node.expr.is_Symbol)
        for value, place, what in found:
            if self.bind(value, place) or what is SIZE:
                self.tell(what, place.dim, source, hint(value))
        return fake

    def varies(self, what: str, dim: int, source: Source, value) -> bool:
        """Whether other traces saw another value there."""
        if self.history.dynamic is False:
            return False
        seen, place = self.history.seen, (what, dim, source)
        old = seen.setdefault(place, value)
        if type(old) is not str and old is not value and (
                type(old) is not type(value) or old != value):
            seen[place] = f"was {old}, is {value}: dynamic from now on"
        return type(seen[place]) is str

    def tell(self, what: str, dim: int, source: Source, value) -> None:
        """Note that a place has become a symbol, and why."""
        why = self.history.seen.get((what, dim, source))
        if type(why) is not str:
            why = f"is {value}: dynamic " + (
                "by dynamic=True" if self.history.dynamic else
                "because its rank varies")
        self.history.symbols.setdefault(what.format(dim, source), why)

    def context(self, real: torch.Tensor, source: Source
                ) -> StatelessSymbolicContext | None:
        """The symbols among a tensor's sizes and strides, if there are."""
        history = self.history
        if history.never or isinstance(real, nn.Parameter):
            return None
        other = self.varies("rank of `{1}`", 0, source, real.dim())
        sizes, strides = (
            [self.varies(what, dim, source, value) or other
             for dim, value in enumerate(values)]
            for what, values in ((SIZE, real.shape),
                                 (STRIDE, real.stride())))
        # That another size equals a buffer's, the model's own, is chance.
        rest = DimDynamic.DUCK if history.dynamic and getattr(
            source.base, "name", "") != "_buffers" else DimDynamic.STATIC
        kinds = [DimDynamic.DYNAMIC if varies else rest for varies in sizes]
        limits = [None] * len(kinds)
        decide(self, real, source, kinds, limits)
        steps = [DimDynamic.DYNAMIC if varies and not any(sizes)
                 else DimDynamic.INFER_STRIDE for varies in strides]
        if {*kinds, *steps} <= {DimDynamic.STATIC, DimDynamic.INFER_STRIDE}:
            return None
        return StatelessSymbolicContext(kinds, steps, limits)

    def number(self, value: int | float, source: Source):
        """The symbol of a number that varies; None if it stays constant."""
        if source not in self.numbers:
            made = self.numbers[source] = NUMBERS[type(value)](
                self, value, source)
            if made is not None:
                self.bind(made, source)
                if type(made) is torch.SymInt:
                    self.require(f"{SQUARED[0]} <= {{0}} <= {SQUARED[-1]}",
                                 source)
                if type(source) is not Computed:
                    self.tell(NUMBER, 0, source, value)
        return self.numbers[source]

    def symbol(self, value: int | float, source: Source) -> Symbol:
        """A new symbol for a number."""
        return self.env.create_unspecified_symbol(
            value, ShapeSource(source), DimDynamic.DYNAMIC)

    def bind(self, value: torch.SymInt | torch.SymFloat, source: Source
             ) -> bool:
        """Read `value` at `source`, and say whether its symbol is new."""
        expr = formula(value)
        if expr.is_Symbol and expr not in self.symbols:
            self.symbols[expr] = source
            reach = self.env.var_to_range[expr]
            for sign, end in (">=", reach.lower), ("<=", reach.upper):
                if isinstance(end, Integer):  # else it holds of every int
                    self.require(f"{{0}} {sign} {end}", source)
            if type(value) is torch.SymInt:
                self.recorder().place(str(expr), value, source)
            return True
        self.ranges.append(self.relation("{0} == {}", expr, source))
        return False

    def require(self, text: str, source: Source) -> None:
        """Guard what `text` says of the number at a place, `{0}`."""
        self.ranges.append(Guard((source,), "relation", text))

    def symbolic(self, value, source: Source, outside: Outside):
        """The symbol of a number that may vary, or None.

        That is a float, an argument, a length or a counter. Other ints
        that modules and globals hold were meant to stay.
        """
        if type(value) not in NUMBERS or not (
                self.history.dynamic or self.varies(
                    NUMBER, 0, source, value)):
            return None
        places = {*chain(source)}
        counts = not self.history.counters.isdisjoint(map(named, places))
        argument = any(isinstance(each, (Local, Function))
                       for each in places) and not any(
            isinstance(each, nn.Module) and outside.source(each) in places
            for each in outside.reals.values())
        varies = counts or argument or type(source) is Call
        return self.number(value, source) if (
            varies or type(value) is float) else None

    def run(self, call: Callable, function, args, kwargs):
        """The result of a C function; of plain numbers, if it fails."""
        try:
            return self.compute(call, function, args, kwargs)
        except Raised:
            raise
        except Exception as error:
            if (plain := settled(args)) is args:
                if STAND_INS.search(str(error)):
                    name = getattr(function, "__name__", "a C function")
                    raise unsupported("builtin", name) from error
                raise
            return self.run(call, function, plain, kwargs)

    def compute(self, call: Callable, function, args, kwargs):
        """The same, with symbols; if it is a question, the answer."""
        form = SYMBOLIC_FORMS.get(function)
        if function is round and (args[1:] or kwargs):
            args = settled(args)  # torch's rounds to no digits
        if function in DIVIDING and type(args[1]) is torch.SymInt:
            bool(args[1] != 0)  # sympy takes n % n for zero, whatever n is
        if form and len({*map(type_of, args)}) == 1 and not kwargs and any(
                is_a(each, SYMBOLIC) for each in args):
            value = reduce(form, args) if args[1:] else form(*args)
        else:
            value = call(function, args, kwargs)
        if type(value) is torch.SymFloat and formula(value).free_symbols:
            return value
        return settled(value) if type(value) in SYMBOLIC[1:] else value

    # Facts learnt in the trace

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
        return made.expected.format(*[each.code() for each in made.source])

    def guards(self) -> tuple[Guard, ...]:
        """All that the graph relies on, as relations between sizes."""
        for hold in self.late:
            hold()
        return (*self.ranges, *(
            self.relation("{}", guard.expr, where=guard.sloc)
            for guard in self.env.guards))

    def relation(self, form: str, expr: Expr, *sources: Source,
                 where: Where | None = None) -> Guard:
        """`form` with the expression in it, over sources."""
        symbols = sorted(expr.free_symbols, key=str)
        names = {str(symbol): f"{{{index}}}" for index, symbol
                 in enumerate(symbols, len(sources))}
        text = re.sub(r"\w+", lambda word: names.get(word[0], word[0]),
                      text_of(expr))
        return Guard((*sources, *map(self.symbols.__getitem__, symbols)),
                     "relation", form.replace("{}", text), where)


def convolved(mode: Fakes, make: Callable, args: tuple):
    """The fake result of a convolution, which guards no batch size."""
    if args[0].device.type != "cpu":
        return make()
    with mode.shape_env.suppress_guards():
        return make()


SIZES.append(SymbolicSizes)
FAKED |= dict.fromkeys(CONVOLUTIONS, convolved)
SEEN_AS |= {torch.SymInt: int, torch.SymFloat: float}
MAKERS |= dict.fromkeys(SYMBOLIC, lambda rebuild, value: (
    rebuild.tracer.recorder.sizes.text(value)))


def named(source: Source) -> Source | str:
    """The name of an attribute or key, wherever it is; else the place."""
    name = getattr(source, "name", getattr(source, "key", None))
    return name if type(name) is str else source


def settled_float(value: torch.SymFloat) -> float:
    """A float as it was; float() has lost the sign of -0.0."""
    exact = value.node.hint
    float(value)
    return exact


def settled_parts(value: slice | tuple):
    """A slice or a tuple; the same one, if no symbol is in it."""
    parts = value if is_a(value, tuple) else (
        value.start, value.stop, value.step)
    plain = [*map(settled, parts)]
    if all(a is b for a, b in zip(plain, parts)):
        return value
    return slice(*plain) if type(value) is slice else type(value)(plain)


SETTLE |= {torch.SymInt: int, torch.SymBool: bool,
           torch.SymFloat: settled_float,
           **dict.fromkeys((slice, tuple, torch.Size), settled_parts)}


#: What is in an index that gives a view.
VIEWING = {int, slice, type(None), type(...), torch.SymInt}


def indexed(recorder: Recorder, function, values: tuple, more: dict):
    """`tensor[key]`, or a write there; a symbol in the key selects."""
    key = values[1] if values[1:] else ()
    keys = key if type(key) is tuple else (key,)
    kinds = [*map(type, keys), torch.SymInt]
    at = kinds.index(torch.SymInt)
    if at == len(keys) or type(None) in kinds[:at] or (
            not VIEWING.issuperset(kinds)):
        return recorder.function(function, values, more)
    dim = kinds[at:].count(type(None)) - len(keys[at:]) if (
        type(...) in kinds[:at]) else at
    part = recorder.method("select", (values[0], dim, keys[at]), {})
    rest = keys[:at] + keys[at + 1:], *values[2:]
    return part if rest == ((),) else indexed(
        recorder, function, (part, *rest), more)


WAYS["giving"] = indexed


def number_node(recorder: Recorder, value) -> fx.Node | int | float:
    """The node that computes a symbolic number, or the number."""
    for symbol in formula(value).free_symbols:
        symbol_node(recorder, symbol)
    return recorder.numbers.written(value)


def symbol_node(recorder: Recorder, symbol: Symbol) -> fx.Node:
    """The node of a symbol; a graph inside another captures it.

    A float becomes a graph input here, once it is used.
    """
    known, sizes = recorder.numbers, recorder.sizes
    if symbol not in known and recorder is sizes.recorder():
        source = sizes.symbols[symbol]
        recorder.place(str(symbol), sizes.numbers[source], source)
    elif symbol not in known:
        value = symbol_node(recorder.outer, symbol).meta["val"]
        recorder.captured.append(value)
        recorder.placeholder(value)
    return known[symbol]


CONVERSIONS[SYMBOLIC] = number_node


def based(real: torch.Tensor) -> torch.Tensor:
    """The tensor alone: no symbols for a base, an offset or a gradient."""
    if not (real._is_view() or real.storage_offset() or (
            real.is_leaf and real.grad is not None)):
        return real
    with unset_fake_temporarily(), torch.enable_grad():
        alias = real.new_empty(0, requires_grad=real.requires_grad)
        alias = alias if real.is_leaf else alias.clone()  # may be written
        alias.data = real.detach().as_strided(real.shape, real.stride(), 0)
        return alias


#: The marks, and who makes those that make a size a symbol.
DIMENSION_MARKS = {"static": None, "weak_dynamic": "maybe_mark_dynamic",
                   "dynamic": "mark_dynamic"}


def decide(sizes: SymbolicSizes, real: torch.Tensor, source: Source,
           kinds: list, limits: list) -> None:
    """Let marks overrule the sizes seen so far; a range becomes a limit."""
    reach = {each.dim: ValueRanges(
        max(each.min or 0, 2), int_oo if each.max is None else each.max)
        for each in getattr(real, "_dynamo_dynamic_range", ())
        if (each.min, each.max) != (None, None)}
    for how, maker in DIMENSION_MARKS.items():
        marked = getattr(real, f"_dynamo_{how}_indices", ())
        for dim in {*range(real.dim())}.intersection(marked):
            kinds[dim], size = DimDynamic.STATIC, real.shape[dim]
            if maker is not None:
                kinds[dim] = DimDynamic.DYNAMIC
                sizes.history.seen[SIZE, dim, source] = (
                    f"is {size}: dynamic by {maker}")
            if how == "dynamic":
                within = reach.get(dim, ValueRanges(0, int_oo))
                sizes.late.append(partial(hold, sizes, source, dim, size,
                                          within))
                if dim in reach and size in within:
                    limits[dim] = StrictMinMaxConstraint(False, within)


def hold(sizes: SymbolicSizes, source: Source, dim: int, size: int,
         within: ValueRanges) -> None:
    """Raise ConstraintViolation if a mark does not hold."""
    what = f"dimension {dim} of `{source}` is marked"
    if size not in within:
        raise ConstraintViolation(f"{what} as {within.lower} to "
                                  f"{within.upper}, and is {size}")
    value = sizes.fakes[source][1][dim]
    symbol = value.node._expr if isinstance(value, torch.SymInt) else None
    if symbol and formula(value).free_symbols:
        return
    lines = ["0 and 1 are always constants"] * (value in (0, 1))
    lines += [f"at {guard.sloc}  {guard.sloc.text}"
              for guard in sizes.env.guards
              if guard.sloc and symbol in guard.expr.free_symbols]
    line = f"\n  {lines[-1]}" if lines else ""
    raise ConstraintViolation(
        f"{what} dynamic, and the graph needs it to be {value}{line}\n"
        "  hint: mark it with torch._dynamo.maybe_mark_dynamic, or not at "
        "all")
