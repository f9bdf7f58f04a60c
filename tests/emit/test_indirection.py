"""Tensors that say at which place others are read, in both languages.

The Triton kernels run on a GPU, or with TRITON_INTERPRET=1.
"""

import functools
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F

import minicompile
from minicompile import emit, fusion
from minicompile.core.options import Options
from minicompile.core.schedule import Extern
from minicompile.core.semantics.evaluate import evaluate_schedule
from minicompile.emit.triton import print_kernel
from minicompile.emit.triton_math import INTERPRETED
from minicompile.fusion.rules import indexing
from tests.emit.triton_kernels import DEVICE, RUNS
from tests.fusion.graphs import as_cuda, assert_right, aten
from tests.fusion.symbolic import assert_same_at, results, symbolic
from tests.judge import judged, near

BACKENDS = ["cpp", pytest.param("triton", marks=pytest.mark.skipif(
    not RUNS, reason="needs a GPU, or TRITON_INTERPRET=1"))]


def cube(dtype=torch.float32):
    return torch.randn(6, 5, 8).to(dtype)


def table(dtype=torch.float32):
    return torch.randn(11, 8).to(dtype)


def places(*shape, size=5, least=0, dtype=torch.int64):
    return torch.randint(least, size, shape).to(dtype)


def both_ways(x, k):
    """The same picks twice, and backwards."""
    picked = x[:, :, k]
    return torch.cat([picked, picked.flip(2)], 2) * 2


#: name -> (a function, what makes its arguments); all picks are few.
PROGRAMS = {
    "gather": (lambda x, p: x.gather(1, p) + 1,
               lambda: (cube(), places(6, 1, 8))),
    "gather of a softmax": (
        lambda x, p: x.softmax(1).gather(1, p) + 1,
        lambda: (cube(), places(6, 1, 8))),
    "gather of a view": (
        lambda x, p: x.exp().transpose(0, 1).gather(0, p)[..., 1:] + 1,
        lambda: (cube(), places(1, 6, 8))),
    "gather where the best is": (
        lambda x: x.exp().gather(1, x.argmax(1, keepdim=True)) + 1,
        lambda: (cube(),)),
    "gather of fewer rows": (lambda x, p: (x + 1).gather(-1, p) * 2,
                             lambda: (cube(), places(3, 2, 2, size=8))),
    "index_select": (lambda x, p: x.index_select(2, p) * 2,
                     lambda: (cube(), places(3, size=8))),
    "index_select of a product": (
        lambda x, p: (x * 3).index_select(1, p).sum(1),
        lambda: (cube(), places(3, dtype=torch.int32))),
    "index_select by a number": (lambda x, p: x.index_select(1, p) + 1,
                                 lambda: (cube(), places(size=5))),
    "embedding": (
        lambda w, p: F.layer_norm(F.embedding(p, w) + 1, (8,)),
        lambda: (table(), places(2, 3, size=11))),
    "embedding in halves": (
        lambda w, p: F.embedding(p.int(), w.bfloat16()) * 2,
        lambda: (table(), places(4, size=11))),
    "embedding by a choice": (
        lambda w, p: F.embedding(torch.where(p > 3, p, 0), w).exp(),
        lambda: (table(), places(4, size=11, dtype=torch.int32))),
    "bags of embeddings": (
        lambda w, p: (F.embedding(p, w).sum(1), F.embedding(p, w).mean(0)),
        lambda: (table(), places(3, 4, size=11))),
    "rows": (lambda x, p: x[p] + 1, lambda: (cube(), places(4, least=-6))),
    "columns": (lambda x, p: x[:, :, p].cos(),
                lambda: (cube(), places(3, least=-8, size=8))),
    "elements": (lambda x, p, q: x[p, q].sin(), lambda: (
        cube(), places(4, 1, least=-6), places(3, least=-5))),
    "elements of a transpose": (
        lambda x, p, q: x.exp().mT[p, q] + 1, lambda: (
            cube(), places(2, 1, least=-6), places(3, least=-8, size=8))),
    "elements apart": (lambda x, p, q: x[p, :, q] + 1, lambda: (
        cube(), places(4, 1, least=-6), places(3, least=-8, size=8))),
    "elements in order": (
        lambda x: x[torch.arange(3, device=x.device), torch.arange(
            3, device=x.device) + 1] + 1, lambda: (cube(),)),
    "a place of a place": (
        lambda w, p: w[w.argmax(0)[p]][:, 1].exp(),
        lambda: (table(), places(2, size=8))),
    "a concatenation": (
        lambda x, p: torch.cat([x, x.exp()], 2)[:, :, p] + 1,
        lambda: (cube(), places(3, least=-16, size=16))),
    "a padded tensor": (lambda x, p: F.pad(x, (1, 2))[:, :, p].exp(),
                        lambda: (cube(), places(3, size=11))),
    "both ways": (both_ways, lambda: (cube(), places(3, size=8))),
    "a stored product": (
        lambda x, p: ((y := x * 2), y[:, :, p] + 1),
        lambda: (cube(), places(3, size=8))),
    "one row as a view": (
        lambda x, p: x.index_select(0, p)[1].t() @ x[0],
        lambda: (cube(), places(2))),
    "floats of 64 bits": (lambda x, p: x[p].log(), lambda: (
        cube(torch.float64), places(2, least=-6))),
    "bools": (lambda x, p: (x > 0)[p] & (x[0] > 1), lambda: (
        cube(), places(2, least=-6))),
}


def device_of(backend):
    return DEVICE if backend == "triton" else torch.device("cpu")


def check(function, args, backend):
    """The program is as right as eager."""
    device = device_of(backend)
    args = [arg.to(device) for arg in args]
    program = emit.emit(fusion.fuse(aten(function, *args)), Options(
        cpu_backend=backend))
    expected = results(function, args)
    judged(near, program.run(list(args)), expected, results, function, args)
    return program


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_indirect_load_means_what_the_operator_means(name):
    function, inputs = PROGRAMS[name]
    args = inputs()
    schedule = assert_right(aten(function, *args), args)
    calls = {str(step.target) for step in schedule.steps
             if isinstance(step, Extern)}
    assert calls <= {"aten._assert_async.msg", "aten.mm.default"}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", PROGRAMS)
def test_an_indirect_load_is_printed(name, backend):
    function, inputs = PROGRAMS[name]
    check(function, inputs(), backend)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["gather", "embedding", "rows", "elements"])
def test_an_indirect_load_at_any_size(name, backend):
    function, inputs = PROGRAMS[name]
    device = device_of(backend)
    args = [arg.to(device) for arg in inputs()]
    graph = symbolic(function, *args)
    run = emit.emit(fusion.fuse(graph), Options(cpu_backend=backend)).run
    larger = [torch.cat([arg, arg]) for arg in args]
    for given in (args, larger):
        assert assert_same_at(graph, run, function, given)


#: How a cross entropy is asked for, besides logits and labels.
LOSSES = [
    {}, {"ignore_index": 2}, {"label_smoothing": 0.1}, {"reduction": "sum"},
    {"reduction": "none"}, {"weight": True},
    {"weight": True, "label_smoothing": 0.2, "ignore_index": 0},
]


@pytest.mark.slow(sample=6)
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16,
                                   torch.float16], ids=str)
@pytest.mark.parametrize("options", LOSSES, ids=str)
def test_cross_entropy(options, dtype, backend):
    device = device_of(backend)
    weight = torch.rand(9, device=device).to(dtype)
    labels = places(7, size=9).to(device)
    labels[3] = options.get("ignore_index", -100)

    def loss(logits, weight):
        return F.cross_entropy(logits, labels, **options | {
            name: weight for name in options if name == "weight"})

    def step(run, logits, weight):
        logits = logits.detach().clone().requires_grad_()
        found = run(logits, weight)
        found.sum().backward()
        return found.detach(), logits.grad
    run = minicompile.compile(loss, options={"cpu_backend": backend})
    for offset in (0, 1000):
        logits = (torch.randn(7, 9, device=device) * 4 + offset).to(dtype)
        judged(near, step(run, logits, weight), step(loss, logits, weight),
               functools.partial(step, loss), logits, weight)
    assert not run.stats().fallbacks


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("rows, classes", [(5, 1), (1, 3), (0, 4), (3, 200)])
def test_cross_entropy_of_few_rows_or_classes(rows, classes, backend):
    device = device_of(backend)
    logits = torch.randn(rows, classes, device=device)
    labels = places(rows, size=classes).to(device)
    run = minicompile.compile(F.cross_entropy, options={
        "cpu_backend": backend})
    torch.testing.assert_close(run(logits, labels), F.cross_entropy(
        logits, labels), equal_nan=True)


WRONG = {
    "a label": (F.cross_entropy, (3, 4), IndexError),
    "a place in a row": (
        lambda x, p: x.exp().gather(1, p[:, None]) + 1, (3, 4),
        RuntimeError),
    "a place in memory": (lambda x, p: x.gather(1, p[:, None]) + 1, (3, 5),
                          RuntimeError),
    "a row": (lambda x, p: x[p] * 2, (3, 9), IndexError),
    "a word": (lambda x, p: F.embedding(p, x) * 2, (3, 9), IndexError),
    "a slice": (lambda x, p: x.index_select(0, p) * 2, (3, 9), IndexError),
}


@pytest.mark.parametrize("backend", ["cpp", "triton"][:1 + INTERPRETED])
@pytest.mark.parametrize("name", WRONG)
def test_a_place_outside_raises_as_in_eager(name, backend):
    """After it raised, the program still serves places that are inside."""
    function, shape, error = WRONG[name]
    run = minicompile.compile(function, options={"cpu_backend": backend})
    x, right = torch.randn(shape), torch.tensor([0, 2, 1])
    for _ in range(2):
        torch.testing.assert_close(run(x, right), function(x, right))
        for far in (99, -99, 2 ** 40):
            with pytest.raises(error):
                run(x, torch.tensor([0, far, 1]))


def test_most_elements_are_picked_by_the_operator():
    x, p = torch.randn(6, 8), places(6, 8, size=8)
    for function in (lambda x, p: x.gather(1, p) + 1,
                     lambda x, p: x.softmax(1).gather(1, p) + 1):
        schedule = assert_right(aten(function, x, p), (x, p))
        assert [str(e.target) for e in schedule.externs] == [
            "aten.gather.default"]


def test_from_memory_to_memory_a_cpus_operator_moves():
    w, p = table(), places(3, size=11)
    schedule = assert_right(aten(lambda w, p: F.embedding(p, w) @ w.t(),
                                 w, p), (w, p))
    assert not schedule.kernels


@pytest.mark.parametrize("pick", [
    lambda x, p: F.embedding(p, x), lambda x, p: x[:, p],
    lambda x, p: x.gather(1, p[:8, None].expand(-1, 33)),
    lambda x, p: x.index_select(0, p)])
def test_from_memory_to_memory_a_gpus_loop_moves(pick):
    graph = as_cuda(aten(pick, torch.empty(4096, 33), places(33, size=33)))
    assert not fusion.fuse(graph).externs


@pytest.mark.parametrize("words", [4096, 16])
def test_a_gpus_kernel_checks_the_places_itself(words):
    w, p = torch.empty(50_000, 512), places(words)
    graph = as_cuda(aten(lambda w, p: F.embedding(p, w) + 1, w, p))
    schedule = fusion.fuse(graph)
    kernel, = schedule.steps
    assert "checked" in str(kernel)


def test_a_row_is_on_its_way_while_its_place_is_checked():
    """What stands behind a check that may stop waits for its operand."""
    graph = as_cuda(aten(lambda x, p: F.cross_entropy(
        x, p, reduction="none"), torch.empty(4, 4096), places(4)))
    kernel, = fusion.fuse(graph).steps
    lines = print_kernel(kernel).splitlines()
    row, check = (next(k for k, line in enumerate(lines) if text in line)
                  for text in ("_ptr + (r", "device.checked("))
    assert row < check


@pytest.fixture
def stopping(monkeypatch):
    """As if kernels on a CPU could stop."""
    monkeypatch.setattr(indexing, "STOPS", {"cpu", "cuda"})


@pytest.mark.parametrize("name", PROGRAMS)
def test_kernels_that_stop_mean_the_same(name, stopping):
    function, inputs = PROGRAMS[name]
    args = inputs()
    schedule = assert_right(aten(function, *args), args)
    assert "aten._assert_async.msg" not in {
        str(call.target) for call in schedule.externs}
    if INTERPRETED:
        run = minicompile.compile(function, options={
            "cpu_backend": "triton"})
        judged(near, run(*args), function(*args), function, *args)


@pytest.mark.parametrize("name", WRONG)
def test_a_kernel_stops_at_a_place_outside(name, stopping):
    function, shape, _ = WRONG[name]
    x, right = torch.randn(shape), torch.tensor([0, 2, 1])
    schedule = assert_right(aten(function, x, right), (x, right))
    for far in (99, -99, 2 ** 40):
        with pytest.raises(IndexError, match="index out of bounds"):
            evaluate_schedule(schedule, [x, torch.tensor([0, far, 1])])


def test_only_places_that_are_read_are_checked(stopping):
    """Around a pad no element of its operand is read."""
    x, p = torch.randn(3, 5), torch.tensor([0, 1])
    schedule = assert_right(aten(lambda x, p: F.pad(x.index_select(
        0, p + torch.arange(2)) * 2, (0, 0, 4, 9)), x, p), (x, p))
    assert "checked" in str(schedule) and not schedule.externs


def test_a_place_that_is_a_loop_variable_needs_no_check():
    graph = aten(lambda x: x[torch.arange(3)] + 1, cube())
    kernel, = assert_right(graph, (cube(),)).steps
    assert len(kernel.read) == 1


OUTSIDE = """
import torch, minicompile
w, p = (torch.randn(9, 512, device="cuda"), torch.arange(4096, device="cuda"))
run = minicompile.compile(lambda w, p: w.index_select(0, p) * 2)
run(w, p % 9)
torch.cuda.synchronize()
print("right", flush=True)
run(w, p % 9 + 3)
torch.cuda.synchronize()
"""


@pytest.mark.gpu
def test_a_gpu_stops_at_a_place_outside():
    ran = subprocess.run([sys.executable, "-W", "ignore", "-c", OUTSIDE],
                         text=True, capture_output=True)
    assert ran.returncode and ran.stdout == "right\n"
    assert "device-side assert" in ran.stderr
