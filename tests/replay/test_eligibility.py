"""Which programs are recorded, and what is said of the others."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

import minicompile
from minicompile.core.index import index
from minicompile.core.loops import Buffer
from minicompile.core.schedule import Extern, Schedule, View
from minicompile.replay.cuda.graphs import WORTH, graphed, obstacle

aten = torch.ops.aten
GPU, OTHER = torch.device("cuda", 0), torch.device("cuda", 1)


def buffer(name, device=GPU, dtype=torch.float32):
    return Buffer(name, (index(4),), (index(1),), dtype, device)


def view(of):
    return View(of.name, of.shape, of.stride, index(0), of.dtype)


def schedule(steps=WORTH, target=aten.relu.default, device=GPU,
             output=GPU, dtype=torch.float32):
    x = buffer("x", device, dtype)
    made = [buffer(f"y{k}", output) for k in range(steps)]
    return Schedule((x,), tuple(
        Extern(target, (view(x), [view(x)]), {}, (y,)) for y in made),
        (), {})


def programs(**schedules):
    """Programs with these schedules, which nobody runs."""
    return {name: SimpleNamespace(run=tuple, text=SimpleNamespace(
        schedule=each, buffers=each.buffers))
        for name, each in schedules.items()}


@pytest.mark.parametrize("given, reason", [
    (schedule(), None),
    (schedule(device=torch.device("cpu")), "not all tensors are on a CUDA"),
    (schedule(output=torch.device("cpu")), "not all tensors are on a CUDA"),
    (schedule(output=OTHER), "tensors are on several devices"),
    (schedule(target=aten._local_scalar_dense.default),
     "waits for the device"),
    (schedule(target=aten.index.Tensor, dtype=torch.bool),
     "waits for the device"),
    (schedule(target=aten.index.Tensor, dtype=torch.int64), None),
    (schedule(target=aten.bernoulli.default), None),
])
def test_refusal(given, reason):
    found = obstacle(given)
    assert found is None if reason is None else reason in found


def test_an_input_that_no_step_reads_does_not_matter():
    assert obstacle(replace(
        schedule(), inputs=(None, buffer("x")))) is None


def test_the_forward_and_the_backward_are_both_asked():
    bad = schedule(output=torch.device("cpu"))
    region = graphed(programs(forward=schedule(), backward=bad))
    assert region.blocked == "not all tensors are on a CUDA device"
    region = graphed(programs(forward=schedule(), backward=schedule()))
    assert region.blocked is None


def test_few_launches_are_not_worth_a_recording():
    region = graphed(programs(forward=schedule(WORTH - 1)))
    assert region.blocked == f"fewer than {WORTH} launches"
    half = programs(forward=schedule(2), backward=schedule(2))
    assert graphed(half).blocked is None


def test_the_recordings_are_made_on_the_tensors_device():
    given = schedule(device=OTHER, output=OTHER)
    assert graphed(programs(forward=given)).device.index == 1


def test_the_mark_of_a_step_is_accepted_and_does_nothing():
    def function(x):
        torch.compiler.cudagraph_mark_step_begin()
        return x + 1

    run = minicompile.compile(function, mode="reduce-overhead")
    for x in torch.rand(3, 4):
        torch.compiler.cudagraph_mark_step_begin()
        assert run(x).equal(x + 1)
    assert not run.stats().graph_breaks and run.stats().graphs == 1
