"""Pictures for the pages, as SVG text: graphs, bars, lanes, steps, boxes.

In: live data (an FX graph, a list of numbers, a file in results/). Out: a
`Picture` to print from an executed block with html="1", or to step through
with others in a `walk`. Colours are the style sheet's variables, so a
picture follows light and dark; `title` is its caption and what a screen
reader says.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from html import escape

from torch import fx

from chapters._book import pages
from chapters._book.layout import Place, layered
from minicompile.core.graph import value
from minicompile.guards.explain.reasons import describe

COLOURS = [f"var(--book-{letter})" for letter in "abcdef"]
INK, FAINT = "var(--md-default-fg-color)", "var(--md-default-fg-color--lighter)"
MUTED, RULE = "var(--md-default-fg-color--light)", "var(--book-rule)"
#: One thing has one colour, on every page: the style sheet's letter.
MEANS = {name: COLOURS["abcdef".index(letter)] for letter, names in {
    "a": ("ours", "minicompile", "our call", "saved", "stack", "written",
          "is"),
    "b": ("eager", "forward", "graph", "read", "tensor", "reached"),
    "c": ("guards", "our check", "in registers", "kernel", "type"),
    "d": ("torch.compile", "torch.compile's call", "PyTorch", "Dynamo",
          "backward", "equal"),
    "e": ("copy", "computed again", "lacks"),
    "f": ("length",),
}.items() for name in names}
STAGES = ("function", "trace", "guards", "split", "fusion", "emit", "replay",
          "callable")
WIDTH, CHARACTER = 520, 6.7  # a chart; one character of an 11 px label
PHONE = 345  # what a phone shows


def results(name: str) -> dict:
    """The contents of chapters/results/<name>."""
    return json.loads((pages.DOCS / "results" / name).read_text())


# ---- pieces ----

@dataclass
class Picture:
    """Parts of SVG on an area; a wide one scrolls on a phone."""

    parts: list[str]
    width: float
    height: float
    title: str

    @property
    def svg(self) -> str:
        """The picture without its caption."""
        wide = " wide" if self.width > WIDTH else ""
        return (f'<svg class="picture{wide}" role="img" '
                f'aria-label="{escape(self.title)}" '
                f'width="{self.width:.0f}" '
                f'viewBox="0 0 {self.width:.0f} {self.height:.0f}">'
                f'{"".join(self.parts)}</svg>')

    def __str__(self) -> str:
        return (f'<figure class="picture-box" tabindex="0">{self.svg}'
                f"<figcaption>{escape(self.title)}</figcaption></figure>")


def figure(parts: Iterable[str], width: float, height: float,
           title: str) -> Picture:
    """The parts as one captioned picture."""
    return Picture(list(parts), width, height, title)


def text(x: float, y: float, words: object, *, colour: str = INK,
         anchor: str = "start", size: float = 11, bold: bool = False) -> str:
    """Words at a point."""
    weight = ";font-weight:700" if bold else ""
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" '
            f'style="font-size:{size}px;fill:{colour}{weight}">'
            f"{escape(str(words))}</text>")


def box(x: float, y: float, width: float, height: float, colour: str, *,
        fill: float = .12, stroke: float = 1, corner: float = 4) -> str:
    """A rounded rectangle in a colour, lightly filled."""
    return (f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="{corner}" style="fill:{colour};'
            f'fill-opacity:{fill};stroke:{colour};stroke-width:{stroke}"/>')


def line(points: list[tuple[float, float]], colour: str = FAINT,
         width: float = 1, dash: str = "") -> str:
    """Straight strokes through the points."""
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return (f'<polyline points="{path}" style="fill:none;stroke:{colour};'
            f'stroke-width:{width};stroke-dasharray:{dash or "none"}"/>')


def legend(names: dict[str, str], y: float) -> list[str]:
    """A row of colour keys."""
    parts, x = [], 4.0
    for name, colour in names.items():
        parts += [box(x, y - 9, 12, 12, colour, fill=.3),
                  text(x + 18, y + 1, name)]
        x += 34 + CHARACTER * len(name)
    return parts


def colours(names: Iterable[str]) -> dict[str, str]:
    """A colour for each name: its own, or one that no other here has."""
    found = {name: MEANS.get(name) for name in dict.fromkeys(names)}
    free = [each for each in COLOURS if each not in found.values()] or COLOURS
    rest = [name for name in found if found[name] is None]
    return found | {name: free[i % len(free)] for i, name in enumerate(rest)}


# ---- graphs ----

def graph(source: fx.GraphModule | fx.Graph | dict, *, title: str,
          group: Callable | None = None, cut: Iterable[str] = (),
          across: bool = False, label: Callable | None = None
          ) -> Picture:
    """A graph in layers, inputs first.

    `source` is an FX graph, or a dict of name -> names it reads. `group`
    gives a node (or name) its coloured group or None, `label` its text;
    nodes named in `cut` are saved: framed twice, their edges into other
    groups heavy and dashed.
    """
    labels, reads, kinds = _describe(source, label)
    groups = {name: group(node) if group else None
              for name, node in kinds.items()}
    named = colours(str(g) for g in groups.values() if g is not None)
    cut = set(cut)
    sizes = {name: (14 + CHARACTER * len(words), 24.0)
             for name, words in labels.items()}
    places, bends, width, height = layered(reads, sizes, across)
    parts = [_edge(a, b, places, bends[a, b], across,
                   a in cut and groups[a] not in (None, groups[b]))
             for b in reads for a in reads[b]]
    for name, place in places.items():
        colour = named.get(str(groups[name]), FAINT)
        parts += _node(place, labels[name], colour, name in cut)
    if named:
        parts += legend(named, height + 22)
        height += 34
        width = max(width, sum(34 + CHARACTER * len(n) for n in named))
    return figure(parts, width, height, title)


def _describe(source, label) -> tuple[dict, dict, dict]:
    """Labels, edges and nodes by name, of an FX graph or a dict."""
    if isinstance(source, dict):
        reads = {name: list(names) for name, names in source.items()}
        for name in [n for names in source.values() for n in names]:
            reads.setdefault(name, [])
        return ({n: label(n) if label else n for n in reads}, reads,
                {n: n for n in reads})
    nodes = [n for n in getattr(source, "graph", source).nodes
             if n.users or n.op == "output"]
    words = label or _label
    return ({n.name: words(n) for n in nodes},
            {n.name: [i.name for i in n.all_input_nodes] for n in nodes},
            {n.name: n for n in nodes})


def _label(node: fx.Node) -> str:
    """`mm f32[4, 16]`: what a node is called and what it makes."""
    made = value(node)
    return node.name if made is None else f"{node.name} {describe(made)}"


def _node(place: Place, words: str, colour: str, saved: bool) -> list[str]:
    """A labelled box, with a double border if the value is saved."""
    x, y, width, height = place
    name, _, kind = words.partition(" ")
    middle = x + width / 2 - CHARACTER * len(words) / 2
    frame = [box(x - 3, y - 3, width + 6, height + 6, colour, fill=0,
                 stroke=1.5, corner=6)] if saved else []
    return [f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" '
            f'height="{height:.1f}" rx="4" style="fill:'
            'var(--md-default-bg-color)"/>', *frame,
            box(x, y, width, height, colour),
            text(middle, y + 16, name, bold=True),
            text(middle + CHARACTER * (len(name) + 1), y + 16, kind,
                 colour=MUTED)]


def _edge(a: str, b: str, places: dict, bends: list, across: bool,
          heavy: bool) -> str:
    """A curve from node `a` to node `b` through its bends."""
    start, end = places[a], places[b]
    if across:
        points = [(start.x + start.width, start.y + start.height / 2),
                  *bends, (end.x, end.y + end.height / 2)]
    else:
        points = [(start.x + start.width / 2, start.y + start.height),
                  *bends, (end.x + end.width / 2, end.y)]
    path = f"M{points[0][0]:.1f},{points[0][1]:.1f}"
    for (x0, y0), (x1, y1) in zip(points, points[1:]):
        mx, my = (x0 + x1) / 2, (y0 + y1) / 2
        path += (f" C{mx:.1f},{y0:.1f} {mx:.1f},{y1:.1f} {x1:.1f},{y1:.1f}"
                 if across else
                 f" C{x0:.1f},{my:.1f} {x1:.1f},{my:.1f} {x1:.1f},{y1:.1f}")
    style = (f"stroke:{COLOURS[0]};stroke-width:2;stroke-dasharray:5 3"
             if heavy else f"stroke:{FAINT};stroke-width:1.1")
    return f'<path d="{path}" style="fill:none;{style}"/>'


# ---- charts ----

def quantity(number: float, unit: str = "") -> str:
    """Three digits and the unit; from 1,000 ms on, seconds."""
    if unit == "ms" and number >= 1000:
        number, unit = number / 1000, "s"
    digits = f"{number:.3g}"
    if "e+" in digits:
        digits = f"{float(digits):,.0f}"
    return f"{digits} {unit}".strip()


def bars(rows: Iterable[tuple[str, object]], *, title: str,
         unit: str = "") -> Picture:
    """Horizontal bars; a row's value is a number or {series: number}."""
    rows = [(name, given if isinstance(given, dict) else {"": given})
            for name, given in rows]
    series = colours(key for _, given in rows for key in given)
    most = max(v for _, given in rows for v in given.values()) or 1
    if unit == "ms" and most < .1:
        return bars([(name, {key: 1000 * ms for key, ms in given.items()})
                     for name, given in rows], title=title, unit="us")
    left = 16 + CHARACTER * max(len(name) for name, _ in rows)
    room, parts, y = WIDTH - left - 90, [], 6.0
    for name, given in rows:
        middle = y + 9 * len(given) + 4
        parts.append(text(left - 8, middle, name, anchor="end"))
        for key, number in given.items():
            length = max(1.0, room * number / most)
            colour = series[key] if key else MEANS.get(name, series[key])
            parts += [box(left, y, length, 14, colour, fill=.55, corner=2),
                      text(left + length + 6, y + 11,
                           quantity(number, unit))]
            y += 18
        y += 8
    if any(series):
        parts += legend(series, y + 12)
        y += 26
    return figure(parts, WIDTH, y, title)


def lanes(spans: Iterable[tuple[str, float, float, str]], *, title: str,
          unit: str = "") -> Picture:
    """Events on one axis of time, each (lane, start, end, label)."""
    spans = list(spans)
    end = max(stop for _, _, stop, _ in spans)
    tops = {lane: 6 + 34 * i for i, lane in enumerate(
        dict.fromkeys(lane for lane, *_ in spans))}
    left = 16 + CHARACTER * max(map(len, tops))
    scale, bottom = (WIDTH - left - 20) / end, 34 * len(tops) + 4
    shade = colours(label for *_, label in spans)
    parts = [text(left - 8, top + 16, lane, anchor="end")
             for lane, top in tops.items()]
    for lane, start, stop, label in spans:
        x, wide = left + start * scale, max(1.5, (stop - start) * scale)
        parts.append(box(x, tops[lane], wide, 24, shade[label], fill=.3))
        if wide > 10 + CHARACTER * len(label):
            parts.append(text(x + 6, tops[lane] + 16, label))
    parts += _axis(left, WIDTH - 20, bottom, 0, end, unit)
    return figure(parts, WIDTH, bottom + 24, title)


def steps(series: dict[str, list[tuple[float, float]]], *, title: str,
          unit: str = "", xlabel: str = "",
          most: tuple[float, float] = (0, 0)) -> Picture:
    """Curves that hold each value until the next: live bytes over time.

    The axes end at `most`, or where the last and the highest point is.
    """
    points = [point for line_ in series.values() for point in line_]
    x_end, y_end = (end or max(values) or 1 for end, values in zip(
        most, zip(*points)))
    left, bottom, top = 64, 214, 14

    def at(x, y):
        return (left + x / x_end * (WIDTH - left - 20),
                bottom - y / y_end * (bottom - top))

    parts = [line([(left, top), (left, bottom)], RULE),
             text(left - 8, top + 4, quantity(y_end, unit),
                  anchor="end"), text(left - 8, bottom, "0", anchor="end")]
    shade = colours(series)
    for name, pairs in series.items():
        path = [at(*pairs[0])]
        for (_, y0), (x1, y1) in zip(pairs, pairs[1:]):
            path += [at(x1, y0), at(x1, y1)]
        parts.append(line(path, shade[name], 1.8))
    parts += _axis(left, WIDTH - 20, bottom, 0, x_end, xlabel)
    parts += legend(shade, bottom + 42)
    return figure(parts, WIDTH, bottom + 54, title)


def _axis(left: float, right: float, y: float, low: float, high: float,
          unit: str) -> list[str]:
    """A horizontal axis with its two ends and what it counts."""
    return [line([(left, y), (right, y)], RULE),
            text(left, y + 16, quantity(low), colour=MUTED),
            text(right, y + 16, quantity(high, unit), colour=MUTED,
                 anchor="end")]


def boxes(names: Sequence[str], *, title: str, lit: int | None = None
          ) -> Picture:
    """Named boxes with arrows between, in rows that a phone shows whole;
    `lit` is highlighted."""
    parts, x, y, most = [], 2.0, 4.0, 0.0
    for i, name in enumerate(names):
        wide = 16 + CHARACTER * len(name)
        if x + wide > PHONE:
            x, y = 2.0, y + 36
        parts += [box(x, y, wide, 26, COLOURS[0] if i == lit else FAINT,
                      fill=.25 if i == lit else .06),
                  text(x + 8, y + 17, name, bold=i == lit)]
        x += wide
        if i < len(names) - 1:
            parts += [line([(x + 3, y + 13), (x + 17, y + 13)]),
                      line([(x + 13, y + 9), (x + 17, y + 13),
                            (x + 13, y + 17)])]
            x += 20
        most = max(most, x)
    return figure(parts, most + 2, y + 30, title)


def pipeline(stage: str, title: str = "Where we are") -> Picture:
    """The stages, one of them lit."""
    return boxes(STAGES, title=title,
                 lit=STAGES.index(stage) if stage else None)
