"""Pictures that a reader steps through, with keys, a mouse or a finger.

In: the frames, each a caption and what it shows: a `Picture`, or panels of
text. Out: HTML in which every frame is a radio button's. So the arrow keys
move, a screen reader says the caption, and no script is needed; what
several frames draw alike is in the page once.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import replace
from html import escape
from itertools import groupby

import torch

from chapters._book.draw import (COLOURS, FAINT, MEANS, Picture, box, figure,
                                 legend, text)
from minicompile.core.semantics.evaluate import NAMESPACE
from minicompile.core.loops import Kernel

SHORT = 60  # characters of SVG that are not worth a reference
CELL, GRIDS = 9, 470  # an element's side, and the width of a row of grids


def walk(frames: Iterable[tuple], title: str) -> str:
    """Frames (caption, panel, …) one at a time, the first one shown."""
    frames = list(frames)
    name = re.sub(r"\W+", "-", title.lower())[:40].strip("-")
    drawn, shared = once([panels for _, *panels in frames], name)
    parts = []
    for at, ((caption, *_), body) in enumerate(zip(frames, drawn)):
        number = f"{at + 1} of {len(frames)}"
        links = "".join(
            f'<label for="{name}-{to % len(frames)}" aria-hidden="true">'
            f"{word}</label>" for word, to in (("‹ back", at - 1),
                                               ("next ›", at + 1)))
        parts.append(
            f'<input type="radio" name="{name}" id="{name}-{at}" '
            f'aria-label="{number}: {escape(caption)}"'
            f'{" checked" * (at == 0)}><div class="frame"><p>'
            f"{escape(caption)}</p>{body}<nav>{links}"
            f"<small>{number}</small></nav></div>")
    return (f'<figure class="walk">{shared}<div role="radiogroup" '
            f'aria-label="{escape(title)}" style="--frames:{len(frames)}">'
            f'{"".join(parts)}</div><figcaption>{escape(title)}. The arrow '
            "keys step.</figcaption></figure>")


def once(shown: list[list[Picture | str]], name: str
         ) -> tuple[list[str], str]:
    """The parts of each frame, and those that several frames share."""
    times = Counter(part for panels in shown for panel in panels
                    if isinstance(panel, Picture) for part in panel.parts)
    mark = "".join(word[0] for word in name.split("-") if word)
    known = {part: f"{mark}{number}" for number, part in enumerate(
        part for part, count in times.items()
        if count > 1 and len(part) > SHORT)}
    drawn = ["".join(replace(panel, parts=[
        f'<use href="#{known[part]}"/>' if part in known else part
        for part in panel.parts]).svg if isinstance(panel, Picture) else panel
        for panel in panels) for panels in shown]
    shared = "".join(f'<g id="{place}">{part}</g>'
                     for part, place in known.items())
    return drawn, (f'<svg class="picture" width="0" height="0" '
                   f'aria-hidden="true"><defs>{shared}</defs></svg>'
                   if shared else "")


# ---- panels of text ----

def listing(lines: Iterable[str], lit: Collection[int] = (), *,
            first: int = 1) -> str:
    """Lines of code, numbered from `first`, some of them lit."""
    return "<pre>" + "".join(
        f"<mark>{escape(line)}</mark>\n" if number in lit
        else f"{escape(line)}\n"
        for number, line in enumerate(lines, first)) + "</pre>"


def chips(heading: str, names: Iterable[object], means: str = "",
          fresh: int = 0) -> str:
    """Names in a row under a heading; the last `fresh` ones are new."""
    names = [escape(str(name)) for name in names]
    old = len(names) - fresh
    body = "".join(f"<b>{name}</b>" if at >= old else f"<i>{name}</i>"
                   for at, name in enumerate(names)) or "<s>nothing</s>"
    colour = MEANS.get(means, COLOURS[0])
    return (f'<div class="chips" style="--chip:{colour}"><span>'
            f"{escape(heading)}</span>{body}</div>")


def followed(function: Callable, *args: object
             ) -> Iterator[tuple[int, dict[str, object]]]:
    """Runs the function: each line's number, and the variables before it.

    The last pair has the value that the function returned.
    """
    found = []

    def trace(frame, event, value):
        if frame.f_code is not function.__code__:
            return None
        if event in ("line", "return"):
            names = dict(frame.f_locals) if event == "line" else {
                "return": value}
            found.append((frame.f_lineno, names))
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        function(*args)
    finally:
        sys.settrace(before)
    yield from found


def traced(function: Callable, taken: Iterable
           ) -> Iterator[tuple[str, str]]:
    """A frame for each row of `steps.steps`."""
    lines, first = inspect.getsourcelines(function)
    text = [line.rstrip() for line in lines]
    nodes: list[str] = []
    guards: list[str] = []
    for step in taken:
        nodes += step.nodes
        guards += [guard.split(": ")[0] for guard in step.guards]
        where = {step.line} if step.depth == 1 else ()
        yield f"{step.opcode} {step.argument}".strip(), (
            listing(text, where, first=first)
            + chips("stack", step.stack, "stack")
            + chips("graph", nodes, "graph", len(step.nodes))
            + chips("guards on", guards, "guards", len(step.guards)))


# ---- memory ----

class Noted:
    """Flat memory that notes which elements the running line touches."""

    def __init__(self, name: str, tensor: torch.Tensor, notes: list):
        self.name, self.tensor, self.notes = name, tensor, notes

    def note(self, means: str, at: object) -> None:
        """Add the running line, its row, and what it touches."""
        frame = sys._getframe(2)
        row = next((value for name, value in frame.f_locals.items()
                    if name.startswith("i")), 0)
        self.notes.append((frame.f_lineno, row, self.name, means, int(at)))

    def __getitem__(self, at: object) -> torch.Tensor:
        self.note("read", at)
        return self.tensor[at]

    def __setitem__(self, at: object, value: object) -> None:
        self.note("written", at)
        self.tensor[at] = value


def memory(kernel: Kernel, *read: torch.Tensor
           ) -> Iterator[tuple[str, str, Picture]]:
    """A frame for each row of each loop: what it reads and writes.

    The kernel runs as the Python that it prints, on the tensors `read`.
    """
    notes: list[tuple] = []
    tensors = dict(zip(kernel.read, read, strict=True))
    for loop in kernel.loops:
        shape = [size.constant for size in loop.buffer.shape]
        tensors.setdefault(loop.buffer.name, torch.zeros(
            shape, dtype=loop.buffer.dtype))
    noted = {name: Noted(name, tensor.detach().flatten().clone(), notes)
             for name, tensor in tensors.items()}
    lines = [line for line in str(kernel).splitlines()
             if "= empty(" not in line]
    names = NAMESPACE | noted
    exec("\n".join(lines), names)
    names[kernel.name](*(noted[name] for name in (
        *kernel.read, *kernel.written)))
    starts = [number for number, line in enumerate(lines, 1)
              if line.startswith("    for")]

    def step(note: tuple) -> tuple[int, int]:
        return sum(start <= note[0] for start in starts), note[1]

    for (loop, place), group in groupby(notes, step):
        lit = range(starts[loop - 1], [*starts, len(lines) + 1][loop])
        touched = {(name, at): means for _, _, name, means, at in group}
        caption = f"Loop {loop} of {len(starts)}, row {place}"
        yield caption, listing(lines, lit), grids(
            {name: tensor.shape for name, tensor in tensors.items()},
            touched, caption)


def grids(shapes: dict[str, tuple[int, ...]],
          touched: dict[tuple[str, int], str], title: str) -> Picture:
    """Tensors as rows of cells; those `touched` in their colours."""
    parts, x, y, below = [], 1.0, 4.0, 0.0
    for name, shape in shapes.items():
        columns = shape[-1] if shape else 1
        rows = max(1, torch.Size(shape).numel() // columns)
        wide, high = columns * CELL, rows * CELL
        room = max(wide, 7 * len(name)) + 22
        if x > 1 and x + room > GRIDS:
            x, y = 1.0, y + below
        parts += [text(x, y + 10, name),
                  box(x, y + 16, wide, high, FAINT, fill=.05, corner=0)]
        for at in range(rows * columns):
            if means := touched.get((name, at)):
                parts.append(box(
                    x + at % columns * CELL, y + 16 + at // columns * CELL,
                    CELL, CELL, MEANS[means], fill=.55, stroke=.4, corner=0))
        x, below = x + room, max(below, high + 30)
    y += below
    keys = {means: MEANS[means] for means in ("read", "written")}
    return figure(parts + legend(keys, y + 8), GRIDS, y + 16, title)
