"""How a kernel's loops are run on a CPU: vectors, blocks, threads.

A vector reads neighbours at the price of one. So the innermost loop is the
variable whose neighbours lie side by side in as many loads and stores as
possible; a GPU's schedule asks for it, too. If that is a variable of the
row, a block of rows runs side by side, and each value that a row keeps is
an array with an element per row. A load whose neighbours lie along a second
variable is read in blocks. Each is transposed first, which g++ does in
registers. Everything is decided from sizes and strides, so a kernel adds
in the same order for any number of threads. Inductor decides this in
torch/_inductor/codegen/cpp.py.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import torch

from ...core.index import (Index, Variable, coefficient, guess, index,
                           most_of)
from ...core.loops import (EXPENSIVE, Expression, Kernel, Load, Op,
                           Position, accurate, draws, flatten, row_major,
                           walk)
from ..cpp import BODIES, FLAGS, CppWriter
from ..target import CPP, FUNCTIONS
from ..writer import Fold, Stage, Store, ends

#: Work, in cheap operations, that is worth waking a second thread for.
WAKING = 1 << 15
#: How many rows run side by side, at most and, however long they are, at
#: least; in between, so many that a cache holds their elements.
SIDE_BY_SIDE, A_BLOCK, IN_CACHE = 1 << 10, 64, 1 << 16
#: How many rows and columns a block has that is read transposed.
TILE = 16
#: How many elements of scratch rows may keep, and on the stack.
MOST_KEPT, ON_STACK = 1 << 20, 1 << 13
#: How many floats lose no digits in a sum of floats: in 16 lanes that are
#: joined, or one by one.
LONG, BY_ONE = 512, 32
#: How many elements lie at most between two of a vector.
FAR = 64
#: How many numbers of 4 bytes fill a vector of AVX2; one of AVX-512 has
#: twice as many.
WIDE = 8
#: The operators that let OpenMP's vector loop accumulate in lanes.
CLAUSES = {"sum": "+", "prod": "*", "any": "|", "all": "&",
           "max": "max", "min": "min"}
#: Rows of so few elements, but more than FEW, are read in whole vectors if
#: they end within one, and are compared, added up, or take a function. Of
#: 2 bytes a row must have four times as many as FEW.
SHORT = 128
#: How many elements run inside a vector's loop, as lines of their own.
FEW = 4
#: The cost of an access whose neighbours read the same element, or the
#: next; farther apart, it is as many times that, up to a line's.
SAME, NEXT = 0.02, 0.1


def fastest(kernel: Kernel, lanes: int = 16, row: int = 1
            ) -> Variable | None:
    """The variable whose neighbours lie side by side in memory, of which
    `lanes` are worked on together; what a row reads or stores once counts
    as one of `row` elements."""
    return min((kernel.ranges + kernel.reduced)[::-1], default=None,
               key=lambda variable: _cost(kernel, variable, lanes, row))


def _cost(kernel: Kernel, variable: Variable, lanes: int, row: int
          ) -> float:
    """The cache lines touched for each point if this one is innermost."""
    cost = 0.01
    for _, where in accesses(kernel):
        step = coefficient(where, variable)
        far = None if step is None else step.constant
        lines = 1.0 if far is None else min(1.0, NEXT * abs(far)) or SAME
        inside = any(coefficient(where, v) != 0 for v in kernel.reduced)
        cost += lines if inside else lines / row
    return cost * max(1.0, lanes / (guess(variable.size) or 64))


def turned_axis(kernel: Kernel, first: Variable,
                fits: Callable[[Variable], bool]) -> Variable | None:
    """A variable that fits, and is side by side where `first` is not."""
    strided = [where for _, where in accesses(kernel)
               if coefficient(where, first) not in (0, 1)]
    return next((v for v in kernel.ranges if v is not first and fits(v)
                 and any(coefficient(where, v) == 1 for where in strided)),
                None)


def interleaved(kernel: Kernel) -> Variable | None:
    """A variable of a few, whose elements lie side by side in a result,
    and between neighbours along the innermost, as the two numbers of a
    rotated pair do. A vector of the innermost stores them together."""
    inner = fastest(kernel)
    return next((
        v for v in kernel.ranges if v is not inner and not kernel.reduced
        and (v.size.constant or FEW + 1) <= FEW
        and any(coefficient(loop.index, v) == 1
                and coefficient(loop.index, inner) == v.size
                for loop in kernel.loops)), None)


def by_fours(kernel: Kernel) -> Kernel:
    """The kernel with its innermost variable in groups of four, if it draws
    random numbers: four words of these have one count."""
    inner = fastest(kernel) if (
        draws(kernel.loops) and not kernel.reduced) else None
    if inner is None or inner.size % 4 != 0:
        return kernel
    group = Variable(inner.name, inner.size // 4)
    word = Variable(f"{inner}w", index(4))
    made = with_parts(kernel, inner, (group, word),
                      4 * index(group) + index(word))
    return made if interleaved(made) is word else kernel


def with_parts(kernel: Kernel, variable: Variable,
               parts: tuple[Variable, ...], place: Index) -> Kernel:
    """The kernel with `parts` for a variable, whose `place` they tell."""
    def over(variables: tuple[Variable, ...]) -> tuple[Variable, ...]:
        return tuple(new for v in variables
                     for new in (parts if v == variable else (v,)))
    return replace(
        kernel, ranges=over(kernel.ranges), reduced=over(kernel.reduced),
        loops=tuple(loop.over({variable: place}, over(loop.ranges),
                              over(loop.reduced)) for loop in kernel.loops))


def accesses(kernel: Kernel) -> list[tuple[str, Index]]:
    """The buffer and the index of every load and store of memory."""
    found = [(loop.buffer.name, loop.index) for loop in kernel.loops]
    found += [(load.buffer, load.index) for loop in kernel.loops
              for load in loop.loads]
    return [access for access in dict.fromkeys(found)
            if access[0] not in kernel.internal]


def makes_vectors(kernel: Kernel, variable: Variable) -> bool:
    """Whether g++ is to make vectors along a variable.

    Of two columns of a wide matrix it would load whole rows, and take
    minutes to find out how. Neighbours that are added to what numbers name
    must lie apart. Rows of eight 16-bit numbers fill half a vector: g++
    finds a faster way, unless they take a function.
    """
    if any(loop.adds and coefficient(loop.index, variable) in (None, 0)
           for loop in kernel.loops) or (
            variable in kernel.reduced and variable.size == WIDE
            and reads_halves(kernel) and not called(kernel)):
        return False
    steps = [(name, coefficient(where, variable))
             for name, where in accesses(kernel)]
    far = [(name, step.constant) for name, step in steps
           if step is not None and abs(step.constant or 0) > FAR]
    return len(far) == len({*far})


def reads_halves(kernel: Kernel) -> bool:
    """Whether it reads numbers of 2 bytes, of which vectors hold most."""
    return any(load.dtype.itemsize == 2 for loop in kernel.loops
               for load in loop.loads)


def ends_within(kernel: Kernel, size: int) -> bool:
    """Whether rows of so many elements end within a vector of AVX-512, and
    one by one the last would take longer than a vector does."""
    halves = reads_halves(kernel)
    least = FEW << 2 * halves
    if size == WIDE or size % (2 * WIDE << halves) == 0 or not (
            least < size <= SHORT):
        return False
    return bool(called(kernel)) or any(
        loop.reduction in ("max", "min") or loop.reduction == "sum"
        and (size > 2 * least or not loop.value.dtype.is_floating_point)
        for loop in kernel.loops)


def adds(kernel: Kernel) -> bool:
    """Whether it adds to elements that numbers name."""
    return any(loop.adds for loop in kernel.loops)


def only_reduces(stage: Stage) -> bool:
    """Whether a pass stores nothing, and loads numbers that a processor
    loads by a mask, of 2 to 8 bytes."""
    return all(node.dtype.itemsize > 1 if isinstance(node, Load)
               else ends(node) for node in stage.body
               if isinstance(node, (Load, Fold, Store)))


def is_expensive(node: Expression) -> bool:
    """Whether it costs far more than an access to the cache."""
    return getattr(node, "name", None) in EXPENSIVE


def called(kernel: Kernel) -> set[str]:
    """The expensive functions that it calls."""
    return {node.name for loop in kernel.loops for node in loop.nodes
            if is_expensive(node)}


class OrderedWriter(CppWriter):
    """A writer of a kernel's loops in the order of memory.

    `outer` variables of the row run one by one. The rows of `lanes` run
    side by side, `breadth` at a time, inside all other loops; the last of
    these is the vector loop, and an `interleaved` variable runs inside it.
    Without any it is the last over elements. `kept` names the scratch of
    values that a later pass reads again. Work beyond `worth` elements wakes
    more threads; `together` with other writers it finds them awake. Without
    `vectors` the innermost loop is left to g++.
    """

    together = False
    padded: Variable | None = None
    partial: Mapping[Fold, str] = MappingProxyType({})

    def __post_init__(self):
        """If the innermost is a variable of the row, rows run side by
        side, and with them a second variable if accesses are transposed.
        Rows keep their expensive values from pass to pass, if these are
        not too many.
        """
        kernel = self.kernel = by_fours(self.kernel)
        super().__post_init__()
        inner = fastest(kernel, row=guess(kernel.row_length) or 1)
        lanes = (inner,) if inner in kernel.ranges else ()
        few = interleaved(kernel)
        tile = turned_axis(kernel, inner, lambda v: guess(v.size) >= 8
                           ) if lanes and not (kernel.reduced or few
                                               ) else None
        self.lanes = (tile, *lanes) if tile else lanes
        self.inside = (few,) * bool(few)
        self.outer = tuple(v for v in kernel.ranges
                           if v not in self.lanes + self.inside)
        self.breadth = TILE if tile else self.width() if lanes else 1
        self.vectors = inner is None or makes_vectors(kernel, inner)
        size = inner.size.constant or 0 if inner and not lanes else 0
        self.short = inner if self.vectors and ends_within(
            kernel, size) else None
        keeps = guess(kernel.row_length) * self.breadth <= MOST_KEPT
        self.stages = keeping(
            self.stages, lambda node: keeps and is_expensive(node))
        costly = sum(is_expensive(node) for stage in self.stages
                     for node in stage.body + stage.row)
        self.worth = WAKING // (1 + 8 * costly + len(kernel.loops))
        self.kernel = replace(kernel, reduced=tuple(sorted(
            kernel.reduced, key=inner.__eq__)))

    def value(self, node: Expression) -> str:
        """The text of a value; a random number's has a count and a word,
        which neighbours share or do not."""
        match node:
            case Op("uniform", (*seed, Position(place))):
                given = [*map(self.read, seed), *map(
                    CPP.index, (place // 4, place % 4))]
                return f"uniform({', '.join(given)})"
            case Load():
                return self.in_row(super().value(node), CPP.literal(
                    1, node.dtype))
        return super().value(node)

    def in_row(self, text: str, other: str) -> str:
        """A text; past the end of a row in whole vectors, the other."""
        row = self.padded
        return f"({row} < {row.size} ? {text} : {other})" if row else text

    def width(self) -> int:
        """How many rows run side by side: as many as the cache holds, in
        whole vectors."""
        (inner,), length = self.lanes, guess(self.kernel.row_length) or 1
        blocks = max(1, IN_CACHE // (length * A_BLOCK))
        return min(inner.size.constant or SIDE_BY_SIDE, SIDE_BY_SIDE,
                   A_BLOCK * blocks)

    @property
    def blocked(self) -> tuple[Variable, ...]:
        """The variables of the row that run in blocks."""
        return tuple(v for v in self.lanes
                     if most_of(v.size) > self.breadth)

    def rows(self):
        """The loops over rows, and over the starts `v_` of blocks."""
        loops = [(v, str(v), 1) for v in self.outer] + [
            (v, f"{v}_", self.breadth) for v in self.blocked]
        how = self.sharing(len(loops))
        pragmas = [how * ("for" in how), *[""] * len(loops)]
        alone = [self.block("", f"#pragma {how}")] * ("single" in how)
        return self.nest(*alone, *(
            self.loop(name, pragma, stop=CPP.index(v.size), step=step)
            for (v, name, step), pragma in zip(loops, pragmas)))

    def sharing(self, loops: int) -> str:
        """How threads share these loops, if there is enough work, unless
        they would add to the same memory. Threads that work on a kernel's
        pieces are awake: they share all loops, and wait for no other."""
        work = self.kernel.rows * self.kernel.row_length
        many = loops and most_of(work) > self.worth
        if adds(self.kernel) or not (many or self.together):
            return ""
        if not loops:
            return "omp single nowait"
        how = "for nowait" if self.together else "parallel for"
        condition = "" if work.constant else (
            f" if({CPP.index(work)} >= {self.worth})")
        return f"omp {how}" + f" collapse({loops})" * (
            loops > 1) + condition

    def loop(self, name: Variable | str, pragma: str = "",
             start: object = 0, stop: object = None, step: int = 1):
        """A loop over a whole variable, or from `start` to `stop`."""
        stop = CPP.index(name.size) if stop is None else stop
        if name is self.padded:
            stop = f"whole<{2 if reads_halves(self.kernel) else 4}>({stop})"
        forward = f"++{name}" if step == 1 else f"{name} += {step}"
        return self.block(
            f"for (int64 {name} = {start}; {name} < {stop}; {forward})",
            *[f"#pragma {pragma}"] * bool(pragma))

    def abreast(self, vectors: bool = True):
        """Loops over the rows that run side by side, each over the block
        that starts at `v_`, if it has blocks."""
        loops = []
        for v in self.lanes:
            start, stop = 0, None
            if v in self.blocked:
                start, stop = f"{v}_", f"{v}_ + {self.breadth}"
                if v.size % self.breadth != 0:
                    stop = f"smaller<int64>({stop}, {CPP.index(v.size)})"
            loops.append(self.loop(v, "omp simd" * (
                v is self.lanes[-1] and self.vectors and vectors),
                start, stop))
        loops += [self.loop(v, f"GCC unroll {v.size}") for v in self.inside]
        return self.nest(*loops)

    @property
    def lane(self) -> str:
        """The place of this row among those side by side, in brackets."""
        return "".join(f"[{v}{f' - {v}_' * (v in self.blocked)}]"
                       for v in self.lanes)

    def array(self, value: Expression, *counts: Index | int,
              far: bool = False) -> str:
        """The name of an array of such values, which is declared; `far`
        from the stack, if that may be too small."""
        name = self.numbered("k", value)
        kind = "uint8" if value.dtype == torch.bool else CPP.type_of(
            value.dtype)
        first, *others = (f"[{CPP.index(index(n))}]" for n in counts)
        more = "".join(others)
        self.add(f"Scratch<{kind}{more}> {name}{{new {kind}{first}{more}}};"
                 if far else f"{kind} {name}{first}{more};")
        return name

    def is_turned(self, node: Expression) -> bool:
        """Whether it reads neighbours along the first of two variables of
        the row that run in blocks, where vectors run along the other."""
        if len(self.lanes) < 2 or not isinstance(node, Load) or node.parts:
            return False
        along, across = (coefficient(node.index, v) for v in self.lanes)
        return along == 1 and across not in (0, 1)

    def work(self) -> None:
        """The stages, after the scratch for the values that a row keeps."""
        length, lanes = self.kernel.row_length, [self.breadth] * len(
            self.lanes)
        self.kept = {value: self.array(
            value, length + (4 * WIDE - 1) * bool(self.short), *lanes,
            far=most_of(length) * self.breadth > ON_STACK)
            for value in dict.fromkeys(
                value for stage in self.stages for value in stage.again)}
        super().work()

    def row(self, stage: Stage) -> None:
        """Values of the row; rows side by side have arrays of those that
        are read elsewhere, and of a block that is read transposed."""
        if not self.lanes:
            return super().row(stage)
        turned = {load: self.array(load, *[self.breadth] * 2) + self.lane
                  for load in filter(self.is_turned, stage.row)}
        for load, place in turned.items():
            with self.abreast(vectors=False):
                self.add(f"{place} = {self.value(load)};")
        read = walk(*(node for other in self.stages for node in (
            *other.body, *(other.row if other is not stage else ()))),
            parts=lambda node: () if node in stage.row else node.parts)
        public = {value: self.array(value, self.breadth) + self.lane
                  for value in stage.row if value in read}
        with self.abreast():
            for load, place in turned.items():
                self.name(load, place)
            super().row(stage)
            self.add(*(f"{place} = {self.read(value)};"
                       for value, place in public.items()))
        self.texts |= public

    def elements(self, stage: Stage) -> None:
        """A pass over elements; over a few of them, in whole vectors."""
        self.padded = self.short if only_reduces(stage) else None
        super().elements(stage)
        self.padded = None

    def part(self, fold: Fold) -> str:
        """The value that a step adds; past the row's end it has none."""
        return self.in_row(super().part(fold), CPP.neutral(
            fold.reduction, self.accumulated(fold)))

    def declare(self, folds: list[Fold]) -> None:
        """Start accumulators; rows side by side have an array of them."""
        if not self.lanes:
            for fold in folds:
                super().declare((fold,))
                self.add(*(f"int {name} = 0;" for name in self.flag(fold)))
        elif folds:
            starts = []
            for fold in folds:
                dtype, name = self.accumulated(fold), self.accumulator(fold)
                start = CPP.neutral(fold.reduction, dtype)
                starts.append(f"{name} = {start};")
                self.add(f"{CPP.types[dtype]} {name.partition('[')[0]}"
                         f"[{self.breadth}];")
            with self.abreast():
                self.add(*starts)

    def loops(self, folds: list[Fold]):
        """The loops over elements; the last is the vector loop, unless
        rows run side by side in it. A long one goes in steps."""
        *outer, last = self.kernel.reduced
        long = [] if self.padded or most_of(last.size) <= self.step else [
            fold for fold in folds if (
                fold.reduction, accurate(fold.operands[0].dtype),
                self.accumulated(fold)) == (
                    "sum", torch.float32, torch.float64)]
        span, loops = (0, None), [*map(self.loop, outer)]
        if long:
            span = f"{last}_", (f"smaller<int64>({last}_ + {self.step}, "
                                f"{CPP.index(last.size)})")
            self.partial = {fold: self.numbered("p", fold) for fold in long}
            loops.append(self.steps(last))
        if self.lanes:
            return [*loops, self.loop(last, "", *span), self.abreast()]
        clauses = ((sign, name) for fold in folds for sign, name in (
            (CLAUSES[fold.reduction], self.accumulator(fold)),
            *(("|", name) for name in self.flag(fold))))
        how = "".join(f" reduction({by}:{name})" for by, name in clauses)
        return [*loops, self.loop(
            last, f"omp simd{how}" * self.vectors, *span)]

    @property
    def step(self) -> int:
        """How many floats are summed up as floats."""
        return BY_ONE if self.lanes or not self.vectors else LONG

    @contextmanager
    def steps(self, last: Variable) -> Iterator[None]:
        """A loop over the steps of a variable, of each of which floats are
        summed up as floats, and these sums as doubles."""
        places = [*map(self.accumulator, self.partial)]
        with self.loop(f"{last}_", stop=CPP.index(last.size),
                       step=self.step):
            self.declare([*self.partial])
            yield
            sums, self.partial = self.partial, {}
            with self.abreast():
                self.add(*(f"{self.accumulator(fold)} += {place};"
                           for fold, place in zip(sums, places)))

    def element(self, stage: Stage) -> None:
        """One element's part of a pass, and the values to keep."""
        over = self.kernel.reduced
        place = CPP.index(flatten(map(index, over), row_major(
            tuple(v.size for v in over))))
        for value in stage.again:
            self.name(value, f"{self.kept[value]}[{place}]{self.lane}")
        super().element(stage)
        self.add(*(f"{name}[{place}]{self.lane} = {self.read(value)};"
                   for value, name in self.kept.items()
                   if value in stage.body))

    def accumulator(self, fold: Fold) -> str:
        """The accumulator's name; among rows side by side, its place."""
        return self.partial.get(fold, super().accumulator(fold)) + self.lane

    def accumulated(self, fold: Fold) -> torch.dtype:
        """The sum of few floats is one, too."""
        few = fold in self.partial or fold.reduction == "sum" and (
            most_of(self.kernel.row_length) <= self.step)
        return accurate(fold.dtype) if few else super().accumulated(fold)

    def flag(self, fold: Fold) -> list[str]:
        """The name of what notes NaN, which OpenMP's maximum loses."""
        lost = (not self.lanes and fold.reduction in ("max", "min")
                and fold.dtype.is_floating_point)
        return [self.numbered("nan", fold)] * lost

    def fold(self, fold: Fold) -> None:
        """Write the step of a reduction; of a maximum, without NaN."""
        if not self.flag(fold):
            return super().fold(fold)
        into, value = self.accumulator(fold), self.part(fold)
        better, (flag,) = "<>"[fold.reduction == "max"], self.flag(fold)
        self.add(f"{into} = {value} {better} {into} ? {value} : {into};",
                 f"{flag} |= {value} != {value};")

    def finish(self, fold: Fold) -> None:
        """Name the finished reduction; NaN if one was met."""
        text = self.accumulator(fold)
        for flag in self.flag(fold):
            text = f"{flag} ? not_a_number : {text}"
        text = CPP.convert(text, self.accumulated(fold), fold.dtype)
        if self.lanes:
            self.texts[fold] = text
        else:
            self.name(fold, text)


def keeping(work: tuple[Stage, ...], keep: Callable[[Expression], bool]
            ) -> tuple[Stage, ...]:
    """The stages; a later pass reads a value again if `keep` is true of
    it, or of a value that led to it."""
    worth: set[Expression] = set()
    done: set[Expression] = set()
    found = []
    for stage in work:
        ends = {node for node in stage.body
                if isinstance(node, (Fold, Store))}
        needed = {*walk(*ends, parts=lambda node, new={*stage.body} - done:
                        node.parts if node in new else ())}
        for node in stage.body:
            if node not in ends and (
                    keep(node) or not worth.isdisjoint(node.parts)):
                worth.add(node)
        again, body = (tuple(
            node for node in stage.body if node in needed
            and (node in done) == before) for before in (True, False))
        found.append(replace(stage, body=body, again=again))
        done |= worth.intersection(body)
    return tuple(found)


def openmp() -> list[str]:
    """The flags for threads: those of the library that PyTorch has loaded.

    With an OpenMP of its own a kernel would have threads of its own, and
    torch.set_num_threads would not reach them.
    """
    maps = Path("/proc/self/maps")
    loaded = maps.exists() and re.search(
        r"\S*/lib[gi]omp\S*\.so\S*", maps.read_text())
    return ["-fopenmp"] + ([loaded.group()] if loaded else [])


#: The last elements of a row in scalars take longer than a whole vector.
FUNCTIONS["cpp"].append("""
template <int bytes> constexpr int64 whole(int64 n) {
#if defined(__AVX512BW__)
    int64 lanes = 64 / bytes;
    while (lanes > WIDE && n <= lanes / 2) lanes /= 2;
#elif defined(__AVX2__)
    const int64 lanes = bytes == 2 ? 1 : WIDE;
#else
    const int64 lanes = 1;
#endif
    return (n + lanes - 1) / lanes * lanes;
}

template <class T> struct Scratch {  // what does not fit on the stack
    T* values;
    T& operator[](int64 place) const { return values[place]; }
    ~Scratch() { delete[] values; }
};
""".replace("WIDE", str(WIDE)))
#: Partial redundancy elimination, sinking and threaded jumps would put
#: branches into vector loops.
FLAGS += ["-fno-tree-pre", "-fno-tree-sink", "-fno-thread-jumps", *openmp()]
BODIES.append(lambda kernel: OrderedWriter(kernel).body())
