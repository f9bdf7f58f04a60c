"""What nobody should compile, compiled: eager's behaviour, or its reason."""

# ruff: noqa: UP028, F841

import asyncio
import threading
from collections.abc import Sequence

import pytest
import torch

import minicompile
from minicompile.core.errors import Unsupported

X = torch.ones(3)


def compiled(function, **options):
    return minicompile.compile(function, backend="eager", **options)


def endless(x):
    return endless(x + 1)


@pytest.mark.filterwarnings("ignore")
def test_recursion_without_end():
    run = compiled(endless)
    for _ in range(2):
        with pytest.raises(RecursionError):
            run(X)
    with pytest.raises(Unsupported, match="write the recursion as a loop"):
        compiled(endless, fullgraph=True)(X)


@pytest.mark.filterwarnings("ignore")
def test_an_operator_given_a_list_that_contains_itself():
    def stacked(x):
        each = [x]
        each.append(each)
        return torch.stack(each)
    with pytest.raises(TypeError, match="element 1"):
        compiled(stacked)(X)


def steps(log):
    try:
        for i in range(5):
            yield i
    finally:
        log.append("closed")


def walks_a_little(x, log):
    for i in steps(log):
        x = x + i
        if i == 2:
            break
    log.append("after")
    return x


def takes_one(x, log):
    walk = steps(log)
    x = x + next(walk)
    del walk
    log.append("after")
    return x


def hands_it_out(x, log):
    walk = steps(log)
    return x + next(walk), walk


class Parts(Sequence):
    def __len__(self):
        return 5

    def __getitem__(self, at):
        return at


def walks_a_sequence(x, log):
    for i, j in zip([1, 2], Parts()):
        x = x + i * j
    log.append("after")
    return x


def test_a_generator_that_only_looks_for_its_own_exceptions():
    run = compiled(walks_a_sequence, fullgraph=True)
    assert torch.equal(run(X, []), walks_a_sequence(X, []))


def keeps_it_in_a_list(x, log):
    walks = [steps(log)]
    x = x + next(walks[0])
    walks.clear()
    log.append("after")
    return x


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("function", [
    walks_a_little, takes_one, hands_it_out, keeps_it_in_a_list])
def test_a_generator_left_half_run(function):
    results = []
    for run in function, compiled(function):
        logs = [], []
        for log in logs:
            got = run(X, log)
            if type(got) is tuple:
                got, walk = got[0], got[1]
                log.append(list(walk))
            results.append((got.tolist(), log))
    assert results[:2] == results[2:]


def test_a_function_without_source():
    names = {"torch": torch}
    exec("def f(x):\n    if x.sum() > 0:\n        return torch.relu(x) * 2\n"
         "    return x", names)
    run = compiled(names["f"])
    assert torch.equal(run(X), X * 2) and torch.equal(run(-X), -X)
    assert run.stats().graph_breaks == 1
    with pytest.raises(Unsupported, match="<string>:2"):
        compiled(names["f"], fullgraph=True)(X)


def test_a_c_function():
    assert compiled(len)([1, 2]) == 2
    assert torch.equal(compiled(torch.add)(X, X), X * 2)
    assert torch.equal(compiled(torch.Tensor.mul)(X, 3), X * 3)


class Pair:
    def __init__(self, a, b):
        self.a, self.b = a, b + 1


def test_a_class():
    made = compiled(Pair)(X, X * 2)
    assert type(made) is Pair and made.a is X
    assert torch.equal(made.b, X * 3)


async def later(x):
    return x * 2


async def some(x):
    yield x


@pytest.mark.filterwarnings("ignore")
def test_an_async_function():
    assert torch.equal(asyncio.run(compiled(later)(X)), X * 2)
    walk = compiled(some)(X)
    assert torch.equal(asyncio.run(anext(walk)), X)

    def starts(x):
        waiting = later(x * 3)
        return x + 1, waiting

    got, waiting = compiled(starts)(X)
    assert torch.equal(asyncio.run(waiting), X * 6)
    assert torch.equal(got, X + 1)


def counts(n):
    for i in range(n):
        yield i


@pytest.mark.filterwarnings("ignore")
def test_a_generator_function():
    assert list(compiled(counts)(3)) == [0, 1, 2]
    with pytest.raises(Unsupported, match="cannot be traced"):
        compiled(counts, fullgraph=True)(3)


@pytest.mark.filterwarnings("ignore")
def test_exec_and_eval():
    def executes(x):
        names = {"x": x * 2}
        exec("y = x + 1", names)
        return names["y"], eval("x * 3", {"x": x})

    for got, want in zip(compiled(executes)(X), executes(X), strict=True):
        assert torch.equal(got, want)

    def in_its_own_names(x):
        y = x + 1
        return eval("y * 2")

    assert torch.equal(compiled(in_its_own_names)(X), (X + 1) * 2)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("before", [True, False])
def test_a_function_that_raises_while_it_is_traced(before):
    def fails(x, log):
        log.append("before")
        if before:
            raise KeyError("no")
        y = x * 2
        log.append("middle")
        return log[y.dim() + 5]

    run = compiled(fails)
    for want in (KeyError, KeyError) if before else (IndexError,) * 2:
        log = []
        with pytest.raises(want):
            run(X, log)
        assert log == ["before", "middle"][:2 - before]


def test_what_is_compiled_already():
    def f(x):
        return x * 2 + 1

    twice = compiled(compiled(f))
    assert torch.equal(twice(X), f(X))
    by_torch = torch.compile(f, backend="eager")
    assert torch.equal(compiled(by_torch)(X), f(X))
    assert torch.equal(torch.compile(compiled(f), backend="eager")(X), f(X))

    inner = compiled(f)
    for function in inner, by_torch:
        outer = compiled(lambda x, function=function: function(x) * 3)
        assert torch.equal(outer(X), f(X) * 3)
        assert outer.stats().graphs == 1
    layer = torch.nn.Linear(3, 3)
    for module in compiled(layer), torch.compile(layer, backend="eager"):
        outer = compiled(module)
        torch.testing.assert_close(outer(X), layer(X))


def test_threads_that_compile_one_function():
    def f(x, log):
        y = x * 2
        log.append(len(log))
        minicompile.graph_break()
        return y + len(log)

    run, outcomes = compiled(f), []
    start = threading.Barrier(8)

    def work(n):
        x, log = torch.full((3,), float(n)), []
        start.wait()
        for _ in range(3):
            outcomes.append((n, run(x, log).tolist(), list(log)))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(outcomes) == 24
    for n, got, log in outcomes:
        assert log == list(range(len(log)))
        assert got == [2.0 * n + len(log)] * 3
    assert run.stats().graphs == 4 and run.stats().graph_breaks == 2
