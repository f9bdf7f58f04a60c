"""Rules: additions to elements that numbers name, several to one element.

A loop stores to each place once, and may run in any order. Here a place
is a number that the kernel computes, and two elements may name the same
one. So memory itself adds, one number after the other: a load, an addition
and a store that no other thread comes between. PyTorch's kernel does so
too, and its sums have no fixed order either: where a program asks for one,
that runs, as it does on a CPU. This kernel also computes the numbers that
it adds, so the messages of a graph's edges are never written. Inductor's is
the store mode `atomic_add` in torch/_inductor/lowering.py.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ...core.errors import where_of
from ...core.loops import Loop, flatten, picked
from ..group import counted
from ..lowerings import (RULES, LoweringContext, Value, axes, loaded,
                         points)
from .indexing import named, with_axis

#: The numbers to which the memory of a device adds.
ADDED = {"cuda": (torch.float32,)}


def scatter_add(context: LoweringContext, a: Value, axis: int,
                places: Value, source: Value) -> Value | None:
    """`a` with elements of `source` added where `places` says, along one
    dimension."""
    node, lowering, device = context.node, context.lowering, a.device.type
    if not places.shape or context.dtype not in ADDED.get(device, ()) or (
            torch.are_deterministic_algorithms_enabled()):
        return None
    variables = axes(places.shape)
    point, axis = points(variables), axis % len(places.shape)
    at = with_axis(point, axis, named(
        context, places, a.shape[axis], point))
    if not any(map(picked, at)):
        return None  # the places are a loop's own
    lowering.fill(node, a, context.shape, suffix="before")
    before = lowering.steps[-1].buffer
    buffer = replace(before, name=lowering.fresh(node), into=before.name)
    lowering.steps.append(counted(Loop(
        buffer, flatten(at, before.stride), variables, source.at(point),
        where=where_of(node), origin=lowering.origin(node))))
    return loaded(buffer)


RULES["scatter_add"] = scatter_add
