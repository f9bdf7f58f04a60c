"""The entries of a function: order, limits, stances, death, threads."""

import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import pytest
import torch
from torch import nn

import minicompile
from minicompile.dispatch.policy.young import young_only


def affine(x, scale=2, *, shift=1):
    return x * scale + shift


@pytest.fixture(autouse=True)
def as_before():
    yield
    minicompile.set_stance("default")
    minicompile.reset()


def test_the_entry_that_held_is_asked_first():
    compiled = minicompile.compile(affine, dynamic=False)
    made = {}
    for size in (2, 3, 4):
        compiled(torch.zeros(size))
        made[size] = compiled.cache.entries[0]
    for size in (2, 2, 4, 3, 3, 2):
        compiled(torch.zeros(size))
        wanted = made[size]
        assert compiled.cache.entries[0] is wanted
        assert compiled.cache.first == (wanted.check.function, wanted.run)
    assert len(compiled.cache.entries) == 3
    assert compiled.stats().graphs == 3


def test_at_the_limit_one_warning_tells_the_history():
    compiled = minicompile.compile(
        affine, options={"recompile_limit": 3}, dynamic=False)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for size in range(2, 9):
            assert compiled(torch.ones(size)).tolist() == [3.0] * size
            assert compiled(torch.ones(size, dtype=torch.int64)).sum()
    text, = (str(each.message) for each in seen)
    assert "affine was compiled 3 times" in text
    assert "recompile_limit" in text and "hint" in text
    assert "dtype of `x` was torch.float32, is torch.int64" in text
    assert "size of dimension 0 of `x` was 2, is 3" in text
    stats = compiled.stats()
    assert (stats.graphs, stats.recompiles) == (3, 2)
    assert stats.fallbacks == {"recompile limit": 1}


class Thing:
    pass


def compared(thing, wanted, x):
    return x + {thing: 2}.get(wanted, 3)


@pytest.mark.slow
def test_entries_that_died_count_in_the_accumulated_limit():
    compiled = minicompile.compile(compared, options={
        "recompile_limit": 2, "accumulated_recompile_limit": 5})
    with pytest.warns(UserWarning, match="accumulated_recompile_limit"):
        for _ in range(8):
            thing = Thing()
            assert compiled(thing, thing, torch.zeros(1)).item() == 2
            del thing
            gc.collect()
            assert compiled.cache.entries == ()
    assert compiled.stats().graphs == 5


STANCES = ("default", "force_eager", "eager_on_recompile",
           "fail_on_recompile")


def counted(function):
    """A backend that counts how often its graphs run."""
    runs = []

    def backend(graph, inputs):
        def run(*given):
            runs.append(1)
            return graph(*given)
        return run
    return minicompile.compile(function, backend=backend,
                               dynamic=False), runs


def test_force_eager_runs_nothing_compiled():
    compiled, runs = counted(affine)
    compiled(torch.zeros(2))
    with minicompile.set_stance("force_eager"):
        assert compiled(torch.zeros(2)).tolist() == [1, 1]
        assert compiled(torch.zeros(3)).tolist() == [1] * 3
    assert len(runs) == 1 and compiled.stats().graphs == 1
    compiled(torch.zeros(2))
    assert len(runs) == 2


def test_eager_on_recompile_uses_what_is_there():
    compiled, runs = counted(affine)
    compiled(torch.zeros(2))
    with minicompile.set_stance("eager_on_recompile"):
        compiled(torch.zeros(2))
        assert compiled(torch.zeros(3)).tolist() == [1] * 3
        fresh, others = counted(affine)
        assert fresh(torch.zeros(2)).tolist() == [1, 1]
    assert len(runs) == 2 and others == []
    assert compiled.stats().graphs == 1


def test_fail_on_recompile_names_the_reasons():
    compiled, runs = counted(affine)
    compiled(torch.zeros(2))
    compiled(torch.zeros(3))
    with minicompile.set_stance("fail_on_recompile"):
        compiled(torch.zeros(2))
        with pytest.raises(minicompile.RecompileLimit) as caught:
            compiled(torch.zeros(4))
        assert "was 2, is 4" in str(caught.value)
        assert "was 3, is 4" in str(caught.value)
    assert compiled(torch.zeros(4)).tolist() == [1] * 4


def test_limits_set_for_torch_compile_hold_here():
    compiled, runs = counted(affine)
    with torch._dynamo.config.patch(recompile_limit=3), (
            pytest.warns(UserWarning, match="recompile_limit")):
        for size in range(2, 8):
            compiled(torch.zeros(size))
    assert compiled.stats().graphs == 3


@pytest.mark.parametrize("stance", ["force_eager", "eager_on_recompile"])
def test_a_stance_taken_with_torch_compiler_stops_compiling(stance):
    compiled, runs = counted(affine)
    compiled(torch.zeros(2))
    with torch.compiler.set_stance(stance):
        assert compiled(torch.zeros(3)).shape == (3,)
        assert compiled.stats().graphs == 1
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(torch.zeros(2))
        with pytest.raises(minicompile.RecompileLimit):
            compiled(torch.zeros(3))
    compiled(torch.zeros(3))
    assert compiled.stats().graphs == 2


@pytest.mark.parametrize("take", [minicompile.set_stance,
                                  torch.compiler.set_stance])
@pytest.mark.parametrize("stance", ["eager_then_compile",
                                    "aot_eager_then_compile"])
def test_the_first_call_runs_as_eager_and_shows_its_sizes(take, stance):
    def broken(x):
        minicompile.graph_break()
        return affine(x) * 2

    for function in (affine, broken):
        compiled = minicompile.compile(function)
        with take(stance):
            for size in (3, 4, 5):
                wanted = function(torch.ones(size))
                assert compiled(torch.ones(size)).equal(wanted)
                if size == 3:
                    assert compiled.cache.entries == ()
        stats = compiled.stats()
        assert (stats.graphs, stats.recompiles) == (1, 0)


def test_a_graph_without_an_operator_reaches_no_backend():
    seen = []

    def backend(graph, inputs):
        seen.append(graph)
        return graph
    compiled = minicompile.compile(lambda x, n: (n + 1, x), backend=backend)
    x = torch.zeros(2)
    assert compiled(x, 2)[0] == 3 and compiled(x, 2)[1] is x
    assert seen == [] and compiled.stats().graphs == 0


@pytest.mark.parametrize("stance", STANCES)
def test_a_stance_as_function_block_and_decorator(stance):
    from minicompile.dispatch.policy import misses as module

    @minicompile.set_stance(stance)
    def inside():
        return module.ours
    assert module.ours == "default"
    assert inside() == stance and module.ours == "default"
    with minicompile.set_stance(stance):
        assert module.ours == stance
        with minicompile.set_stance("force_eager"):
            assert inside() == stance
        assert module.ours == stance
    assert module.ours == "default"
    minicompile.set_stance(stance)
    assert module.ours == stance
    with pytest.raises(ZeroDivisionError):
        with minicompile.set_stance("force_eager"):
            raise ZeroDivisionError
    assert module.ours == stance


def test_an_unknown_stance_is_an_error_and_changes_nothing():
    from minicompile.dispatch.policy import misses as module
    with pytest.raises(minicompile.OptionError, match="eager_on_recompile"):
        minicompile.set_stance("relaxed")
    assert module.ours == "default"


def standing(x):
    y = x + 1
    with minicompile.set_stance("force_eager"):
        y = y * 2
    return y + 1


def test_a_stance_taken_in_compiled_code_is_taken_as_in_eager():
    from minicompile.dispatch.policy import misses as module
    compiled = minicompile.compile(standing)
    for _ in range(2):
        assert compiled(torch.zeros(2)).tolist() == [3, 3]
        assert module.ours == "default"


def apply(module, x):
    return module(x)


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
@pytest.mark.parametrize("train", [True, False])
def test_no_entry_keeps_a_model_alive(backend, train):
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU()).requires_grad_(train)
    compiled = minicompile.compile(apply, backend=backend)
    x = torch.randn(2, 3)
    compiled(model, x).sum()
    dead = [weakref.ref(each) for each in (model, model[0].weight, x)]
    del model, x
    gc.collect()
    assert [ref() for ref in dead] == [None] * 3


def test_an_entry_goes_with_the_object_it_was_made_for():
    compiled = minicompile.compile(compared)
    one, two, x = Thing(), Thing(), torch.zeros(4)
    compiled(two, two, x)
    compiled(one, one, x)
    kept, entry = map(weakref.ref, compiled.cache.entries[::-1])
    del one
    gc.collect()
    assert entry() is None and compiled.cache.entries == (kept(),)
    assert compiled(two, two, x).tolist() == [2] * 4
    assert compiled(two, Thing(), x).tolist() == [3] * 4
    assert compiled.stats().graphs == 3


def test_defaults_are_those_of_the_call():
    def local(x, by=2, *, plus=0):
        return x * by + plus
    compiled = minicompile.compile(local)
    x = torch.ones(1)
    assert compiled(x).item() == 2
    local.__defaults__ = (5,)
    assert compiled(x).item() == 5
    local.__kwdefaults__ = {"plus": 1}
    assert compiled(x).item() == 6
    local.__defaults__ = None
    with pytest.raises(TypeError):
        compiled(x)
    assert compiled(x, 7).item() == 8


def test_code_replaced_after_compile_is_compiled_at_the_next_call():
    def local(x):
        return x + 1

    def other(x, more=3):
        return x + more
    compiled = minicompile.compile(local)
    x = torch.zeros(1)
    assert compiled(x).item() == 1
    local.__code__, local.__defaults__ = other.__code__, (3,)
    for _ in range(2):
        assert compiled(x).item() == 3
    assert compiled(x, 4).item() == 4
    assert compiled(x, more=5).item() == 5
    stats = compiled.stats()
    assert stats.fallbacks == {"code replaced": 1}
    assert stats.graphs >= 3


@pytest.mark.parametrize("dynamic, count", [(False, 12), (None, 2)])
def test_many_threads_many_shapes(dynamic, count):
    compiled = minicompile.compile(
        affine, options={"recompile_limit": 64}, backend="eager",
        dynamic=dynamic)
    wrong, start = [], threading.Barrier(8)

    def work(seed):
        start.wait()
        for turn in range(60):
            size = 2 + (seed * 7 + turn) % 12
            found = compiled(torch.ones(size))
            if found.tolist() != [3.0] * size:
                wrong.append((seed, size))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    stats = compiled.stats()
    assert (stats.graphs, stats.recompiles) == (count, count - 1)
    assert len(compiled.cache.entries) == count


def test_reset_while_others_call():
    compiled = minicompile.compile(affine, backend="eager")
    stop, wrong = threading.Event(), []

    def work():
        while not stop.is_set():
            if compiled(torch.ones(3)).tolist() != [3.0] * 3:
                wrong.append(1)

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        minicompile.reset()
    stop.set()
    thread.join()
    assert wrong == []


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = 2

    def forward(self, x):
        return x * self.scale


def test_a_model_that_another_thread_changes_gives_old_or_new():
    model = nn.Sequential(*(Scaled() for _ in range(6)))
    compiled = minicompile.compile(model, backend="eager", options=None)
    stop, values, x = threading.Event(), set(), torch.ones(1)

    def change():
        while not stop.is_set():
            model[3].scale = 5 - model[3].scale
            model._modules["1"] = Scaled()

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(300):
            values.add(compiled(x).item())
    finally:
        stop.set()
        thread.join()
    assert values <= {64.0, 96.0}
    model[3].scale = 7
    assert compiled(x).item() == 7 * 32


def test_old_objects_are_collected_after_compiling():
    """Threads that compile at once leave the threshold as it was."""
    before, seen = gc.get_threshold(), []

    def backend(graph, inputs):
        seen.append(gc.get_threshold())
        time.sleep(0.01)
        return graph

    def work():
        for number in range(5):
            compiled = minicompile.compile(
                lambda x, number=number: x + number, backend=backend)
            assert compiled(torch.zeros(1)).item() == number
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert gc.get_threshold() == before
    assert any(each[:2] == before[:2] and each[2] > 10**6 for each in seen)
    with pytest.raises(ZeroDivisionError):
        with young_only():
            assert gc.get_threshold()[2] > 10**6
            raise ZeroDivisionError
    assert gc.get_threshold() == before


FORKED = """
import os, tempfile, time, torch, minicompile
from minicompile.guards.fast import c_functions
place = tempfile._get_default_tempdir  # asked under a lock
tempfile._get_default_tempdir = lambda: (time.sleep(0.5), place())[1]
c_functions.begin_compiling()
time.sleep(0.2)
if not (child := os.fork()):
    found = minicompile.compile(lambda x: x + 1)(torch.zeros(2)).tolist()
    os._exit(found != [1, 1] or c_functions.compiled() is None)
raise SystemExit(os.waitpid(child, 0)[1])
"""


@pytest.mark.slow(sample=1)
def test_a_process_forked_while_the_guards_compile_compiles_them(
        tmp_path):
    subprocess.run([sys.executable, "-c", FORKED], check=True, timeout=300,
                   env={**os.environ, "MINICOMPILE_CACHE_DIR": str(tmp_path)})


THERE = 3


def reads_a_global(x):
    return x + THERE


def test_what_a_guard_is_about_may_be_deleted(monkeypatch):
    compiled = minicompile.compile(reads_a_global)
    x = torch.zeros(1)
    assert compiled(x).item() == 3
    monkeypatch.delitem(globals(), "THERE")
    for _ in range(2):
        with pytest.raises(NameError, match="THERE"):
            compiled(x)
    monkeypatch.undo()
    assert compiled(x).item() == 3


def broken(model, x):
    y = model(x)
    print(float(y.detach().sum()))
    return y.sin()


@pytest.mark.parametrize("backend", ["eager", "split", "fused"])
@pytest.mark.parametrize("function", [apply, broken])
def test_what_a_compilation_has_seen_dies_with_its_last_user(
        function, backend):
    """Without the collector of garbage: nothing holds it in a circle."""
    def run():
        model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        compiled = minicompile.compile(function, backend=backend)
        x = torch.randn(2, 3, requires_grad=True)
        y = compiled(model, x)
        y.sum().backward()
        return [weakref.ref(each) for each in (
            x, x.grad, y, model[0].weight, model[0].weight.grad, model)]

    run()  # PyTorch keeps some of the first
    gc.collect()
    gc.disable()
    try:
        assert [each() for each in run()] == [None] * 6
    finally:
        gc.enable()
