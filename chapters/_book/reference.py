"""Reference pages, made from files: `python -m chapters._book.reference`.

A file in a subfolder of a stage adds rows to tables of the road. Its page
is the file: the docstrings become prose, the definitions boxes. A file of
the road has such a page too, with the code that no main page shows. The
command writes one line for each page, and the pages' part of `nav`.
"""

from __future__ import annotations

import ast
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from chapters._book import pages
from chapters._book.names import File, Package
from chapters._book.pages import ROOT, Show, reference_name

_NAV = "  - Reference:\n"
_STAGES = ("core", "trace", "guards", "split", "fusion", "emit", "replay",
           "budget", "dispatch", "report")
_STEP = "    "  # one level further in
_DEFINES = (ast.FunctionDef, ast.ClassDef)


def shows(texts: dict[str, str]) -> list[Show]:
    """The `@show` lines that are written in these pages."""
    return [show for page, text in texts.items()
            for show in pages.read(page, text).shows]


def expanded(page: str, text: str, package: Package,
             told: list[Show]) -> str:
    """A page's text, every `@reference` line replaced by the page of it."""
    lines = []
    for line in text.splitlines():
        asked = reference_name(line)
        lines += body(package.files[asked], told, page) if asked else [line]
    return "\n".join(lines)


def body(file: File, told: list[Show], page: str) -> list[str]:
    """A file's docstrings and `@show` lines; `told` is shown elsewhere."""
    first, *more = spoken(file.tree)
    lines = [f"# {first.removesuffix('.')}", *more, ""]
    here = os.path.dirname(page) or "."
    links = dict.fromkeys(
        f"[{show.title}]({os.path.relpath(show.page, here)})"
        for show in told if any(name in file.spans for name in show.names))
    if links:
        lines += ["The main parts of this file are in "
                  f"{' and '.join(links)}. Here is the rest.", ""]
    names = rest(file, told)
    for name, node in definitions(file):
        if name in names:
            lines += [*spoken(node), "", f"@show {name}", ""]
    for name in filter(branch, names):
        show = next(show for show in told if name in show.left)
        whole = branch(name).removeprefix(f"{file.module}.")
        lines += [f"`{whole}` is in [{show.title}]"
                  f"({os.path.relpath(show.page, here)}) without these "
                  "lines:", "", f"@show {name}", ""]
    return [*lines, *(f"@show {name}" for name in names
                      if name == file.module)]


def rest(file: File, told: list[Show]) -> list[str]:
    """The names that a file's own page shows: all that `told` does not.

    A method comes with its class, unless it is left out of that one. A
    branch comes with its function.
    """
    shown = {name for show in told for name in show.names}
    left = {name for show in told for name in show.left}
    known, whole = dict(definitions(file)), file.module in shown

    def is_left(name: str) -> bool:
        outer, _, last = name.rpartition(".")
        if name in left or name in shown:
            return name not in shown
        if f"{outer}.*" in left:
            return name in known and last != "__init__"
        return not whole and (name == file.module or (
            outer == file.module and name in known))

    branches = sorted((name for name in left if branch(name)
                       and file.lines_of(name)),
                      key=lambda name: min(file.lines_of(name)))
    return [name for name in [*file.spans, *branches] if is_left(name)]


def branch(name: str) -> str | None:
    """The function whose branch `name` is; None for a definition."""
    whole, quote, _ = name.partition('."')
    return whole if quote else None


def definitions(file: File) -> Iterator[tuple[str, ast.AST]]:
    """The functions and classes of a file, and the methods, by name."""
    for node in file.tree.body:
        if isinstance(node, _DEFINES):
            name = f"{file.module}.{node.name}"
            yield name, node
            for inner in node.body:
                if isinstance(inner, _DEFINES):
                    yield f"{name}.{inner.name}", inner


def spoken(node: ast.AST) -> list[str]:
    """A docstring as a paragraph: of what, and PyTorch's files as code."""
    text = ast.get_docstring(node) or ""
    if text and not isinstance(node, ast.Module):
        capital = text[:1] if text[1:2].isupper() else text[:1].lower()
        text = f"`{node.name}`: {capital}{text[1:]}"
    return re.sub(r"\btorch/[\w/.:]*\w", r"`\g<0>`", text).split("\n")


def prose(file: File, names: list[str]) -> set[int]:
    """The numbers of the lines that a file's page tells as prose."""
    told = {file.module: file.tree, **dict(definitions(file))}
    return {number for name in names
            if (node := told.get(name)) and len(node.body) > 1
            and ast.get_docstring(node)
            for number in range(node.body[0].lineno,
                                node.body[0].end_lineno + 1)}


def wanted(root: Path = ROOT) -> dict[Path, str]:
    """The files of the reference's pages, and what each has to hold."""
    found, nav, above = {}, _NAV, ()
    told = shows(pages.texts(root))
    for file in sorted(Package(root).files.values(), key=shelved):
        if not any(file.lines) or not rest(file, told):
            continue
        name = "init" if file.path.stem == "__init__" else file.path.stem
        where = folder(file)
        address = "/".join(["reference", *where, f"{name}.md"])
        found[root / "chapters" / address] = f"@reference {file.module}\n"
        shelf = where or ("the driver",)
        for depth, part in enumerate(shelf):
            if shelf[:depth + 1] != above[:depth + 1]:
                nav += f"{_STEP * depth}      - {part}:\n"
        nav += f"{_STEP * len(shelf)}      - {name}: {address}\n"
        above = shelf
    yml = root / "mkdocs.yml"
    before = yml.read_text().partition(_NAV)[0]
    return {yml: before + (nav if found else ""), **found}


def shelved(file: File) -> tuple:
    """The driver first, then the stages in the order of the chapters."""
    where = folder(file)
    stage = where[0] if where else ""
    order = ("", *_STAGES, stage)  # a stage not known is the last
    return order.index(stage), where, file.path.stem != "__init__"


def is_reference(file: File) -> bool:
    """Whether a file lies in a subfolder of a stage."""
    return len(folder(file)) > 1


def folder(file: File) -> tuple[str, ...]:
    """The folders below the package that a file lies in."""
    return Path(file.shown_path).parts[1:-1]


def stale(root: Path = ROOT) -> list[Path]:
    """The pages that are missing, are otherwise, or have no file."""
    files = wanted(root)
    there = {*(root / "chapters" / "reference").rglob("*.md")}
    return sorted({*(path for path, text in files.items() if not
                     path.exists() or path.read_text() != text),
                   *(there - files.keys())})


def main() -> int:
    """Write what is missing, remove what is too much."""
    files = wanted()
    for path in stale():
        print(path.relative_to(ROOT))
        if path in files:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(files[path])
        else:
            path.unlink()
    return 0


if __name__ == "__main__":
    sys.exit(main())
