"""A graph that was compiled before is found: the same results, no stage."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import minicompile
from minicompile import pipeline
from minicompile.core.disk import entries
from minicompile.dispatch.disk import warm_start
from minicompile.replay.cuda import graphs
from minicompile.replay.outputs import parts
from tests.emit.test_cache import damaged
from tests.replay.fake import FakeDevice
from tests.same import assert_same


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty cache; graphs are looked up in it."""
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(pipeline, "LOWER", [
        *pipeline.LOWER[:1], warm_start.looked_up])
    return tmp_path


@pytest.fixture
def found(monkeypatch):
    """The graphs that were found, and what they are made of."""
    graphs, read = [], warm_start.read_entry

    def reading(*given):
        graphs.append(read(*given))
        return graphs[-1]
    monkeypatch.setattr(warm_start, "read_entry", reading)
    return graphs


def layer(x, w):
    return F.gelu(F.layer_norm(x @ w, (8,))) * 2


def shared_memory(x):
    y = x.sin()
    return y, y[1:], x.t(), y.detach(), 3


def written(x, y):
    x.mul_(2)
    y.t()[0].add_(1)
    return x + y.sum()


def two_results(x, y):
    return x.exp(), y.tanh(), x.detach().sum()


def constant_gradient(x, w):
    return (x * 2).sum(), w.sin() * 0 + x.detach()


def dropped(x):
    return F.dropout(x, 0.5).relu()


def lower_precision(x, w):
    with torch.autocast("cpu", torch.bfloat16):
        y = x @ w
    return y.float() + x


def switched(x):
    with torch.no_grad():
        y = x * 2
    return y + x.cos()


def checkpointed(x):
    return checkpoint(lambda y: y.exp().sin(), x * 2, use_reentrant=False)


def attended(x):
    return F.scaled_dot_product_attention(x, x, x, is_causal=True)


def constants(x, w):
    cached = torch.cat([torch.tensor([]), x], -1)  # as Transformers' caches
    low = torch.tensor([[0.1, -0.0], [float("nan"), -float("inf")]],
                       dtype=torch.bfloat16).repeat(4, 4)
    return cached @ w + low, torch.tensor(3) * x.detach().long()


x, w = (torch.randn(8, 8, requires_grad=True) for _ in range(2))
PROGRAMS = [
    (layer, x, w), (layer, x.detach(), w), (layer, x.detach(), w.detach()),
    (shared_memory, x), (written, x.detach(), x.detach() + 1),
    (two_results, x, w), (constant_gradient, x, w),
    (lower_precision, x, w), (switched, x), (checkpointed, x),
    (attended, x[None, None]), (constants, x, w)]


@pytest.mark.parametrize("program, args", [
    (each, args) for each, *args in PROGRAMS],
    ids=[f"{each.__name__}-{k}" for k, (each, *_) in enumerate(PROGRAMS)])
def test_what_is_found_is_as_eager(folder, found, program, args):
    first = assert_same(program, *args)
    assert not found and len([*folder.glob("*.json")]) == 1
    second = assert_same(program, *args)
    assert len(found) == 1
    assert second.cache.entries[0].lowered is found[0]
    assert first.stats().kernels == second.stats().kernels > 0


@pytest.mark.parametrize("ours", [True, False])
def test_random_numbers(folder, found, ours):
    results = []
    for _ in range(2):
        compiled = minicompile.compile(dropped, options={
            "fallback_random": not ours})
        torch.manual_seed(1)
        y = compiled(x)
        results.append([y, *torch.autograd.grad(y.sum(), x)])
    assert len(found) == 1
    assert all(map(torch.equal, *results))


def test_in_inference_mode(folder, found):
    for _ in range(2):
        with torch.inference_mode():
            assert_same(layer, x.detach(), w.detach())
    assert len(found) == 1


def test_each_result_has_a_backward_and_a_second(folder, found):
    for _ in range(2):
        y, z, _ = minicompile.compile(two_results)(x, w)
        for result, given, wanted in (y, x, x.exp()), (z, w, (
                2 * w.tanh().pow(3) - 2 * w.tanh())):
            first, = torch.autograd.grad(result.sum(), given,
                                         create_graph=True)
            second, = torch.autograd.grad(first.sum(), given)
            torch.testing.assert_close(second, wanted)
    assert len(found) == 1


def test_a_report_shows_what_the_stages_make_again(folder, found):
    texts = []
    for _ in range(2):
        compiled = minicompile.compile(layer)
        report = minicompile.explain(compiled)(x, w)
        texts.append([str(report), report.saved_bytes, report.externs, [
            str(each) for each in report.kernels]])
    assert len(found) == 1 and texts[0] == texts[1]
    assert found[0].programs["forward"].source
    assert str(found[0].pair) and str(found[0].joint)


def test_what_stages_make_again_they_make_as_before(folder, found):
    def under(x):
        return x @ x
    for _ in range(2):
        with torch.autocast("cpu", torch.bfloat16), torch.no_grad():
            compiled = minicompile.compile(under)
            compiled(x)
    assert found[0].pair.backward is None
    assert "bfloat16" in str(found[0].joint)


def name(function, *args, **options):
    """The name of the entry that a call would have."""
    names, looked_up = [], warm_start.looked_up

    def spy(graph, inputs, depth, options):
        names.append(warm_start.name_of_entry(graph, inputs, depth, options))
        return looked_up(graph, inputs, depth, options)
    spy.__module__ = "minicompile"
    pipeline.LOWER[-1] = spy
    minicompile.compile(function, **options)(*args)
    pipeline.LOWER[-1] = looked_up
    return names[0]


def marked(dim, **limits):
    """A matrix with a dimension that varies."""
    given = x.detach().clone()
    minicompile.mark_dynamic(given, dim, **limits)
    return given


def by(number):
    return lambda x: x * number


def test_all_that_a_stage_reads_is_in_the_name(folder):
    plain = x.detach()
    names = [
        name(by(2), plain), name(by(3), plain), name(by(2.0), plain),
        name(by(0.0), plain), name(by(-0.0), plain), name(by(1j), plain),
        name(by(2), x), name(by(2), x * 1), name(by(2), x[:4].detach()),
        name(by(2), plain[:4].t()), name(by(2), plain.double()),
        name(by(2), plain.bfloat16()), name(by(2), plain, options={
            "fallback_random": True}),
        name(by(2), plain, options={"activation_memory_budget": 0.5}),
        name(by(2), x[0, 0].detach()),
        name(by(2), plain, dynamic=True), name(by(2), marked(0)),
        name(by(2), marked(1)), name(by(2), marked(1, max=64))]
    with torch.no_grad():
        names.append(name(by(2), x))
    with torch.inference_mode():
        names.append(name(by(2), plain))
    with torch.autocast("cpu", torch.bfloat16):
        names.append(name(by(2), plain))
    with torch.autocast("cpu", torch.float16):
        names.append(name(by(2), plain))
    with torch.nn.attention.sdpa_kernel(
            torch.nn.attention.SDPBackend.MATH):
        names.append(name(by(2), plain))
    torch.set_default_dtype(torch.float64)
    names.append(name(by(2), plain))
    torch.set_default_dtype(torch.float32)
    torch.use_deterministic_algorithms(True)
    names.append(name(by(2), plain))
    torch.use_deterministic_algorithms(False)
    with torch.backends.mkldnn.flags(enabled=False):
        names.append(name(by(2), plain))
    assert None not in names and len({*names}) == len(names)
    assert name(by(2), plain) == names[0]


@torch.library.custom_op("warm::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)
twice.register_autograd(lambda ctx, gradient: gradient * 2)


@minicompile.allow_in_graph
def allowed(x):
    return x * 2


REFUSED = [lambda x: twice(x) + 1, lambda x: allowed(x) + 1,
           lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,)),
           lambda x: torch.tensor(512 * [0.5])[:8] + x]


@pytest.mark.parametrize("program", REFUSED,
                         ids=["op", "allowed", "cond", "large"])
def test_what_no_text_says_has_no_entry(folder, found, program):
    for _ in range(2):
        assert_same(program, x)
    assert not found and not [*folder.glob("*.json")]


def halves(x, w):
    """Its reshape needs an even number of rows."""
    y = x.reshape(-1, 2, x.shape[1]).sum(1)
    return torch.cat([y, y]) @ w + x.shape[0] // 2, x[1:].softmax(0)


def scaled(x, w, n=3.5):
    return x * n + w.sum(), x.shape[0] * n


@pytest.mark.parametrize("dynamic", [True, None])
@pytest.mark.parametrize("program", [layer, halves, scaled])
def test_sizes_may_vary(folder, found, program, dynamic):
    """What is found guards all that its stages once relied on."""
    checks = []
    for turn in range(2):
        compiled = minicompile.compile(program, dynamic=dynamic)
        for rows in (8, 10, 12):
            given = torch.randn(rows, 8, requires_grad=True)
            results = [], []
            for call, made in zip((compiled, program), results):
                y = call(given, w)
                y = y if isinstance(y, tuple) else (y,)
                made += [*y, torch.autograd.grad(y[0].sum(), given)]
            torch.testing.assert_close(*results, rtol=1e-4, atol=1e-4)
        entries = compiled.cache.entries
        assert len(entries) == compiled.stats().graphs <= 2
        assert len(found) == turn * len(entries)
        checks.append([(rows, columns, bool(each.check(
            compiled.cache.bind(torch.randn(
                rows, columns, requires_grad=True), w), program)))
            for each in entries for rows in range(14)
            for columns in (1, 6, 8)])
    assert checks[0] == checks[1]


def test_a_size_that_does_not_fit_is_compiled(folder, found):
    def even(x):
        return (x[: x.shape[0] // 2] + 1 if x.shape[0] % 2 == 0 else x) * 2
    for _ in range(2):
        compiled = minicompile.compile(even, dynamic=True)
        for rows in (8, 9, 10, 11):
            given = torch.randn(rows, 5)
            torch.testing.assert_close(compiled(given), even(given))
        assert compiled.stats().graphs == 2
    assert len(found) == 2


def test_an_entry_for_other_facts_is_made_again(folder, found):
    """Its guards are asked, and its ranges compared."""
    def call():
        assert_same(halves, x, w, dynamic=True, calls=1)
    call()
    path, = folder.glob("*.json")
    whole = path.read_bytes()
    held = json.loads(whole[:-64])
    guards, ranges = held["learnt"]
    assert guards and ranges
    for wrong in ([*guards, "1 == 2"], ranges), (guards, ranges[1:]), (
            [*guards, "s == 1"], ranges):
        path.write_bytes(signed(path, json.dumps(
            {**held, "learnt": wrong}).encode()))
        call()
        assert not found
    call()
    assert len(found) == 1


def steps(x, w):
    """A loss, and a result that is worth moving."""
    h = ((x @ w).sin() @ w).cos()
    return (h @ w).mean(), (
        (h.detach() @ w).tanh().exp() @ w).tanh() * x.shape[0]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("kind", ["whole", "parts"])
def test_what_is_found_is_replayed(folder, found, monkeypatch, kind, dynamic):
    """On a device that needs no GPU, and cannot record every product."""
    monkeypatch.setattr(graphs, "Cuda", lambda _: FakeDevice())
    monkeypatch.setattr(warm_start, "ours_alone", lambda: True)
    for module in graphs, parts:
        monkeypatch.setattr(module, "obstacle", lambda schedule: (
            "it is exp's" if "exp" in str(schedule.steps[0]) and (
                kind == "parts" and len(schedule.steps) == 1) else None))
    monkeypatch.setattr(parts, "LARGE", 1 if kind == "parts" else 1e9)
    monkeypatch.setattr(parts, "LAUNCH", 0)
    tapes = []
    for turn in range(2):
        compiled = minicompile.compile(
            steps, mode="reduce-overhead", dynamic=dynamic)
        for rows in (5, 6, 5, 6, 5, 6, 6) if dynamic else (5,) * 5:
            given, weight = (torch.randn(
                count, 8, dtype=torch.float64, requires_grad=True)
                for count in (rows, 8))
            results = []
            for call in compiled, steps:
                loss, moved = call(given, weight)
                results.append((loss, moved, *torch.autograd.grad(
                    loss, [given, weight])))
            torch.testing.assert_close(*results)
        assert len(found) == turn
        graphed = compiled.cache.entries[0].lowered.graphed
        assert graphed.tapes["forward"]["kind"] == kind
        tapes.append(graphed.tapes)
        assert compiled.stats().replays["replayed"] >= 5
    assert tapes[0] == tapes[1]


@pytest.mark.gpu
@pytest.mark.parametrize("trained", [True, False])
def test_on_a_gpu_what_is_found_is_replayed(folder, found, trained):
    layers = torch.nn.Sequential(
        torch.nn.Linear(64, 64), torch.nn.GELU(), torch.nn.Linear(64, 4096),
        torch.nn.Tanh()).cuda().double().requires_grad_(trained)
    for turn in range(2):
        compiled = minicompile.compile(layers, mode="reduce-overhead")
        for _ in range(6):
            given = torch.randn(128, 64, device="cuda", dtype=torch.float64,
                                requires_grad=trained)
            results = []
            for call in compiled, layers:
                y = call(given)
                results.append((y, *(torch.autograd.grad(
                    y.sin().sum(), [given, *layers.parameters()])
                    if trained else ())))
            torch.testing.assert_close(*results)
        assert len(found) == turn
        assert compiled.stats().replays["replayed"] >= 3


@pytest.mark.parametrize("backend", ["eager", "split"])
def test_only_programs_have_an_entry(folder, found, backend):
    for _ in range(2):
        assert_same(layer, x, w, backend=backend)
    assert not found


def test_a_stage_that_a_user_replaced_is_asked(folder, found, monkeypatch):
    from minicompile.emit import program
    assert_same(layer, x, w)
    with monkeypatch.context() as change:
        change.setattr(program, "FINISHES", [
            *program.FINISHES, lambda source: source + "# mine\n"])
        compiled = assert_same(layer, x, w)
        made = compiled.cache.entries[0].lowered.programs["forward"]
        assert made.source.endswith("# mine\n") and not found
    assert_same(layer, x, w)
    assert len(found) == 1


def test_a_log_shows_the_stages_at_work(folder, found, monkeypatch):
    monkeypatch.setenv("MINICOMPILE_LOGS", "output_code")
    for _ in range(2):
        assert_same(layer, x, w)
    assert not found


def signed(path, content):
    """An entry with another content, and the right hash."""
    return content + entries.digest(path.stem.encode() + content)


def test_a_sound_entry_that_makes_no_sense_is_made_again(
        folder, found, monkeypatch):
    assert_same(layer, x, w)
    path, = folder.glob("*.json")
    whole = path.read_bytes()
    held = json.loads(whole[:-64])
    bad = [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 100_000, b"NaN"]
    bad += [json.dumps({**held, key: value}).encode() for key in held
            for value in (None, 3, [], {}, "x", {"forward": "1/0"})
            if key != "kernels" and (value or key != "results")
            and value != held[key]]
    for content in bad:
        path.write_bytes(signed(path, content))
        assert_same(layer, x, w, calls=1)
        assert path.read_bytes() == whole, content[:80]
    assert not found


class Counted:
    """A stand-in of lower_ours that counts, and makes nothing."""

    def __init__(self, made):
        self.made, self.calls = made, 0

    def __call__(self, *_):
        self.calls += 1
        return self.made


@pytest.mark.slow(sample=1)
@pytest.mark.parametrize("seed", range(6))
def test_thousands_of_damaged_entries_are_compiled_again(
        folder, found, monkeypatch, seed):
    """Nothing but what was made is ever read, and nothing raises."""
    compiled = assert_same(layer, x, w)
    entry = compiled.cache.entries[0]
    path, = folder.glob("*.json")
    whole, chance = path.read_bytes(), random.Random(seed)
    asked = (entry.trace.graph, entry.trace.example_inputs, "fused",
             minicompile.core.options.Options())
    monkeypatch.setattr(warm_start, "lower_ours", Counted(entry.lowered))
    monkeypatch.setattr(warm_start, "name_of_entry", lambda *_: path.name)
    for _ in range(500):
        content = damaged(chance, whole)
        path.write_bytes(content)
        before = warm_start.lower_ours.calls
        made = warm_start.looked_up(*asked)
        assert (made is entry.lowered) == (content != whole)
        assert warm_start.lower_ours.calls - before == (content != whole)
        assert path.read_bytes() == whole


TWO = """
import sys, torch, minicompile
from minicompile.dispatch.disk import warm_start
from minicompile.replay.cuda import graphs
from minicompile.replay.outputs import parts
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.GELU())
x = torch.randn(4, 8, requires_grad=True)
def refused(*_): raise AssertionError("it is compiled again")
if sys.argv[1] == "warm":
    warm_start.lower_ours = refused
compiled = minicompile.compile(model)
want = torch.autograd.grad(model(x).sum(), [x, *model.parameters()])
got = torch.autograd.grad(compiled(x).sum(), [x, *model.parameters()])
for one, other in zip(got, want):
    torch.testing.assert_close(one, other)
stats = compiled.stats()
assert stats.graphs == 1 and stats.kernels and not stats.fallbacks
print(type(compiled.cache.entries[0].lowered).__name__)
"""


def process(how, **more):
    """What a process of its own says."""
    return subprocess.run(
        [sys.executable, "-c", TWO, how], check=True, text=True,
        capture_output=True, env={**os.environ, **more}).stdout.strip()


@pytest.mark.slow(sample=1)
def test_a_second_process_starts_warm(folder, tmp_path, monkeypatch):
    for seed, how, name in ((1, "cold", "CompiledGraph"),
                            (2, "warm", "Warm")):
        assert process(how, PYTHONHASHSEED=f"{seed}") == name
    saved = tmp_path / "saved"
    assert minicompile.save_cache(saved) >= 2
    monkeypatch.setenv("MINICOMPILE_CACHE_DIR", str(tmp_path / "other"))
    minicompile.load_cache(saved)
    assert process("warm") == "Warm"


def test_entries_go_as_others_do(folder, found, monkeypatch):
    assert_same(layer, x, w)
    path, = folder.glob("*.json")
    os.utime(path, (0, 0))
    assert_same(layer, x, w)
    assert len(found) == 1 and path.stat().st_mtime > 0
    os.utime(path, (0, 0))
    monkeypatch.setenv("MINICOMPILE_CACHE_SIZE", "1KiB")
    entries.trim(folder)
    assert not path.exists()
    assert_same(layer, x, w)
    assert len(found) == 1


def test_a_folder_that_others_can_write_is_not_asked(folder, found):
    """But another, which only this process has."""
    assert_same(layer, x, w)
    os.chmod(folder, 0o777)
    with pytest.warns(UserWarning, match="others can write"):
        assert_same(layer, x, w)
    assert not found
    assert_same(layer, x, w)
    assert len(found) == 1
