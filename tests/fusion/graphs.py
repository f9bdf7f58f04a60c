"""ATen graphs for the tests, and what it means for a schedule to be right."""

import operator

import torch
from torch import fx

from minicompile import split
from minicompile.core.evaluate import evaluate_schedule
from minicompile.core.loops import Extern, Kernel, View
from minicompile.fusion import fuse


def aten(function, *args):
    """The functional ATen graph of a function, as chapter 3 records it."""
    results = function(*(a.clone() for a in args))
    many = isinstance(results, (tuple, list))
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(f"x{k}") for k in range(len(args)))
    called = graph.call_function(function, inputs)
    graph.output(tuple(graph.call_function(operator.getitem, (called, k))
                       for k in range(len(results))) if many else (called,))
    with torch.no_grad():
        return split.record(fx.GraphModule({}, graph), args).graph


def joint(function, *args):
    """The joint graph of a function of tensors, forward and backward."""
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(f"x{k}") for k in range(len(args)))
    graph.output((graph.call_function(function, inputs),))
    return split.record(fx.GraphModule({}, graph), args).graph


def assert_right(graph, args, schedule=None, **tolerance):
    """The schedule means what the graph means; returns the schedule.

    Values, dtypes, strides; and no result in the memory of an input or
    of another result, unless the graph says so.
    """
    schedule = schedule or fuse(graph)
    assert_sound(schedule)
    expected = graph(*(a.clone() for a in args))
    found = evaluate_schedule(schedule, list(args))
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, torch.Tensor):
            torch.testing.assert_close(a, b, equal_nan=True, **tolerance)
            assert steps(a) == steps(b)
        else:
            assert a == b
    return schedule


def steps(tensor):
    """The strides that matter: those of sizes above 1."""
    return [step for size, step in zip(tensor.shape, tensor.stride())
            if size > 1 and tensor.numel()]


def assert_sound(schedule):
    """Everything is read after it is made and before it is freed."""
    there = {b.name for b in schedule.inputs if b} | set(schedule.constants)
    inputs = set(there)
    for step, freed in zip(schedule.steps, schedule.last_use, strict=True):
        assert set(reads(step)) <= there
        made = made_by(step)
        assert not there & set(made)
        there |= set(made)
        assert set(freed) <= there - inputs
        there -= set(freed)
    views = [view for view in schedule.outputs if isinstance(view, View)]
    assert {view.buffer for view in views} <= there
    left = there - inputs - {view.buffer for view in views}
    assert not left, f"never freed: {left}"


def reads(step):
    """The buffers a step reads."""
    if isinstance(step, Kernel):
        return list(step.read)
    found = []
    fx.node.map_aggregate((step.args, step.kwargs), lambda leaf: (
        found.append(leaf.buffer) if isinstance(leaf, View) else None))
    return found


def made_by(step):
    """The buffers a step makes."""
    if isinstance(step, Extern):
        return [buffer.name for buffer in step.outputs if buffer]
    return list(step.written)
