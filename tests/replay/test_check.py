"""The debugging mode: replays poisoned, and compared with the program."""

from __future__ import annotations

import ctypes

import pytest
import torch

import minicompile
from minicompile.core.errors import BackendError
from minicompile.replay.cuda.graphs import GraphedFunction, graphed
from minicompile.replay.outputs.parts import Checked
from tests.replay import test_training
from tests.replay.fake import FakeDevice
from tests.replay.test_eligibility import programs, schedule
from tests.replay.test_graphed_function import values


def checked(function, **settings):
    return GraphedFunction(lambda inputs: function(*inputs), None,
                           FakeDevice(), kinds=[Checked], **settings)


def test_right_replays_pass():
    def function(x, w):
        x.add_(1)
        return x * w, None, w, torch.rand(3), x.isnan()

    region, w = checked(function, static={1}, written={0}), torch.ones(4)
    for x in values(5):
        wanted, *_ = function(x.clone(), w)
        found, nothing, same, drawn, _ = region.forward([x, w])
        assert found.equal(wanted) and nothing is None and same.equal(w)
        assert not drawn.equal(region.forward([x, w])[3])
    assert region.stats["replayed"] == 9


def test_memory_at_rest_is_poisoned():
    region = checked(lambda x: (x + 1, x * 2), visible=1)
    for x in values(3):
        out, lent = region.forward([x])
        assert out.equal(x + 1) and lent.equal(x * 2)
    stale, recording = lent.data_ptr(), region.forward.recordings[-1]
    recording.poison((lent,))  # as what the program gives in every run
    assert lent.equal(x * 2)
    recording.poison((out,))
    assert ctypes.string_at(stale, 48) == b"\xff" * 48


@pytest.mark.parametrize("fault", ["a result", "an input", "not written"])
def test_a_fault_is_found(fault, monkeypatch):
    def function(x):
        x.mul_(2)
        return x + 1,

    region = checked(function, written={0})
    for x in values(3):
        region.forward([x])
    recording = region.forward.recordings[0]
    if fault == "a result":
        monkeypatch.setitem(recording.clones, 0, torch.ones(3, 4))
    elif fault == "an input":
        monkeypatch.setattr(recording, "written", set())
    else:
        monkeypatch.setattr(recording, "replay", lambda: None)
    with pytest.raises(BackendError, match="of a replay is not"):
        region.forward([torch.randn(3, 4)])


@pytest.mark.parametrize("seed", range(10))
def test_random_programs(seed):
    class Kind(GraphedFunction):
        def __init__(self, *given, blocked=None, **named):
            super().__init__(*given, blocked=blocked, kinds=[Checked], **named)

    torch.set_default_dtype(torch.float64)
    try:
        test_training.random_program(seed, Kind)
    finally:
        torch.set_default_dtype(torch.float32)


def test_the_option():
    x = torch.randn(8, 8)
    run = minicompile.compile(torch.sin, options={
        "cudagraphs": True, "replay_check": True})
    torch.testing.assert_close(run(x), x.sin())
    checked = graphed(programs(forward=schedule()), check=True)
    assert checked.blocked is None and checked.forward.kind is Checked
