"""Functions of functions: eager PyTorch is the judge, one graph the aim."""

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch._higher_order_ops.while_loop import while_loop
from torch.compiler import nested_compile_region
from torch.func import (functional_call, grad, grad_and_value, hessian,
                        jacfwd, jacrev, jvp, stack_module_state, vjp, vmap)
from torch.nn.attention.flex_attention import (create_block_mask,
                                               flex_attention)

import minicompile
from minicompile.trace import trace
from tests.same import assert_same, close

pytestmark = pytest.mark.filterwarnings("error:a graph of")
BACKENDS = ("eager", "split", "fused")
W = torch.randn(6, 6, requires_grad=True)
MODEL = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 2))
BATCH = torch.randn(4, 6, requires_grad=True), torch.randn(4, 6)


def loss(parameters, x):
    return functional_call(MODEL, parameters, (x,)).square().mean()


def no_gradient_inside(t):
    with torch.no_grad():
        fixed = t * 2
    return (fixed * t).sum()


def around(x, y):
    h = x.relu()
    return vmap(lambda t: (t * h).sum(0) + y[0])(x)


def without_gradient(x, y):
    with torch.no_grad():
        return grad(lambda t: (t ** 2).sum())(x)


TRANSFORMS = {
    "grad": lambda x, y: grad(lambda t: (t.sin() ** 2).sum())(x) * y,
    "two arguments": lambda x, y: grad(
        lambda a, b: (a * b).sin().sum(), argnums=(0, 1))(x, y),
    "value and more": lambda x, y: grad_and_value(lambda t: (
        t.sum(), {"a": t * 2, "b": [t.cos()]}), has_aux=True)(x),
    "per sample": lambda x, y: vmap(grad(loss), in_dims=(None, 0))(
        dict(MODEL.named_parameters()), x),
    "vmap": lambda x, y: vmap(lambda a, b: (a * b).sum() + 1)(x, y),
    "in vmaps": lambda x, y: vmap(vmap(lambda t: t * 2 + W.sum()))(x),
    "chunks": lambda x, y: vmap(lambda t: t.sin() @ W, chunk_size=3)(x),
    "other dimensions": lambda x, y: vmap(
        lambda a, n: (a * n, a.sum()), in_dims=(1, None),
        out_dims=(1, 0))(x, 3),
    "dicts": lambda x, y: vmap(
        lambda d: {"s": d["a"] + d["b"]}, in_dims=({"a": 0, "b": None},))(
            {"a": x, "b": y[0]}),
    "keywords": lambda x, y: vmap(lambda a, *, b: a - b)(x, b=y),
    "jacrev": lambda x, y: jacrev(
        lambda t: (t.sin() @ W).sum(0), chunk_size=2)(x),
    "jacfwd": lambda x, y: jacfwd(lambda t: t.sin().sum(0))(x),
    "in a comprehension": lambda x, y: [
        vmap(lambda t, n=n: t * n)(x) for n in {"a": 2, "b": 3}.values()],
    "hessian": lambda x, y: hessian(lambda t: (t ** 3).sum())(x[0]),
    "of a module": lambda x, y: vmap(MODEL)(x),
    "in place": lambda x, y: vmap(lambda t: t.clone().add_(1).mul_(t))(x),
    "detached": lambda x, y: grad(lambda t: (t.detach() * t).sum())(x),
    "inside no_grad": lambda x, y: grad(no_gradient_inside)(x),
    "around": around, "in no_grad": without_gradient}


@pytest.mark.slow(sample=6)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_are_one_graph(name, backend):
    compiled = assert_same(TRANSFORMS[name], *BATCH, backend=backend,
                           fullgraph=True)
    assert compiled.stats().graphs == 1


@pytest.mark.parametrize("made", [
    vmap(lambda a, b: (a * b).sum() + 1), hessian(lambda a, b: (a * b).sum()),
    grad(lambda a, b: (a * b).sin().sum(), argnums=(0, 1))])
def test_what_a_transform_made_is_compiled_itself(made):
    compiled = assert_same(made, *BATCH, fullgraph=True)
    assert compiled.__name__ == made.__name__


def test_the_node_holds_a_graph_in_a_graph():
    text = str(trace(TRANSFORMS["in vmaps"], BATCH))
    assert text.count("transform('vmap'") == 2
    assert text.count("def graph_0") == 2


def test_a_dict_of_another_class_stays_one():
    def function(x):
        return vmap(lambda t: OrderedDict(sum=t.sum()))(x)

    found = minicompile.compile(function)(BATCH[0])
    assert type(found) is OrderedDict
    close(found["sum"], BATCH[0].sum(1))


STEEP = grad(lambda t: SCALE * (t ** 2).sum())
SCALE = 2.0


def test_what_a_transform_made_before_the_call_is_guarded():
    compiled = minicompile.compile(lambda x: STEEP(x) + 1, fullgraph=True)
    for scale in (2.0, 3.0, 2.0):
        globals()["SCALE"] = scale
        close(compiled(BATCH[1]), STEEP(BATCH[1]) + 1)
    functions = [grad(torch.sum), grad(lambda t: (t * t).sum())]
    compiled = minicompile.compile(lambda f, x: f(x), fullgraph=True)
    for function in 2 * functions:
        close(compiled(function, BATCH[1]), function(BATCH[1]))


def test_a_batch_that_varies_compiles_twice():
    def per_sample(x):
        return vmap(grad(lambda t: (t @ W).sin().sum()))(x)

    compiled = minicompile.compile(per_sample, fullgraph=True)
    for batch in (4, 5, 7, 9):
        x = torch.randn(batch, 6)
        close(compiled(x), per_sample(x))
    assert compiled.stats().graphs == 2


def test_an_ensemble_of_models():
    models = [nn.Linear(6, 2) for _ in range(3)]
    parameters, buffers = stack_module_state(models)
    base = copy.deepcopy(models[0]).to("meta")

    def ensemble(parameters, buffers, x):
        return vmap(lambda p, b: functional_call(base, (p, b), (x,)))(
            parameters, buffers)

    assert_same(ensemble, parameters, buffers, BATCH[1], fullgraph=True)


def test_random_numbers_are_drawn_as_eager_draws_them():
    def noisy(x):
        return vmap(lambda t: t + torch.rand(6), randomness="different")(x)

    assert_same(noisy, BATCH[0], fullgraph=True,
                options={"fallback_random": True})
    with pytest.raises(RuntimeError, match="randomness"):
        minicompile.compile(lambda x: vmap(torch.rand_like)(x))(BATCH[0])


SEEN: list = []


def counts(t):
    SEEN.append(1)
    return t.sum()


@pytest.mark.parametrize("function, what", [
    (counts, "changes something"),
    (lambda t: t.detach().mul_(2).sum() + t.sum(), "writes to"),
    (lambda t: t.sum() if t.sum() > 0 else t.mean(), "values of a tensor"),
    (lambda t: t.sum().item() and t.sum(), "values of a tensor")])
def test_a_function_that_no_graph_can_hold_is_one_break(function, what):
    def sloped(x):
        return grad(function)(x * 2) + 1

    want, SEEN[:] = sloped(BATCH[1]), []
    (reason,) = minicompile.explain(sloped)(BATCH[1]).graph_breaks
    assert what in reason.reason
    SEEN.clear()
    compiled = minicompile.compile(sloped)
    close(compiled(BATCH[1]), want)
    assert len(SEEN) == (function is counts)
    assert compiled.stats().graphs >= 1


def test_what_was_made_may_leave_the_function():
    def made(x):
        return grad(lambda t: (t * x).sum()), x + 1

    function, _ = minicompile.compile(made, fullgraph=True)(BATCH[1])
    close(function(BATCH[1]), BATCH[1])


def test_a_function_of_torch_func_that_returns_one_is_left_to_eager():
    def pulled(x, y):
        value, back = vjp(torch.sin, x)
        return back(value * y)[0]

    compiled = minicompile.compile(pulled)
    close(compiled(*BATCH), pulled(*BATCH))


# Operators of PyTorch's that take functions

def while_under_a_sum(x):
    n, y = while_loop(
        lambda n, x: (x.sum() < 100) & (n < LIMIT),
        lambda n, x: (n + 1, x * 2 + STEP), (torch.tensor(0), x))
    return y.sin(), n


def while_in_a_tree(x):
    made = while_loop(lambda d, n: n < 3, lambda d, n: (
        {"a": d["a"] + d["b"][0], "b": [d["b"][0] * 2]}, n + 1),
        ({"a": x, "b": [x + 1]}, torch.tensor(0)))
    return made[0]["a"] + 1


def scanned(x):
    return scan(lambda c, row: (c + row.sin(), c * row), x[0] * 1, x)


def combine(left, right):
    return left[0] * right[0], right[0] * left[1] + right[1]


def recurrence(x, mode="generic"):
    """The states of a linear recurrence, as state space models have it."""
    return associative_scan(combine, (x.sigmoid(), x), dim=1,
                            combine_mode=mode)[1] + 1


def backwards(x):
    return associative_scan(torch.add, x, dim=0, reverse=True,
                            combine_mode="generic")


@nested_compile_region
def squared(x, times=2):
    return x * x * times


def regions(x):
    return squared(squared(x), times=3) + 1


LIMIT, STEP = 10, torch.ones(6)
OPERATORS = {fn.__name__: fn for fn in (
    while_under_a_sum, while_in_a_tree, regions, recurrence, backwards)}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_are_one_graph(name, backend):
    x = torch.randn(4, 6)
    torch._dynamo.reset()
    compiled = assert_same(OPERATORS[name], x, backend=backend,
                           fullgraph=True)
    assert compiled.stats().graphs == 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_runs_as_often_as_its_data_say(backend):
    compiled = minicompile.compile(while_under_a_sum, backend=backend,
                                   fullgraph=True)
    for first in (0.0, 3.0, 30.0, 1000.0):
        x = torch.full((4, 6), first)
        close(compiled(x), while_under_a_sum(x))
    x = torch.full((4, 6), 1000.0)
    y, _ = minicompile.compile(lambda x: while_loop(
        lambda x, n: n < 0, lambda x, n: (x + 1, n + 1),
        (x, torch.tensor(0))), backend=backend, fullgraph=True)(x)
    y.zero_()  # a loop that did not run gives a copy
    assert x.min() == 1000


@pytest.mark.parametrize("fn", [regions, recurrence, backwards])
def test_gradients_flow_through(fn):
    assert_same(fn, BATCH[0], fullgraph=True)


@pytest.mark.gpu
def test_a_scan_of_points_is_one_graph():
    x = torch.randn(4, 6, device="cuda")
    compiled = minicompile.compile(recurrence, fullgraph=True)
    close(compiled(x, "pointwise"), recurrence(x.cpu()).cuda())


@pytest.mark.parametrize("fn, what", [
    (lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * W[0]),
                          (torch.tensor(0), x)), "needs a gradient"),
    (lambda x: while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x * 2),
                          (0, x)), "carries a number"),
    (scanned, "scan")])
def test_what_stays_an_operator_of_eagers(fn, what):
    torch._dynamo.reset()
    x = torch.randn(4, 6)
    (reason,) = minicompile.explain(fn)(x).graph_breaks
    assert what in reason.reason
    assert_same(fn, x, fallback=True)


@pytest.mark.parametrize("fn", [
    lambda x: jvp(torch.tanh, (x,), (x * 2,)),
    lambda x: jvp(grad(lambda t: (t ** 3).sum()), (x,), (x + 1,))])
def test_forward_mode_alone_is_a_break(fn):
    compiled = minicompile.compile(fn, backend="eager")
    close(compiled(BATCH[0]), fn(BATCH[0]))
    (reason,) = compiled.cache.breaks
    assert "torch._functorch" in reason.reason


# flex_attention

QUERY = torch.randn(1, 2, 128, 16)
BIAS = torch.randn(2, 128)
CAUSAL = create_block_mask(lambda b, h, i, j: i >= j, None, None, 128, 128,
                           device="cpu")
ATTENTION = {
    "plain": lambda q: flex_attention(q, q, q),
    "a score": lambda q: flex_attention(
        q * 2, q, q, score_mod=lambda s, b, h, i, j: s + (i - j) * 0.1),
    "a table": lambda q: flex_attention(
        q, q, q, score_mod=lambda s, b, h, i, j: s * BIAS[h, j]),
    "a mask": lambda q: flex_attention(
        q, q, q, block_mask=CAUSAL).sin()}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ATTENTION)
def test_flex_attention_is_one_graph(name, backend):
    torch._dynamo.reset()
    compiled = assert_same(ATTENTION[name], QUERY, backend=backend,
                           fullgraph=True)
    assert compiled.stats().graphs == 1


def test_flex_attention_is_called_as_it_is():
    report = minicompile.explain(ATTENTION["a score"])(QUERY)
    assert sum("flex_attention" in op for op in report.externs) == 1
    text = str(trace(ATTENTION["a table"], (QUERY,)))
    assert "aten.index.Tensor(given_5, [given_2, given_4])" in text
