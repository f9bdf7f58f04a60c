"""Figures in the prose, and what vouches for each: `python -m … [page]`.

A figure is a number of ten or more, any number with a unit or in front of
something that a compiler counts, and a ratio: "96 MiB", "four kernels",
"a third", "3.3 times". A page may state it if one of its blocks asserts or
uses that number, or if a box of the page shows it: then a test fails when
they differ. `EXEMPT` has the others, each with its reason.
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
    "there are some forty": "erf's polynomials, counted by hand",
    "12 is 3 times 4": "arithmetic, as an example",
    "and room for 13": "the exercise above runs on these",
    "**Eight thousand lines**": "the aim that the project began with",
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


def vouched(page: str, text: str, book: Book) -> tuple[set, list]:
    """The numbers in a page's blocks and boxes, and its asserted ranges."""
    parts = pages.read(page, text)
    code = [block.code for block in parts.blocks if block.executed]
    for show in parts.shows:
        for name in show.names:
            lines = book.package.file_of(name).lines
            code.append("\n".join(lines[n - 1] for n in sorted(
                book.owned[name])))
    exact, ranges = set(), []
    for each in code:
        exact |= {float(number.replace("_", "")) for number in re.findall(
            r"(?<![\w.])\d[\d_]*(?:\.\d+)?(?:e-?\d+)?", re.sub(
                r"(^|  )\s*#.*", "", each, flags=re.M))}
        try:
            tree = ast.parse(each)
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Compare) and len(node.ops) == 2:
                try:
                    low, high = (float(eval(ast.unparse(end))) for end in (
                        node.left, node.comparators[-1]))
                except Exception:
                    continue
                if low < high <= 2.5 * low:
                    ranges.append((low, high))
    return exact, ranges


def is_vouched(value: float, exact: set, ranges: list) -> bool:
    """Whether the number is there, in whatever power of 1000 or 1024."""
    scales = [base ** k for base in (1000, 1024) for k in range(-4, 5)]
    scales += [.01, 100]
    return any(abs(value * scale - number) < 1e-6 * abs(number)
               for scale in scales for number in exact) or any(
        low <= value * scale <= high for scale in scales
        for low, high in ranges)


def unvouched(names=None) -> list[Figure]:
    """The figures of the main pages for which no block and no box vouches."""
    book, found = Book(pages.ROOT), []
    for page in names or pages.nav():
        if not page.startswith("reference/"):
            text = book.texts[page]
            known = vouched(page, text, book)
            found += [each for each in figures(page, text)
                      if not is_vouched(each.value, *known)
                      and not any(words in each.text for words in EXEMPT)]
    return found


if __name__ == "__main__":
    for each in unvouched(sys.argv[1:]):
        print(f"{each.page}:{each.line}: {each.value:g}: {each.text}")
