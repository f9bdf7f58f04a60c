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

from minicompile.core.errors import OptionError
from minicompile.core.options import Options
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
