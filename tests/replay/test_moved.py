"""Large results of a last launch: made anew after each replay."""

from __future__ import annotations

from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch.nn import functional as F

import minicompile
from minicompile.fusion import fuse
from minicompile.replay import GraphedFunction
from minicompile.replay.outputs import moved
from minicompile.replay.outputs.moved import LastLaunch, Moved, last_launch
from tests.fusion.graphs import aten, as_cuda
from tests.replay.fake import FakeDevice
from tests.replay.test_graphed_function import values

PROGRAM = """
def call(inputs):
    x, = inputs
    inputs.clear()
    hidden = x * 2
    out = empty_strided((3, 4), (1, 3))
    kernel_0.run(7, hidden, out, 5)
    return (hidden, out)
"""


def program(text=PROGRAM, **names):
    def kernel(stream, hidden, out, size):
        assert size == 5 and stream in (None, 7)
        out.copy_(hidden + 1)

    names |= {"empty_strided": torch.empty_strided,
              "kernel_0": SimpleNamespace(run=kernel)}
    exec(text, names)
    return names["call"]


def test_the_last_launch_makes_new_memory_in_each_call():
    run = program()
    graphed = GraphedFunction(
        run, None, FakeDevice(),
        kind=partial(Moved, LastLaunch(run, "kernel_0", 1, (1,))))
    kept = []
    for x in values(5):
        kept.append((x, *graphed.forward([x])))
    for x, hidden, out in kept:
        assert hidden.equal(x * 2) and out.equal(x * 2 + 1)
        assert out.stride() == (1, 3)
    assert graphed.stats["replayed"] >= 3
    recording, = graphed.ahead.recordings
    assert len(recording.clones) == 1
    assert len({out.data_ptr() for *_, out in kept}) == 5


def test_a_backward_is_recorded_whole():
    run, back = program(), program()
    recording = Moved(LastLaunch(run, "kernel_0", 1, (1,)), FakeDevice(),
                      back, [torch.ones(3, 4)], ())
    hidden, out = recording.run([torch.ones(3, 4)])
    assert out.equal(torch.full((3, 4), 3.0))
    assert len(recording.clones) == 2


def logits(x, w):
    return F.gelu(x @ w).sin() * 2


CASES = {
    "large": (logits, 1024, 1, (0,)),
    "small": (logits, 16, 1, None),
    "saved": (logits, 1024, 0, None),
    "two": (lambda x, w: (x.sum(), *[y := x @ w, y + 1][1:]), 1024, 2, (1,)),
    "a part": (lambda x, w: logits(x, w)[1:], 1024, 1, None),
    "a shape": (lambda x, w: logits(x, w).view(4, -1, 1024), 1024, 1, (0,)),
    "an operator": (lambda x, w: x.sin() @ w, 1024, 1, None),
    "reads an input": (lambda x, w: (x @ w) + x, 1024, 1, None),
}


@pytest.mark.parametrize("name", CASES)
def test_which_launches_are_last(name):
    function, size, visible, expected = CASES[name]
    schedule = fuse(as_cuda(aten(function, torch.randn(size, size),
                                 torch.randn(size, size))))
    text = "def call(inputs):\n" + "".join(
        f"    {kernel.name}.run()\n" for kernel in schedule.kernels)
    found = last_launch(program(text), schedule, visible)
    assert (found and found.places) == expected
    if found:
        assert found.kernel == schedule.steps[-1].name
        text += f"    {found.kernel}.run()\n"
        assert last_launch(program(text), schedule, visible) is None


@pytest.mark.gpu
def test_on_a_gpu_logits_are_not_cloned():
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 4096),
        torch.nn.Tanh()).cuda()
    compiled = minicompile.compile(layers, mode="reduce-overhead")
    kept = []
    with torch.no_grad():
        for _ in range(6):
            x = torch.randn(128, 64, device="cuda")
            kept.append((compiled(x), layers(x)))
    for found, wanted in kept:
        torch.testing.assert_close(found, wanted)
    recordings = compiled.cache.entries[0].lowered.graphed.ahead.recordings
    assert recordings and all(
        type(each) is Moved and not each.clones for each in recordings)
    assert compiled.stats().replays["replayed"] >= 3
    assert 128 * 4096 * 4 >= moved.LARGE
