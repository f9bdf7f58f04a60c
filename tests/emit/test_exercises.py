"""The exercises of chapter 5."""

from __future__ import annotations

import torch

from chapters._book.running import block, inputs
from minicompile import emit
from minicompile.core import loops
from minicompile.core.index import index
from minicompile.core.loops import Kernel, Loop, Op
from minicompile.emit import cpp, operations, program
from minicompile.fusion import fuse
from tests.book.answers import answer
from tests.emit.build import at, buffer, check, load, pointwise, run, variables
from tests.emit.test_program import graph_of

F32, I64 = torch.float32, torch.int64


def test_5_1_a_row_of_the_table(monkeypatch):
    monkeypatch.setitem(operations.FORMS, "sinc", answer("5.1", "sinc"))
    monkeypatch.setitem(loops.OPS, "sinc", torch.sinc)
    for dtype in (F32, torch.float64):
        (i,) = variables("i", 100)
        value = Op("sinc", (load(buffer("x", 100, dtype=dtype), i),), dtype)
        x = torch.linspace(-5, 5, 100, dtype=dtype)
        x[40] = 0
        check(pointwise(value, buffer("out", 100, dtype=dtype), (i,)),
              {"x": x}, rtol=1e-5, atol=1e-6)


def test_5_2_a_kind_of_reduction(monkeypatch):
    monkeypatch.setitem(loops.REDUCTIONS, "xor", answer("5.2", "xor"))
    monkeypatch.setitem(cpp.CLAUSES, "xor", answer("5.2", "sign"))
    i, r = variables("i", 30, 5000)
    source = buffer("x", 30, 5000, dtype=I64)
    x = torch.randint(0, 1 << 40, (30, 5000))
    for ranges, reduced, want in (
            ((i,), (r,), lambda k: x[k]), ((r,), (i,), lambda k: x[:, k])):
        out = buffer("out", int(ranges[0].size), dtype=I64)
        got = run(Kernel("kernel", ranges, reduced, (Loop(
            out, at(out, *ranges), ranges, load(source, i, r), reduced,
            "xor"),)), {"x": x.reshape(-1)})["out"]
        for place in (0, 7, 29):
            total = 0
            for number in want(place).tolist():
                total ^= number
            assert got[place] == total


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
        "argmax"),))
    assert traffic(count) == 9 + 8


def test_5_4_replace_this_stage_with_yours(monkeypatch):
    printer = answer("5.4", "PythonPrinter")
    monkeypatch.setattr(program, "printer_for", lambda *_: printer())
    x, w = inputs(grad=False)
    made = emit.emit(fuse(graph_of(block, x, w)))
    assert "extern" not in made.source
    torch.testing.assert_close(made.run([x, w])[0], block(x, w))
