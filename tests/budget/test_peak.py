"""The simulated memory of a program, by hand and beside the profiler."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch.nn import functional as F

import minicompile
from minicompile import split
from minicompile.split.prices import min_cut
from minicompile.budget.memory.bound import (Plans, bound_peak, live_bytes,
                                             peak, read)
from minicompile.core.errors import OptionError
from minicompile.core.options import Options
from minicompile.dispatch.policy.plans import fused_halves
from tests.same import assert_same
from tests.split.judge import graph_of


def lowered(function, *args, **options):
    run = minicompile.compile(function, options=options)
    run(*args)
    [entry] = run.cache.entries
    return entry.lowered


def test_by_hand():
    """x @ w, then (x @ w) @ w: the first product dies with the second,
    which the cosine is stored over."""
    x, w = torch.rand(8, 8), torch.rand(8, 8)
    made = lowered(lambda x, w: ((x @ w) @ w).cos(), x, w)
    assert live_bytes(made.schedules["forward"]) == [256, 512, 256]


def test_an_input_that_is_donated_counts_until_its_last_use():
    def function(x, w):
        return ((x @ w).sin() @ w).cos().sum()

    args = [torch.rand(8, 8, requires_grad=True) for _ in range(2)]
    made = lowered(function, *args)
    schedule = made.schedules["backward"]
    with_them, without = map(live_bytes, (
        schedule, replace(schedule, donated=frozenset())))
    assert with_them[0] > without[0]
    assert with_them[-1] <= with_them[0] + 2 * 256
    assert peak(made.schedules) == max(
        *live_bytes(made.schedules["forward"]), *with_them)


def test_what_is_stored_in_an_input_takes_no_memory():
    made = lowered(lambda x: x.add_(1), torch.rand(100))
    assert live_bytes(made.schedules["forward"]) == [0]


def allocated(run) -> int:
    """The most bytes that the allocator had given away during a call."""
    from chapters.measure.peak import allocated as most_alive

    def step():
        assert run()
    return most_alive(step)


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
    values = [*args, *outputs]
    saved = [values[k].detach().clone() for k in made.pair.saved.values()]
    backward = made.programs["backward"].run
    tangent = torch.ones(())

    assert allocated(lambda: backward([
        *(each.clone() if name in made.pair.donated else each
          for each, name in zip(saved, made.pair.saved)), tangent.clone()])
        ) == max(live_bytes(made.schedules["backward"]))


def test_a_saved_value_with_the_name_of_a_function_is_donated_too():
    """A buffer is never called `log`: its node is."""
    def function(x, w):
        return ((x @ w).log() @ w).log().sum()

    made = lowered(function, *[torch.rand(8, 8, requires_grad=True)
                               for _ in range(2)])
    schedule = made.schedules["backward"]
    assert len(schedule.donated) == len(made.pair.donated)
    assert not made.pair.donated <= schedule.donated


def tower(x, *weights):
    for w in weights:
        x = F.gelu(F.layer_norm(x @ w, (64,)))
    return x.sum()


TOWER = [torch.rand(512, 64, requires_grad=True),
         *[torch.rand(64, 64, requires_grad=True) for _ in range(4)]]


def plans():
    """The plans of the tower that are simulated, and its joint graph."""
    joint = split.record(graph_of(tower, TOWER), TOWER)
    return joint, Plans(min_cut.cut(joint), partial(fused_halves, joint))


def test_no_plan_of_the_front_is_beaten():
    _, found = plans()
    best = found.front()
    assert len(best) > 2 and best[0].seconds == next(iter(found)).seconds
    scores = [(found.peak(plan), plan.seconds) for plan in found]
    for plan in best:
        peak, seconds = found.peak(plan), plan.seconds
        assert not any(
            one <= peak and two <= seconds and (one, two) != (peak, seconds)
            for one, two in scores)


def test_a_lower_bound_is_kept_and_never_faster():
    joint, found = plans()
    by_names = {plan.saved: plan for plan in found}
    least = min(map(found.peak, by_names.values()))
    first = next(iter(by_names.values()))
    chosen = [by_names[bound_peak(
        joint, bound, cut=min_cut.cut, fused=partial(fused_halves, joint))]
        for bound in range(found.peak(first), least - 1, -20_000)]
    assert chosen[0] is first
    for before, after in zip(chosen, chosen[1:]):
        assert found.peak(after) <= found.peak(before)
        assert after.seconds >= before.seconds
    with pytest.raises(OptionError, match="cannot be met") as refused:
        bound_peak(joint, least - 1, cut=min_cut.cut,
                          fused=partial(fused_halves, joint))
    named = Options(memory=re.search(r"[\d.]+MiB", str(refused.value))[0])
    assert least <= read(named.memory) < least * 1.01


@pytest.mark.parametrize("bound", ["min", 0.9, "2.5MiB", "1 GB"])
def test_a_bounded_step_is_eagers(bound):
    assert_same(tower, *TOWER, options={"memory": bound})


@pytest.mark.parametrize("bound", ["min", "1GB"])
def test_a_whole_step_stays_within_the_bound(bound):
    """The profiler counts some scalars that no graph holds as well."""
    made = lowered(tower, *TOWER, memory=bound)
    run = minicompile.compile(tower, options={"memory": bound})
    run(*TOWER).backward()
    for given in TOWER:
        given.grad = None
    found = allocated(lambda: run(*TOWER).backward() or True)
    simulated = peak(made.schedules)
    assert simulated <= found <= simulated + 4096


@pytest.mark.parametrize("bound", [
    "12 gib", "12", "GiB", "-1GiB", "1e3B", 0, -0.5, 1.5, 2,
    float("nan"), True, [1], "max", ""])
def test_what_is_no_bound_is_refused_at_once(bound):
    with pytest.raises(OptionError, match="a size such as"):
        minicompile.compile(tower, options={"memory": bound})


def test_one_bound_at_a_time():
    with pytest.raises(OptionError, match="not both"):
        minicompile.compile(tower, options={
            "memory": "min", "activation_memory_budget": 0.5})


@pytest.mark.parametrize("text, size", [
    ("10B", 10), ("1.5KB", 1500), ("2KiB", 2048), ("1 MiB", 2 ** 20),
    ("3GB", 3 * 10 ** 9), ("0.5TiB", 2 ** 39)])
def test_units(text, size):
    assert read(text) == size


def test_the_lowest_peak_draws_nothing_again():
    def function(x, w):
        return F.dropout(F.relu(x @ w), 0.5) @ w.T

    run = minicompile.compile(function, options={
        "memory": "min", "fallback_random": True})
    run(torch.ones(4, 4, requires_grad=True), torch.ones(4, 4)).sum(
        ).backward()
    assert not run.stats().fallbacks


def test_a_graph_without_a_backward_is_held_to_the_bound_too():
    def function(x):
        return (x @ x).sin() @ x

    x = torch.rand(64, 64)
    assert_same(function, x, options={"memory": "1MiB"})
    with pytest.raises(OptionError, match="the least"):
        minicompile.compile(function, options={"memory": "20KiB"})(x)
