"""Eager and the split, side by side, on any Python function of tensors.

The function is one node of a torch-level graph, so no tracer takes part:
what is judged is recording, cutting and running.
"""

from __future__ import annotations

import operator

import torch
from torch import fx
from torch.utils._pytree import tree_flatten

from minicompile import split
from minicompile.split.prices import min_cut
from tests.judge import judged, near


def fresh(args, leaves: bool = True) -> tuple[list, list]:
    """Copies of the arguments with their strides, and the leaf of each.

    Unless `leaves`, what requires grad is computed from its leaf, so that
    it may be written to.
    """
    made = [copied(arg) for arg in args]
    if leaves:
        return made, made
    return [each * 1 if isinstance(each, torch.Tensor)
            and each.requires_grad else each for each in made], made


def copied(value):
    """A copy with the same strides, and its own memory."""
    if not isinstance(value, torch.Tensor):
        return value
    if value.layout != torch.strided or value.is_conj() or value.is_neg():
        return value.detach().clone().requires_grad_(value.requires_grad)
    if not value.numel():
        return torch.empty_strided(
            value.size(), value.stride(), dtype=value.dtype,
            device=value.device, requires_grad=value.requires_grad)
    span = 1 + sum((size - 1) * step for size, step
                   in zip(value.size(), value.stride()))
    memory = value.detach().as_strided((span,), (1,)).clone()
    made = torch.empty(0, dtype=value.dtype, device=value.device).set_(
        memory.untyped_storage(), 0, value.size(), value.stride())
    return made.requires_grad_(value.requires_grad)


def flat(fn):
    """`fn` with its results as one flat tuple."""
    return lambda *args: tuple(tree_flatten(fn(*args))[0])


def graph_of(fn, args) -> fx.GraphModule:
    """A torch-level graph whose one node calls `fn`."""
    leaves = all(each.is_leaf for each in args
                 if isinstance(each, torch.Tensor))
    count = len(flat(fn)(*fresh(args, leaves)[0]))
    graph = fx.Graph()
    inputs = [graph.placeholder(f"x{k}") for k in range(len(args))]
    called = graph.call_function(flat(fn), tuple(inputs))
    graph.output(tuple(graph.call_function(operator.getitem, (called, k))
                       for k in range(count)))
    return fx.GraphModule({}, graph)


def boxed(graph: fx.GraphModule):
    """A graph as a boxed call."""
    return lambda inputs: graph(*inputs)


def compiled(fn, args, saved=None):
    """(run, joint, pair): `fn` through the split, halves run by FX."""
    joint = split.record(graph_of(fn, args), args)
    saved = min_cut.cut(joint).saved if saved is None else saved(joint)
    pair = split.partition(joint, saved)
    halves = {name: boxed(half) for name, half in pair.halves().items()}
    return split.make_runtime(joint, pair, **halves), joint, pair


def assert_same(fn, *args, calls=2, saved=None, leaves=True):
    """Values, gradients, writes, aliasing and flags are eager's.

    Returns the joint graph and its halves, for more to be asked.
    """
    run, joint, pair = compiled(fn, fresh(args, leaves)[0], saved)
    for call in range(calls):
        same(lambda *given: run(list(given)), fn, args, leaves, call,
             f"{joint}\n\n{pair}")
    return joint, pair


def same(run, fn, args, leaves=True, seed=0, text=""):
    """`run(*args)` does what `fn(*args)` does, to all that can be seen."""
    torch.manual_seed(seed)
    want = observe(flat(fn), args, leaves)
    torch.manual_seed(seed)
    got = observe(run, args, leaves)
    for name in want:
        try:
            judged(close, got[name], want[name], lambda *args, name=name:
                   observe(flat(fn), args, leaves)[name], *args)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}\n\n{text}") from error


def observe(fn, args, leaves=True, held=()) -> dict:
    """All that eager lets one see of a call of `fn` on copies of `args`.

    `held` are tensors that `fn` has by itself, such as parameters.
    """
    args, sources = fresh(args, leaves)
    sources = [each for each in [*sources, *held]
               if isinstance(each, torch.Tensor) and each.requires_grad]
    results = list(fn(*args))
    args = [*args, *held]
    tensors = [each for each in [*args, *results]
               if isinstance(each, torch.Tensor)]
    seen = {
        "results": [snapshot(each) for each in results],
        "inputs": [snapshot(each) for each in args],
        "flags": [(each.requires_grad, each.is_leaf) for each in tensors],
        "identity": pattern(map(id, tensors)),
        "sharing": pattern(map(memory, tensors)),
    }
    seen["gradients"] = gradients(results, args, sources)
    seen["written"] = written(results, tensors)
    return seen


def close(got, want, exact=None) -> None:
    """Equal structure, dtypes, layouts and flags; near values."""
    if isinstance(want, torch.Tensor):
        near(got, want, exact)
        assert got.requires_grad == want.requires_grad, "requires_grad"
        assert layout(got) == layout(want), (layout(got), layout(want))
    elif isinstance(want, list):
        assert len(got) == len(want)
        for each in zip(got, want, exact or [None] * len(want)):
            close(*each)
    else:
        assert type(got) is type(want), (got, want)
        assert got == want or got != got and want != want, (got, want)


def layout(tensor: torch.Tensor) -> tuple:
    """The strides that matter: of more than one element."""
    if tensor.numel() < 2 or tensor.layout != torch.strided:
        return ()
    return tuple(step for size, step in
                 zip(tensor.shape, tensor.stride()) if size > 1)


def snapshot(value):
    """A copy that later writes do not reach, strides kept."""
    if not isinstance(value, torch.Tensor):
        return value
    return copied(value.detach()).requires_grad_(value.requires_grad)


def memory(tensor) -> int:
    """What two tensors have in common if they share their elements."""
    strided = tensor.layout == torch.strided
    return torch._C._storage_id(tensor) if strided else id(tensor)


def pattern(keys) -> list[int]:
    """Which of the keys are equal: the first place of each."""
    keys = list(keys)
    return [keys.index(key) for key in keys]


def gradients(results, args, sources) -> list:
    """Gradients of results and written inputs, by the leaves: of the first
    alone, of the others, and of all."""
    outputs = [each for each in [*results, *args]
               if isinstance(each, torch.Tensor)
               and each.grad_fn is not None]
    if not outputs or not sources:
        return []
    found = []
    for chosen in outputs[:1], outputs[1:], outputs:
        weights = [torch.linspace(0.5, 1.5, each.numel()).to(each)
                   .view(each.shape) for each in chosen]
        found += torch.autograd.grad(
            chosen, sources, weights, retain_graph=True,
            allow_unused=True) if chosen else []
    return [None if g is None else g.to_dense().contiguous()
            for g in found]


def written(results, tensors) -> list:
    """Every tensor after a write to each floating result in turn."""
    with torch.no_grad():
        for each in results:
            if isinstance(each, torch.Tensor) and each.is_floating_point():
                try:
                    each.mul_(1.5)
                except RuntimeError:  # an expanded tensor refuses
                    continue
        return [each.detach().clone() for each in tensors]
