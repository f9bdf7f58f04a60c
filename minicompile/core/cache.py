"""Files that only the user can write, and the compiler that makes some.

In: text, or a function that makes a file. Out: a path whose name is the
hash of what made it. Nothing is executed because it lies there: a file is
compared with the hash noted when it was made; what differs is made again.
PyTorch's are codecache.py and cpp_builder.py in torch/_inductor.
"""

from __future__ import annotations

import hashlib
import os
import shlex
import stat
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from .errors import CompileError
from .log import warn_once


def within(work: Callable[[Path], Path]) -> Path:
    """`work(directory)` in the cache directory; in one for this process
    if the cache is not safe, or read-only, or full."""
    given = os.environ.get("MINICOMPILE_CACHE_DIR")
    path = Path(given) if given else Path.home() / ".cache/minicompile"
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if _only_ours(path):
            return work(path)
        reason = "others can write to it"
    except OSError as error:
        reason = error.strerror
    warn_once(f"minicompile does not use the cache {path}: {reason}")
    return work(_private())


@cache
def _private() -> Path:
    """A directory that lasts as long as this process's files."""
    return Path(tempfile.mkdtemp(prefix="minicompile-"))


def _only_ours(path: Path) -> bool:
    """Whether the path is no link, and we alone can write to it."""
    found = path.lstat()
    return (not stat.S_ISLNK(found.st_mode) and found.st_uid == os.getuid()
            and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def key_of(*parts: str) -> str:
    """The hash of these texts, which names the file made from them."""
    joined = "\0".join(parts).encode()
    return hashlib.sha256(joined).hexdigest()[:32]


def read(path: Path) -> bytes | None:
    """The file's content if it is ours; None if not, or not there."""
    try:
        if stat.S_ISREG(path.lstat().st_mode) and _only_ours(path):
            return path.read_bytes()
    except OSError:
        pass
    return None


def store(text: str, suffix: str) -> Path:
    """The path of a file that holds the text, named by its hash."""
    return made(key_of(text), suffix,
                lambda path: path.write_bytes(text.encode()))


def made(key: str, suffix: str, make: Callable[[Path], None]) -> Path:
    """The path of the file that `make(path)` makes, made at most once.

    The hash of its content is kept beside it, in a file of its own.
    """
    def work(folder: Path) -> Path:
        path = folder / (key + suffix)
        noted = path.with_suffix(".sha256")
        content = read(path)
        if content is None or read(noted) != _digest(content):
            with tempfile.TemporaryDirectory(dir=folder, prefix=".") as at:
                fresh, note = Path(at, path.name), Path(at, noted.name)
                make(fresh)
                note.write_bytes(_digest(fresh.read_bytes()))
                for each in note, fresh:  # whole, or not at all
                    each.chmod(0o600)
                    each.replace(folder / each.name)
        return path
    return within(work)


def _digest(content: bytes) -> bytes:
    """The hash that is noted beside a file."""
    return hashlib.sha256(content).hexdigest().encode()


def library(text: str, *flags: str, host: str = "") -> Path:
    """The text as a library; `host` says what else it depends on."""
    words, version = compiler(os.environ.get("CXX", "").strip() or "g++")

    def make(target: Path) -> None:
        run(*words, str(store(text, ".cpp")), "-o", str(target), *flags)
        if not target.exists():
            raise failed(words[0], "it writes no library")
    return made(key_of(text, version, host, *words, *flags), ".so", make)


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
