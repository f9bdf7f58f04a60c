"""Results so far: scans of rows, and softmax in one trip to memory.

A block of Triton's scans its elements in parallel, in as many steps as
their number has bits. A row that no block holds is walked along, and each
block starts from what those before it came to. In Inductor:
torch/_inductor/codegen/triton.py:TritonKernel.scan.

The exponentials of a softmax are those of each element's distance to the
row's maximum. Where they are only added up, as in the loss of a language
model, a quick function serves. In a row that is walked along, their sum
waits for a pass that finds the maximum. But a sum of distances to the
maximum *so far* is put right by one product whenever that rises:
e ** (x - new) is e ** (x - old) * e ** (old - new). So the pass that finds
the maximum adds up as well. Milakov and Gimelshein published it in 2018.
Inductor's is torch/_inductor/inductor_prims.py:prepare_softmax_online.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from math import inf

import torch

from ...core.loops import Const, Expression, Op, walk
from ..triton import ACROSS, SCANNING, TRITON, WRITERS, TritonWriter
from ..writer import Fold, Stage, Store


def fading(work: tuple[Stage, ...]) -> set[Expression]:
    """The exponentials that only sums read, of a distance to the largest
    element of the row. The error of a quick one grows with the distance,
    while it fades beside the largest one, which is exactly 1."""
    readers: dict[Expression, set[str]] = {}
    for node in (node for stage in work for node in stage.row + stage.body):
        for part in node.parts:
            readers.setdefault(part, set()).add(
                node.reduction if isinstance(node, Fold) else "")
    return {node for node, kinds in readers.items()
            if kinds == {"sum"} and maximum_below(node)}


def maximum_below(node: Expression) -> Fold | None:
    """The row's largest element, if the node is the exponential of how far
    another one is from it; or from 0, if that is infinite."""
    match node:
        case Op("exp", (Op("sub", (x, below)),), torch.float32):
            most = below.operands[-1] if isinstance(below, Op) else below
            match most:
                case Fold("max", (of,)) if x is of:
                    return most if below in (most, finite(most)) else None


def finite(most: Fold) -> Op:
    """The row's largest element; 0, if that is infinite."""
    size = Op("abs", (most,), most.dtype)
    return Op("where", (
        Op("eq", (size, Const(inf, most.dtype)), torch.bool),
        Const(0.0, most.dtype), most), most.dtype)


def together(work: tuple[Stage, ...]) -> dict[Fold, Fold]:
    """The sums of such exponentials, and the maximum of each."""
    return {node: most for stage in work for node in stage.body
            if isinstance(node, Fold) and node.reduction == "sum"
            and (most := maximum_below(node.operands[0]))}


class OnlineWriter(TritonWriter):
    """A writer that adds up exponentials while it finds their maximum.

    `online` has the sums that belong to each maximum, of which a lane
    holds a part; the maximum is a column.
    """

    def __post_init__(self):
        super().__post_init__()
        self.fading = fading(self.stages)
        self.online: dict[Fold, list[Fold]] = {}
        for fold, most in together(self.stages).items():
            if self.has_steps(fold):
                self.online.setdefault(most, []).append(fold)
        self.stages = tuple(map(self.left, self.stages))

    def left(self, stage: Stage) -> Stage:
        """The stage without the sums that an earlier one does."""
        early = {fold for sums in self.online.values() for fold in sums}
        needed = {*walk(*(node for node in stage.body if isinstance(
            node, (Fold, Store)) and node not in early))}
        return replace(stage, body=tuple(
            node for node in stage.body if node in needed))

    def value(self, node: Expression) -> str:
        """The text of a value; of one that is fading, a quick one."""
        if node not in self.fading:
            return super().value(node)
        return f"device.fast_exp({self.read(*node.parts)})"

    def declare(self, folds: list[Fold]) -> None:
        """Start a maximum, and the sums that belong to it."""
        for fold in folds:
            super().declare(self.online.get(fold, [fold]))
            if fold in self.online:
                shape = "()" if self.tiling.flat else "[XBLOCK, 1]"
                self.add(f"{self.accumulator(fold)} = tl.full({shape}, "
                         "float('-inf'), tl.float32)")

    def fold(self, fold: Fold) -> None:
        """Write the step of a maximum: its sums follow it."""
        if fold not in self.online:
            return super().fold(fold)
        most = self.accumulator(fold)
        part, new, base = (self.numbered(name, fold)
                           for name in ("part", "new", "base"))
        self.add(f"{part} = {self.part(fold)}",
                 f"{new} = device.maximum({most}, "
                 f"{self.across(fold, part)})",
                 f"{base} = tl.where({new} == float('-inf'), 0.0, {new})")
        for name in map(self.accumulator, self.online[fold]):
            self.add(f"{name} = {name} * device.fast_exp({most} - {base})"
                     f" + device.fast_exp({part} - {base})")
        self.add(f"{most} = {new}")

    def finish(self, fold: Fold) -> None:
        """Write the sums of the lanes. If the maximum is infinite, that is
        NaN; where distances are from 0 then, its own exponential."""
        if fold not in self.online:
            return super().finish(fold)
        most = self.accumulator(fold)
        self.texts[fold] = most
        for each in self.online[fold]:
            super().finish(each)
            *_, below = each.operands[0].operands[0].operands
            name = self.accumulator(each)
            self.add(f"{name} += {most} - {most}" if below is fold else
                     f"{name} = tl.where(tl.abs({most}) == float('inf'), "
                     f"device.fast_exp({most}), {name})")


def scan(writer: TritonWriter, fold: Fold) -> None:
    """Write the reductions up to each element of a block."""
    name, dtype = writer.accumulator(fold), writer.accumulated(fold)
    part, made = f"{name}_part", f"{name}_here"
    combined = partial(TRITON.combined, fold.reduction, dtype)
    writer.add(f"{part} = {writer.part(fold)}", f"{made} = tl."
               f"{fold.reduction}({part}, {int(not writer.tiling.flat)})")
    if writer.has_steps(fold):
        writer.add(f"{made} = {combined(name, made)}", f"{name} = "
                   + combined(name, writer.across(fold, part)))
    writer.texts[fold] = TRITON.convert(made, dtype, fold.dtype)


WRITERS.append(OnlineWriter)
ACROSS["cumsum"] = "tl.sum"
SCANNING.append(scan)
