"""The book's pages as data: their order, their `@show` lines, their blocks.

In: mkdocs.yml (`nav` is the order of reading) and the Markdown files.
Out: the Show and Block records of a page and its prose, for weaving, the
shown-once check, the reading time and the tests that run every block.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass, field
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "chapters"

_SHOW = re.compile(r"^(?P<indent>\s*)@show\s+(?P<names>\S.*)$")
_REFERENCE = re.compile(r"^@reference\s+(\S+)\s*$")
_WORD = re.compile(r'(?:[^\s"]|"[^"]*")+')
_FENCE = re.compile(r"^(?P<indent>\s*)(?P<ticks>`{3,}|~{3,})(?P<info>.*)$")


@dataclass(frozen=True)
class Show:
    """One `@show` line: the dotted names it asks for, and leaves out."""

    page: str
    line: int
    names: tuple[str, ...]
    left: tuple[str, ...] = ()
    title: str = ""


@dataclass(frozen=True)
class Block:
    """One fenced block: its language, its options, its text."""

    page: str
    line: int
    language: str
    options: dict[str, str]
    code: str

    @property
    def executed(self) -> bool:
        """Whether building the book runs it."""
        return (self.language == "python"
                and self.options.get("exec") in ("1", "true", "on", "yes"))


@dataclass
class Page:
    """The parts of a page's text."""

    shows: list[Show] = field(default_factory=list)
    blocks: list[Block] = field(default_factory=list)
    prose: list[str] = field(default_factory=list)


def nav(root: Path = ROOT) -> list[str]:
    """The pages of the book, in order of reading."""
    return list(_leaves(contents(root)))


def contents(root: Path = ROOT) -> list:
    """The `nav` of mkdocs.yml: entries, and parts with entries."""
    return yaml.safe_load((root / "mkdocs.yml").read_text())["nav"]


def _leaves(entry: object):
    """The page paths in a piece of `nav`."""
    match entry:
        case str():
            yield entry
        case list():
            for part in entry:
                yield from _leaves(part)
        case dict():
            yield from _leaves(list(entry.values()))


def texts(root: Path = ROOT) -> dict[str, str]:
    """The text of each page that exists, in order of reading."""
    files = {page: root / "chapters" / page for page in nav(root)}
    return {page: path.read_text() for page, path in files.items()
            if path.exists()}


def asked(line: str) -> tuple[str, list[str], list[str]] | None:
    """The indent, the names and the left out names of an `@show` line.

    A word with a minus leaves a part of the name before it to the
    reference. `-open` is the part `open`. `-*` is every method but
    `__init__` and those shown by name. `-"if x"` is the branch of a function
    whose first line begins so.
    """
    found = _SHOW.match(line)
    if found is None:
        return None
    names, left = [], []
    for word in _WORD.findall(found["names"]):
        if word.startswith("-"):
            left.append(f"{names[-1]}.{word[1:]}")
        else:
            names.append(word)
    return found["indent"], names, left


def reference_name(line: str) -> str | None:
    """The module that a `@reference` line asks for; None for another."""
    found = _REFERENCE.match(line)
    return found and found[1]


def read(page: str, text: str) -> Page:
    """The `@show` lines, the fenced blocks and the prose of a page."""
    found, fence, start, body = Page(), None, 0, []
    heading = re.search(r"^# (.+)", text, re.M)
    title = heading[1] if heading else page
    for number, line in enumerate(text.splitlines(), 1):
        if fence is not None:
            if line.strip() == fence["ticks"]:
                found.blocks.append(_block(page, start, fence, body))
                fence = None
            else:
                body.append(line.removeprefix(fence["indent"]))
        elif opened := _FENCE.match(line):
            fence, start, body = opened, number, []
        elif show := asked(line):
            found.shows.append(Show(page, number, *map(tuple, show[1:]),
                                    title))
        elif not reference_name(line):
            found.prose.append(line)
    if fence is not None:
        raise ValueError(f"chapters/{page}:{start}: this block has no end")
    return found


def _block(page: str, line: int, fence: re.Match, body: list[str]) -> Block:
    """The Block that an opening fence and its lines make."""
    language, *words = shlex.split(fence["info"].strip(" {}")) or [""]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return Block(page, line, language.lstrip("."), options,
                 "\n".join(body) + "\n")
