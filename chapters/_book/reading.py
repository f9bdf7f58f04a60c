"""How long the book takes to read: `python -m chapters._book.reading`.

For each main page: words of prose, lines of code shown, and minutes at 200
words and 8 lines a minute. Then the names that a box shows and no sentence
of its page mentions.
"""

from __future__ import annotations

import re
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

    @property
    def minutes(self) -> float:
        """The time that prose and code take."""
        return self.words / WORDS + self.lines / LINES


def mentioned(text: str, name: str) -> bool:
    """Whether the sentences use the last part of a dotted name."""
    return re.search(rf"\b{re.escape(name.rsplit('.', 1)[-1])}\b",
                     text) is not None


def read() -> list[Page]:
    """The main pages, in their order."""
    book, found = Book(pages.ROOT), []
    for page in pages.nav():
        if page.startswith("reference/"):
            continue
        text = "\n".join(pages.read(page, book.texts[page]).prose)
        names = [name for show in book.shows if show.page == page
                 for name in show.names]
        lines = sum(bool(book.package.file_of(name).lines[n - 1].strip())
                    for name in names for n in book.owned[name])
        found.append(Page(page, len(re.findall(r"\w[\w'’-]*", text)), lines,
                          tuple(name for name in names
                                if name not in book.package.files
                                and not mentioned(text, name))))
    return found


if __name__ == "__main__":
    every = read()
    for page in every:
        print(f"{page.name:26}{page.words:6} words {page.lines:6} lines "
              f"{page.minutes:6.0f} minutes {len(page.unnamed):5} unnamed")
    print(f"{sum(page.words for page in every) / 1000:.1f} thousand words, "
          f"{sum(page.lines for page in every) / 1000:.1f} thousand lines: "
          f"{sum(page.minutes for page in every) / 60:.1f} hours, "
          f"{sum(len(page.unnamed) for page in every)} names unnamed")
