"""Domains that fit each other, and loops that are nested at the end."""

import pytest
import torch

from minicompile.core.semantics.evaluate import evaluate_loop
from minicompile.core.index import Variable, index
from minicompile.core.loops import Buffer, Kernel
from minicompile.fusion.group import (Body, IterationDomain, loop_of,
                                      unite)
from minicompile.fusion.lowerings import loaded
from minicompile.fusion.passes.loop_nests import nested, growth_of
from minicompile.fusion.passes.memory import touched


def sizes(*numbers):
    return tuple(map(index, numbers))


@pytest.mark.parametrize("a, b, expected", [
    ((64, 1), (4, 16), (4, 16)), ((4, 1), (4, 16), (4, 16)),
    ((9, 1), (1, 9), (1, 9)), ((1, 1), (1, 9), (1, 9)),
    ((1, 1), (1, 1), (1, 1)), ((5, 1), (5, 1), (5, 1)),
    ((16, 4), (4, 16), None), ((4, 1), (8, 4), None),
    ((4, 1), (8, 1), None), ((1, 1), (3, 1), None)])
def test_unite(a, b, expected):
    a, b, expected = (each and IterationDomain(*sizes(*each))
                      for each in (a, b, expected))
    assert unite(a, b) == unite(b, a) == expected


def buffer(name, shape, stride):
    return Buffer(name, sizes(*shape), sizes(*stride), torch.float32,
                  torch.device("cpu"))


def kernel_of(*loops, domain=None):
    domain = domain or IterationDomain.of(loops[0])
    bodies = [Body(IterationDomain.of(loop), (loop,)) for loop in loops]
    return nested(Kernel("kernel", domain.variables[:1],
                         domain.variables[1:] * (domain.row != 1), tuple(
        loop for body in bodies for loop in body.over(domain).loops)))


@pytest.mark.parametrize("shape, source, target, ranges", [
    ((4, 6), (6, 1), (6, 1), [24]), ((4, 6), (6, 1), (1, 4), [6, 4]),
    ((4, 6), (0, 1), (6, 1), [4, 6]), ((4, 6), (1, 4), (1, 4), [24]),
    ((2, 3, 4), (12, 4, 1), (12, 4, 1), [24]),
    ((2, 3, 4), (12, 0, 1), (12, 4, 1), [2, 3, 4]),
    ((2, 3, 4), (24, 8, 2), (12, 4, 1), [24]),
    ((2, 3, 4), (40, 4, 1), (12, 4, 1), [2, 12]),
    ((1, 5, 1), (5, 1, 1), (5, 1, 1), [5]), ((), (), (), [])])
def test_a_kernel_has_as_many_loops_as_its_indices_need(
        shape, source, target, ranges):
    x = torch.randn(100)
    kernel = kernel_of(loop_of(buffer("y", shape, target),
                               loaded(buffer("x", shape, source))))
    assert [int(v.size) for v in kernel.ranges] == ranges
    storage = {"x": x, "y": torch.zeros(100)}
    evaluate_loop(*kernel.loops, storage)
    expected = x.as_strided(shape, source)
    assert torch.equal(storage["y"].as_strided(shape, target), expected)


def test_a_step_that_does_not_divide_the_next_stays_a_division():
    flat = Variable("i0", index(24))
    i = index(flat)
    for where, steps in ((i // 6 + i % 8 * 3, {1, 6, 8}),
                         (i // 4 % 3, {1, 4, 12}), ((i + 5) // 4, {1})):
        assert {*map(int, growth_of(where, flat))} == steps
    loops = [loop_of(buffer(f"y{a}", (a, b), (b, 1)),
                     loaded(buffer("x", (a, b), (0, 1))))
             for a, b in ((3, 8), (4, 6))]
    kernel = kernel_of(*loops)
    assert [int(v.size) for v in kernel.ranges] == [3, 8]
    assert "//" not in str(kernel) and "%" in str(kernel)
    for made, loop in zip(kernel.loops, loops):
        found = []
        for each in (made, loop):
            storage = {"x": torch.randn(8, generator=torch.manual_seed(0)),
                       loop.buffer.name: torch.zeros(24)}
            evaluate_loop(each, storage)
            found.append(storage[loop.buffer.name])
        assert torch.equal(*found)


def test_a_loop_over_all_points_runs_over_rows_and_elements():
    x = torch.randn(24)
    flat = loop_of(buffer("y", (24,), (1,)),
                   loaded(buffer("x", (24,), (1,))))
    kernel = kernel_of(flat, domain=IterationDomain(*sizes(2, 12)))
    assert [str(v) for v in kernel.loops[0].ranges] == ["i0", "r0"]
    storage = {"x": x, "y": torch.zeros(24)}
    evaluate_loop(*kernel.loops, storage)
    assert torch.equal(storage["y"], x)


def test_an_index_reaches_so_many_elements():
    flat = index(Variable("i0", index(24)))
    assert touched(flat) == 24 and touched(flat // 6 % 2) == 2
    assert touched(flat // 6) == 4 and touched(flat % 8) == 8
    assert touched(flat // 12 * 12 + flat % 4) == 8
