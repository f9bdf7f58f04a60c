"""Every executed block of every page runs, in order, as the book runs it.

CI has just built the book from them, and says so: BUILT_SITE.
"""

import builtins
import contextlib
import io
import linecache
import os
import re
from collections import defaultdict

import pytest

from chapters._book import pages

PAGES = [page for page in pages.nav() if (pages.DOCS / page).exists()]


def blocks(page):
    text = (pages.DOCS / page).read_text()
    return [b for b in pages.read(page, text).blocks if b.executed]


@pytest.mark.slow(sample=4)
@pytest.mark.skipif("BUILT_SITE" in os.environ,
                    reason="the book was just built from these blocks")
@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)])
def test_blocks_run(page, monkeypatch):
    monkeypatch.setattr(builtins, "input", None)
    sessions = defaultdict(dict)
    for block in blocks(page):
        name = f"<chapters/{page}:{block.line}>"
        lines = block.code.splitlines(keepends=True)
        linecache.cache[name] = (len(block.code), None, lines, name)
        session = block.options.get("session")
        names = sessions[session] if session else {}
        names.setdefault("__name__", f"block_{session}")
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block.code, name, "exec"), names)
        changing = re.search(r"\bat 0x[0-9a-f]{6,}|" + re.escape(
            str(pages.ROOT)), printed.getvalue())
        assert not changing, f"{name} prints {changing[0]}"
        if block.options.get("html") == "1":
            assert "</figure>" in printed.getvalue(), f"{name} drew nothing"
        elif "result" in block.options:
            assert printed.getvalue().strip(), f"{name} printed nothing"


@pytest.mark.parametrize("page", PAGES)
def test_sessions_are_the_pages_own(page):
    """markdown-exec's sessions are shared by all pages of a build."""
    others = {b.options.get("session") for other in PAGES
              if other != page for b in blocks(other)}
    mine = {b.options.get("session") for b in blocks(page)}
    assert not (mine & others) - {None}


def test_a_block_without_an_end_is_found():
    with pytest.raises(ValueError, match="chapters/a.md:2: this block"):
        pages.read("a.md", "One.\n````python\nprint()\n```\n")


@pytest.mark.parametrize("page", [p for p in PAGES if p[:1] == "0"])
def test_every_page_of_the_road_has_a_picture(page):
    """And each chapter begins with one to step through."""
    drawn = [b.code for b in blocks(page) if b.options.get("html") == "1"]
    assert drawn
    first = next(p for p in PAGES if p[:2] == page[:2])
    assert page != first or any("walk(" in code for code in drawn)
