"""The loop language: what fusion writes, and the printers print.

A Loop fills one buffer: for every point of its ranges it stores a value,
or a reduction of values over further ranges. A Kernel is loops that run
together over one iteration space. All of it is frozen, and the reference
prints it as Python that runs. Inductor's counterpart is
torch/_inductor/ir.py and torch/_inductor/ops_handler.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import attrgetter
from types import MappingProxyType

import torch

from .errors import Where
from .index import (Atom, Index, Interned, Symbol, Variable, atoms_of,
                    enclosed, guess, index, product, substitute)


class Node(metaclass=Interned):
    """An expression: two that are equal are one object."""

    @staticmethod
    def identity(part: object) -> object:
        """The key that tells a part from others: 0.0 is not -0.0."""
        return repr(part) if isinstance(part, (int, float)) else part

    @cached_property
    def parts(self) -> tuple[Expression, ...]:
        """The expressions that it is made of."""
        if hasattr(self, "operands"):
            return self.operands
        mask = getattr(self, "mask", None)
        return (mask,) * bool(mask) + (
            places_of(self.index) if hasattr(self, "index") else ())


@dataclass(frozen=True, eq=False)
class Const(Node):
    """A Python number; `dtype` is the type that it has in a kernel."""

    value: bool | int | float
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Position(Node):
    """A loop index used as a value, such as arange needs."""

    index: Index
    dtype: torch.dtype


@dataclass(frozen=True, eq=False)
class Load(Node):
    """The element of `buffer` at `index`, counted in elements.

    Where `mask` (a bool expression) is false nothing is read and the
    value is 0. With `host`, the buffer is a tensor of no dimensions in the
    host's memory, and a GPU's kernel is given its number.
    """

    buffer: str
    index: Index
    dtype: torch.dtype
    mask: Expression | None = None
    host: bool = False


@dataclass(frozen=True, eq=False)
class Op(Node):
    """A pointwise operation, rounded to `dtype`; `name` is in OPS."""

    name: str
    operands: tuple[Expression, ...]
    dtype: torch.dtype


Expression = Const | Position | Load | Op


@lru_cache(maxsize=10_000)
def picked(where: Index) -> tuple[Variable, ...]:
    """The numbers in an index that its kernel computes: those variables
    that have a `value`, an expression."""
    return tuple(sorted((atom for atom in atoms_of(where)
                         if hasattr(atom, "value")), key=str))


def places_of(where: Index) -> tuple[Expression, ...]:
    """The values of these numbers."""
    return tuple(pick.value for pick in picked(where))


def symbols_of(*indices: Index) -> set[Symbol]:
    """Every symbol in these indices and in their variables' sizes."""
    found: set[Symbol] = set()
    for where in indices:
        for atom in atoms_of(where):
            found |= ({atom} if isinstance(atom, Symbol)
                      else symbols_of(atom.size))
    return found


def renamed(where: Index, name: Callable[[Expression], str]) -> Index:
    """The index with a variable for each number that is computed."""
    return substitute(where, {
        pick: index(Variable(enclosed(name(pick.value)), pick.size))
        for pick in picked(where)})


#: Functions of floats, which cost far more than an access to the cache.
OF_FLOATS = """exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos
    atan sinh cosh tanh asinh acosh atanh erf erfc lgamma sigmoid atan2
    hypot""".split()

#: Every operation, and PyTorch's own function as its meaning. Operands
#: are rounded to their dtypes; the result is rounded to the Op's.
OPS: dict[str, Callable] = {
    name: getattr(torch, name) for name in (*OF_FLOATS, *"""neg abs sign
    sqrt rsqrt floor ceil trunc round reciprocal relu isnan signbit
    logical_not bitwise_not add sub mul fmod pow copysign maximum minimum
    fmax fmin eq ne lt le gt ge logical_and logical_or logical_xor
    bitwise_and bitwise_or bitwise_xor bitwise_left_shift
    bitwise_right_shift where""".split())
} | {
    "div": torch.true_divide,
    "div_trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "cast": lambda a: a,
}

#: Operations that are no cheaper than those functions.
EXPENSIVE = frozenset([*OF_FLOATS, "pow", "fmod", "uniform"])

#: How two partial results combine: (what an empty range gives, the rule).
REDUCTIONS: dict[str, tuple[object, str]] = {
    "sum": (0, "add"), "prod": (1, "mul"),
    "max": (float("-inf"), "maximum"), "min": (float("inf"), "minimum"),
    "any": (False, "logical_or"), "all": (True, "logical_and"),
    "cumsum": (0, "add"), "cumprod": (1, "mul"),
}

#: Reductions that are stored at every element, of those up to it.
SCANS = frozenset(("cumsum", "cumprod"))


def neutral(kind: str, dtype: torch.dtype) -> bool | int | float:
    """The number that changes no result of a reduction."""
    if kind in ("max", "min") and not dtype.is_floating_point:
        limits = torch.iinfo(dtype)
        return limits.min if kind == "max" else limits.max
    return REDUCTIONS[kind][0]


#: The 16-bit floats.
HALVES = (torch.float16, torch.bfloat16)


def accurate(dtype: torch.dtype) -> torch.dtype:
    """The dtype in which eager computes with numbers of this one, and in
    which a kernel holds them between operations."""
    return torch.float32 if dtype in HALVES else dtype


def flatten(indices: Iterable[Index],
            strides: Iterable[Index | int]) -> Index:
    """The sum of index times stride: a position in memory."""
    return sum((i * stride for i, stride in zip(
        indices, strides, strict=True)), index(0))


def unflatten(position: Index,
              shape: tuple[Index, ...]) -> tuple[Index, ...]:
    """The row-major coordinates in `shape` of a flat position."""
    coordinates: list[Index] = []
    for size in reversed(shape[1:]):
        coordinates.append(position % size)
        position = position // size
    return (*([position] if shape else ()), *reversed(coordinates))


def row_major(shape: tuple[Index, ...]) -> tuple[Index, ...]:
    """The strides of a contiguous tensor of this shape."""
    strides = [index(1)]
    for size in reversed(shape[1:]):
        strides.append(strides[-1] * size)
    return tuple(reversed(strides[:len(shape)]))


@dataclass(frozen=True)
class Buffer:
    """Memory for one tensor: strides in elements, starting at 0.

    `into` names the input or the buffer whose memory this is, if a kernel
    writes to that in place.
    """

    name: str
    shape: tuple[Index, ...]
    stride: tuple[Index, ...]
    dtype: torch.dtype
    device: torch.device
    into: str = ""

    @property
    def elements(self) -> Index:
        """How many elements the memory spans."""
        if product(self.shape) == 0:
            return Index({})
        last = (size - 1 for size in self.shape)
        return flatten(last, self.stride) + 1

    @property
    def nbytes(self) -> int:
        """The bytes of the memory; a guess if its size is symbolic."""
        return guess(self.elements) * self.dtype.itemsize


@dataclass(frozen=True)
class Loop:
    """`for ranges: buffer[index] = reduction(value for reduced)`.

    Without `reduction`, `reduced` is empty and the value is stored as it
    is. Storing rounds to the buffer's dtype; a reduction accumulates in
    the value's dtype. One of SCANS is stored at each element. With `down`,
    the loop goes over every element and folds `down` rows into one: their
    elements share an `index`. A loop that computes a part of its index
    `adds` to memory, since several of its points may have the same; or, if
    it `replaces` what lies there, no two have.
    """

    buffer: Buffer
    index: Index
    ranges: tuple[Variable, ...]
    value: Expression
    reduced: tuple[Variable, ...] = ()
    reduction: str | None = None
    down: Index | None = None
    where: Where | None = None
    origin: str = ""  # the graph nodes that this loop computes
    whole: object = field(default=None, compare=False)  # what it splits
    turned: Index | None = None  # where an element lies, unless row by row
    replaces: bool = False

    @property
    def adds(self) -> bool:
        """Whether the value is added to what lies in memory."""
        return bool(picked(self.index)) and not self.replaces

    @cached_property
    def nodes(self) -> list[Expression]:
        """All that it computes, each once and after its parts."""
        return walk(*places_of(self.index), self.value)

    @cached_property
    def loads(self) -> tuple[Load, ...]:
        """Every load, each once."""
        return tuple(node for node in self.nodes if isinstance(node, Load))

    @cached_property
    def indices(self) -> tuple[Index, ...]:
        """Where it stores, and every index that it reads, each once."""
        return tuple(dict.fromkeys([self.index, *(
            node.index for node in self.nodes
            if isinstance(node, (Load, Position)))]))

    def over(self, change: Mapping[Variable, Index],
             ranges: tuple[Variable, ...],
             reduced: tuple[Variable, ...]) -> Loop:
        """The same loop over other variables: what old ones become."""
        return replace(self, index=substitute(self.index, change),
                       ranges=ranges, reduced=reduced,
                       value=rewrite(self.value, at=change),
                       turned=self.turned and substitute(
                           self.turned, change))


@dataclass(frozen=True)
class Kernel:
    """Loops that run as one: rows in parallel, elements within a row.

    Every loop runs over `ranges` (a row), over `ranges + reduced` (an
    element), reduces `reduced` for each row, or goes down the rows.
    A loop may read what an earlier one stored at the same point or row.
    Buffers in `internal` are read by no one else, so that no memory need
    hold them.
    """

    name: str
    ranges: tuple[Variable, ...]
    reduced: tuple[Variable, ...]
    loops: tuple[Loop, ...]
    internal: frozenset[str] = frozenset()

    @property
    def rows(self) -> Index:
        """How many rows there are."""
        return product(variable.size for variable in self.ranges)

    @property
    def row_length(self) -> Index:
        """How many elements a row has; 1 for a pointwise kernel."""
        return product(variable.size for variable in self.reduced)

    @cached_property
    def written(self) -> dict[str, Buffer]:
        """The buffers others can read, by name, in order."""
        return {loop.buffer.name: loop.buffer for loop in self.loops
                if loop.buffer.name not in self.internal}

    @cached_property
    def read(self) -> tuple[str, ...]:
        """The names of buffers from outside, in order of first use."""
        own = {loop.buffer.name for loop in self.loops}
        names = (load.buffer for loop in self.loops for load in loop.loads)
        return tuple(dict.fromkeys(n for n in names if n not in own))

    @cached_property
    def numbers(self) -> frozenset[str]:
        """The buffers in the host's memory, which it takes as numbers."""
        return frozenset(load.buffer for loop in self.loops
                         for load in loop.loads if load.host)

    @cached_property
    def symbols(self) -> tuple[Symbol, ...]:
        """The numbers that its loops and indices ask for, by name."""
        found = symbols_of(
            *(v.size for v in self.ranges + self.reduced),
            *(where for loop in self.loops for where in loop.indices))
        return tuple(sorted(found, key=lambda s: (len(s.name), s.name)))


def draws(loops: Iterable[Loop]) -> bool:
    """Whether any of the loops draws random numbers."""
    return any(getattr(node, "name", "") == "uniform"
               for loop in loops for node in loop.nodes)


#: The node, or one that it always equals, when its parts have changed: the
#: last of these.
SIMPLIFY: list[Callable[[Expression], Expression]] = [lambda node: node]


def walk(*roots, parts: Callable = attrgetter("parts")) -> list:
    """The roots and all that they are made of, each once and after its
    `parts`: of an expression every node, operands first."""
    done: dict[object, None] = {}
    begun, waiting = set(), [*reversed(roots)]
    while waiting:
        node = waiting.pop()
        left = () if node in begun else [
            part for part in parts(node) if part not in done]
        if left:
            waiting += (node, *reversed(left))
        else:
            done[node] = None
        begun.add(node)
    return list(done)


def rewrite(value: Expression,
            change: Callable[[Expression], Expression] = SIMPLIFY[0],
            at: Mapping[Atom, Index] = MappingProxyType({})) -> Expression:
    """The expression with `change` applied to every node, parts first;
    and `at` says what variables become."""
    done: dict[Expression, Expression] = {}
    places: dict[Index, Index] = {}
    for node in walk(value):
        made, new = node, tuple(done[part] for part in node.parts)
        where = getattr(node, "index", None)
        if where is None and new != node.parts:
            made = Op(node.name, new, node.dtype)
        elif where is not None and (at or new != node.parts):
            if where not in places:
                places[where] = substitute(where, {**at, **{
                    pick: index(replace(pick, value=done[pick.value]))
                    for pick in picked(where)}})
            made = replace(node, index=places[where])
            if getattr(node, "mask", None):
                made = replace(made, mask=new[0])
        done[node] = change(made)
    return done[value]
