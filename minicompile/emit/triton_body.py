"""The text of one Triton kernel.

In: a kernel and its Tiling. Out: a function for `@triton.jit`, one line a
value. A value of the row is a column of the block, an element's value the
whole block. If a row fits, values stay in registers from pass to pass;
if it does not, each pass computes again what it needs. In Inductor:
torch/_inductor/codegen/triton.py:TritonKernel.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from ..core.index import Index, enclosed, least_of
from ..core.loops import Kernel, Load, Op, Position
from . import triton_folds as folds
from .operations import HALVES
from .printer import failure
from .stages import Local, Stage, Store, everything, stages
from .target import TRITON
from .triton_tiles import NARROW, Axis, Tiling, wide


def counted(kernel: Kernel, tiling: Tiling) -> str:
    """The type that counts positions: `tl.int64`, nothing for 32 bits, or
    `WIDE`, which each launch decides."""
    numbers = wide(kernel, tiling)
    if any(least_of(number) > NARROW for number in numbers):
        return "tl.int64"
    return "WIDE" if numbers else ""


@dataclass
class Body:
    """A kernel's lines as they are written.

    `summed` are values made of a sum: eager adds up in another order, so
    their last bits are not eager's.
    """

    kernel: Kernel
    tiling: Tiling
    lines: list[str] = field(default_factory=list)
    names: dict[Local, str] = field(default_factory=dict)
    along: dict[Local, frozenset[str]] = field(default_factory=dict)
    summed: set[Local] = field(default_factory=set)
    indent: str = "    "
    count: int = 0

    def write(self) -> list[str]:
        """The kernel's lines, without its header."""
        looped = self.tiling.looped
        work = stages(self.kernel, None if looped else everything)
        self.blocks()
        for stage in work:
            self.compute(stage.row)
            self.store(stage.row_stores)
            if stage.pass_needed:
                (self.walk if looped else self.hold)(stage)
        return self.lines

    def line(self, *texts: str) -> None:
        """Add lines at the present depth."""
        self.lines += [self.indent + text for text in texts]

    def blocks(self) -> None:
        """Write where this program's block of points lies."""
        first, kind = "tl.program_id(0)", counted(self.kernel, self.tiling)
        if kind == "WIDE":
            self.line("WIDE: tl.constexpr = tl.int64 if wide else tl.int32")
            self.line(*(f"{symbol} = tl.full((), {symbol}, WIDE)"
                        for symbol in self.kernel.symbols))
        if kind:
            first += f".to({kind})"
        axes = self.tiling.axes
        for axis in axes:
            self.line(f"{axis.length}: tl.constexpr = {axis.block}")
        for place, axis in enumerate(axes):
            lane = f"tl.arange(0, {axis.length})"
            if len(axes) == 2:
                lane += "[None, :]" if place else "[:, None]"
            if axis in self.tiling.outer:
                number = first
                if len(self.tiling.outer) == 2:
                    number += (f" {'%' if place else '//'} "
                               f"{enclosed(str(axes[1].blocks))}")
                self.point(axis, f"{number} * {axis.length} + {lane}")
                continue
            lane += f".to({kind})" if kind else ""
            if self.tiling.looped:
                self.line(f"lane = {lane}")
            else:
                self.point(axis, lane)

    def point(self, axis: Axis, text: str) -> None:
        """Write an axis's numbers, and which of them exist."""
        self.line(f"{axis.name} = {text}")
        if not axis.even:
            self.line(f"{axis.name}_inside = {axis.name} < {axis.size}")

    def compute(self, values: Iterable[Local]) -> None:
        """Write a line for each value that has none yet."""
        for local in values:
            if local in self.names:
                continue
            text = self.names[local] = self.value(local)
            if not text.isidentifier():
                self.names[local] = f"t{self.count}"
                self.line(f"t{self.count} = {text}")
                self.count += 1

    def value(self, local: Local) -> str:
        """The text of a value whose operands are written."""
        along = frozenset().union(
            *(self.reach(operand) for operand in local.operands))
        match local.node:
            case Position(where, dtype):
                along |= self.tiling.along(where)
                text = f"({TRITON.index(self.tiling.place(where))})"
                if along:
                    text = f"{text}.to({TRITON.type_of(dtype)})"
                elif where.constant is None:
                    text = TRITON.scalar.format(
                        text, type=TRITON.type_of(dtype))
                else:
                    text = TRITON.literal(int(where), dtype, True)
            case Load():
                along |= self.tiling.along(local.node.index)
                text = self.load(local, along)
            case Op():
                summed = not self.summed.isdisjoint(local.operands)
                text = TRITON.operation(local.node, [
                    TRITON.read(operand, self.names)
                    for operand in local.operands], rough=summed)
                self.summed |= {local} if summed else set()
        self.along[local] = along
        return text

    def reach(self, local: Local) -> frozenset[str]:
        """The axes that a value depends on; a constant on none."""
        return self.along.get(local, frozenset())

    def load(self, local: Local, along: frozenset[str]) -> str:
        """The text of a load, masked where points do not exist."""
        node: Load = local.node
        if node.buffer not in self.kernel.read:
            raise failure(self.kernel, f"it reads {node.buffer} at a place"
                          " that another thread writes")
        mask, other = self.mask(along), ""
        if node.mask is not None:
            mask = self.mask(along, TRITON.read(
                local.operands[0], self.names))
            other = f", other={TRITON.literal(node.other, node.dtype)}"
        pointer = self.pointer(node.buffer, node.index, along)
        text = f"tl.load({pointer}{mask}{other})"
        return f"{text}.to(tl.float32)" if node.dtype in HALVES else text

    def mask(self, along: frozenset[str], *more: str) -> str:
        """The argument that leaves out points that do not exist."""
        masks = [f"{axis.name}_inside" for axis in self.tiling.axes
                 if axis.name in along and not axis.even]
        return f", mask={' & '.join([*masks, *more])}" if (
            masks or more) else ""

    def pointer(self, buffer: str, where: Index,
                along: frozenset[str]) -> str:
        """An address for each point along these axes."""
        missing = along - self.tiling.along(where)
        text = " + ".join([TRITON.index(self.tiling.place(where)),
                           *(f"0*{name}" for name in sorted(missing))])
        return f"{buffer}_ptr + {enclosed(text)}"

    def store(self, stores: Iterable[Store]) -> None:
        """Write the stores, masked where points do not exist."""
        for store in stores:
            axes = self.tiling.axes if store.element else self.tiling.outer
            along = frozenset(axis.name for axis in axes)
            pointer = self.pointer(store.buffer, store.index, along)
            value = TRITON.read(store.local, self.names)
            self.line(f"tl.store({pointer}, {value}{self.mask(along)})")

    def walk(self, stage: Stage) -> None:
        """Write a pass along rows that are longer than the block."""
        axis, before = self.tiling.axes[-1], dict(self.names)
        for fold in stage.folds:
            self.line(*folds.begin(fold))
        self.line(f"for start in range(0, {axis.size}, RBLOCK):")
        self.indent += "    "
        self.point(axis, "start + lane")
        self.compute(stage.body)
        self.store(stage.stores)
        for fold in stage.folds:
            self.line(*folds.step(fold, self.whole(fold)))
        self.indent, self.names = self.indent[4:], before
        for fold in stage.folds:
            self.finish(fold, folds.block(fold))

    def hold(self, stage: Stage) -> None:
        """Write a pass over rows that the block holds whole."""
        self.compute(stage.body)
        self.store(stage.stores)
        for fold in stage.folds:
            self.finish(fold, self.whole(fold))

    def whole(self, fold: Local) -> str:
        """The block to reduce, neutral where elements do not exist."""
        value, axis = fold.operands[0], self.tiling.axes[-1]
        text = TRITON.convert(TRITON.read(value, self.names), value.dtype,
                              TRITON.accumulator(fold))
        if axis.name not in self.reach(value):
            text = f"tl.broadcast_to({text}, [XBLOCK, RBLOCK])"
        if axis.even:
            return text
        return f"tl.where(r_inside, {text}, {TRITON.neutral(fold)})"

    def finish(self, fold: Local, text: str) -> None:
        """Write the reduction of the block that a pass has left."""
        self.line(*folds.finish(fold, text, self.tiling.looped,
                                self.tiling.axes[-1].size))
        self.names[fold] = folds.block(fold)
        self.along[fold] = self.reach(fold.operands[0]) - {"r"}
        if fold.node.reduction in ("sum", "prod"):
            self.summed.add(fold)
