"""The judge of this suite: eager Python, and a trace run in its place."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

from minicompile.trace import trace
from tests.same import close


def entry(target, args, kwargs):
    """What is traced: any callable, called."""
    return target(*args, **kwargs)


def traced(fn, *args, **kwargs):
    """Trace one call of `fn` and run its graph and recipe: the result."""
    made = trace(entry, (fn, args, kwargs))
    names = dict(made.constants)
    exec(made.finish, names)
    scope = {**names, "L": (fn, args, kwargs), "F": entry}
    inputs = [eval(source.code(), scope) for source in made.sources]
    outputs = made.graph(*inputs)
    return names["finish"](scope["L"], entry, outputs)


def by_torch(fn, *args, **kwargs):
    """The same through torch.compile's front end."""
    torch._dynamo.reset()
    try:
        return torch.compile(fn, backend="eager", fullgraph=True)(
            *args, **kwargs)
    except torch._dynamo.exc.Unsupported as refusal:
        pytest.skip(f"Dynamo breaks here: {str(refusal).splitlines()[0]}")


@pytest.fixture
def follow(impl):
    """`follow(fn, *args)`: traced and eager give the same; the result.

    Arguments are copied for each, and compared afterwards too.
    """
    run = {"minicompile": traced, "torch": by_torch}.get(impl, impl)

    def check(fn, *args, **kwargs):
        eager = copy.deepcopy(fn) if isinstance(fn, nn.Module) else fn
        ours, theirs = copy.deepcopy((args, args))
        torch.manual_seed(0)
        want = eager(*theirs, **kwargs)
        torch.manual_seed(0)
        got = run(fn, *ours, **kwargs)
        close(got, want)
        close(ours, theirs)
        if isinstance(fn, nn.Module):
            close(dict(fn.state_dict()), dict(eager.state_dict()))
        return got

    return check
