"""What libraries offer, used while tracing: followed, or refused."""

import collections
import copy
import dataclasses
import enum
import functools
import inspect
import logging
import types

import pytest
import torch
from torch import nn

import minicompile
from minicompile.core.errors import Unsupported
from minicompile.trace import trace
from tests.same import close

from .conftest import entry

LOGGER = logging.getLogger("tests.trace")
LSTM = nn.LSTM(4, 5, num_layers=2, batch_first=True)
LINEAR = nn.Linear(4, 4)


class Kind(enum.Enum):
    ONE = 1
    TWO = 2


Pair = collections.namedtuple("Pair", "left right")


def twice(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs) * 2
    return wrapper


class Positive:
    """A descriptor with a __set__ of its own."""

    def __set_name__(self, owner, name):
        self.name = "_" + name

    def __get__(self, owner, kind=None):
        return getattr(owner, self.name)

    def __set__(self, owner, value):
        setattr(owner, self.name, abs(value))


class Sized:
    size = Positive()


@torch.library.custom_op("minicompile_tests::triple", mutates_args=())
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@triple.register_fake
def _(x):
    return torch.empty_like(x)


@torch.compiler.allow_in_graph
def allowed(x):
    return x * 2


CASES = []


def case(function):
    CASES.append(function)
    return function


@case
def lstm(x):
    with torch.no_grad():
        return LSTM(x[None])


@case
def namedtuples(x):
    inside = collections.namedtuple("Inside", "a b")
    return Pair(x * 2, right=inside(x, 2).b)


@case
def enums(x):
    table = {Kind.ONE: 2, Kind.TWO: 3}
    return x * table[Kind(2)] + Kind.ONE.value + len(Kind)


@case
def decorated_inside(x):
    @twice
    def plus(y):
        return y + 1

    return plus(x), plus.__name__


@case
def descriptor(x):
    box = Sized()
    box.size = -3
    return x * box.size


@case
def logging_that_is_off(x):
    LOGGER.debug("never seen %s", x)
    if LOGGER.isEnabledFor(logging.DEBUG):
        x = x + 1
    return x * 2


@case
def custom_operator(x):
    return triple(x) + torch.ops.minicompile_tests.triple(x)


@case
def allow_in_graph(x):
    return allowed(x) + 1


@case
def deep_copies(x):
    box = Sized()
    box.items = [1, {"k": (2, 3)}]
    made = copy.deepcopy({"a": [1, (2, 3)], "box": copy.copy(box)})
    return made["a"], made["box"].items[0], made["box"].items is box.items


@case
def results_with_names(x):
    found = torch.sort(x)
    return found, torch.max(x, 0), found.values * 2


@case
def masked_sum(x):
    return torch.masked.sum(x, 0, mask=x > 0)


@case
def operator_given_a_callable(x):
    def loss(x):
        return nn.functional.triplet_margin_with_distance_loss(
            x, x + 1, x * 2, distance_function=lambda a, b: (a - b).abs())
    return loss(x), loss(x.sum())


@case
def module_made_inside(x):
    holder = nn.Module()
    holder.layer = LINEAR
    return holder.layer(x) + len(list(holder.named_parameters()))


@case
def the_signature_of_a_function(x):
    def scaled(x, scale=2):
        return x * scale
    given = inspect.signature(scaled).parameters
    return scaled(x, scale=len(given)) if "scale" in given else x


SIGNATURE = inspect.signature(lambda x, *, by=3, **more: x)


@case
def a_signature_from_outside(x):
    bound = SIGNATURE.bind(x, more=1)
    bound.apply_defaults()
    return bound.arguments["x"] * bound.arguments["by"]


@pytest.mark.parametrize("function", CASES, ids=lambda f: f.__name__)
def test_follows(function, follow):
    follow(function, torch.randn(3, 4))


def class_made_inside(x):
    class Base:
        factor = 3

        def __init__(self, n):
            self.n = n

        def times(self, y):
            return y * self.n * self.factor

    class Child(Base):
        def times(self, y):
            return super().times(y) + x

    return Child(2).times(x)


def dataclass_made_inside(x):
    @dataclasses.dataclass
    class Settings:
        n: int
        k: int = 2

    return x * Settings(4).k * Settings(5).n, repr(Settings(1) == Settings(1))


@pytest.mark.parametrize("function", [
    class_made_inside, dataclass_made_inside], ids=lambda f: f.__name__)
def test_a_class_statement_is_a_break(function):
    compiled = minicompile.compile(function, backend="eager")
    x = torch.ones(3, 4)
    for _ in range(2):
        close(compiled(x), function(x))
    assert not compiled.stats().fallbacks
    assert "__build_class__" in str(compiled.cache.breaks[0])


def test_a_logger_of_its_own_class_is_asked_as_often_as_eager():
    asked = []

    class Counting(logging.Logger):
        def isEnabledFor(self, level):
            asked.append(level)
            return super().isEnabledFor(level)

    logger = Counting("counting", logging.INFO)
    logger.disabled = True

    def function(x):
        logger.info("never seen")
        logger.warning("nor this")
        return x + 1

    compiled = minicompile.compile(function, backend="eager",
                                   fullgraph=True)
    for calls in (1, 2):
        compiled(torch.ones(3))
        assert asked == [logging.INFO, logging.WARNING] * calls
    logger.disabled = False
    with pytest.raises(Unsupported):
        compiled(torch.ones(3))


def test_questions_about_the_compiler():
    def f(x):
        scripting = torch.jit.is_scripting() or torch.jit.is_tracing()
        return x * 2 if torch.compiler.is_compiling() else x, scripting

    got, scripting = minicompile.compile(f, backend="eager")(torch.ones(2))
    assert torch.equal(got, torch.full((2,), 2.0)) and not scripting


@pytest.mark.parametrize("question", [
    torch.cuda.is_available, torch.cuda.device_count,
    torch.backends.mps.is_available, torch.accelerator.is_available,
    torch.accelerator.current_accelerator])
def test_questions_about_the_machine(question):
    compiled = minicompile.compile(
        lambda x: (x + 1, question()), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2))[1] == question()


@pytest.mark.gpu
def test_autocast_on_a_gpu_is_no_break():
    def f(x):
        with torch.autocast("cuda", torch.bfloat16):
            return x @ x, torch.cuda.current_device()

    x = torch.randn(8, 8, device="cuda")
    compiled = minicompile.compile(f, backend="eager", fullgraph=True)
    got, device = compiled(x)
    assert torch.equal(got, f(x)[0]) and got.dtype is torch.bfloat16
    assert device == x.device.index


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize("device", [
    "cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_what_surrounds_cudnns_layers_is_compiled(kind, device, monkeypatch):
    if device == "cpu":
        monkeypatch.setattr(torch.backends.cudnn, "is_acceptable",
                            lambda tensor: True)
    layer = kind(4, 5, num_layers=2, batch_first=True).to(device)

    def f(x):
        y, _ = layer(x.sin() * 2)
        return y.cos() + 1

    x = torch.randn(2, 3, 4, device=device)
    compiled, found = minicompile.compile(f), []
    for run in (compiled, compiled, f):
        y = run(x)
        y.sum().backward()
        found.append([y, *(p.grad for p in layer.parameters())])
        layer.zero_grad()
    torch.testing.assert_close(found[0], found[2])
    torch.testing.assert_close(found[1], found[2])
    stats = compiled.stats()
    assert stats.graphs == 2 and not stats.recompiles
    assert not stats.fallbacks
    with pytest.raises(Unsupported, match="cuDNN's"):
        minicompile.compile(f, fullgraph=True)(x)


@pytest.mark.parametrize(("kind", "steps", "breaks"), [
    (nn.LSTM, 3, 1), (nn.GRU, 3, 0), (nn.GRU, 40, 1), (nn.RNN, 40, 1)])
def test_a_long_recurrent_layer_is_not_unrolled(kind, steps, breaks):
    layer = kind(4, 5, num_layers=2)

    def f(x):
        return layer(x.sin())[0].cos()

    x = torch.randn(steps, 2, 4)
    compiled = minicompile.compile(f, backend="eager")
    torch.testing.assert_close(compiled(x), f(x))
    assert compiled.stats().graph_breaks == breaks
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), f(x))
    long = kind is not nn.LSTM and breaks
    assert compiled.stats().graph_breaks == breaks + long


def test_what_is_written_for_torchscript_is_python():
    @torch.jit.script_if_tracing
    def double(x):
        return x * 2

    def f(x):
        made = torch.jit.annotate(list[torch.Tensor], [])
        made.append(double(x))
        return made, torch.jit.isinstance(made, list[torch.Tensor])

    got, known = minicompile.compile(f, backend="eager", fullgraph=True)(
        torch.ones(2))
    assert torch.equal(got[0], torch.full((2,), 2.0)) and known is True


def scaled(x, by: float, least: int = 1):
    if x.size(0) > least:
        x = x * by
    return x + 1


@pytest.mark.parametrize("by, breaks", [(2.5, 0), (2, 1)])
def test_a_scripted_function_is_followed(by, breaks):
    """Not where TorchScript makes a float of an int."""
    script = torch.jit.script(scaled)
    compiled = minicompile.compile(lambda x: script(x, by).abs(),
                                   backend="eager")
    for x in (torch.arange(3), torch.arange(1), torch.randn(4, 3)):
        torch.testing.assert_close(compiled(x), script(x, by).abs())
    assert bool(compiled.stats().graph_breaks) == breaks


def doubled(x):
    return x * 2


def test_what_torchscript_traced_or_a_module_of_it_is_a_break():
    x, script = torch.randn(3), torch.jit.script(doubled)
    for made in (torch.jit.trace(doubled, x), torch.jit.script(nn.ReLU())):
        compiled = minicompile.compile(lambda x, made=made: made(x) + 1,
                                       backend="eager")
        assert torch.equal(compiled(x), made(x) + 1)
        assert compiled.stats().graph_breaks == 1
    assert torch.equal(script(x), doubled(x))


def test_what_is_asked_is_guarded():
    compiled = minicompile.compile(logging_that_is_off, backend="eager",
                                   fullgraph=True)
    x = torch.ones(3, 4)
    assert torch.equal(compiled(x), x * 2)
    LOGGER.setLevel(logging.DEBUG)
    try:
        with pytest.raises(Unsupported):
            compiled(x)
    finally:
        LOGGER.setLevel(logging.NOTSET)
    assert torch.equal(compiled(x), x * 2)


def test_in_inference_mode_writes_are_seen():
    def f(x):
        y = x + 1
        y[1:].mul_(3)
        return y, y.sum()

    for backend in ("eager", "fused"):
        with torch.inference_mode():
            compiled = minicompile.compile(f, backend=backend)
            for got, want in zip(compiled(torch.ones(3)),
                                 f(torch.ones(3)), strict=True):
                assert torch.equal(got, want)
                assert got.is_inference()
        assert compiled.stats().graphs == 1


def test_after_dynamo_has_run():
    torch.compile(lambda x: nn.Identity()(x), backend="eager")(torch.ones(2))
    assert "patched_init" in nn.Module.__init__.__qualname__
    compiled = minicompile.compile(lambda x: nn.ReLU()(x), fullgraph=True,
                                   backend="eager")
    assert torch.equal(compiled(-torch.ones(2)), torch.zeros(2))


class Odd(torch.Tensor):
    pass


@pytest.mark.parametrize("kind, function", [
    ("gradient", lambda x: LINEAR(x).sum().backward()),
    ("library", lambda x: torch.utils.checkpoint.checkpoint(
        LINEAR, x, use_reentrant=True)),
    ("builtin", lambda x: x.as_subclass(Odd)),
    ("attribute", lambda x: setattr(LINEAR, "weight", LSTM.weight_ih_l0)),
    ("builtin", lambda x: nn.Parameter(torch.ones(4, 4)) * x)])
def test_refuses(kind, function):
    with pytest.raises(Unsupported) as error:
        trace(entry, (function, (torch.ones(3, 4),), {}))
    assert error.value.kind == kind and error.value.hint


def test_refuses_a_tensor_subclass():
    with pytest.raises(Unsupported) as error:
        trace(entry, (lambda x: x * 2, (torch.ones(2).as_subclass(Odd),),
                      {}))
    assert error.value.kind == "input"


@pytest.mark.parametrize("function", [
    lambda x: torch.zeros(3, dtype=int) + x.to(float),
    lambda x: x.to(complex) + x.new_zeros(3, dtype=bool),
    lambda x: x.sum(dtype=float) + torch.arange(3, dtype=int),
    lambda x: x.type(torch.DoubleTensor) + x.type("torch.HalfTensor"),
    lambda x: torch.tensor([1.5], dtype=int) + x.to(x.device, int)])
def test_a_class_of_numbers_is_a_dtype(function):
    x = torch.tensor([1.5, -2.0, 0.0])
    found = minicompile.compile(function, fullgraph=True)(x)
    torch.testing.assert_close(found, function(x), rtol=0, atol=0)


def test_another_class_is_no_argument_of_a_graph():
    with pytest.raises(Unsupported) as error:
        trace(entry, (lambda x: x.to(str), (torch.ones(3),), {}))
    assert error.value.kind in ("argument", "exception")


def test_a_mappingproxy_shows_a_dict_as_it_is():
    table = {"a": 2}
    shown = types.MappingProxyType(table)

    def function(x, more):
        table.update(more)
        return x * shown["a"], len(shown), [*shown.values()], shown

    compiled = minicompile.compile(function, fullgraph=True)
    for more in ({}, {"b": 3}, {"a": 4}, {"b": 5}):
        before = {**table}
        found = compiled(torch.ones(2), more)
        table.clear()
        table.update(before)
        close(found[:3], function(torch.ones(2), more)[:3])
        assert found[3] is shown
