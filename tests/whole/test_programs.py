"""Random programs in most of Python: compiled, they do what eager does."""

import contextlib
import io
import linecache
import random
import types
import warnings
from collections import deque

import pytest
import torch

import minicompile
from tests.whole.grammar import program

PLAIN = bool, int, float, str, type(None)


def described(value: object, seen: dict) -> object:
    """What can be told of a value: all of its parts, and which of them
    are one object."""
    if isinstance(value, PLAIN):
        return type(value).__name__, repr(value)
    if id(value) in seen:
        return "the same as", seen[id(value)][0]
    seen[id(value)] = len(seen), value
    kind = type(value).__qualname__
    if isinstance(value, torch.Tensor):
        numbers = value.detach().double().flatten().tolist()
        return (kind, value.dtype, value.shape, value.stride(),
                value.requires_grad, [f"{x:.4g}" for x in numbers])
    if isinstance(value, types.FunctionType):
        parts = [c.cell_contents for c in value.__closure__ or ()]
    elif isinstance(value, dict):
        parts = [part for item in value.items() for part in item]
    elif isinstance(value, (set, frozenset)):
        parts = sorted(value, key=repr)
    elif isinstance(value, (list, tuple, deque)):
        parts = [*value]
    else:
        parts = [getattr(value, "__dict__", None)]  # a method has none
    return kind, [described(part, seen) for part in parts]


def history(source: str, calls: list, wrap) -> list:
    """What some calls return, raise, print and leave behind."""
    name = f"<program {id(source)} {wrap.__name__}>"
    linecache.cache[name] = (len(source), None, source.splitlines(True), name)
    module = {"__name__": "grown"}
    exec(compile(source, name, "exec"), module)
    function, state, found = wrap(module["f"]), module["State"](), []
    for rows, number, wanted in calls:
        x = torch.sin(torch.arange(rows * 2.0)).view(rows, 2)
        x.requires_grad_(wanted)
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            try:
                result = function(x, number, state)
            except Exception as error:
                result = type(error).__name__, str(error), type(
                    error.__context__).__name__
        left = [state, module["KEPT"], module["G"], module["State"].kind, x,
                torch.is_grad_enabled(), len(state.l) > 10_000]
        found.append((described([result, left], {}), printed.getvalue()))
        if left[-1]:
            break
    return found


def check(seed: int) -> None:
    """Five calls, whose sizes and numbers change, beside eager's."""
    source, pick = program(seed), random.Random(seed)
    calls = [(pick.choice([3, 3, 3, 4, 2]), pick.choice([2, 2, 3, 0]),
              pick.random() < 0.25) for _ in range(5)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        want = history(source, calls, lambda f: f)
        got = history(source, calls, lambda f: minicompile.compile(
            f, backend="eager"))
    for ours, eagers in zip(got, want, strict=True):
        assert ours == eagers, source[source.index("def f("):]


@pytest.mark.parametrize("seed", range(20))
def test_a_sample_of_programs(seed):
    check(seed)


@pytest.mark.slow(sample=10)
@pytest.mark.parametrize("seed", range(100, 400))
def test_many_programs(seed):
    check(seed)
