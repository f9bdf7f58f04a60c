"""The public surface: what compile() takes, keeps, refuses and says."""

import logging
import re
import subprocess
import sys
import textwrap
import traceback
import warnings

import pytest
import torch
from torch import fx
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional as F

import minicompile
from minicompile.core import options
from minicompile.dispatch import Cache
from tests.same import assert_same, close


def affine(x, scale=2, *, shift=1):
    return x * scale + shift


def spread(x, *more, scale=1, **named):
    return sum(more, x) * scale + named["last"]


def closure_over(weight):
    def inner(x):
        return x @ weight
    return inner


class Twice:
    def __init__(self, factor):
        self.factor = factor

    def method(self, x):
        return x * self.factor

    def __call__(self, x):
        return x + self.factor


def test_defaults_and_keywords():
    compiled = assert_same(affine, torch.randn(3))
    x = torch.randn(3)
    torch.testing.assert_close(compiled(x, shift=5), affine(x, shift=5))
    torch.testing.assert_close(compiled(x, 3, shift=5), x * 3 + 5)
    torch.testing.assert_close(compiled(x=x), affine(x))


def test_star_arguments():
    compiled = minicompile.compile(spread, fullgraph=True)
    x, y, z = torch.randn(3, 4)
    torch.testing.assert_close(compiled(x, y, z, scale=2, last=y),
                               spread(x, y, z, scale=2, last=y))


def test_closures_methods_and_callable_objects():
    x, w = torch.randn(3, 4), torch.randn(4, 5, requires_grad=True)
    got = minicompile.compile(closure_over(w), fullgraph=True)(x)
    torch.testing.assert_close(got, x @ w)
    thing = Twice(3)
    torch.testing.assert_close(minicompile.compile(thing.method)(x), x * 3)
    torch.testing.assert_close(minicompile.compile(thing)(x), x + 3)
    thing.factor = 7
    torch.testing.assert_close(minicompile.compile(thing)(x), x + 7)


def test_as_a_decorator_with_and_without_arguments():
    @minicompile.compile
    def plain(x):
        return x + 1

    @minicompile.compile(backend="eager", fullgraph=True)
    def given(x):
        return x + 2

    x = torch.zeros(2)
    assert plain(x).tolist() == [1, 1] and given(x).tolist() == [2, 2]
    assert plain.__name__ == "plain"


def test_disable_gives_the_function_back():
    assert minicompile.compile(affine, disable=True) is affine


@pytest.mark.parametrize("dynamic, graphs", [(None, 2), (False, 3)])
def test_another_shape_compiles_another_entry(dynamic, graphs):
    compiled = minicompile.compile(affine, fullgraph=True, dynamic=dynamic)
    for size in (3, 4, 3, 4, 5):
        compiled(torch.randn(size))
    assert compiled.stats().graphs == graphs
    assert compiled.stats().recompiles == graphs - 1


def test_the_reason_of_a_recompile_is_logged(monkeypatch, caplog):
    monkeypatch.setenv("MINICOMPILE_LOGS", "recompiles")
    compiled = minicompile.compile(affine)
    with caplog.at_level("INFO", logger="minicompile"):
        compiled(torch.randn(3))
        compiled(torch.randn(4))
    (record,) = caplog.records
    assert "x" in record.message and "3" in record.message \
        and "4" in record.message


def test_all_artifacts_are_one_word_and_a_wrong_one_is_an_error_at_import(
        monkeypatch, caplog):
    monkeypatch.setenv("MINICOMPILE_LOGS", "all")
    with caplog.at_level("INFO", logger="minicompile"):
        minicompile.compile(affine)(torch.ones(3))
    for artifact in ("[guards]", "[graph_code]", "[fusion]"):
        assert artifact in caplog.text
    monkeypatch.setenv("MINICOMPILE_LOGS", "guards,kernels")
    done = subprocess.run([sys.executable, "-c", "import minicompile"],
                          capture_output=True, text=True)
    assert "OptionError: MINICOMPILE_LOGS artifact 'kernels' is unknown" in (
        done.stderr.splitlines()[-1])


def test_help_lists_the_artifacts(monkeypatch):
    monkeypatch.setenv("MINICOMPILE_LOGS", "help")
    done = subprocess.run([sys.executable, "-c", "import minicompile"],
                          capture_output=True, text=True)
    assert done.returncode == 0
    assert "graph_code    the traced graph" in done.stderr


def test_the_check_is_logged(monkeypatch, caplog):
    monkeypatch.setenv("MINICOMPILE_LOGS", "guards,recompiles")
    compiled = minicompile.compile(affine, dynamic=False)
    with caplog.at_level("INFO", logger="minicompile"):
        compiled(torch.randn(3))
        compiled(torch.randn(4))
        compiled(torch.randn(5))
    texts = [r.message for r in caplog.records if r.name == "minicompile"]
    checks = [text for text in texts if "def check(L, F):" in text]
    assert len(checks) == 3 and all("[guards]" in text for text in checks)
    assert checks[0].count("float32_3_strides_1_cpu") == 1
    told = [text for text in texts if "[recompiles]" in text]
    assert ["entry 0" in t for t in told] == [True, True, False]
    assert "was 4, is 5" in told[1] and "was 3, is 5" in told[2]


def test_the_limit_of_recompiles(monkeypatch):
    options = {"recompile_limit": 2}
    compiled = minicompile.compile(affine, options=options, dynamic=False)
    with pytest.warns(UserWarning, match="recompile_limit"):
        for size in range(2, 6):
            assert compiled(torch.zeros(size)).shape == (size,)
    assert compiled.stats().graphs == 2
    strict = minicompile.compile(affine, options=options, fullgraph=True,
                                 dynamic=False)
    with pytest.raises(minicompile.RecompileLimit, match="2 times"):
        for size in range(2, 6):
            strict(torch.zeros(size))


def test_a_full_cache_tells_its_latest_reasons_once():
    strict = minicompile.compile(
        lambda x, name: x + len(name), backend="eager", fullgraph=True,
        options={"recompile_limit": 11})
    with pytest.raises(minicompile.RecompileLimit) as error:
        for name in "abcdefghijkl":
            strict(torch.zeros(2), name)
    told = re.findall("was '(.)', is '(.)'", str(error.value))
    assert len(told) == len({*told}) == 8 and told[-1][1] == "l"


def printing(x):
    y = x + 1
    print("seen", end="")
    return y * 2


def test_a_print_breaks_the_graph_and_the_rest_stays_compiled(capsys):
    compiled = minicompile.compile(printing)
    for _ in range(2):
        assert compiled(torch.zeros(2)).tolist() == [2, 2]
    assert capsys.readouterr().out == "seenseen"
    assert compiled.stats().graph_breaks == 1
    assert compiled.stats().graphs == 2
    assert not compiled.stats().fallbacks
    with pytest.raises(minicompile.Unsupported, match="print"):
        minicompile.compile(printing, fullgraph=True)(torch.zeros(2))


def reads_its_frame(x):
    return x + len(locals())


def test_what_cannot_be_resumed_runs_eager_once_and_says_so():
    minicompile.reset()
    compiled = minicompile.compile(reads_its_frame)
    with pytest.warns(UserWarning, match=r"test_compile.py:\d+") as warned:
        assert compiled(torch.zeros(2)).tolist() == [1, 1]
        assert compiled(torch.zeros(2)).tolist() == [1, 1]
    assert len(warned) == 1 and warned[0].filename == __file__
    assert sum(compiled.stats().fallbacks.values()) == 1
    with pytest.raises(minicompile.Unsupported, match="locals"):
        minicompile.compile(reads_its_frame,
                            fullgraph=True)(torch.zeros(2))


def test_wrong_names_list_what_is_allowed():
    for wrong, right in (({"backend": "fusd"}, "fused"),
                         ({"mode": "fast"}, "reduce-overhead"),
                         ({"options": {"budget": 1}},
                          "activation_memory_budget"),
                         ({"options": {1: 1}}, "option '1'"),
                         ({"fullgraph": "no"}, "True"),
                         ({"dynamic": "no"}, "None, False, True")):
        with pytest.raises(minicompile.OptionError, match=right):
            minicompile.compile(affine, **wrong)
    for bad in (2.0, -0.1, "half", True):
        with pytest.raises(minicompile.OptionError):
            minicompile.compile(
                affine, options={"activation_memory_budget": bad})
    with pytest.raises(minicompile.OptionError, match="a dict"):
        minicompile.compile(affine, options=["cudagraphs"])
    with pytest.raises(TypeError, match="callable"):
        minicompile.compile(3)


def test_a_wrong_call_is_pythons_own_error():
    with pytest.raises(TypeError, match="missing") as raised:
        minicompile.compile(affine)()
    assert raised.value.__context__ is None


def test_a_mode_or_options_and_not_both():
    with pytest.raises(minicompile.OptionError, match="not both"):
        minicompile.compile(affine, mode="default", options={})


@pytest.mark.parametrize("mode", torch._inductor.list_mode_options())
def test_torch_compile_s_modes(mode):
    """All but "lite", which asks for parts of the compiler by name."""
    x = torch.randn(3, 4)
    if mode == "lite":
        with pytest.raises(minicompile.OptionError, match="max-autotune"):
            minicompile.compile(chain, mode=mode)
        return
    theirs = torch._inductor.list_mode_options(mode)
    ours = minicompile.list_mode_options(mode)
    assert ours.get("cudagraphs", False) == theirs.get(
        "triton.cudagraphs", False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.testing.assert_close(
            minicompile.compile(chain, mode=mode)(x), chain(x))


@pytest.mark.parametrize("name", options.HINTS)
def test_an_option_that_changes_no_result_warns_once(name):
    minicompile.reset()
    assert name in torch._inductor.list_options()
    options.make_options(None, {name: False})
    for spelled in dict.fromkeys((name, name.replace("_", "-"))):
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            for _ in range(2):
                made = options.make_options(None, {spelled: True})
        assert made == options.Options()
        assert [name in str(each.message) for each in seen] == [True][
            spelled != name:]


def test_an_option_under_torch_compile_s_name():
    given = {"triton.cudagraphs": True}
    assert options.make_options(None, given).cudagraphs
    assert given == {"triton.cudagraphs": True}
    with pytest.raises(minicompile.OptionError, match="two values"):
        options.make_options(None, given | {"cudagraphs": False})
    for wrong in ("use_fast_math", "emulate_precision_casts", "triton"):
        with pytest.raises(minicompile.OptionError, match="unknown"):
            minicompile.compile(affine, options={wrong: True})


def test_what_is_listed_is_the_caller_s_own():
    minicompile.list_mode_options()["default"]["cudagraphs"] = True
    minicompile.list_mode_options("default")["cudagraphs"] = True
    assert minicompile.list_mode_options("default") == {}
    with pytest.raises(minicompile.OptionError, match="reduce-overhead"):
        minicompile.list_mode_options("nope")


def fails(x):
    raise KeyError("the user's own")


def wrong_shapes(x):
    return x @ torch.zeros(17, 2)


class Refused(OSError):
    def __init__(self, path, code):
        super().__init__(2, "no such file", path)
        self.code = code


def refuses(x):
    raise Refused("here", x.dim())


def fails_without_gradients(x):
    with torch.no_grad():
        raise ValueError(x.shape)


def lacks(x):
    return x.sin().nope


def ambiguous(x):
    if x:
        return x + 1


def too_small(x):
    if x.sum() < 9:
        raise AssertionError("too small")


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("fn", [
    fails, wrong_shapes, refuses, fails_without_gradients, lacks, ambiguous,
    too_small])
def test_the_users_exceptions_are_eager_s(fn, fullgraph):
    """Their attributes, and the user's lines in the traceback, too."""
    seen = []
    for each in fn, minicompile.compile(fn, fullgraph=fullgraph):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(Exception) as raised:
                each(torch.zeros(3))
        error = raised.value
        frames = traceback.extract_tb(error.__traceback__)
        seen.append((type(error), str(error), vars(error), frames[-1].name,
                     [frame.line for frame in frames
                      if frame.filename == __file__]))
    if fullgraph and fn is ambiguous:
        assert "truth" in seen[1][1]
    else:
        assert seen[0] == seen[1]


@pytest.mark.parametrize("make", [
    lambda: ImportError("m", name="n", path="p"),
    lambda: OSError(2, "m", "here"), lambda: Refused("here", 3),
    lambda: NameError("m", name="n"), lambda: StopIteration(3)])
def test_an_exception_that_is_returned_keeps_its_attributes(make):
    def function(x):
        try:
            raise make()
        except Exception as caught:
            return x + 1, caught

    error = make()
    _, found = minicompile.compile(function, fullgraph=True)(torch.ones(1))
    for name in "args name path filename errno value code".split():
        assert getattr(found, name, 0) == getattr(error, name, 0)
    assert str(found) == str(error)


def test_what_raises_in_the_trace_alone_is_no_graph(monkeypatch):
    def refuse(*_):
        raise minicompile.Unsupported("exception", "of the trace")

    monkeypatch.setattr(Cache, "compile", refuse)
    with pytest.raises(minicompile.Unsupported, match="of the trace"):
        minicompile.compile(affine, fullgraph=True)(torch.ones(1))


def chain(x):
    return torch.relu(x * 2 + 1).sum(-1)


INPUTS = {
    "empty": torch.zeros(0, 3),
    "empty rows": torch.zeros(3, 0),
    "zero-dim": torch.tensor(2.5),
    "transposed": torch.randn(4, 3).T,
    "sliced": torch.randn(8, 6)[::2, 1::2],
    "expanded": torch.randn(1, 5).expand(3, 5),
    "float64": torch.randn(3, 4, dtype=torch.float64),
    "float16": torch.randn(3, 4).half(),
    "bfloat16": torch.randn(3, 4).bfloat16(),
    "int64": torch.randint(-9, 9, (3, 4)),
    "int32": torch.randint(-9, 9, (3, 4), dtype=torch.int32),
    "uint8": torch.randint(0, 255, (3, 4), dtype=torch.uint8),
    "bool": torch.rand(3, 4) > 0.5,
    "gradient": torch.randn(3, 4, requires_grad=True),
}


@pytest.mark.parametrize("name", INPUTS)
def test_inputs_of_every_kind(name):
    assert_same(chain, INPUTS[name])


def nothing_to_do():
    return 3


def no_tensors(a, b=2):
    return a + b


def test_no_tensors_at_all():
    assert minicompile.compile(no_tensors)(1) == 3
    assert minicompile.compile(nothing_to_do)() == 3


def whether(x):
    return x.any(), x.all(-1), x.any(0, keepdim=True)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int32, torch.bool])
def test_any_and_all_keep_uint8(dtype):
    assert_same(whether, torch.randint(0, 2, (3, 4)).to(dtype))


def writes(x, y):
    x.add_(1)
    y[0] = 5
    return x * y


def test_inputs_written_to_are_seen_written():
    assert_same(writes, torch.randn(3), torch.randn(3))


def several(x, y):
    return {"sum": x + y, "same": x, "pair": (y * 2, [x.sum(), None, 3])}


def test_results_keep_their_structure_and_identity():
    x, y = torch.randn(3), torch.randn(3)
    assert_same(several, x, y)
    assert minicompile.compile(several)(x, y)["same"] is x


def uses_grad(x, w):
    with torch.no_grad():
        scale = (x * x).mean()
    return F.gelu(x @ w) / scale


def test_gradients_through_a_no_grad_region():
    assert_same(uses_grad, torch.randn(3, 4, requires_grad=True),
                torch.randn(4, 5, requires_grad=True))


def test_grad_mode_is_guarded():
    compiled = minicompile.compile(affine, fullgraph=True)
    x = torch.randn(3, requires_grad=True)
    assert compiled(x).requires_grad
    with torch.no_grad():
        assert not compiled(x).requires_grad
    assert compiled.stats().graphs == 2


def test_torch_compile_takes_us_as_a_backend():
    x = torch.randn(3, 4, requires_grad=True)
    compiled = torch.compile(chain, backend=minicompile.backend)
    got, want = compiled(x), chain(x)
    torch.testing.assert_close(got, want)
    (mine,) = torch.autograd.grad(got.sum(), x)
    (theirs,) = torch.autograd.grad(want.sum(), x)
    torch.testing.assert_close(mine, theirs)


def test_torch_compile_s_symbolic_sizes_are_ours(recwarn):
    compiled = torch.compile(chain, backend="minicompile", dynamic=True)
    for rows in 3, 5:
        x = torch.randn(rows, 4)
        torch.testing.assert_close(compiled(x), chain(x))
    assert not any("as traced" in str(each.message) for each in recwarn)


def test_any_callable_and_torch_s_backends_take_our_graphs():
    seen = []

    def mine(graph, inputs):
        seen.append((graph, inputs))
        return graph

    x = torch.randn(3, 4)
    torch.testing.assert_close(
        minicompile.compile(chain, backend=mine)(x), chain(x))
    assert isinstance(seen[0][0], torch.fx.GraphModule)
    torch.testing.assert_close(minicompile.compile(
        chain, backend="aot_eager", fullgraph=True)(x), chain(x))
    minicompile.register_backend("mine", mine)
    assert "mine" in minicompile.list_backends()
    assert minicompile.register_backend("mine too")(mine) is mine
    assert minicompile.register_backend(mine) is mine
    for wrong in ("fused", mine), ("mine", 3):
        with pytest.raises(minicompile.OptionError, match="and a function"):
            minicompile.register_backend(*wrong)
    seen.clear()
    minicompile.compile(chain, backend="mine too")(x)
    assert len(seen) == 1


@pytest.mark.parametrize("given", [
    dict(mode="reduce-overhead"), dict(options={"depth": 3}),
    dict(mode="default"), dict(options={})], ids=str)
def test_a_backend_is_given_its_mode_and_options_as_by_torch(given):
    def tuned(graph, inputs, **more):
        seen.append(more)
        return graph

    minicompile.register_backend(tuned)
    x, seen = torch.randn(3, 4), []
    torch.compile(chain, backend=tuned, **given)(x)
    for backend in tuned, "tuned":
        minicompile.compile(chain, backend=backend, **given)(x)
    assert seen == [seen[0]] * 3


def test_backends_by_name():
    x, every = torch.randn(3, 4), minicompile.list_backends()
    compiled = minicompile.compile(chain, backend="minicompile")
    torch.testing.assert_close(compiled(x), chain(x))
    assert compiled.stats().kernels == 1
    few = minicompile.list_backends(exclude_tags=("debug", "experimental"))
    assert set(few) < set(every) and "inductor" in few
    assert "aot_eager" in every and "aot_eager" not in few
    assert every == minicompile.list_backends(exclude_tags=None)
    assert len(every) == len(set(every))


def test_without_a_compiler_the_graph_runs_eager(tmp_path):
    """No g++ on the path: one warning that says how to install it."""
    code = textwrap.dedent("""
        import warnings, torch, minicompile
        def f(x): return torch.relu(x) * 2
        if __name__ == "__main__":
            with warnings.catch_warnings(record=True) as seen:
                warnings.simplefilter("always")
                x = torch.randn(4)
                got = minicompile.compile(f)(x)
            assert torch.equal(got, f(x))
            print([str(w.message) for w in seen if "g++" in str(w.message)])
    """)
    script = tmp_path / "script.py"
    script.write_text(code)
    ran = subprocess.run(
        [sys.executable, script], capture_output=True, text=True,
        env={"PATH": str(tmp_path), "PYTHONPATH": ".", "HOME": str(tmp_path),
             "MINICOMPILE_CACHE_DIR": str(tmp_path / "cache")}, check=False)
    assert ran.returncode == 0, ran.stderr
    assert "install" in ran.stdout and ran.stdout.count("g++") >= 1


def test_complex_numbers_that_loops_do_not_know():
    """An inverse transform ends in a view of what nobody else is given."""
    x = torch.randn(3, 4, requires_grad=True)
    assert_same(lambda x: torch.fft.ifft(x * 2), x)


def test_indices_written_down_in_the_program():
    x = torch.randn(5, 4, requires_grad=True)
    assert_same(lambda x: x[:, [0, 2, 2]] * 2, x)


STAGES = [("split", "record"), ("split", "CHOOSE"), ("split", "partition"),
          ("fusion", "fuse"), ("emit", "emit"), ("split", "make_runtime")]


def break_stage(monkeypatch, stage: str, name: str, only=lambda graph: True):
    """Let a stage raise what it never should, where `only` says so."""
    home = getattr(minicompile.pipeline, stage)
    rows = getattr(home, name)
    whole = rows[-1] if isinstance(rows, list) else rows

    def broken(graph, *given, **more):
        if only(getattr(graph, "graph", graph)):
            raise TypeError("a fault of ours" + 500 * " and so on")
        return whole(graph, *given, **more)
    monkeypatch.setattr(
        home, name, [broken] if isinstance(rows, list) else broken)


def has_symbols(graph) -> bool:
    return any(isinstance(node.meta.get("val"), torch.SymInt)
               for node in getattr(graph, "graph", graph).nodes)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("stage, name", STAGES)
def test_a_fault_in_a_stage_is_a_warning(monkeypatch, stage, name, dynamic):
    minicompile.reset()
    break_stage(monkeypatch, stage, name)
    compiled = minicompile.compile(affine, dynamic=dynamic, fullgraph=True)
    with pytest.warns(UserWarning, match="a fault of ours") as caught:
        for size in (3, 3):
            x = torch.randn(size, requires_grad=True)
            close(compiled(x), affine(x))
    messages = [str(each.message) for each in caught]
    assert len(messages) == 1 + dynamic and "affine" in messages[0]
    assert max(map(len, messages)) < 600 and __file__ in messages[-1]
    stats = compiled.stats()
    assert stats.graphs == 1 and stats.fallbacks.pop("static shapes",
                                                     0) == dynamic
    (reason,) = stats.fallbacks
    assert reason.startswith("TypeError: a fault of ours")


@pytest.mark.parametrize("stage, name", STAGES[:1] + STAGES[3:4])
def test_a_fault_with_symbols_goes_without_them(monkeypatch, stage, name):
    minicompile.reset()
    break_stage(monkeypatch, stage, name, has_symbols)
    compiled = minicompile.compile(affine, dynamic=True)
    with pytest.warns(UserWarning, match="for each size anew"):
        for size in (3, 4):
            x = torch.randn(size)
            close(compiled(x), affine(x))
    stats = compiled.stats()
    assert stats.fallbacks == {"static shapes": 1} and stats.kernels == 2


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("stage, name", STAGES)
def test_a_fault_that_is_not_suppressed_is_an_error(
        monkeypatch, stage, name, dynamic):
    break_stage(monkeypatch, stage, name)
    compiled = minicompile.compile(affine, dynamic=dynamic, options={
        "suppress_errors": False})
    with pytest.raises(minicompile.errors.BackendError, match="of ours"):
        compiled(torch.ones(3))


def test_torch_compile_hears_of_a_fault_that_is_not_suppressed(monkeypatch):
    break_stage(monkeypatch, "fusion", "fuse")
    with pytest.raises(minicompile.errors.BackendError, match="of ours"):
        minicompile.backend(fx.symbolic_trace(lambda x: (x + 1,)), [
            torch.ones(3)], options={"suppress_errors": False})


def test_a_fault_under_torch_compile_is_a_warning(monkeypatch):
    break_stage(monkeypatch, "fusion", "fuse")
    x = torch.randn(3)
    with pytest.warns(UserWarning, match="a fault of ours"):
        run = minicompile.backend(fx.symbolic_trace(
            lambda x: (x * 2 + 1,)), [x])
    assert torch.equal(*run(x), affine(x))


def test_a_backend_that_says_it_cannot_is_heard(monkeypatch):
    def backend(graph, inputs):
        raise minicompile.BackendError("not today")

    x = torch.randn(3)
    with pytest.raises(minicompile.BackendError, match="not today"):
        minicompile.compile(affine, backend=backend)(x)
    monkeypatch.setitem(minicompile.pipeline.BACKENDS, "not today", None)
    minicompile.register_backend("not today", backend)
    with pytest.raises(minicompile.BackendError, match="not today"):
        minicompile.compile(affine, backend="not today")(x)


def test_an_error_of_the_users_is_eagers_and_nothing_else():
    """What PyTorch logs of a trial on fake tensors is left out, ours only.
    """
    def function(x, y):
        return (x + 1) @ y

    given, shown = (torch.ones(3, 4), torch.ones(3, 4)), []
    handler = logging.Handler()
    handler.emit = shown.append
    logger = logging.getLogger("torch._subclasses.fake_tensor")
    logger.addHandler(handler)
    try:
        with pytest.raises(RuntimeError) as wanted:
            function(*given)
        with pytest.raises(RuntimeError) as found:
            minicompile.compile(function)(*given)
        assert str(found.value) == str(wanted.value)
        assert not shown
        with FakeTensorMode() as mode, pytest.raises(RuntimeError):
            function(*map(mode.from_tensor, given))
        assert len(shown) == 1
    finally:
        logger.removeHandler(handler)
