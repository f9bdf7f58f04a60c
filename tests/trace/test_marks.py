"""What programs say to the compiler, and operators of their own."""

import functools
import importlib
from contextlib import nullcontext

import pytest
import torch
from torch import nn

import minicompile
from minicompile.trace import trace
from tests.same import assert_same

BACKENDS = ("eager", "split", "fused")


def asks(x):
    if minicompile.is_compiling() and torch.compiler.is_compiling():
        return x * 2
    return x * 3


def test_is_compiling_is_true_only_in_a_trace():
    x = torch.ones(3)
    assert not minicompile.is_compiling()
    assert torch.equal(asks(x), x * 3)
    compiled = minicompile.compile(asks, fullgraph=True)
    assert torch.equal(compiled(x), x * 2)
    assert not minicompile.is_compiling()


@minicompile.allow_in_graph
def opaque(x, power):
    return x ** (power + 0 * id(x)), x + 1  # no trace could follow id()


@minicompile.disallow_in_graph
def outside(x):
    return x - 1


@pytest.mark.parametrize("backend", BACKENDS)
def test_allow_in_graph_is_one_node(backend):
    def fn(x):
        a, b = opaque(x.sin(), 2)
        return a * b

    x = torch.rand(3, requires_grad=True)
    assert_same(fn, x, backend=backend, fullgraph=True)
    targets = [n.target for n in trace(fn, (x,)).graph.graph.nodes]
    assert opaque in targets


def test_disallow_in_graph_is_a_break():
    compiled = assert_same(lambda x: outside(x * 2) * 3, torch.rand(3))
    assert compiled.stats().graph_breaks == 1
    assert compiled.cache.breaks[0].kind == "disabled"


def theirs(x):
    y = x * 2
    torch._dynamo.graph_break()
    return y + 1


def test_dynamos_marks_act_as_ours():
    compiled = assert_same(theirs, torch.rand(3))
    assert [b.kind for b in compiled.cache.breaks] == ["asked"]

    @torch.compiler.disable
    def left_alone(x):
        return x + 1

    compiled = assert_same(lambda x: left_alone(x * 2) * 2, torch.rand(3))
    assert [b.kind for b in compiled.cache.breaks] == ["disabled"]
    assert_same(lambda x: torch.compiler.allow_in_graph(
        plain)(x * 2), torch.rand(3), fullgraph=True)
    assert_same(lambda x: x + torch.compiler.is_exporting(),
                           torch.rand(3), fullgraph=True)


def plain(x):
    return x * 5


def inferring(x):
    y = x * 2
    with torch.inference_mode():
        z = y.sin() + 1
        w = z * 2
    return y.cos(), z, w


@pytest.mark.parametrize("backend", BACKENDS)
def test_inference_mode_entered_inside(backend):
    x = torch.rand(3, requires_grad=True)
    compiled = minicompile.compile(inferring, backend=backend)
    for _ in range(2):
        got, want = compiled(x), inferring(x)
        for ours, theirs in zip(got, want):
            torch.testing.assert_close(ours, theirs)
            assert ours.requires_grad == theirs.requires_grad
            assert ours.is_inference() == theirs.is_inference()
        torch.testing.assert_close(
            torch.autograd.grad(got[0].sum(), x),
            torch.autograd.grad(want[0].sum(), x))
        with pytest.raises(RuntimeError):
            got[1] * x
    assert not torch.is_inference_mode_enabled()
    assert not compiled.stats().fallbacks


class Hooked(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(3, 3)
        self.inner.register_forward_pre_hook(lambda m, args: (
            args[0] * 2,))
        self.inner.register_forward_hook(
            lambda m, args, kwargs, out: out + args[0], with_kwargs=True)

    def forward(self, x):
        return self.inner(x).relu()


@pytest.mark.parametrize("backend", BACKENDS)
def test_forward_hooks(backend):
    model = Hooked()
    assert_same(model, torch.rand(2, 3, requires_grad=True),
                backend=backend, fullgraph=True)


# Operators from torch.library


@torch.library.custom_op("graphs_test::scale", mutates_args=())
def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * factor)


@scale.register_fake
def _(x, factor):
    return torch.empty_like(x)


scale.register_autograd(
    lambda ctx, g: (g * ctx.factor * 10, None),
    setup_context=lambda ctx, inputs, output: setattr(
        ctx, "factor", inputs[1]))


@torch.library.custom_op("graphs_test::bump", mutates_args=("x",))
def bump(x: torch.Tensor) -> None:
    x.detach().numpy()[...] += 1


@torch.library.custom_op("graphs_test::blind", mutates_args=())
def blind(x: torch.Tensor) -> torch.Tensor:
    return x.clone() * 3


@torch.library.custom_op("graphs_test::flat", mutates_args=())
def flat(x: torch.Tensor) -> torch.Tensor:
    return x.clone() * 3


@flat.register_fake
def _(x):
    return torch.empty_like(x)


@pytest.mark.parametrize("backend", BACKENDS)
def test_custom_operators(backend):
    x = torch.rand(3, requires_grad=True)
    assert_same(lambda x: scale(x.sin(), 2.0).cos(), x, backend=backend,
                fullgraph=True)
    assert_same(lambda x: torch.ops.graphs_test.scale(x.sin(), 2.0), x,
                backend=backend, fullgraph=True)

    def bumped(x):
        y = x * 2
        bump(y)
        return y * 3

    assert_same(bumped, torch.rand(3), backend=backend, fullgraph=True,
                fallback=backend != "eager")  # a write that is not ATen's


def test_one_without_a_fake_kernel_is_a_break():
    compiled = assert_same(lambda x: blind(x * 2) * 3, torch.rand(3))
    assert compiled.stats().graph_breaks == 1
    with pytest.raises(minicompile.Unsupported, match="fake") as error:
        minicompile.compile(lambda x: blind(x), fullgraph=True)(
            torch.rand(3))
    assert error.value.where.file == __file__


@pytest.mark.parametrize("backend", BACKENDS)
def test_one_without_a_backward_is_eagers_error(backend):
    x = torch.rand(3, requires_grad=True)
    compiled = minicompile.compile(lambda x: flat(x * 2) * 3,
                                   backend=backend)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), x * 18)
    with pytest.raises(RuntimeError, match="flat"):
        compiled(x).sum().backward()


def test_errors_is_a_public_module():
    from minicompile import errors
    assert errors.Unsupported is minicompile.Unsupported
    assert issubclass(errors.RecompileLimit, errors.MinicompileError)
    assert {"BackendError", "OptionError"} <= set(errors.__all__)
    assert importlib.import_module("minicompile.errors") is errors


@pytest.mark.parametrize("mark", [
    minicompile.disable, torch.compiler.disable, torch._dynamo.disable])
def test_a_function_disabled_in_every_call_is_one_break(mark):
    """What it is wrapped in is new each time, and known by its code."""
    seen = []

    def hook(x):
        seen.append(x.sum().item())
        return x + 1

    def fn(x):
        return mark(hook)(x * 2) * 3

    compiled = minicompile.compile(fn)
    for step in range(12):
        x = torch.full((2,), float(step))
        assert torch.equal(compiled(x), (x * 2 + 1) * 3)
    assert seen == [4.0 * step for step in range(12)]
    assert compiled.stats().graph_breaks == 1
    assert compiled.stats().recompiles == 0


def test_a_wrapped_function_passed_anew_is_known_by_its_code():
    def plain(x):
        return x + 1

    def wrapped(by):
        @functools.wraps(plain)
        def wrapper(x):
            return plain(x) * by
        return wrapper

    compiled = minicompile.compile(lambda f, x: f(x * 2))
    x = torch.ones(2)
    for by in (3, 3, 3):
        assert compiled(wrapped(by), x).tolist() == [9, 9]
    assert compiled.stats().recompiles == 0
    assert compiled(wrapped(5), x).tolist() == [15, 15]
    disabled = minicompile.disable(wrapped(3))
    assert compiled(disabled, x).tolist() == [9, 9]
    assert compiled.stats().graph_breaks == 1


SETTING = {"scale": 2.0, "calls": 0}


@torch.compiler.assume_constant_result
def setting(name):
    SETTING["calls"] += 1
    return SETTING[name], [SETTING["scale"], "seen"]


def test_an_assumed_constant_is_asked_once(monkeypatch):
    monkeypatch.setitem(SETTING, "calls", 0)
    x = torch.rand(3)
    compiled = minicompile.compile(
        lambda x: (x * setting("scale")[0], setting("scale")[1][1]),
        fullgraph=True)
    assert compiled(x)[0].equal(x * 2) and compiled(x)[1] == "seen"
    monkeypatch.setitem(SETTING, "scale", 3.0)
    assert compiled(x)[0].equal(x * 2)
    assert SETTING["calls"] == 2 and compiled.stats().recompiles == 0


def test_an_assumed_constant_of_a_tensor_is_a_break():
    @torch.compiler.assume_constant_result
    def size(x):
        return x.shape[0]

    compiled = assert_same(lambda x: x * size(x), torch.rand(3))
    assert compiled.cache.breaks[0].kind == "disabled"


def test_who_raises_when_compiled_is_not_told():
    """As LongT5, which makes no mask if torch.compile is at work."""
    def f(x, bad):
        if bad:
            raise ValueError("bad")
        mask = None if torch.compiler.is_compiling() else x > 0
        return x * mask.sum(), torch.compiler.is_compiling()

    x = torch.randn(3)
    compiled = minicompile.compile(f, fullgraph=True)
    for _ in range(2):
        torch.testing.assert_close(compiled(x, False), f(x, False))
    assert compiled.stats().graphs == 1
    compiled = minicompile.compile(f, backend="eager")
    for bad in True, False:
        with pytest.raises(ValueError) if bad else nullcontext():
            torch.testing.assert_close(compiled(x, bad), f(x, bad))
    assert not compiled.stats().fallbacks


def test_names_for_a_profiler_change_no_result():
    named = torch.profiler.record_function

    def f(x):
        with named("add") as block:
            y = x + 1
        return named(name="double")(lambda x: x * 2)(y), block is None

    assert_same(f, torch.rand(3), fullgraph=True)


# Marks and names that functools.wraps() has copied


def adding(function, number):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        CALLS.append(number)
        return function(*args, **kwargs) + number
    return wrapper


CALLS = []
MARKING = {
    "ours": functools.partial(minicompile.compile, backend="eager"),
    "torch": functools.partial(torch.compile, backend="eager"),
    "ours, disabled": minicompile.disable,
    "torch, disabled": torch.compiler.disable}


@pytest.mark.parametrize("mark", MARKING.values(), ids=MARKING)
def test_another_marked_function_is_another(mark):
    compiled = minicompile.compile(
        lambda x, f: f(x), backend="eager", options={"recompile_limit": 50})
    for one in (nn.functional.relu, lambda x: x * 2, nn.functional.silu,
                lambda x: x * 3, adding(torch.relu, 5)):
        for two in (mark(one), adding(mark(one), 7)):
            for _ in range(2):
                assert torch.equal(compiled(torch.ones(2), two),
                                   two(torch.ones(2)))


@pytest.mark.parametrize("function", [
    nn.functional.relu, nn.functional.max_pool1d, torch.relu, torch.split])
def test_a_wrapper_of_torch_s_function_is_the_program_s(function):
    given = {nn.functional.max_pool1d: [2], torch.split: [2]}.get(
        function, [])
    wrapper = adding(lambda x, *more: torch.stack([*function(x, *more)]), 3)
    functools.update_wrapper(wrapper, function)
    compiled = minicompile.compile(
        lambda x: wrapper(x, *given) * getattr(wrapper, "factor", 1),
        backend="eager")
    CALLS.clear()
    for factor in (1, 2, 3):
        wrapper.factor = factor
        got = compiled(torch.ones(2, 4))
        assert torch.equal(got, (torch.stack([
            *function(torch.ones(2, 4), *given)]) + 3) * factor)
    assert CALLS == [3, 3, 3]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("home, name", [
    (nn.functional, "relu"), (torch, "add"), (torch, "relu"),
    (torch.Tensor, "relu")])
def test_a_function_put_in_torch_s_place_calls_it(
        monkeypatch, home, name, backend):
    function = getattr(home, name)
    given = [torch.ones(2)] * (2 if name == "add" else 1)
    want = function(*given) + 4
    monkeypatch.setattr(home, name, adding(function, 4))
    compiled = minicompile.compile(
        lambda *args: getattr(home, name)(*args), backend=backend)
    assert torch.equal(compiled(*given), want)


@pytest.mark.parametrize("backend", ["eager", "split"])
def test_torch_s_functions_call_the_one_in_its_place(monkeypatch, backend):
    home, name = nn.functional, "scaled_dot_product_attention"
    monkeypatch.setattr(home, name, adding(getattr(home, name), 4))
    model, x = nn.MultiheadAttention(4, 2), torch.ones(3, 4)
    want = model(x, x, x, need_weights=False)[0]
    compiled = minicompile.compile(model, backend=backend)
    CALLS.clear()
    for _ in range(2):
        got = compiled(x, x, x, need_weights=False)[0]
        torch.testing.assert_close(got, want)
    assert CALLS == [4, 4]


def test_a_function_in_a_graph_may_have_copied_its_name():
    allowed = minicompile.allow_in_graph(adding(nn.functional.relu, 2))
    compiled = minicompile.compile(lambda x: allowed(x), backend="eager")
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))


class Stepping:
    @functools.partial(minicompile.compile, backend="eager")
    def step(self, x):
        return x + 1


def test_what_is_compiled_is_compiled_again():
    inner = minicompile.compile(asks, backend="eager")
    inner(torch.ones(2)), Stepping().step(torch.ones(2))
    for target, want in ((inner, 2.0), (Stepping().step, 2.0)):
        outer = minicompile.compile(target, backend="eager")
        assert torch.equal(outer(torch.ones(2)), torch.full((2,), want))
        assert (outer.stats().graphs, outer.stats().graph_breaks) == (1, 0)
        assert not outer.stats().fallbacks
