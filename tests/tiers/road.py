"""What the road alone must get right: `python -m tests.tiers.road cpu`.

The book's models forward, backward and in training, a print in the middle,
a second shape, a changed global, each beside eager. The argument is `cpu`
or `interpreter`, for Triton kernels in its interpreter. Runs in a process
of its own, with the package that PYTHONPATH finds first.
"""

import contextlib
import copy
import importlib.util
import io
import sys
from pathlib import Path

import torch
from torch.nn import functional as F

import minicompile
from tests.judge import judged, near
from tests.same import assert_same

#: The models lie in the reference, which is not there.
SPEC = importlib.util.spec_from_file_location("models", (
    Path(__file__).parents[2] / "minicompile/report/views/models.py"))
models = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(models)

SCALE = 2.0


def block(x, w):
    return F.gelu(F.layer_norm(x @ w, (w.shape[1],))) * SCALE


def talking(x, w):
    y = block(x, w)
    print("in the middle", tuple(y.shape))
    return (y * y).sum(1)


def example(rows=8):
    return torch.randn(rows, 6), torch.randn(6, 16, requires_grad=True)


def functions(options):
    """A function: two shapes, a print, a global that changes."""
    global SCALE
    compiled = assert_same(block, *example(), options=options)
    for rows in (5, 3):
        given = example(rows)
        judged(near, compiled(*given), block(*given), block, *given)
    SCALE = 3.0
    judged(near, compiled(*given), block(*given), block, *given)
    fused(compiled)
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert_same(talking, *example(), options=options, fallback=True)
    assert printed.getvalue().count("in the middle") >= 4


def fused(compiled):
    """Its graphs run in kernels: none of them as it was traced."""
    stats = compiled.stats()
    assert stats.graphs and stats.kernels and not stats.fallbacks, stats


def losses(model, batch, steps):
    """The losses of some training steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    found = []
    for _ in range(steps):
        loss = model(*batch)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        found.append(loss.item())
    return found


def training(name, options, steps):
    """A model of the book's, in evaluation and in training."""
    torch.manual_seed(0)
    model, batch = models.build(name)
    double = copy.deepcopy(model).double()
    wide = [t.double() if t.is_floating_point() else t for t in batch]
    compiled = minicompile.compile(copy.deepcopy(model), options=options)
    with torch.no_grad():
        near(compiled(*batch), model(*batch), double(*wide))
    exact, eager, ours = (losses(each, given, steps) for each, given in (
        (double, wide), (model, batch), (compiled, batch)))
    for at in range(steps):
        allowed = 2 * max(abs(a - b) for a, b in zip(eager, exact))
        assert abs(ours[at] - exact[at]) <= allowed + 1e-4, (name, at)
    fused(compiled)


def main(way):
    """Run everything; an exception is what a failed assertion gives."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    if way == "interpreter":
        functions({"cpu_backend": "triton"})
        return
    functions({})
    for name in ("mlp", "gpt", "resnet"):
        training(name, {}, steps=20)


if __name__ == "__main__":
    main(sys.argv[1])
