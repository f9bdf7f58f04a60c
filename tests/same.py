"""The judge of every test: eager PyTorch."""

from __future__ import annotations

import copy

import torch
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

import minicompile


def assert_same(fn, *args, calls=2, backward=True, rtol=None, atol=None,
                fallback=False, **options):
    """Compare compiled `fn` with eager: results, mutations, gradients.

    Each of `calls` runs gets fresh copies of `args`; the second run is
    served from the cache. A module is copied first, so that its eager
    twin starts from the same state. Unless `fallback`, the function must
    really have been compiled. Returns the compiled callable.
    """
    eager = copy.deepcopy(fn) if isinstance(fn, nn.Module) else fn
    compiled = minicompile.compile(fn, **options)
    for _ in range(calls):
        random = torch.random.get_rng_state()
        want_args, want = _run(eager, args)
        torch.random.set_rng_state(random)
        got_args, got = _run(compiled, args)
        close(got, want, rtol, atol)
        close(got_args, want_args, rtol, atol)
        if backward:
            close(_gradients(got, got_args, fn),
                  _gradients(want, want_args, eager), rtol, atol)
        if isinstance(fn, nn.Module):
            close(dict(fn.state_dict()), dict(eager.state_dict()),
                  rtol, atol)
    stats = compiled.stats()
    if not fallback:
        assert stats.graphs and not stats.fallbacks, stats
    return compiled


def close(got, want, rtol=None, atol=None):
    """Equal types, structures, dtypes, strides, flags; close values."""
    assert type(got) is type(want), (got, want)
    if isinstance(want, Exception):
        assert str(got) == str(want)
    elif isinstance(want, torch.Tensor):
        torch.testing.assert_close(got, want, rtol=rtol, atol=atol,
                                   equal_nan=True, check_stride=True)
        assert got.requires_grad == want.requires_grad, (got, want)
    elif isinstance(want, dict):
        assert list(got) == list(want)
        close(list(got.values()), list(want.values()), rtol, atol)
    elif isinstance(want, (tuple, list)):
        assert len(got) == len(want)
        for ours, theirs in zip(got, want, strict=True):
            close(ours, theirs, rtol, atol)
    elif not callable(want):
        assert repr(got) == repr(want)


def _run(fn, args):
    """Fresh copies of the arguments, and what `fn` returned or raised."""
    args = tree_map(_copy, args)
    try:
        return args, fn(*args)
    except Exception as error:
        return args, error


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
