"""Figures in the prose, and what vouches for each: `python -m … [page]`.

Three kinds of number are figures: a number of ten or more, one with a unit
("96 MiB", "four kernels"), and a ratio ("a third", "3.3 times"). A page may
state a figure that one of its blocks asserts, or that its visible code has:
then a test fails when they differ. `EXEMPT` has the others, with reasons.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from typing import NamedTuple

from chapters._book import pages
from chapters._book.weave import Book

_SMALL = ("zero one two three four five six seven eight nine ten eleven "
          "twelve thirteen fourteen fifteen sixteen seventeen eighteen "
          "nineteen").split()
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety".split()
_LARGE = {"hundred": 100, "thousand": 1000, "million": 10**6,
          "billion": 10**9, "trillion": 10**12}
WORDS = ({word: n for n, word in enumerate(_SMALL)}
         | {word: 10 * n for n, word in enumerate(_TENS, 2)}
         | {"dozen": 12} | _LARGE)
_PARTS = {"third": 3, "quarter": 4, "fifth": 5, "tenth": 10, "half": 2}
_UNITS = (r"(?:[kMGT]i?B|bytes?|bits?|ms|us|ns|s|seconds?|minutes?|hours?|"
          r"(?:micro|milli|nano|femto)seconds?|per ?cent|%|times|"
          r"lines|kernels?|launch(?:es)?|loops|operators|nodes|guards|"
          r"graphs|questions|instructions|frames|passes|elements|entries|"
          r"recordings|matmuls|dicts|tera(?:bytes|flops)|TB/s|GB/s)\b")
_WORD = "|".join(sorted(WORDS, key=len, reverse=True))
_FIGURE = re.compile(
    rf"(?<![\w.$])(?P<digits>\d+(?:,\d{{3}})*(?:\.\d+)?)"
    rf"(?: (?P<size>{'|'.join(_LARGE)})\b|(?![\w]))"
    rf"|\b(?P<of>an?|two|three) (?P<part>{'|'.join(_PARTS)})s?\b"
    rf"|\b(?P<words>(?:{_WORD})(?:[- ](?:{_WORD}))*)\b", re.I)
#: Numbers that are names: chapters, versions, exercises, items of a list.
_NAMES = re.compile(
    r"\b(?:chapters?|exercises?|python|torch|page|part|PEP|version)\s+"
    r"\d+(?:\.\d+)*(?:,? (?:to|and) \d+(?:\.\d+)*)*|\b3\.1\d\b"
    r"|\[\d[^]]*\]|<[^>]*>|\b\d+-bit\b|^ *\d+\. ", re.I | re.M)

#: Figures that no block can vouch for: the words around them, and why.
EXEMPT = {
    "cuts it in two | two graphs": "the halves, in words",
    "12 is 3 times 4": "arithmetic, as an example",
    "and room for 13": "the exercise above runs on these",
}


class Figure(NamedTuple):
    """A number that the prose of a page states."""

    page: str
    line: int
    value: float
    text: str  # it, and the words around it


def value_of(words: str) -> float:
    """The number that words say: "four million", "twenty-eight"."""
    total = part = 0
    for word in re.split(r"[- ]", words.lower()):
        size = WORDS[word]
        if word in _LARGE:
            part = (part or 1) * size
            if size > 100:
                total, part = total + part, 0
        else:
            part += size
    return total + part


def figures(page: str, text: str) -> Iterator[Figure]:
    """The figures of a page's prose: not those in code, links, headings."""
    def blank(found: re.Match) -> str:
        return re.sub(r"[^\n]", " ", found[0])

    text = re.sub(r"^( *)(```+|~~~+).*?^\1\2", blank, text, flags=re.M | re.S)
    text = re.sub(r"(?<!`)`[^`]+`(?!`)|(?<=\])\([^)]*\)", blank, text)
    text = _NAMES.sub(blank, text)
    for number, line in enumerate(text.splitlines(), 1):
        if pages.asked(line) or re.match(
                r"\s*(#|\?\?\?|!!!|\*\*\d\.\d|    \S.*  )", line):
            continue
        for found in _FIGURE.finditer(line):
            if found["digits"]:
                value = float(found["digits"].replace(",", "")) * _LARGE.get(
                    found["size"], 1)
            elif found["words"]:
                value = value_of(found["words"])
            else:
                value = WORDS.get(found["of"].lower(), 1) / _PARTS[
                    found["part"].lower()]
            said = found["digits"] and value > 3 or re.match(
                rf" ?{_UNITS}", line[found.end():])
            if value not in (0, 1) and (
                    value >= 10 or value != int(value) or said):
                around = line[max(0, found.start() - 30):found.end() + 30]
                yield Figure(page, number, value, around.strip())


class Known(NamedTuple):
    """The numbers that vouch for a page's figures."""

    asserted: set  # in an assertion: in any power of 1000 or 1024
    stated: set  # in code that the page shows
    ranges: list  # between two ends that an assertion gives


def vouched(page: str, text: str, book: Book) -> Known:
    """The numbers in a page's assertions, in its visible code and boxes."""
    parts = pages.read(page, text)
    known = Known(set(), set(), [])
    for show in parts.shows:
        for name in show.names:
            lines = book.package.file_of(name).lines
            known.stated.update(_numbers("\n".join(
                lines[n - 1] for n in sorted(book.owned[name]))))
    for block in parts.blocks:
        if not block.executed:
            continue
        if block.options.get("source"):
            known.stated.update(_numbers(block.code))
        for node in ast.walk(ast.parse(block.code)):
            if isinstance(node, ast.Assert):
                known.asserted.update(_numbers(ast.unparse(node.test)))
                known.ranges.extend(_ranges(node.test))
    return known


def _numbers(code: str) -> set[float]:
    """The numbers in code, but for those in comments."""
    return {float(number.replace("_", "")) for number in re.findall(
        r"(?<![\w.])\d[\d_]*(?:\.\d+)?(?:e-?\d+)?", re.sub(
            r"(^|  )\s*#.*", "", code, flags=re.M))}


def _ranges(test: ast.expr) -> Iterator[tuple[float, float]]:
    """The ends of each `low < value < high` in an assertion."""
    for node in ast.walk(test):
        if isinstance(node, ast.Compare) and len(node.ops) == 2:
            try:
                low, high = (float(eval(ast.unparse(end))) for end in (
                    node.left, node.comparators[-1]))
            except Exception:
                continue
            if low < high <= 2.5 * low:
                yield low, high


def is_vouched(value: float, known: Known) -> bool:
    """Whether the page's code says this number.

    A range vouches for a round number only: one of two digits.
    """
    scales = [base ** k for base in (1000, 1024) for k in range(-4, 5)]
    scales += [.01, 100]
    round_ = float(f"{value:.1e}") == value or value != int(value)
    return value in known.stated or any(
        abs(value * scale - number) < 1e-6 * abs(number)
        for scale in scales for number in known.asserted) or round_ and any(
        low <= value * scale <= high for scale in scales
        for low, high in known.ranges)


def unvouched(names=None) -> list[Figure]:
    """The figures of the main pages for which no block and no box vouches."""
    book, found = Book(pages.ROOT), []
    for page in names or pages.nav():
        if not page.startswith("reference/"):
            text = book.texts[page]
            known = vouched(page, text, book)
            found += [each for each in figures(page, text)
                      if not is_vouched(each.value, known)
                      and not any(words in each.text for words in EXEMPT)]
    return found


if __name__ == "__main__":
    for each in unvouched(sys.argv[1:]):
        print(f"{each.page}:{each.line}: {each.value:g}: {each.text}")
