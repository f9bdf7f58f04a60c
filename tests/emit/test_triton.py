"""The Triton suite in Triton's interpreter, in a process of its own.

The interpreter is chosen before triton is imported, once for a process.
On a GPU the same tests run in this process too, on the GPU.
"""

import ctypes
import os
import struct
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import current_thread
from types import SimpleNamespace

import pytest
import torch

from minicompile.core.errors import OptionError
from minicompile.core.torch.extension import extension
from minicompile.emit.cuda import launcher
from minicompile.emit.cuda.launcher import ahead
from minicompile.emit.launch import printer_in_triton
from minicompile.emit.triton_math import INTERPRETED

HERE = Path(__file__).parent
SUITES = [HERE / f"test_{name}.py" for name in (
    "triton_ops", "triton_programs", "triton_walk", "online", "adding")]


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
@pytest.mark.parametrize("part", [
    "quick", pytest.param("rest", marks=pytest.mark.slow)])
def test_the_suite_in_the_interpreter(part):
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-W", "ignore",
         f"--part={part}", *map(str, SUITES)], cwd=HERE.parent.parent,
        capture_output=True, text=True,
        env={**os.environ, "TRITON_INTERPRET": "1"})
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
def test_the_interpreter_cannot_be_chosen_too_late():
    with pytest.raises(OptionError, match="TRITON_INTERPRET=1"):
        printer_in_triton(torch.device("cpu"), "eager")


START = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p,
    ctypes.POINTER(ctypes.POINTER(ctypes.c_int64)), ctypes.c_void_p)


class Compiled:
    """A kernel that Triton has compiled, and a driver that notes what it
    is told to start: (function, programs, threads, shared, stream, the
    arguments and four zeros)."""

    function, members = 1234, 1

    def __init__(self, monkeypatch, kinds, answer=0, scratch=0):
        self.calls, self.answer, self.count = [], answer, len(kinds) + 4
        self.count -= kinds.count("constexpr")
        self.src = SimpleNamespace(signature=dict(enumerate(kinds)))
        self.metadata = SimpleNamespace(
            num_warps=4, shared=96, global_scratch_size=scratch,
            profile_scratch_size=0)
        self.start = START(self.note)
        bound = extension("launcher", launcher.LAUNCHER).bound
        monkeypatch.setattr(launcher, "driver", lambda: (
            bound, ctypes.cast(self.start, ctypes.c_void_p).value))

    def note(self, function, programs, y, z, threads, ty, tz, shared,
             stream, places, extra):
        assert (z, ty, tz, extra) == (1, 1, 1, None) and y == self.members
        given = tuple(places[k][0] for k in range(self.count))
        self.calls.append((function, programs, threads, shared, stream,
                           given))
        return self.answer

    def plainly(self, stream, *given):
        self.calls.append(("plainly", stream, *given))


ZEROS = (0, 0, 0, 0)


def test_a_bound_kernel_is_launched_directly_if_that_is_safe(monkeypatch):
    fake = Compiled(monkeypatch, ["*fp32", "*fp32"])
    launch = launcher.Compiled(None, lambda: 7, 4)
    launch.plainly = fake.plainly
    memory = torch.zeros(64)
    a, b, odd = memory[:16], memory[16:32], memory[1:17]
    run = launcher.direct(launch, fake, fake.function)
    assert memory.data_ptr() % 16 == 0
    run(5, a, b)
    run(5, a, odd)
    run(None, odd, b)
    run(5, b, torch.nn.Parameter(a))
    assert fake.calls == [
        (1234, 7, 128, 96, 5, (a.data_ptr(), b.data_ptr(), *ZEROS)),
        ("plainly", 5, a, odd), ("plainly", None, odd, b),
        (1234, 7, 128, 96, 5, (b.data_ptr(), a.data_ptr(), *ZEROS))]


def test_what_the_driver_refuses_is_left_to_triton(monkeypatch):
    """It has an error's text, and a context for a new thread."""
    fake = Compiled(monkeypatch, ["*fp32", "i32"], answer=201)
    launch = launcher.Compiled(None, lambda n: n, 4, 1)
    launch.plainly = fake.plainly
    a = torch.zeros(64)
    run = launcher.direct(launch, fake, fake.function)
    run(5, a, 3)
    run(5, a, "three")
    assert [call[0] for call in fake.calls] == [1234, "plainly", "plainly"]
    assert fake.calls[1:] == [("plainly", 5, a, 3), ("plainly", 5, a, "three")]


def test_a_number_and_the_members_of_a_batch_reach_the_driver(monkeypatch):
    fake = Compiled(monkeypatch, ["*fp32", "fp32"])
    fake.members = 3
    launch = launcher.Compiled(None, lambda: 7, 4, members=3)
    launch.plainly = fake.plainly
    a = torch.zeros(64)
    run = launcher.direct(launch, fake, fake.function)
    run(5, a, 0.1)
    run(5, a, "a tenth")
    (_, programs, _, _, _, (address, number, *_)), plainly = fake.calls
    assert (programs, address) == (7, a.data_ptr())
    assert struct.pack("q", number) == struct.pack("fi", 0.1, 0)
    assert plainly == ("plainly", 5, a, "a tenth")


def test_an_error_of_triton_is_an_error_of_the_launch(monkeypatch):
    fake = Compiled(monkeypatch, ["*fp32"], answer=700)
    launch = launcher.Compiled(None, lambda: 7, 4)

    def plainly(stream, *given):
        raise RuntimeError("Triton Error [CUDA]: an illegal access")
    launch.plainly = plainly
    with pytest.raises(RuntimeError, match="an illegal access"):
        launcher.direct(launch, fake, 1234)(5, torch.zeros(64))


@pytest.mark.parametrize("kinds, scratch", [
    (["*fp32"], 64), (["*fp32", "u64"], 0), (["nvTmaDesc"], 0)])
def test_a_kernel_with_more_to_it_is_left_to_triton(
        monkeypatch, kinds, scratch):
    fake = Compiled(monkeypatch, kinds, scratch=scratch)
    launch = launcher.Compiled(None, lambda: 7, 4)
    assert launcher.direct(launch, fake, 1234) == launch.plainly


def test_without_the_driver_kernels_are_launched_as_triton_does(monkeypatch):
    fake = Compiled(monkeypatch, ["*fp32"])
    monkeypatch.setattr(launcher, "driver", lambda: None)
    launch = launcher.Compiled(None, lambda: 7, 4)
    assert launcher.direct(launch, fake, 1234) == launch.plainly


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled there")
def test_a_kernel_for_all_sizes_is_launched_for_each(monkeypatch):
    """Compiled anew only for what Triton compiles anew; a grid each."""
    made = []

    def compile(launch, device, kinds):
        dtype, *sizes = kinds
        assert dtype == torch.float32
        kinds = ("constexpr" if size == 1 else "i32" for size in sizes)
        made.append(((*sizes, launch.wide(*sizes)), Compiled(
            monkeypatch, ["*fp32", *kinds, "constexpr"])))
        return made[-1][1], 1234
    monkeypatch.setattr(launcher.Compiled, "compile", compile)
    kernel = ahead(
        grid=lambda n, m: n * m, warps=4, sizes=2,
        wide=lambda n, m: n * m > 1000)(None)
    tensor = torch.zeros(64)[:16]
    for sizes in [(3, 5), (7, 9), (16, 5), (48, 3), (50, 50), (1, 5)]:
        kernel.run(5, tensor, *sizes)
        kernel.run(5, tensor, *sizes)
    assert [sizes for sizes, _ in made] == [
        (3, 5, False), (16, 5, False), (50, 50, True), (1, 5, False)]
    start = tensor.data_ptr()
    assert [(call[1], call[-1]) for _, fake in made for call in fake.calls
            ] == [(15, (start, 3, 5, *ZEROS)),
                  (15, (start, 3, 5, *ZEROS)),
                  *[(63, (start, 7, 9, *ZEROS))] * 2,
                  *[(80, (start, 16, 5, *ZEROS))] * 2,
                  *[(144, (start, 48, 3, *ZEROS))] * 2,
                  *[(2500, (start, 50, 50, *ZEROS))] * 2,
                  *[(5, (start, 5, *ZEROS))] * 2]


@pytest.fixture
def compiling(monkeypatch):
    """(compiled for what, in which thread), with a pool of one thread."""
    fake, seen = Compiled(monkeypatch, ["*fp32", "i32"]), []

    def compile(launch, device, given):
        seen.append((*given, current_thread().name))
        return fake, 1234
    pool = ThreadPoolExecutor(1, "pool")
    monkeypatch.setattr(launcher, "compilers", lambda: pool)
    monkeypatch.setattr(launcher.Compiled, "compile", compile)
    seen.append(fake.calls)
    return seen


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled there")
def test_a_kernel_is_compiled_before_it_is_launched(compiling):
    """Once, in another thread, for any number that is not specialised;
    for other tensors than foreseen, anew."""
    launches, *_ = compiling
    kernel = ahead(grid=lambda: 7, warps=4)(None)
    kernel.prepare(None, 0, torch.float32, 3)
    kernel.run(5, torch.zeros(16), 8)
    kernel.run(5, torch.zeros(16), 9)
    assert compiling[1:] == [(torch.float32, 3, "pool_0")]
    assert [call[-1][1] for call in launches] == [8, 9]
    other = torch.zeros(16).double(), 3
    kernel.first(kernel.kind(other), other)
    assert compiling[2:] == [(torch.float64, 3, "MainThread")]


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled there")
def test_a_kernel_for_all_sizes_is_compiled_for_the_first_before(compiling):
    kernel = ahead(
        grid=lambda n: n, warps=4, sizes=1)(None)
    kernel.prepare(None, 0, torch.float32, 32)
    kernel.run(5, torch.zeros(16), 48)
    assert compiling[1:] == [(torch.float32, 32, "pool_0")]
    kernel.run(5, torch.zeros(16), 49)
    assert compiling[2:] == [(torch.float32, 49, "MainThread")]
