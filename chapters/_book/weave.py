"""A Python-Markdown extension: code shown by name, and links between pages.

`@show minicompile.fusion.lower.can_inline` alone on a line becomes that
definition, highlighted, with its file and its real line numbers. Several
names share one box. `-part` after a name leaves that part of it to the
reference (`-*`: its methods; `-"if x"`: a branch). `@reference` and a
file's name become the page of that file.
A name that is shown somewhere is a link wherever it is mentioned in code,
and the first use of a glossary term on a page is a link to the glossary.
"""

from __future__ import annotations

import difflib
import html
import os
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from markdown import Markdown
from markdown.extensions import Extension
from markdown.preprocessors import Preprocessor
from markdown.treeprocessors import Treeprocessor
from pygments import lex
from pygments.lexers import PythonLexer
from pygments.token import STANDARD_TYPES

from chapters._book import pages, reference
from chapters._book.names import File, Package


#: The functions that the book compiles: no name of the compiler's.
RUNNING = set(re.findall(r"^def (\w+)", (
    pages.DOCS / "_book/running.py").read_text(), re.M))


#: The classes of tokens that have no colour of their own.
PLAIN = {"", "n", "w", "p"}


class Book:
    """All pages, all sources, and the page that shows each name."""

    def __init__(self, root: Path = pages.ROOT):
        self.package = Package(root)
        self.texts = pages.texts(root)
        self.told = reference.shows(self.texts)
        self.shows = reference.shows({page: self.expanded(page, text)
                                      for page, text in self.texts.items()})
        self.names = [name for show in self.shows for name in show.names]
        self.owned = self.package.split(self.names)
        self.shown_in = {name: show.page for show in reversed(self.shows)
                         for name in show.names if name in self.owned}
        self.short = defaultdict(list)
        for name in self.shown_in:
            module = self.package.file_of(name).module
            self.short[name.removeprefix(f"{module}.")].append(name)
        self.terms = glossary(self.texts.get("glossary.md", ""))

    def expanded(self, page: str, text: str) -> str:
        """The text of a page, with the pages of the files it asks for."""
        return reference.expanded(page, text, self.package, self.told)

    def page_of(self, lines: list[str]) -> str | None:
        """The page that these lines are the text of."""
        text = "\n".join(lines).strip()
        return next((page for page, whole in self.texts.items()
                     if text and whole.strip().endswith(text)), None)

    def check(self, page: str | None, name: str) -> File:
        """The file that defines `name`; an error naming page and line."""
        file = self.package.file_of(name)
        if file is not None:
            return file
        lines = [show.line for show in self.shows
                 if show.page == page and name in show.names]
        known = [n for f in self.package.files.values() for n in f.spans]
        close = difflib.get_close_matches(name, known, 3)
        hint = f"; close: {', '.join(close)}" if close else ""
        raise LookupError(f"chapters/{page}:{(lines or ['?'])[0]}: "
                          f"@show {name}: nothing has that name{hint}")

    def find(self, text: str, page: str | None) -> str | None:
        """The shown name that `text` means, written in full or short.

        A short name means what its page shows, or else the only one in
        the book that is called so. A plain word (`result`) may just as
        well be a variable: it is never looked for on other pages.
        """
        name = self.package.resolve(text.removesuffix("()"))
        if name in self.shown_in:
            return name
        every = [] if name in RUNNING else self.short.get(name, [])
        here = [each for each in every if self.shown_in[each] == page]
        plain = name == text and name.isalpha() and name.islower()
        found = here or ([] if plain else every)
        return found[0] if len(found) == 1 else None

    def link(self, name: str, page: str | None, suffix: str) -> str:
        """The address of the box that shows `name`, seen from `page`."""
        here = os.path.dirname(page or "")
        target = os.path.relpath(self.shown_in[name], here or ".")
        return f"{target.removesuffix('.md')}{suffix}#{place(name)}"


_current: list[tuple[float, Book]] = []


def current() -> Book:
    """The book as it is on disk now.

    When a file has changed since the last look, `mkdocs serve` is at
    work: the compiler's modules are dropped, so that blocks run the code
    that the page shows.
    """
    files = [*pages.ROOT.glob("minicompile/**/*.py"),
             *pages.ROOT.glob("chapters/**/*.md"), pages.ROOT / "mkdocs.yml"]
    stamp = max(file.stat().st_mtime for file in files)
    if not _current or _current[0][0] != stamp:
        for name in list(sys.modules) if _current else ():
            if name.split(".")[0] == "minicompile":
                del sys.modules[name]
        _current[:] = [(stamp, Book(pages.ROOT))]
    return _current[0][1]


def place(name: str) -> str:
    """The anchor of the box that shows `name`."""
    return re.sub(r"[^\w.]+", "-", name.replace('"', ""))


def glossary(text: str) -> dict[str, str]:
    """The glossary's terms and their anchors."""
    terms = re.findall(r"^(\S.*)\n+:   ", text, re.M)
    return {term.lower(): anchor(term) for term in terms}


def anchor(term: str) -> str:
    """The anchor of a glossary term."""
    return "term-" + re.sub(r"[^a-z0-9]+", "-", term.lower()).strip("-")


class Part:
    """The state of the three processors: the book, the current page."""

    def __init__(self, md: Markdown, book: Book, where: dict):
        super().__init__(md)
        self.book, self.where = book, where


class Weave(Part, Preprocessor):
    """Replaces every `@show` line by the code it names."""

    def run(self, lines: list[str]) -> list[str]:
        """The lines, with a stashed box for each `@show`."""
        page, text = self.where["page"], "\n".join(lines)
        whole = self.book.expanded(page or "", text)
        self.rows: dict[File, list[str]] = {}  # highlighted, of this page
        made = any(map(pages.reference_name, lines))
        self.told = [name for show in pages.read("", whole).shows
                     for name in show.names] if made else []
        return [self._box(page, *show[:2]) if (show := pages.asked(line))
                else line for line in whole.split("\n")]

    def _box(self, page: str | None, indent: str, names: list[str]) -> str:
        """A placeholder for the box that shows `names`."""
        parts, last = [], None
        for name in names:
            file = self.book.check(page, name)
            if file is not last:
                parts.append(f'<span class="filename">{file.shown_path}'
                             "</span>")
            parts.append(self._code(file, name, page))
            last = file
        box = f'<div class="highlight show">{"".join(parts)}</div>'
        return indent + self.md.htmlStash.store(box)

    def _code(self, file: File, name: str, page: str | None) -> str:
        """The lines that `name` owns, as one `pre`."""
        if file not in self.rows:
            self.rows[file] = highlight(file, lambda n: self._href(n, page))
        rows = self.rows[file]
        width, out = len(str(len(rows))), []
        left = {min(lines): (each, lines) for each in self.book.owned
                if reference.branch(each) == name
                and (lines := file.lines_of(each))}
        gone = reference.prose(file, self.told).union(
            *(lines - {first} for first, (_, lines) in left.items()))
        lines = ["" if n in gone else line
                 for n, line in enumerate(file.lines, 1)]
        for number in listed(self.book.owned[name] | {*left}, lines):
            if number in gone:
                continue
            if number is None or number in left:
                out.append(f'<span class="elided">{" " * width} '
                           f"{self._left(file, number, left, page)}</span>\n")
                continue
            out.append(f'<span class="linenos" data-linenos="'
                       f'{number:>{width}} "></span>{rows[number - 1]}\n')
        return (f'<pre id="{place(name)}"><span></span><code>'
                f'{"".join(out)}</code></pre>')

    def _left(self, file: File, number: int | None, left: dict,
              page: str | None) -> str:
        """The mark of lines left out; a branch's is a link to it."""
        if number is None:
            return "⋯"
        line = file.lines[number - 1]
        there = self.book.link(left[number][0], page, ".html")
        return (f'{line[:len(line) - len(line.lstrip())]}<a href="{there}" '
                f'aria-label="left out: {html.escape(line.strip())}">⋯</a>')

    def _href(self, name: str, page: str | None) -> str | None:
        """Where code that mentions `name` should link to."""
        name = self.book.package.resolve(name)
        shown = name in self.book.shown_in
        return self.book.link(name, page, ".html") if shown else None


def listed(own: set[int], lines: list[str]) -> list[int | None]:
    """The numbers to print, in order; None where others are left out."""
    full = sorted(n for n in own if lines[n - 1].strip())
    numbers: list[int | None] = full[:1]
    for last, number in zip(full, full[1:]):
        between = range(last + 1, number)
        blank = not any(lines[n - 1].strip() for n in between)
        numbers += [*between] if blank else [None]
        numbers.append(number)
    return numbers


def highlight(file: File, href) -> list[str]:
    """The file's lines as HTML, each known name a link."""
    rows, column = [""], 0
    for kind, text in lex("\n".join(file.lines) + "\n", PythonLexer(
            stripnl=False)):
        while kind not in STANDARD_TYPES:
            kind = kind.parent
        meant = file.mentions.get((len(rows), column), "")
        link = href(meant) if meant.endswith(text) else None
        first, *more = text.split("\n")
        for number, piece in enumerate([first, *more]):
            if number:
                rows.append("")
                column = 0
            column += len(piece.encode())
            if piece:
                shown = html.escape(piece)
                if link:
                    shown = f'<a href="{link}">{shown}</a>'
                kept = STANDARD_TYPES[kind]
                rows[-1] += (shown if kept in PLAIN else
                             f'<span class="{kept}">{shown}</span>')
    return rows


class Links(Part, Treeprocessor):
    """Links names in prose to their code, first terms to the glossary."""

    def run(self, root: ElementTree.Element) -> None:
        """Change `code` elements and first terms into links, in place."""
        page = self.where["page"]
        if page is None:
            return
        left = dict(self.book.terms) if page != "glossary.md" else {}
        for element in _prose(root):
            if element.tag == "dt" and page == "glossary.md":
                element.set("id", anchor("".join(element.itertext())))
            elif element.tag == "code":
                self._link_code(element, page)
            elif element.tag in ("p", "li") and left:
                self._link_term(element, page, left)
        for cell in root.iter("td"):
            for code in cell.iter("code"):
                _breakable(code)

    def _link_code(self, element: ElementTree.Element, page: str) -> None:
        """`<code>name</code>` becomes a link around the same."""
        name = self.book.find(html.unescape(_text(element)), page)
        if name is None:
            return
        inner = ElementTree.Element("code")
        inner.text, element.text = element.text, None
        element.tag = "a"
        element.attrib = {"href": self.book.link(name, page, ".md")}
        element.append(inner)

    def _link_term(self, element: ElementTree.Element, page: str,
                   left: dict) -> None:
        """The first use of each term still left becomes a link."""
        here = os.path.dirname(page)
        address = os.path.relpath("glossary.md", here or ".")
        slots = [(element, None), *((element, c) for c in list(element))]
        for parent, child in slots:
            text = (parent.text if child is None else child.tail) or ""
            for term in sorted(left, key=len, reverse=True):
                found = re.search(rf"\b{re.escape(term)}s?\b", text, re.I)
                if found is None:
                    continue
                link = ElementTree.Element("a", {
                    "href": f"{address}#{left.pop(term)}", "class": "term"})
                link.text = found[0]
                link.tail = text[found.end():]
                text = text[:found.start()]
                at = 0 if child is None else list(parent).index(child) + 1
                parent.insert(at, link)
            if child is None:
                parent.text = text
            else:
                child.tail = text


def _prose(element: ElementTree.Element) -> Iterator[ElementTree.Element]:
    """Every element below but what is in headings, links and listings."""
    for child in list(element):
        yield child
        if child.tag not in ("h1", "h2", "h3", "h4", "a", "pre", "code"):
            yield from _prose(child)


def _text(element: ElementTree.Element) -> str:
    """The element's own text, or nothing if it is not plain."""
    return str(element.text or "") if not len(element) else ""


def _breakable(code: ElementTree.Element) -> None:
    """Let a name in a narrow cell break behind a dot, not anywhere."""
    code.text, *rest = re.split(r"(?<=[./:_])(?=\w)", _text(code))
    for piece in rest:
        ElementTree.SubElement(code, "wbr").tail = piece


class Where(Part, Preprocessor):
    """Remembers which page is being converted."""

    def run(self, lines: list[str]) -> list[str]:
        """The lines unchanged."""
        self.where["page"] = self.book.page_of(lines)
        return lines


class BookExtension(Extension):
    """The three processors above, over one reading of the book."""

    book: Book | None = None  # given by tests; else the book is read anew

    def extendMarkdown(self, md: Markdown) -> None:
        book, where = self.book or current(), {"page": None}
        after_fences, after_inline, first = 24, 15, 100
        md.preprocessors.register(Where(md, book, where), "where", first)
        md.preprocessors.register(Weave(md, book, where), "weave",
                                  after_fences)
        md.treeprocessors.register(Links(md, book, where), "book-links",
                                   after_inline)


def makeExtension(**options) -> Extension:
    """Python-Markdown's entry point."""
    return BookExtension(**options)
