"""Files that are made once: the texts of programs, and C++ libraries.

In: a text, or a text in C++. Out: a path whose name is the hash of what
made it; a loaded library. g++ compiles it, or what CXX names. A compiler
that is missing or broken is a CompileError with its first complaint. On
the road a file lasts as long as its process; a row of the reference keeps
it from process to process. PyTorch's are torch/_inductor/codecache.py and
cpp_builder.py.
"""

import ctypes
import hashlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from .errors import CompileError

#: Gives the content of an entry.
Make = Callable[[], bytes]


def key_of(*parts: str) -> str:
    """The hash of these texts, which names the file made from them."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def appear(path: Path, make: Make) -> Path:
    """The path, made under another name: whole, or not there at all."""
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=path.name[:33])
    try:
        with open(handle, "wb") as file:
            file.write(make())
        os.replace(fresh, path)
    finally:
        Path(fresh).unlink(missing_ok=True)
    return path


@cache
def private() -> Path:
    """A directory that lasts as long as this process's files."""
    return Path(tempfile.mkdtemp(prefix="minicompile-"))


def of_this_process(name: str, make: Make, anew: bool) -> Path:
    """The path of an entry that no other process knows."""
    path = private() / name
    return appear(path, make) if anew or not path.exists() else path


#: What gives the path of the entry of a name, which it makes if it is not
#: there, or `anew`; the last row decides.
ENTRIES: list[Callable[[str, Make, bool], Path]] = [of_this_process]


def store(text: str, suffix: str) -> Path:
    """The path of a file that holds the text, named by its hash."""
    return ENTRIES[-1](key_of(text) + suffix, text.encode, False)


def made(key: str, make: Make, load: Callable) -> object:
    """`load(path)` of the library that `make()` makes at most once.

    One that does not load, such as another system's, is made again.
    """
    try:
        return load(str(ENTRIES[-1](f"{key}.so", make, False)))
    except (ImportError, OSError):
        return load(str(ENTRIES[-1](f"{key}.so", make, True)))


# The C++ compiler


def library(text: str, *flags: str, host: str = "",
            load: Callable = ctypes.CDLL) -> object:
    """The text as a library; `host` says what else it depends on."""
    words, version = compiler(os.environ.get("CXX", "").strip() or "g++")

    def make() -> bytes:
        with tempfile.TemporaryDirectory() as folder:  # a cache may be full
            fresh = Path(folder, "library")
            run(*words, str(store(text, ".cpp")), "-o", str(fresh), *flags)
            if not fresh.exists():
                raise failed(words[0], "it writes no library")
            return fresh.read_bytes()
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
