"""Results so far: scans of rows, and two reductions in one trip to memory.

A block of Triton's scans its elements in parallel, in as many steps as
their number has bits. A row that no block holds is walked along, and each
block starts from what those before it came to. In Inductor:
torch/_inductor/codegen/triton.py:TritonKernel.scan.

A reduction that needs the result of another one waits for a pass that
finds it. Three of them can keep step with that one instead, on its result
*so far*:

- The sum of exponentials, of each element's distance to the row's maximum,
  as a softmax has it. One product puts it right whenever the maximum rises:
  e ** (x - new) is e ** (x - old) * e ** (old - new). Milakov and
  Gimelshein published it in 2018. A quick function serves where nothing but
  the sum reads them, as in the loss of a language model.
- The sum of squared distances from the mean, as a variance has it. A lane
  adds up those from the mean of its own elements: the k-th of them adds
  (k * x - sum) ** 2 / (k * (k - 1)). Youngs and Cramer published it in
  1971. From the mean of all, those of a lane's n elements are larger by n
  times the squared distance of the two means.
- The place of the largest element. It is forgotten when a larger one comes.

Inductor's are torch/_inductor/inductor_prims.py:prepare_softmax_online,
and welford_reduce and maximum_with_index in
torch/_inductor/runtime/triton_helpers.py.
"""

from dataclasses import replace
from functools import partial
from math import inf

import torch

from ...core.index import enclosed
from ...core.loops import Const, Expression, Load, Op, Position, walk
from ..triton import ACROSS, TRITON, WRITERS, Tiling, TritonWriter
from ..writer import Fold, Stage, Store, ends


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
                    return most if below in (most, or_zero(most)) else None


def or_zero(most: Fold) -> Op:
    """The row's largest element; 0, if that is infinite."""
    size = Op("abs", (most,), most.dtype)
    return Op("where", (
        Op("eq", (size, Const(inf, most.dtype)), torch.bool),
        Const(0.0, most.dtype), most), most.dtype)


#: The types of squares that are not rounded before they are added up.
PRECISE = torch.float32, torch.float64


def leader(node: Fold, row: set[Expression]) -> tuple[str, Fold] | None:
    """How a reduction may keep step with another one, and with which; `row`
    has what is known of the row alone."""
    match node.reduction, node.operands[0]:
        case "sum", Op("mul", (Op("sub", (x, Op("div" | "mul", (
            Fold("sum", (of,)) as sums, _)) as middle)) as off, other),
                       kind) if (
                x is of and off is other and middle in row and (
                    x.dtype == off.dtype == kind in PRECISE)):
            return "squares", sums
        case "sum", below if most := maximum_below(below):
            return "exponentials", most
        case "min", Op("where", (Op("logical_or", (
            Op("eq", (x, Fold("max" | "min", (of,)) as best)),
            Op("ne", (a, b)))), Position(), Const())) if (
                x is of is a is b):
            return "places", best
    return None


def together(work: tuple[Stage, ...]) -> dict[Fold, tuple[str, Fold]]:
    """The reductions that keep step with one of an earlier pass: how, and
    which that is. All that follow one do so in the same way: places wait
    if exponentials follow the same maximum."""
    row = {node for stage in work for node in stage.row}
    folds = [node for stage in work for node in stage.body
             if isinstance(node, Fold)]
    found: dict[Fold, tuple[str, Fold]] = {}
    ways: dict[Fold, str] = {}
    for fold in sorted(folds, key=lambda node: node.reduction == "min"):
        way, first = leader(fold, row) or ("", fold)
        if way and first not in found and (
                ways.setdefault(first, way) == way):
            found[fold] = way, first
    return found


class ScanningWriter(TritonWriter):
    """A writer of scans, too."""

    def work(self) -> None:
        """Load first what waits for no value: a check may stop a program,
        and what is behind it waits until its operand is there."""
        begin = self.stages[0].row + self.stages[0].body
        if not self.tiling.looped:
            self.compute(node for node in begin if isinstance(
                node, Load) and not node.parts)
        super().work()

    def fold(self, fold: Fold) -> None:
        """Write the reductions up to each element of a block."""
        if ends(fold):
            return super().fold(fold)
        name, dtype = self.accumulator(fold), self.accumulated(fold)
        part, made = f"{name}_part", f"{name}_here"
        combined = partial(TRITON.combined, fold.reduction, dtype)
        self.add(f"{part} = {self.part(fold)}", f"{made} = tl."
                 f"{fold.reduction}({part}, {int(not self.tiling.flat)})")
        if self.has_steps(fold):
            self.add(f"{made} = {combined(name, made)}", f"{name} = "
                     + combined(name, self.across(fold, part)))
        self.texts[fold] = TRITON.convert(made, dtype, fold.dtype)


class OnlineWriter(ScanningWriter):
    """A writer of reductions that keep step with others.

    `led` says of each how, and with which; `online` has the followers of
    that one. In each lane is a part of every reduction; but a maximum that
    exponentials follow is a column.
    """

    def __post_init__(self):
        super().__post_init__()
        self.fading = fading(self.stages)
        self.led = {fold: how for fold, how in together(
            self.stages).items() if self.has_steps(fold)}
        self.online: dict[Fold, tuple[str, list[Fold]]] = {}
        for fold, (way, first) in self.led.items():
            self.online.setdefault(first, (way, []))[1].append(fold)

    def elements(self, stage: Stage) -> None:
        """A pass without the reductions that an earlier one did, which end
        here."""
        early = [node for node in stage.body if node in self.led]
        needed = {*walk(*(node for node in stage.body if isinstance(
            node, (Fold, Store)) and node not in early))}
        body = tuple(node for node in stage.body if node in needed)
        if body:
            super().elements(replace(stage, body=body))
        for fold in early:
            way, first = self.led[fold]
            getattr(self, f"end_{way}")(fold, first)

    def value(self, node: Expression) -> str:
        """The text of a value; of one that is fading, a quick one."""
        if node not in self.fading:
            return super().value(node)
        return f"device.fast_exp({self.read(*node.parts)})"

    def declare(self, folds: list[Fold]) -> None:
        """Start reductions, and those that follow them."""
        for fold in folds:
            way, others = self.online.get(fold, ("", []))
            super().declare([fold] * (way != "exponentials") + others)
            if way == "exponentials":
                shape = "()" if self.tiling.flat else "[XBLOCK, 1]"
                self.add(f"{self.accumulator(fold)} = tl.full({shape}, "
                         "float('-inf'), tl.float32)")

    def fold(self, fold: Fold) -> None:
        """Write the step of a reduction: others follow it."""
        if fold not in self.online:
            return super().fold(fold)
        way, others = self.online[fold]
        part = self.numbered("part", fold)
        self.add(f"{part} = {self.part(fold)}")
        getattr(self, f"add_{way}")(fold, part, others)

    def finish(self, fold: Fold) -> None:
        """Write the result; that of each lane may be asked for later."""
        way, _ = self.online.get(fold, ("", []))
        name = self.accumulator(fold)
        if way == "exponentials":
            self.texts[fold] = name
            return
        if way:
            self.add(f"{self.numbered('lanes', fold)} = {name}")
        super().finish(fold)

    # Exponentials

    def add_exponentials(self, most: Fold, part: str, sums: list[Fold]
                         ) -> None:
        """Let the maximum rise, and sums be of distances to the new one."""
        name = self.accumulator(most)
        new, base = (self.numbered(each, most) for each in ("new", "base"))
        self.add(f"{new} = device.maximum({name}, "
                 f"{self.across(most, part)})",
                 f"{base} = tl.where({new} == float('-inf'), 0.0, {new})")
        for each in map(self.accumulator, sums):
            self.add(f"{each} = {each} * device.fast_exp({name} - {base})"
                     f" + device.fast_exp({part} - {base})")
        self.add(f"{name} = {new}")

    def end_exponentials(self, fold: Fold, most: Fold) -> None:
        """If the maximum is infinite, the sum is NaN; where distances are
        from 0 then, its own exponential."""
        super().finish(fold)
        *_, below = fold.operands[0].operands[0].operands
        name, large = self.accumulator(fold), self.read(most)
        self.add(f"{name} += {large} - {large}" if below is most else
                 f"{name} = tl.where(tl.abs({large}) == float('inf'), "
                 f"device.fast_exp({large}), {name})")

    # Squares

    def add_squares(self, sums: Fold, part: str, others: list[Fold]
                    ) -> None:
        """Add what one more element makes of the squared distances."""
        name, axis = self.accumulator(sums), self.axis(sums)
        count, off = (self.numbered(each, sums)
                      for each in ("count", "off"))
        part_off = f"tl.fma(-{count}, {part}, {name})"
        if not axis.even:
            part_off = f"tl.where({axis.name}_inside, {part_off}, 0)"
        self.add(f"{name} = {name} + {part}",
                 f"{count} = tl.full((), start // RBLOCK + 1, "
                 f"{TRITON.types[self.accumulated(sums)]})",
                 f"{off} = {part_off}",
                 f"{count} = 1 / ({count} * tl.maximum({count} - 1, 1))",
                 *(f"{each} = tl.fma({off} * {count}, {off}, {each})"
                   for each in map(self.accumulator, others)))

    def end_squares(self, fold: Fold, sums: Fold) -> None:
        """Add those of each lane's mean."""
        name = self.accumulator(fold)
        count, off, lanes = (self.numbered(each, sums)
                             for each in ("count", "off", "lanes"))
        middle = self.read(fold.operands[0].operands[0].operands[1])
        size = enclosed(TRITON.index(self.axis(fold).size))
        self.add(f"{count} = ({size} - lane + RBLOCK - 1) // RBLOCK",
                 f"{off} = {lanes} / tl.maximum({count}, 1) - {middle}",
                 f"{name} = {name} + {count} * {off} * {off}")
        super().finish(fold)

    # Places

    def add_places(self, best: Fold, part: str, places: list[Fold]) -> None:
        """Forget the places of what is no longer the best, and look for
        the place of what is, so far."""
        name, new = self.accumulator(best), self.numbered("new", best)
        self.add(f"{new} = " + TRITON.combined(
            best.reduction, self.accumulated(best), name, part))
        for each in places:
            self.kept(each, name, new)
        self.add(f"{name} = {new}")
        self.texts[best] = name
        for each in places:
            self.compute(node for node in walk(each.operands[0])
                         if not isinstance(node, (Const, Fold)))
            super().fold(each)

    def end_places(self, fold: Fold, best: Fold) -> None:
        """Keep the places of the lanes that have the best of all."""
        self.kept(fold, self.numbered("lanes", best), self.read(best))
        super().finish(fold)

    def kept(self, fold: Fold, old: str, new: str) -> None:
        """Keep a place if this is the best still; NaN is as good as NaN.
        """
        name, never = self.accumulator(fold), fold.operands[0].operands[2]
        self.add(f"{name} = tl.where(({old} == {new}) | ({old} != {old}), "
                 f"{name}, {self.read(never)})")


WRITERS[Tiling] = OnlineWriter
ACROSS["cumsum"] = "tl.sum"
