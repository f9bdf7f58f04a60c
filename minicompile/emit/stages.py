"""A kernel as numbered values, each placed where it is computed.

In: a Kernel. Out: its Stages. Equal expressions become one Local (this is
value numbering), and a read of a buffer that the kernel has stored is the
value that it stored. A value that does not depend on the element belongs
to the row. Inductor's CSE is in torch/_inductor/codegen/common.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from ..core.errors import BackendError
from ..core.index import Index, atoms_of, index, may_exceed
from ..core.layout import flatten, row_major
from ..core.loops import (Const, Expression, Kernel, Loop, Op,
                          Position, described, parts, walk)

#: How many floats are summed up as floats: 2048, in 16 lanes.
LONG = 2048
#: Reductions of bools that are another one, which keeps them bools.
FOLDS_OF_BOOLS = {"sum": "any", "max": "any", "prod": "all", "min": "all"}


@dataclass(frozen=True)
class Fold:
    """A reduction of a value over the elements of a row; `long` ones are
    of more than LONG elements."""

    reduction: str
    dtype: torch.dtype
    long: bool = False


@dataclass(frozen=True, eq=False)
class Local:
    """A value of the row, or of an element, computed from others.

    It can be computed in `stage`; a Fold only when the pass of the stage
    before has ended.
    """

    number: int
    node: Expression | Fold
    operands: tuple[Local, ...]
    element: bool
    stage: int

    @property
    def dtype(self) -> torch.dtype:
        """The dtype that the value is rounded to."""
        return self.node.dtype


@dataclass(frozen=True, eq=False)
class Store:
    """A value put into memory; of the row, or of an element."""

    buffer: str
    index: Index
    local: Local
    element: bool
    stage: int


@dataclass
class Numbering:
    """The locals and stores of a kernel, in order."""

    kernel: Kernel
    locals: dict[object, Local] = field(default_factory=dict)
    stores: dict[str, Store] = field(default_factory=dict)

    def add(self, loop: Loop) -> None:
        """Number the value of a loop, and store it."""
        made: dict[int, Local] = {}
        for node in walk(loop.value):
            made[id(node)] = self.number(
                node, tuple(made[id(part)] for part in parts(node)))
        value = made[id(loop.value)]
        if loop.reduction is not None:
            value = self.fold(loop.reduction, value)
        value = self.cast(value, loop.buffer.dtype)
        element = value.element or self.moves(loop.index)
        self.stores[loop.buffer.name] = Store(
            loop.buffer.name, loop.index, value, element, value.stage)

    def number(self, node: Expression, operands: tuple) -> Local:
        """The local of a node; a load of what was stored is that value."""
        if isinstance(node, Position) and node.index.constant is not None:
            node = Const(int(node.index), node.dtype)
        store = self.stores.get(getattr(node, "buffer", None))
        if store is None:
            return self.local(node, operands)
        if store.index != node.index:
            if node.buffer in self.kernel.internal:
                raise BackendError(f"{self.kernel.name} reads {node} before"
                                   " it is in memory")
            return self.local(node, operands, store.stage + 1)
        if node.mask is None:
            return store.local
        other = self.local(Const(node.other, node.dtype), ())
        return self.op("where", node.dtype, *operands, store.local, other)

    def fold(self, reduction: str, value: Local) -> Local:
        """The local of a reduction; of a single element, the element."""
        place = reduction.removeprefix("arg")
        if place != reduction:
            return self.place(place, value)
        if not self.kernel.reduced:
            return value
        if value.dtype == torch.bool:
            reduction = FOLDS_OF_BOOLS.get(reduction, reduction)
        elif reduction in ("any", "all"):
            value = self.cast(value, torch.bool)
        long = may_exceed(self.kernel.row_length, LONG)
        return self.local(Fold(reduction, value.dtype, long), (value,))

    def place(self, reduction: str, value: Local) -> Local:
        """The first place of the best value; NaN is the best there is."""
        best, sizes = self.fold(reduction, value), tuple(
            variable.size for variable in self.kernel.reduced)
        found = self.op("logical_or", torch.bool,
                        self.op("eq", torch.bool, value, best),
                        self.op("ne", torch.bool, value, value))
        here = flatten(map(index, self.kernel.reduced), row_major(sizes))
        dtype = torch.int64 if may_exceed(
            self.kernel.row_length, (1 << 31) - 1) else torch.int32
        return self.fold("min", self.op(
            "where", dtype, found, self.local(Position(here, dtype), ()),
            self.local(Const(torch.iinfo(dtype).max, dtype), ())))

    def cast(self, value: Local, dtype: torch.dtype) -> Local:
        """The local of the value in another dtype."""
        return value if value.dtype == dtype else self.op(
            "cast", dtype, value)

    def op(self, name: str, dtype: torch.dtype, *operands: Local) -> Local:
        """The local of an operation on others."""
        return self.local(Op(name, tuple(o.node for o in operands), dtype),
                          operands)

    def local(self, node: Expression | Fold, operands: tuple[Local, ...],
              stage: int = 0) -> Local:
        """The one local that computes this from these operands."""
        fold = isinstance(node, Fold)
        key = node if fold else described(node), operands
        if key not in self.locals:
            self.locals[key] = Local(
                len(self.locals), node, operands,
                not fold and (any(o.element for o in operands)
                              or self.moves(getattr(node, "index", None))),
                max([stage, *(o.stage + fold for o in operands)]))
        return self.locals[key]

    def moves(self, where: Index | None) -> bool:
        """Whether the index depends on the element of a row."""
        return where is not None and not set(
            self.kernel.reduced).isdisjoint(atoms_of(where))


@dataclass(frozen=True)
class Stage:
    """Values of the row and their stores, then a pass over the elements.

    The pass computes `body` and reads `again` what an earlier pass kept.
    """

    row: tuple[Local, ...]
    row_stores: tuple[Store, ...]
    body: tuple[Local, ...]
    again: tuple[Local, ...]
    stores: tuple[Store, ...]
    folds: tuple[Local, ...]

    @property
    def pass_needed(self) -> bool:
        """Whether there is anything to do for each element."""
        return bool(self.stores or self.folds)


def stages(kernel: Kernel, keep: Callable[[Local], bool] = lambda _: False
           ) -> tuple[Stage, ...]:
    """The kernel's work in stages.

    A later pass reads a value again if `keep` is true of it, or of a value
    that led to it; it computes the others once more.
    """
    numbering = Numbering(kernel)
    for loop in kernel.loops:
        numbering.add(loop)
    stores = [store for store in numbering.stores.values()
              if store.buffer not in kernel.internal]
    live = sorted(_reached(store.local for store in stores),
                  key=lambda local: local.number)
    worth: set[Local] = set()
    for local in live:
        if local.element and (keep(local) or not worth.isdisjoint(
                local.operands)):
            worth.add(local)
    found, done = [], set()
    for number in range(max((l.stage for l in live), default=0) + 1):
        found.append(_stage(number, live, stores, done))
        done |= worth.intersection(found[-1].body)
    return tuple(found)


def _reached(roots: Iterable[Local],
             through: Callable[[Local], bool] = lambda _: True
             ) -> set[Local]:
    """The roots, and what those are made of that one may go through."""
    found: set[Local] = set()
    waiting = list(roots)
    while waiting:
        local = waiting.pop()
        if local not in found:
            found.add(local)
            waiting += local.operands if through(local) else ()
    return found


def _stage(number: int, live: list[Local], stores: list[Store],
           done: set[Local]) -> Stage:
    """One stage, which need not compute again what is `done`."""
    now = [store for store in stores if store.stage == number]
    writes = tuple(store for store in now if store.element)
    folds = tuple(local for local in live if isinstance(local.node, Fold)
                  and local.stage == number + 1)
    needed = {local for local in _reached(
        [f.operands[0] for f in folds] + [s.local for s in writes],
        lambda local: local.element and local not in done)
        if local.element}
    row = tuple(local for local in live
                if local.stage == number and not local.element
                and not isinstance(local.node, (Const, Fold)))
    body, again = (tuple(l for l in live if l in some) for some in (
        needed - done, needed & done))
    return Stage(row, tuple(s for s in now if not s.element), body, again,
                 writes, folds)
