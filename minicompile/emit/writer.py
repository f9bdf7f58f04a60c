"""A kernel in stages, and its text: what C++ and Triton have in common.

In: a Kernel. Out: lines, one for each value. The loop language makes equal
expressions one object. So value numbering has one thing left to do: a read
of a buffer that the kernel has stored becomes the value that it stored. A
value that does not depend on the element belongs to the row. A Writer
follows the stages: values of the row, then a pass over its elements. The
two languages differ in how a load, a loop and a reduction look, and in
nothing else. Inductor's is torch/_inductor/codegen/common.py.
"""

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from typing import ClassVar, NamedTuple

import torch

from ..core.errors import BackendError, CompileError
from ..core.index import Index, atoms_of
from ..core.loops import (SCANS, Const, Expression, Kernel, Load, Loop,
                          Node, Op, accurate, places_of, renamed,
                          rewrite, walk)
from .target import Target


@dataclass(frozen=True, eq=False)
class Fold(Node):
    """A reduction of a value over the elements of a row, or `down` rows;
    a scan is known at each element, others when a pass has ended."""

    reduction: str
    operands: tuple[Expression]
    dtype: torch.dtype
    down: bool = False


class Place(NamedTuple):
    """Where a value is computed: for each element or once a row, and in
    which stage; a Fold only when the pass of the stage before has ended.
    """

    element: bool
    stage: int


@dataclass(frozen=True, eq=False)
class Store:
    """A value put into memory, or added to what lies there."""

    buffer: str
    index: Index
    value: Expression
    adds: bool

    @property
    def parts(self) -> tuple[Expression, ...]:
        """The values that it waits for."""
        return *places_of(self.index), self.value


#: What is done in a stage: computing a value, or storing it.
Work = Expression | Fold | Store


@dataclass(frozen=True)
class Stage:
    """Work on the row, then a pass over the elements; values come first,
    then stores, then folds of the row.

    The pass does `body`, and reads `again` if an earlier one kept it.
    """

    row: tuple[Expression | Store, ...]
    body: tuple[Work, ...]
    again: tuple[Expression, ...] = ()


@lru_cache(maxsize=16)  # the tiling asks, then the writer
def stages(kernel: Kernel) -> tuple[Stage, ...]:
    """The kernel's work in stages; each pass computes all it needs. A
    store over elements that are read waits for the last pass."""
    stores: dict[str, Store] = {}
    for loop in kernel.loops:
        stores[loop.buffer.name] = stored(loop, kernel, stores)
    needed = {*walk(*(store for name, store in stores.items()
                      if name not in kernel.internal))}
    places: dict[Work, Place] = {}
    for node in walk(*stores.values()):
        if node in needed:
            places[node] = placed(node, kernel, places)
    passes = [place.stage for place in places.values() if place.element]
    for loop in kernel.loops:
        store = stores[loop.buffer.name]
        if loop.buffer.into in kernel.read and places[store].element:
            places[store] = Place(True, max(passes))
    last = max((place.stage for place in places.values()), default=0)
    return tuple(_stage(number, places) for number in range(last + 1))


def stored(loop: Loop, kernel: Kernel, stores: dict[str, Store]) -> Store:
    """The store of a loop's value, reduced and cast where it must be. A
    load of an earlier loop's buffer becomes the value stored there. A
    reduction of a single element is the element."""
    def known(node: Expression) -> Expression:
        if not isinstance(node, Load) or node.buffer in kernel.read:
            return node
        store = stores.get(node.buffer)
        if store is None or store.index != node.index:
            raise BackendError(f"{kernel.name} reads {node} before it is "
                               "in memory")
        return store.value if node.mask is None else Op("where", (
            node.mask, store.value, Const(0, node.dtype)), node.dtype)

    value, into = rewrite(loop.value, known), loop.buffer
    if loop.reduction is not None and kernel.reduced:
        value = Fold(loop.reduction, (value,), value.dtype,
                     loop.down is not None)
    if value.dtype != into.dtype or isinstance(value, Const):
        value = Op("cast", (value,), into.dtype)
    return Store(into.name, loop.index, value, loop.adds)


def placed(node: Work, kernel: Kernel, places: dict[Work, Place]) -> Place:
    """Where a node is computed, if its operands are at these places."""
    last, where = ends(node), getattr(node, "index", None)
    given = [places[part] for part in node.parts]
    return Place(not last and (
        isinstance(node, Fold) or any(place.element for place in given)
        or where is not None
        and not atoms_of(where).isdisjoint(kernel.reduced)), max(
            [0, *(place.stage + last for place in given)]))


def ends(node: Work) -> bool:
    """Whether a node is known when a pass has ended, and not before."""
    return isinstance(node, Fold) and node.reduction not in SCANS


def _stage(number: int, live: dict[Work, Place]) -> Stage:
    """One of the stages."""
    row = [node for node, place in live.items() if place == (False, number)
           and not isinstance(node, (Const, Fold))]
    last = [node for node, place in live.items()
            if isinstance(node, Store) and place == (True, number)
            or ends(node) and place.stage == number + 1]
    needed = {*walk(
        *(part for node in last for part in node.parts),
        parts=lambda node: node.parts if live[node].element else ())}
    body = [node for node in live if live[node].element and node in needed]

    def order(node: Work) -> tuple[bool, bool]:
        return (ends(node) and not node.down,
                ends(node) or isinstance(node, Store))

    return Stage(tuple(sorted(row, key=order)),
                 tuple(sorted(body + last, key=order)))


@dataclass
class Writer:
    """One kernel being written; `texts` says how each value is read, and
    `shape` how many are computed at a time.

    A language adds the `value` of a load, what is a `store`, the `loops`
    over the elements of a row, and how a reduction is to `finish`.
    """

    kernel: Kernel
    texts: dict[Expression, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 1
    count: int = 0
    numbers: dict[Expression, int] = field(default_factory=dict)
    shape: str = ""
    target: ClassVar[Target]

    def __post_init__(self):
        self.stages = stages(self.kernel)

    def add(self, *lines: str) -> None:
        """Write lines in the block that is open."""
        self.lines += ["    " * self.depth + line for line in lines]

    @contextmanager
    def block(self, head: str, *above: str) -> Iterator[None]:
        """Write a block; values named in it are not known after it."""
        before = dict(self.texts)
        self.lines += above
        self.add(head + self.target.opened)
        self.depth += 1
        yield
        self.depth -= 1
        self.add(*self.target.closed)
        self.texts = before

    @contextmanager
    def nest(self, *blocks) -> Iterator[None]:
        """Blocks, each in the one before."""
        with ExitStack() as opened:
            for block in blocks:
                opened.enter_context(block)
            yield

    def work(self) -> None:
        """The stages, one after the other."""
        for stage in self.stages:
            if stage.row:
                self.row(stage)
            if stage.body:
                self.elements(stage)

    def row(self, stage: Stage) -> None:
        """Compute and store the values of the row."""
        self.compute(stage.row)

    def elements(self, stage: Stage) -> None:
        """A pass: accumulators, the loops over elements, and results."""
        folds = [node for node in stage.body
                 if isinstance(node, Fold) and self.has_steps(node)]
        self.declare(folds)
        with self.nest(*self.loops(folds)):
            self.element(stage)
        for fold in filter(ends, folds):
            self.finish(fold)

    def has_steps(self, fold: Fold) -> bool:
        """Whether the loops of a pass do a reduction step by step."""
        return True

    def declare(self, folds: list[Fold]) -> None:
        """Start the accumulators of reductions."""
        for fold in folds:
            dtype = self.accumulated(fold)
            self.add(self.target.declared.format(
                self.accumulator(fold),
                self.target.neutral(fold.reduction, dtype),
                type=self.target.types[dtype], shape=self.shape))

    def element(self, stage: Stage) -> None:
        """Write one element's part of a pass."""
        self.compute(stage.body)

    def compute(self, work: Iterable[Work]) -> None:
        """A line for each value that has none yet, each store and fold."""
        for node in work:
            if isinstance(node, Store):
                self.add(self.store(node))
            elif isinstance(node, Fold):
                self.fold(node)
            elif node not in self.texts:
                self.name(node, self.value(node))

    def fold(self, fold: Fold) -> None:
        """Write the step of a reduction."""
        name = self.accumulator(fold)
        self.add(self.target.assigned.format(name, self.target.combined(
            fold.reduction, self.accumulated(fold), name, self.part(fold))))

    def part(self, fold: Fold) -> str:
        """The value that a step adds to a reduction."""
        return self.read(fold.operands[0])

    def name(self, value: Expression, text: str) -> None:
        """Give the value of a text a name, unless the text is one."""
        if not text.isidentifier():
            name = f"t{self.count}"
            self.count += 1
            self.add(self.target.named.format(
                name, text, type=self.target.type_of(value.dtype)))
            text = name
        self.texts[value] = text

    def value(self, node: Op) -> str:
        """The text of an operation whose operands have names."""
        return self.target.operation(node, [*map(self.read, node.parts)])

    def read(self, value: Expression) -> str:
        """How a value is read: its name, or what number it is."""
        if isinstance(value, Const):
            return self.target.literal(value.value, value.dtype, True)
        return self.texts[value]

    def index(self, where: Index) -> Index:
        """An index by the names of what was computed for it."""
        return renamed(where, self.read)

    def numbered(self, kind: str, value: Expression) -> str:
        """A name of this kind that ends in the value's number."""
        number = self.numbers.setdefault(value, len(self.numbers))
        return f"{kind}{number}"

    def accumulated(self, fold: Fold) -> torch.dtype:
        """The dtype of a reduction's accumulator."""
        given = accurate(fold.operands[0].dtype)
        return self.target.reduced_as.get((fold.reduction, given), given)

    def accumulator(self, fold: Fold) -> str:
        """The name of a reduction's accumulator, then of its result."""
        return self.numbered(fold.reduction, fold)


def computes(kernel: Kernel) -> list[str]:
    """The results of a kernel, each with the user's line for it."""
    return list(dict.fromkeys(
        (loop.origin or loop.buffer.name)
        + (f", from {loop.where}: {loop.where.text}" if loop.where else "")
        for loop in kernel.loops))


def failure(kernel: Kernel, error: Exception) -> CompileError:
    """The error for a kernel that did not compile, and whose it is."""
    while getattr(error, "__cause__", None):  # of a function it calls
        error = error.__cause__
    said = str(error).strip().splitlines() or [type(error).__name__]
    why = " … ".join(dict.fromkeys([said[0], said[-1]]))
    return CompileError("\n  it computes ".join([
        f"kernel {kernel.name} does not compile: {why}",
        *computes(kernel)[:3]]))
