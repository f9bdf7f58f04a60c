"""Pictures are well-formed, complete, and laid out without overlap."""

import json
import xml.etree.ElementTree as ElementTree
from itertools import combinations

import pytest
import torch
from torch import fx

from chapters._book import draw
from chapters._book.layout import layered

DIAMOND = {"b": ["a"], "c": ["a"], "d": ["b", "c"], "e": ["a", "d"]}
SVG = "{http://www.w3.org/2000/svg}"


def parsed(figure):
    return ElementTree.fromstring(str(figure))


def words(figure):
    return [t.text for t in parsed(figure).iter("text")]


def test_a_picture_of_an_fx_graph_names_every_node_and_its_type():
    def function(x):
        return torch.relu(x) + x.exp()

    graph = fx.symbolic_trace(function)
    for node in graph.graph.nodes:
        node.meta["val"] = torch.empty(2, 3, device="meta")
    figure = draw.graph(graph, title="<two> & more", cut={"relu"},
                        group=lambda node: node.op)
    text = words(figure)
    assert {"x", "relu", "exp", "add", "output"} <= set(text)
    assert "f32[2, 3]" in text and "placeholder" in text
    assert parsed(figure).find("svg").get("aria-label") == "<two> & more"
    assert len(list(parsed(figure).iter("path"))) == 5


@pytest.mark.parametrize("across", [False, True])
def test_layers_follow_the_edges_and_boxes_do_not_touch(across):
    reads = {"a": [], **DIAMOND}
    sizes = {name: (40 + 10 * i, 24) for i, name in enumerate(reads)}
    places, bends, width, height = layered(reads, sizes, across)
    at = (lambda p: p.x) if across else (lambda p: p.y)
    for b, names in reads.items():
        assert all(at(places[a]) < at(places[b]) for a in names)
    for p, q in combinations(places.values(), 2):
        assert (p.x + p.width <= q.x or q.x + q.width <= p.x
                or p.y + p.height <= q.y or q.y + q.height <= p.y)
    for p in places.values():
        assert 0 <= p.x <= p.x + p.width <= width
        assert 0 <= p.y <= p.y + p.height <= height
    assert [len(bends["a", n]) for n in "bce"] == [0, 0, 2]


def test_bars_are_as_long_as_their_numbers():
    figure = draw.bars([("eager", 8.0), ("ours", 2.0)], title="t", unit="ms")
    long, short = (float(r.get("width")) for r in
                   parsed(figure).iter("rect"))
    assert long == pytest.approx(4 * short, abs=0.2)
    assert "8 ms" in words(figure) and "ours" in words(figure)


@pytest.mark.parametrize("number, unit, told", [
    (0.0125, "ms", "0.0125 ms"), (999.6, "", "1,000"), (2010, "ms", "2.01 s"),
    (20480, "bytes", "20,500 bytes"), (0, "", "0")])
def test_a_number_is_told_as_a_person_would(number, unit, told):
    assert draw.quantity(number, unit) == told


def test_bars_in_series_have_a_legend():
    rows = [("softmax", {"eager": 3, "ours": 1}), ("norm", {"ours": 2})]
    text = words(draw.bars(rows, title="t"))
    assert text.count("eager") == text.count("ours") == 1


def test_lanes_steps_and_boxes():
    lanes = draw.lanes([("gpu", 0, 9, "kernel"), ("cpu", 1, 2, "launch")],
                       title="t", unit="us")
    assert {"gpu", "cpu", "kernel", "9 us"} <= set(words(lanes))
    steps = draw.steps({"live": [(0, 1), (2, 5), (3, 0)]}, title="t")
    (line,) = [p for p in parsed(steps).iter("polyline")
               if p.get("points").count(" ") == 4]
    assert len(set(line.get("points").split())) == 5
    boxes = draw.boxes(["trace", "guards"], title="t", lit=1)
    assert words(boxes) == ["trace", "guards"]


def test_results_are_read_from_their_folder(tmp_path, monkeypatch):
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a.json").write_text(json.dumps({"rows": [1]}))
    monkeypatch.setattr(draw.pages, "DOCS", tmp_path)
    assert draw.results("a.json") == {"rows": [1]}
