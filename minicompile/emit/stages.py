"""A kernel as numbered values, each placed where it is computed.

In: a Kernel. Out: its Stages. Equal expressions get one Local (this is
value numbering), a read of a buffer of the kernel's own is the value that
was stored, and what does not depend on the element belongs to the row. A
row is worked through in stages: values of the row, then one pass over its
elements, whose reductions the next stage can use. Inductor's CSE is in
torch/_inductor/codegen/common.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import torch

from ..core.errors import BackendError
from ..core.index import Index, atoms_of
from ..core.loops import (Const, Expression, Kernel, Load, Loop, Op,
                          described, parts, walk)
from .operations import BETTER, held

#: Reductions of bools that are another one: it keeps them bools.
OF_BOOLS = {"sum": "any", "max": "any", "prod": "all", "min": "all"}


@dataclass(frozen=True)
class Fold:
    """A reduction of a value over the elements of a row."""

    reduction: str
    dtype: torch.dtype


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
        if value.dtype != loop.buffer.dtype:
            value = self.cast(value, loop.buffer.dtype)
        element = value.element or self.moves(loop.index)
        self.stores[loop.buffer.name] = Store(
            loop.buffer.name, loop.index, value, element, value.stage)

    def number(self, node: Expression, operands: tuple) -> Local:
        """The local of a node; a load of what was stored is that value."""
        stage = 0
        if isinstance(node, Load) and node.buffer in self.stores:
            store = self.stores[node.buffer]
            if store.index == node.index:
                return self.chosen(node, operands, store.local)
            if node.buffer in self.kernel.internal:
                raise BackendError(f"{self.kernel.name} reads {node} before"
                                   " it is in memory")
            stage = store.stage + 1
        return self.local(node, operands, stage)

    def chosen(self, load: Load, mask: tuple, stored: Local) -> Local:
        """What the load finds where `stored` has just been put."""
        if load.mask is None:
            return stored
        other = self.local(Const(load.other, load.dtype), ())
        return self.local(
            Op("where", (load.mask, stored.node, other.node), load.dtype),
            (*mask, stored, other))

    def fold(self, reduction: str, value: Local) -> Local:
        """The local of a reduction; of a single element, the element."""
        if not self.kernel.reduced:
            return value if reduction not in BETTER else self.local(
                Const(0, torch.int64), ())
        if value.dtype == torch.bool:
            reduction = OF_BOOLS.get(reduction, reduction)
        elif reduction in ("any", "all"):
            value = self.cast(value, torch.bool)
        dtype = torch.int64 if reduction in BETTER else value.dtype
        return self.local(Fold(reduction, dtype), (value,))

    def cast(self, value: Local, dtype: torch.dtype) -> Local:
        """The local of the value in another dtype."""
        return self.local(Op("cast", (value.node,), dtype), (value,))

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

    def moves(self, index: Index | None) -> bool:
        """Whether the index depends on the element of a row."""
        return index is not None and not set(
            self.kernel.reduced).isdisjoint(atoms_of(index))


@dataclass(frozen=True)
class Stage:
    """Values of the row and their stores, then a pass over the elements.

    `body` is what the pass computes, `again` what it takes from where an
    earlier pass left it: memory that it stored, or scratch (None).
    """

    row: tuple[Local, ...]
    row_stores: tuple[Store, ...]
    body: tuple[Local, ...]
    again: dict[Local, Store | None]
    stores: tuple[Store, ...]
    folds: tuple[Local, ...]

    @property
    def pass_needed(self) -> bool:
        """Whether there is anything to do for each element."""
        return bool(self.stores or self.folds)


def stages(kernel: Kernel, keep: Callable[[Local], bool] | None
           ) -> tuple[Stage, ...]:
    """The kernel's work in stages.

    A later pass that needs a value again reads it where it was stored,
    or from scratch if `keep` is true of it, or of what led to it; else it
    computes it anew. Without `keep` it computes everything anew.
    """
    numbering = Numbering(kernel)
    for loop in kernel.loops:
        numbering.add(loop)
    stores = [store for store in numbering.stores.values()
              if store.buffer not in kernel.internal]
    live = _reached(store.local for store in stores)
    worth = _worth_keeping(live, keep) if keep else set()
    done: dict[Local, Store | None] = {}
    found = []
    last = max((local.stage for local in live), default=0)
    for number in range(last + 1):
        stage = _stage(number, live, stores, done)
        found.append(stage)
        if keep:
            done |= dict.fromkeys(worth.intersection(stage.body))
            done |= {store.local: store for store in stage.stores}
    return tuple(found)


def everything(_: Local) -> bool:
    """Keep all values: there is room for them."""
    return True


def _reached(roots: Iterable[Local]) -> list[Local]:
    """All locals that the roots are made of, operands first."""
    found: set[Local] = set()
    waiting = list(roots)
    while waiting:
        local = waiting.pop()
        if local not in found:
            found.add(local)
            waiting += local.operands
    return sorted(found, key=lambda local: local.number)


def _worth_keeping(live: list[Local],
                   keep: Callable[[Local], bool]) -> set[Local]:
    """The values of the element to keep, and what they lead to."""
    found: set[Local] = set()
    for local in live:
        if local.element and (keep(local) or not found.isdisjoint(
                local.operands)):
            found.add(local)
    return found


def _stage(number: int, live: list[Local], stores: list[Store],
           done: dict[Local, Store | None]) -> Stage:
    """One stage; `done` says what it need not compute again."""
    now = [store for store in stores if store.stage == number]
    writes = [store for store in now if store.element]
    folds = [local for local in live if isinstance(local.node, Fold)
             and local.stage == number + 1]
    body: set[Local] = set()
    again: dict[Local, Store | None] = {}
    waiting = [f.operands[0] for f in folds] + [s.local for s in writes]
    while waiting:
        local = waiting.pop()
        if not local.element or local in body:
            continue
        if local in done:
            again[local] = done[local]
        else:
            body.add(local)
            waiting += local.operands
    row = [local for local in live
           if local.stage == number and not local.element
           and not isinstance(local.node, (Const, Fold))]
    return Stage(
        tuple(row), tuple(s for s in now if not s.element),
        tuple(sorted(body, key=lambda local: local.number)),
        again, tuple(writes), tuple(folds))


def kept(work: tuple[Stage, ...]) -> tuple[Local, ...]:
    """The values of an element that scratch must hold for later passes."""
    return tuple(dict.fromkeys(
        local for stage in work
        for local, store in stage.again.items() if store is None))


def homes(work: tuple[Stage, ...]) -> dict[Local, Store]:
    """Memory that is only written later, and can hold a value till then,
    as it is held between operations."""
    last = {local: number for number, stage in enumerate(work)
            for local in stage.again}
    free = [store for stage in work for store in stage.stores]
    found: dict[Local, Store] = {}
    for local in kept(work):
        home = next((store for store in free if store.stage >= last[local]
                     and store.local.dtype == local.dtype
                     == held(local.dtype)), None)
        if home is not None:
            found[local] = home
            free.remove(home)
    return found


def shared(work: tuple[Stage, ...]) -> tuple[Local, ...]:
    """The values of the row that are read outside the stage's row part."""
    found: dict[Local, None] = {}
    for stage in work:
        for made, roots in (
                (stage.row, [store.local for store in stage.row_stores]),
                (stage.body, [store.local for store in stage.stores]
                 + [fold.operands[0] for fold in stage.folds])):
            read = [o for local in made for o in local.operands] + roots
            found |= dict.fromkeys(local for local in read if not
                                   local.element and local not in made)
    return tuple(sorted(found, key=lambda local: local.number))
