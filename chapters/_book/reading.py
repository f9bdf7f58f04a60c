"""How long the book takes to read: `python -m chapters._book.reading`.

For each main page: words of prose, lines of code shown, and minutes at 200
words and 8 lines a minute. The mean length of a sentence, the reading ease
by Flesch, the longest run of code without prose. Then the names that a box
shows and no sentence of its page mentions.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from chapters._book import pages
from chapters._book.weave import Book

WORDS, LINES = 200, 8  # read in a minute


class Page(NamedTuple):
    """How much a page asks of its reader."""

    name: str
    words: int
    lines: int
    unnamed: tuple[str, ...]
    mean: float
    ease: float
    run: int

    @property
    def minutes(self) -> float:
        """The time that prose and code take."""
        return self.words / WORDS + self.lines / LINES


def mentioned(text: str, name: str) -> bool:
    """Whether the sentences use the last part of a dotted name."""
    return re.search(rf"\b{re.escape(name.rsplit('.', 1)[-1])}\b",
                     text) is not None


def paragraphs(prose: list[str]) -> list[str]:
    """The paragraphs and list items of a page's lines, markup taken off."""
    text = "\n".join("" if re.match(r"\s*([#|@<!:]|\?\?\?|===)", line)
                     else re.sub(r"^\s*([-*]|\d+\.)\s+", "\n\n", line)
                     for line in prose)
    text = re.sub(r"`[^`]*`", "Code", text)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"[*_]{1,2}([^*_]+)[*_]{1,2}", r"\1", text)
    return [" ".join(each.split()) for each in re.split(r"\n\s*\n", text)
            if each.strip()]


def ease(prose: list[str]) -> tuple[float, float]:
    """Words in a sentence, and Flesch's reading ease, of a page's lines."""
    told = [re.findall(r"[A-Za-z']+", sentence)
            for paragraph in paragraphs(prose) for sentence in re.split(
                r"(?<=[.!?])[\"')]*\s+(?=[A-Z(\"'])", paragraph)]
    words = [word for sentence in told for word in sentence]
    heard = sum(max(1, len(re.findall(r"[aeiouy]+", word.lower(
        ).removesuffix("e")))) for word in words)
    mean, count = len(words) / max(1, len(told)), max(1, len(words))
    return mean, 206.835 - 1.015 * mean - 84.6 * heard / count


def longest_run(text: str, sizes: Iterable[int]) -> int:
    """The most lines of code that a page shows without a word between.

    `sizes` are the lengths of its boxes, one for each line with `@show`.
    """
    run, found, left = 0, 0, iter(sizes)
    for line in text.splitlines():
        if pages.asked(line):
            run += next(left)
        elif line.strip():
            run = 0
        found = max(found, run)
    return found


def read() -> list[Page]:
    """The main pages, in their order."""
    book, found = Book(pages.ROOT), []
    for page in pages.nav():
        if page.startswith("reference/"):
            continue
        parts = pages.read(page, book.texts[page])
        text = "\n".join(parts.prose)
        boxes = [sum(bool(book.package.file_of(name).lines[n - 1].strip())
                     for name in show.names for n in book.owned[name])
                 for show in parts.shows]
        found.append(Page(
            page, len(re.findall(r"\w[\w'’-]*", text)), sum(boxes),
            tuple(name for show in parts.shows for name in show.names
                  if name not in book.package.files
                  and not mentioned(text, name)),
            *ease(parts.prose), longest_run(book.texts[page], boxes)))
    return found


if __name__ == "__main__":
    every = read()
    for page in every:
        print(f"{page.name:26}{page.words:6} words {page.lines:6} lines "
              f"{page.minutes:6.0f} minutes {len(page.unnamed):5} unnamed "
              f"{page.mean:6.1f} a sentence, ease {page.ease:3.0f}, "
              f"run {page.run:3}")
    print(f"{sum(page.words for page in every) / 1000:.1f} thousand words, "
          f"{sum(page.lines for page in every) / 1000:.1f} thousand lines: "
          f"{sum(page.minutes for page in every) / 60:.1f} hours, "
          f"{sum(len(page.unnamed) for page in every)} names unnamed")
