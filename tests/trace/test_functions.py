"""torch.autograd.Function: one node, and the user's own backward."""

import re
from collections import namedtuple

import pytest
import torch
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import minicompile
from minicompile.trace import trace
from minicompile.trace.torch.subgraphs import user_function
from tests.same import assert_same, close

BACKENDS = ("eager", "split", "fused")


class Cube(Function):
    """A backward that is no derivative: a trace must use it."""

    @staticmethod
    def forward(ctx, x, scale):
        ctx.save_for_backward(x)
        ctx.scale = scale
        return x ** 3 * scale

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * x * ctx.scale * 7, None


class Several(Function):
    """Three results, one of them without a gradient, one saved."""

    @staticmethod
    def forward(ctx, x, w, flag=True):
        high, which = x.max(1)
        out = torch.tanh(x @ w)
        ctx.mark_non_differentiable(which)
        ctx.save_for_backward(x, w, out)
        ctx.which, ctx.flag = which, flag
        return out, which, high

    @staticmethod
    @once_differentiable
    def backward(ctx, g, none, high):
        x, w, out = ctx.saved_tensors
        g = g * (1 - out * out)
        gx = gw = None
        if ctx.needs_input_grad[0]:
            gx = g @ w.t()
            gx = gx.scatter_add(1, ctx.which[:, None], high[:, None])
        if ctx.needs_input_grad[1]:
            gw = x.t() @ g
        return gx, gw, None


class Apart(Function):
    """The newer form, with defaults."""

    @staticmethod
    def forward(x, y, power=2):
        return x ** power * y

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, y, power = inputs
        ctx.save_for_backward(x, y)
        ctx.power = power

    @staticmethod
    def backward(ctx, g):
        x, y = ctx.saved_tensors
        return g * y * ctx.power * x, g * x ** ctx.power, None


class Dirty(Function):
    """Writes to what it is given."""

    @staticmethod
    def forward(ctx, x):
        x.mul_(3)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, g):
        return g * 5


class Same(Function):
    """Returns what it is given, and turns the gradient around."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, g):
        return g.neg().mul_(2)


class Nested(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return Cube.apply(x, 2) + FACTOR

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return Apart.apply(g, x)


class Straight(Function):
    """Quantises; ctx holds a tensor as an attribute."""

    @staticmethod
    def forward(ctx, x, levels):
        ctx.inside = (x.abs() <= 1)
        return (x * levels).round() / levels

    @staticmethod
    def backward(ctx, g):
        return torch.where(ctx.inside, g, 0), None


FACTOR = torch.full((3, 4), 0.5)


def cube(x):
    return Cube.apply(x.sin(), 2).cos()


def several(x, w):
    out, which, high = Several.apply(x * 2, w)
    return out.sum() + high.sum(), which, out


def apart(x, y):
    return Apart.apply(x, y) + Apart.apply(x, y, 3)


def dirty(x):
    y = x * 2
    z = Dirty.apply(y)
    return z is y, z + y


def same(x):
    return Same.apply(x) * 2


def same_memory(x):
    y = x * 2
    return Same.apply(x), y, Same.apply(y).t()


def nested(x):
    return Nested.apply(x * 1)


def straight(x):
    return Straight.apply(x, 4).pow(2)


def twice(x):
    return Cube.apply(x, 1) + Cube.apply(x.detach(), 2)


def without(x):
    with torch.no_grad():
        return Cube.apply(x, 2) * 2


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 12).view(4, 3))
        self.quantise = Straight.apply

    def forward(self, x):
        out, which, high = Several.apply(x, self.quantise(self.weight, 8))
        return out * high[:, None]


def rows(requires_grad=True):
    torch.manual_seed(0)
    return torch.randn(3, 4, requires_grad=requires_grad)


CASES = {
    "cube": (cube, 1), "several": (several, 2), "apart": (apart, 2),
    "same": (same, 1), "nested": (nested, 1), "straight": (straight, 1),
    "twice": (twice, 1), "without": (without, 1), "dirty": (dirty, 1),
}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_are_eagers(name, backend):
    fn, count = CASES[name]
    args = [rows(), rows().t().contiguous() if name == "several"
            else rows() + 1][:count]
    args = [a.detach().requires_grad_() for a in args]
    for some in (args, [args[0], *[a.detach() for a in args[1:]]],
                 [a.detach() for a in args]):
        assert_same(fn, *some, backend=backend, fullgraph=True)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_view_has_the_gradient_of_the_function(backend):
    """As a view of the input it would have another."""
    assert_same(same_memory, rows(), backend=backend,
                fallback=backend != "eager")


@pytest.mark.parametrize("backend", BACKENDS)
def test_in_a_module(backend):
    assert_same(Layer(), rows(), backend=backend, fullgraph=True)


def test_the_node_holds_two_graphs():
    """One node; its backward graph is what the user wrote."""
    made = trace(cube, (rows(),))
    called = made.graph.graph.find_nodes(
        op="call_function", target=user_function)
    assert len(called) == 1
    forward, backward = str(made).split("\n\n")[:2]
    assert "operator.pow" in forward and "7" not in forward
    assert "operator.mul(mul_1, 7)" in backward, backward


class Talks(Function):
    @staticmethod
    def forward(ctx, x):
        print("forward")
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 3


class Counts(Function):
    calls: list = []

    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Counts.calls.append(1)
        return g * 3


class TooMany(Function):
    @staticmethod
    def forward(ctx, x, scale):
        return x * scale

    @staticmethod
    def backward(ctx, g):
        return g, g


class MayBeNone(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, g, h):
        return g if h is None else g + h


class Fills(Function):
    written = torch.zeros(3, 4)

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(torch.ones_like(x))
        return x * 2

    @staticmethod
    def backward(ctx, g):
        Fills.written.add_(ctx.saved_tensors[0].mul_(g))
        return g * 3


@pytest.mark.parametrize("kind, args, what", [
    (Talks, (), "print"), (Counts, (), "a backward"),
    (Fills, (), "a backward"),
    (TooMany, (2,), "no tensor"), (MayBeNone, (), "None")])
def test_what_cannot_be_followed_is_a_break(kind, args, what, capsys):
    """The call runs as it is, and the rest goes on compiled."""
    def fn(x):
        y = kind.apply(x.sin(), *args)
        return (y if isinstance(y, torch.Tensor) else y[0]).cos()

    compiled = minicompile.compile(fn)
    x = rows()
    torch.testing.assert_close(compiled(x), fn(x))
    stats = compiled.stats()
    assert (stats.graphs, stats.graph_breaks) == (2, 1)
    with pytest.raises(minicompile.Unsupported, match=what) as error:
        minicompile.compile(fn, fullgraph=True)(x)
    assert error.value.where.file == __file__
    if kind in (Counts, Fills):
        Counts.calls.clear()
        Fills.written.zero_()
        compiled(x).sum().backward()
        assert len(Counts.calls) == (kind is Counts)
        assert Fills.written.any() == (kind is Fills)


def test_keywords_are_a_break():
    """Newer versions of PyTorch take them, older ones raise."""
    def fn(x):
        return Apart.apply(x.sin(), y=x).cos()

    compiled, x = minicompile.compile(fn, backend="eager"), rows()
    try:
        want = fn(x)
    except TypeError as error:
        with pytest.raises(TypeError, match=re.escape(str(error))):
            compiled(x)
    else:
        close(compiled(x), want)


SCALE = 2


class Reads(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, g):
        return g * SCALE


def test_what_the_backward_reads_is_guarded(monkeypatch):
    compiled = minicompile.compile(lambda x: Reads.apply(x), fullgraph=True)

    def gradient():
        x = rows()
        return torch.autograd.grad(compiled(x).sum(), x)[0]

    assert (gradient() == 2).all()
    monkeypatch.setitem(globals(), "SCALE", 5)
    assert (gradient() == 5).all()
    monkeypatch.setattr(Reads, "backward", staticmethod(
        lambda ctx, g: g * 11))
    assert (gradient() == 11).all()


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_saved_tensor_written_to_is_eagers_error(backend):
    compiled = minicompile.compile(lambda x: Cube.apply(x, 2),
                                   backend=backend, fullgraph=True)
    x = rows() * 1
    y = compiled(x)
    x.detach().zero_()
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.sum().backward()


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_second_derivative_is_that_of_the_users_backward(backend):
    def function(x):
        return Cube.apply(x.sin(), 2) * x

    found = []
    for run in minicompile.compile(function, backend=backend), function:
        x = rows()
        grad, = torch.autograd.grad(run(x).sum(), x, create_graph=True)
        found.append([grad, *torch.autograd.grad(grad.sum(), x)])
    close(*found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_backward_that_is_differentiable_once_is_refused(backend):
    x, w = rows(), torch.randn(4, 2, requires_grad=True)
    y, _, _ = minicompile.compile(
        lambda x, w: Several.apply(x, w), backend=backend)(x, w)
    grad, = torch.autograd.grad(y.sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not require grad"):
        grad.sum().backward()


def test_dynamos_nodes_are_taken():
    """torch.compile's own form of it goes through our split."""
    torch._dynamo.reset()
    for fn in (cube, straight):
        x = rows()
        got = torch.compile(fn, backend=minicompile.backend,
                            fullgraph=True)(x)
        torch.testing.assert_close(got, fn(x))
        torch.testing.assert_close(
            torch.autograd.grad(got.sum(), x),
            torch.autograd.grad(fn(x).sum(), x))


Pair = namedtuple("Pair", "first second")


class Parts(list):
    """A list of a class of its own."""


def test_a_range_is_an_operators_argument():
    compiled = assert_same(lambda x: (
        x[range(3), [2, 1, 0]] + torch.tensor(range(2, 8, 2)), x[range(2)]),
        torch.randn(3, 3, requires_grad=True))
    assert compiled.stats().graph_breaks == 0


def test_containers_of_any_class_are_an_operators_arguments():
    def function(x):
        return torch.cat(Pair(x, x + 1)), torch.stack(Parts([x, x * 2])), (
            x.reshape(Pair(2, -1)))
    compiled = assert_same(function, torch.randn(4, requires_grad=True))
    assert compiled.stats().graph_breaks == 0


@pytest.mark.parametrize("name", [
    f"_foreach_{which}{end}" for which in ("maximum", "minimum")
    for end in ("", "_")])
@pytest.mark.parametrize("other", [0.5, 1, [0.5, 2.0]])
def test_the_larger_of_lists_and_numbers(name, other):
    def function(x, y):
        made = getattr(torch, name)([x, y], other)
        return x, y, made if made is None else [*made]

    assert_same(function, torch.randn(3), torch.randn(4), fullgraph=True,
                backward=False)


def test_questions_that_have_one_answer_in_a_trace():
    def function(x):
        if torch._C._are_functorch_transforms_active():
            x = x - 1
        return x.to_dense() * 2

    assert_same(function, torch.randn(3), fullgraph=True)
    close(minicompile.compile(torch.vmap(function))(torch.ones(2, 3)),
          torch.vmap(function)(torch.ones(2, 3)))


@pytest.mark.parametrize("ask", [
    vars(torch._C.TensorBase)[name] for name in (
        "data_ptr", "const_data_ptr", "storage_type")
    if name in vars(torch._C.TensorBase)])
def test_where_a_tensor_lies_is_no_fact(ask):
    def function(x, y):
        return x + 1, ask(x) == ask(y), ask(x) == ask(x)

    x, y = torch.ones(2), torch.ones(2)
    close(minicompile.compile(function)(x, y), function(x, y))
