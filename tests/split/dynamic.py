"""One recording with symbolic sizes, judged by eager at many sizes.

Every size and stride of an argument but 0 and 1 is a symbol, and an input
of the graph in front of the tensors, as the front end does it.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import fx
from torch._dynamo.source import LocalSource
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import (DimDynamic, ShapeEnv,
                                                   StatelessSymbolicContext)

from minicompile import split
from minicompile.split.prices import min_cut
from tests.split.judge import boxed, copied, fresh, graph_of, same


@dataclass(frozen=True)
class Dynamic:
    """The graph of a function, and what its inputs are."""

    env: ShapeEnv
    graph: fx.GraphModule
    fakes: list  # of the arguments: fake tensors, SymInts, others
    places: dict  # symbol -> (position, "size" | "stride" | "", dim)

    @property
    def inputs(self) -> list:
        """What the graph is recorded with: the symbols, then the rest."""
        return [*(find(self.fakes, *at) for at in self.places.values()),
                *self.fakes]

    def given(self, args: list) -> list:
        """What the graph is called with for these arguments."""
        return [*(find(args, *at) for at in self.places.values()), *args]

    def holds(self, args: list) -> bool:
        """Whether the guards found so far hold for these arguments."""
        pairs = [(fake, arg) for fake, arg in zip(self.fakes, args)
                 if isinstance(fake, (FakeTensor, torch.SymInt))]
        return self.env.evaluate_guards_for_args(*zip(*pairs),
                                                 ignore_static=False)


def find(args, position: int, kind: str, dim: int):
    """A size, a stride, or the argument itself."""
    arg = args[position]
    return getattr(arg, kind)(dim) if kind else arg


def dynamic(fn, args, duck: bool = False) -> Dynamic:
    """The graph of `fn`, its arguments symbolic; `duck`: equal sizes are
    one symbol."""
    env = ShapeEnv(duck_shape=duck)
    mode = FakeTensorMode(shape_env=env)
    kind = DimDynamic.DUCK if duck else DimDynamic.DYNAMIC
    fakes, places = [], {}
    for position, arg in enumerate(args):
        source = LocalSource(f"x{position}")
        if type(arg) is int:
            fake = env.create_symintnode(env.create_symbol(
                arg, source, DimDynamic.DYNAMIC), hint=arg, source=source)
            places.setdefault(str(fake), (position, "", 0))
        elif isinstance(arg, torch.Tensor):
            fake = mode.from_tensor(
                arg, source=source, symbolic_context=(
                    StatelessSymbolicContext([kind] * arg.dim())))
            for of in ("size", "stride"):
                for dim, size in enumerate(getattr(fake, of)()):
                    if is_symbol(size):
                        places.setdefault(str(size), (position, of, dim))
        fakes.append(fake if isinstance(arg, (int, torch.Tensor)) else arg)
    graph = with_symbols(graph_of(fn, args), len(places))
    return Dynamic(env, graph, fakes, places)


def is_symbol(size) -> bool:
    """Whether a size is a symbol of its own."""
    return isinstance(size, torch.SymInt) and size.node.expr.is_Symbol


def with_symbols(graph: fx.GraphModule, count: int) -> fx.GraphModule:
    """The graph with so many more inputs in front."""
    first = next(iter(graph.graph.nodes))
    with graph.graph.inserting_before(first):
        for k in range(count):
            graph.graph.placeholder(f"s{k}")
    graph.recompile()
    return graph


def compiled(fn, args, saved=None, duck=False):
    """(run of arguments, joint, pair, Dynamic), one recording."""
    args, _ = fresh(args, all(a.is_leaf for a in args
                              if isinstance(a, torch.Tensor)))
    known = dynamic(fn, args, duck)
    joint = split.record(known.graph, known.inputs)
    saved = min_cut.cut(joint).saved if saved is None else saved(joint)
    pair = split.partition(joint, saved)
    halves = {name: boxed(half) for name, half in pair.halves().items()}
    run = split.make_runtime(joint, pair, **halves)
    return (lambda *given: run(known.given(list(given)))), joint, pair, known


def assert_same(fn, *calls, saved=None, leaves=True, duck=False) -> tuple:
    """One recording, made with the first call's arguments, serves all.

    Returns the joint graph, and how many calls its guards allowed.
    """
    first = fresh(calls[0], leaves)[0]
    run, joint, pair, known = compiled(fn, first, saved, duck)
    allowed = [args for args in calls
               if known.holds([copied(arg) for arg in args])]
    for args in allowed:
        same(run, fn, args, leaves, text=f"{joint}\n\n{pair}")
    return joint, len(allowed)

