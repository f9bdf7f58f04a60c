"""The exercises of chapter 5."""

from __future__ import annotations

from itertools import combinations

import torch
from torch.nn import functional as F

from chapters._book.running import block, inputs, row_by_row
from minicompile import emit
from minicompile.core.index import index
from minicompile.core.loops import Kernel, Loop
from minicompile.core.schedule import made_by
from minicompile.emit import program
from minicompile.emit.writer import stages
from minicompile.fusion import fuse
from tests.book.answers import answer
from tests.emit.build import buffer, load, variables
from tests.emit.test_program import graph_of

I64 = torch.int64


def test_5_1_predict_the_passes():
    passes = answer("5.1", "passes")
    for function in (
            lambda x: x.sum(1), lambda x: x.var(1), lambda x: x.softmax(1),
            lambda x: x / x.sum(1, True) + x.amax(1, True),
            lambda x: (x.softmax(1) * x).sum(1),
            lambda x: x.exp().sum(1) * 2,
            lambda x: F.gelu(F.layer_norm(x, (16,))) * 2):
        (kernel,) = fuse(graph_of(function, torch.randn(4, 16))).kernels
        assert passes(kernel) == sum(
            bool(stage.body) for stage in stages(kernel))


def lives(schedule):
    """The steps from a buffer's first to its last use, and its bytes."""
    found = {}
    for number, step in enumerate(schedule.steps):
        for made in made_by(step):
            for last, dead in enumerate(schedule.last_use):
                if made.name in dead and not made.into:
                    found[made.name] = range(number, last + 1), (
                        made.elements.constant * made.dtype.itemsize)
    return found


def test_5_2_memory_twice():
    plan = answer("5.2", "plan")

    def deep(x, w):
        for _ in range(5):
            x = torch.softmax(x @ w, 1) + x
        return x @ w

    square = torch.randn(8, 8)
    for schedule in (
            fuse(graph_of(deep, square, square)),
            fuse(graph_of(row_by_row, *inputs(grad=False)))):
        alive, slots = lives(schedule), plan(schedule)
        assert slots.keys() == alive.keys()
        for one, other in combinations(alive, 2):
            if slots[one] == slots[other]:
                assert alive[one][1] == alive[other][1]
                assert not set(alive[one][0]) & set(alive[other][0])
        sizes = {size for _, size in alive.values()}
        assert len(set(slots.values())) == sum(max(
            sum(now in steps and size == wanted
                for steps, size in alive.values())
            for now in range(len(schedule.steps))) for wanted in sizes)


def test_5_3_bytes():
    traffic = answer("5.3", "traffic")
    (kernel,) = fuse(graph_of(lambda x, y: x * y + x,
                              torch.empty(6, 8), torch.empty(8))).kernels
    assert traffic(kernel) == 4 * (48 + 8 + 48)
    (kernel,) = fuse(graph_of(lambda x: torch.softmax(x, 1),
                              torch.empty(6, 8))).kernels
    assert traffic(kernel) == 4 * 2 * 48
    out = buffer("out", dtype=I64)
    (r,) = variables("r", 9)
    count = Kernel("kernel", (), (r,), (Loop(
        out, index(0), (), load(buffer("x", 9, dtype=torch.int8), r), (r,),
        "sum"),))
    assert traffic(count) == 9 + 8


def test_5_4_replace_this_stage_with_yours(monkeypatch):
    printer = answer("5.4", "PythonPrinter")
    monkeypatch.setattr(program, "printer_for", lambda *_: printer())
    x, w = inputs(grad=False)
    made = emit.emit(fuse(graph_of(block, x, w)))
    assert "extern" not in made.source
    torch.testing.assert_close(made.run([x, w])[0], block(x, w))
