"""Models at every batch size and sequence length, compiled once or twice."""

import copy

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import minicompile
from minicompile.report.views.models import Block
from tests.judge import judged
from tests.same import close

SIZES = (2, 3, 8, 16, 33, 64)


class CNN(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 16, 3, stride=2)
        self.head = nn.Linear(16, 5)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        return self.head(F.relu(self.second(x)).mean((2, 3)))


#: A model, and the input for each size.
CASES = {
    "batches of text": (lambda: Block(32, 4), lambda n: (n, 7, 32), 0),
    "lengths of text": (lambda: Block(32, 4), lambda n: (2, n, 32), 1),
    "batches of images": (CNN, lambda n: (n, 3, 12, 12), 0),
    "sizes of images": (CNN, lambda n: (2, 3, n + 8, n + 8), None),
}


def step(model, x):
    """The result, the input's gradient, and the parameters'."""
    x = x.detach().requires_grad_()
    made = model(x)
    model.zero_grad()
    made.square().sum().backward()
    return made, x.grad, [p.grad for p in model.parameters()]


def compiles(case, backend, mark, **options):
    """How often ours compiles for all sizes; eager judges each."""
    make, shape, dim = CASES[case]
    torch.manual_seed(0)
    mine = make()
    eagers = copy.deepcopy(mine)

    def marked(x):
        if mark and dim is not None:
            minicompile.mark_dynamic(x, dim)
        return compiled(x)

    compiled = minicompile.compile(mine, backend=backend, **options)
    for n in SIZES:
        given = torch.randn(shape(n))
        x = given.clone().requires_grad_()
        want = step(eagers, given)
        made = marked(x)
        mine.zero_grad()
        made.square().sum().backward()
        got = made, x.grad, [p.grad for p in mine.parameters()]
        judged(close, got, want, step, eagers, given)
    stats = compiled.stats()
    assert not stats.fallbacks and not stats.graph_breaks, stats
    return stats.graphs


def theirs(case, mark, **options):
    """How often torch.compile does."""
    make, shape, dim = CASES[case]
    graphs = []

    def seen(graph, example_inputs):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    compiled = torch.compile(make(), backend=seen, **options)
    for n in SIZES:
        x = torch.randn(shape(n), requires_grad=True)
        if mark and dim is not None:
            torch._dynamo.mark_dynamic(x, dim)
        compiled(x)
    return len(graphs)


@pytest.mark.slow(sample=2)
@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("case", CASES)
def test_two_compiles_serve_all_sizes(case, backend):
    """Older shape rules of pooling ask whether an image's size is odd."""
    odd = case == "sizes of images" and torch.__version__ < "2.13"
    assert compiles(case, backend, False) == 2 + odd <= theirs(case, False)


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("backend", ["split", "fused"])
@pytest.mark.parametrize("case", CASES)
def test_one_compile_if_asked_for_at_once(case, backend):
    ours = compiles(case, backend, False, dynamic=True)
    assert ours <= theirs(case, False, dynamic=True)
    if CASES[case][2] is not None:
        assert compiles(case, backend, True) == 1 <= theirs(case, True)


def test_never_means_never_but_for_marks():
    assert compiles("batches of text", "eager", False, dynamic=False) == 6
    assert theirs("batches of text", True, dynamic=False) == 1
    assert compiles("batches of text", "eager", True, dynamic=False) == 1


def test_a_backend_that_cannot_do_with_marks_gets_none():
    def backend(graph, example_inputs):
        if any(type(x) is torch.SymInt for x in example_inputs):
            raise minicompile.errors.BackendError("no symbols here")
        return graph

    compiled = minicompile.compile(lambda x: x * x.shape[0], dynamic=False,
                                   backend=backend)
    for n in (3, 4):
        x = torch.ones(n, 2)
        minicompile.mark_dynamic(x, 0)
        assert torch.equal(compiled(x), x * n)
    assert compiled.stats().fallbacks["static shapes"] == 1


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
def test_the_hinted_size_is_no_limit(backend):
    """What the first symbolic trace saw bounds nothing that it made."""
    def reduced(x, w):
        y = torch.softmax(x @ w, -1) + x.mean(0)
        return y.sum(0), y.amax(), (y * y.shape[0]).cumsum(0)

    compiled = minicompile.compile(reduced, backend=backend)
    w = torch.randn(6, 6)
    for rows in (3, 4, 1000, 2, 70_000):
        x = torch.randn(rows, 6)
        judged(close, compiled(x, w), reduced(x, w),
               reduced, x, w)
    assert compiled.stats().graphs == 2 and not compiled.stats().fallbacks
