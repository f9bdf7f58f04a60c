"""Values, gradients, flags and aliasing through the split are eager's."""

from __future__ import annotations

from math import inf

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from minicompile import compile
from minicompile.core.errors import BackendError
from tests.split.judge import assert_same
from tests.split.programs import everything

T = torch.randn


def grad(*shape):
    """A random leaf that requires grad."""
    return torch.randn(shape, requires_grad=True)


def block(x, w, scale=2):
    h = F.gelu(F.layer_norm(x @ w, (w.shape[1],)))
    return h * scale


CASES = {
    "block": (block, lambda: (grad(4, 8), grad(8, 16))),
    "inference": (block, lambda: (T(4, 8), T(8, 16))),
    "one of two wants a gradient": (block, lambda: (T(4, 8), grad(8, 16))),
    "unused input": (lambda x, y: x.sin(), lambda: (grad(3), grad(3))),
    "integer result": (lambda x: (x.sin(), x.argmax()), lambda: (grad(5),)),
    "constant result": (lambda x: (x.sin(), 3, None), lambda: (grad(5),)),
    "no tensor result": (lambda x: 3, lambda: (grad(5),)),
    "same result twice": (lambda x: (y := x.sin(), y), lambda: (grad(5),)),
    "the input": (lambda x: (x, x * 2), lambda: (grad(5),)),
    "view of an input": (lambda x: x.view(-1)[1:], lambda: (grad(2, 3),)),
    "detached view": (lambda x: x.detach()[0], lambda: (grad(2, 3),)),
    "two views": (
        lambda x: (y := x * 2, y.t(), y[0]), lambda: (grad(2, 3),)),
    "views of a hidden base": (
        lambda x: (x * 2).chunk(2), lambda: (grad(4, 3),)),
    "expanded result": (
        lambda x: x.sin().expand(4, 3), lambda: (grad(3),)),
    "overlapping result": (
        lambda x: x.sin().unfold(0, 2, 1), lambda: (grad(5),)),
    "detach": (lambda x: x.sin() * x.detach(), lambda: (grad(3),)),
    "dead input": (lambda x, y: y * 2, lambda: (grad(3), T(3))),
    "empty tensor": (lambda x: x.sin().sum(), lambda: (grad(0, 3),)),
    "zero-dim": (lambda x: x.exp() * 2, lambda: (grad(),)),
    "float64": (
        lambda x: x.softmax(-1),
        lambda: (T(3, 4, dtype=torch.float64, requires_grad=True),)),
    "bfloat16": (
        lambda x: F.layer_norm(x, (4,)),
        lambda: (T(3, 4, dtype=torch.bfloat16, requires_grad=True),)),
    "integers": (lambda x: x // 2 + 1, lambda: (torch.arange(6),)),
    "bool": (lambda x: ~x, lambda: (torch.tensor([True, False]),)),
    "complex": (
        lambda x: torch.view_as_real(torch.view_as_complex(x) * 2j) * 1,
        lambda: (grad(3, 2),)),
    "bytes": (lambda x: x.view(torch.int32) + 1, lambda: (T(3, 2),)),
    "a gradient that reaches nothing": (
        torch.linalg.householder_product, lambda: (grad(0, 0), grad(0))),
    "transposed input": (
        lambda x: F.layer_norm(x, (4,)),
        lambda: (T(4, 3).t().requires_grad_(),)),
    "channels last": (
        lambda x, w: F.conv2d(x, w).relu(),
        lambda: (T(2, 3, 5, 5).to(memory_format=torch.channels_last)
                 .requires_grad_(), grad(4, 3, 3, 3))),
    "expanded input": (
        lambda x: (x * 2).sum(0), lambda: (T(1, 3).expand(4, 3),)),
    "number input": (lambda x, n: x * n, lambda: (grad(3), 3)),
    "dropout": (lambda x: F.dropout(x, 0.5) * 2, lambda: (grad(64),)),
    "two draws": (
        lambda x: x * torch.rand(3) + torch.randn(3), lambda: (grad(3),)),
    "dead draw": (
        lambda x: (torch.rand(3), x + torch.rand(3))[1],
        lambda: (grad(3),)),
    "cross entropy": (
        F.cross_entropy, lambda: (grad(4, 5), torch.randint(5, (4,)))),
    "attention": (
        F.scaled_dot_product_attention,
        lambda: (grad(2, 4, 8), grad(2, 4, 8), grad(2, 4, 8))),
    "embedding": (
        F.embedding, lambda: (torch.randint(5, (3, 2)), grad(5, 4))),
    "nan and inf": (
        lambda x: x / x.sum(), lambda: (
            torch.tensor([1.0, -1.0, float("inf")], requires_grad=True),)),
}


@pytest.mark.parametrize("name", CASES)
def test_case(name):
    function, inputs = CASES[name]
    assert_same(function, *inputs())


#: Results that read the bytes of an input, or of another result, as
#: numbers of another kind.
OTHERWISE = {
    "parts of a complex number": (
        lambda x: (x.real, x.imag[0], x.conj(), x.view(-1)[1:].conj().t()),
        lambda: (T(3, 2, dtype=torch.complex64, requires_grad=True),)),
    "parts of a complex result": (
        lambda x: (y := x * 2j, y.imag, torch.view_as_real(y)[1], y.conj()),
        lambda: (grad(3, 2),)),
    "view as complex": (
        lambda x: (torch.view_as_complex(x)[1:].t(), x[0]),
        lambda: (grad(3, 4, 2),)),
    "bits": (
        lambda x: (x.view(torch.int32)[1], x.t()), lambda: (T(3, 2),)),
}


@pytest.mark.parametrize("name", OTHERWISE)
def test_bytes_read_otherwise(name):
    function, inputs = OTHERWISE[name]
    assert_same(function, *inputs())


WRITES = {
    "add_": (lambda x: x.add_(1), lambda: (T(3),)),
    "a column": (lambda x: x[:, 0].add_(1), lambda: (T(3, 2),)),
    "setitem": (
        lambda x, y: x.__setitem__(0, y), lambda: (T(3, 2), grad(2))),
    "through a view": (
        lambda x: (x.view(-1).mul_(2), x + 1), lambda: (T(3, 2),)),
    "through a view of memory with gaps": (
        lambda x: ((y := x.expand_as(x)).sin_(), y, y.contiguous()),
        lambda: (T(4, 2, 2)[..., 0],)),
    "copy_": (lambda x, y: x.copy_(y), lambda: (T(3), T(3))),
    "swap": (
        lambda x, y: (t := x.clone(), x.copy_(y), y.copy_(t)) and None,
        lambda: (T(3), T(3))),
    "out=": (
        lambda x, y: torch.add(x, 1, out=y), lambda: (T(3), T(3))),
    "before and after": (
        lambda x: (x.sin(), x.add_(1), x.sin()), lambda: (T(3),)),
    "transposed": (
        lambda x: (x.add_(1), x.reshape(-1)),
        lambda: (T(2, 3).t(),)),
    "memory with gaps": (
        lambda x: (x[:, 1].mul_(2), x.t().add_(1), x.reshape(-1), x),
        lambda: (T(3, 8)[:, ::2],)),
    "copied into memory with gaps": (
        lambda x: (x.copy_(x.exp()), x.diagonal().zero_())[1],
        lambda: (T(3, 8)[:, ::2],)),
    "an intermediate": (
        lambda x: x.sin().add_(1).mul_(x), lambda: (grad(3),)),
    "a slice of an intermediate": (
        lambda x: (y := x * 2, y[0].add_(1), y[:, 1].zero_())[0],
        lambda: (grad(3, 2),)),
    "under no_grad": (
        torch.no_grad()(lambda x, y: x.add_(y)),
        lambda: (grad(3), grad(3))),
    "batch norm": (
        lambda x, m, v: F.batch_norm(x, m, v, training=True),
        lambda: (grad(4, 3, 5), torch.zeros(3), torch.ones(3))),
    "detached": (
        lambda x: (x.detach().add_(1), x.sum())[1], lambda: (grad(3),)),
}


@pytest.mark.parametrize("name", WRITES)
def test_write(name):
    function, inputs = WRITES[name]
    assert_same(function, *inputs())


@pytest.mark.parametrize("function", [
    lambda x: x.mul_(2),
    lambda x: x.sin_().exp(),
    lambda x, y: x.add_(y.exp()),
    lambda x: (x.mul_(2), x * x)[1],
    lambda x: (y := x * 2, x.add_(1), y * x),
    lambda x, y: (x[0].copy_(y[1]), x.sum())[1],
])
def test_write_to_a_differentiable_input(function):
    count = function.__code__.co_argcount
    assert_same(function, *[grad(3, 2) for _ in range(count)],
                leaves=False)


@pytest.mark.parametrize("function, inputs", [
    (lambda x: x.as_strided((2, 2), (1, 2)).add_(1), lambda: T(3, 8)[:, ::2]),
    (lambda x: (x * 2)[2:].as_strided((2,), (1,), 0), lambda: T(6))])
def test_as_strided_of_a_part_of_memory_is_refused(function, inputs):
    with pytest.raises(BackendError, match="a part of some memory"):
        assert_same(function, inputs())


def test_a_write_through_as_strided_before_an_input_is_done():
    def f(x):
        x.as_strided((2,), (1,), 0).fill_(-1)
        return x + 1
    ours, eager = torch.arange(10.), torch.arange(10.)
    with pytest.warns(UserWarning, match="a part of some memory"):
        assert torch.equal(compile(f)(ours[4:8]), f(eager[4:8]))
    assert torch.equal(ours, eager)


def test_an_input_the_backward_needs_is_copied_before_it_changes():
    def function(x, w):
        y = x.clone() * w
        x.add_(1)
        return y
    _, pair = assert_same(function, T(3), grad(3))
    assert len(pair.saved) == 1 and pair.saved.keys() <= pair.donated
    assert "clone" in str(pair.forward.graph)


def test_the_same_memory_under_two_inputs():
    from tests.split.judge import compiled

    def function(x, y):
        x.add_(1)
        return x * y

    run, _, _ = compiled(function, (T(3), T(3)))
    memory = torch.arange(4.0)
    got = run([memory[:3], memory[1:]])
    memory = torch.arange(4.0)
    assert torch.equal(got[0], function(memory[:3], memory[1:]))


@pytest.mark.parametrize("ambient", [True, False])
def test_autocast(ambient):
    def function(x, w):
        with torch.autocast("cpu", torch.bfloat16):
            h = x @ w
        with torch.autocast("cpu", enabled=False):
            return (h.to(w.dtype) @ w).relu(), h

    args = grad(4, 4), grad(4, 4)
    with torch.autocast("cpu", torch.bfloat16, enabled=ambient):
        joint, _ = assert_same(function, *args)
    kinds = [node.meta["val"].dtype for node in joint.graph.graph.nodes
             if node.name in ("mm", "mm_1")]
    assert kinds == [torch.bfloat16, torch.float32]


class Tower(nn.Module):
    """A little of everything a module does."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.group = nn.GroupNorm(2, 4)
        self.head = nn.Linear(4 * 16, 5)

    def forward(self, x):
        x = F.silu(self.norm(self.conv(x)))
        x = F.max_pool2d(F.hardswish(self.group(x)), 2)
        return F.log_softmax(self.head(F.dropout(x).flatten(1)), -1)


def test_lstm_in_training():
    """mkldnn's own keeps nothing for the backward in our forward."""
    lstm = nn.LSTM(3, 4)
    names = list(dict(lstm.named_parameters()))

    def function(x, *held):
        return torch.func.functional_call(lstm, dict(zip(names, held)),
                                          (x,))

    assert_same(function, grad(5, 2, 3), *lstm.parameters())


@pytest.mark.parametrize("function", [
    torch.linalg.eig, lambda x: torch.linalg.svd(x + 0j)])
def test_a_gradient_that_looks_at_values_is_refused(function):
    with pytest.raises(BackendError, match="looks at values"):
        assert_same(function, grad(3, 3))


@pytest.mark.parametrize("training", [True, False])
def test_module(training):
    module = Tower().train(training)
    names = list(dict([*module.named_parameters(),
                       *module.named_buffers()]))

    def function(x, *held):
        return torch.func.functional_call(module, dict(zip(names, held)),
                                          (x,))

    held = [*module.parameters(), *module.buffers()]
    assert_same(function, T(2, 3, 8, 8), *held)


def test_one_result_twice_beside_a_write():
    def function(x, y):
        x.add_(1)
        z = y * 2
        return z, z
    assert_same(function, T(3), grad(3))


def test_a_saved_view_of_an_input_that_is_written():
    def function(x, w):
        y = x.clone().t() * w
        x.t().mul_(w.detach())
        return y
    _, pair = assert_same(function, T(2, 3), grad(3, 2), saved=everything)
    assert "clone" in str(pair.forward.graph)


@pytest.mark.parametrize("turn", [
    lambda y: y.t().t_(), lambda y: y[None].transpose_(0, -1)[..., 0]])
def test_a_shape_that_is_changed_in_place_is_left_to_eager(turn):
    """PyTorch's functional tensors give a later write the old shape."""
    def function(x, y):
        y = y * 1
        z = turn(y)
        y.sub_(x)
        return z * 2, y
    x, y = grad(3, 3), T(3, 3)
    with pytest.raises(BackendError, match="shape"):
        assert_same(function, x, y)
    for one, two in zip(compile(function)(x, y), function(x, y)):
        assert torch.autograd.grad(one.square().sum(), x)[0].equal(
            torch.autograd.grad(two.square().sum(), x)[0])


def test_two_calls_of_several_results_are_kept_apart():
    def function(x):
        return x.max(0)[0], x.max(0)[0], x.sort()[1].view(-1), x.sort()[1]
    assert_same(function, T(3, 4))


@pytest.mark.parametrize("function, classes", [
    (lambda y: F.one_hot(y, 4) * 2, torch.tensor([[0, 3, 1]]).t()),
    (lambda y: F.one_hot(y, num_classes=4).float(), torch.tensor(3)),
    (lambda y: F.one_hot(y, 4) + 1, torch.zeros(0, 2, dtype=torch.long)),
    (lambda y: F.one_hot(y, y.shape[0]) + 1, torch.tensor([2, 1, 0]))])
@pytest.mark.parametrize("dynamic", [False, True])
def test_one_hot_of_known_classes_compiles(function, classes, dynamic):
    compiled = compile(function, dynamic=dynamic, fullgraph=True)
    found, wanted = compiled(classes), function(classes)
    assert found.stride() == wanted.stride()
    torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    stats = compiled.stats()
    assert stats.kernels and not stats.fallbacks


@pytest.mark.parametrize("holds, mask", [
    (True, lambda: torch.arange(6)[:, None] + 0 >= 0),
    (True, lambda: torch.arange(2, 14, 2)[:, None].expand(6, 6)[1:] >= 2),
    (True, lambda: torch.ones(6, 6, dtype=bool) & (
        N()[N()] >= 0).logical_and(torch.ones(6, dtype=bool))),
    (False, lambda: torch.arange(6) >= 1),
    (False, lambda: torch.arange(5, -1, -1) >= 5),
    (False, lambda: torch.arange(-6, 0)[:, None] + 5 >= 0),
    (False, lambda: torch.arange(6) - 1 >= 0),
    (False, lambda: torch.add(
        torch.arange(6), torch.arange(6)[:, None], alpha=-1) >= 0),
    (False, lambda: (torch.arange(6) >= 0) & (torch.arange(6) < 4)),
    (False, lambda: ((torch.arange(6) + 1) & 2).bool()),
    (False, lambda: torch.arange(120, 126, dtype=torch.int8) + 4 >= 120)])
def test_a_mask_that_holds_everywhere_is_left_out(holds, mask):
    """What is left of one that does not hold is the same as in eager."""
    assert holds is not any(
        str(node.target).startswith(("aten.arange", "aten.ge"))
        for node in masked_attention(mask).nodes)


def masked_attention(mask):
    """The joint graph of an attention with this mask, judged by eager."""
    def function(q, k, v):
        found = mask()
        found = found if found.dim() == 2 else found.expand(6, 6)
        return F.scaled_dot_product_attention(
            q[None, None, :found.shape[0]], k[None, None], v[None, None],
            attn_mask=found)
    inputs = [grad(6, 8) for _ in range(3)]
    compiled = compile(function, fullgraph=True)
    for one, two in zip((compiled(*inputs), *torch.autograd.grad(
            compiled(*inputs).square().sum(), inputs)),
            (function(*inputs), *torch.autograd.grad(
                function(*inputs).square().sum(), inputs))):
        torch.testing.assert_close(one, two)
    return compiled.cache.entries[0].lowered.joint.graph.graph


def N():
    return torch.arange(6)


def packed():
    """The mask of sequences in one row, of which there is one."""
    at = N()[None].expand(2, -1)
    begins = torch.diff(at, prepend=at[:, :1] - 1, dim=-1) != 1
    of = begins.cumsum(-1)[0]
    return (N() <= N()[:, None]) & (of == of[:, None])


@pytest.mark.parametrize("holds, mask", [
    (True, lambda: N()[:, None] >= N()),
    (True, lambda: torch.ones(6, 6, dtype=bool).tril()),
    (True, lambda: torch.where(N() <= N()[:, None], 0.0, -inf)),
    (True, lambda: torch.full(
        (6, 6), torch.finfo(torch.float32).min).triu(1)),
    (True, packed),
    (False, lambda: N()[:, None] > N() - 2),
    (False, lambda: N()[:, None] <= N()),
    (False, lambda: torch.arange(3)[:, None] >= N() - 3),
    (True, lambda: (N() < 1)[None]),  # the only row
    (False, lambda: (N() < 1)[None].expand(6, 6)),
    (False, lambda: torch.where(N() <= N()[:, None], 0.0, -1e4)),
    (False, lambda: torch.where(N() <= N()[:, None], 1.0, -inf))])
def test_a_mask_that_is_causal_is_left_out(holds, mask):
    """PyTorch's kernels need none; any other is the same as in eager."""
    call, = (node for node in masked_attention(mask).nodes
             if node.target is torch.ops.aten.
             _scaled_dot_product_flash_attention_for_cpu.default)
    assert holds is (True in call.args)


@pytest.mark.parametrize("random", [False, True])
def test_a_mask_stays_where_dropout_must_be_eagers(random):
    """Without it another kernel may run, which draws other numbers."""
    def function(q):
        return F.scaled_dot_product_attention(
            q, q, q, N() >= 0, dropout_p=0.5)
    compiled = compile(function, fullgraph=True,
                       options={"fallback_random": random})
    compiled(grad(1, 6, 8))
    nodes = compiled.cache.entries[0].lowered.joint.graph.graph.nodes
    assert random is any(node.target is torch.ops.aten.arange.default
                         for node in nodes)


@pytest.mark.parametrize("fill", [torch.ones, torch.zeros])
def test_a_mask_that_is_too_large_is_eagers_error(fill):
    def function(q, k, v):
        return F.scaled_dot_product_attention(
            q, k, v, attn_mask=fill(4, 6, 6, dtype=bool))
    inputs = [grad(1, 6, 8) for _ in range(3)]
    for run in (function, compile(function)):
        with pytest.raises(RuntimeError, match="broadcast shape"):
            run(*inputs)
