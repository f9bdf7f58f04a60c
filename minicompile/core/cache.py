"""Files that are made once: the texts of programs, and their libraries.

In: a text, or a function that makes a library. Out: a path whose name is
the hash of what made it. On the road a file lasts as long as its process;
a row of the reference keeps it from process to process. PyTorch's is
torch/_inductor/codecache.py.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

#: Writes the content of an entry to a path.
Make = Callable[[Path], None]


def key_of(*parts: str) -> str:
    """The hash of these texts, which names the file made from them."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]


def appear(path: Path, make: Make) -> Path:
    """The path, made under another name: whole, or not there at all."""
    handle, fresh = tempfile.mkstemp(dir=path.parent, prefix=path.name[:33])
    os.close(handle)
    try:
        make(Path(fresh))
        os.chmod(fresh, 0o600)
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
    return ENTRIES[-1](key_of(text) + suffix,
                       lambda path: path.write_bytes(text.encode()), False)


def made(key: str, make: Make, load: Callable) -> object:
    """`load(path)` of the library that `make(path)` makes at most once.

    One that does not load, such as another system's, is made again.
    """
    try:
        return load(str(ENTRIES[-1](f"{key}.so", make, False)))
    except (ImportError, OSError):
        return load(str(ENTRIES[-1](f"{key}.so", make, True)))
