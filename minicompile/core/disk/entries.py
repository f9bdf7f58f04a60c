"""The cache on disk: checked, bounded, emptied, saved as one file.

In: the entries of core/cache.py. Out: the same, kept from process to
process in a directory that only the user can write. Nothing is executed
because it lies there: the name of a text is its hash, and a library ends
in the hash of its name and of what comes before. An entry that differs is
made again. The least recently used go when there are more bytes than
MINICOMPILE_CACHE_SIZE. A saved file has a line of plain data for each
library or graph, and loading it makes the same checks. PyTorch's are
torch.compiler.save_cache_artifacts and load_cache_artifacts.
"""

import hashlib
import json
import os
import re
import stat
import time
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from math import inf
from pathlib import Path

from ..cache import ENTRIES, Make, appear, private
from ..errors import OptionError
from ..log import warn_once
from ..torch.options import bytes_in

#: An entry's name: a hash, and what it is, or a random word until it is.
NAME = re.compile(r"([0-9a-f]{32})\.(\w+)")

#: What ends in the hash of its name and of what comes before; the name of
#: anything else is its hash.
SIGNED = ("so", "json")

#: So many seconds after its last use, another process may need an entry.
IN_USE = 60

#: The folder is trimmed again when this share of the limit was added.
SHARE = 1 / 64

#: Bytes that this process has added to a folder since it trimmed it.
ADDED: dict[Path, float] = {}

#: The libraries that this process asked for: found, and made.
LIBRARIES: Counter[str] = Counter()


def limit() -> int:
    """The bytes that the cache may hold; OptionError for a wrong text."""
    asked = os.environ.get("MINICOMPILE_CACHE_SIZE", "1GiB")
    if (found := bytes_in(asked)) is None:
        raise OptionError(f"MINICOMPILE_CACHE_SIZE={asked!r} should be a "
                          'size such as "512MiB"')
    return found


limit()  # a wrong text is an error now


def place() -> Path:
    """The cache directory, which need not be there."""
    return Path(os.path.expanduser(os.environ.get(
        "MINICOMPILE_CACHE_DIR") or "~/.cache/minicompile"))


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
    return work(private())


def only_ours(path: Path) -> bool:
    """Whether the path is no link, and we alone can write to it."""
    found = path.lstat()
    return (not stat.S_ISLNK(found.st_mode) and found.st_uid == os.getuid()
            and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH))


def digest(content: bytes) -> bytes:
    """The hash of a content, as text."""
    return hashlib.sha256(content).hexdigest().encode()


def read(path: Path) -> bytes | None:
    """The content of an entry if it is ours and sound; else None."""
    with suppress(OSError):
        if stat.S_ISREG(path.lstat().st_mode) and only_ours(path):
            content = path.read_bytes()
            return content if is_sound(path.name, content) else None
    return None


def is_sound(name: str, content: bytes) -> bool:
    """Whether this is what was stored under a name."""
    if not (found := NAME.fullmatch(name)):
        return False
    key = found[1].encode()
    if found[2] in SIGNED:
        return content[-64:] == digest(key + content[:-64])
    return digest(content)[:32] == key


def keep_entry(name: str, make: Make, anew: bool = False) -> Path:
    """The path of an entry, which `make()` makes if it is not there, and
    which is signed if its name is not its hash."""
    @cache  # the folder may be full: then it lands in another
    def signed() -> bytes:
        content = make()
        return content + digest(name[:32].encode() + content) * (
            name.endswith(SIGNED))

    def work(folder: Path) -> Path:
        path = folder / name
        there = not anew and read(path) is not None
        if not there:
            appear(path, signed)
        told(path, there)
        return path
    return within(work)


ENTRIES.append(keep_entry)


def find(name: str) -> bytes | None:
    """The content of a signed entry, if it is there and sound."""
    path = within(lambda folder: folder / name)
    if content := read(path):
        told(path, True)
        return content[:-64]
    return None


def entries(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The entries of a cache, the least recently used first."""
    found = []
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):  # another process deleted it
                if NAME.fullmatch(path.name):
                    found.append((path, path.lstat()))
    return sorted(found, key=lambda each: each[1].st_mtime)


def told(path: Path, there: bool) -> None:
    """Note that an entry was used, or make room for it."""
    if path.suffix == ".so":
        LIBRARIES["found" if there else "made"] += 1
    with suppress(OSError):
        if not there:
            folder = path.parent
            ADDED[folder] = ADDED.get(folder, inf) + path.stat().st_size
            if ADDED[folder] > SHARE * limit():
                trim(folder)
        elif path.name.endswith(SIGNED):
            os.utime(path)


def trim(folder: Path) -> None:
    """Delete what was not used for the longest time beyond the limit."""
    ADDED[folder] = 0
    found, most = entries(folder), limit()
    size, now = sum(each.st_size for _, each in found), time.time()
    for path, each in found:
        if size <= most or abs(now - each.st_mtime) < IN_USE:
            break
        path.unlink(missing_ok=True)
        size -= each.st_size


def described() -> str:
    """Where the cache is, its entries and bytes."""
    found = entries(place())
    size = sum(each.st_size for _, each in found)
    return (f"{place()}: {len(found)} entries, {size / 2**20:.1f} of "
            f"{limit() / 2**20:.0f} MiB")


def clear_entries() -> None:
    """Delete every entry."""
    for path, _ in entries(place()):
        path.unlink(missing_ok=True)


def save_cache(path: str | Path) -> int:
    """Write libraries and graphs of the cache as one file; how many.

    Another process, or a machine with the same processor and compiler,
    starts warm after `load_cache(path)`.
    """
    count = 0
    with open(path, "w", encoding="ascii") as file:
        for each, _ in entries(place()):
            if each.name.endswith(SIGNED) and (content := read(each)):
                text = b64encode(content).decode()
                file.write(json.dumps([each.name, text]) + "\n")
                count += 1
    return count


def load_cache(path: str | Path) -> int:
    """Add what is in a saved file to the cache; how many entries.

    They are machine code and programs, which a compiled function runs, and
    the checks find damage, not malice: load no file that you would not run.
    """
    count = refused = 0
    with open(path, "rb") as lines:
        for line in lines:
            try:
                name, text = json.loads(line)
                content = b64decode(text, validate=True)
                if not name.endswith(SIGNED) or not is_sound(name, content):
                    raise ValueError
            except (AttributeError, TypeError, ValueError, RecursionError):
                refused += 1
                continue
            keep_entry(name, partial(bytes, content[:-64]))
            count += 1
    if refused:
        warn_once(f"{path} has {refused} damaged lines, which are left out")
    return count
