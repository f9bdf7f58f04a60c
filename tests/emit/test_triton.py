"""The Triton suite in Triton's interpreter, in a process of its own.

The interpreter is chosen before triton is imported, once for a process.
On a GPU the same tests run in this process too, on the GPU.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from minicompile.core.errors import BackendError, OptionError
from minicompile.core.options import Options
from minicompile.emit import triton_launch
from minicompile.emit.triton import TritonPrinter
from minicompile.emit.triton_math import INTERPRETED

HERE = Path(__file__).parent
SUITES = [HERE / "test_triton_ops.py", HERE / "test_triton_programs.py"]


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
def test_the_suite_in_the_interpreter():
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-W", "ignore",
         *map(str, SUITES)], cwd=HERE.parent.parent, capture_output=True,
        text=True, env={**os.environ, "TRITON_INTERPRET": "1"})
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert " passed" in ran.stdout


@pytest.mark.skipif(INTERPRETED, reason="this is the interpreter's process")
def test_the_interpreter_cannot_be_chosen_too_late():
    with pytest.raises(OptionError, match="TRITON_INTERPRET=1"):
        TritonPrinter(Options(cpu_backend="triton"), torch.device("cpu"))


class Launcher:
    """Stands in for a kernel that Triton has compiled."""

    function, packed_metadata = "function", "packed"

    def __init__(self):
        self.run, self.calls = self.launched, []

    def launched(self, *args):
        self.calls.append(("direct", args))

    def plainly(self, stream, *tensors):
        self.calls.append(("plainly", tensors))


def test_a_bound_kernel_is_launched_directly_if_that_is_safe():
    fake = Launcher()
    launch = triton_launch.Launch(None, lambda: 7, 4, ())
    launch.plainly = fake.plainly
    memory = torch.zeros(64)
    a, b, odd = memory[:16], memory[16:32], memory[1:17]
    run = triton_launch._bound(launch, fake, (a, b))
    assert memory.data_ptr() % 16 == 0
    run(5, a, b)
    run(5, a, odd)
    run(5, odd, b)
    run(None, a, b)
    assert [how for how, _ in fake.calls] == [
        "direct", "plainly", "plainly", "plainly"]
    assert fake.calls[0][1] == (
        7, 1, 1, 5, "function", "packed", None, None, None,
        a.data_ptr(), b.data_ptr())


@pytest.mark.skipif(INTERPRETED, reason="nothing is compiled there")
def test_a_kernel_for_all_sizes_is_launched_for_each(monkeypatch):
    """Compiled anew only for what Triton compiles anew; a grid each."""
    fake, compiled = Launcher(), []

    def plainly(launch, stream, *given):
        compiled.append(given[1:])
        return fake
    monkeypatch.setattr(triton_launch.Launch, "plainly", plainly)
    kernel = triton_launch.launched(
        grid=lambda n, m: n * m, warps=4, sizes=2,
        wide=lambda n, m: n * m > 1000)(None)
    tensor = torch.zeros(64)[:16]
    for sizes in [(3, 5), (7, 9), (16, 5), (48, 3), (50, 50), (1, 5)]:
        kernel.run(5, tensor, *sizes)
        kernel.run(5, tensor, *sizes)
    assert compiled == [(3, 5, False), (16, 5, False), (50, 50, True),
                        (1, 5, False)]
    assert [(call[0], *call[-3:]) for _, call in fake.calls] == [
        (15, 3, 5, False), (63, 7, 9, False), (63, 7, 9, False),
        (80, 16, 5, False), (144, 48, 3, False), (144, 48, 3, False),
        (2500, 50, 50, True), (5, 1, 5, False)]


def test_a_kernel_that_does_not_compile_says_what_it_is_for(monkeypatch):
    def kernel_3():
        pass

    def refuse(stream, *tensors):
        raise ValueError("no such register")

    fake = type("Kernel", (), {"fn": staticmethod(kernel_3)})
    launch = triton_launch.Launch(fake, None, 4, ("gelu, from m.py:3: f(x)",))
    monkeypatch.setattr(launch, "plainly", refuse)
    with pytest.raises(BackendError) as caught:
        launch.first(0, torch.zeros(4))
    for part in ("kernel_3", "no such register", "gelu, from m.py:3: f(x)",
                 "test_triton.py:"):
        assert part in str(caught.value)
