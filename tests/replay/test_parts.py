"""Programs recorded in parts, and what runs between them and after."""

from __future__ import annotations

import json
import random
from functools import partial
from unittest import mock

import pytest
import torch
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import minicompile
from minicompile import emit
from minicompile.core.schedule import Extern
from minicompile.fusion import fuse
from minicompile.fusion.passes import memory
from minicompile.replay.cuda.graphs import (
    GraphedFunction, graphed, holders, obstacle, memory_id)
from minicompile.replay.outputs import parts
from minicompile.replay.outputs.parts import InParts, cut_up, tail_of
from tests.fusion.graphs import aten, as_cuda
from tests.replay.fake import FakeDevice


def mixed(x, w):
    """Matmuls with kernels between, an input seen again, a scalar."""
    a = (x @ w).sin()
    b = (a @ w).relu() + x.sum()
    c = (b @ w).tanh() * a
    return c, b.t(), x.view(-1), (c @ w).cos(), a.sum()


def sharing(x, w):
    a = torch.cat([x @ w, w @ x])
    return a.split(8), a * 2, (a @ w).sigmoid()[1:]


def last(x, w):
    """Its last launch reads an input."""
    return (x @ w).sin() + x


def made(function):
    """The program of a function of two matrices, as for a GPU: none of
    its steps stores over a dead value."""
    x, w = torch.randn(8, 8), torch.randn(8, 8)
    with mock.patch.object(memory, "REUSING", ()):
        return emit.emit(fuse(aten(lambda *given: tree_leaves(
            function(*given)), x, w)))


def values(count):
    return [torch.randn(8, 8) for _ in range(count)]


def plain(program, recorded, tail):
    """What makes recordings, from the plain data of a file."""
    return partial(InParts, json.loads(json.dumps(
        cut_up(program, recorded, tail))))


def replays(program, recorded, tail):
    """Each call gives what the program gives, and keeps it."""
    device = FakeDevice()
    region = GraphedFunction(program.run, None, device, kinds=[
        plain(program, recorded, tail)])
    w, kept = torch.randn(8, 8), []
    for x in values(6):
        kept.append((x, region.forward([x, w])))
        w += 1
        kept.append((x, region.forward([x, w])))
        w -= 1
    for number, (x, found) in enumerate(kept):
        for one, two in zip(found, program.run([x, w + number % 2]),
                            strict=True):
            torch.testing.assert_close(one, two)
            assert one.stride() == two.stride()
    assert region.stats["replayed"] >= 6
    return region, device


@pytest.mark.parametrize("function", [mixed, sharing, last])
@pytest.mark.parametrize("seed", range(6))
def test_any_cut_gives_what_the_program_gives(function, seed):
    choose = random.Random(seed)
    program = made(function)
    count = len(program.text.schedule.steps)
    free = [place for place in range(count) if not any(
        getattr(step, "aliases", False)
        for step in program.text.schedule.steps[place:])]
    tail = choose.choice([*free, count])
    recorded = tuple(choose.random() < 0.6 for _ in range(count))
    region, device = replays(program, recorded, tail)
    cuts = [now for now, before in zip(
        recorded[:tail], (False, *recorded)) if now and not before]
    assert device.recorded == len(cuts) * region.stats["recorded"]


def test_a_cut_program_has_sizes_that_vary():
    """Each tuple of sizes has recordings of its own."""
    def function(x, w):
        a = (x @ w).sin()
        b = (a @ w).relu() + x.shape[0]
        return (b @ w).tanh() * a, b.view(-1), x.new_ones(len(x) * 2)

    compiled = minicompile.compile(function, dynamic=True, fullgraph=True)
    compiled(torch.randn(5, 8), torch.randn(8, 8))
    program = compiled.cache.entries[0].lowered.programs["forward"]
    count = len(program.text.schedule.steps)
    region = GraphedFunction(program.run, None, FakeDevice(), kinds=[
        plain(program, tuple(
            k % 3 != 1 for k in range(count)), count - 1)])
    for rows in (5, 6, 5, 6, 5, 6, 5):
        sizes = {place: symbol.hint for symbol, place
                 in program.text.schedule.sizes.items()}
        inputs = [rows if sizes[k] == 5 else 8 for k in range(2)] + [
            torch.randn(rows, 8), torch.randn(8, 8)]
        found = region.forward(list(inputs))
        for one, two in zip(found, program.run(inputs), strict=True):
            torch.testing.assert_close(one, two)
    assert region.stats["replayed"] == 5


def test_what_the_tail_makes_is_not_cloned():
    program = made(last)
    count = len(program.text.schedule.steps)
    region, device = replays(program, (True,) * count, count - 1)
    assert all(not each.clones for each in region.forward.recordings)


def test_an_input_is_not_kept_alive():
    program = made(last)
    count = len(program.text.schedule.steps)
    region = GraphedFunction(program.run, None, FakeDevice(), kinds=[
        plain(program, (True,) * count, count - 1)])
    x, w = values(2)
    for _ in range(4):
        region.forward([x, w])
    assert region.stats["replayed"] == 3
    assert holders(memory_id(x)) == 1


def logits(x, w):
    return F.gelu(x @ w).sin() * 2


TAILS = {
    "large": (logits, 1024, 1, ["sin"]),
    "small": (logits, 16, 1, []),
    "saved": (logits, 1024, 0, []),
    "a part": (lambda x, w: logits(x, w)[1:], 1024, 1, ["sin"]),
    "an operator": (lambda x, w: x.sin() @ w, 1024, 1, ["mm"]),
    "before a sum": (lambda x, w: [y := x @ w, y.sum()], 4096, 2,
                     ["mm", "sum", "sum"]),
    "far from the end": (lambda x, w: [y := x @ w, y[:9, :9].inverse()
                                       .inverse().inverse()], 512, 2, []),
    "written": (lambda x, w: x.copy_(x @ w).sin(), 1024, 1, []),
}


@pytest.mark.parametrize("name", TAILS)
def test_which_launches_are_the_tail(name):
    function, size, visible, expected = TAILS[name]
    schedule = fuse(as_cuda(aten(function, torch.randn(size, size),
                                 torch.randn(size, size))))
    found = schedule.steps[tail_of(
        schedule.steps, schedule.outputs, visible):]
    assert len(found) == len(expected)
    for step, word in zip(found, expected):
        assert word in (str(step.target) if isinstance(step, Extern)
                        else step.name)


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
    recordings = compiled.cache.entries[0].lowered.graphed.forward.recordings
    assert recordings and all(
        type(each) is InParts and not each.clones for each in recordings)
    assert compiled.stats().replays["replayed"] >= 3
    assert 128 * 4096 * 4 >= parts.LARGE


def on_the_cpu(x, w, c):
    """A tensor on the CPU is added to in the middle."""
    h = (x @ w).sin() @ w
    small = h.mean().cpu() + c
    return (h.cos() @ w).exp() @ w, small, (h * small.cuda()).relu() @ w


def choosing(x, w, c):
    h = (x @ w).sin() @ w
    h = torch.cond(h.sum() > 0, lambda h: h.cos(), lambda h: h.sin(), (h,))
    return (h @ w).exp() @ w + x.max()


@pytest.mark.gpu
@pytest.mark.parametrize("function", [on_the_cpu, choosing])
@pytest.mark.parametrize("trained", [False, True])
def test_on_a_gpu_the_rest_is_recorded(function, trained):
    torch._dynamo.reset()
    w = torch.randn(32, 32, device="cuda").div(8).requires_grad_(trained)
    compiled = minicompile.compile(function, mode="reduce-overhead")
    for _ in range(8):
        x, c = torch.randn(32, 32, device="cuda"), torch.randn(())
        found, wanted = (
            tree_leaves(run(x, w, c))
            for run in (compiled, function))
        for one, two in zip(found, wanted, strict=True):
            torch.testing.assert_close(one, two)
        if trained:
            one, two = (torch.autograd.grad(sum(
                each.sum().cuda() for each in results), w)[0]
                for results in (found, wanted))
            torch.testing.assert_close(one, two)
    stats = compiled.stats()
    assert stats.replays["replayed"] >= 4 and not stats.graph_breaks


def test_without_parts_a_step_that_cannot_be_recorded_blocks():
    program = made(last)
    assert obstacle(program.text.schedule) == (
        "not all tensors are on a CUDA device")
    region = graphed({"forward": program})
    assert "CUDA" in region.blocked or "fewer" in region.blocked
