"""Pictures to step through: a button a frame, and nothing drawn twice."""

import xml.etree.ElementTree as ElementTree

import pytest
import torch

from chapters._book import draw
from chapters._book.ptx import kernels_of
from chapters._book.walk import chips, followed, listing, memory, walk

LONG = draw.box(1, 2, 30, 40, "red")


def parsed(figure):
    text = figure.replace(" checked>", ">").replace('">' '<div class="frame"',
                                                    '"/><div class="frame"')
    return ElementTree.fromstring(text)


def test_every_frame_has_a_button_that_says_what_it_is():
    figure = parsed(walk([("first <", "<pre>a</pre>"), ("second", ""),
                          ("third", "")], "A walk"))
    group = figure.find("div")
    buttons = group.findall("input")
    assert [each.get("aria-label") for each in buttons] == [
        "1 of 3: first <", "2 of 3: second", "3 of 3: third"]
    assert {each.get("name") for each in buttons} == {"a-walk"}
    links = [[each.get("for") for each in frame.iter("label")]
             for frame in group.findall("div")]
    assert links == [["a-walk-2", "a-walk-1"], ["a-walk-0", "a-walk-2"],
                     ["a-walk-1", "a-walk-0"]]


def test_what_frames_share_is_drawn_once():
    frames = [(name, draw.figure([LONG, draw.text(1, 1, name)], 50, 50, name))
              for name in ("one", "two")]
    figure = walk(frames, "Same box")
    assert figure.count(LONG) == 1 and figure.count("<use ") == 2
    assert figure.count(">one</text>") == 1


def test_panels_mark_the_lit_line_and_the_new_names():
    shown = listing(["if a < b:", "    return"], {8}, first=7)
    assert "if a &lt; b:\n<mark>    return</mark>" in shown
    assert chips("has", ["x", "<y>"], fresh=1).endswith(
        "<i>x</i><b>&lt;y&gt;</b></div>")
    assert "nothing" in chips("has", [])


def test_a_function_is_followed_line_by_line():
    def halve(number):
        half = number // 2
        return half

    first = halve.__code__.co_firstlineno
    assert list(followed(halve, 6)) == [
        (first + 1, {"number": 6}), (first + 2, {"number": 6, "half": 3}),
        (first + 2, {"return": 3})]


@pytest.mark.parametrize("function, elements", [
    (lambda x: x.sum(1), {("read", 3), ("written", 1)}),
    (lambda x: x.t() + 1, {("read", 1), ("written", 1)})])
def test_a_kernel_shows_what_each_row_touches(function, elements):
    (kernel,) = kernels_of(function, torch.ones(2, 3))
    frames = list(memory(kernel, torch.ones(2, 3)))
    for caption, text, picture in frames:
        assert "row" in caption and "<mark>    for" in text
        fills = [part for part in picture.parts if "fill-opacity:0.55" in part]
        touched = {(means, sum(draw.MEANS[means] in part for part in fills))
                   for means in ("read", "written")}
        assert touched == elements
