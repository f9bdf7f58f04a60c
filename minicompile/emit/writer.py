"""A kernel in stages, and its text: what C++ and Triton have in common.

In: a Kernel. Out: lines, one for each value. The loop language makes equal
expressions one object. So value numbering has one thing left to do: a read
of a buffer that the kernel has stored becomes the value that it stored. A
value that does not depend on the element belongs to the row. A Writer
follows the stages: values of the row, then a pass over its elements. The
two languages differ in how a load, a loop and a reduction look, and in
nothing else. Inductor's is torch/_inductor/codegen/common.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

import torch

from ..core.errors import BackendError, CompileError
from ..core.index import Index, atoms_of
from ..core.loops import (Const, Expression, InternedNode, Kernel, Load,
                          Loop, Op, rewrite)
from .target import Target


@dataclass(frozen=True, eq=False)
class Fold(metaclass=InternedNode):
    """A reduction of a value over the elements of a row."""

    reduction: str
    operands: tuple[Expression]
    dtype: torch.dtype


class Place(NamedTuple):
    """Where a value is computed: for each element or once a row, and in
    which stage; a Fold only when the pass of the stage before has ended.
    """

    element: bool
    stage: int


@dataclass(frozen=True, eq=False)
class Store:
    """A value put into memory, and where that is done."""

    buffer: str
    index: Index
    value: Expression
    place: Place

    @property
    def parts(self) -> tuple[Expression]:
        """The value, which it waits for."""
        return (self.value,)


@dataclass
class Numbering:
    """The values of a kernel, each after its operands, and its stores."""

    kernel: Kernel
    places: dict[Expression, Place] = field(default_factory=dict)
    stores: dict[str, Store] = field(default_factory=dict)

    def add(self, loop: Loop) -> None:
        """Place the value of a loop, and store it."""
        value = rewrite(loop.value, self.number)
        if loop.reduction is not None:
            value = self.fold(loop.reduction, value)
        value = self.cast(value, loop.buffer.dtype)
        element, stage = self.places[value]
        self.stores[loop.buffer.name] = Store(
            loop.buffer.name, loop.index, value,
            Place(element or self.moves(loop.index), stage))

    def number(self, node: Expression) -> Expression:
        """A node, placed; or the stored value that a load reads."""
        store = self.stores.get(node.buffer) if isinstance(
            node, Load) else None
        if store is None:
            return self.placed(node)
        if store.index != node.index:
            if node.buffer in self.kernel.internal:
                raise BackendError(f"{self.kernel.name} reads {node} before"
                                   " it is in memory")
            return self.placed(node, store.place.stage + 1)
        value = store.value if not isinstance(store.value, Const) else (
            self.placed(Op("cast", (store.value,), node.dtype)))
        return value if node.mask is None else self.placed(Op(
            "where", (node.mask, value, self.placed(Const(
                node.other, node.dtype))), node.dtype))

    def fold(self, reduction: str, value: Expression) -> Expression:
        """A value reduced; of a single element, the element."""
        if not self.kernel.reduced:
            return value
        return self.placed(Fold(reduction, (value,), value.dtype))

    def cast(self, value: Expression, dtype: torch.dtype) -> Expression:
        """The value in another dtype."""
        return value if value.dtype == dtype else self.placed(
            Op("cast", (value,), dtype))

    def placed(self, node: Expression, stage: int = 0) -> Expression:
        """The node; it can be computed where its operands have been."""
        if node not in self.places:
            fold, given = isinstance(node, Fold), [
                self.places[part] for part in node.parts]
            element = not fold and (any(place.element for place in given)
                                    or self.moves(getattr(
                                        node, "index", None)))
            self.places[node] = Place(element, max(
                [stage, *(place.stage + fold for place in given)]))
        return node

    def moves(self, where: Index | None) -> bool:
        """Whether the index depends on the element of a row."""
        return where is not None and not set(
            self.kernel.reduced).isdisjoint(atoms_of(where))


@dataclass(frozen=True)
class Stage:
    """Values of the row and their stores, then a pass over the elements.

    The pass computes `body`, and reads `again` if an earlier one kept it.
    """

    row: tuple[Expression, ...]
    row_stores: tuple[Store, ...]
    body: tuple[Expression, ...]
    stores: tuple[Store, ...]
    folds: tuple[Fold, ...]
    again: tuple[Expression, ...] = ()

    @property
    def pass_needed(self) -> bool:
        """Whether there is anything to do for each element."""
        return bool(self.stores or self.folds)


def stages(kernel: Kernel) -> tuple[Stage, ...]:
    """The kernel's work in stages; each pass computes all it needs."""
    numbering = Numbering(kernel)
    for loop in kernel.loops:
        numbering.add(loop)
    stores = [store for store in numbering.stores.values()
              if store.buffer not in kernel.internal]
    needed = reached(store.value for store in stores)
    live = {node: place for node, place in numbering.places.items()
            if node in needed}
    last = max((place.stage for place in live.values()), default=0)
    return tuple(_stage(number, live, stores) for number in range(last + 1))


def reached(roots: Iterable[Expression],
            through: Callable[[Expression], bool] = lambda _: True
            ) -> set[Expression]:
    """The roots and their parts, as far as the way is `through` them."""
    found: set[Expression] = set()
    waiting = list(roots)
    while waiting:
        node = waiting.pop()
        if node not in found:
            found.add(node)
            waiting += node.parts if through(node) else ()
    return found


def _stage(number: int, live: dict[Expression, Place],
           stores: list[Store]) -> Stage:
    """One of the stages."""
    now = [store for store in stores if store.place.stage == number]
    writes = tuple(store for store in now if store.place.element)
    folds = tuple(node for node, place in live.items() if isinstance(
        node, Fold) and place.stage == number + 1)
    needed = reached(
        (part for each in (*folds, *writes) for part in each.parts),
        lambda node: live[node].element)
    row = tuple(node for node, place in live.items()
                if place == (False, number)
                and not isinstance(node, (Const, Fold)))
    body = tuple(node for node, place in live.items()
                 if place.element and node in needed)
    return Stage(row, tuple(s for s in now if not s.place.element), body,
                 writes, folds)


@dataclass
class Writer:
    """One kernel being written; `texts` says how each value is read.

    A language adds the `value` of a load, what is a `store`, and a pass
    over the `elements` of a row.
    """

    kernel: Kernel
    stages: tuple[Stage, ...]
    texts: dict[Expression, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    depth: int = 0
    count: int = 0
    numbers: dict[Expression, int] = field(default_factory=dict)
    target: ClassVar[Target]

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
            if stage.row or stage.row_stores:
                self.row(stage)
            if stage.pass_needed:
                self.elements(stage)

    def row(self, stage: Stage) -> None:
        """Compute and store the values of the row."""
        self.compute(stage.row, stage.row_stores)

    def compute(self, values: Iterable[Expression],
                stores: Iterable[Store]) -> None:
        """A line for each value that has none yet, and each store."""
        for value in values:
            if value not in self.texts:
                self.name(value, self.value(value))
        for store in stores:
            self.add(self.store(store))

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

    def numbered(self, kind: str, value: Expression) -> str:
        """A name of this kind that ends in the value's number."""
        number = self.numbers.setdefault(value, len(self.numbers))
        return f"{kind}{number}"

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
    said = str(error).strip().splitlines() or [type(error).__name__]
    why = " … ".join(dict.fromkeys([said[0], said[-1]]))
    return CompileError("\n  it computes ".join([
        f"kernel {kernel.name} does not compile: {why}",
        *computes(kernel)[:3]]))
