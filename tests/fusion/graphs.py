"""ATen graphs for the tests, and what it means for a schedule to be right."""

import operator

import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._pytree import tree_map_only

from minicompile import split
from minicompile.budget.memory import bound
from minicompile.split.prices import min_cut
from minicompile.core.semantics.evaluate import evaluate_schedule
from minicompile.core.graph import results, value
from minicompile.core.loops import Kernel
from minicompile.core.schedule import Extern, View
from minicompile.fusion import fuse
from tests.judge import judged, near


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
    return recorded(function, args).graph


def recorded(function, args):
    """What chapter 3 records of a function with one result."""
    graph = fx.Graph()
    inputs = tuple(graph.placeholder(f"x{k}") for k in range(len(args)))
    graph.output((graph.call_function(function, inputs),))
    return split.record(fx.GraphModule({}, graph), args)


def halves(function, *args):
    """The forward and the backward graph of a function of tensors."""
    whole = recorded(function, args)
    saved = bound.choose(whole, 1.0, cut=min_cut.cut)
    return split.partition(whole, saved).halves()


def assert_right(graph, args, schedule=None, exactly=False):
    """The schedule means what the graph means; returns the schedule.

    Values and dtypes are those of the graph run by PyTorch, bit for bit
    if `exactly`; strides are those of its fake values; no result lies
    in the memory of an input.
    """
    schedule = schedule or fuse(graph)
    assert_sound(schedule)
    expected = graph(*(a.clone() for a in args))
    found = evaluate_schedule(schedule, list(args))
    judged(near, found, expected, graph, *args)
    memory = {a.untyped_storage().data_ptr() for a in args}
    for a, b, node in zip(found, expected, results(graph.graph),
                          strict=True):
        if not isinstance(b, torch.Tensor):
            assert a == b
            continue
        if exactly:
            torch.testing.assert_close(a, b, rtol=0, atol=0)
        assert steps(a) == steps(value(node))
        assert (node.op == "placeholder" or not a.numel()
                or a.untyped_storage().data_ptr() not in memory)
    return schedule


def steps(tensor):
    """The strides that matter: those of sizes above 1."""
    return [step for size, step in zip(tensor.shape, tensor.stride())
            if size > 1 and tensor.numel()]


def assert_sound(schedule):
    """Everything is read after it is made and before it is freed."""
    there = {b.name for b in schedule.inputs if b} | set(schedule.constants)
    for step, freed in zip(schedule.steps, schedule.last_use, strict=True):
        assert set(reads(step)) <= there
        made = made_by(step)
        assert not there & set(made)
        there |= set(made)
        assert set(freed) <= there
        there -= set(freed)
    views = [view for view in schedule.outputs if isinstance(view, View)]
    assert {view.buffer for view in views} <= there
    left = there - set(schedule.constants) - {view.buffer for view in views}
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


def as_cuda(graph):
    """The same graph, its fake values and its operators on a GPU."""
    mode = FakeTensorMode()

    def moved(tensor):
        with mode:
            return torch.empty_strided(
                tensor.shape, tensor.stride(), dtype=tensor.dtype,
                device="cuda")
    for node in graph.graph.nodes:
        node.meta["val"] = tree_map_only(
            torch.Tensor, moved, node.meta.get("val"))
        node.kwargs = tree_map_only(
            torch.device, lambda _: torch.device("cuda"), node.kwargs)
    graph.recompile()
    return graph


def fake_inputs(*shapes, dtype=torch.float32, grad=False):
    """Fake tensors: shapes without memory, for graphs of any size."""
    with FakeTensorMode():
        return [torch.empty(shape, dtype=dtype, requires_grad=grad)
                for shape in shapes]
