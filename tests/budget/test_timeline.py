"""The simulated memory of a program, by hand and beside the profiler."""

from __future__ import annotations

import pytest
import torch
from torch.nn import functional as F

import minicompile
from minicompile.budget.timeline import live_bytes, peak


def lowered(function, *args, **options):
    run = minicompile.compile(function, options=options)
    run(*args)
    [entry] = run.cache.entries
    return entry.lowered


def test_by_hand():
    """x @ w, then (x @ w) @ w: the first product dies with the second."""
    x, w = torch.rand(8, 8), torch.rand(8, 8)
    made = lowered(lambda x, w: ((x @ w) @ w).cos(), x, w)
    assert live_bytes(made.schedules["forward"]) == [256, 512, 512]


def test_an_input_that_is_donated_counts_until_its_last_use():
    def function(x, w):
        return ((x @ w).sin() @ w).cos().sum()

    args = [torch.rand(8, 8, requires_grad=True) for _ in range(2)]
    made = lowered(function, *args)
    schedule, donated = made.schedules["backward"], made.pair.donated
    with_them, without = live_bytes(schedule, donated), live_bytes(schedule)
    assert with_them[0] > without[0]
    assert with_them[-1] <= with_them[0] + 2 * 256
    assert peak(made.schedules, donated) == max(
        *live_bytes(made.schedules["forward"]), *with_them)


def test_what_is_stored_in_an_input_takes_no_memory():
    made = lowered(lambda x: x.add_(1), torch.rand(100))
    assert live_bytes(made.schedules["forward"]) == [0]


def allocated(run, *args) -> int:
    """The most bytes that the allocator had given away during a call."""
    with torch.profiler.profile(profile_memory=True, activities=[
            torch.profiler.ProfilerActivity.CPU]) as found:
        result = run(*args)
    alive, most = 0, 0
    for event in found.profiler.kineto_results.events():
        if event.name() == "[memory]":
            alive += event.nbytes()
            most = max(most, alive)
    assert result
    return most


def mlp(x, v, w):
    h = F.layer_norm(F.gelu(x @ v), (128,))
    return F.silu(h @ w).softmax(-1).sum()


@pytest.mark.parametrize("share", [1.0, 0.5, 0.0])
def test_as_the_profiler_counts(share):
    """Forward and backward of a small network, to the byte."""
    args = [torch.rand(64, 64, requires_grad=True),
            torch.rand(64, 128, requires_grad=True),
            torch.rand(128, 256, requires_grad=True)]
    made = lowered(mlp, *args, activation_memory_budget=share)
    forward = made.programs["forward"].run
    outputs = forward([each.detach() for each in args])
    assert allocated(lambda: forward([e.detach() for e in args])) == max(
        live_bytes(made.schedules["forward"]))
    saved = [(args if each.place == "input" else outputs)[each.index]
             .detach().clone() for each in made.pair.saved]
    backward = made.programs["backward"].run
    tangent = torch.ones(())

    assert allocated(lambda: backward([
        *(each.clone() if s.place == "output" else each
          for each, s in zip(saved, made.pair.saved)), tangent.clone()])
        ) == max(live_bytes(
        made.schedules["backward"], made.pair.donated))
