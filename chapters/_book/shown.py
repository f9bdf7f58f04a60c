"""The shown-once check: `python -m chapters._book.shown [prefix]`.

Every line of minicompile/ that is not blank is shown exactly once over the
book. Prints the lines shown never or more than once and exits 1 if there
are any; a prefix such as `minicompile.fusion` looks at that part only.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from chapters._book import pages
from chapters._book.weave import Book


def problems(root: Path = pages.ROOT, prefix: str = "") -> list[str]:
    """One line of text for every run of lines shown other than once."""
    book = Book(root)
    found = [f"chapters/{show.page}:{show.line}: @show {name}: "
             "nothing has that name"
             for show in book.shows for name in show.names + show.left
             if name.removesuffix(".*") not in book.owned
             and name.startswith(prefix)]
    for module, file in book.package.files.items():
        if not f"{module}.".startswith(prefix):
            continue
        times = Counter(line for name in book.names
                        if book.package.file_of(name) is file
                        for line in book.owned[name])
        counts = [(number, times[number])
                  for number, text in enumerate(file.lines, 1)
                  if text.strip()]
        found += [f"{file.shown_path}:{first}-{last}: shown {count} times"
                  for first, last, count in runs(counts) if count != 1]
    return found


def runs(counts: list[tuple[int, int]]) -> list[tuple[int, int, int]]:
    """(first, last, count) of neighbouring lines with one count."""
    joined: list[tuple[int, int, int]] = []
    for number, count in counts:
        if joined and joined[-1][2] == count:
            joined[-1] = (joined[-1][0], number, count)
        else:
            joined.append((number, number, count))
    return joined


def main(arguments: list[str]) -> int:
    """Print the problems; 1 if there are any."""
    found = problems(prefix=arguments[0] if arguments else "")
    print("\n".join(found) or "every line is shown exactly once")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
