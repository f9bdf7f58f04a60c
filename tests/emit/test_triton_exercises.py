"""The exercises of chapter 5's Triton page, the page's answers or yours."""

import torch
import torch.nn.functional as F

from chapters._book.ptx import kernels_of
from minicompile.core.loops import Op
from minicompile.emit import target
from minicompile.emit.target import TRITON
from tests.book.answers import answer
from tests.emit import test_triton_tiles
from tests.emit.triton_kernels import at, buffer, variables


def test_5_5_how_many_loads():
    line = answer("5.5", "line")
    for count in (1, 1000, 2 ** 18, 2 ** 20, 2 ** 28):
        block, warps = line(count)
        each = block // (32 * warps)
        assert block & (block - 1) == 0 and each in (8, 16)
        assert each == 8 or count // block >= 264
    assert line(2 ** 28)[0] // (32 * line(2 ** 28)[1]) == 16


def test_5_6_a_row_of_your_own(monkeypatch):
    form = answer("5.6", "form")
    monkeypatch.setitem(target.FORMS, "logaddexp", form)
    ranges = variables("i", (8,))
    operands = tuple(at(buffer(n, (8,)), ranges) for n in "ab")
    text = TRITON.operation(
        Op("logaddexp", operands, torch.float32), ["a", "b"])
    a, b = torch.randn(2, 8) * torch.tensor([[1.], [100.]])
    found = eval(text, {"a": a, "b": b, "libdevice": torch,
                        "device": torch, "tl": torch})
    torch.testing.assert_close(found, torch.logaddexp(a, b))


def test_5_7_which_kernels_are_short_of_registers():
    crowded = answer("5.7", "crowded")
    x, w = torch.empty(8, 100), torch.empty(8, 100)
    softmax = kernels_of(lambda x: x.softmax(-1), x)
    assert crowded(softmax) == []

    def both(x, w):
        s = x.exp().sum(-1, keepdim=True) + w.exp().sum(-1, keepdim=True)
        return F.relu(x.sin() * w.cos()) / s
    kernels = kernels_of(both, x, w)
    assert crowded(kernels) == [kernel.name for kernel in kernels]


def test_5_8_replace_this_stage_with_yours():
    tile = answer("5.8", "tile")
    for shape in test_triton_tiles.COVERED:
        test_triton_tiles.check_cover(tile, shape)
