"""Files that only the user can write, kept from process to process.

In: text, or a function that makes a library. Out: a path whose name is
the hash of what made it. Nothing is executed because it lies there: the
name of a text is its hash, and a library ends in the hash of its name and
of what comes before. What differs is made again. PyTorch's is
torch/_inductor/codecache.py.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path

from .log import warn_once

#: An entry's name: a hash, and what it is, or a random word until it is.
NAME = re.compile(r"([0-9a-f]{32})\.(\w+)")

#: Each is told of an entry that is asked for, and whether it was there.
ASKED: list[Callable[[Path, bool], None]] = []


def place() -> Path:
    """The cache directory, which need not be there."""
    return Path(os.environ.get("MINICOMPILE_CACHE_DIR")
                or os.path.expanduser("~/.cache/minicompile"))


def within(work: Callable[[Path], object]) -> object:
    """`work(directory)` in the cache directory; in one for this process
    if the cache is not safe, or read-only, or full."""
    path = place()
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if only_ours(path):
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


def only_ours(path: Path) -> bool:
    """Whether the path is no link, and we alone can write to it."""
    found = path.lstat()
    return (not stat.S_ISLNK(found.st_mode) and found.st_uid == os.getuid()
            and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def key_of(*parts: str) -> str:
    """The hash of these texts, which names the file made from them."""
    return _digest("\0".join(parts).encode())[:32].decode()


def _digest(content: bytes) -> bytes:
    """The hash of a content, as text."""
    return hashlib.sha256(content).hexdigest().encode()


def read(path: Path) -> bytes | None:
    """The content of an entry if it is ours and sound; else None."""
    try:
        if stat.S_ISREG(path.lstat().st_mode) and only_ours(path):
            content = path.read_bytes()
            return content if is_sound(path.name, content) else None
    except OSError:
        pass
    return None


def is_sound(name: str, content: bytes) -> bool:
    """Whether this is what was stored under a name."""
    if not (found := NAME.fullmatch(name)):
        return False
    key = found[1].encode()
    if found[2] == "so":
        return content[-64:] == _digest(key + content[:-64])
    return _digest(content)[:32] == key


def entry(name: str, make: Callable[[Path], None], anew: bool = False
          ) -> Path:
    """The path of an entry, which `make(path)` makes if it is not there.

    It appears under its name whole, or not at all.
    """
    def work(folder: Path) -> Path:
        path = folder / name
        there = not anew and read(path) is not None
        if not there:
            handle, fresh = tempfile.mkstemp(dir=folder, prefix=name[:33])
            os.close(handle)
            try:
                make(Path(fresh))
                os.chmod(fresh, 0o600)
                os.replace(fresh, path)
            finally:
                Path(fresh).unlink(missing_ok=True)
        for tell in ASKED:
            tell(path, there)
        return path
    return within(work)


def store(text: str, suffix: str) -> Path:
    """The path of a file that holds the text, named by its hash."""
    return entry(key_of(text) + suffix,
                 lambda path: path.write_bytes(text.encode()))


def made(key: str, make: Callable[[Path], None], load: Callable) -> object:
    """`load(path)` of the library that `make(path)` makes at most once.

    One that does not load, such as another system's, is made again.
    """
    def signed(path: Path) -> None:
        make(path)
        content = path.read_bytes()
        path.write_bytes(content + _digest(key.encode() + content))

    try:
        return load(str(entry(f"{key}.so", signed)))
    except (ImportError, OSError):
        return load(str(entry(f"{key}.so", signed, anew=True)))
