"""The judge of every test: eager PyTorch."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import minicompile
from tests.judge import judged, near


def assert_same(fn, *args, calls=2, backward=True, fallback=False,
                **options):
    """Compare compiled `fn` with eager: results, mutations, gradients.

    Each of `calls` runs gets fresh copies of `args`; the second run is
    served from the cache. A module is copied first, so that its eager
    twin starts from the same state. Unless `fallback`, the function must
    really have been compiled. Returns the compiled callable.
    """
    eager = copied(fn)
    compiled = minicompile.compile(fn, **options)
    for _ in range(calls):
        random, before = torch.random.get_rng_state(), copied(eager)
        want = _seen(eager, eager, args, backward)
        torch.random.set_rng_state(random)
        got = _seen(compiled, fn, args, backward)
        judged(close, got, want, lambda fn, *args: _seen(
            fn, fn, args, backward), before, *args)
    stats = compiled.stats()
    if not fallback:
        assert stats.graphs and not stats.fallbacks, stats
    return compiled


def copied(fn):
    """A module's copy; a function is its own."""
    return copy.deepcopy(fn) if isinstance(fn, nn.Module) else fn


def close(got, want, exact=None):
    """Equal types, structures, dtypes, strides, flags; near values."""
    assert type(got) is type(want), (got, want)
    if isinstance(want, Exception):
        assert str(got) == str(want)
    elif isinstance(want, torch.Tensor):
        near(got, want, exact)
        assert got.stride() == want.stride(), (got.stride(), want.stride())
        assert got.requires_grad == want.requires_grad, (got, want)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        close(list(got.values()), list(want.values()),
              exact and list(exact.values()))
    elif isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for each in zip(got, want, exact or [None] * len(want), strict=True):
            close(*each)
    elif not callable(want):
        assert repr(got) == repr(want)


def _seen(run, fn, args, backward) -> list:
    """A call's result, the arguments then, gradients and `fn`'s state."""
    args = tree_map(_copy, args)
    try:
        result = run(*args)
    except Exception as error:
        result = error
    return [result, args, _gradients(result, args, fn) if backward else [],
            dict(fn.state_dict()) if isinstance(fn, nn.Module) else {}]


def _copy(leaf):
    """A tensor with its own memory and the same layout."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    span = 1 + sum((size - 1) * step for size, step in
                   zip(leaf.shape, leaf.stride())) if leaf.numel() else 0
    memory = torch.zeros(span, dtype=leaf.dtype, device=leaf.device)
    fresh = memory.as_strided(leaf.shape, leaf.stride())
    if leaf.numel():
        memory.copy_(leaf.detach().as_strided((span,), (1,)))
    return fresh.requires_grad_(leaf.requires_grad)


def _gradients(result, args, fn):
    """Gradients of all inputs and parameters, under one fixed weight."""
    outputs = [leaf for leaf in tree_leaves(result)
               if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    inputs = [leaf for leaf in tree_leaves(args)
              if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if isinstance(fn, nn.Module):
        inputs += [p for p in fn.parameters() if p.requires_grad]
    if not outputs or not inputs:
        return []
    weights = [torch.linspace(0.5, 1.5, leaf.numel(), dtype=leaf.dtype,
                              device=leaf.device).view(leaf.shape)
               for leaf in outputs]
    return list(torch.autograd.grad(outputs, inputs, weights,
                                    allow_unused=True))
