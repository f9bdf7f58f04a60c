"""A kernel that a compiler refuses costs speed, never the call."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import minicompile
from minicompile import emit, fusion
from chapters._book.ptx import TYPES
from minicompile.core import log
from minicompile.emit import program, target
from minicompile.emit.cuda import launcher
from minicompile.emit.schedules import one_program
from minicompile.emit.triton_math import INTERPRETED
from tests.fusion.graphs import aten
from tests.fusion.symbolic import sized, symbolic

CUDA, COMPILERS = torch.cuda.is_available(), launcher.compilers
compiles = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")


@pytest.fixture(autouse=True)
def in_a_row(one_by_one, monkeypatch):
    """Small kernels are one launch, as users have them."""
    monkeypatch.setattr(one_program, "SMALL", 8192)


def wave(x, w):
    return (x.sin() @ w).exp()


def normed(x, w):
    return (x * w.sum(0)).sin().softmax(-1)


def either(x, w):
    return torch.cond(x.sum() > 0, lambda x, w: (x.sin() @ w).tanh(),
                      lambda x, w: (x @ w).exp(), (x, w)) + x


@pytest.fixture(params=["sin", "cos"])
def refused(request, monkeypatch):
    """Nobody compiles a sine; or the cosine that its gradient needs."""
    monkeypatch.setitem(target.FORMS, request.param,
                        target.Form("nonsense({0})"))
    log.warn_once.cache_clear()
    return request.param


def given(rows=4, device="cpu"):
    torch.manual_seed(rows)
    return [torch.randn(size, 6, device=device, requires_grad=True)
            for size in (rows, 6)]


def gradients(found, args):
    """The result and the gradients, after a backward."""
    found.sum().backward()
    return found.detach(), *(arg.grad for arg in args)


def assert_eager(compiled, function, rows=4, device="cpu", varies=False):
    args, theirs = given(rows, device), given(rows, device)
    if varies:
        minicompile.mark_dynamic(args[0], 0)
    for got, want in zip(gradients(compiled(*args), args),
                         gradients(function(*theirs), theirs)):
        torch.testing.assert_close(got, want)


def ours(warned):
    return [str(each.message) for each in warned
            if "minicompile" in str(each.message)]


def assert_unfused(function, device="cpu", **settings):
    """One warning, before the first launch; then calls are eager's."""
    compiled = minicompile.compile(function, **settings)
    with pytest.warns(UserWarning) as warned:
        args = given(device=device)
        found = compiled(*args)
        first = len(ours(warned))
        gradients(found, args)
        for rows in (4, 4, 5, 7) if settings.get("dynamic") else (4, 4):
            assert_eager(compiled, function, rows, device)
    text, = ours(warned)
    assert first == 1
    assert text.startswith("minicompile does not fuse: kernel kernel_")
    assert "does not compile" in text and "nonsense" in text
    assert "test_refused.py" in text and len(text) < 900
    assert compiled.stats().kernels == 0
    assert list(compiled.stats().fallbacks.values()) == [1]


@pytest.mark.parametrize("function", [wave, normed, either])
def test_what_gxx_refuses_runs_operator_by_operator(refused, function):
    assert_unfused(function)


@pytest.mark.parametrize("function", [wave, normed, either])
def test_for_all_sizes(refused, function):
    assert_unfused(function, dynamic=True)


def test_as_a_backend_of_torch_compile(refused):
    compiled = torch.compile(wave, backend=minicompile.backend)
    with pytest.warns(UserWarning, match="does not fuse: kernel kernel_"):
        assert_eager(compiled, wave)
    torch._dynamo.reset()


def test_what_no_row_can_print_is_not_fused(monkeypatch):
    monkeypatch.delitem(target.FORMS, "exp")
    with pytest.warns(UserWarning, match="does not fuse: no kernel can"):
        assert_eager(minicompile.compile(wave), wave)


def for_an_h200(launch, device, kinds):
    """What Launch.compile does, on a machine without a GPU."""
    names, kinds = launch.kernel.arg_names, (*kinds, *launch.more(kinds)[1])
    signature = {name: TYPES.get(kind, "i32")
                 for name, kind in zip(names, kinds)}
    return triton.compile(
        ASTSource(launch.kernel, signature, {}, {}),
        target=GPUTarget("cuda", 90, 32),
        options=launch.options), 0


@pytest.fixture
def without_gpu(monkeypatch):
    """Kernels for CPU tensors that Triton compiles, though none can run."""
    def printer(device, options):
        made = launcher.CudaPrinter(torch.device("cuda", 0),
                                    options.numerics)
        made.compiles = True
        return made
    monkeypatch.setattr(program, "printer_for", printer)
    monkeypatch.setattr(launcher.Compiled, "compile", for_an_h200)
    pool = ThreadPoolExecutor(2)
    monkeypatch.setattr(launcher, "compilers", lambda: pool)


@compiles
@pytest.mark.parametrize("function", [wave, normed, either])
def test_what_triton_refuses_runs_operator_by_operator(
        refused, without_gpu, function):
    assert_unfused(function)


@compiles
def test_what_the_assembler_refuses(without_gpu, monkeypatch):
    """Any exception, of any stage of Triton."""
    def compile(launch, device, kinds):
        raise MemoryError("nonsense: out of shared memory")
    monkeypatch.setattr(launcher.Compiled, "compile", compile)
    log.warn_once.cache_clear()
    assert_unfused(normed)


def rows_and_columns(x, w):
    return (x * w.sum(0)).softmax(-1) * x.shape[0], (x.half() + 1).sum(0)


@compiles
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_refused_at_a_launch_is_evaluated(
        without_gpu, monkeypatch, dynamic):
    """As is a kernel for other sizes than those that were compiled."""
    def compile(launch, device, kinds):
        raise ValueError("nonsense")
    monkeypatch.setattr(launcher.Compiled, "compile", compile)
    for name, what in (("_cuda_getDevice", lambda: 0),
                       ("_cuda_getCurrentRawStream", lambda device: 5)):
        monkeypatch.setattr(torch._C, name, what, raising=False)
    log.warn_once.cache_clear()
    args = [arg.detach() for arg in given()]
    graph = (symbolic if dynamic else aten)(rows_and_columns, *args)
    made = emit.emit(fusion.fuse(graph))
    assert len(made.kernels) > 1
    with pytest.warns(UserWarning, match="does not compile: nonsense"):
        for rows in (4, 4, 16, 31) if dynamic else (4, 4):
            args = [arg.detach() for arg in given(rows)]
            given_sizes = sized(graph, args) if dynamic else list(args)
            for got, want in zip(made.run(given_sizes),
                                 rows_and_columns(*args), strict=True):
                torch.testing.assert_close(got, want)


@compiles
@pytest.mark.skipif(CUDA, reason="there is a driver")
def test_triton_without_a_driver(without_gpu, monkeypatch):
    monkeypatch.setattr(launcher, "compilers", COMPILERS)
    log.warn_once.cache_clear()
    with pytest.warns(UserWarning, match="does not fuse: .*driver"):
        assert_eager(minicompile.compile(wave), wave)


@pytest.mark.gpu
@compiles
def test_a_size_that_is_refused_on_a_gpu(monkeypatch):
    """Sizes that 16 divides are compiled; in a backward, others are not."""
    made = launcher.Compiled.compile

    def compile(launch, device, kinds):
        if any(type(kind) is int and kind % 16 for kind in kinds):
            raise ValueError("nonsense")
        return made(launch, device, kinds)
    monkeypatch.setattr(launcher.Compiled, "compile", compile)
    log.warn_once.cache_clear()
    compiled = minicompile.compile(wave)
    assert_eager(compiled, wave, 16, "cuda", varies=True)
    with pytest.warns(UserWarning, match="does not compile: nonsense"):
        for rows in (17, 32, 17):
            assert_eager(compiled, wave, rows, "cuda", varies=True)
    assert compiled.stats().kernels > 0 and compiled.stats().graphs == 1


@pytest.mark.gpu
@compiles
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [wave, normed, either])
def test_on_a_gpu(refused, function, dynamic):
    assert_unfused(function, "cuda", dynamic=dynamic)
