"""Graphs with symbolic sizes: traced at one size, judged at others."""

import random

import torch
from torch.func import functionalize
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten

from minicompile.core.graph import placeholders, value
from minicompile.split.recorder import DECOMPOSITIONS
from tests.fusion import programs
from tests.fusion.graphs import steps
from tests.judge import judged, near


def symbolic(function, *args):
    """The functional ATen graph of a function, for all sizes, which are
    its first inputs."""
    module = make_fx(functionalize(function), tracing_mode="symbolic",
                     decomposition_table=DECOMPOSITIONS)(*args)
    env, tensors = shaped(module)
    first = placeholders(module.graph)[0]
    for symbol, size in env.bind_symbols(tensors, args).items():
        with module.graph.inserting_before(first):
            node = module.graph.placeholder(str(symbol))
        node.meta["val"] = env.create_symintnode(symbol, hint=size)
    return module


def shaped(graph):
    """The ShapeEnv of a graph, and the fake tensors that it is given."""
    given = [value(node) for node in placeholders(graph.graph)]
    tensors = [v for v in given if isinstance(v, torch.Tensor)]
    return tensors[0].fake_mode.shape_env, tensors


def admits(graph, args):
    """Whether the guards that tracing and fusion left hold."""
    env, tensors = shaped(graph)
    return env.evaluate_guards_for_args(tensors, args, ignore_static=False)


def sized(graph, args):
    """What a graph is given in a call with these tensors."""
    env, tensors = shaped(graph)
    found = env.bind_symbols(tensors, args)
    return [*(found[value(node).node._expr] for node in placeholders(
        graph.graph) if isinstance(value(node), torch.SymInt)), *args]


def assert_same_at(graph, run, function, args):
    """`run` gives what the function gives, unless a guard fails; whether
    it has run."""
    if not admits(graph, args):
        return False
    found = run(sized(graph, args))
    expected = results(function, args)
    judged(near, found, expected, results, function, args)
    for a, b in zip(found, expected, strict=True):
        if isinstance(b, torch.Tensor):
            assert steps(a) in (steps(b), steps(b.contiguous()))
    return True


def results(function, args) -> list:
    """All that a function returns."""
    return tree_flatten(function(*args))[0]


class Program(programs.Program):
    """A random program whose inputs have sizes made of n, m and k."""

    def inputs(self, n=5, m=7, k=3, dtype=torch.float64):
        torch.manual_seed(self.seed)
        shapes = random.Random(self.seed).sample(
            [(n, m), (m, n), (k, n, m), (n,), (m,), (1, m), (n, 1),
             (n * m,), (k, 8), (4, m)], 4)
        return [torch.randn(shape, dtype=dtype) for shape in shapes]


def reshape(choose, pool):
    a = choose.choice(pool)
    if not a.dim():
        return a.reshape(1, 1)
    axis = choose.randrange(a.dim())
    return choose.choice([
        lambda: a.flatten(), lambda: a.flatten(axis),
        lambda: a.reshape(a.shape[axis], -1), lambda: a[1:] * 2
        if a.shape[0] > 1 else a, lambda: a.reshape(-1, a.shape[0])])()


def scaled(choose, pool):
    a = choose.choice(pool)
    if not a.dim():
        return a + 1
    size = a.shape[choose.randrange(a.dim())]
    return choose.choice([
        lambda: a * size, lambda: a + size ** -0.5, lambda: a / size,
        lambda: a * torch.arange(a.shape[-1], dtype=a.dtype),
        lambda: torch.full_like(a, 2.0) - a,
        lambda: a + torch.arange(a.shape[-1]),
        lambda: torch.nn.functional.pad(a, (0, size)),
        lambda: torch.nn.functional.pad(a, (0, -size % 8)),
        # Always of one element; only a guard knows.
        lambda: a + torch.arange((size % 3 + 8) // (size % 6 + 5))])()


Program.moves = [move for move in programs.Program.moves
                 if move is not programs.reshape]
Program.moves += [reshape, reshape, scaled, scaled]
