"""The C++ compiler: g++, or the one that CXX names.

In: a C++ text. Out: a loaded library, compiled at most once. A compiler
that is missing or broken is a CompileError with its first complaint.
PyTorch's is torch/_inductor/cpp_builder.py.
"""

from __future__ import annotations

import ctypes
import os
import shlex
import subprocess
from collections.abc import Callable
from functools import cache

from .cache import key_of, made, store
from .errors import CompileError


def library(text: str, *flags: str, host: str = "",
            load: Callable = ctypes.CDLL) -> object:
    """The text as a library; `host` says what else it depends on."""
    words, version = compiler(os.environ.get("CXX", "").strip() or "g++")

    def make(target) -> None:
        run(*words, str(store(text, ".cpp")), "-o", str(target), *flags)
        if not target.stat().st_size:
            raise failed(words[0], "it writes no library")
    return made(key_of(text, version, host, *words, *flags), make, load)


@cache
def compiler(named: str) -> tuple[tuple[str, ...], str]:
    """The words that call a compiler, as in a shell, and its version."""
    try:
        words = tuple(shlex.split(named))
        return words, run(*words, "--version").partition("\n")[0]
    except (OSError, ValueError) as error:
        raise CompileError(
            f"no C++ compiler: {error}. Install one: `apt install g++`, "
            "`dnf install gcc-c++` or `conda install gxx`; or name another "
            "one in CXX") from error


def run(*command: str) -> str:
    """The compiler's output; CompileError with its first complaint."""
    ran = subprocess.run(command, capture_output=True, text=True,
                         errors="replace", check=False)
    if ran.returncode:
        lines = [*filter(str.strip, ran.stderr.splitlines())] or [
            f"status {ran.returncode}"]  # a signal's number is negative
        first = next((a for a in lines if "error" in a), lines[0]).strip()
        error = failed(command[0], first)
        error.add_note(ran.stderr)
        raise error
    return ran.stdout


def failed(name: str, why: str) -> CompileError:
    """The error for a compiler that fails, with the way out."""
    return CompileError(f"{name} fails: {why}; CXX names another compiler")
