"""The cache on disk: bounded, listed, emptied, saved as one file.

In: the entries of core/cache.py. Out: the same, of which the least
recently used go when there are more bytes than MINICOMPILE_CACHE_SIZE. A
saved file has a line of plain data for each library. Loading makes the
checks of a cache: a damaged line, or a name that is not a hash, is left
out. PyTorch's are torch.compiler.save_cache_artifacts and
load_cache_artifacts.
"""

from __future__ import annotations

import json
import os
import time
from base64 import b64decode, b64encode
from collections import Counter
from contextlib import suppress
from functools import partial
from math import inf
from pathlib import Path

from .. import TOOLS, cache
from ..errors import OptionError
from ..log import warn_once
from ..options import bytes_in

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


def entries(folder: Path) -> list[tuple[Path, os.stat_result]]:
    """The entries of a cache, the least recently used first."""
    found = []
    with suppress(OSError):
        for path in folder.iterdir():
            with suppress(OSError):  # another process deleted it
                if cache.NAME.fullmatch(path.name):
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
        elif path.suffix == ".so":
            os.utime(path)


cache.ASKED.append(told)


def trim(folder: Path) -> None:
    """Delete what was not used for the longest time beyond the limit."""
    ADDED[folder] = 0
    found, most = entries(folder), limit()
    size, now = sum(stat.st_size for _, stat in found), time.time()
    for path, stat in found:
        if size <= most or abs(now - stat.st_mtime) < IN_USE:
            break
        path.unlink(missing_ok=True)
        size -= stat.st_size


def described() -> str:
    """Where the cache is, its entries and bytes."""
    found = entries(cache.place())
    size = sum(stat.st_size for _, stat in found)
    return (f"{cache.place()}: {len(found)} entries, {size / 2**20:.1f} of "
            f"{limit() / 2**20:.0f} MiB")


def clear() -> None:
    """Delete every entry."""
    for path, _ in entries(cache.place()):
        path.unlink(missing_ok=True)


def save_cache(path: str | Path) -> int:
    """Write the libraries of the cache as one file; how many they are.

    Another process, or a machine with the same processor and compiler,
    starts warm after `load_cache(path)`.
    """
    count = 0
    with open(path, "w", encoding="ascii") as file:
        for each, _ in entries(cache.place()):
            if each.suffix == ".so" and (content := cache.read(each)):
                text = b64encode(content).decode()
                file.write(json.dumps([each.name, text]) + "\n")
                count += 1
    return count


def load_cache(path: str | Path) -> int:
    """Add the libraries of a saved file to the cache; how many they are.

    They are machine code, which a compiled function runs, and the checks
    find damage, not malice: load no file that you would not run.
    """
    count = refused = 0
    with open(path, "rb") as lines:
        for line in lines:
            try:
                name, text = json.loads(line)
                content = b64decode(text, validate=True)
                if not name.endswith(".so") or not cache.is_sound(
                        name, content):
                    raise ValueError
            except (AttributeError, TypeError, ValueError, RecursionError):
                refused += 1
                continue
            cache.entry(name, partial(Path.write_bytes, data=content))
            count += 1
    if refused:
        warn_once(f"{path} has {refused} damaged lines, which are left out")
    return count


TOOLS.update(save_cache=save_cache, load_cache=load_cache)
