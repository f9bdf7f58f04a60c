"""Reference pages, made from files: `python -m chapters._book.reference`.

A file in a subfolder of a stage adds rows to tables of the road. Its page
is the file: the docstrings become prose, the definitions boxes. The
command writes one line for each such file, and the pages' part of `nav`.
"""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path

from chapters._book.names import File, Package
from chapters._book.pages import ROOT, reference_name

_NAV = "  - Reference:\n"


def expanded(text: str, package: Package) -> str:
    """A page's text, every `@reference` line replaced by the page of it."""
    lines = []
    for line in text.splitlines():
        asked = reference_name(line)
        lines += page(package.files[asked]) if asked else [line]
    return "\n".join(lines)


def page(file: File) -> list[str]:
    """The lines of a file's page: docstrings, and `@show` lines."""
    first, *rest = told(file.tree)
    lines = [f"# {first.removesuffix('.')}", *rest, ""]
    for node in file.tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            lines += [*told(node), "", f"@show {file.module}.{node.name}", ""]
    return [*lines, f"@show {file.module}"]


def told(node: ast.Module | ast.FunctionDef | ast.ClassDef) -> list[str]:
    """A docstring as a paragraph: of what, and PyTorch's files as code."""
    text = ast.get_docstring(node) or ""
    if text and not isinstance(node, ast.Module):
        capital = text[:1] if text[1:2].isupper() else text[:1].lower()
        text = f"`{node.name}`: {capital}{text[1:]}"
    return re.sub(r"\btorch/[\w/.:]*\w", r"`\g<0>`", text).split("\n")


def prose(file: File) -> set[int]:
    """The numbers of the lines that a file's page tells as prose."""
    return {number for node in (file.tree, *file.tree.body)
            if isinstance(node, (ast.Module, ast.FunctionDef, ast.ClassDef))
            and ast.get_docstring(node) and len(node.body) > 1
            for number in range(node.body[0].lineno,
                                node.body[0].end_lineno + 1)}


def is_reference(file: File) -> bool:
    """Whether a file lies in a subfolder of a stage."""
    return len(Path(file.shown_path).parts) > 3


def wanted(root: Path = ROOT) -> dict[Path, str]:
    """The files of the reference's pages, and what each has to hold."""
    pages, nav, folder = {}, _NAV, None
    for file in filter(is_reference, Package(root).files.values()):
        _, stage, topic, name = Path(file.shown_path).with_suffix("").parts
        address = f"reference/{stage}/{topic}/{name}.md"
        pages[root / "chapters" / address] = f"@reference {file.module}\n"
        if folder != (stage, topic):
            folder = stage, topic
            nav += f"      - {stage} · {topic}:\n"
        nav += f"          - {name}: {address}\n"
    yml = root / "mkdocs.yml"
    before = yml.read_text().partition(_NAV)[0]
    return {yml: before + (nav if pages else ""), **pages}


def stale(root: Path = ROOT) -> list[Path]:
    """What is missing, is otherwise, or is there for no file."""
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
