"""Triton kernels: blocks of points, computed by one program each.

In: a Kernel. Out: a function for `@triton.jit`, one line a value. A value
of the row is a column of the block, an element's value the whole block;
if there is one row only, these are a number and a vector.
If a row fits, values stay in registers from pass to pass; if it does not,
each pass computes again what it needs. In Inductor:
torch/_inductor/codegen/triton.py:TritonKernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from ..core.errors import CompileError
from ..core.index import (Index, Variable, atoms_of, enclosed, index,
                          most_of, product, substitute)
from ..core.loops import (HALVES, REDUCTIONS, Const, Expression, Kernel,
                          Load, Op, Position, picked, renamed, rewrite,
                          unflatten)
from .target import TRITON, Form
from .writer import Fold, Stage, Store, Work, Writer, computes, ends

#: The elements of a row that a program works on at a time.
LONGEST = 4096
#: Positions up to this one are counted in 32 bits.
NARROW = 2 ** 31 - 2 ** 20 - 1
#: How a block is reduced to a column, where there is a short way.
ACROSS = {"sum": "tl.sum", "any": "tl.max", "all": "tl.min"}
#: A quotient of floats by a number that many of them have in common.
QUOTIENT = Form("device.quotient({0}, {1})")


@dataclass(frozen=True)
class Axis:
    """Loop variables that are counted as one, in blocks."""

    name: str
    variables: tuple[Variable, ...]
    block: int

    @property
    def length(self) -> str:
        """The name of the block's size in the kernel."""
        return f"{self.name.upper()}BLOCK"

    @property
    def size(self) -> Index:
        """How many points the axis has."""
        return product(variable.size for variable in self.variables)

    @property
    def blocks(self) -> Index:
        """How many blocks cover the axis."""
        return (self.size + self.block - 1) // self.block

    @property
    def even(self) -> bool:
        """Whether the last block is full: no mask is needed."""
        return self.size % self.block == 0

    def coordinates(self, at: Index | None = None) -> dict[Variable, Index]:
        """The loop variables in terms of the one number, or `at` one."""
        number = at or index(Variable(self.name, self.size))
        return dict(zip(self.variables, unflatten(number, tuple(
            variable.size for variable in self.variables))))


@dataclass(frozen=True)
class Tiling:
    """A kernel's axes; along "r" it reduces. A block walks along the one
    that is `looped`, if any.

    Positions are `counted` in this type, "" for 32 bits. With "WIDE", each
    launch decides: by whether one of `large` needs more than 32 bits.
    """

    axes: tuple[Axis, ...]
    warps: int
    looped: str = ""
    counted: str = "tl.int64"
    large: tuple[Index, ...] = ()

    def __post_init__(self):
        sizes = (self.warps, *(axis.block for axis in self.axes))
        assert all(size == pow2(size) for size in sizes), self

    @property
    def grid(self) -> Index:
        """How many programs run."""
        return product(axis.blocks for axis in self.outer)

    @property
    def outer(self) -> tuple[Axis, ...]:
        """The axes that are dealt out to programs."""
        return tuple(axis for axis in self.axes
                     if axis.name not in ("r", self.looped))

    @property
    def flat(self) -> bool:
        """Whether a block is one row: its values are single numbers."""
        return self.axes[-1].name == "r" and self.axes[0].block == 1

    @property
    def lanes(self) -> tuple[Axis, ...]:
        """The axes that are a block's dimensions."""
        return self.axes[self.flat:]

    def place(self, where: Index) -> Index:
        """An index of the kernel in terms of the axes' numbers."""
        return substitute(where, {
            variable: number for axis in self.axes
            for variable, number in axis.coordinates().items()})

    def along(self, where: Index) -> frozenset[str]:
        """The names of the axes that an index depends on."""
        used = atoms_of(where)
        return frozenset(axis.name for axis in self.axes
                         if not used.isdisjoint(axis.variables))


def pow2(count: int) -> int:
    """The least power of two that is not below `count`."""
    return 1 << max(0, count - 1).bit_length()


def plain(kernel: Kernel) -> Tiling:
    """A thousand points a program, or one row."""
    if not kernel.reduced:
        return Tiling((Axis("x", kernel.ranges, 1024),), 4)
    block = pow2(min(most_of(kernel.row_length), LONGEST))
    return Tiling((Axis("x", kernel.ranges, 1),
                   Axis("r", kernel.reduced, block)), 4,
                  "r" * (most_of(kernel.row_length) > block))


#: How kernels are tiled: the last of these.
TILINGS: list[Callable[[Kernel], Tiling]] = [plain]


#: Rewrites of every node of a kernel before it is printed.
REWRITES: list[Callable[[Expression], Expression]] = []


def print_kernel(kernel: Kernel, tile: Callable[[Kernel], Tiling] | None
                 = None) -> str:
    """The kernel's definition: how it is launched, then its body. It is
    tiled by `tile`, if there is one."""
    for change in REWRITES:
        kernel = replace(kernel, loops=tuple(
            replace(loop, value=rewrite(loop.value, change))
            for loop in kernel.loops))
    tiling = (tile or TILINGS[-1])(kernel)
    symbols = [*map(str, kernel.symbols)]
    names = [*arguments(kernel), *symbols,
             *["wide: tl.constexpr"] * bool(tiling.large)]
    fixed = [symbol.name for symbol in kernel.symbols if symbol.is_number]
    sized = len(fixed) < len(symbols)
    given = f"lambda {', '.join(symbols)}:" if sized else "lambda:"
    about = [f"grid={given} {tiling.grid}", f"warps={tiling.warps}"]
    about += [f"sizes={len(symbols)}"] * sized
    if tiling.large:
        about.append(f"wide={given} " + " or ".join(
            f"{large} > {NARROW}" for large in tiling.large))
    body = WRITERS[type(tiling)](kernel, tiling=tiling)
    body.blocks()
    body.work()
    if any("device.checked(" in line for line in body.lines):
        about += ["debug=True", "sanitize_overflow=False"]
    return "\n".join([
        *(f"# {about}" for about in computes(kernel)),
        "@launched(" + (",\n          " if sized else ", ").join(about)
        + ")",
        f"@triton.jit{f'(do_not_specialize={fixed})' * bool(fixed)}",
        f"def {kernel.name}({', '.join(names)}):",
        *body.lines])


def arguments(kernel: Kernel) -> list[str]:
    """The kernel's names for tensors' addresses, and for numbers."""
    return [f"{name}_{'number' if name in kernel.numbers else 'ptr'}"
            for name in (*kernel.read, *kernel.written)]


@dataclass
class TritonWriter(Writer):
    """A kernel's lines as they are written."""

    tiling: Tiling = field(kw_only=True)
    along: dict[Work, frozenset[str]] = field(default_factory=dict)
    target = TRITON

    def __post_init__(self):
        super().__post_init__()
        self.shape = f"[{', '.join(a.length for a in self.tiling.lanes)}]"
        self.program = "tl.program_id(0)" + (
            f".to({self.tiling.counted})" * bool(self.tiling.counted))

    def blocks(self) -> None:
        """Write where this program's block of points lies."""
        if self.tiling.large:
            self.add("WIDE: tl.constexpr = tl.int64 if wide else tl.int32",
                     *(f"{symbol} = tl.full((), {symbol}, WIDE)"
                       for symbol in self.kernel.symbols))
        axes, outer = self.tiling.axes, self.tiling.outer
        for axis in self.tiling.lanes:
            self.add(f"{axis.length}: tl.constexpr = {axis.block}")
        for place, axis in enumerate(axes):
            lane = f"tl.arange(0, {axis.length})"
            if len(self.tiling.lanes) == 2:
                lane += "[None, :]" if place else "[:, None]"
            if axis in outer:
                number = self.program if len(outer) == 1 else (
                    f"{self.program} {'%' if place else '//'} "
                    f"{enclosed(TRITON.index(axes[1].blocks))}")
                if axis in self.tiling.lanes:
                    number += f" * {axis.length} + {lane}"
                self.point(axis, number)
                continue
            lane += self.program.removeprefix("tl.program_id(0)")
            if axis.name == self.tiling.looped:
                self.add(f"lane = {lane}")
            else:
                self.point(axis, lane)

    def point(self, axis: Axis, text: str) -> None:
        """Write an axis's numbers, and which of them exist."""
        self.add(f"{axis.name} = {text}")
        if not axis.even:
            self.add(f"{axis.name}_inside = {axis.name} < "
                     f"{enclosed(TRITON.index(axis.size))}")

    def value(self, node: Expression) -> str:
        """The text of a value whose operands have names."""
        along = self.reach(node)  # in order: no recursion is deep
        match node:
            case Position(where, dtype):
                text = f"({TRITON.index(self.index(where))})"
                form = TRITON.cast if along else TRITON.scalar
                return form.format(text, type=TRITON.type_of(dtype))
            case Load():
                return self.load(node, along)
            case Op("checked", (place, end)):
                given = self.read(place)
                if mask := self.mask(along).removeprefix(", mask="):
                    given = f"tl.where({mask}, {given}, 0)"
                return f"device.checked({given}, {self.read(end)})"
            case Op("div", (given, by)) if not isinstance(by, Const) and (
                    self.reach(by) < along):
                return TRITON.operation(
                    node, [self.read(given), self.read(by)], QUOTIENT)
        return super().value(node)

    def index(self, where: Index) -> Index:
        """An index in terms of the axes' numbers and of values' names."""
        kind = self.tiling.counted or "tl.int32"
        return self.tiling.place(renamed(
            where, lambda value: f"{self.read(value)}.to({kind})"))

    def reach(self, node: Work) -> frozenset[str]:
        """The axes that a value or a store depends on."""
        if node not in self.along:
            where = getattr(node, "index", index(0))
            gone = {self.axis(node).name} if ends(node) else ()
            self.along[node] = self.tiling.along(where).union(
                *map(self.reach, node.parts)).difference(gone)
        return self.along[node]

    def load(self, node: Load, along: frozenset[str]) -> str:
        """The text of a load, masked where points do not exist."""
        mask, other = self.mask(along), ""
        if node.mask is not None:
            mask = self.mask(along, self.read(node.mask))
            other = f", other={TRITON.literal(0, node.dtype)}"
        text = TRITON.scalar.format(
            f"{node.buffer}_number", type=TRITON.type_of(node.dtype)) if (
            node.host) else (
            f"tl.load({self.pointer(node.buffer, node.index, along)}"
            f"{mask}{other})")
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
        lanes = frozenset(axis.name for axis in self.tiling.lanes)
        missing = (along & lanes).difference(self.tiling.along(where), *(
            self.reach(pick.value) for pick in picked(where)))
        text = " + ".join([TRITON.index(self.index(where)), *(
            f"0*{name}" for name in sorted(missing))])
        return f"{buffer}_ptr + {enclosed(text)}"

    def store(self, store: Store) -> str:
        """The line of a store, masked where points do not exist."""
        along = self.reach(store).union(a.name for a in self.tiling.outer)
        pointer = self.pointer(store.buffer, store.index, along)
        name, how = ("atomic_add", ', sem="relaxed"') if store.adds else (
            "store", "")
        return (f"tl.{name}({pointer}, "
                f"{self.read(store.value)}{self.mask(along)}{how})")

    def loops(self, folds: list[Fold]):
        """The loop that walks along a row; none if the block holds it."""
        size = TRITON.index(self.tiling.axes[-1].size)
        return [self.block(f"for start in range(0, {size}, RBLOCK):")
                ] * bool(self.tiling.looped)

    def element(self, stage: Stage) -> None:
        """Write a block's part of a pass."""
        if self.tiling.looped:
            self.point(self.tiling.axes[-1], "start + lane")
        super().element(stage)

    def axis(self, fold: Fold) -> Axis:
        """The axis along which a reduction goes."""
        return self.tiling.axes[0 if fold.down else -1]

    def has_steps(self, fold: Fold) -> bool:
        """Whether a block walks along the axis; else it holds all."""
        return self.axis(fold).name == self.tiling.looped

    def fold(self, fold: Fold) -> None:
        """Write the step of a reduction; or all, if the block holds it."""
        if not ends(fold):
            raise CompileError(f"no kernel can {fold.reduction}")
        if self.has_steps(fold):
            super().fold(fold)
        else:
            self.finish(fold)

    def part(self, fold: Fold) -> str:
        """The block to reduce, neutral where elements do not exist."""
        value, axis = fold.operands[0], self.axis(fold)
        dtype = self.accumulated(fold)
        text = TRITON.convert(self.read(value), value.dtype, dtype)
        if axis.name not in self.reach(value) or not ends(fold):
            text = f"tl.broadcast_to({text}, {self.shape})"
        if axis.even:
            return text
        return (f"tl.where({axis.name}_inside, {text}, "
                f"{TRITON.neutral(fold.reduction, dtype)})")

    def finish(self, fold: Fold) -> None:
        """Write the reduction of a block to a column, or to a number."""
        name = self.accumulator(fold)
        column = self.across(fold, name if self.has_steps(fold)
                             else self.part(fold))
        self.add(f"{name} = " + TRITON.convert(
            column, self.accumulated(fold), fold.dtype))
        self.texts[fold] = name

    def across(self, fold: Fold, block: str) -> str:
        """The reduction of a block along its axis."""
        flat, name = self.tiling.flat, ACROSS.get(fold.reduction)
        step = [] if name else [f"device.{REDUCTIONS[fold.reduction][1]}"]
        given = [block, str(int(not fold.down and not flat)), *step,
                 *["keep_dims=True"] * (not flat)]
        return f"{name or 'tl.reduce'}({', '.join(given)})"


#: The writer of a kernel, by the class of its tiling.
WRITERS: dict[type[Tiling], type[TritonWriter]] = {Tiling: TritonWriter}
