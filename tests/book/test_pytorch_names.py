"""Every name of PyTorch's that the book cites is in the installed torch."""

import ast
import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from chapters._book import pages

TORCH = Path(find_spec("torch").origin).parents[1]
PAGES = sorted((pages.ROOT / "chapters").rglob("*.md"))
SOURCES = sorted((pages.ROOT / "minicompile").rglob("*.py"))
_CITED = re.compile(r"\btorch/[\w/]+\.pyi?\b(?::[A-Za-z_]\w*(?:\.\w+)*)?")
_ROW = re.compile(r"^\| *`(?P<ours>minicompile[\w./]*)` *\|"
                  r" *`(?P<theirs>torch/[^`]+)` *\|", re.M)


def cited(path):
    return sorted(set(_CITED.findall(path.read_text())))


@lru_cache
def defined(path):
    """Every name that a file defines: `Class`, `Class.method`, `NAME`."""
    names = set()

    def visit(body, prefix):
        for node in body:
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef,
                                 ast.ClassDef)):
                names.add(prefix + node.name)
            if isinstance(node, ast.ClassDef):
                visit(node.body, f"{prefix}{node.name}.")
            targets = getattr(node, "targets", [getattr(
                node, "target", None)])
            names.update(prefix + t.id for t in targets
                         if isinstance(t, ast.Name))
            for inner in ("body", "orelse", "finalbody", "handlers"):
                if isinstance(node, (ast.If, ast.Try, ast.With,
                                     ast.ExceptHandler)):
                    visit(getattr(node, inner, []), prefix)

    visit(ast.parse(path.read_text()).body, "")
    return names


def missing(citation):
    """What is wrong with a citation, or None."""
    file, _, symbol = citation.partition(":")
    if not (TORCH / file).exists():
        return f"{file} does not exist"
    if symbol and symbol not in defined(TORCH / file):
        return f"{file} defines no {symbol}"


@pytest.mark.parametrize("path", [p for p in PAGES + SOURCES if cited(p)],
                         ids=lambda p: p.relative_to(pages.ROOT).as_posix())
def test_cited_files_and_symbols_exist(path):
    assert [m for c in cited(path) if (m := missing(c))] == []


def test_a_wrong_citation_is_found():
    assert missing("torch/_nothing/here.py")
    assert missing("torch/_inductor/scheduler.py:Scheduler.nothing")
    assert missing("torch/_inductor/scheduler.py:Scheduler.can_fuse") is None


def test_the_map_names_what_exists_here_and_there():
    text = (pages.DOCS / "a-map-to-pytorch.md").read_text()
    rows = _ROW.findall(text)
    assert len(rows) >= 7
    from chapters._book.names import Package
    package = Package(pages.ROOT)
    assert [ours for ours, _ in rows
            if package.file_of(ours) is None] == []
    assert [m for _, theirs in rows if (m := missing(theirs))] == []
