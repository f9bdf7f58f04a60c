"""The book's pages as data: their order, their `@show` lines, their blocks.

In: mkdocs.yml (`nav` is the order of reading) and the Markdown files.
Out: Show and Block records with page and line, for weaving, the shown-once
check and the tests that run every executed block.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "chapters"

_SHOW = re.compile(r"^(?P<indent>\s*)@show\s+(?P<names>\S.*)$")
_FENCE = re.compile(r"^(?P<indent>\s*)(?P<ticks>`{3,}|~{3,})(?P<info>.*)$")


@dataclass(frozen=True)
class Show:
    """One `@show` line: the dotted names it asks for."""

    page: str
    line: int
    names: tuple[str, ...]


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


def nav(root: Path = ROOT) -> list[str]:
    """The pages of the book, in order of reading."""
    entries = yaml.safe_load((root / "mkdocs.yml").read_text())["nav"]
    return list(_leaves(entries))


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


def shown_names(line: str) -> tuple[str, tuple[str, ...]] | None:
    """The indent and the names of an `@show` line; None for another."""
    found = _SHOW.match(line)
    return found and (found["indent"], tuple(found["names"].split()))


def read(page: str, text: str) -> tuple[list[Show], list[Block]]:
    """Every `@show` line and every fenced block of a page's text."""
    shows, blocks, fence, start, body = [], [], None, 0, []
    for number, line in enumerate(text.splitlines(), 1):
        if fence is not None:
            if line.strip() == fence["ticks"]:
                blocks.append(_block(page, start, fence, body))
                fence = None
            else:
                body.append(line.removeprefix(fence["indent"]))
        elif found := _FENCE.match(line):
            fence, start, body = found, number, []
        elif found := shown_names(line):
            shows.append(Show(page, number, found[1]))
    return shows, blocks


def _block(page: str, line: int, fence: re.Match, body: list[str]) -> Block:
    """The Block that an opening fence and its lines make."""
    language, *words = shlex.split(fence["info"].strip(" {}")) or [""]
    options = dict(word.split("=", 1) for word in words if "=" in word)
    return Block(page, line, language.lstrip("."), options,
                 "\n".join(body) + "\n")
