"""Domains that fit each other, and loops that become fewer."""

import pytest
import torch

from minicompile.core.semantics.evaluate import evaluate_loop
from minicompile.core.index import index
from minicompile.core.loops import Buffer
from minicompile.fusion.group import (IterationDomain, coalesced, joins,
                                        loop_of, over, refine, unite)
from minicompile.fusion.values import axes, loaded


def sizes(*numbers):
    return tuple(map(index, numbers))


@pytest.mark.parametrize("a, b, expected", [
    ((64,), (4, 16), (4, 16)), ((4, 6), (8, 3), (4, 2, 3)),
    ((2, 3, 4), (6, 4), (2, 3, 4)), ((5,), (5,), (5,)), ((), (), ()),
    ((4, 6), (6, 4), None), ((4,), (8,), None), ((), (3,), None)])
def test_refine(a, b, expected):
    assert refine(sizes(*a), sizes(*b)) == (
        expected if expected is None else sizes(*expected))


@pytest.mark.parametrize("a, b, expected", [
    (((64,),), ((4,), (16,)), ((4,), (16,))),
    (((4,),), ((2, 2), (16,)), ((2, 2), (16,))),
    (((4, 2, 8),), ((4,), (16,)), ((4,), (2, 8))),
    (((),), ((), (9,)), ((), (9,))), (((),), ((),), ((),)),
    (((16,), (4,)), ((4,), (16,)), None), (((4,),), ((8,), (4,)), None)])
def test_unite(a, b, expected):
    a, b, expected = (each and IterationDomain(*(sizes(*s) for s in each))
                      for each in (a, b, expected))
    assert unite(a, b) == unite(b, a) == expected


def buffer(name, shape, stride):
    return Buffer(name, sizes(*shape), sizes(*stride), torch.float32,
                  torch.device("cpu"))


@pytest.mark.parametrize("shape, source, target, ranges", [
    ((4, 6), (6, 1), (6, 1), [24]), ((4, 6), (6, 1), (1, 4), [6, 4]),
    ((4, 6), (0, 1), (6, 1), [4, 6]), ((4, 6), (1, 4), (1, 4), [24]),
    ((2, 3, 4), (12, 4, 1), (12, 4, 1), [24]),
    ((2, 3, 4), (12, 0, 1), (12, 4, 1), [2, 3, 4]),
    ((2, 3, 4), (24, 8, 2), (12, 4, 1), [24]),
    ((1, 5, 1), (5, 1, 1), (5, 1, 1), [5]), ((), (), (), [])])
def test_neighbouring_loops_merge(shape, source, target, ranges):
    x = torch.randn(100)
    loop = loop_of(buffer("y", shape, target),
                          loaded(buffer("x", shape, source)))
    assert [int(v.size) for v in loop.ranges] == ranges
    storage = {"x": x, "y": torch.zeros(100)}
    evaluate_loop(loop, storage)
    expected = x.as_strided(shape, source)
    assert torch.equal(storage["y"].as_strided(shape, target), expected)


def test_a_bent_index_keeps_its_loops_apart():
    a, b = axes(sizes(6, 4))
    flat = index(a) * 4 + b
    assert joins(flat, a, b) and joins(flat // 3, a, b)
    assert not joins(flat % 8 + index(a), a, b)
    assert not joins(index(b), a, b)
    rows, change = coalesced((a, b), [flat // 3, flat % 7], "i")
    assert [str(v.size) for v in rows] == ["24"]
    assert str(change[b]) == "i0" and change[a] == 0


def test_a_loop_over_a_refined_domain_does_the_same():
    x = torch.randn(24)
    loop = loop_of(buffer("y", (24,), (1,)),
                          loaded(buffer("x", (24,), (1,))))
    spread = over(loop, IterationDomain(sizes(2), sizes(3, 4)))
    assert [str(v) for v in spread.ranges] == ["i0", "r0", "r1"]
    storage = {"x": x, "y": torch.zeros(24)}
    evaluate_loop(spread, storage)
    assert torch.equal(storage["y"], x)
