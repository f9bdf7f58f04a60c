"""Warnings and log records: breaks, and the same ones as eager's."""
# ruff: noqa: B028
import functools
import logging
import logging.handlers
import warnings

import pytest
import torch

import minicompile

LOGGER = logging.getLogger("tests.trace.messages")
KEPT = logging.handlers.MemoryHandler(1_000, flushLevel=1_000)


@pytest.fixture(autouse=True)
def listening():
    """The logger, heard by nobody but a handler that keeps records."""
    LOGGER.propagate = False
    LOGGER.addHandler(KEPT)
    yield
    LOGGER.removeHandler(KEPT)
    LOGGER.setLevel(logging.NOTSET)


def heard(function, *args, calls=2, action="always"):
    """What `calls` calls tell: records, then warnings."""
    KEPT.buffer.clear()
    once.cache_clear()
    warnings.onceregistry.clear()
    globals().pop("__warningregistry__", None)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter(action)
        results = [function(*args) for _ in range(calls)]
    return results, [
        (r.name, r.levelno, r.msg, r.args, r.getMessage(), r.pathname,
         r.lineno, r.funcName, r.exc_info) for r in KEPT.buffer], [
        (str(w.message), w.category, w.filename, w.lineno) for w in seen]


def assert_heard(function, *args, breaks=None, **options):
    """Compiled and eager tell the same; what they tell."""
    compiled = minicompile.compile(function, backend="eager")
    want = heard(function, *args, **options)
    got = heard(compiled, *args, **options)
    assert got[1:] == want[1:] and (want[1] or want[2])
    for ours, theirs in zip(got[0], want[0], strict=True):
        assert torch.equal(ours, theirs)
    stats = compiled.stats()
    assert stats.graph_breaks == (breaks or stats.graph_breaks)
    assert stats.graph_breaks and not stats.fallbacks
    return want[1:]


@functools.lru_cache(None)
def once(logger, message):
    logger.warning(message)


def lower(x):
    warnings.warn("of the callee", DeprecationWarning)
    LOGGER.error("of the callee: %s", x.dtype)
    return x + 1


def everything(x):
    LOGGER.info("not heard")
    LOGGER.log(45, "%d elements of %s", x.numel(), (x.dtype, type(x)))
    for _ in range(2):
        x = lower(x)
    once(LOGGER, "one time")
    warnings.warn(FutureWarning("an instance"))
    warnings.warn("the default")
    LOGGER.warning("end")
    return x * 2


@pytest.mark.parametrize("action", ["always", "default", "once", "ignore"])
def test_messages_are_eagers(action):
    records, shown = assert_heard(everything, torch.ones(3), calls=3,
                                  action=action)
    assert [r[1] for r in records].count(30) == 4  # the cached one once
    assert len(shown) == {"always": 12, "ignore": 0}.get(action, 3)


def test_a_break_between_messages():
    def f(x):
        LOGGER.warning("before")
        warnings.warn("before")
        x = x * 2
        minicompile.graph_break()
        warnings.warn("after")
        LOGGER.warning("after")
        return x + 1

    assert_heard(f, torch.ones(3), breaks=5)


def test_numbers_that_vary_stay_symbols():
    def f(x):
        LOGGER.warning("%d rows", x.shape[0])
        return x + x.shape[0]

    compiled = minicompile.compile(f, dynamic=True, backend="eager")
    KEPT.buffer.clear()
    for rows in (3, 4, 5):
        assert torch.equal(compiled(torch.ones(rows)),
                           torch.ones(rows) + rows)
    assert [r.getMessage() for r in KEPT.buffer] == [
        "3 rows", "4 rows", "5 rows"]
    assert compiled.stats().graphs == 1


def test_a_call_that_fails_tells_once():
    def f(x, at):
        LOGGER.warning("before")
        return x[at]

    KEPT.buffer.clear()
    compiled = minicompile.compile(f, backend="eager")
    with pytest.raises(IndexError):
        compiled(torch.ones(3), torch.tensor([5]))
    assert len(KEPT.buffer) == 1


def test_a_level_that_changes_is_noticed():
    def f(x):
        LOGGER.info("seen")
        return x + 1

    compiled = minicompile.compile(f, backend="eager")
    KEPT.buffer.clear()
    compiled(torch.ones(3))
    assert not KEPT.buffer and not compiled.stats().graph_breaks
    LOGGER.setLevel(logging.INFO)
    compiled(torch.ones(3))
    assert len(KEPT.buffer) == 1 and compiled.stats().graph_breaks == 1


def test_a_warning_that_is_an_error():
    def f(x):
        try:
            warnings.warn("careful", RuntimeWarning)
        except RuntimeWarning:
            return x - 1
        return x + 1

    compiled = minicompile.compile(f, backend="eager")
    x = torch.ones(3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(compiled(x), x + 1)
        warnings.filterwarnings("error", "care", RuntimeWarning)
        assert torch.equal(compiled(x), x - 1)
        warnings.filterwarnings("ignore", module="tests.trace")
        assert torch.equal(compiled(x), x + 1)


class Counting(logging.Handler):
    count = 0

    def emit(self, record):
        Counting.count += 1


def counted(x):
    LOGGER.warning("counted")
    return x + Counting.count


def test_a_users_handler_is_a_break():
    compiled = minicompile.compile(counted, backend="eager")
    x = torch.ones(3)
    assert torch.equal(compiled(x), x)
    LOGGER.addHandler(handler := Counting())
    try:
        assert torch.equal(compiled(x), x + 1)
        assert torch.equal(compiled(x), x + 2)
    finally:
        LOGGER.removeHandler(handler)


def about_a_caller(x):
    warnings.warn("outside the graph", stacklevel=2)
    return x + 1


def with_a_traceback(x):
    try:
        raise ValueError("wrong")
    except ValueError:
        LOGGER.exception("caught")
    return x + 1


class OwnWarning(UserWarning):
    def __init__(self, text):
        super().__init__(f"own {text}")


def of_ones_own(x):
    warnings.warn("class", OwnWarning)
    return x + 1


def of_a_list(x):
    LOGGER.warning("%s", [x.shape[0]])
    return x + 1


class Telling(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, tangent):
        LOGGER.warning("backward")
        return tangent * 2


@pytest.mark.parametrize("function", [
    about_a_caller, with_a_traceback, of_ones_own, of_a_list])
def test_a_message_is_a_break(function):
    with pytest.raises(minicompile.Unsupported) as error:
        minicompile.compile(function, fullgraph=True)(torch.ones(3))
    assert error.value.kind in ("builtin", "library") and error.value.hint
    compiled = minicompile.compile(function, backend="eager")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 2.0))


def test_a_backward_tells_when_it_runs():
    x = torch.ones(3, requires_grad=True)
    KEPT.buffer.clear()
    made = minicompile.compile(Telling.apply, backend="eager")(x)
    assert not KEPT.buffer
    made.sum().backward()
    assert len(KEPT.buffer) == 1 and torch.equal(x.grad, x.detach() * 2)


@functools.lru_cache(None)
def noted(logger, notes):
    notes.append(1)
    logger.warning("noted")


def test_a_cached_function_that_does_more():
    class Notes(list):
        __hash__ = object.__hash__

    def f(x, notes):
        noted(LOGGER, notes)
        return x + len(notes)

    compiled, notes = minicompile.compile(f, backend="eager"), Notes()
    for _ in range(3):
        assert torch.equal(compiled(torch.ones(3), notes),
                           torch.full((3,), 2.0))
    assert len(notes) == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("dynamic", [None, True])
def test_a_layers_output_compiles_where_warnings_are_errors(dynamic):
    """PyTorch warns of `.grad` as it makes the fake tensor."""
    compiled = minicompile.compile(lambda x: (x * 2).sin(), dynamic=dynamic,
                                   backend="eager", fullgraph=True)
    leaf = torch.ones(3, 4, requires_grad=True)
    for rows in (3, 2):
        x = leaf[:rows] + 1
        assert torch.equal(compiled(x), (x * 2).sin())
    assert compiled.stats().graphs
